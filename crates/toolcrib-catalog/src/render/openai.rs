//! OpenAI's function format: JSON Schema under `parameters`, without alternatives at the top level, and a description
//! of limited length.
//!
//! ```json
//! {"type": "function", "function": {"name": "time__convert", "description": "…", "parameters": {"type": "object"}}}
//! ```

use std::borrow::Cow;

use toolcrib_core::json;
use toolcrib_core::tool::Tool;

use super::limits::MAX_OPENAI_DESCRIPTION_CHARS;
use super::passthrough::{self, OPENAI_RULES};
use super::projection::{Loss, ProjectedTool};
use super::strict;

/// Projects a tool to a function without Structured Outputs.
pub(super) fn project(name: &str, tool: &Tool) -> ProjectedTool {
    let (schema, losses) = passthrough::project_schema(&tool.listing.input_schema, &OPENAI_RULES);
    match schema {
        Ok(schema) => build_function(name, &tool.listing.description, "", &schema, losses),
        Err(unsupported) => ProjectedTool::unsupported(losses, unsupported),
    }
}

/// Projects a tool to a function with Structured Outputs, which guarantee that arguments match the schema.
pub(super) fn project_strict(name: &str, tool: &Tool) -> ProjectedTool {
    let (schema, losses) = strict::project_schema(&tool.listing.input_schema);
    match schema {
        Ok(schema) => {
            let schema = json::to_exact_string(&schema).unwrap_or_default();
            build_function(name, &tool.listing.description, ",\"strict\":true", &schema, losses)
        }
        Err(unsupported) => ProjectedTool::unsupported(losses, unsupported),
    }
}

/// Builds the JSON text. `strict` is the text of the field `strict` with a leading comma, or empty.
fn build_function(name: &str, description: &str, strict: &str, schema: &str, mut losses: Vec<Loss>) -> ProjectedTool {
    // The limit is in characters; the ellipsis is one of them.
    let length = description.chars().count();
    let description = if length > MAX_OPENAI_DESCRIPTION_CHARS {
        let edit = format!("{length} characters are too many, cut to {MAX_OPENAI_DESCRIPTION_CHARS}");
        losses.push(Loss { path: "description".to_owned(), edit });
        Cow::from(description.chars().take(MAX_OPENAI_DESCRIPTION_CHARS - 1).chain(['…']).collect::<String>())
    } else {
        Cow::from(description)
    };
    let mut text = String::with_capacity(schema.len() + description.len() + 128);
    text.push_str("{\"type\":\"function\",\"function\":{\"name\":");
    json::push_json_string(name, &mut text);
    text.push_str(",\"description\":");
    json::push_json_string(&description, &mut text);
    text.push_str(strict);
    text.push_str(",\"parameters\":");
    text.push_str(schema);
    text.push_str("}}");
    ProjectedTool { text: Some(text), losses, unsupported_reason: None }
}
