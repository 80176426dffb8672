//! Builds the HTTP request for a call from an operation and its arguments, by OpenAPI 3.0.4, 3.1.1 and 3.2 and RFC
//! 6570.
//!
//! Arguments come from agents and are not trusted: no value can affect another part of the request than the one the
//! document assigns to it. Adding credentials and sending are left to the connector.
//!
//! [`prepare`] is pure: the same operation and arguments give the same bytes, apart from the multipart boundary, which
//! the caller draws. The modules follow the parts of a request; `style` serialises values for all of them, and `escape`
//! decides which characters stay.

mod target_url;

mod headers;

mod body;
mod multipart;
mod urlencoded;

mod escape;
pub mod media_type;
mod style;

#[cfg(test)]
mod tests;

use serde_json::{Map, Number, Value};
use toolcrib_core::error::{Code, Error, Result};
use toolcrib_core::execution::{Operation, OperationParameter};
use toolcrib_core::json::{plain_text, to_exact_string};

#[cfg(feature = "http")]
pub(crate) use body::content_type as body_content_type;
#[cfg(feature = "http")]
pub(crate) use headers::{accept_header, is_connection_header};
pub use target_url::is_dot_segment;

/// The request as it goes on the wire, without credentials.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PreparedRequest {
    pub method: String,
    /// Absolute and percent-encoded; parsing it does not change its meaning. At most 65,534 bytes.
    pub url: String,
    /// Names and values contain no line breaks or other control characters. Values may contain non-ASCII characters, to
    /// be sent as UTF-8: the specification passes header values unchanged.
    pub headers: Vec<(String, String)>,
    /// For one `Cookie` header, in this order, joined by `; `.
    pub cookies: Vec<(String, String)>,
    pub body: Option<PreparedBody>,
}

/// Body of a request and its media type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PreparedBody {
    pub content_type: String,
    /// Content as it is sent.
    pub bytes: Vec<u8>,
}

/// Builds the request of a call. `base` is the URL that the path is appended to; `boundary` is a random text that
/// separates the parts of a multipart body. Fails with `TOOL_INVALID_INPUT` if an argument cannot be sent as it is, and
/// with `TOOL_UNAVAILABLE` if `base` is no absolute URL. The boundary must not occur in the content.
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

/// Returns the argument of a parameter. `null` counts as absent for an optional parameter.
fn argument_value<'a>(parameter: &OperationParameter, arguments: &'a Map<String, Value>) -> Result<Option<&'a Value>> {
    match arguments.get(&parameter.argument) {
        Some(Value::Null) | None if !parameter.required => Ok(None),
        Some(value) => Ok(Some(value)),
        None => Err(invalid_argument(&parameter.argument, "is required; give it a value")),
    }
}

/// Returns an error if a required value serialises to nothing: an empty array or object would leave no trace.
fn require_nonempty<T>(argument: &str, required: bool, pieces: Vec<T>) -> Result<Vec<T>> {
    if required && pieces.is_empty() {
        return Err(invalid_argument(
            argument,
            "is required and must not be empty, since an empty value would not be sent",
        ));
    }
    Ok(pieces)
}

/// Renders a value as text: strings unquoted, integers as digits, anything else as JSON.
pub(crate) fn to_plain_text(value: &Value) -> String {
    match value {
        Value::Number(number) => integer_digits(number).unwrap_or_else(|| number.to_string()),
        Value::Null | Value::Bool(_) | Value::String(_) | Value::Array(_) | Value::Object(_) => {
            plain_text(value).into_owned()
        }
    }
}

/// Renders a float without a fraction as digits. JSON Schema accepts `5.0` and `1e3` as integers; parsers of URL
/// parameters accept neither.
fn integer_digits(number: &Number) -> Option<String> {
    let integer = number.as_f64().filter(|float| number.is_f64() && float.fract() == 0.0)?;
    Some(integer.to_string())
}

/// Serialises a value as a media type: JSON for JSON types, else plain text.
fn serialize_as(value: &Value, media_type: &str) -> String {
    if media_type::is_json(media_type) { to_json(value) } else { to_plain_text(value) }
}

/// Renders a value as JSON.
fn to_json(value: &Value) -> String {
    to_exact_string(value).unwrap_or_default()
}

/// Returns the error for an argument that cannot be sent.
fn invalid_argument(argument: &str, reason: &str) -> Error {
    Error::new(Code::ToolInvalidInput, format!("argument `{argument}` {reason}"))
}
