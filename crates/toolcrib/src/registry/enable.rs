//! Enabling and disabling sources and single tools.
//!
//! The switch is an event, so it holds for all processes on the store and survives restarts. Only
//! `TOOLCRIB_SOURCE_…_ENABLED` in the environment overrides it, for one process. A later change of `enabled` in the
//! configuration switches the source again.

use serde::ser::{Serialize, SerializeMap, Serializer};
use toolcrib_core::inventory::{Actor, Command};
use toolcrib_core::principal::Principal;
use toolcrib_core::tool::{ToolId, ToolName};
use toolcrib_core::{Result, SourceId};

use super::Sources;
use crate::call::find_readable_tool;

/// The requested state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EnabledState {
    /// Offered to agents and callable.
    Enabled,
    /// Listed for administrators only.
    Disabled,
}

/// Source or tool to enable or disable. A tool is identified by source and original name; the name that agents see is
/// for messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EnableTarget {
    /// A source with all its tools.
    Source(SourceId),
    /// One tool: its identity, and the name that agents see.
    Tool(ToolId, ToolName),
}

/// Result of enabling or disabling.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EnableOutcome {
    /// The source or tool.
    pub target: EnableTarget,
    /// State that it has now.
    pub state: EnabledState,
    /// Whether the state was different before.
    pub changed: bool,
}

impl Sources<'_> {
    /// Resolves a tool name, in any accepted spelling, for a principal. Fails like a call that finds no tool, but finds hidden
    /// ones for an administrator.
    pub fn tool_target(&self, principal: &Principal, tool: &str) -> Result<EnableTarget> {
        // On a damaged journal the tool may only seem to be unknown.
        let snapshot = self.registry.state.snapshot();
        snapshot.ensure_undamaged()?;
        let view = snapshot.view(principal);
        let tool = find_readable_tool(&snapshot, &view, principal, tool, self.registry.state.now())?;
        Ok(EnableTarget::Tool(tool.id(), tool.name().clone()))
    }

    /// Enables or disables a source or a tool. Without a change, no event is written.
    pub async fn set_enabled(&self, target: EnableTarget, state: EnabledState, actor: Actor) -> Result<EnableOutcome> {
        let command = match (&target, state) {
            (EnableTarget::Source(id), state) => state.source_command(id),
            (EnableTarget::Tool(id, _), EnabledState::Enabled) => Command::EnableTool(id.clone()),
            (EnableTarget::Tool(id, _), EnabledState::Disabled) => Command::DisableTool(id.clone()),
        };
        let id = match &target {
            EnableTarget::Source(id) => id,
            EnableTarget::Tool(id, _) => &id.source,
        };
        self.registry.state.snapshot().environment.ensure_not_declared(id)?;
        let events = self.registry.state.execute(&[command], actor, self.precondition).await?;
        Ok(EnableOutcome { target, state, changed: !events.is_empty() })
    }
}

impl EnabledState {
    /// Returns the command that brings a source into this state.
    pub(super) fn source_command(self, id: &SourceId) -> Command {
        match self {
            EnabledState::Enabled => Command::Enable(id.clone()),
            EnabledState::Disabled => Command::Disable(id.clone()),
        }
    }

    /// Returns the name used in messages.
    pub fn as_str(self) -> &'static str {
        match self {
            EnabledState::Enabled => "enabled",
            EnabledState::Disabled => "disabled",
        }
    }
}

impl EnableTarget {
    /// Returns the name that agents and people use.
    pub fn name(&self) -> &str {
        match self {
            EnableTarget::Source(id) => id.as_str(),
            EnableTarget::Tool(_, name) => name.as_str(),
        }
    }
}

/// Serialized as `{"source" or "tool", "enabled", "changed"}`.
impl Serialize for EnableOutcome {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let key = match &self.target {
            EnableTarget::Source(_) => "source",
            EnableTarget::Tool(..) => "tool",
        };
        let mut map = serializer.serialize_map(Some(3))?;
        map.serialize_entry(key, self.target.name())?;
        map.serialize_entry("enabled", &(self.state == EnabledState::Enabled))?;
        map.serialize_entry("changed", &self.changed)?;
        map.end()
    }
}
