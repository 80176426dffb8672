//! From an operation and the arguments of a call to the request that the specification asks for: OpenAPI 3.0.4, 3.1.1
//! and 3.2, and RFC 6570 beneath them. Arguments come from agents and are not trusted: none can leave the place that the
//! document gives it. Credentials, and the sending, are left to others.

mod body;
mod escape;
mod headers;
mod media_type;
mod multipart;
mod style;
mod target_url;
mod urlencoded;

#[cfg(test)]
mod tests;

use serde_json::{Map, Number, Value};

use crate::error::{Code, Error, Result};
use crate::execution::{Operation, OperationParameter};

pub use escape::percent_encode;
pub use target_url::is_dot_segment;

/// The request as it goes on the wire, without credentials.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PreparedRequest {
    pub method: String,
    /// Absolute and percent-encoded: parsing it changes nothing that it means.
    pub url: String,
    /// Names and values are free of line breaks and other control characters. A value may have characters beyond ASCII,
    /// to be sent as UTF-8: the specification wants values of headers passed on unchanged, so they are not encoded here.
    pub headers: Vec<(String, String)>,
    /// For one `Cookie` header, in this order, joined by `; `.
    pub cookies: Vec<(String, String)>,
    pub body: Option<PreparedBody>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PreparedBody {
    pub content_type: String,
    pub bytes: Vec<u8>,
}

/// `base` is the address that the path is appended to, `boundary` a random text that divides the parts of a multipart body.
pub fn prepare(
    operation: &Operation,
    base: &str,
    arguments: &Map<String, Value>,
    boundary: &str,
) -> Result<PreparedRequest> {
    Ok(PreparedRequest {
        method: operation.method.clone(),
        url: target_url::build_url(operation, base, arguments)?,
        headers: headers::build_headers(operation, arguments)?,
        cookies: headers::build_cookies(operation, arguments)?,
        body: body::build_body(operation, arguments, boundary)?,
    })
}

/// What was given for a parameter. Null counts as not given where the parameter may be left out.
fn argument_value<'a>(parameter: &OperationParameter, arguments: &'a Map<String, Value>) -> Result<Option<&'a Value>> {
    match arguments.get(&parameter.argument) {
        Some(Value::Null) | None if !parameter.required => Ok(None),
        Some(value) => Ok(Some(value)),
        None => Err(invalid_argument(&parameter.argument, "is required; give it a value")),
    }
}

/// Whether something came of a value, where something must: an empty list or object would leave no trace.
fn require_nonempty<T>(argument: &str, required: bool, pieces: Vec<T>) -> Result<Vec<T>> {
    if required && pieces.is_empty() {
        return Err(invalid_argument(argument, "is required and must not be empty, for nothing of it would be sent"));
    }
    Ok(pieces)
}

/// A value as text: a string as it is, a whole number in digits alone, anything else as JSON writes it.
fn to_plain_text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Number(number) => integer_digits(number).unwrap_or_else(|| number.to_string()),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => value.to_string(),
    }
}

/// JSON Schema takes `5.0` and `1e3` for integers; who reads integers out of text takes neither.
fn integer_digits(number: &Number) -> Option<String> {
    let whole = number.as_f64().filter(|float| number.is_f64() && float.fract() == 0.0)?;
    Some(whole.to_string())
}

/// The document that a value is in a media type: JSON where it is that, else the plain text.
fn serialize_as(value: &Value, media_type: &str) -> String {
    if media_type::is_json(media_type) { value.to_string() } else { to_plain_text(value) }
}

fn invalid_argument(argument: &str, why: &str) -> Error {
    Error::new(Code::ToolInvalidInput, format!("argument `{argument}` {why}"))
}
