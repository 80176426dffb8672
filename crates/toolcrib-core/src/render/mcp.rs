//! MCP takes a tool as it is.

use crate::json;
use crate::tool::Tool;

pub fn push_tool(name: &str, tool: &Tool, out: &mut String) {
    let face = &tool.listing;
    out.push_str("{\"name\":");
    json::push_json_string(name, out);
    if let Some(title) = &face.title {
        out.push_str(",\"title\":");
        json::push_json_string(title, out);
    }
    out.push_str(",\"description\":");
    json::push_json_string(&face.description, out);
    let mut raw = |key: &str, text: &str| {
        out.push(',');
        json::push_json_string(key, out);
        out.push(':');
        out.push_str(text);
    };
    raw("inputSchema", face.input_schema.get());
    if let Some(schema) = &tool.output_schema {
        raw("outputSchema", schema.get());
    }
    if let Some(annotations) = &face.annotations {
        raw("annotations", annotations.get());
    }
    for (key, value) in tool.extra.iter() {
        raw(key, value.get());
    }
    out.push('}');
}
