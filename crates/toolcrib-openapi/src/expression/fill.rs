//! Templates with expressions. A text that is a single expression becomes its value; `{$…}` inside a text is replaced
//! by the value as text.
//!
//! ```text
//! "$response.body#/id"        -> 5          the value, with its type
//! "{$response.body#/id}"      -> "5"        text
//! "/jobs/{$response.body#/id}/cancel" -> "/jobs/5/cancel"
//! "costs $5"                  -> unchanged  `$5` is no expression
//! ```
//!
//! A missing value is an error and never an empty text, because the request would have another meaning.

use serde_json::Value;
use toolcrib_core::error::{Code, Error, Result};
use toolcrib_core::json::plain_text;

use super::{Scope, is_expression, resolve};

/// Fills all texts in a payload. Names of properties are not templates.
pub fn fill_value(value: &Value, scope: &Scope<'_>) -> Result<Value> {
    fill_within(value, scope, &mut FillBudget::default())
}

/// Like [`fill_value`], with a budget that several values of one request share.
pub fn fill_within(value: &Value, scope: &Scope<'_>, budget: &mut FillBudget) -> Result<Value> {
    fill_nested(value, scope, budget, 0)
}

/// Maximum size of the filled values of one request in bytes: a template can refer to the same large response many
/// times.
const MAX_FILLED_BYTES: usize = 16 * 1024 * 1024;
/// Maximum nesting of a payload. Bounds the recursion; a deeper one is an error.
const MAX_PAYLOAD_DEPTH: usize = 64;

/// Remaining bytes for filled values.
#[derive(Debug)]
pub struct FillBudget(usize);

impl Default for FillBudget {
    fn default() -> FillBudget {
        FillBudget(MAX_FILLED_BYTES)
    }
}

impl FillBudget {
    /// Takes bytes from the budget; fails if too few are left.
    fn spend(&mut self, bytes: usize) -> Result<()> {
        let message = || format!("the values of its expressions exceed {MAX_FILLED_BYTES} bytes");
        self.0 = self.0.checked_sub(bytes).ok_or_else(|| Error::new(Code::ToolExecutionFailed, message()))?;
        Ok(())
    }
}

/// Fills all texts of a value recursively.
fn fill_nested(value: &Value, scope: &Scope<'_>, budget: &mut FillBudget, depth: usize) -> Result<Value> {
    if depth > MAX_PAYLOAD_DEPTH {
        let message = format!("the payload is nested deeper than {MAX_PAYLOAD_DEPTH} levels");
        return Err(Error::new(Code::ToolExecutionFailed, message));
    }
    match value {
        Value::String(text) => fill_text(text, scope, budget),
        Value::Array(items) => items.iter().map(|item| fill_nested(item, scope, budget, depth + 1)).collect(),
        Value::Object(object) => object
            .iter()
            .map(|(name, value)| Ok((name.clone(), fill_nested(value, scope, budget, depth + 1)?)))
            .collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) => Ok(value.clone()),
    }
}

/// Fills one text. A single expression keeps the type of its value; otherwise the result is a string.
fn fill_text(text: &str, scope: &Scope<'_>, budget: &mut FillBudget) -> Result<Value> {
    if is_expression(text) {
        let value = resolve(text, scope)?;
        // Charged before the value is copied.
        budget.spend(approximate_size(&value))?;
        return Ok(value.into_owned());
    }
    let mut filled = String::new();
    let mut rest = text;
    while let Some(start) = rest.find("{$") {
        // An unclosed brace is plain text.
        let Some(length) = rest[start..].find('}') else { break };
        filled.push_str(&rest[..start]);
        let value = resolve(&rest[start + 1..start + length], scope)?;
        budget.spend(approximate_size(&value))?;
        filled.push_str(&plain_text(&value));
        rest = &rest[start + length + 1..];
    }
    budget.spend(rest.len())?;
    filled.push_str(rest);
    Ok(Value::String(filled))
}

/// Estimates the memory of a value in bytes. Names and texts count by their length, and each value with eight bytes.
pub fn approximate_size(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 8,
        Value::String(text) => text.len() + 8,
        Value::Array(items) => 8 + items.iter().map(approximate_size).sum::<usize>(),
        Value::Object(object) => {
            8 + object.iter().map(|(name, value)| name.len() + 8 + approximate_size(value)).sum::<usize>()
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::expression::ResponseScope;

    fn fill_template(value: &Value) -> Result<Value, String> {
        let body = json!({"id": 5, "tags": ["a"], "name": "rex"});
        let headers = [("Location".to_owned(), "/jobs/5".to_owned())];
        let inputs = json!({"large": "x".repeat(1024 * 1024)});
        let scope = Scope {
            response: Some(ResponseScope { status: 200, headers: &headers, body: Some(&body) }),
            inputs: Some(&inputs),
            ..Scope::default()
        };
        fill_value(value, &scope).map_err(|error| error.message)
    }

    #[test]
    fn a_single_expression_keeps_its_type_and_one_in_braces_becomes_text() {
        for (template, expected) in [
            (json!("$response.body#/id"), json!(5)),
            (json!("{$response.body#/id}"), json!("5")),
            (json!("/jobs/{$response.body#/id}/of/{$response.body#/name}"), json!("/jobs/5/of/rex")),
            (json!("{$response.header.location}"), json!("/jobs/5")),
            (json!("tags {$response.body#/tags}!"), json!(r#"tags ["a"]!"#)),
            (json!("{\"id\": \"{$response.body#/id}\"}"), json!("{\"id\": \"5\"}")),
            (json!("plain {text} and $5 and {$open"), json!("plain {text} and $5 and {$open")),
            (json!("$5"), json!("$5")),
            (
                json!({"a": ["$response.body#/tags", 1, null], "$inputs": true}),
                json!({"a": [["a"], 1, null], "$inputs": true}),
            ),
        ] {
            assert_eq!(fill_template(&template), Ok(expected), "{template}");
        }
    }

    #[test]
    fn unresolvable_and_oversized_templates_are_rejected() {
        let deep = (0..80).fold(json!(1), |inner, _| json!([inner]));
        let many: Vec<&str> = vec!["$inputs.large"; 20];
        for (template, message) in [
            (
                json!("a {$response.body#/x}"),
                "the expression `$response.body#/x` cannot be resolved: there is no value at `/x`",
            ),
            (
                json!("{$respnse.body#/id}"),
                "the expression `$respnse.body#/id` cannot be resolved: it is not a known expression",
            ),
            (deep, "the payload is nested deeper than 64 levels"),
            (json!(many), "the values of its expressions exceed 16777216 bytes"),
            (json!("{$inputs.large}".repeat(20)), "the values of its expressions exceed 16777216 bytes"),
        ] {
            assert_eq!(fill_template(&template), Err(message.to_owned()));
        }
    }
}
