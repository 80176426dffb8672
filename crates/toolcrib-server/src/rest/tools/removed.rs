//! The list of tools that their source no longer offers (`state=deprecated`). It has only the fields of the inventory;
//! their last definitions are in the history.

use serde_json::{Value, json};
use toolcrib::catalog::render::RenderedPage;
use toolcrib::core::inventory::{SourceState, ToolState};
use toolcrib::core::policy::{Rules, Verdict};
use toolcrib::core::tool::{ToolName, name_prefix};
use toolcrib::core::{ResultExt, text};
use toolcrib::{Code, Registry, Result, SourceId};

/// Renders a page of removed tools in name order.
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
        let declaration = registry.sources().declaration(id);
        collect_removed(&mut tools, id, state, declaration.as_ref().map(|source| &source.settings.tools));
    }
    // By the name for agents, which is what the cursor contains.
    tools.sort_by(|(a, _), (b, _)| a.cmp(b));
    tools.retain(|(name, _)| after.is_none_or(|after| name.as_str() > after));
    let has_more = tools.len() > limit;
    tools.truncate(limit);
    let last = tools.last().map(|(name, _)| name.clone()).filter(|_| has_more);
    let page: Vec<&Value> = tools.iter().map(|(_, tool)| tool).collect();
    Ok(RenderedPage { array: serde_json::to_string(&page).context(Code::Internal, "serialise tools")?, last })
}

/// Collects the removed tools of one source. Tools that a policy hides stay hidden.
fn collect_removed(tools: &mut Vec<(ToolName, Value)>, id: &SourceId, state: &SourceState, rules: Option<&Rules>) {
    let prefix = name_prefix(id, &state.kind);
    for (original_name, tool) in state.tools.iter().filter(|(_, tool)| tool.deprecated) {
        let name = ToolName::from_original(&prefix, original_name);
        let verdict = rules.map_or_else(Verdict::default, |rules| rules.unlisted_verdict(&prefix, original_name));
        if verdict != Verdict::Hide {
            let json = tool_json(id, &state.kind, original_name, &name, tool, verdict);
            tools.push((name, json));
        }
    }
}

/// Renders a tool with all fields of the schema `Tool`; those that only a definition has are `null`.
fn tool_json(
    id: &SourceId,
    kind: &str,
    original_name: &str,
    name: &ToolName,
    tool: &ToolState,
    verdict: Verdict,
) -> Value {
    let original_name = text::sanitize(original_name);
    json!({
        "id": format!("{id}:{original_name}"),
        "name": name,
        "source": id,
        "original_name": original_name,
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
