//! Builds headers and cookies. Rejects a value that would end its line or begin another cookie. Values are checked here
//! although the HTTP client checks them too, so that the error names the argument.

use serde_json::{Map, Value};
use toolcrib_core::error::Result;
use toolcrib_core::execution::{Operation, OperationParameter, ParameterLocation, ParameterStyle, Serialization};

use super::escape::{self, EscapeMode};
use super::style::ValueWriter;
use super::{argument_value, invalid_argument, media_type, require_nonempty, serialize_as};

/// Headers that the HTTP client sets. Neither documents nor agents can override them. Among them are those that
/// separate requests on a connection, which must not be forged.
const CONNECTION_HEADERS: [&str; 11] = [
    "connection",
    "content-length",
    "expect",
    "host",
    "keep-alive",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Maximum number of media types in `Accept`.
const MAX_ACCEPTED_TYPES: usize = 5;

/// Maximum size of the value of one header or cookie parameter; servers accept no more.
const MAX_HEADER_BYTES: usize = 65_534;

/// Builds `Accept` and the header parameters.
pub(super) fn build_headers(operation: &Operation, arguments: &Map<String, Value>) -> Result<Vec<(String, String)>> {
    let mut headers = Vec::new();
    for parameter in operation.parameters.iter().filter(|parameter| parameter.location == ParameterLocation::Header) {
        // Absent optional parameters send no header.
        let Some(value) = argument_value(parameter, arguments)? else { continue };
        // Dropped without an error: the document is wrong, not the caller.
        if is_connection_header(&parameter.name) {
            continue;
        }
        // An invalid name could inject another header.
        if !media_type::is_token(&parameter.name) {
            return Err(invalid_argument(
                &parameter.argument,
                "is sent in a header with an invalid name; leave it out",
            ));
        }
        if let Some(text) = header_value(parameter, value)? {
            headers.push((parameter.name.clone(), check_header_value(&parameter.argument, text)?));
        }
    }
    // Only a workflow step sends its own; documents cannot declare it.
    if !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("accept")) {
        headers.insert(0, ("Accept".to_owned(), accept_header(&operation.accept)));
    }
    Ok(headers)
}

/// Returns whether the HTTP client sets a header.
pub(crate) fn is_connection_header(name: &str) -> bool {
    CONNECTION_HEADERS.contains(&name.to_ascii_lowercase().as_str())
}

/// Lists JSON types first, which agents read best, and any other type last.
pub(crate) fn accept_header(media_types: &[String]) -> String {
    // Media types come from the document; an invalid one could end the header line.
    let valid = media_types.iter().filter(|media_type| media_type::is_valid(media_type) && !media_type.contains(','));
    let (mut accepted, others): (Vec<&str>, Vec<&str>) =
        valid.map(String::as_str).filter(|media_type| *media_type != "*/*").partition(|name| media_type::is_json(name));
    accepted.extend(others);
    if accepted.is_empty() {
        accepted.push("application/json");
    }
    accepted.truncate(MAX_ACCEPTED_TYPES);
    // Servers that produce none of these may still answer.
    accepted.push("*/*;q=0.1");
    accepted.join(", ")
}

/// Serialises a value for a header, where the specification encodes nothing. A required value that is undefined is
/// empty.
fn header_value(parameter: &OperationParameter, value: &Value) -> Result<Option<String>> {
    Ok(match &parameter.serialization {
        Serialization::Style { style, explode, .. } => {
            // Headers only know the simple style, besides the delimiters of Swagger 2.0.
            let style = match style {
                ParameterStyle::SpaceDelimited | ParameterStyle::PipeDelimited | ParameterStyle::TabDelimited => *style,
                ParameterStyle::Simple
                | ParameterStyle::Label
                | ParameterStyle::Matrix
                | ParameterStyle::Form
                | ParameterStyle::DeepObject
                | ParameterStyle::Cookie => ParameterStyle::Simple,
            };
            let text = ValueWriter::new(parameter, style, *explode, EscapeMode::Unescaped, MAX_HEADER_BYTES)
                .write_text(value)?;
            text.or_else(|| parameter.required.then(String::new))
        }
        // Header values are not percent-encoded; `check_header_value` rejects what cannot be sent.
        Serialization::Content { media_type } => Some(serialize_as(value, media_type)),
    })
}

/// Builds the cookie parameters.
pub(super) fn build_cookies(operation: &Operation, arguments: &Map<String, Value>) -> Result<Vec<(String, String)>> {
    let mut cookies = Vec::new();
    for parameter in operation.parameters.iter().filter(|parameter| parameter.location == ParameterLocation::Cookie) {
        let Some(value) = argument_value(parameter, arguments)? else { continue };
        match &parameter.serialization {
            // A required parameter that is `null` is sent without a value.
            Serialization::Style { .. } if value.is_null() => {
                cookies.push((EscapeMode::Unreserved.encode_name(&parameter.name), String::new()));
            }
            // The style `cookie` sends values as they are.
            Serialization::Style { style: ParameterStyle::Cookie, explode, .. } => {
                // Unescaped values are checked one by one below.
                let pairs = ValueWriter::new(
                    parameter,
                    ParameterStyle::Cookie,
                    *explode,
                    EscapeMode::Unescaped,
                    MAX_HEADER_BYTES,
                )
                .write_pairs(value)?;
                for (name, value) in require_nonempty(&parameter.argument, parameter.required, pairs)? {
                    cookies.push(check_cookie(&parameter.argument, name, value)?);
                }
            }
            Serialization::Style { style, explode, allow_reserved } => {
                // Other styles percent-encode.
                let escape = if *allow_reserved { escape::RESERVED_IN_COOKIE } else { EscapeMode::Unreserved };
                let pairs =
                    ValueWriter::new(parameter, *style, *explode, escape, MAX_HEADER_BYTES).write_pairs(value)?;
                cookies.extend(require_nonempty(&parameter.argument, parameter.required, pairs)?);
            }
            Serialization::Content { media_type } => {
                // JSON contains quotes and commas, which a cookie must not have.
                let text = EscapeMode::Unreserved.encode_value(&serialize_as(value, media_type));
                cookies.push((EscapeMode::Unreserved.encode_name(&parameter.name), text));
            }
        }
    }
    Ok(cookies)
}

/// Rejects control characters, and white space at the ends, which servers trim.
fn check_header_value(argument: &str, text: String) -> Result<String> {
    if text.chars().any(|character| character.is_control() && character != '\t') {
        return Err(invalid_argument(
            argument,
            "is sent in a header and must not have line breaks or other control characters",
        ));
    }
    if text.starts_with([' ', '\t']) || text.ends_with([' ', '\t']) {
        return Err(invalid_argument(
            argument,
            "is sent in a header and must not begin or end with a space, which servers trim",
        ));
    }
    Ok(text)
}

/// Rejects names and values that would not be one cookie. The style `cookie` encodes nothing.
fn check_cookie(argument: &str, name: String, value: String) -> Result<(String, String)> {
    if !media_type::is_token(&name) {
        return Err(invalid_argument(argument, "is sent in a cookie with an invalid name"));
    }
    if value.chars().any(|character| character.is_control() || character == ';') {
        return Err(invalid_argument(
            argument,
            "is sent in a cookie and must not have `;` or control characters; encode them first",
        ));
    }
    Ok((name, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accept_lists_json_first_and_any_type_last() {
        let cases: [(&[&str], &str); 5] = [
            (&[], "application/json, */*;q=0.1"),
            (&["*/*"], "application/json, */*;q=0.1"),
            (&["text/csv"], "text/csv, */*;q=0.1"),
            (&["text/csv", "application/problem+json"], "application/problem+json, text/csv, */*;q=0.1"),
            (&["a/b\r\nX-Evil: 1", "a/1", "a/2", "a/3", "a/4", "a/5", "a/6"], "a/1, a/2, a/3, a/4, a/5, */*;q=0.1"),
        ];
        for (media_types, expected) in cases {
            let media_types: Vec<String> = media_types.iter().map(ToString::to_string).collect();
            assert_eq!(accept_header(&media_types), expected);
        }
    }
}
