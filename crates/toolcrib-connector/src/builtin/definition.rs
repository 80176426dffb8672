//! Definition of a built-in tool: all that is listed about it, checked when it is created.
//!
//! Built-in tools have no prefix, so their names must not look like prefixed ones and must not take those of the meta
//! tools.

use serde_json::{Value, json};
use toolcrib_core::policy::Verdict;
use toolcrib_core::text::sanitize_truncated;
use toolcrib_core::{Code, Error, Result};

/// Everything about a tool but its handler. Built with the methods named after its fields.
#[derive(Debug, Clone, PartialEq)]
#[must_use = "a tool exists once it is registered"]
pub struct BuiltinDefinition {
    /// Name in snake_case, without source prefix.
    pub name: String,
    /// Display name for people.
    pub title: Option<String>,
    /// Purpose and usage, for models.
    pub description: String,
    /// JSON Schema of the arguments; always of type `object`.
    pub input_schema: Value,
    /// JSON Schema of the structured output.
    pub output_schema: Option<Value>,
    /// MCP tool annotations such as `readOnlyHint`.
    pub annotations: Value,
    /// Verdict if no policy rule applies.
    pub verdict: Verdict,
    /// Callable, but not listed.
    pub internal: bool,
    /// Labels for search and groups.
    pub tags: Vec<String>,
}

/// Maximum length of a tool name that agents accept; the limit of OpenAI and Anthropic.
const MAX_NAME_LEN: usize = 64;
/// Names of Toolcrib's own meta tools.
const RESERVED_NAMES: [&str; 3] = ["search_tools", "describe_tools", "call_tool"];

impl BuiltinDefinition {
    /// Creates a tool that is allowed and listed. The name must be snake_case without `__`, which separates the prefix
    /// of a source.
    pub fn new(
        name: impl Into<String>,
        description: impl Into<String>,
        input_schema: Value,
    ) -> Result<BuiltinDefinition> {
        let name = name.into();
        let description = description.into();
        let reject = |reason: &str| {
            Err(Error::new(
                Code::ConfigInvalid,
                format!("`{}` cannot be a built-in tool: {reason}", sanitize_truncated(&name, 120)),
            ))
        };
        if !is_snake_case(&name) {
            return reject("its name must be snake_case (a-z, 0-9, single `_` between words)");
        }
        if name.len() > MAX_NAME_LEN {
            return reject("its name is longer than 64 characters");
        }
        if RESERVED_NAMES.contains(&name.as_str()) {
            return reject("that name is reserved");
        }
        if input_schema.get("type").and_then(Value::as_str) != Some("object") {
            return reject("its input schema must have `\"type\": \"object\"`");
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

    /// Sets the display name.
    pub fn title(self, title: impl Into<String>) -> Self {
        Self { title: Some(title.into()), ..self }
    }

    /// Sets the schema of the structured output.
    pub fn output_schema(self, schema: Value) -> Self {
        Self { output_schema: Some(schema), ..self }
    }

    /// Replaces the MCP annotations.
    pub fn annotations(self, annotations: Value) -> Self {
        Self { annotations, ..self }
    }

    /// Sets the default verdict.
    pub fn verdict(self, verdict: Verdict) -> Self {
        Self { verdict, ..self }
    }

    /// Hides the tool from lists.
    pub fn internal(self) -> Self {
        Self { internal: true, ..self }
    }

    /// Sets the tags, for search and groups.
    pub fn tags<T: Into<String>>(self, tags: impl IntoIterator<Item = T>) -> Self {
        Self { tags: tags.into_iter().map(Into::into).collect(), ..self }
    }

    /// Annotations of a tool that modifies nothing.
    pub fn read_only(self) -> Self {
        self.annotations(json!({ "readOnlyHint": true, "idempotentHint": true, "openWorldHint": false }))
    }

    /// Annotations and verdict of a tool that modifies its environment.
    pub fn mutating(self) -> Self {
        self.annotations(json!({ "readOnlyHint": false, "destructiveHint": true, "openWorldHint": false }))
            .verdict(Verdict::Ask)
    }
}

/// Whether a name consists of lower-case words with single underscores in between.
fn is_snake_case(name: &str) -> bool {
    let is_word =
        |word: &str| !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
    name.split('_').all(is_word)
}
