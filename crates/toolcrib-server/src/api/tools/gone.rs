//! Tools that their source no longer offers. What they were is in the history; the list has what is known of them
//! without reading it.

use serde_json::{Value, json};
use toolcrib::core::inventory::{Inventory, SourceState, ToolState};
use toolcrib::core::render::Page;
use toolcrib::core::tool::{SEPARATOR, ToolName};
use toolcrib::core::{ResultExt, text};
use toolcrib::{Code, Result, SourceId};

pub(super) fn page(
    inventory: &Inventory,
    source: Option<&SourceId>,
    after: Option<&str>,
    limit: usize,
) -> Result<Page> {
    let sources = inventory.sources().filter(|(id, _)| source.is_none_or(|source| source == *id));
    let mut tools: Vec<(ToolName, Value)> = sources.flat_map(|(id, state)| of(id, state)).collect();
    tools.sort_by(|(one, _), (other, _)| one.cmp(other));
    tools.retain(|(name, _)| after.is_none_or(|after| name.as_str() > after));
    let more = tools.len() > limit;
    tools.truncate(limit);
    let last = tools.last().map(|(name, _)| name.clone()).filter(|_| more);
    let shown: Vec<&Value> = tools.iter().map(|(_, tool)| tool).collect();
    Ok(Page { array: serde_json::to_string(&shown).context(Code::Internal, "write tools as JSON")?, last })
}

fn of(id: &SourceId, state: &SourceState) -> impl Iterator<Item = (ToolName, Value)> {
    let prefix = if state.kind == "builtin" { String::new() } else { format!("{id}{SEPARATOR}") };
    let gone = state.tools.iter().filter(|(_, tool)| tool.deprecated);
    gone.map(move |(own, tool)| {
        let name = ToolName::plain(&prefix, own);
        let shown = shown(id, &state.kind, own, &name, tool);
        (name, shown)
    })
}

fn shown(id: &SourceId, kind: &str, own: &str, name: &ToolName, tool: &ToolState) -> Value {
    let own = text::shown(own);
    json!({
        "id": format!("{id}:{own}"),
        "name": name,
        "source": id,
        "original_name": own,
        "kind": kind,
        "title": null,
        "description": null,
        "input_schema": null,
        "annotations": null,
        "tags": [],
        "policy": "allow",
        "enabled": !tool.disabled,
        "state": "deprecated",
        "fingerprint": null,
        "created_at": tool.created_at,
        "updated_at": tool.updated_at,
    })
}
