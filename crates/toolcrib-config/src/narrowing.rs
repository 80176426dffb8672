//! Narrowings: entries of a file that declare no source but restrict one of a configuration with lower precedence, by
//! `enabled: false`, `tools`, or both. A project's file uses them on the sources of the user.
//!
//! ```text
//! sources:
//!   github: { tools: { "delete_*": deny } }    # `github` is declared in the user's file
//! ```
//!
//! A narrowing can take away and never give: `enabled: true` has no effect, and its rules are added as a restriction.

use toolcrib_core::policy::Rules;
use toolcrib_core::source::SourceId;

use super::reader::ConfigReader;
use super::syntax::ConfigNode;
use super::{ConfigDiagnostic, ConfiguredSource, settings, source};

/// Restriction in one file of a source that another file declares.
#[derive(Debug, Clone, PartialEq)]
pub struct Narrowing {
    /// Source that is restricted.
    pub id: SourceId,
    /// `Some(true)` cannot enable a disabled source; it only leads to a warning.
    pub enabled: Option<bool>,
    /// Rules that are applied on top of those of the source.
    pub tools: Rules,
    /// Display name of the restricting file, for warnings.
    pub file: String,
    pub line: usize,
}

/// Keys that restrict a source and do not define one.
const NARROWING_KEYS: [&str; 2] = ["enabled", "tools"];

/// Whether an entry has only keys that restrict.
pub(super) fn is_narrowing(node: &ConfigNode) -> bool {
    let entries = node.entries();
    !entries.is_empty() && entries.iter().all(|entry| NARROWING_KEYS.contains(&entry.key.as_str()))
}

/// Reads a narrowing. It always reports an error too, which says that there is no source to restrict: the error is
/// dropped when the file is merged over a configuration that has the source.
pub(super) fn read(reader: &mut ConfigReader<'_>, id: &SourceId, node: &ConfigNode, path: &str) -> Option<Narrowing> {
    let section = reader.as_section(node, path)?;
    let enabled = reader.read_bool(&section, "enabled");
    let tools = settings::read_rules(reader, id, &section);
    let file = reader.file.to_owned();
    let narrowing = Narrowing { id: id.clone(), enabled, tools, file, line: section.line };
    let narrowing = reader.errors.is_empty().then_some(narrowing);
    let message =
        format!("{}, or a source `{id}` in your user configuration to restrict", source::missing_kind_message());
    reader.error(section.line, path, message);
    narrowing
}

/// Applies narrowings to the sources of the lower configuration. Returns a warning for each attempt to enable a source.
pub(super) fn apply(narrowings: &[Narrowing], sources: &mut [ConfiguredSource]) -> Vec<ConfigDiagnostic> {
    let mut warnings = Vec::new();
    for narrowing in narrowings {
        let Some(configured) = sources.iter_mut().find(|source| source.id == narrowing.id) else { continue };
        let Ok(source) = &mut configured.source else { continue };
        let settings = &mut source.settings;
        let key = format!("sources.{}.enabled", narrowing.id);
        match narrowing.enabled {
            Some(false) => {
                settings.references.remove("enabled");
                settings.enabled = Some(false);
            }
            Some(true) if settings.enabled == Some(false) => {
                let message = format!("cannot enable a source that `{}` disables", configured.file);
                warnings.push(ConfigDiagnostic::new(&narrowing.file, narrowing.line, &key, message));
            }
            Some(true) | None => {}
        }
        let rules = std::mem::take(&mut settings.tools);
        settings.tools = rules.restricted_by(narrowing.tools.clone());
    }
    warnings
}
