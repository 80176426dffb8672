//! Reads the settings of a source and the sections `defaults`, `expose`, `limits` and `search`.
//!
//! A setting that is absent stays `None`: which default applies is decided at use, after `defaults` of the project and
//! of the user are merged ([`SourceSettings::with_defaults`]). The accepted words are tables here, and the functions at
//! the end write the same words back.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use toolcrib_core::limits::CallLimits;
use toolcrib_core::node_label::{NODE_LABEL_RULE, is_node_label};
use toolcrib_core::policy::{Rule, Rules, Verdict};
use toolcrib_core::source::{
    ArgumentValidation, Lifecycle, OnConflict, ProtocolVersion, ResultText, SourceId, SourceSettings,
};
use toolcrib_core::text::did_you_mean;

use super::diagnostic::ConfigDiagnostic;
use super::reader::{ConfigReader, ReferenceLookup, Section, ZeroDuration};
use super::reference::has_reference;
use super::syntax::{ConfigNode, NodeEntry, NodeValue, join_key};
use super::{ConfigDialect, Expose, ExposeMode, path, source};

/// Keys that are allowed both under `defaults` and on a source.
pub(super) const DEFAULTS_KEYS: [&str; 12] = [
    "ttl",
    "connect_timeout",
    "first_start_timeout",
    "discovery_timeout",
    "call_timeout",
    "idle",
    "result_limit",
    "on_conflict",
    "lifecycle",
    "results",
    "validate",
    "trust_hints",
];
/// Keys of a source of any kind that are not allowed under `defaults`.
pub(super) const SOURCE_ONLY_KEYS: [&str; 9] =
    ["transport", "type", "enabled", "title", "tags", "essential", "tools", "limits", "nodes"];
/// Keys of the section `expose`.
pub(super) const EXPOSE_KEYS: [&str; 5] = ["mode", "full_below_tokens", "essential", "essential_patterns", "prefix"];

/// Keys of the section `limits`, at top level and on a source.
pub(super) const LIMITS_KEYS: [&str; 2] = ["calls_per_minute", "concurrent_calls"];

/// Keys of the section `search`.
const SEARCH_KEYS: [&str; 1] = ["model"];

/// Values of `on_conflict`.
const ON_CONFLICT_CHOICES: [(&str, OnConflict); 2] = [("exclude", OnConflict::Exclude), ("keep", OnConflict::Keep)];
/// Values of `lifecycle`.
const LIFECYCLE_CHOICES: [(&str, Lifecycle); 3] =
    [("shared", Lifecycle::Shared), ("transient", Lifecycle::Transient), ("per_client", Lifecycle::PerClient)];
/// Values of `results`.
const RESULTS_CHOICES: [(&str, ResultText); 2] = [("clean", ResultText::Clean), ("raw", ResultText::Raw)];

/// Values of `validate`.
const VALIDATE_CHOICES: [(&str, ArgumentValidation); 2] =
    [("strict", ArgumentValidation::Strict), ("lenient", ArgumentValidation::Lenient)];

/// Reads all settings of a source. Unknown keys are reported by the caller, which knows those of the kind as well.
///
/// Settings that refer to environment variables are checked with the values of this process and stay references.
pub(super) fn read(reader: &mut ConfigReader<'_>, id: &SourceId, section: &Section<'_>) -> SourceSettings {
    let is_reference = |entry: &&NodeEntry| {
        let key = entry.key.as_str();
        let is_single = DEFAULTS_KEYS.contains(&key) || ["enabled", "title", "protocol"].contains(&key);
        is_single && entry.node.as_text().is_some_and(|text| has_reference(text) && !text.contains("${file:"))
    };
    let (referring, literal): (Vec<&NodeEntry>, Vec<&NodeEntry>) = section.entries.iter().partition(is_reference);
    let literal: Vec<NodeEntry> = literal.into_iter().cloned().collect();
    let literal = Section { path: section.path.clone(), line: section.line, entries: &literal };
    let references: BTreeMap<String, String> =
        referring.iter().filter_map(|entry| Some((entry.key.clone(), entry.node.as_text()?.to_owned()))).collect();
    if reader.lookup.is_some() && !references.is_empty() {
        let referring: Vec<NodeEntry> = referring.into_iter().cloned().collect();
        let referring = Section { path: section.path.clone(), line: section.line, entries: &referring };
        // Only for its errors: the values belong to this process.
        read_single(reader, &referring);
    }
    SourceSettings {
        tags: remove_duplicates(reader.read_resolved_list(&literal, "tags")),
        essential: reader.read_resolved_list(&literal, "essential"),
        tools: read_rules(reader, id, &literal),
        limits: read_source_limits(reader, &literal),
        nodes: read_nodes(reader, &literal),
        references,
        ..read_single(reader, &literal)
    }
}

/// Removes items that occur before, and keeps the order.
pub(super) fn remove_duplicates(items: Vec<String>) -> Vec<String> {
    let mut seen = BTreeSet::new();
    items.into_iter().filter(|item| seen.insert(item.clone())).collect()
}

/// Returns settings with the references to environment variables resolved. Those that cannot be resolved stay unset and
/// are returned as errors.
pub fn resolve_settings(
    settings: &SourceSettings,
    lookup: ReferenceLookup<'_>,
) -> (SourceSettings, Vec<ConfigDiagnostic>) {
    if settings.references.is_empty() {
        return (settings.clone(), Vec::new());
    }
    let entries: Vec<NodeEntry> = settings.references.iter().map(|(key, text)| NodeEntry::text(key, text)).collect();
    let mut reader = ConfigReader::new("source", Path::new("."), ConfigDialect::Toolcrib).with_lookup(Some(lookup));
    let resolved = read_single(&mut reader, &Section { path: String::new(), line: 0, entries: &entries });
    let (enabled, title) = (resolved.enabled.or(settings.enabled), resolved.title.clone().or(settings.title.clone()));
    let protocol = resolved.protocol.or(settings.protocol);
    let shared = resolved.with_defaults(settings);
    let SourceSettings { tags, essential, tools, limits, nodes, references, .. } = settings.clone();
    let resolved =
        SourceSettings { enabled, title, protocol, tags, essential, tools, limits, nodes, references, ..shared };
    (resolved, reader.errors)
}

/// Reads the settings that are single values.
fn read_single(reader: &mut ConfigReader<'_>, section: &Section<'_>) -> SourceSettings {
    let versions = ProtocolVersion::ALL.map(|version| (version.as_str(), version));
    SourceSettings {
        protocol: reader.read_choice_at(section, "protocol", &versions),
        enabled: reader.read_bool(section, "enabled"),
        title: reader.read_resolved_text(section, "title"),
        ..read_shared(reader, section)
    }
}

/// Reads `defaults`. Keys that exist only on a source get a message of their own.
pub(super) fn read_defaults(reader: &mut ConfigReader<'_>, section: &Section<'_>) -> SourceSettings {
    for entry in section.entries.iter().filter(|entry| !DEFAULTS_KEYS.contains(&entry.key.as_str())) {
        let message = if source::source_keys().any(|key| key == entry.key) {
            format!("`{}` is a key of a source, not of `defaults`", entry.key)
        } else {
            format!("unknown key `{}`{}", entry.key, did_you_mean(&entry.key, DEFAULTS_KEYS))
        };
        reader.error_or_warn(entry.line, &section.path, message);
    }
    read_shared(reader, section)
}

/// Reads `expose`; keys that are absent have their defaults.
pub(super) fn read_expose(reader: &mut ConfigReader<'_>, section: &Section<'_>) -> Expose {
    reader.report_unknown_keys(section, &EXPOSE_KEYS);
    let default = Expose::default();
    let modes = ExposeMode::ALL.map(|mode| (mode.as_str(), mode));
    let mode = reader.read_choice_at(section, "mode", &modes);
    Expose {
        mode: mode.unwrap_or(default.mode),
        full_below_tokens: reader.read_count(section, "full_below_tokens").unwrap_or(default.full_below_tokens),
        essential: reader.read_resolved_list(section, "essential"),
        // An empty list turns the patterns off.
        essential_patterns: match section.entry("essential_patterns") {
            Some(_) => reader.read_resolved_list(section, "essential_patterns"),
            None => default.essential_patterns,
        },
        prefix: reader.read_bool(section, "prefix").unwrap_or(default.prefix),
    }
}

/// Reads `nodes`: labels of the nodes that may start the source.
fn read_nodes(reader: &mut ConfigReader<'_>, section: &Section<'_>) -> Vec<String> {
    let Some(node) = section.get("nodes") else { return Vec::new() };
    let path = join_key(&section.path, "nodes");
    if matches!(&node.value, NodeValue::List(items) if items.is_empty()) {
        reader.error(node.line, &path, "is empty, so that no node could start the source; leave it out for every node");
    }
    let labels = remove_duplicates(reader.read_resolved_list(section, "nodes"));
    for label in labels.iter().filter(|label| !is_node_label(label)) {
        reader.error(node.line, &path, format!("`{label}` is no label of a node; {NODE_LABEL_RULE}"));
    }
    labels
}

/// Reads `limits` of a source.
fn read_source_limits(reader: &mut ConfigReader<'_>, section: &Section<'_>) -> CallLimits {
    let Some(node) = section.get("limits") else { return CallLimits::default() };
    let limits = reader.as_section(node, &join_key(&section.path, "limits"));
    limits.map(|limits| read_limits(reader, &limits)).unwrap_or_default()
}

/// Reads `limits`. A limit of zero is refused: what is not to be called is disabled or denied.
pub(super) fn read_limits(reader: &mut ConfigReader<'_>, section: &Section<'_>) -> CallLimits {
    reader.report_unknown_keys(section, &LIMITS_KEYS);
    let range = 1..=CallLimits::MAX;
    CallLimits {
        calls_per_minute: reader.read_count_within(section, "calls_per_minute", &range),
        concurrent_calls: reader.read_count_within(section, "concurrent_calls", &range),
    }
}

/// Reads `search`: the directory of the model, as an absolute path.
pub(super) fn read_search(reader: &mut ConfigReader<'_>, section: &Section<'_>) -> Option<String> {
    reader.report_unknown_keys(section, &SEARCH_KEYS);
    let model = reader.read_text(section, "model")?;
    Some(path::to_absolute(reader.base_dir, &model))
}

/// Reads the keys of [`DEFAULTS_KEYS`].
fn read_shared(reader: &mut ConfigReader<'_>, section: &Section<'_>) -> SourceSettings {
    // Read first, so that its error is the first one.
    let lifecycle = reader.read_choice_at(section, "lifecycle", &LIFECYCLE_CHOICES);
    SourceSettings {
        // Zero is allowed where it has a meaning: always stale, and no idle connection.
        ttl: reader.read_duration(section, "ttl", ZeroDuration::Allowed),
        connect_timeout: reader.read_duration(section, "connect_timeout", ZeroDuration::Rejected),
        first_start_timeout: reader.read_duration(section, "first_start_timeout", ZeroDuration::Rejected),
        discovery_timeout: reader.read_duration(section, "discovery_timeout", ZeroDuration::Rejected),
        call_timeout: reader.read_duration(section, "call_timeout", ZeroDuration::Rejected),
        idle: reader.read_duration(section, "idle", ZeroDuration::Allowed),
        result_limit: reader.read_size(section, "result_limit"),
        on_conflict: reader.read_choice_at(section, "on_conflict", &ON_CONFLICT_CHOICES),
        lifecycle,
        results: reader.read_choice_at(section, "results", &RESULTS_CHOICES),
        validate: reader.read_choice_at(section, "validate", &VALIDATE_CHOICES),
        trust_hints: reader.read_bool(section, "trust_hints"),
        ..SourceSettings::default()
    }
}

/// Reads `tools`: a map of globs to verdicts, or a list of such maps, of which all but the first only restrict.
pub(super) fn read_rules(reader: &mut ConfigReader<'_>, id: &SourceId, section: &Section<'_>) -> Rules {
    let path = join_key(&section.path, "tools");
    let Some(node) = section.get("tools") else { return Rules::default() };
    let NodeValue::List(lists) = &node.value else { return read_rule_list(reader, id, node, &path) };
    let mut lists =
        lists.iter().enumerate().map(|(index, list)| read_rule_list(reader, id, list, &format!("{path}[{index}]")));
    let own = lists.next().unwrap_or_default();
    lists.fold(own, Rules::restricted_by)
}

/// Reads one map of globs to verdicts. Entries with an invalid verdict are reported and skipped.
/// A source with a skipped entry has an error and is not used, so a mistake in a rule allows nothing.
///
/// Rules see the names of tools without the prefix of the source. A glob with the prefix, as tools are shown, also
/// becomes one without it; of two verdicts on the same glob the stricter applies.
fn read_rule_list(reader: &mut ConfigReader<'_>, id: &SourceId, node: &ConfigNode, path: &str) -> Rules {
    let Some(globs) = reader.as_section(node, path) else { return Rules::default() };
    let prefix = format!("{id}__");
    let mut rules: BTreeMap<&str, Verdict> = BTreeMap::new();
    for entry in globs.entries {
        let Some(verdict) = read_verdict(reader, &entry.node, &join_key(path, &entry.key)) else { continue };
        let glob = entry.key.as_str();
        for glob in std::iter::once(glob).chain(glob.strip_prefix(&prefix)) {
            rules.entry(glob).and_modify(|known| *known = verdict.max(*known)).or_insert(verdict);
        }
    }
    Rules::new(rules.into_iter().map(|(glob, verdict)| Rule { glob: glob.to_owned(), verdict }).collect())
}

/// Reads a verdict. `disable` is another word for `hide`, as other clients have it.
pub(super) fn read_verdict(reader: &mut ConfigReader<'_>, node: &ConfigNode, path: &str) -> Option<Verdict> {
    if node.as_text() == Some("disable") {
        return Some(Verdict::Hide);
    }
    reader.read_choice(node, path, &Verdict::ALL.map(|verdict| (verdict.as_str(), verdict)))
}
