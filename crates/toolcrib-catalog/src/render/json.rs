//! Toolcrib's own list format: the stored listing of a tool, framed by fields that change independently of it.
//!
//! ```text
//! {"id": "github:create_issue", "name": "github__create_issue", "source": "github", "original_name": "create_issue",
//!  "kind": "mcp", …the stored listing…, "tags": [], "policy": "allow", "enabled": true, "state": "active",
//!  "held": null, "tokens": 95, "fingerprint": "…", "created_at": "…", "updated_at": "…"}
//! ```

use toolcrib_core::json;
use toolcrib_core::text::sanitize;

use crate::{ToolRef, ToolStatus};

/// Formats `source:tool`. Uses the original name, or the one in the catalogue if sanitising changed it: ids must be
/// unique.
fn format_tool_id(tool: &ToolRef<'_>, original: &str) -> String {
    let tool_name = if original == tool.original_name() { original } else { tool.unprefixed_name() };
    format!("{}:{tool_name}", tool.source())
}

/// Appends a tool. Field names and order are part of the public contract.
pub fn push_tool(tool: &ToolRef<'_>, out: &mut String) {
    push_with_tokens(tool, tool.tokens(), out);
}

/// Appends a tool with a token count that was made for this list.
pub(super) fn push_with_tokens(tool: &ToolRef<'_>, tokens: Option<u32>, out: &mut String) {
    let original = sanitize(tool.original_name());
    let push_field = |name: &str, value: &str, out: &mut String| {
        out.push_str(name);
        json::push_json_string(value, out);
    };
    push_field("{\"id\":", &format_tool_id(tool, &original), out);
    push_field(",\"name\":", tool.name().as_str(), out);
    push_field(",\"source\":", tool.source().as_str(), out);
    push_field(",\"original_name\":", &original, out);
    push_field(",\"kind\":", &tool.catalog_source.options.kind, out);
    // The stored text is copied as it is: parsing and rendering every schema would dominate the time of a list.
    out.push(',');
    out.push_str(tool.catalog_source.segment.listing_json(tool.entry));
    out.push_str(",\"tags\":[");
    for (index, tag) in tool.tags().enumerate() {
        push_field(if index > 0 { "," } else { "" }, tag, out);
    }
    let inventory_state = tool.inventory_state();
    let status = tool.status();
    push_field("],\"policy\":", tool.verdict().as_str(), out);
    out.push_str(if status == ToolStatus::Active { ",\"enabled\":true" } else { ",\"enabled\":false" });
    push_field(",\"state\":", status.as_str(), out);
    // Nothing is held for approval yet.
    out.push_str(",\"held\":null,\"tokens\":");
    out.push_str(&tokens.map_or_else(|| "null".to_owned(), |tokens| tokens.to_string()));
    push_field(",\"fingerprint\":", &tool.catalog_source.segment.packed_tool(tool.entry).fingerprint.to_string(), out);
    push_field(",\"created_at\":", &inventory_state.created_at.to_string(), out);
    push_field(",\"updated_at\":", &inventory_state.updated_at.to_string(), out);
    out.push('}');
}
