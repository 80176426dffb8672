//! Tools as our own lists show them: stored text, framed by what may change without it.

use crate::catalog::{ToolRef, ToolStatus};
use crate::json;
use crate::text::sanitize;

/// The source's own name where it can be shown as it is, else the one made of it: an id must be unique.
fn format_tool_id(tool: &ToolRef<'_>, original: &str) -> String {
    let name = tool.name().as_str();
    let made = name.strip_prefix(tool.catalog_source.segment.prefix()).unwrap_or(name);
    let own = if original == tool.original_name() { original } else { made };
    format!("{}:{own}", tool.source())
}

/// One tool, as our own lists show it.
pub fn push_tool(tool: &ToolRef<'_>, out: &mut String) {
    let original = sanitize(tool.original_name());
    let field = |name: &str, value: &str, out: &mut String| {
        out.push_str(name);
        json::push_json_string(value, out);
    };
    field("{\"id\":", &format_tool_id(tool, &original), out);
    field(",\"name\":", tool.name().as_str(), out);
    field(",\"source\":", tool.source().as_str(), out);
    field(",\"original_name\":", &original, out);
    field(",\"kind\":", &tool.catalog_source.options.kind, out);
    out.push(',');
    out.push_str(tool.catalog_source.segment.listing_json(tool.entry));
    out.push_str(",\"tags\":[");
    for (index, tag) in tool.catalog_source.options.tags.iter().enumerate() {
        field(if index > 0 { "," } else { "" }, tag, out);
    }
    let (dates, state) = (tool.inventory_state(), tool.status());
    field("],\"policy\":", tool.verdict().as_str(), out);
    out.push_str(if state == ToolStatus::Active { ",\"enabled\":true" } else { ",\"enabled\":false" });
    field(",\"state\":", state.as_str(), out);
    field(",\"fingerprint\":", &tool.catalog_source.segment.packed_tool(tool.entry).fingerprint.to_string(), out);
    field(",\"created_at\":", &dates.created_at.to_string(), out);
    field(",\"updated_at\":", &dates.updated_at.to_string(), out);
    out.push('}');
}
