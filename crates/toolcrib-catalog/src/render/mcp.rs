//! MCP's tool format, which takes JSON Schema unchanged. Unknown fields of the source's tool are passed on; the
//! execution specification of Toolcrib is not among them.

use toolcrib_core::json;
use toolcrib_core::tool::Tool;

/// Appends a tool as `tools/list` shows it.
pub fn push_tool(name: &str, tool: &Tool, out: &mut String) {
    let listing = &tool.listing;
    out.push_str("{\"name\":");
    json::push_json_string(name, out);
    if let Some(title) = &listing.title {
        out.push_str(",\"title\":");
        json::push_json_string(title, out);
    }
    out.push_str(",\"description\":");
    json::push_json_string(&listing.description, out);
    let mut push_field = |key: &str, text: &str| {
        out.push(',');
        json::push_json_string(key, out);
        out.push(':');
        out.push_str(text);
    };
    push_field("inputSchema", listing.input_schema.get());
    if let Some(schema) = &tool.output_schema {
        push_field("outputSchema", schema.get());
    }
    if let Some(annotations) = &listing.annotations {
        push_field("annotations", annotations.get());
    }
    for (key, value) in tool.extra.iter() {
        push_field(key, value.get());
    }
    out.push('}');
}
