//! Output of a built-in tool, in the form of an MCP `CallToolResult`.
//!
//! A tool that ran and failed returns an output with `isError`; an [`Error`](toolcrib_core::Error) is for calls that
//! could not be executed.

use serde::Serialize;
use serde_json::{Value, json};

/// Content blocks, structured content and error flag of one call.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BuiltinOutput {
    /// MCP content blocks.
    pub content: Vec<Value>,
    /// JSON that conforms to the tool's output schema.
    #[serde(rename = "structuredContent", skip_serializing_if = "Option::is_none")]
    pub structured: Option<Value>,
    /// The tool ran and reports a failure itself.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_error: bool,
}

impl BuiltinOutput {
    /// Output with one text block.
    pub fn text(text: impl Into<String>) -> BuiltinOutput {
        BuiltinOutput { content: vec![text_block(text)], ..BuiltinOutput::default() }
    }

    /// Structured content, repeated as text for clients that read only content blocks.
    pub fn json(value: Value) -> BuiltinOutput {
        BuiltinOutput { content: vec![text_block(value.to_string())], structured: Some(value), is_error: false }
    }

    /// Failure that the agent should read.
    pub fn error(text: impl Into<String>) -> BuiltinOutput {
        BuiltinOutput { is_error: true, ..BuiltinOutput::text(text) }
    }

    /// Appends a text block.
    pub fn with_text(mut self, text: impl Into<String>) -> BuiltinOutput {
        self.content.push(text_block(text));
        self
    }
}

fn text_block(text: impl Into<String>) -> Value {
    json!({ "type": "text", "text": text.into() })
}
