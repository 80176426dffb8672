//! Before a call goes out: is there such a tool, and may it be called.

use toolcrib_core::catalog::{Catalog, State, ToolRef};
use toolcrib_core::freshness::Freshness;
use toolcrib_core::policy::Verdict;
use toolcrib_core::text::shown_short;
use toolcrib_core::tool::{Asked, parse_name};
use toolcrib_core::{Code, Error, Result, SourceId};

use crate::registry::Shared;

impl Shared {
    /// The tool, or why there is none: unknown, hidden, or its source is disabled or has never answered.
    pub(crate) fn look_up<'a>(&self, catalog: &'a Catalog, name: &str) -> Result<ToolRef<'a>> {
        match catalog.find(name) {
            Ok(tool) if tool.verdict() == Verdict::Hide => Err(catalog.unknown(name)),
            Err(error) if error.code == Code::ToolNotImplemented => Err(self.explain(name).unwrap_or(error)),
            found => found,
        }
    }

    /// A better reason than "unknown" when the name's source is known.
    fn explain(&self, name: &str) -> Option<Error> {
        match parse_name(name).ok()? {
            Asked::Qualified { source, .. } => self.explain_source(&SourceId::from_name(source).ok()?),
            Asked::Bare(_) => self.explain_bare(name),
        }
    }

    /// A bare name may be of a source whose tools are not known; it is not waited for, since it may be of any.
    fn explain_bare(&self, name: &str) -> Option<Error> {
        const MAX_NAMED: usize = 5;
        let now = self.now.load();
        let enabled = now.inventory.sources().filter(|(id, state)| self.enabled_here(id, state.enabled));
        let unknown: Vec<&SourceId> =
            enabled.map(|(id, _)| id).filter(|id| self.freshness(&now, id) == Freshness::Missing).collect();
        if unknown.is_empty() {
            return None;
        }
        let named: Vec<String> = unknown.iter().take(MAX_NAMED).map(|id| format!("`{id}`")).collect();
        let more = if unknown.len() > MAX_NAMED { " and others" } else { "" };
        let message = format!(
            "no tool named `{}`; not discovered yet: {}{more}. Run `toolcrib refresh`, or call it as `SOURCE__TOOL`",
            shown_short(name, 80),
            named.join(", ")
        );
        Some(Error::new(Code::ToolNotImplemented, message))
    }

    /// Why the tools of a source are not known, where they are not.
    pub(crate) fn explain_source(&self, id: &SourceId) -> Option<Error> {
        let now = self.now.load();
        if let Err(forbidden) = self.trusted(id) {
            return Some(forbidden);
        }
        if let Some(wrong) = now.invalid.get(id) {
            let message = format!("`{id}` is stated wrongly in the configuration: {}", wrong.message);
            return Some(Error::new(Code::ToolUnavailable, message).with_retryable(false));
        }
        let state = now.inventory.source(id)?;
        if !self.enabled_here(id, state.enabled) {
            let message = format!("the source `{id}` is disabled; `toolcrib enable {id}` turns it on");
            return Some(Error::new(Code::ToolNotImplemented, message));
        }
        if self.freshness(&now, id) != Freshness::Missing {
            return None;
        }
        let reason = now.standings.get(id).and_then(|standing| standing.last_error.clone());
        let reason = reason.map_or_else(|| "it was never discovered".to_owned(), |failure| failure.message);
        let message = format!("the tools of `{id}` are not known: {reason}; `toolcrib refresh {id}` tries again");
        Some(Error::new(Code::ToolUnavailable, message))
    }
}

/// A disabled tool is there, and is not called.
pub(super) fn usable(tool: &ToolRef<'_>) -> Result<()> {
    if tool.state() == State::Disabled {
        let message = format!("`{}` is disabled; `toolcrib enable {}` turns it on", tool.name(), tool.name());
        return Err(Error::new(Code::ToolNotImplemented, message));
    }
    Ok(())
}

pub(super) fn permit(tool: &ToolRef<'_>, consent: bool) -> Result<()> {
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
