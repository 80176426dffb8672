//! Compares two manifests of one source. Done once, when a new list is recorded; the result is stored in the event.

use toolcrib_core::delta::{Delta, ToolChange};
use toolcrib_core::error::Result;
use toolcrib_core::manifest::{PackedManifest, PackedTool};
use toolcrib_core::text::sanitize_truncated;
use toolcrib_core::tool::Tool;

use super::{
    ToolComparison, WorkBudget, canonical_json, changed_unknown_fields, compare, likely_renames, original_description,
    original_title,
};

/// Compares two manifests in one pass over their sorted lists. Only tools whose fingerprints differ are parsed. Without a
/// previous manifest every tool is added. Fails if a stored tool cannot be parsed. Comparing schemas has one
/// [`WorkBudget`] for the whole list; once it is spent, changes are classified less precisely.
pub fn compare_manifests(before: Option<&PackedManifest>, after: &PackedManifest) -> Result<Delta> {
    let Some(before) = before else { return Ok(Delta::all_added(after)) };
    let mut delta = Delta::default();
    let mut budget = WorkBudget::default();
    let mut old = before.tools.iter().peekable();
    for new in &after.tools {
        // Both lists are sorted: old tools before the current name are gone.
        while let Some(gone) = old.next_if(|old: &&PackedTool| old.name < new.name) {
            delta.removed.push(gone.name.clone());
        }
        match old.next_if(|old| old.name == new.name) {
            Some(old) if old.fingerprint == new.fingerprint => delta.unchanged += 1,
            Some(old) => delta.changed.push(compare_versions(&before.tool(old)?, &after.tool(new)?, &mut budget)),
            None => delta.added.push(new.name.clone()),
        }
    }
    delta.removed.extend(old.map(|gone| gone.name.clone()));
    // Needs the definitions of added and removed tools, so it comes last.
    delta.renamed = likely_renames(before, after, &delta.removed, &delta.added)?;
    Ok(delta)
}

/// Compares two versions of a tool.
pub fn compare_versions(old: &Tool, new: &Tool, budget: &mut WorkBudget) -> ToolChange {
    let ToolComparison { class, notes } = compare(old, new, budget);
    ToolChange { name: new.name.clone(), fields: changed_fields(old, new), class: Some(class), notes }
}

/// Names of the fields that differ, in the form in which the source offered them.
fn changed_fields(old: &Tool, new: &Tool) -> Vec<String> {
    let pairs = [
        ("title", original_title(old), original_title(new)),
        ("description", original_description(old), original_description(new)),
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
