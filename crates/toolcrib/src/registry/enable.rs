//! Sources and single tools, enabled or disabled.

use serde::ser::{Serialize, SerializeMap, Serializer};
use toolcrib_core::inventory::{Actor, Command};
use toolcrib_core::tool::{ToolId, ToolName};
use toolcrib_core::{Result, SourceId};

use super::{Registry, WriteOutcome};

/// What somebody wants of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EnabledState {
    Enabled,
    Disabled,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EnableTarget {
    Source(SourceId),
    Tool(ToolId, ToolName),
}

/// What came of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EnableOutcome {
    pub target: EnableTarget,
    pub state: EnabledState,
    /// Whether it was otherwise before.
    pub changed: bool,
}

impl Registry {
    /// The tool that is meant by a name, whatever its spelling.
    pub fn tool_target(&self, tool: &str) -> Result<EnableTarget> {
        self.shared.snapshot.load().ensure_undamaged()?;
        let catalog = self.catalog();
        let tool = self.shared.find_tool(&catalog, tool)?;
        Ok(EnableTarget::Tool(tool.id(), tool.name().clone()))
    }

    pub async fn set_enabled(&self, target: EnableTarget, switch: EnabledState, actor: Actor) -> Result<EnableOutcome> {
        let command = match (&target, switch) {
            (EnableTarget::Source(id), EnabledState::Enabled) => Command::Enable(id.clone()),
            (EnableTarget::Source(id), EnabledState::Disabled) => Command::Disable(id.clone()),
            (EnableTarget::Tool(id, _), EnabledState::Enabled) => Command::EnableTool(id.clone()),
            (EnableTarget::Tool(id, _), EnabledState::Disabled) => Command::DisableTool(id.clone()),
        };
        let written = self.shared.write(&actor, None, |writer| writer.inventory.decide(&command)).await?;
        let changed = match written {
            WriteOutcome::Applied(events) => !events.is_empty(),
            WriteOutcome::Superseded => false,
        };
        Ok(EnableOutcome { target, state: switch, changed })
    }
}

impl EnabledState {
    pub fn as_str(self) -> &'static str {
        match self {
            EnabledState::Enabled => "enabled",
            EnabledState::Disabled => "disabled",
        }
    }
}

impl EnableTarget {
    /// As agents and people know it.
    pub fn name(&self) -> &str {
        match self {
            EnableTarget::Source(id) => id.as_str(),
            EnableTarget::Tool(_, name) => name.as_str(),
        }
    }
}

/// `{"source" or "tool", "enabled", "changed"}`.
impl Serialize for EnableOutcome {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let what = match &self.target {
            EnableTarget::Source(_) => "source",
            EnableTarget::Tool(..) => "tool",
        };
        let mut map = serializer.serialize_map(Some(3))?;
        map.serialize_entry(what, self.target.name())?;
        map.serialize_entry("enabled", &(self.state == EnabledState::Enabled))?;
        map.serialize_entry("changed", &self.changed)?;
        map.end()
    }
}
