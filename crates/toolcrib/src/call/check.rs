//! Before a call goes out: is there such a tool, and may it be called.

use toolcrib_core::catalog::{Catalog, ToolRef, ToolStatus};
use toolcrib_core::freshness::Freshness;
use toolcrib_core::policy::Verdict;
use toolcrib_core::text::sanitize_truncated;
use toolcrib_core::tool::{ParsedToolName, parse_tool_name};
use toolcrib_core::{Code, Error, Result, SourceId};

use crate::registry::RegistryInner;

impl RegistryInner {
    /// The tool, or why there is none: unknown, hidden, or its source is disabled or has never answered.
    pub(crate) fn find_tool<'a>(&self, catalog: &'a Catalog, name: &str) -> Result<ToolRef<'a>> {
        match catalog.find(name) {
            Ok(tool) if tool.verdict() == Verdict::Hide => Err(catalog.unknown_tool_error(name)),
            Err(error) if error.code == Code::ToolNotImplemented => {
                Err(self.explain_unknown_tool(name).unwrap_or(error))
            }
            found => found,
        }
    }

    /// A better reason than "unknown" when the name's source is known.
    fn explain_unknown_tool(&self, name: &str) -> Option<Error> {
        match parse_tool_name(name).ok()? {
            ParsedToolName::Qualified { source, .. } => self.explain_source(&SourceId::from_name(source).ok()?),
            ParsedToolName::Bare(_) => self.explain_bare_name(name),
        }
    }

    /// A bare name may be of a source whose tools are not known; it is not waited for, since it may be of any.
    fn explain_bare_name(&self, name: &str) -> Option<Error> {
        const MAX_LISTED_SOURCES: usize = 5;
        let now = self.snapshot.load();
        let enabled = now.inventory.sources().filter(|(id, state)| self.is_enabled(id, state.enabled));
        let unknown: Vec<&SourceId> =
            enabled.map(|(id, _)| id).filter(|id| self.freshness(&now, id) == Freshness::Missing).collect();
        if unknown.is_empty() {
            return None;
        }
        let named: Vec<String> = unknown.iter().take(MAX_LISTED_SOURCES).map(|id| format!("`{id}`")).collect();
        let more = if unknown.len() > MAX_LISTED_SOURCES { " and others" } else { "" };
        let message = format!(
            "no tool named `{}`; not discovered yet: {}{more}. Run `toolcrib refresh`, or call it as `SOURCE__TOOL`",
            sanitize_truncated(name, 80),
            named.join(", ")
        );
        Some(Error::new(Code::ToolNotImplemented, message))
    }

    /// Why the tools of a source are not known, where they are not.
    pub(crate) fn explain_source(&self, id: &SourceId) -> Option<Error> {
        let now = self.snapshot.load();
        if let Err(forbidden) = self.ensure_trusted(id) {
            return Some(forbidden);
        }
        if let Some(wrong) = now.invalid_sources.get(id) {
            let message = format!("`{id}` is stated wrongly in the configuration: {}", wrong.message);
            return Some(Error::new(Code::ToolUnavailable, message).with_retryable(false));
        }
        let state = now.inventory.source(id)?;
        if !self.is_enabled(id, state.enabled) {
            let message = format!("the source `{id}` is disabled; `toolcrib enable {id}` turns it on");
            return Some(Error::new(Code::ToolNotImplemented, message));
        }
        if self.freshness(&now, id) != Freshness::Missing {
            return None;
        }
        let reason = now.statuses.get(id).and_then(|standing| standing.last_error.clone());
        let reason = reason.map_or_else(|| "it was never discovered".to_owned(), |failure| failure.message);
        let message = format!("the tools of `{id}` are not known: {reason}; `toolcrib refresh {id}` tries again");
        Some(Error::new(Code::ToolUnavailable, message))
    }
}

/// A disabled tool is there, and is not called.
pub(super) fn check_enabled(tool: &ToolRef<'_>) -> Result<()> {
    if tool.status() == ToolStatus::Disabled {
        let message = format!("`{}` is disabled; `toolcrib enable {}` turns it on", tool.name(), tool.name());
        return Err(Error::new(Code::ToolNotImplemented, message));
    }
    Ok(())
}

pub(super) fn check_policy(tool: &ToolRef<'_>, consent: bool) -> Result<()> {
    let name = tool.name();
    match tool.verdict() {
        Verdict::Allow => Ok(()),
        Verdict::Ask if consent => Ok(()),
        Verdict::Ask => {
            let message = format!("`{name}` needs consent before each call; on the command line, `--yes` gives it");
            Err(Error::new(Code::Forbidden, message))
        }
        Verdict::Deny => Err(Error::new(Code::Forbidden, format!("a rule of its source denies `{name}`"))),
        Verdict::Hide => Err(Error::new(Code::ToolNotImplemented, format!("no tool named `{name}`"))),
    }
}
