//! HTML attributes by which a browser checks a field before it is sent: input type, bounds, step. The schema stays
//! authoritative. `pattern` is not among them, because a hostile one could block the browser; nor is `maxlength`, because
//! browsers count UTF-16 units where JSON Schema counts characters.

use maud::{Markup, html};
use serde_json::Value;

/// Attributes of one input.
#[derive(Debug, Default)]
pub(super) struct InputAttributes {
    /// Input type for the `format` of a text, such as `email` or `date`.
    input_type: Option<&'static str>,
    /// Inclusive bounds of a number, as HTML wants them.
    min: Option<String>,
    max: Option<String>,
    /// True for `integer`, which gets a step of 1.
    is_integer: bool,
    /// Browsers check it only for values that the user has edited.
    min_length: Option<u64>,
}

impl InputAttributes {
    /// Derives the attributes from a schema and its type.
    pub(super) fn from_schema(schema: &Value, type_name: Option<&str>) -> InputAttributes {
        let is_integer = type_name == Some("integer");
        InputAttributes {
            input_type: schema.get("format").and_then(Value::as_str).and_then(input_type_for),
            min: inclusive_bound(schema, "minimum", "exclusiveMinimum", is_integer.then_some(1)),
            max: inclusive_bound(schema, "maximum", "exclusiveMaximum", is_integer.then_some(-1)),
            is_integer,
            min_length: schema.get("minLength").and_then(Value::as_u64).filter(|min| *min > 0),
        }
    }

    pub(super) fn is_integer(&self) -> bool {
        self.is_integer
    }

    /// Renders a number input.
    pub(super) fn render_number(&self, field: &InputField<'_>) -> Markup {
        html! {
            input type="number" name=(field.name) value=(field.text) step=(if self.is_integer { "1" } else { "any" })
                min=[&self.min] max=[&self.max] placeholder=[field.placeholder] autocomplete="off"
                aria-describedby=[field.hint] aria-required=[field.aria_required()];
        }
    }

    /// Renders a text input. Falls back to the plain type for a value that the specific one would hide or refuse to send.
    pub(super) fn render_text(&self, field: &InputField<'_>) -> Markup {
        let is_accepted =
            field.text.is_empty() || self.input_type.is_some_and(|input_type| is_accepted_by(input_type, field.text));
        html! {
            input type=(self.input_type.filter(|_| is_accepted).unwrap_or("text")) name=(field.name) value=(field.text)
                minlength=[self.min_length] placeholder=[field.placeholder]
                autocomplete="off" spellcheck="false" aria-describedby=[field.hint] aria-required=[field.aria_required()];
        }
    }
}

/// Values of one input.
#[derive(Debug)]
pub(super) struct InputField<'a> {
    pub(super) name: &'a str,
    pub(super) text: &'a str,
    pub(super) placeholder: Option<&'a str>,
    /// Id of the element that describes the input.
    pub(super) hint: Option<&'a str>,
    pub(super) is_required: bool,
}

impl InputField<'_> {
    /// Value of `aria-required`. The attribute `required` is not used, because with the JSON field all others stay empty.
    pub(super) fn aria_required(&self) -> Option<&'static str> {
        self.is_required.then_some("true")
    }
}

/// Maps a `format` of JSON Schema to an input type.
fn input_type_for(format: &str) -> Option<&'static str> {
    match format {
        "email" => Some("email"),
        "uri" | "url" => Some("url"),
        "date" => Some("date"),
        "password" => Some("password"),
        // `date-time` needs a time zone, which `datetime-local` does not have.
        _ => None,
    }
}

/// Approximates whether a browser accepts a value for an input type. Too strict is harmless here: the value is then
/// shown in a plain text input.
fn is_accepted_by(input_type: &str, text: &str) -> bool {
    match input_type {
        "email" => text.contains('@') && !text.contains(char::is_whitespace),
        "url" => text.contains("://"),
        "date" => text.len() == 10 && text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-'),
        _ => true,
    }
}

/// Returns a bound as HTML has it, which is always inclusive. An exclusive bound can be expressed for integers only: by the
/// next one, `step` away.
fn inclusive_bound(schema: &Value, inclusive: &str, exclusive: &str, step: Option<i64>) -> Option<String> {
    let inclusive = schema.get(inclusive).filter(|value| value.is_number());
    match (inclusive, schema.get(exclusive)) {
        (_, Some(value @ Value::Number(_))) => value.as_i64()?.checked_add(step?).map(|bound| bound.to_string()),
        // Draft 4: a flag makes the inclusive bound exclusive.
        (Some(value), Some(Value::Bool(true))) => value.as_i64()?.checked_add(step?).map(|bound| bound.to_string()),
        (Some(value), _) if step.is_none() || value.is_i64() => Some(value.to_string()),
        // With a fractional `min`, steps of 1 would never reach an integer.
        (Some(_), _) => None,
        (None, _) => None,
    }
}
