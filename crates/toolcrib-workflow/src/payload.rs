//! Request bodies of steps: templates, and filling them with values. A template that is JSON or form text is parsed
//! before it is filled, so that a value with quotes or `&` cannot break out of its field.
//!
//! ```text
//! payload "{\"name\": \"<{$inputs.name}>\"}" with name = `a", "admin": "yes`
//! gives   {"name": "<a\", \"admin\": \"yes>"} and no property `admin`
//! ```
//!
//! The result is a JSON value; `openapi::request` serialises it for the media type.

use std::borrow::Cow;
use std::collections::HashSet;

use serde_json::{Map, Value};
use toolcrib_core::error::{Code, Error, Result};
use toolcrib_core::json::{escape_pointer_token, parse_exact, unescape_pointer_token};
use toolcrib_core::percent;
use toolcrib_core::text::sanitize_truncated;
use toolcrib_openapi::expression::{FillBudget, Scope, fill_within};

/// Template of a request body.
#[derive(Debug, Clone, Default)]
pub struct RequestBodyTemplate {
    pub content_type: Option<String>,
    /// Template with runtime expressions; parsed if it is JSON or a form.
    pub payload: Option<Value>,
    /// JSON pointers into the payload, and the templates to put there.
    pub replacements: Vec<(String, Value)>,
}

impl RequestBodyTemplate {
    /// Parses a request body object of a media type. The error is a message for people.
    pub(super) fn parse(value: &Value, content_type: Option<String>) -> Result<RequestBodyTemplate, String> {
        let media_type = content_type.as_deref().unwrap_or_default().to_ascii_lowercase();
        let payload = value.get("payload").map(|payload| parse_payload(payload, &media_type));
        let mut replacements = Vec::new();
        for replacement in value.get("replacements").and_then(Value::as_array).into_iter().flatten() {
            let target = replacement.get("target").and_then(Value::as_str).ok_or("a replacement has no `target`")?;
            let pointer = target.strip_prefix('#').unwrap_or(target);
            // Targets in XML are XPath, which could look like a pointer (`/a/b`).
            if media_type.contains("xml") || !(pointer.is_empty() || pointer.starts_with('/')) {
                let target = sanitize_truncated(target, 60);
                return Err(format!("the target `{target}` is not a JSON pointer; XPath is not supported"));
            }
            let value = replacement.get("value").ok_or("a replacement has no `value`")?;
            replacements.push((pointer.to_owned(), value.clone()));
        }
        Ok(RequestBodyTemplate { content_type, payload, replacements })
    }

    /// Sets a property of the body.
    pub(super) fn set_property(&mut self, name: &str, value: Value) {
        self.replacements.push((format!("/{}", escape_pointer_token(name)), value));
    }

    /// Fills the template. Fields whose whole value is an absent optional input are left out.
    pub(super) fn fill(
        &self,
        scope: &Scope<'_>,
        absent_inputs: &HashSet<String>,
        budget: &mut FillBudget,
    ) -> Result<Value> {
        // Without a payload, replacements and body parameters fill an empty object.
        let mut body = match &self.payload {
            Some(payload) => fill_within(&without_absent_inputs(payload, absent_inputs, 0), scope, budget)?,
            None => Value::Object(Map::new()),
        };
        for (pointer, value) in &self.replacements {
            if !is_absent_input(value, absent_inputs) {
                set_at_pointer(&mut body, pointer, fill_within(value, scope, budget)?)?;
            }
        }
        Ok(body)
    }
}

/// Whether a value is just an expression for an optional input without a value.
pub(super) fn is_absent_input(value: &Value, absent_inputs: &HashSet<String>) -> bool {
    // Only a value that is the expression and nothing else; inside a longer text, an absent input is an error.
    let name = value.as_str().and_then(|text| text.trim().strip_prefix("$inputs."));
    name.is_some_and(|name| absent_inputs.contains(name))
}

/// Copies a value without fields and items that are absent inputs.
fn without_absent_inputs(value: &Value, absent_inputs: &HashSet<String>, depth: usize) -> Value {
    match value {
        // Filling rejects deeper values, so copy them as they are.
        _ if absent_inputs.is_empty() || depth > 64 => value.clone(),
        Value::Object(object) => {
            let remaining = object.iter().filter(|(_, value)| !is_absent_input(value, absent_inputs));
            remaining
                .map(|(name, value)| (name.clone(), without_absent_inputs(value, absent_inputs, depth + 1)))
                .collect()
        }
        Value::Array(items) => {
            let remaining = items.iter().filter(|value| !is_absent_input(value, absent_inputs));
            remaining.map(|value| without_absent_inputs(value, absent_inputs, depth + 1)).collect()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.clone(),
    }
}

/// Sets the value at a pointer; the last property and the end of an array (`-`) need not exist.
fn set_at_pointer(body: &mut Value, pointer: &str, value: Value) -> Result<()> {
    // Existing targets are replaced, also whole objects.
    if let Some(target) = body.pointer_mut(pointer) {
        *target = value;
        return Ok(());
    }
    let parent = pointer.rsplit_once('/').and_then(|(parent, name)| Some((body.pointer_mut(parent)?, name)));
    match parent {
        Some((Value::Object(object), name)) => {
            object.insert(unescape_pointer_token(name), value);
        }
        Some((Value::Array(items), "-")) => items.push(value),
        Some(_) | None => {
            let message = format!("the payload has no target `{}` for a replacement", sanitize_truncated(pointer, 100));
            return Err(Error::new(Code::ToolExecutionFailed, message));
        }
    }
    Ok(())
}

/// Parses a text payload in JSON or form encoding to a value; expressions stay in it as strings. A text that cannot be
/// parsed stays a text.
fn parse_payload(payload: &Value, media_type: &str) -> Value {
    let Value::String(text) = payload else { return payload.clone() };
    // Without a media type, only a text that looks like JSON is parsed.
    let parsed = if media_type.contains("x-www-form-urlencoded") {
        Some(parse_form(text)).filter(|_| text.contains('='))
    } else if media_type.contains("json") || (media_type.is_empty() && text.trim_start().starts_with(['{', '['])) {
        parse_exact(&quote_expressions(text)).ok()
    } else {
        None
    };
    parsed.unwrap_or_else(|| payload.clone())
}

/// Quotes bare expressions: `{"count": {$inputs.count}}` is not JSON, but becomes JSON of the same meaning.
fn quote_expressions(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len());
    // Inside a JSON string, an expression stays as it is and is filled as part of the text.
    let mut in_string = false;
    let mut escaped = false;
    let mut rest = text;
    // Search for a closing brace only before the last one: a text of many `{$` without end would take quadratic time.
    let last_end = text.rfind('}').unwrap_or(0);
    while let Some(character) = rest.chars().next() {
        if !in_string
            && rest.starts_with("{$")
            && text.len() - rest.len() < last_end
            && let Some(end) = rest.find('}')
        {
            quoted.push_str(&Value::from(&rest[1..end]).to_string());
            rest = &rest[end + 1..];
            continue;
        }
        match character {
            _ if escaped => escaped = false,
            '\\' if in_string => escaped = true,
            '"' => in_string = !in_string,
            _ => {}
        }
        quoted.push(character);
        rest = &rest[character.len_utf8()..];
    }
    quoted
}

/// Parses form encoding. A repeated name becomes an array.
fn parse_form(text: &str) -> Value {
    let mut object = Map::new();
    for pair in text.trim().split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let name = decode_or_keep(&name.replace('+', " ")).into_owned();
        let value = Value::from(decode_or_keep(&value.replace('+', " ")));
        // A repeated name becomes an array of its values.
        match object.get_mut(&name) {
            None => {
                object.insert(name, value);
            }
            Some(Value::Array(items)) => items.push(value),
            Some(first) => *first = Value::Array(vec![first.take(), value]),
        }
    }
    Value::Object(object)
}

/// Decodes percent-encoding. Malformed escapes stay as they are, as does a text that is not valid UTF-8 once decoded.
pub(super) fn decode_or_keep(text: &str) -> Cow<'_, str> {
    percent::decode(text).unwrap_or(Cow::Borrowed(text))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_cannot_break_out_of_their_field_in_a_payload() {
        let inputs = json!({"id": 7, "name": "a\", \"admin\": \"yes", "form": "x&admin=1", "list": [1]});
        let scope = Scope { inputs: Some(&inputs), ..Scope::default() };
        for (body, expected) in [
            (
                json!({"payload": {"id": "$inputs.id", "no": "$inputs.gone", "all": ["$inputs.gone", 1]}}),
                json!({"id": 7, "all": [1]}),
            ),
            (
                json!({"contentType": "application/json", "payload": "{\"id\": {$inputs.id}, \"name\": \"<{$inputs.name}>\"}"}),
                json!({"id": 7, "name": "<a\", \"admin\": \"yes>"}),
            ),
            (json!({"payload": "{\"list\": {$inputs.list}}"}), json!({"list": [1]})),
            (json!({"contentType": "application/json", "payload": "$inputs.list"}), json!([1])),
            (json!({"contentType": "application/json", "payload": "{$inputs.list}"}), json!([1])),
            (json!({"contentType": "text/plain", "payload": "n={$inputs.id}"}), json!("n=7")),
            (
                json!({"contentType": "application/x-www-form-urlencoded", "payload": "a={$inputs.form}&b=1%202&b=c+d"}),
                json!({"a": "x&admin=1", "b": ["1 2", "c d"]}),
            ),
            (
                json!({"payload": {"a": [1], "b": 2}, "replacements": [
                    {"target": "/b", "value": "$inputs.id"}, {"target": "/c~1d", "value": 3},
                    {"target": "/a/-", "value": "{$inputs.id}"}, {"target": "/e", "value": "$inputs.gone"}]}),
                json!({"a": [1, "7"], "b": 7, "c/d": 3}),
            ),
        ] {
            let content_type = body["contentType"].as_str().map(str::to_owned);
            let read = RequestBodyTemplate::parse(&body, content_type).unwrap();
            let absent = HashSet::from(["gone".to_owned()]);
            assert_eq!(read.fill(&scope, &absent, &mut FillBudget::default()).unwrap(), expected, "{body}");
        }
    }

    #[test]
    fn unterminated_expressions_take_linear_time() {
        let text = "{$".repeat(1_000_000);
        let body = RequestBodyTemplate::parse(&json!({"payload": text}), Some("application/json".into())).unwrap();
        assert_eq!(body.payload, Some(json!(text)));
    }

    #[test]
    fn all_parts_of_a_body_share_a_budget() {
        let inputs = json!({"large": "x".repeat(1024 * 1024)});
        let scope = Scope { inputs: Some(&inputs), ..Scope::default() };
        let replacement = |n: usize| json!({"target": format!("/p{n}"), "value": "$inputs.large"});
        let replacements: Vec<Value> = (0..200).map(replacement).collect();
        let body = RequestBodyTemplate::parse(&json!({"replacements": replacements}), None).unwrap();
        let error = body.fill(&scope, &HashSet::new(), &mut FillBudget::default()).unwrap_err();
        assert_eq!(error.message, "the values of its expressions exceed 16777216 bytes");
    }

    #[test]
    fn a_replacement_without_target_is_an_error() {
        let read =
            |target: &str| RequestBodyTemplate::parse(&json!({"replacements": [{"target": target, "value": 1}]}), None);
        assert_eq!(
            read("//a")
                .unwrap()
                .fill(&Scope::default(), &HashSet::new(), &mut FillBudget::default())
                .unwrap_err()
                .message,
            "the payload has no target `//a` for a replacement"
        );
        assert_eq!(read("a/b").unwrap_err(), "the target `a/b` is not a JSON pointer; XPath is not supported");
    }
}
