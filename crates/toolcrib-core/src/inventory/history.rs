//! Describes journal events in English: one line per event, the same on the command line, over REST and in the console.
//! Also decides which events concern a tool that the user named.
//!
//! ```text
//! 3 tools added to `github`: a, b, c; 1 changed: `create_issue` gained a required `owner` (breaking)
//! ```
//!
//! The journal stores the source's own names of tools, and notes and classes as they were when the change was recorded.
//! Nothing is classified again here, so that history says the same in every version. All texts of a source are
//! sanitised and truncated before they are quoted.

mod rules;

use super::{Event, Inventory, Origin, ToolState};
use crate::access::Role;
use crate::access_rules::RuleKind;
use crate::delta::{ToolChange, ToolRename};
use crate::error::{Code, Error, Result};
use crate::features::{FeatureDelta, FeatureKind};
use crate::source::SourceId;
use crate::text::sanitize_truncated;
use crate::tool::{ParsedToolName, ToolId, ToolName, parse_tool_name};

use rules::{describe_access_rule, describe_defined, describe_group, describe_policy, describe_removed};

/// Maximum number of tools to name per kind of change. The first list of a source may have thousands; the rest is
/// counted.
const MAX_LISTED_NAMES: usize = 10;
/// Maximum number of notes per changed tool. All of them are in [`describe_change_in_full`].
const MAX_NOTES_PER_CHANGE: usize = 3;

/// Describes an event. `kind` is the recorded name of the event, for one that a newer Toolcrib wrote.
pub fn describe(event: &Event, kind: &str) -> String {
    describe_filtered(event, kind, |_| true)
}

/// Describes what an event did to one tool. Other tools of the same event are left out of the text.
pub fn describe_for_tool(event: &Event, kind: &str, matcher: &ToolMatcher) -> String {
    match event.source() {
        Some(source) => describe_filtered(event, kind, |name| matcher.matches(source, name)),
        None => describe(event, kind),
    }
}

/// Returns whether an event concerns a tool. Events about the whole source do not count: they would repeat in the
/// history of each of its tools.
pub fn concerns_tool(event: &Event, matcher: &ToolMatcher) -> bool {
    let Some(source) = event.source() else { return false };
    let is_match = |name: &String| matcher.matches(source, name);
    match event {
        Event::ToolEnabled { tool, .. } | Event::ToolDisabled { tool, .. } => is_match(tool),
        Event::InventoryRecorded { added, changed, removed, .. } => {
            added.iter().chain(removed).any(is_match) || changed.iter().any(|change| is_match(&change.name))
        }
        Event::SourceDeclared { .. }
        | Event::SourceChanged { .. }
        | Event::SourceEnabled { .. }
        | Event::SourceDisabled { .. }
        | Event::SourceRemoved { .. }
        | Event::FeaturesRecorded { .. }
        | Event::TokenCreated { .. }
        | Event::TokenChanged { .. }
        | Event::TokenRevoked { .. }
        | Event::GroupDefined { .. }
        | Event::GroupRemoved { .. }
        | Event::AccessRuleDefined { .. }
        | Event::AccessRuleRemoved { .. }
        | Event::PolicyDefined { .. }
        | Event::PolicyRemoved { .. }
        | Event::DamageAccepted { .. }
        | Event::Unknown => false,
    }
}

/// Selects the events of the tool that a user named.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToolMatcher {
    /// A tool of the inventory.
    Tool(ToolId),
    /// No tool of the inventory has this name: matches every tool that the name could refer to.
    Name(String),
}

/// Quality of the match between a name and a tool, best first. A name may match several tools in different ways: `a__b`
/// is the tool `b` of the source `a`, and may also be the own name of a tool of another source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum MatchQuality {
    /// Exactly the name that agents see.
    Exact,
    /// The name that agents see after characters were replaced.
    Sanitized,
    /// `source/tool`.
    Qualified,
    /// The name within its source, whichever source that is.
    Bare,
}

impl ToolMatcher {
    /// Finds the tool that a name matches best, among those that `filter` selects. Several equally good matches are an
    /// error. `filter` sees each tool with its source and state, removed ones included, so that a caller can prefer current
    /// tools and leave out those that the user may not know of.
    /// An unknown name is no error, since the tool may be gone from the inventory but not from the journal.
    pub fn find(
        inventory: &Inventory,
        requested_name: &str,
        filter: impl Fn(&SourceId, &str, &ToolState) -> bool,
    ) -> Result<ToolMatcher> {
        let mut best: Option<MatchQuality> = None;
        let mut matches: Vec<ToolId> = Vec::new();
        for (source, state) in inventory.sources() {
            for (tool, _) in state.tools.iter().filter(|(name, state)| filter(source, name, state)) {
                let Some(quality) = match_quality(source, tool, state.kind == "builtin", requested_name) else {
                    continue;
                };
                // A better match replaces all worse ones.
                if best.is_none_or(|best| quality < best) {
                    (best, matches) = (Some(quality), Vec::new());
                }
                if best == Some(quality) {
                    matches.push(ToolId { source: source.clone(), name: tool.clone() });
                }
            }
        }
        match (matches.pop(), matches.is_empty()) {
            // The tool may have existed before, so its events are searched by name.
            (None, _) => Ok(ToolMatcher::Name(requested_name.to_owned())),
            (Some(only), true) => Ok(ToolMatcher::Tool(only)),
            (Some(last), false) => {
                let candidates = matches.iter().chain([&last]).take(MAX_LISTED_NAMES);
                let names: Vec<String> =
                    candidates.map(|id| format!("{}/{}", id.source, sanitize_truncated(&id.name, 80))).collect();
                let message =
                    format!("`{}` matches several tools: {}", sanitize_truncated(requested_name, 80), names.join(", "));
                Err(Error::new(Code::ToolInvalidInput, message))
            }
        }
    }

    /// Returns whether the selection includes a tool of a source.
    pub fn matches(&self, source: &SourceId, tool: &str) -> bool {
        match self {
            ToolMatcher::Tool(id) => id.source == *source && id.name == tool,
            ToolMatcher::Name(requested_name) => match_quality(source, tool, false, requested_name).is_some(),
        }
    }
}

/// Returns how a name matches a tool, or `None` if it does not.
fn match_quality(source: &SourceId, tool: &str, is_builtin: bool, requested_name: &str) -> Option<MatchQuality> {
    // Built-in tools have no prefix, so their own name is what agents see.
    if tool == requested_name {
        return Some(if is_builtin { MatchQuality::Exact } else { MatchQuality::Bare });
    }
    let prefix = format!("{source}__");
    // Sanitised names are only computed if the prefix matches.
    if let Some(rest) = requested_name.strip_prefix(&prefix) {
        if rest == tool {
            return Some(MatchQuality::Exact);
        }
        if [ToolName::from_original(&prefix, tool), ToolName::with_hash(&prefix, tool)]
            .iter()
            .any(|name| name.as_str() == requested_name)
        {
            return Some(MatchQuality::Sanitized);
        }
    }
    match parse_tool_name(requested_name) {
        Ok(ParsedToolName::Qualified { source: source_name, tool: tool_name }) => (tool_name == tool
            && SourceId::from_name(source_name).is_ok_and(|id| id == *source))
        .then_some(MatchQuality::Qualified),
        Ok(ParsedToolName::Bare(_)) | Err(_) => None,
    }
}

/// Describes an event, naming only the tools that `filter` selects.
/// One arm per event; the texts are part of the output that people read and tests compare.
fn describe_filtered(event: &Event, kind: &str, filter: impl Fn(&str) -> bool) -> String {
    let disabled = |enabled: &Option<bool>| if *enabled == Some(false) { ", disabled" } else { "" };
    match event {
        Event::SourceDeclared { source, kind, origin, enabled, .. } => {
            let kind = sanitize_truncated(kind, 40);
            format!("`{source}` declared ({kind}, {}{})", describe_origin(*origin), disabled(enabled))
        }
        Event::SourceChanged { source, kind, origin, enabled, .. } => {
            let kind = sanitize_truncated(kind, 40);
            format!("the declaration of `{source}` changed ({kind}, {}{})", describe_origin(*origin), disabled(enabled))
        }
        Event::SourceEnabled { source } => format!("`{source}` enabled"),
        Event::SourceDisabled { source } => format!("`{source}` disabled"),
        Event::SourceRemoved { source, .. } => format!("`{source}` removed"),
        Event::ToolEnabled { source, tool } => format!("tool `{}` of `{source}` enabled", sanitize_truncated(tool, 80)),
        Event::ToolDisabled { source, tool } => {
            format!("tool `{}` of `{source}` disabled", sanitize_truncated(tool, 80))
        }
        Event::InventoryRecorded { source, added, changed, removed, renamed, .. } => {
            // Renamed tools are not listed again as removed and added.
            let is_renamed = |name: &str| renamed.iter().any(|renamed| renamed.from == name || renamed.to == name);
            let names = |names: &[String]| -> Vec<String> {
                names
                    .iter()
                    .filter(|name| filter(name) && !is_renamed(name))
                    .map(|name| sanitize_truncated(name, 80))
                    .collect()
            };
            let renames = renamed.iter().filter(|renamed| filter(&renamed.from) || filter(&renamed.to));
            let renames = renames.map(|ToolRename { from, to }| {
                format!("`{}` was probably renamed to `{}`", sanitize_truncated(from, 80), sanitize_truncated(to, 80))
            });
            let changes = changed.iter().filter(|change| filter(&change.name)).map(describe_change);
            describe_inventory_change(
                source,
                [
                    ("added", "to", names(added)),
                    ("changed", "in", changes.collect()),
                    ("removed", "from", names(removed)),
                    ("renamed", "in", renames.collect()),
                ],
            )
        }
        Event::FeaturesRecorded { source, prompts, resources, resource_templates, instructions_changed, .. } => {
            describe_feature_changes(source, [prompts, resources, resource_templates], *instructions_changed)
        }
        Event::TokenCreated { name, role, groups, .. } => {
            let groups = (!groups.is_empty()).then_some(&groups[..]);
            format!("token `{}` created ({})", sanitize_truncated(name, 80), describe_token(*role, groups))
        }
        Event::TokenChanged { name, role, groups, claims, .. } => {
            let claims = if claims.is_some() { ", other claims" } else { "" };
            let token = describe_token(*role, groups.as_deref());
            format!("token `{}` changed ({token}{claims})", sanitize_truncated(name, 80))
        }
        Event::TokenRevoked { name, .. } => format!("token `{}` revoked", sanitize_truncated(name, 80)),
        Event::GroupDefined { group, origin, definition, replaces } => {
            describe_defined((RuleKind::Group, group), *origin, *replaces, describe_group(definition))
        }
        Event::AccessRuleDefined { rule, origin, definition, replaces } => {
            describe_defined((RuleKind::Access, rule), *origin, *replaces, describe_access_rule(definition))
        }
        Event::PolicyDefined { policy, origin, definition, replaces } => {
            describe_defined((RuleKind::Policy, policy), *origin, *replaces, describe_policy(definition))
        }
        Event::GroupRemoved { group } => describe_removed(RuleKind::Group, group),
        Event::AccessRuleRemoved { rule } => describe_removed(RuleKind::Access, rule),
        Event::PolicyRemoved { policy } => describe_removed(RuleKind::Policy, policy),
        Event::DamageAccepted { damage, .. } => {
            let listed: Vec<String> =
                damage.iter().take(MAX_LISTED_NAMES).map(|fault| sanitize_truncated(fault, 120)).collect();
            let more = if damage.len() > MAX_LISTED_NAMES { ", and more" } else { "" };
            format!("journal damage accepted, all tokens revoked: {}{more}", listed.join("; "))
        }
        // Its type is not part of the parsed event, so the caller passes the recorded name.
        Event::Unknown if kind.is_empty() => "unknown event, written by a newer Toolcrib".to_owned(),
        Event::Unknown => format!("unknown event `{}`, written by a newer Toolcrib", sanitize_truncated(kind, 60)),
    }
}

/// Describes a token by its role and, if given, its groups: `agent, groups: dev, support`. Claims are left out: every
/// role can read the history.
fn describe_token(role: Role, groups: Option<&[String]>) -> String {
    match groups {
        None => role.as_str().to_owned(),
        Some([]) => format!("{role}, no groups"),
        Some(groups) => {
            let names: Vec<String> = groups.iter().map(|name| sanitize_truncated(name, 80)).collect();
            format!("{role}, groups: {}", join_names(&names))
        }
    }
}

/// Returns where a source was declared, in words.
fn describe_origin(origin: Origin) -> &'static str {
    match origin {
        Origin::Config => "in the configuration",
        Origin::Runtime => "at run time",
    }
}

/// Describes a changed tool with its first notes: `` `create_issue` gained a required `owner` (breaking)``.
pub fn describe_change(change: &ToolChange) -> String {
    describe_change_with(change, MAX_NOTES_PER_CHANGE)
}

/// Describes a changed tool with all its notes. For views of a single change, where the length does not matter.
pub fn describe_change_in_full(change: &ToolChange) -> String {
    describe_change_with(change, usize::MAX)
}

/// Describes a changed tool with at most `max_notes` notes.
fn describe_change_with(change: &ToolChange, max_notes: usize) -> String {
    let name = sanitize_truncated(&change.name, 80);
    // Records of older versions have no class, only the names of changed fields.
    let Some(class) = change.class else {
        return format!("`{name}` ({})", sanitize_truncated(&change.fields.join(", "), 120));
    };
    let mut notes: Vec<String> =
        change.notes.iter().take(max_notes).map(|note| sanitize_truncated(note, 200)).collect();
    if change.notes.len() > max_notes {
        notes.push("and more".to_owned());
    }
    // A note with a subject of its own follows a colon, not the name.
    let has_subject = |note: &String| ["`", "its ", "the ", "how "].iter().any(|word| note.starts_with(word));
    let separator = match notes.first() {
        None => "",
        Some(note) if has_subject(note) => ": ",
        Some(_) => " ",
    };
    format!("`{name}`{separator}{} ({})", notes.join(", "), class.as_str().replace('_', " "))
}

/// Describes a new list of a source: ``3 tools added to `github`: a, b, c; 1 changed: `create_issue` gained a required
/// `owner` (breaking)``.
fn describe_inventory_change(source: &SourceId, groups: [(&str, &str, Vec<String>); 4]) -> String {
    let mut parts = Vec::new();
    for (verb, preposition, names) in groups {
        if names.is_empty() {
            continue;
        }
        // Only the first group names the source.
        let subject = match (parts.is_empty(), names.len()) {
            (true, 1) => format!("1 tool {verb} {preposition} `{source}`"),
            (true, count) => format!("{count} tools {verb} {preposition} `{source}`"),
            (false, count) => format!("{count} {verb}"),
        };
        parts.push(format!("{subject}: {}", join_names(&names)));
    }
    match &parts[..] {
        [] => format!("the tool list of `{source}` was recorded; no tool was added, changed or removed"),
        parts => parts.join("; "),
    }
}

/// Describes new prompts, resources, resource templates and instructions of a source: ``2 prompts added to `git`: a, b; 1
/// resource removed: file:///x; instructions changed``.
pub fn describe_feature_changes(
    source: &SourceId,
    lists: [&FeatureDelta; FeatureKind::ALL.len()],
    instructions_changed: bool,
) -> String {
    let mut parts: Vec<String> = Vec::new();
    for (kind, FeatureDelta { added, changed, removed, omitted }) in FeatureKind::ALL.into_iter().zip(lists) {
        for (verb, preposition, keys, omitted) in [
            ("added", "to", added, omitted.added),
            ("changed", "in", changed, omitted.changed),
            ("removed", "from", removed, omitted.removed),
        ] {
            let count = keys.len() + omitted;
            if count == 0 {
                continue;
            }
            let plural = if count == 1 { "" } else { "s" };
            let mut subject = format!("{count} {}{plural} {verb}", kind.as_str());
            // Only the first part names the source.
            if parts.is_empty() {
                subject.push_str(&format!(" {preposition} `{source}`"));
            }
            let names: Vec<String> = keys.iter().map(|key| sanitize_truncated(key, 80)).collect();
            parts.push(format!("{subject}: {}", join_first_names(&names, count)));
        }
    }
    if instructions_changed {
        let of_source = if parts.is_empty() { format!(" of `{source}`") } else { String::new() };
        parts.push(format!("instructions{of_source} changed"));
    }
    match &parts[..] {
        [] => format!("prompts and resources of `{source}` were recorded; none was added, changed or removed"),
        parts => parts.join("; "),
    }
}

/// Joins the first names and counts the others.
fn join_names(names: &[String]) -> String {
    join_first_names(names, names.len())
}

/// Like [`join_names`], for names of which only the first are known; `count` is the number of all of them.
fn join_first_names(names: &[String], count: usize) -> String {
    let listed: Vec<&str> = names.iter().take(MAX_LISTED_NAMES).map(String::as_str).collect();
    let rest = count - listed.len();
    let listed = listed.join(", ");
    if rest == 0 { listed } else { format!("{listed}, and {rest} more") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recorded_event() -> Event {
        let text = r#"{"type":"InventoryRecorded","source":"github","fingerprint":"ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad","added":["a.b"],"changed":[{"name":"c","fields":["title"]}],"removed":[]}"#;
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn changes_of_prompts_and_resources_are_described() {
        let describe = |changes: &str| {
            let fingerprint = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
            let text =
                format!(r#"{{"type":"FeaturesRecorded","source":"git","fingerprint":"{fingerprint}"{changes}}}"#);
            describe(&serde_json::from_str(&text).unwrap(), "")
        };
        assert_eq!(
            describe(
                r#","prompts":{"added":["a","b"],"changed":[],"removed":["c"]},
                    "resource_templates":{"added":[],"changed":["file:///{p}"],"removed":[]},"instructions_changed":true"#
            ),
            "2 prompts added to `git`: a, b; 1 prompt removed: c; 1 resource template changed: file:///{p}; \
             instructions changed"
        );
        assert_eq!(
            describe(
                r#","resources":{"added":["file:///a"],"changed":[],"removed":[],
                    "omitted":{"added":4999,"changed":0,"removed":0}}"#
            ),
            "5000 resources added to `git`: file:///a, and 4999 more"
        );
        assert_eq!(describe(r#","instructions_changed":true"#), "instructions of `git` changed");
        assert_eq!(describe(""), "prompts and resources of `git` were recorded; none was added, changed or removed");
    }

    #[test]
    fn a_tool_matches_any_of_its_names() {
        for requested_name in ["a.b", "github__a_b", "github__a.b", "github/a.b", "GitHub:a.b", "c", "github__c"] {
            assert!(
                concerns_tool(&recorded_event(), &ToolMatcher::Name(requested_name.to_owned())),
                "{requested_name}"
            );
        }
        for requested_name in ["a", "gitlab__c", "gitlab/a.b", "github", ""] {
            assert!(
                !concerns_tool(&recorded_event(), &ToolMatcher::Name(requested_name.to_owned())),
                "{requested_name}"
            );
        }
    }

    #[test]
    fn an_event_is_described_in_one_line() {
        assert_eq!(describe(&recorded_event(), ""), "1 tool added to `github`: a.b; 1 changed: `c` (title)");
        assert_eq!(
            describe_for_tool(&recorded_event(), "", &ToolMatcher::Name("c".to_owned())),
            "1 tool changed in `github`: `c` (title)"
        );
        assert_eq!(
            describe(&Event::Unknown, "ToolPainted"),
            "unknown event `ToolPainted`, written by a newer Toolcrib"
        );
    }

    #[test]
    fn a_change_is_described_with_its_notes_and_class() {
        let text = r#"{"type":"InventoryRecorded","source":"github","fingerprint":"ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad","added":["a","b","to"],"changed":[{"name":"create_issue","fields":["inputSchema"],"class":"breaking","notes":["gained a required `owner`"]},{"name":"list","fields":["annotations"],"class":"hint_flipped","notes":["`x` became required","now says it is destructive"]},{"name":"n","fields":["x"],"class":"of_the_future"}],"removed":["from"],"renamed":[{"from":"from","to":"to"}]}"#;
        let event: Event = serde_json::from_str(text).unwrap();
        let expected = "2 tools added to `github`: a, b; 3 changed: `create_issue` gained a required `owner` (breaking), \
                        `list`: `x` became required, now says it is destructive (hint flipped), `n` (other); \
                        1 renamed: `from` was probably renamed to `to`";
        assert_eq!(describe(&event, ""), expected);
        assert_eq!(
            describe_for_tool(&event, "", &ToolMatcher::Name("from".to_owned())),
            "1 tool renamed in `github`: `from` was probably renamed to `to`"
        );
    }
}
