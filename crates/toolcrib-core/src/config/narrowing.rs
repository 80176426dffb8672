//! An entry that declares no source of its own and only restricts one of the configuration below it: `enabled: false`,
//! `tools`, or both.

use super::node::ConfigNode;
use super::reader::ConfigReader;
use super::{ConfigDiagnostic, ConfiguredSource, settings, source};
use crate::policy::Rules;
use crate::source::SourceId;

/// What one file restricts of a source that another file declares.
#[derive(Debug, Clone, PartialEq)]
pub struct Narrowing {
    pub id: SourceId,
    pub enabled: Option<bool>,
    pub tools: Rules,
    pub file: String,
    pub line: usize,
}

const NARROWING_KEYS: [&str; 2] = ["enabled", "tools"];

/// Whether an entry has these keys and no others.
pub(super) fn is_narrowing(node: &ConfigNode) -> bool {
    let entries = node.entries();
    !entries.is_empty() && entries.iter().all(|entry| NARROWING_KEYS.contains(&entry.key.as_str()))
}

/// Reads such an entry. The fault that it leaves in any case says that there is nothing to narrow; it is dropped with
/// the declaration when the file is laid over a configuration that has the source.
pub(super) fn read(reader: &mut ConfigReader<'_>, id: &SourceId, node: &ConfigNode, path: &str) -> Option<Narrowing> {
    let section = reader.as_section(node, path)?;
    let enabled = reader.read_bool(&section, "enabled");
    let tools = settings::read_rules(reader, &section);
    let file = reader.file.to_owned();
    let narrowing = Narrowing { id: id.clone(), enabled, tools, file, line: section.line };
    let narrowing = reader.errors.is_empty().then_some(narrowing);
    let message = format!("{}, or a source `{id}` in your own configuration to narrow", source::missing_kind_message());
    reader.error(section.line, path, message);
    narrowing
}

/// Restricts the sources of the configuration below. Returns what was asked for in vain.
pub(super) fn apply(narrowings: &[Narrowing], sources: &mut [ConfiguredSource]) -> Vec<ConfigDiagnostic> {
    let mut warnings = Vec::new();
    for narrowing in narrowings {
        let Some(declaration) = sources.iter_mut().find(|declaration| declaration.id == narrowing.id) else { continue };
        let Ok(source) = &mut declaration.source else { continue };
        let settings = &mut source.settings;
        let key = format!("sources.{}.enabled", narrowing.id);
        match narrowing.enabled {
            Some(false) => settings.enabled = Some(false),
            Some(true) if settings.enabled == Some(false) => {
                let message = format!("cannot enable a source that `{}` disables", declaration.file);
                warnings.push(ConfigDiagnostic::new(&narrowing.file, narrowing.line, &key, message));
            }
            Some(true) | None => {}
        }
        let rules = std::mem::take(&mut settings.tools);
        settings.tools = rules.restricted_by(narrowing.tools.clone());
    }
    warnings
}
