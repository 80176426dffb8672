//! Sources and single tools, enabled or disabled.

use serde::ser::{Serialize, SerializeMap, Serializer};
use toolcrib_core::inventory::{Actor, Command};
use toolcrib_core::tool::{ToolId, ToolName};
use toolcrib_core::{Result, SourceId};

use super::{Registry, Written};

/// What somebody wants of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Switch {
    Enabled,
    Disabled,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    Source(SourceId),
    Tool(ToolId, ToolName),
}

/// What came of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Switched {
    pub target: Target,
    pub switch: Switch,
    /// Whether it was otherwise before.
    pub changed: bool,
}

impl Registry {
    /// The tool that is meant by a name, whatever its spelling.
    pub fn target(&self, tool: &str) -> Result<Target> {
        self.shared.now.load().ensure_undamaged()?;
        let catalog = self.catalog();
        let tool = self.shared.look_up(&catalog, tool)?;
        Ok(Target::Tool(tool.id(), tool.name().clone()))
    }

    pub async fn switch(&self, target: Target, switch: Switch, actor: Actor) -> Result<Switched> {
        let command = match (&target, switch) {
            (Target::Source(id), Switch::Enabled) => Command::Enable(id.clone()),
            (Target::Source(id), Switch::Disabled) => Command::Disable(id.clone()),
            (Target::Tool(id, _), Switch::Enabled) => Command::EnableTool(id.clone()),
            (Target::Tool(id, _), Switch::Disabled) => Command::DisableTool(id.clone()),
        };
        let written = self.shared.write(&actor, None, |writer| writer.inventory.decide(&command)).await?;
        let changed = match written {
            Written::Done(events) => !events.is_empty(),
            Written::Superseded => false,
        };
        Ok(Switched { target, switch, changed })
    }
}

impl Switch {
    pub fn as_str(self) -> &'static str {
        match self {
            Switch::Enabled => "enabled",
            Switch::Disabled => "disabled",
        }
    }
}

impl Target {
    /// As agents and people know it.
    pub fn name(&self) -> &str {
        match self {
            Target::Source(id) => id.as_str(),
            Target::Tool(_, name) => name.as_str(),
        }
    }
}

/// `{"source" or "tool", "enabled", "changed"}`.
impl Serialize for Switched {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let what = match &self.target {
            Target::Source(_) => "source",
            Target::Tool(..) => "tool",
        };
        let mut map = serializer.serialize_map(Some(3))?;
        map.serialize_entry(what, self.target.name())?;
        map.serialize_entry("enabled", &(self.switch == Switch::Enabled))?;
        map.serialize_entry("changed", &self.changed)?;
        map.end()
    }
}
