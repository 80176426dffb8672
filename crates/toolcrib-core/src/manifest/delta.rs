//! Differences between two manifests of one source. Computed once, when a new list is recorded, and stored in the
//! event: the class of a change is part of history and is not computed again.

use serde::{Deserialize, Serialize};

use super::{PackedManifest, PackedTool};
use crate::compare::{
    ChangeClass, ToolComparison, ToolRename, WorkBudget, canonical_json, changed_unknown_fields, compare,
    likely_renames, original_text,
};
use crate::error::Result;
use crate::text::sanitize_truncated;
use crate::tool::Tool;

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

impl ToolChange {
    /// Compares two versions of a tool.
    pub fn between(old: &Tool, new: &Tool, budget: &mut WorkBudget) -> ToolChange {
        let ToolComparison { class, notes } = compare(old, new, budget);
        ToolChange { name: new.name.clone(), fields: changed_fields(old, new), class: Some(class), notes }
    }
}

impl Delta {
    /// Compares two manifests in one pass over their sorted lists. Only tools whose fingerprints differ are parsed.
    /// Without a previous manifest every tool is added. Fails if a stored tool cannot be parsed. Comparing schemas has
    /// one [`WorkBudget`] for the whole list; once it is spent, changes are classified less precisely.
    pub fn between(before: Option<&PackedManifest>, after: &PackedManifest) -> Result<Delta> {
        let mut delta = Delta::default();
        let mut budget = WorkBudget::default();
        let empty: &[PackedTool] = &[];
        let mut old = before.map_or(empty, |before| &before.tools).iter().peekable();
        for new in &after.tools {
            // Both lists are sorted: old tools before the current name are gone.
            while let Some(gone) = old.next_if(|old| old.name < new.name) {
                delta.removed.push(gone.name.clone());
            }
            match (old.next_if(|old| old.name == new.name), before) {
                (Some(old), _) if old.fingerprint == new.fingerprint => delta.unchanged += 1,
                (Some(old), Some(before)) => {
                    delta.changed.push(ToolChange::between(&before.tool(old)?, &after.tool(new)?, &mut budget));
                }
                _ => delta.added.push(new.name.clone()),
            }
        }
        delta.removed.extend(old.map(|gone| gone.name.clone()));
        // Needs the definitions of added and removed tools, so it comes last.
        if let Some(before) = before {
            delta.renamed = likely_renames(before, after, &delta.removed, &delta.added)?;
        }
        Ok(delta)
    }

    /// Whether no tool differs. Renames are additions and removals, so they need no check of their own.
    pub fn is_empty(&self) -> bool {
        self.added.is_empty() && self.changed.is_empty() && self.removed.is_empty()
    }
}

/// Names of the fields that differ, in the form in which the source offered them.
fn changed_fields(old: &Tool, new: &Tool) -> Vec<String> {
    let pairs = [
        (
            "title",
            original_text(old, "title", old.listing.title.as_deref()),
            original_text(new, "title", new.listing.title.as_deref()),
        ),
        (
            "description",
            original_text(old, "description", Some(&old.listing.description)),
            original_text(new, "description", Some(&new.listing.description)),
        ),
        ("inputSchema", offered_schema(old), offered_schema(new)),
        ("outputSchema", canonical_json(old.output_schema.as_deref()), canonical_json(new.output_schema.as_deref())),
        (
            "annotations",
            canonical_json(old.listing.annotations.as_deref()),
            canonical_json(new.listing.annotations.as_deref()),
        ),
        // Toolcrib's own field, which no list shows: the request of an OpenAPI operation and its full schemas.
        ("backing", canonical_json(old.execution_spec.as_deref()), canonical_json(new.execution_spec.as_deref())),
    ];
    let mut fields: Vec<String> =
        pairs.into_iter().filter(|(_, old, new)| old != new).map(|(name, _, _)| name.to_owned()).collect();
    fields.extend(changed_unknown_fields(old, new).into_iter().map(|name| sanitize_truncated(name, 80)));
    fields
}

/// Input schema as the source offered it, before sanitising.
fn offered_schema(tool: &Tool) -> Option<String> {
    canonical_json(tool.original.get("inputSchema").or(Some(&tool.listing.input_schema)))
}
