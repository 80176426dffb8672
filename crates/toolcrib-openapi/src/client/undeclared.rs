//! Parts of a request that a workflow step sends although the operation does not declare them: parts of the query,
//! headers such as an `Authorization` with the token of an earlier step, and another media type for the body.
//!
//! They become parameters of a copy of the operation, so that names and values are checked and encoded like any other.
//! Configured headers and credentials of the source take precedence. Like those, they are sent to the server of the API
//! alone: a redirect to another origin drops them.

use std::borrow::Cow;

use serde_json::{Map, Value};
use toolcrib_connector::UndeclaredParameters;
use toolcrib_connector::secret::SourceReferences;
use toolcrib_core::execution::{Operation, OperationParameter, ParameterLocation, ParameterStyle, Serialization};

use crate::operation::body_encoding;
use crate::request::to_plain_text;

/// Parts of the names of headers and query values that are credentials.
const CREDENTIAL_NAMES: [&str; 6] = ["auth", "token", "key", "secret", "session", "password"];
/// Shorter values are not taken for credentials: masking them would hide ordinary words.
const MIN_CREDENTIAL_LEN: usize = 8;

/// Adds the values to the operation and its arguments, and those that look like credentials to the redactor.
pub(super) fn add_undeclared<'a>(
    undeclared: &UndeclaredParameters,
    operation: &Operation,
    mut arguments: Map<String, Value>,
    references: &SourceReferences,
) -> (Cow<'a, Operation>, Map<String, Value>) {
    let mut operation = operation.clone();
    if let (Some(content_type), Some(body)) = (&undeclared.content_type, &mut operation.body) {
        body.content = body_encoding(content_type);
        body.media_type.clone_from(content_type);
        operation.body_choice = None;
    }
    arguments.extend(undeclared.body.clone());
    let query = undeclared.query.iter().map(|pair| (ParameterLocation::Query, ParameterStyle::Form, pair));
    let headers = undeclared.headers.iter().map(|pair| (ParameterLocation::Header, ParameterStyle::Simple, pair));
    for (location, style, (name, value)) in query.chain(headers) {
        for credential in credentials(name, location, value) {
            references.add_credential(&credential);
        }
        // Without a declared style, an object as a list of its fields would lose its name.
        let serialization = if value.is_object() {
            Serialization::Content { media_type: "application/json".to_owned() }
        } else {
            Serialization::Style { style, explode: true, allow_reserved: false }
        };
        // No argument of a tool contains a space before a parenthesis.
        let argument = format!("{name} ({})", location.as_str());
        arguments.insert(argument.clone(), value.clone());
        operation.parameters.push(OperationParameter {
            argument,
            name: name.clone(),
            location,
            required: false,
            serialization,
        });
    }
    (Cow::Owned(operation), arguments)
}

/// The secret parts of a value, if its name says that it has some: without the scheme of `Bearer TOKEN`, and without the
/// names of cookies.
fn credentials(name: &str, location: ParameterLocation, value: &Value) -> Vec<String> {
    let name = name.to_ascii_lowercase();
    let is_cookie = location == ParameterLocation::Header && name == "cookie";
    let is_credential = is_cookie || CREDENTIAL_NAMES.iter().any(|part| name.contains(part));
    if !is_credential || !matches!(value, Value::String(_) | Value::Number(_)) {
        return Vec::new();
    }
    // As it is sent.
    let text = to_plain_text(value);
    let secrets: Vec<&str> = if is_cookie {
        text.split(';').filter_map(|pair| Some(pair.split_once('=')?.1.trim())).collect()
    } else {
        text.rsplit(' ').take(1).collect()
    };
    secrets.into_iter().filter(|secret| secret.len() >= MIN_CREDENTIAL_LEN).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use toolcrib_core::json::parse_integer;

    use super::*;

    #[test]
    fn credentials_are_recognized_as_they_are_sent() {
        let long = "123456789012345678901234567890";
        let cases: [(&str, Value, &[&str]); 8] = [
            ("Authorization", json!("Bearer s3cret-token"), &["s3cret-token"]),
            ("session_token", json!(1_234_567_890), &["1234567890"]),
            ("session_token", json!(1e9), &["1000000000"]),
            ("X-Api-Key", parse_integer(long).unwrap(), &[long]),
            ("X-Api-Key", json!(1234), &[]),
            ("X-Api-Key", json!([1_234_567_890]), &[]),
            ("page", json!(1_234_567_890), &[]),
            ("Cookie", json!("sid=s3cret==; lang=en;id=0123456789"), &["s3cret==", "0123456789"]),
        ];
        for (name, value, expected) in cases {
            assert_eq!(credentials(name, ParameterLocation::Header, &value), expected, "{name} {value}");
        }
        let cookies = credentials("cookie", ParameterLocation::Query, &json!("sid=0123456789"));
        assert!(cookies.is_empty(), "a query has no cookies: {cookies:?}");
    }
}
