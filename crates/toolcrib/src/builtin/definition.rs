//! What a built-in tool is, as lists show it.

use serde_json::{Value, json};
use toolcrib_core::policy::Verdict;
use toolcrib_core::{Code, Error, Result};

use super::sanitize_for_message;

#[derive(Debug, Clone, PartialEq)]
pub struct BuiltinDefinition {
    pub name: String,
    pub title: Option<String>,
    pub description: String,
    pub input_schema: Value,
    pub output_schema: Option<Value>,
    /// MCP's hints: `readOnlyHint` and its kin.
    pub annotations: Value,
    /// What holds when no rule says otherwise.
    pub verdict: Verdict,
    /// Callable, but in no list.
    pub internal: bool,
    pub tags: Vec<String>,
}

const MAX_NAME_LEN: usize = 64;
const RESERVED_NAMES: [&str; 3] = ["search_tools", "describe_tools", "call_tool"];

impl BuiltinDefinition {
    /// A tool that is allowed and listed. Its name is snake_case without `__`, for that separates a source's prefix.
    pub fn new(
        name: impl Into<String>,
        description: impl Into<String>,
        input_schema: Value,
    ) -> Result<BuiltinDefinition> {
        let name = name.into();
        let description = description.into();
        let refuse = |reason: &str| {
            Err(Error::new(
                Code::ConfigInvalid,
                format!("`{}` cannot be a built-in tool: {reason}", sanitize_for_message(&name)),
            ))
        };
        if !is_snake_case(&name) {
            return refuse("its name must be snake_case (a-z, 0-9, single `_` between words)");
        }
        if name.len() > MAX_NAME_LEN {
            return refuse("its name is longer than 64 characters");
        }
        if RESERVED_NAMES.contains(&name.as_str()) {
            return refuse("that name is reserved");
        }
        if input_schema.get("type").and_then(Value::as_str) != Some("object") {
            return refuse("its input schema must have `\"type\": \"object\"`");
        }
        Ok(BuiltinDefinition {
            name,
            title: None,
            description,
            input_schema,
            output_schema: None,
            annotations: json!({}),
            verdict: Verdict::Allow,
            internal: false,
            tags: Vec::new(),
        })
    }

    pub fn title(self, title: impl Into<String>) -> Self {
        Self { title: Some(title.into()), ..self }
    }

    pub fn output_schema(self, schema: Value) -> Self {
        Self { output_schema: Some(schema), ..self }
    }

    pub fn annotations(self, annotations: Value) -> Self {
        Self { annotations, ..self }
    }

    pub fn verdict(self, verdict: Verdict) -> Self {
        Self { verdict, ..self }
    }

    pub fn internal(self) -> Self {
        Self { internal: true, ..self }
    }

    pub fn tags<T: Into<String>>(self, tags: impl IntoIterator<Item = T>) -> Self {
        Self { tags: tags.into_iter().map(Into::into).collect(), ..self }
    }

    /// Hints of a tool that changes nothing, here or elsewhere.
    pub(super) fn read_only(self) -> Self {
        self.annotations(json!({ "readOnlyHint": true, "idempotentHint": true, "openWorldHint": false }))
    }

    /// Hints and verdict of a tool that changes things.
    pub(super) fn mutating(self) -> Self {
        self.annotations(json!({ "readOnlyHint": false, "destructiveHint": true, "openWorldHint": false }))
            .verdict(Verdict::Ask)
    }
}

fn is_snake_case(name: &str) -> bool {
    let is_word =
        |word: &str| !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
    name.split('_').all(is_word)
}
