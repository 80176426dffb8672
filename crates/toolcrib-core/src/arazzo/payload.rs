//! The body of a step's request: what the document has as its template, and what comes of it.
//! A template that is text in a format we know is taken apart first, so that a value with quotes or `&` in it stays one
//! value.

use std::collections::HashSet;

use serde_json::{Map, Value};

use crate::error::{Code, Error, Result};
use crate::expression::{FillBudget, Scope, fill_within};
use crate::text::sanitize_truncated;

#[derive(Debug, Clone, Default)]
pub struct RequestBodyTemplate {
    pub content_type: Option<String>,
    pub payload: Option<Value>,
    /// Pointers into the payload, and what stands there.
    pub replacements: Vec<(String, Value)>,
}

impl RequestBodyTemplate {
    pub(super) fn parse(value: &Value) -> Result<RequestBodyTemplate, String> {
        let content_type = value.get("contentType").and_then(Value::as_str).map(str::to_owned);
        let kind = content_type.as_deref().unwrap_or_default().to_ascii_lowercase();
        let payload = value.get("payload").map(|payload| parse_payload(payload, &kind));
        let mut replacements = Vec::new();
        for replacement in value.get("replacements").and_then(Value::as_array).into_iter().flatten() {
            let target = replacement.get("target").and_then(Value::as_str).ok_or("a replacement has no `target`")?;
            let pointer = target.strip_prefix('#').unwrap_or(target);
            if kind.contains("xml") || !(pointer.is_empty() || pointer.starts_with('/')) {
                let target = sanitize_truncated(target, 60);
                return Err(format!("the target `{target}` is no JSON pointer; XPath is not supported"));
            }
            let value = replacement.get("value").ok_or("a replacement has no `value`")?;
            replacements.push((pointer.to_owned(), value.clone()));
        }
        Ok(RequestBodyTemplate { content_type, payload, replacements })
    }

    /// Adds a property to what the payload has.
    pub(super) fn set_property(&mut self, name: &str, value: Value) {
        self.replacements.push((format!("/{}", name.replace('~', "~0").replace('/', "~1")), value));
    }

    pub(super) fn fill(&self, scope: &Scope<'_>, absent: &HashSet<String>, room: &mut FillBudget) -> Result<Value> {
        let mut body = match &self.payload {
            Some(payload) => fill_within(&without_absent_inputs(payload, absent, 0), scope, room)?,
            None => Value::Object(Map::new()),
        };
        for (pointer, value) in &self.replacements {
            if !is_absent_input(value, absent) {
                set_at_pointer(&mut body, pointer, fill_within(value, scope, room)?)?;
            }
        }
        Ok(body)
    }
}

/// Whether a value is nothing but an input that was not given and need not be.
pub(super) fn is_absent_input(value: &Value, absent: &HashSet<String>) -> bool {
    let name = value.as_str().and_then(|text| text.trim().strip_prefix("$inputs."));
    name.is_some_and(|name| absent.contains(name))
}

fn without_absent_inputs(value: &Value, absent: &HashSet<String>, depth: usize) -> Value {
    match value {
        // What is deeper is refused where it is filled.
        _ if absent.is_empty() || depth > 64 => value.clone(),
        Value::Object(object) => {
            let kept = object.iter().filter(|(_, value)| !is_absent_input(value, absent));
            kept.map(|(name, value)| (name.clone(), without_absent_inputs(value, absent, depth + 1))).collect()
        }
        Value::Array(items) => {
            let kept = items.iter().filter(|value| !is_absent_input(value, absent));
            kept.map(|value| without_absent_inputs(value, absent, depth + 1)).collect()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.clone(),
    }
}

/// Sets what a pointer names; the last name of an object need not be there yet.
fn set_at_pointer(body: &mut Value, pointer: &str, value: Value) -> Result<()> {
    if let Some(place) = body.pointer_mut(pointer) {
        *place = value;
        return Ok(());
    }
    let parent = pointer.rsplit_once('/').and_then(|(parent, name)| Some((body.pointer_mut(parent)?, name)));
    match parent {
        Some((Value::Object(object), name)) => {
            object.insert(name.replace("~1", "/").replace("~0", "~"), value);
        }
        Some((Value::Array(items), "-")) => items.push(value),
        Some(_) | None => {
            let message = format!("the payload has no place `{}` for a replacement", sanitize_truncated(pointer, 100));
            return Err(Error::new(Code::ToolExecutionFailed, message));
        }
    }
    Ok(())
}

/// A text in JSON or in the form of a query becomes the value it stands for, with the expressions still in it.
fn parse_payload(payload: &Value, kind: &str) -> Value {
    let Value::String(text) = payload else { return payload.clone() };
    let parsed = if kind.contains("x-www-form-urlencoded") {
        Some(parse_form(text)).filter(|_| text.contains('='))
    } else if kind.contains("json") || (kind.is_empty() && text.trim_start().starts_with(['{', '['])) {
        serde_json::from_str(&quote_expressions(text)).ok()
    } else {
        None
    };
    parsed.unwrap_or_else(|| payload.clone())
}

/// `{"count": {$inputs.count}}` is no JSON; with the expression as a text of its own it is, and means the same.
fn quote_expressions(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len());
    let (mut in_string, mut escaped) = (false, false);
    let mut rest = text;
    // Nothing ends after it, so that no end is looked for: there may be as many beginnings as characters.
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

fn parse_form(text: &str) -> Value {
    let mut object = Map::new();
    for pair in text.trim().split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let (name, value) =
            (percent_decode(&name.replace('+', " ")), Value::from(percent_decode(&value.replace('+', " "))));
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

/// Percent-decoded; what is not well-formed stays as it is.
pub(super) fn percent_decode(text: &str) -> String {
    let bytes = text.as_bytes();
    let digit = |at: usize| bytes.get(at).and_then(|&byte| char::from(byte).to_digit(16));
    let mut plain = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        match (byte, digit(at + 1), digit(at + 2)) {
            (b'%', Some(high), Some(low)) => {
                plain.push(u8::try_from(high * 16 + low).unwrap_or_default());
                at += 3;
            }
            _ => {
                plain.push(byte);
                at += 1;
            }
        }
    }
    String::from_utf8(plain).unwrap_or_else(|_| text.to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_payload_is_filled_without_letting_values_out_of_their_place() {
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
            let read = RequestBodyTemplate::parse(&body).unwrap();
            let absent = HashSet::from(["gone".to_owned()]);
            assert_eq!(read.fill(&scope, &absent, &mut FillBudget::default()).unwrap(), expected, "{body}");
        }
    }

    #[test]
    fn expressions_that_never_end_take_one_pass() {
        let text = "{$".repeat(1_000_000);
        let body = RequestBodyTemplate::parse(&json!({"contentType": "application/json", "payload": text})).unwrap();
        assert_eq!(body.payload, Some(json!(text)));
    }

    #[test]
    fn what_fills_a_body_is_bounded_for_all_of_its_parts() {
        let inputs = json!({"large": "x".repeat(1024 * 1024)});
        let scope = Scope { inputs: Some(&inputs), ..Scope::default() };
        let replacement = |n: usize| json!({"target": format!("/p{n}"), "value": "$inputs.large"});
        let replacements: Vec<Value> = (0..200).map(replacement).collect();
        let body = RequestBodyTemplate::parse(&json!({"replacements": replacements})).unwrap();
        let error = body.fill(&scope, &HashSet::new(), &mut FillBudget::default()).unwrap_err();
        assert_eq!(error.message, "the values of its expressions exceed 16777216 bytes");
    }

    #[test]
    fn a_replacement_that_has_no_place_is_an_error() {
        let read =
            |target: &str| RequestBodyTemplate::parse(&json!({"replacements": [{"target": target, "value": 1}]}));
        assert_eq!(
            read("//a")
                .unwrap()
                .fill(&Scope::default(), &HashSet::new(), &mut FillBudget::default())
                .unwrap_err()
                .message,
            "the payload has no place `//a` for a replacement"
        );
        assert_eq!(read("a/b").unwrap_err(), "the target `a/b` is no JSON pointer; XPath is not supported");
    }
}
