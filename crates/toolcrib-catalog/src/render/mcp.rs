//! MCP's tool format, which takes JSON Schema unchanged. Unknown fields of the source's tool are passed on; the
//! execution specification of Toolcrib is not among them.

use std::borrow::Cow;

use toolcrib_core::json::{self, RawFields};
use toolcrib_core::tool::Tool;

/// Appends a tool as `tools/list` shows it. `execution.taskSupport` is left out: Toolcrib waits for the tasks of a source
/// itself, and a client would refuse to call a tool that requires one.
pub fn push_tool(name: &str, tool: &Tool, out: &mut String) {
    push_fields(name, tool, out, |key, value| match key {
        "execution" => without_task_support(value),
        _ => Some(value.into()),
    });
}

/// Appends a tool with all fields of its source, for a description of it.
pub fn push_definition(name: &str, tool: &Tool, out: &mut String) {
    push_fields(name, tool, out, |_, value| Some(value.into()));
}

/// Appends a tool. `convert` returns the text of each further field, or `None` to leave it out.
fn push_fields(
    name: &str,
    tool: &Tool,
    out: &mut String,
    convert: impl for<'a> Fn(&str, &'a str) -> Option<Cow<'a, str>>,
) {
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
        if let Some(text) = convert(key, value.get()) {
            push_field(key, &text);
        }
    }
    out.push('}');
}

/// Removes `taskSupport` from the field `execution`; `None` if nothing is left.
fn without_task_support(execution: &str) -> Option<Cow<'_, str>> {
    let Ok(mut fields) = serde_json::from_str::<RawFields>(execution) else { return Some(execution.into()) };
    fields.remove("taskSupport");
    (!fields.is_empty()).then(|| serde_json::to_string(&fields).map_or(execution.into(), Cow::Owned))
}
