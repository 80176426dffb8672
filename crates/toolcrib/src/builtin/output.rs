//! What a built-in tool answers, in the shape of an MCP result.

use serde::Serialize;
use serde_json::{Value, json};

#[derive(Debug, Clone, PartialEq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BuiltinOutput {
    /// MCP content blocks.
    pub content: Vec<Value>,
    #[serde(rename = "structuredContent", skip_serializing_if = "Option::is_none")]
    pub structured: Option<Value>,
    /// The tool ran and reports a failure of its own.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_error: bool,
}

impl BuiltinOutput {
    pub fn text(text: impl Into<String>) -> BuiltinOutput {
        BuiltinOutput { content: vec![text_block(text)], ..BuiltinOutput::default() }
    }

    /// Structured content, which is also its text: older clients read only that.
    pub fn json(value: Value) -> BuiltinOutput {
        BuiltinOutput { content: vec![text_block(value.to_string())], structured: Some(value), is_error: false }
    }

    /// A failure the agent should read.
    pub fn error(text: impl Into<String>) -> BuiltinOutput {
        BuiltinOutput { is_error: true, ..BuiltinOutput::text(text) }
    }

    /// One more text, after the others.
    pub fn with_text(mut self, text: impl Into<String>) -> BuiltinOutput {
        self.content.push(text_block(text));
        self
    }
}

fn text_block(text: impl Into<String>) -> Value {
    json!({ "type": "text", "text": text.into() })
}
