//! What the journal says, in words: one line for each event, the same on the command line, over HTTP and in the console.

use crate::compare::Renamed;
use crate::error::{Code, Error, Result};
use crate::inventory::{Event, Inventory, ToolState};
use crate::manifest::Change;
use crate::source::SourceId;
use crate::text::shown_short;
use crate::tool::{Asked, ToolId, ToolName, parse_name};

/// How many tools of one kind of change are named in a line.
const MOST_NAMED: usize = 10;
/// How much is told of one changed tool.
const MOST_NOTES: usize = 3;

/// What happened. `kind` names an event of a newer Toolcrib, where that is known.
pub fn told(event: &Event, kind: &str) -> String {
    told_of(event, kind, |_| true)
}

/// What happened to one tool.
pub fn told_about(event: &Event, kind: &str, meant: &Meant) -> String {
    match event.source() {
        Some(source) => told_of(event, kind, |name| meant.is(source, name)),
        None => told(event, kind),
    }
}

/// Whether an event speaks of a tool.
pub fn touches(event: &Event, meant: &Meant) -> bool {
    let Some(source) = event.source() else { return false };
    let meant = |name: &String| meant.is(source, name);
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
pub enum Meant {
    Tool(ToolId),
    /// Nothing here is called so any more: whatever could have been.
    Spelled(String),
}

/// How a name fits a tool, the surest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Fit {
    /// Letter by letter what agents see.
    Exact,
    /// What agents see where letters had to be replaced.
    Made,
    /// `source/tool`.
    Qualified,
    /// Its own name, whose ever it is.
    Bare,
}

impl Meant {
    /// The one tool that a name fits best among those that are known; several that it fits as well are an error.
    pub fn among(inventory: &Inventory, asked: &str, wanted: impl Fn(&ToolState) -> bool) -> Result<Meant> {
        let mut best: Option<Fit> = None;
        let mut found: Vec<ToolId> = Vec::new();
        for (source, state) in inventory.sources() {
            for (tool, _) in state.tools.iter().filter(|(_, state)| wanted(state)) {
                let Some(fit) = fit(source, tool, state.kind == "builtin", asked) else { continue };
                if best.is_none_or(|best| fit < best) {
                    (best, found) = (Some(fit), Vec::new());
                }
                if best == Some(fit) {
                    found.push(ToolId { source: source.clone(), name: tool.clone() });
                }
            }
        }
        match (found.pop(), found.is_empty()) {
            (None, _) => Ok(Meant::Spelled(asked.to_owned())),
            (Some(only), true) => Ok(Meant::Tool(only)),
            (Some(last), false) => {
                let several = found.iter().chain([&last]).take(MOST_NAMED);
                let names: Vec<String> =
                    several.map(|id| format!("{}/{}", id.source, shown_short(&id.name, 80))).collect();
                let message = format!("`{}` may mean any of {}", shown_short(asked, 80), names.join(", "));
                Err(Error::new(Code::ToolInvalidInput, message))
            }
        }
    }

    pub fn is(&self, source: &SourceId, tool: &str) -> bool {
        match self {
            Meant::Tool(id) => id.source == *source && id.name == tool,
            Meant::Spelled(asked) => fit(source, tool, false, asked).is_some(),
        }
    }
}

fn fit(source: &SourceId, tool: &str, builtin: bool, asked: &str) -> Option<Fit> {
    if tool == asked {
        return Some(if builtin { Fit::Exact } else { Fit::Bare });
    }
    let prefix = format!("{source}__");
    // Names are made only where they could be it.
    if let Some(own) = asked.strip_prefix(&prefix) {
        if own == tool {
            return Some(Fit::Exact);
        }
        if [ToolName::plain(&prefix, tool), ToolName::hashed(&prefix, tool)].iter().any(|name| name.as_str() == asked) {
            return Some(Fit::Made);
        }
    }
    match parse_name(asked) {
        Ok(Asked::Qualified { source: named, tool: own }) => {
            (own == tool && SourceId::from_name(named).is_ok_and(|named| named == *source)).then_some(Fit::Qualified)
        }
        Ok(Asked::Bare(_)) | Err(_) => None,
    }
}

fn told_of(event: &Event, kind: &str, wanted: impl Fn(&str) -> bool) -> String {
    let disabled = |enabled: &Option<bool>| if *enabled == Some(false) { ", disabled" } else { "" };
    match event {
        Event::SourceDeclared { source, kind, origin, enabled, .. } => {
            let kind = shown_short(kind, 40);
            format!("`{source}` declared ({kind}, from {}{})", origin.as_str(), disabled(enabled))
        }
        Event::SourceChanged { source, kind, origin, enabled, .. } => {
            let kind = shown_short(kind, 40);
            format!("the declaration of `{source}` changed ({kind}, from {}{})", origin.as_str(), disabled(enabled))
        }
        Event::SourceEnabled { source } => format!("`{source}` enabled"),
        Event::SourceDisabled { source } => format!("`{source}` disabled"),
        Event::SourceRemoved { source } => format!("`{source}` removed"),
        Event::ToolEnabled { source, tool } => format!("tool `{}` of `{source}` enabled", shown_short(tool, 80)),
        Event::ToolDisabled { source, tool } => format!("tool `{}` of `{source}` disabled", shown_short(tool, 80)),
        Event::InventoryRecorded { source, added, changed, removed, renamed, .. } => {
            let is_renamed = |name: &str| renamed.iter().any(|renamed| renamed.from == name || renamed.to == name);
            let names = |names: &[String]| -> Vec<String> {
                names
                    .iter()
                    .filter(|name| wanted(name) && !is_renamed(name))
                    .map(|name| shown_short(name, 80))
                    .collect()
            };
            let renames = renamed.iter().filter(|renamed| wanted(&renamed.from) || wanted(&renamed.to));
            let renames = renames.map(|Renamed { from, to }| {
                format!("`{}` is `{}` now, most likely", shown_short(from, 80), shown_short(to, 80))
            });
            let changes = changed.iter().filter(|change| wanted(&change.name)).map(changed_in_words);
            recorded(
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
            format!("token `{}` created ({})", shown_short(name, 80), role.as_str())
        }
        Event::TokenChanged { name, role, .. } => {
            format!("token `{}` changed ({})", shown_short(name, 80), role.as_str())
        }
        Event::TokenRevoked { name, .. } => format!("token `{}` revoked", shown_short(name, 80)),
        Event::DamageAccepted { damage, .. } => {
            let named: Vec<String> = damage.iter().take(MOST_NAMED).map(|fault| shown_short(fault, 120)).collect();
            let more = if damage.len() > MOST_NAMED { ", and more" } else { "" };
            format!("damage of the journal accepted, and every token revoked: {}{more}", named.join("; "))
        }
        Event::Unknown if kind.is_empty() => "something that this Toolcrib does not know".to_owned(),
        Event::Unknown => format!("`{}`, which this Toolcrib does not know", shown_short(kind, 60)),
    }
}

/// `` `create_issue` gained a required `owner` (breaking)``.
pub fn changed_in_words(change: &Change) -> String {
    change_with(change, MOST_NOTES)
}

/// The same with all that is noted.
pub fn changed_in_full(change: &Change) -> String {
    change_with(change, usize::MAX)
}

fn change_with(change: &Change, most: usize) -> String {
    let name = shown_short(&change.name, 80);
    let Some(class) = change.class else {
        return format!("`{name}` ({})", shown_short(&change.fields.join(", "), 120));
    };
    let mut notes: Vec<String> = change.notes.iter().take(most).map(|note| shown_short(note, 200)).collect();
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
fn recorded(source: &SourceId, groups: [(&str, &str, Vec<String>); 4]) -> String {
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
        let mut named = names.iter().take(MOST_NAMED).cloned().collect::<Vec<_>>().join(", ");
        if names.len() > MOST_NAMED {
            named.push_str(&format!(", and {} more", names.len() - MOST_NAMED));
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

    fn recorded() -> Event {
        let text = r#"{"type":"InventoryRecorded","source":"github","fingerprint":"ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad","added":["a.b"],"changed":[{"name":"c","fields":["title"]}],"removed":[]}"#;
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn a_tool_is_meant_by_any_of_its_names() {
        for asked in ["a.b", "github__a_b", "github__a.b", "github/a.b", "GitHub:a.b", "c", "github__c"] {
            assert!(touches(&recorded(), &Meant::Spelled(asked.to_owned())), "{asked}");
        }
        for asked in ["a", "gitlab__c", "gitlab/a.b", "github", ""] {
            assert!(!touches(&recorded(), &Meant::Spelled(asked.to_owned())), "{asked}");
        }
    }

    #[test]
    fn a_record_is_one_line() {
        assert_eq!(told(&recorded(), ""), "1 tool added to `github`: a.b; 1 changed: `c` (title)");
        assert_eq!(
            told_about(&recorded(), "", &Meant::Spelled("c".to_owned())),
            "1 tool changed in `github`: `c` (title)"
        );
        assert_eq!(told(&Event::Unknown, "ToolPainted"), "`ToolPainted`, which this Toolcrib does not know");
    }

    #[test]
    fn a_change_is_told_with_its_notes_and_its_class() {
        let text = r#"{"type":"InventoryRecorded","source":"github","fingerprint":"ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad","added":["a","b","to"],"changed":[{"name":"create_issue","fields":["inputSchema"],"class":"breaking","notes":["gained a required `owner`"]},{"name":"list","fields":["annotations"],"class":"hint_flipped","notes":["`x` became required","now says it is destructive"]},{"name":"n","fields":["x"],"class":"of_the_future"}],"removed":["from"],"renamed":[{"from":"from","to":"to"}]}"#;
        let event: Event = serde_json::from_str(text).unwrap();
        let expected = "2 tools added to `github`: a, b; 3 changed: `create_issue` gained a required `owner` (breaking), \
                        `list`: `x` became required, now says it is destructive (hint flipped), `n` (other); \
                        1 renamed: `from` is `to` now, most likely";
        assert_eq!(told(&event, ""), expected);
        assert_eq!(
            told_about(&event, "", &Meant::Spelled("from".to_owned())),
            "1 tool renamed in `github`: `from` is `to` now, most likely"
        );
    }
}
