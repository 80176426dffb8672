//! Anthropic's tools: JSON Schema under `input_schema`, without alternatives at its top.

use super::plain::{self, ANTHROPIC};
use super::projection::Projected;
use crate::json;
use crate::tool::Tool;

/// Whether a tool is loaded with the request or found by the provider's own search.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Loading {
    Now,
    Deferred,
}

pub(super) fn project(name: &str, tool: &Tool, loading: Loading) -> Projected {
    let (schema, losses) = plain::schema(&tool.face.input_schema, &ANTHROPIC);
    let schema = match schema {
        Ok(schema) => schema,
        Err(unfit) => return Projected { text: None, losses, set_aside: Some(unfit.to_string()) },
    };
    let mut text = String::with_capacity(schema.len() + tool.face.description.len() + 128);
    text.push_str("{\"name\":");
    json::push_string(name, &mut text);
    text.push_str(",\"description\":");
    json::push_string(&tool.face.description, &mut text);
    text.push_str(",\"input_schema\":");
    text.push_str(&schema);
    text.push_str(match loading {
        Loading::Now => "}",
        Loading::Deferred => ",\"defer_loading\":true}",
    });
    Projected { text: Some(text), losses, set_aside: None }
}
