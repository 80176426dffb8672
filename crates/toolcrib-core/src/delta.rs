//! Differences between two manifests of one source, as events store them: the class of a change is part of history and is
//! not computed again. Computing them is left to `toolcrib_diff`.

use serde::{Deserialize, Serialize};

use crate::manifest::PackedManifest;

/// Difference of two manifests. Names are in byte order.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Delta {
    pub added: Vec<String>,
    pub changed: Vec<ToolChange>,
    pub removed: Vec<String>,
    /// Pairs of a removed and an added tool that are probably the same tool. Both names are in `removed` and `added`
    /// too.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub renamed: Vec<ToolRename>,
    /// Number of tools that are the same in both.
    pub unchanged: usize,
}

/// Change of one tool. Part of stored events.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolChange {
    /// The tool's own name.
    pub name: String,
    /// Fields that differ, by their MCP names.
    pub fields: Vec<String>,
    /// Effect of the change on callers; `None` in events that were recorded before classes existed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<ChangeClass>,
    /// Descriptions of the changes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// A removed tool that is most likely the same as an added one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolRename {
    /// Name of the removed tool.
    pub from: String,
    /// Name of the added tool.
    pub to: String,
}

/// Class of a change by its effect on callers of a tool. Of several changes, the worst by [`ChangeClass::ALL`]
/// classifies the whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChangeClass {
    /// Only titles, descriptions or examples changed, or a schema is written differently and means the same.
    Text,
    /// The tool accepts more input, or guarantees more about its output: existing callers keep working.
    Widened,
    /// A call is executed differently: another path or server of an operation.
    Execution,
    /// The tool accepts less input, or guarantees less about its output: existing callers may still work.
    Narrowed,
    /// An annotation about its effects changed: read-only, destructive, idempotent or open-world.
    HintFlipped,
    /// Existing callers fail, or cannot read the output as before.
    Breaking,
    /// Any other change, or a class that a newer Toolcrib wrote. Its effect is unknown, so it ranks above the classes
    /// that are known to be harmless.
    #[serde(other)]
    Other,
}

impl Delta {
    /// Returns the difference for a first manifest: every tool is added.
    pub fn all_added(after: &PackedManifest) -> Delta {
        Delta { added: after.tools.iter().map(|tool| tool.name.clone()).collect(), ..Delta::default() }
    }

    /// Whether no tool differs. Renames are additions and removals, so they need no check of their own.
    pub fn is_empty(&self) -> bool {
        self.added.is_empty() && self.changed.is_empty() && self.removed.is_empty()
    }
}

// Names in JSON and in text, from the mildest class to the most severe. `Other` ranks in the middle: unknown, but not
// known to be harmful.
crate::name_variants!(ChangeClass {
    Text => "text",
    Widened => "widened",
    Other => "other",
    Execution => "execution",
    Narrowed => "narrowed",
    HintFlipped => "hint_flipped",
    Breaking => "breaking",
});

impl ChangeClass {
    /// Returns a sentence for people about what a change of this class means.
    pub const fn meaning(self) -> &'static str {
        match self {
            ChangeClass::Text => "Only titles or descriptions changed",
            ChangeClass::Widened => "The tool accepts more input than before, or guarantees more about its output",
            ChangeClass::Execution => "Calls go to a different endpoint, or are executed differently",
            ChangeClass::Narrowed => {
                "The tool accepts less input, or guarantees less about its output; existing calls may still work"
            }
            ChangeClass::HintFlipped => "The annotations about the tool's effects changed",
            ChangeClass::Breaking => "Existing calls fail, or their output cannot be read as before",
            ChangeClass::Other => "Something else about the tool changed",
        }
    }

    /// Returns the position in [`ChangeClass::ALL`]: higher is more severe.
    pub fn severity(self) -> usize {
        ChangeClass::ALL.iter().position(|class| *class == self).unwrap_or_default()
    }
}
