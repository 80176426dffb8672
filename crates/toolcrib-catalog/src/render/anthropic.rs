//! Anthropic's tool format: JSON Schema under `input_schema`, without alternatives at the top level.
//!
//! ```json
//! {"name": "time__convert", "description": "…", "input_schema": {"type": "object", "properties": {}}}
//! ```

use toolcrib_core::json;
use toolcrib_core::tool::Tool;

use super::passthrough::{self, ANTHROPIC_RULES};
use super::projection::ProjectedTool;

/// Whether a tool is loaded with the request or found by the provider's tool search.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Loading {
    /// The definition is part of the prompt.
    Now,
    /// Sets `defer_loading`.
    Deferred,
}

/// Projects a tool to Anthropic's format.
pub(super) fn project(name: &str, tool: &Tool, loading: Loading) -> ProjectedTool {
    let (schema, losses) = passthrough::project_schema(&tool.listing.input_schema, &ANTHROPIC_RULES);
    let schema = match schema {
        Ok(schema) => schema,
        Err(unsupported) => return ProjectedTool::unsupported(losses, unsupported),
    };
    // Written as text, because the schema is a stored text that need not be parsed.
    let mut text = String::with_capacity(schema.len() + tool.listing.description.len() + 128);
    text.push_str("{\"name\":");
    json::push_json_string(name, &mut text);
    text.push_str(",\"description\":");
    json::push_json_string(&tool.listing.description, &mut text);
    text.push_str(",\"input_schema\":");
    text.push_str(&schema);
    text.push_str(match loading {
        Loading::Now => "}",
        Loading::Deferred => ",\"defer_loading\":true}",
    });
    ProjectedTool { text: Some(text), losses, unsupported_reason: None }
}
