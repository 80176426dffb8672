//! What a browser can check of a field before it is sent: its kind and its ends. It never knows more than the schema, which
//! decides. Patterns are told and not run, for one can be made that keeps a browser busy for ever; how many characters a
//! text has is counted otherwise there.

use maud::{Markup, html};
use serde_json::Value;

#[derive(Debug, Default)]
pub(super) struct InputAttributes {
    /// `email`, `date`: where the format of a text is one that browsers know.
    input_type: Option<&'static str>,
    min: Option<String>,
    max: Option<String>,
    /// Only whole numbers.
    is_integer: bool,
    min_length: Option<u64>,
}

impl InputAttributes {
    pub(super) fn from_schema(schema: &Value, kind: Option<&str>) -> InputAttributes {
        let whole = kind == Some("integer");
        InputAttributes {
            input_type: schema.get("format").and_then(Value::as_str).and_then(input_type_for),
            min: inclusive_bound(schema, "minimum", "exclusiveMinimum", whole.then_some(1)),
            max: inclusive_bound(schema, "maximum", "exclusiveMaximum", whole.then_some(-1)),
            is_integer: whole,
            min_length: schema.get("minLength").and_then(Value::as_u64).filter(|least| *least > 0),
        }
    }

    pub(super) fn is_integer(&self) -> bool {
        self.is_integer
    }

    pub(super) fn render_number(&self, field: &InputField<'_>) -> Markup {
        html! {
            input type="number" name=(field.name) value=(field.text) step=(if self.is_integer { "1" } else { "any" })
                min=[&self.min] max=[&self.max] placeholder=[field.placeholder] autocomplete="off"
                aria-describedby=[field.hint] aria-required=[field.aria_required()];
        }
    }

    pub(super) fn render_text(&self, field: &InputField<'_>) -> Markup {
        // What a browser takes for wrong would not be shown, or could not be sent.
        let fits = field.text.is_empty() || self.input_type.is_some_and(|kind| is_accepted_by(kind, field.text));
        html! {
            input type=(self.input_type.filter(|_| fits).unwrap_or("text")) name=(field.name) value=(field.text)
                minlength=[self.min_length] placeholder=[field.placeholder]
                autocomplete="off" spellcheck="false" aria-describedby=[field.hint] aria-required=[field.aria_required()];
        }
    }
}

/// One input of a form.
#[derive(Debug)]
pub(super) struct InputField<'a> {
    pub(super) name: &'a str,
    pub(super) text: &'a str,
    pub(super) placeholder: Option<&'a str>,
    pub(super) hint: Option<&'a str>,
    pub(super) is_required: bool,
}

impl InputField<'_> {
    /// Not `required`: who gives all arguments as JSON leaves the fields empty.
    pub(super) fn aria_required(&self) -> Option<&'static str> {
        self.is_required.then_some("true")
    }
}

fn input_type_for(format: &str) -> Option<&'static str> {
    match format {
        "email" => Some("email"),
        "uri" | "url" => Some("url"),
        "date" => Some("date"),
        "password" => Some("password"),
        // A time of a browser has no zone, which a schema wants.
        _ => None,
    }
}

fn is_accepted_by(kind: &str, text: &str) -> bool {
    match kind {
        "email" => text.contains('@') && !text.contains(char::is_whitespace),
        "url" => text.contains("://"),
        "date" => text.len() == 10 && text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-'),
        _ => true,
    }
}

/// An end that is left out is known for whole numbers: the next one.
fn inclusive_bound(schema: &Value, inclusive: &str, exclusive: &str, next: Option<i64>) -> Option<String> {
    let (given, beyond) = (schema.get(inclusive).filter(|value| value.is_number()), schema.get(exclusive));
    match (given, beyond) {
        (_, Some(value @ Value::Number(_))) => value.as_i64()?.checked_add(next?).map(|end| end.to_string()),
        (Some(value), Some(Value::Bool(true))) => value.as_i64()?.checked_add(next?).map(|end| end.to_string()),
        (Some(value), _) if next.is_none() || value.is_i64() => Some(value.to_string()),
        // Between two whole numbers no step would lead to one.
        (Some(_), _) => None,
        (None, _) => None,
    }
}
