//! What a built-in tool answers, in the shape of an MCP result.

use serde::Serialize;
use serde_json::{Value, json};

#[derive(Debug, Clone, PartialEq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Answer {
    /// MCP content blocks.
    pub content: Vec<Value>,
    #[serde(rename = "structuredContent", skip_serializing_if = "Option::is_none")]
    pub structured: Option<Value>,
    /// The tool ran and reports a failure of its own.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_error: bool,
}

impl Answer {
    pub fn text(text: impl Into<String>) -> Answer {
        Answer { content: vec![block(text)], ..Answer::default() }
    }

    /// Structured content, which is also its text: older clients read only that.
    pub fn json(value: Value) -> Answer {
        Answer { content: vec![block(value.to_string())], structured: Some(value), is_error: false }
    }

    /// A failure the agent should read.
    pub fn failed(text: impl Into<String>) -> Answer {
        Answer { is_error: true, ..Answer::text(text) }
    }

    /// One more text, after the others.
    pub fn and(mut self, text: impl Into<String>) -> Answer {
        self.content.push(block(text));
        self
    }
}

fn block(text: impl Into<String>) -> Value {
    json!({ "type": "text", "text": text.into() })
}
