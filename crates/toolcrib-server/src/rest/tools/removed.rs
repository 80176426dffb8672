//! Tools that their source no longer offers. What they were is in the history; the list has what is known of them
//! without reading it.

use serde_json::{Value, json};
use toolcrib::core::inventory::{SourceState, ToolState};
use toolcrib::core::policy::{Rules, Verdict};
use toolcrib::core::render::RenderedPage;
use toolcrib::core::tool::{SEPARATOR, ToolName};
use toolcrib::core::{ResultExt, text};
use toolcrib::{Code, Registry, Result, SourceId};

pub(super) fn render_page(
    registry: &Registry,
    source: Option<&SourceId>,
    after: Option<&str>,
    limit: usize,
) -> Result<RenderedPage> {
    let inventory = registry.inventory();
    let sources = inventory.sources().filter(|(id, _)| source.is_none_or(|source| source == *id));
    let mut tools: Vec<(ToolName, Value)> = Vec::new();
    for (id, state) in sources {
        let declared = registry.declaration(id);
        collect_removed(&mut tools, id, state, declared.as_ref().map(|source| &source.settings.tools));
    }
    tools.sort_by(|(one, _), (other, _)| one.cmp(other));
    tools.retain(|(name, _)| after.is_none_or(|after| name.as_str() > after));
    let more = tools.len() > limit;
    tools.truncate(limit);
    let last = tools.last().map(|(name, _)| name.clone()).filter(|_| more);
    let shown: Vec<&Value> = tools.iter().map(|(_, tool)| tool).collect();
    Ok(RenderedPage { array: serde_json::to_string(&shown).context(Code::Internal, "write tools as JSON")?, last })
}

/// What a rule hides is hidden when it is gone, too.
fn collect_removed(tools: &mut Vec<(ToolName, Value)>, id: &SourceId, state: &SourceState, rules: Option<&Rules>) {
    let prefix = if state.kind == "builtin" { String::new() } else { format!("{id}{SEPARATOR}") };
    for (own, tool) in state.tools.iter().filter(|(_, tool)| tool.deprecated) {
        let name = ToolName::from_original(&prefix, own);
        let verdict = rules.map_or_else(Verdict::default, |rules| rules.verdict(&[own, name.as_str()], Verdict::Allow));
        if verdict != Verdict::Hide {
            let shown = tool_json(id, &state.kind, own, &name, tool, verdict);
            tools.push((name, shown));
        }
    }
}

fn tool_json(id: &SourceId, kind: &str, own: &str, name: &ToolName, tool: &ToolState, verdict: Verdict) -> Value {
    let own = text::sanitize(own);
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
        "policy": verdict,
        "enabled": !tool.disabled,
        "state": "deprecated",
        "fingerprint": null,
        "created_at": tool.created_at,
        "updated_at": tool.updated_at,
    })
}
