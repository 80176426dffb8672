//! Groups: named selections of tools. A group is what matches one of its selectors, plus the tools that it names, minus
//! what it excludes.
//!
//! Tools that are not in the catalogue, such as removed ones, are known by their names alone. Whether they belong to a
//! group may then be unknown, see [`Match`].

use serde::{Deserialize, Serialize};

use super::Pattern;
use crate::expose::ExposeMode;
use crate::source::SourceId;
use crate::tool::{ParsedToolName, parse_tool_name};

/// Definition of a group. Its name is kept beside it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Group {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub select: Vec<Selector>,
    /// Names of tools: `source__tool`, `source/tool` or `source:tool`, of a built-in tool its bare name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<String>,
    /// Patterns on the name in the catalogue or the source's own name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub exclude: Vec<Pattern>,
    /// Instructions of the endpoint `/mcp/{group}`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instructions: Option<String>,
    /// Globs on the essential tools of the endpoint; those of the configuration apply if it is empty.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub essential: Vec<String>,
    /// Mode of the endpoint.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<ExposeMode>,
}

/// Conditions on a tool; all of them hold for the tools that it selects. Without conditions it selects every tool.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Selector {
    /// Pattern on the id of the source.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<Pattern>,
    /// Pattern on the name in the catalogue or the source's own name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<Pattern>,
    /// Tags that the tool has, all of them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// Tags of which the tool has none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub without_tags: Vec<String>,
    /// HTTP method of the operation, in upper case. No other tool has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    /// Pattern on the path template of the operation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<Pattern>,
    /// Risks that the tool has, all of them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub risk: Vec<Risk>,
}

/// Risk of calling a tool. A tool has one of the first three, and may have the last besides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Risk {
    ReadOnly,
    Writes,
    Destructive,
    /// Interacts with systems that the source does not know.
    OpenWorld,
}

crate::name_variants!(Risk {
    ReadOnly => "read_only",
    Writes => "writes",
    Destructive => "destructive",
    OpenWorld => "open_world",
});

/// Risks of one tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RiskSet {
    effect: Risk,
    open_world: bool,
}

/// Hints of a server about its tool (`readOnlyHint`, `destructiveHint`, `openWorldHint`), with the defaults of MCP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RiskHints {
    pub read_only: bool,
    pub destructive: bool,
    pub open_world: bool,
}

/// Properties of a tool that rules select by.
#[derive(Debug, Clone, Copy)]
pub struct ToolFacts<'a> {
    pub source: &'a str,
    /// Name in the catalogue. Of a tool that is not there: all names that it may have had.
    pub names: &'a [&'a str],
    /// The source's own name.
    pub original_name: &'a str,
    /// `None` for a tool that is not in the catalogue.
    pub details: Option<ToolDetails<'a>>,
}

/// Properties of a tool beyond its names.
#[derive(Debug, Clone, Copy)]
pub struct ToolDetails<'a> {
    /// Tags of the tool and of its source.
    pub tags: &'a [&'a str],
    /// HTTP method of an operation, in upper case.
    pub method: Option<&'a str>,
    /// Path template of an operation.
    pub path: Option<&'a str>,
    pub risk: RiskSet,
}

/// Whether a tool matches. `Unknown` is for tools of which only the names are known: what a group gives is not given
/// then, what a policy forbids is forbidden.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Match {
    No,
    Unknown,
    Yes,
}

impl From<bool> for Match {
    fn from(is_match: bool) -> Match {
        if is_match { Match::Yes } else { Match::No }
    }
}

impl Group {
    /// Whether a tool belongs to the group.
    pub fn matches(&self, tool: &ToolFacts<'_>) -> Match {
        if tool.matches_any(&self.exclude) {
            return Match::No;
        }
        if self.tools.iter().any(|name| tool.is_named(name)) {
            return Match::Yes;
        }
        self.select.iter().map(|selector| selector.matches(tool)).max().unwrap_or(Match::No)
    }

    /// Whether every tool that a source may have belongs to the group.
    pub(super) fn covers_source(&self, source: &str) -> bool {
        self.exclude.is_empty() && self.select.iter().any(|selector| selector.covers_source(source))
    }
}

impl Selector {
    /// Whether all conditions hold for a tool.
    pub fn matches(&self, tool: &ToolFacts<'_>) -> Match {
        let by_names = self.source.as_ref().is_none_or(|pattern| pattern.matches(tool.source))
            && self.name.as_ref().is_none_or(|pattern| tool.matches_any(std::slice::from_ref(pattern)));
        if !by_names {
            return Match::No;
        }
        match &tool.details {
            Some(details) => self.matches_details(details).into(),
            None if self.has_details() => Match::Unknown,
            None => Match::Yes,
        }
    }

    /// Whether all conditions hold for every tool that a source may have.
    pub(super) fn covers_source(&self, source: &str) -> bool {
        let is_any = |name: &Pattern| name.as_str() == "*" || name.as_str() == format!("{source}__*");
        self.source.as_ref().is_none_or(|pattern| pattern.matches(source))
            && self.name.as_ref().is_none_or(is_any)
            && !self.has_details()
    }

    fn matches_details(&self, tool: &ToolDetails<'_>) -> bool {
        let has_tag = |tag: &String| tool.tags.contains(&tag.as_str());
        self.tags.iter().all(has_tag)
            && !self.without_tags.iter().any(has_tag)
            && self.method.as_ref().is_none_or(|method| tool.method == Some(method.as_str()))
            && self.path.as_ref().is_none_or(|pattern| tool.path.is_some_and(|path| pattern.matches(path)))
            && self.risk.iter().all(|risk| tool.risk.contains(*risk))
    }

    /// Whether there are conditions on more than names.
    fn has_details(&self) -> bool {
        !self.tags.is_empty()
            || !self.without_tags.is_empty()
            || self.method.is_some()
            || self.path.is_some()
            || !self.risk.is_empty()
    }

    /// Returns why no tool can meet all conditions, if that is so.
    pub fn contradiction(&self) -> Option<String> {
        if let Some(tag) = self.tags.iter().find(|tag| self.without_tags.contains(tag)) {
            return Some(format!("`{tag}` is both in `tags` and in `without_tags`"));
        }
        let effects: Vec<Risk> = self.risk.iter().copied().filter(|risk| *risk != Risk::OpenWorld).collect();
        if let Some(other) = effects.iter().find(|risk| **risk != effects[0]) {
            let first = effects[0].as_str();
            return Some(format!("no tool is both `{first}` and `{}`", other.as_str()));
        }
        let by_method = self.method.as_deref().map(RiskSet::of_method);
        if let Some((method, risk)) = self.method.as_ref().zip(by_method)
            && let Some(other) = self.risk.iter().find(|other| !risk.contains(**other))
        {
            let effect = risk.effect.as_str();
            return Some(format!("an operation with `method: {method}` is `{effect}`, not `{}`", other.as_str()));
        }
        None
    }
}

impl ToolFacts<'_> {
    /// Whether one of the patterns matches a name of the tool.
    fn matches_any(&self, patterns: &[Pattern]) -> bool {
        patterns
            .iter()
            .any(|pattern| self.names.iter().any(|name| pattern.matches(name)) || pattern.matches(self.original_name))
    }

    /// Whether a name in a list of tools means this tool.
    pub fn is_named(&self, name: &str) -> bool {
        if self.names.contains(&name) {
            return true;
        }
        match parse_tool_name(name) {
            Ok(ParsedToolName::Qualified { source, tool }) => {
                tool == self.original_name
                    && (source == self.source || SourceId::from_name(source).is_ok_and(|id| id.as_str() == self.source))
            }
            Ok(ParsedToolName::Bare(_)) | Err(_) => false,
        }
    }
}

impl RiskSet {
    /// Risks of a tool about which nothing trustworthy is known.
    pub const UNKNOWN: RiskSet = RiskSet { effect: Risk::Destructive, open_world: true };

    /// Risks of an operation of an HTTP API.
    pub fn of_method(method: &str) -> RiskSet {
        let effect = match method {
            "GET" | "HEAD" => Risk::ReadOnly,
            "DELETE" => Risk::Destructive,
            _ => Risk::Writes,
        };
        RiskSet { effect, open_world: false }
    }

    /// Whether a tool with these risks has this one.
    pub fn contains(self, risk: Risk) -> bool {
        self.effect == risk || (self.open_world && risk == Risk::OpenWorld)
    }

    /// The risks, for people and for JSON.
    pub fn iter(self) -> impl Iterator<Item = Risk> {
        Risk::ALL.into_iter().filter(move |risk| self.contains(*risk))
    }
}

/// Risks as a server says they are. Only for sources whose hints are trusted.
impl From<RiskHints> for RiskSet {
    fn from(hints: RiskHints) -> RiskSet {
        let effect = match hints {
            RiskHints { read_only: true, .. } => Risk::ReadOnly,
            RiskHints { destructive: false, .. } => Risk::Writes,
            RiskHints { .. } => Risk::Destructive,
        };
        RiskSet { effect, open_world: hints.open_world }
    }
}

/// The defaults of the protocol: a tool without hints may do anything.
impl Default for RiskHints {
    fn default() -> RiskHints {
        RiskHints { read_only: false, destructive: true, open_world: true }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn group(value: Value) -> Group {
        serde_json::from_value(value).unwrap()
    }

    /// The tool `list.tickets` of the source `zendesk_eu`, an operation.
    fn check(definition: Value, listed: Match, unlisted: Match) {
        let tags = ["read", "tickets"];
        let details = ToolDetails {
            tags: &tags,
            method: Some("GET"),
            path: Some("/tickets/{id}/notes"),
            risk: RiskSet::of_method("GET"),
        };
        let facts = |details| ToolFacts {
            source: "zendesk_eu",
            names: &["zendesk_eu__list_tickets"],
            original_name: "list.tickets",
            details,
        };
        let group = group(definition.clone());
        assert_eq!(group.matches(&facts(Some(details))), listed, "{definition}");
        assert_eq!(group.matches(&facts(None)), unlisted, "{definition}");
    }

    #[test]
    fn a_group_has_what_it_selects_and_names_without_what_it_excludes() {
        use Match::{No, Unknown, Yes};
        check(json!({}), No, No);
        check(json!({"select": [{}]}), Yes, Yes);
        check(json!({"select": [{"source": "zendesk*"}]}), Yes, Yes);
        check(json!({"select": [{"source": "zendesk"}]}), No, No);
        check(json!({"select": [{"name": "list.*"}]}), Yes, Yes);
        check(json!({"select": [{"name": "zendesk_eu__list_*"}]}), Yes, Yes);
        check(json!({"select": [{"name": "regex:^list"}, {"name": "other"}]}), Yes, Yes);
        check(json!({"select": [{"name": "list.*", "tags": ["read", "tickets"]}]}), Yes, Unknown);
        check(json!({"select": [{"tags": ["read", "write"]}]}), No, Unknown);
        check(json!({"select": [{"without_tags": ["write"]}]}), Yes, Unknown);
        check(json!({"select": [{"without_tags": ["read"]}]}), No, Unknown);
        check(json!({"select": [{"method": "GET", "path": "/tickets/*"}]}), Yes, Unknown);
        check(json!({"select": [{"method": "POST"}]}), No, Unknown);
        check(json!({"select": [{"risk": ["read_only"]}]}), Yes, Unknown);
        check(json!({"select": [{"risk": ["open_world"]}]}), No, Unknown);
        check(json!({"tools": ["zendesk_eu__list_tickets"]}), Yes, Yes);
        check(json!({"tools": ["Zendesk-EU/list.tickets"]}), Yes, Yes);
        check(json!({"tools": ["list.tickets"]}), No, No);
        check(json!({"tools": ["zendesk_eu/list.tickets"], "exclude": ["*list*"]}), No, No);
        check(json!({"select": [{}], "exclude": ["list.tickets"]}), No, No);
    }

    #[test]
    fn selectors_that_no_tool_can_match_are_recognised() {
        let contradiction = |value| serde_json::from_value::<Selector>(value).unwrap().contradiction();
        for (value, reason) in [
            (json!({"tags": ["a"], "without_tags": ["b", "a"]}), "`a` is both in"),
            (json!({"risk": ["read_only", "destructive"]}), "no tool is both"),
            (json!({"method": "GET", "risk": ["destructive"]}), "is `read_only`, not `destructive`"),
        ] {
            let found = contradiction(value).unwrap();
            assert!(found.contains(reason), "{found}");
        }
        assert_eq!(contradiction(json!({"risk": ["destructive", "open_world"], "tags": ["a"]})), None);
        assert_eq!(contradiction(json!({"method": "DELETE", "risk": ["destructive"]})), None);
    }

    #[test]
    fn risks_follow_from_hints_and_methods() {
        let by_hints =
            |read_only, destructive, open_world| RiskSet::from(RiskHints { read_only, destructive, open_world });
        let names = |risk: RiskSet| risk.iter().map(Risk::as_str).collect::<Vec<_>>().join(" ");
        assert_eq!(names(by_hints(true, true, false)), "read_only");
        assert_eq!(names(by_hints(false, false, true)), "writes open_world");
        assert_eq!(names(RiskHints::default().into()), "destructive open_world");
        assert_eq!(names(RiskSet::UNKNOWN), "destructive open_world");
        assert_eq!(names(RiskSet::of_method("PUT")), "writes");
    }
}
