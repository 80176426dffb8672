//! What the journal says, in words: one line for each event, the same on the command line, over HTTP and in the console.

use crate::compare::ToolRename;
use crate::error::{Code, Error, Result};
use crate::inventory::{Event, Inventory, ToolState};
use crate::manifest::ToolChange;
use crate::source::SourceId;
use crate::text::sanitize_truncated;
use crate::tool::{ParsedToolName, ToolId, ToolName, parse_tool_name};

/// How many tools of one kind of change are named in a line.
const MAX_LISTED_NAMES: usize = 10;
/// How much is told of one changed tool.
const MAX_NOTES_PER_CHANGE: usize = 3;

/// What happened. `kind` names an event of a newer Toolcrib, where that is known.
pub fn describe(event: &Event, kind: &str) -> String {
    describe_filtered(event, kind, |_| true)
}

/// What happened to one tool.
pub fn describe_for_tool(event: &Event, kind: &str, meant: &ToolMatcher) -> String {
    match event.source() {
        Some(source) => describe_filtered(event, kind, |name| meant.matches(source, name)),
        None => describe(event, kind),
    }
}

/// Whether an event speaks of a tool.
pub fn concerns_tool(event: &Event, meant: &ToolMatcher) -> bool {
    let Some(source) = event.source() else { return false };
    let meant = |name: &String| meant.matches(source, name);
    match event {
        Event::ToolEnabled { tool, .. } | Event::ToolDisabled { tool, .. } => meant(tool),
        Event::InventoryRecorded { added, changed, removed, .. } => {
            added.iter().chain(removed).any(meant) || changed.iter().any(|change| meant(&change.name))
        }
        Event::SourceDeclared { .. }
        | Event::SourceChanged { .. }
        | Event::SourceEnabled { .. }
        | Event::SourceDisabled { .. }
        | Event::SourceRemoved { .. }
        | Event::TokenCreated { .. }
        | Event::TokenChanged { .. }
        | Event::TokenRevoked { .. }
        | Event::DamageAccepted { .. }
        | Event::Unknown => false,
    }
}

/// The tool somebody asked about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToolMatcher {
    Tool(ToolId),
    /// Nothing here is called so any more: whatever could have been.
    Name(String),
}

/// How a name fits a tool, the surest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum MatchQuality {
    /// Letter by letter what agents see.
    Exact,
    /// What agents see where letters had to be replaced.
    Sanitized,
    /// `source/tool`.
    Qualified,
    /// Its own name, whose ever it is.
    Bare,
}

impl ToolMatcher {
    /// The one tool that a name fits best among those that are known; several that it fits as well are an error.
    pub fn find(inventory: &Inventory, asked: &str, wanted: impl Fn(&ToolState) -> bool) -> Result<ToolMatcher> {
        let mut best: Option<MatchQuality> = None;
        let mut found: Vec<ToolId> = Vec::new();
        for (source, state) in inventory.sources() {
            for (tool, _) in state.tools.iter().filter(|(_, state)| wanted(state)) {
                let Some(fit) = match_quality(source, tool, state.kind == "builtin", asked) else { continue };
                if best.is_none_or(|best| fit < best) {
                    (best, found) = (Some(fit), Vec::new());
                }
                if best == Some(fit) {
                    found.push(ToolId { source: source.clone(), name: tool.clone() });
                }
            }
        }
        match (found.pop(), found.is_empty()) {
            (None, _) => Ok(ToolMatcher::Name(asked.to_owned())),
            (Some(only), true) => Ok(ToolMatcher::Tool(only)),
            (Some(last), false) => {
                let several = found.iter().chain([&last]).take(MAX_LISTED_NAMES);
                let names: Vec<String> =
                    several.map(|id| format!("{}/{}", id.source, sanitize_truncated(&id.name, 80))).collect();
                let message = format!("`{}` may mean any of {}", sanitize_truncated(asked, 80), names.join(", "));
                Err(Error::new(Code::ToolInvalidInput, message))
            }
        }
    }

    pub fn matches(&self, source: &SourceId, tool: &str) -> bool {
        match self {
            ToolMatcher::Tool(id) => id.source == *source && id.name == tool,
            ToolMatcher::Name(asked) => match_quality(source, tool, false, asked).is_some(),
        }
    }
}

fn match_quality(source: &SourceId, tool: &str, builtin: bool, asked: &str) -> Option<MatchQuality> {
    if tool == asked {
        return Some(if builtin { MatchQuality::Exact } else { MatchQuality::Bare });
    }
    let prefix = format!("{source}__");
    // Names are made only where they could be it.
    if let Some(own) = asked.strip_prefix(&prefix) {
        if own == tool {
            return Some(MatchQuality::Exact);
        }
        if [ToolName::from_original(&prefix, tool), ToolName::with_hash(&prefix, tool)]
            .iter()
            .any(|name| name.as_str() == asked)
        {
            return Some(MatchQuality::Sanitized);
        }
    }
    match parse_tool_name(asked) {
        Ok(ParsedToolName::Qualified { source: named, tool: own }) => (own == tool
            && SourceId::from_name(named).is_ok_and(|named| named == *source))
        .then_some(MatchQuality::Qualified),
        Ok(ParsedToolName::Bare(_)) | Err(_) => None,
    }
}

fn describe_filtered(event: &Event, kind: &str, wanted: impl Fn(&str) -> bool) -> String {
    let disabled = |enabled: &Option<bool>| if *enabled == Some(false) { ", disabled" } else { "" };
    match event {
        Event::SourceDeclared { source, kind, origin, enabled, .. } => {
            let kind = sanitize_truncated(kind, 40);
            format!("`{source}` declared ({kind}, from {}{})", origin.as_str(), disabled(enabled))
        }
        Event::SourceChanged { source, kind, origin, enabled, .. } => {
            let kind = sanitize_truncated(kind, 40);
            format!("the declaration of `{source}` changed ({kind}, from {}{})", origin.as_str(), disabled(enabled))
        }
        Event::SourceEnabled { source } => format!("`{source}` enabled"),
        Event::SourceDisabled { source } => format!("`{source}` disabled"),
        Event::SourceRemoved { source } => format!("`{source}` removed"),
        Event::ToolEnabled { source, tool } => format!("tool `{}` of `{source}` enabled", sanitize_truncated(tool, 80)),
        Event::ToolDisabled { source, tool } => {
            format!("tool `{}` of `{source}` disabled", sanitize_truncated(tool, 80))
        }
        Event::InventoryRecorded { source, added, changed, removed, renamed, .. } => {
            let is_renamed = |name: &str| renamed.iter().any(|renamed| renamed.from == name || renamed.to == name);
            let names = |names: &[String]| -> Vec<String> {
                names
                    .iter()
                    .filter(|name| wanted(name) && !is_renamed(name))
                    .map(|name| sanitize_truncated(name, 80))
                    .collect()
            };
            let renames = renamed.iter().filter(|renamed| wanted(&renamed.from) || wanted(&renamed.to));
            let renames = renames.map(|ToolRename { from, to }| {
                format!("`{}` is `{}` now, most likely", sanitize_truncated(from, 80), sanitize_truncated(to, 80))
            });
            let changes = changed.iter().filter(|change| wanted(&change.name)).map(describe_change);
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
        Event::TokenCreated { name, role, .. } => {
            format!("token `{}` created ({})", sanitize_truncated(name, 80), role.as_str())
        }
        Event::TokenChanged { name, role, .. } => {
            format!("token `{}` changed ({})", sanitize_truncated(name, 80), role.as_str())
        }
        Event::TokenRevoked { name, .. } => format!("token `{}` revoked", sanitize_truncated(name, 80)),
        Event::DamageAccepted { damage, .. } => {
            let named: Vec<String> =
                damage.iter().take(MAX_LISTED_NAMES).map(|fault| sanitize_truncated(fault, 120)).collect();
            let more = if damage.len() > MAX_LISTED_NAMES { ", and more" } else { "" };
            format!("damage of the journal accepted, and every token revoked: {}{more}", named.join("; "))
        }
        Event::Unknown if kind.is_empty() => "something that this Toolcrib does not know".to_owned(),
        Event::Unknown => format!("`{}`, which this Toolcrib does not know", sanitize_truncated(kind, 60)),
    }
}

/// `` `create_issue` gained a required `owner` (breaking)``.
pub fn describe_change(change: &ToolChange) -> String {
    describe_change_with(change, MAX_NOTES_PER_CHANGE)
}

/// The same with all that is noted.
pub fn describe_change_in_full(change: &ToolChange) -> String {
    describe_change_with(change, usize::MAX)
}

fn describe_change_with(change: &ToolChange, most: usize) -> String {
    let name = sanitize_truncated(&change.name, 80);
    let Some(class) = change.class else {
        return format!("`{name}` ({})", sanitize_truncated(&change.fields.join(", "), 120));
    };
    let mut notes: Vec<String> = change.notes.iter().take(most).map(|note| sanitize_truncated(note, 200)).collect();
    if change.notes.len() > most {
        notes.push("and more".to_owned());
    }
    // A note that has a subject of its own does not read on after the name.
    let has_subject = |note: &String| ["`", "its ", "the ", "how "].iter().any(|word| note.starts_with(word));
    let between = match notes.first() {
        None => "",
        Some(note) if has_subject(note) => ": ",
        Some(_) => " ",
    };
    format!("`{name}`{between}{} ({})", notes.join(", "), class.as_str().replace('_', " "))
}

/// ``3 tools added to `github`: a, b, c; 1 changed: `create_issue` gained a required `owner` (breaking)``.
fn describe_inventory_change(source: &SourceId, groups: [(&str, &str, Vec<String>); 4]) -> String {
    let mut parts = Vec::new();
    for (what, preposition, names) in groups {
        if names.is_empty() {
            continue;
        }
        let subject = match (parts.is_empty(), names.len()) {
            (true, 1) => format!("1 tool {what} {preposition} `{source}`"),
            (true, count) => format!("{count} tools {what} {preposition} `{source}`"),
            (false, count) => format!("{count} {what}"),
        };
        let mut named = names.iter().take(MAX_LISTED_NAMES).cloned().collect::<Vec<_>>().join(", ");
        if names.len() > MAX_LISTED_NAMES {
            named.push_str(&format!(", and {} more", names.len() - MAX_LISTED_NAMES));
        }
        parts.push(format!("{subject}: {named}"));
    }
    match &parts[..] {
        [] => format!("the list of `{source}` was recorded; no tool came, changed or went"),
        parts => parts.join("; "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recorded_event() -> Event {
        let text = r#"{"type":"InventoryRecorded","source":"github","fingerprint":"ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad","added":["a.b"],"changed":[{"name":"c","fields":["title"]}],"removed":[]}"#;
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn a_tool_is_meant_by_any_of_its_names() {
        for asked in ["a.b", "github__a_b", "github__a.b", "github/a.b", "GitHub:a.b", "c", "github__c"] {
            assert!(concerns_tool(&recorded_event(), &ToolMatcher::Name(asked.to_owned())), "{asked}");
        }
        for asked in ["a", "gitlab__c", "gitlab/a.b", "github", ""] {
            assert!(!concerns_tool(&recorded_event(), &ToolMatcher::Name(asked.to_owned())), "{asked}");
        }
    }

    #[test]
    fn a_record_is_one_line() {
        assert_eq!(describe(&recorded_event(), ""), "1 tool added to `github`: a.b; 1 changed: `c` (title)");
        assert_eq!(
            describe_for_tool(&recorded_event(), "", &ToolMatcher::Name("c".to_owned())),
            "1 tool changed in `github`: `c` (title)"
        );
        assert_eq!(describe(&Event::Unknown, "ToolPainted"), "`ToolPainted`, which this Toolcrib does not know");
    }

    #[test]
    fn a_change_is_told_with_its_notes_and_its_class() {
        let text = r#"{"type":"InventoryRecorded","source":"github","fingerprint":"ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad","added":["a","b","to"],"changed":[{"name":"create_issue","fields":["inputSchema"],"class":"breaking","notes":["gained a required `owner`"]},{"name":"list","fields":["annotations"],"class":"hint_flipped","notes":["`x` became required","now says it is destructive"]},{"name":"n","fields":["x"],"class":"of_the_future"}],"removed":["from"],"renamed":[{"from":"from","to":"to"}]}"#;
        let event: Event = serde_json::from_str(text).unwrap();
        let expected = "2 tools added to `github`: a, b; 3 changed: `create_issue` gained a required `owner` (breaking), \
                        `list`: `x` became required, now says it is destructive (hint flipped), `n` (other); \
                        1 renamed: `from` is `to` now, most likely";
        assert_eq!(describe(&event, ""), expected);
        assert_eq!(
            describe_for_tool(&event, "", &ToolMatcher::Name("from".to_owned())),
            "1 tool renamed in `github`: `from` is `to` now, most likely"
        );
    }
}
