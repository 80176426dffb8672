//! Builds the URL: base, path with filled templates, and query. A filled value stays within its path segment or query
//! parameter, and never leads to a parent directory.
//!
//! URL libraries and servers resolve `..` in a path, so an argument `../admin` would reach another endpoint. Each
//! value is percent-encoded, and a value that is or becomes a dot segment is rejected, also after one or two further
//! decodings by proxies and servers.

use serde_json::{Map, Value};
use toolcrib_core::error::{Code, Error, Result};
use toolcrib_core::execution::{Operation, OperationParameter, ParameterLocation, Serialization};
use toolcrib_core::json::long_integer;
use toolcrib_core::percent;

use super::escape::{self, EscapeMode};
use super::style::ValueWriter;
use super::{argument_value, invalid_argument, media_type, require_nonempty, serialize_as, to_plain_text, urlencoded};

/// Maximum length of a URL that the HTTP library accepts. A longer one is an error that names the length.
const MAX_REQUEST_URL_LEN: usize = 65_534;

/// Builds the URL of a request.
pub(super) fn build_url(operation: &Operation, base: &str, arguments: &Map<String, Value>) -> Result<String> {
    let base = BaseUrl::parse(base)?;
    // Some documents add a fragment to a path to define two operations for it; it is not sent.
    let (path, _) = split_outside_braces(&operation.path, '#');
    let (path, path_query) = split_outside_braces(path, '?');

    // The query consists of the one of the base URL, the one of the path, and the query parameters.
    let mut query: Vec<String> = Vec::new();
    query.extend(base.query.map(|query| escape::LITERAL.encode_value(query)));
    if let Some(template) = path_query {
        query.extend(fill_path_query(template, operation, arguments)?);
    }
    for parameter in &operation.parameters {
        query.extend(query_pairs(parameter, arguments)?);
    }
    query.retain(|piece| !piece.is_empty());

    // Origin and path of the base come from configuration or document; only what follows depends on arguments.
    let mut url = base.origin.to_owned();
    url.push_str(&escape::LITERAL.encode_value(base.path));
    if !path.is_empty() && !path.starts_with('/') {
        url.push('/');
    }
    url.push_str(&fill_path(path, operation, arguments)?);
    if !query.is_empty() {
        url.push('?');
        url.push_str(&query.join("&"));
    }
    if url.len() > MAX_REQUEST_URL_LEN {
        let message = format!(
            "the URL of the request would have {} bytes, more than {MAX_REQUEST_URL_LEN}; shorten the arguments",
            url.len()
        );
        return Err(Error::new(Code::ToolInvalidInput, message));
    }
    Ok(url)
}

/// The URL that a path is appended to, split into parts.
struct BaseUrl<'a> {
    /// Scheme, host and port.
    origin: &'a str,
    /// Without a trailing slash.
    path: &'a str,
    query: Option<&'a str>,
}

impl<'a> BaseUrl<'a> {
    /// Splits an absolute URL. Drops its fragment.
    fn parse(base: &'a str) -> Result<BaseUrl<'a>> {
        // Split by hand, because a URL library would normalise dot segments and encode the path again.
        let base = base.split('#').next().unwrap_or_default();
        // Only an absolute URL can be sent to.
        let authority = match base.find("://") {
            Some(scheme) if scheme > 0 && !base[scheme + 3..].is_empty() => scheme + 3,
            Some(_) | None => {
                let message = "there is no server URL to send the request to; set `base_url` on the source";
                return Err(Error::new(Code::ToolUnavailable, message).with_retryable(false));
            }
        };
        // The origin ends at the first slash or question mark after the scheme.
        let end = base[authority..].find(['/', '?']).map_or(base.len(), |index| authority + index);
        let (origin, rest) = base.split_at(end);
        let (path, query) = rest.split_once('?').map_or((rest, None), |(path, query)| (path, Some(query)));
        Ok(BaseUrl { origin, path: path.trim_end_matches('/'), query })
    }
}

/// Fills the templates of a path, segment by segment.
fn fill_path(path: &str, operation: &Operation, arguments: &Map<String, Value>) -> Result<String> {
    let mut filled = Vec::new();
    let mut rest = Some(path);
    // Split before filling: a value with a slash stays in its segment.
    while let Some(text) = rest {
        let (segment, next) = split_outside_braces(text, '/');
        filled.push(fill_segment(segment, operation, arguments)?);
        rest = next;
    }
    Ok(filled.join("/"))
}

/// Fills the templates of one path segment and rejects values that would change the path.
fn fill_segment(segment: &str, operation: &Operation, arguments: &Map<String, Value>) -> Result<String> {
    let mut filled = String::new();
    // Errors name the last argument of the segment; a segment without arguments is the author's and not checked.
    let mut last_argument = None;
    for piece in split_template(segment) {
        match piece {
            TemplatePiece::Literal(text) => filled.push_str(&escape::LITERAL.encode_value(text)),
            TemplatePiece::Parameter(name) => {
                let parameter = find_path_parameter(name, operation)?;
                let value = argument_value(parameter, arguments)?.unwrap_or(&Value::Null);
                let text = serialize_path_value(parameter, value)?;
                // In the matrix style an empty string is written as `;name`, which is not an empty segment.
                if text.is_empty() || *value == "" && !text.starts_with(';') {
                    return Err(invalid_argument(&parameter.argument, "is part of a path and must not be empty"));
                }
                // The raw value is rejected in every style.
                if is_dot_segment(&text) || *value == "." || *value == ".." {
                    return Err(dot_segment_error(&parameter.argument));
                }
                filled.push_str(&text);
                last_argument = Some(&parameter.argument);
            }
        }
    }
    // Adjacent values and literals may form a dot segment that none of them is alone.
    match last_argument {
        Some(argument) if is_dot_segment(&filled) => Err(dot_segment_error(argument)),
        Some(argument) if contains_parent_segment(&filled) => Err(parent_segment_error(argument)),
        Some(_) | None => Ok(filled),
    }
}

/// Returns the path parameter of a template.
fn find_path_parameter<'a>(name: &str, operation: &'a Operation) -> Result<&'a OperationParameter> {
    let parameter = operation
        .parameters
        .iter()
        .find(|parameter| parameter.location == ParameterLocation::Path && parameter.name == name);
    parameter.ok_or_else(|| {
        let message = format!(
            "the path `{}` has `{{{name}}}`, for which the document declares no parameter; its author must add one",
            operation.path
        );
        Error::new(Code::ToolInvalidInput, message)
    })
}

/// Serialises a value for a path segment; empty for `null`.
fn serialize_path_value(parameter: &OperationParameter, value: &Value) -> Result<String> {
    Ok(match &parameter.serialization {
        _ if value.is_null() => String::new(),
        Serialization::Style { style, explode, allow_reserved } => {
            let escape = if *allow_reserved { escape::RESERVED_IN_PATH } else { EscapeMode::Unreserved };
            ValueWriter::new(parameter, *style, *explode, escape, MAX_REQUEST_URL_LEN)
                .write_text(value)?
                .unwrap_or_default()
        }
        Serialization::Content { media_type } => EscapeMode::Unreserved.encode_value(&serialize_as(value, media_type)),
    })
}

/// Fills the query that is part of the path, pair by pair. Leaves out pairs with a template that the document declares
/// as a query parameter, which is added by that parameter.
fn fill_path_query(template: &str, operation: &Operation, arguments: &Map<String, Value>) -> Result<Vec<String>> {
    // Whether a template is a declared query parameter.
    let declared = |piece: &TemplatePiece<'_>| match piece {
        TemplatePiece::Literal(_) => false,
        TemplatePiece::Parameter(name) => {
            let mut parameters = operation.parameters.iter();
            parameters.any(|parameter| parameter.location == ParameterLocation::Query && parameter.name == *name)
        }
    };
    let mut pairs = Vec::new();
    // Pairs of the author are literal; a template in one is encoded as a value.
    for pair in template.split('&') {
        if split_template(pair).iter().any(declared) {
            continue;
        }
        let mut filled = String::new();
        for piece in split_template(pair) {
            match piece {
                TemplatePiece::Literal(text) => filled.push_str(&escape::LITERAL.encode_value(text)),
                TemplatePiece::Parameter(name) => {
                    let parameter = find_path_parameter(name, operation)?;
                    let value = argument_value(parameter, arguments)?.filter(|value| !value.is_null());
                    filled
                        .push_str(&EscapeMode::Unreserved.encode_value(&value.map(to_plain_text).unwrap_or_default()));
                }
            }
        }
        pairs.push(filled);
    }
    Ok(pairs)
}

/// Returns the `name=value` pairs of a parameter.
fn query_pairs(parameter: &OperationParameter, arguments: &Map<String, Value>) -> Result<Vec<String>> {
    // Other locations have no part in the query.
    match parameter.location {
        ParameterLocation::Query | ParameterLocation::Querystring => {}
        ParameterLocation::Path | ParameterLocation::Header | ParameterLocation::Cookie => return Ok(Vec::new()),
    }
    let Some(value) = argument_value(parameter, arguments)? else {
        return Ok(Vec::new());
    };
    if parameter.location == ParameterLocation::Querystring {
        return serialize_querystring(parameter, value);
    }
    let pairs = match &parameter.serialization {
        // A required parameter that is `null` is sent without a value, as the table of styles says.
        Serialization::Style { .. } if value.is_null() => {
            vec![(EscapeMode::Unreserved.encode_name(&parameter.name), String::new())]
        }
        Serialization::Style { style, explode, allow_reserved } => {
            let escape = if *allow_reserved { escape::RESERVED_IN_QUERY } else { EscapeMode::Unreserved };
            ValueWriter::new(parameter, *style, *explode, escape, MAX_REQUEST_URL_LEN).write_pairs(value)?
        }
        Serialization::Content { media_type } => {
            // A form within a parameter is encoded twice: as a form, and as a value.
            let text = match media_type::essence(media_type).as_str() {
                urlencoded::MEDIA_TYPE => {
                    urlencoded::serialize_plain_form(&parameter.argument, value, MAX_REQUEST_URL_LEN)?
                }
                _other => serialize_as(value, media_type),
            };
            vec![(EscapeMode::Unreserved.encode_name(&parameter.name), EscapeMode::Unreserved.encode_value(&text))]
        }
    };
    let pairs = require_nonempty(&parameter.argument, parameter.required, pairs)?;
    Ok(pairs.into_iter().map(|(name, value)| format!("{name}={value}")).collect())
}

/// Serialises a value as the whole query (OpenAPI 3.2, `in: querystring`). A string of plain text or form data is a
/// query that the agent wrote, whose delimiters are kept; any other document is encoded as a whole.
fn serialize_querystring(parameter: &OperationParameter, value: &Value) -> Result<Vec<String>> {
    let media_type = match &parameter.serialization {
        Serialization::Style { .. } => urlencoded::MEDIA_TYPE,
        Serialization::Content { media_type } => media_type,
    };
    let text = match (media_type::essence(media_type).as_str(), value) {
        // Only JSON has a text for null.
        (_, Value::Null) if !media_type::is_json(media_type) => String::new(),
        (urlencoded::MEDIA_TYPE | "text/plain", Value::String(text)) if long_integer(value).is_none() => {
            escape::LITERAL.encode_value(text)
        }
        (urlencoded::MEDIA_TYPE, _) => {
            urlencoded::serialize_plain_form(&parameter.argument, value, MAX_REQUEST_URL_LEN)?
        }
        (_, _) => EscapeMode::Unreserved.encode_value(&serialize_as(value, media_type)),
    };
    Ok(vec![text])
}

/// A piece of a path or query: literal text or a parameter in braces.
enum TemplatePiece<'a> {
    Literal(&'a str),
    Parameter(&'a str),
}

/// Splits a text into literals and templates. An unclosed brace is literal.
fn split_template(text: &str) -> Vec<TemplatePiece<'_>> {
    let mut pieces = Vec::new();
    let mut rest = text;
    while let Some((before, name, after)) = first_template(rest) {
        pieces.push(TemplatePiece::Literal(before));
        pieces.push(TemplatePiece::Parameter(name));
        rest = after;
    }
    pieces.push(TemplatePiece::Literal(rest));
    pieces
}

/// Splits at the first template: text before it, its name, and text after it.
fn first_template(text: &str) -> Option<(&str, &str, &str)> {
    let (before, rest) = text.split_once('{')?;
    let (name, after) = rest.split_once('}')?;
    Some((before, name, after))
}

/// Splits at the first delimiter that is not within a template.
fn split_outside_braces(text: &str, delimiter: char) -> (&str, Option<&str>) {
    let mut offset = 0;
    loop {
        let rest = &text[offset..];
        // Searches the literal text before the next template, then continues after it.
        let literal = first_template(rest).map_or(rest.len(), |(before, _, _)| before.len());
        if let Some(index) = rest[..literal].find(delimiter) {
            let (before, after) = text.split_at(offset + index);
            return (before, Some(&after[delimiter.len_utf8()..]));
        }
        match first_template(rest) {
            Some((_, _, after)) => offset = text.len() - after.len(),
            None => return (text, None),
        }
    }
}

/// Returns whether a segment is `.` or `..`. URL libraries treat `%2e` as a dot.
pub fn is_dot_segment(segment: &str) -> bool {
    matches!(segment.to_ascii_lowercase().replace("%2e", ".").as_str(), "." | "..")
}

/// Returns whether a filled segment contains `..` between slashes or backslashes once it is decoded. Many servers and
/// proxies decode `%2F` before they resolve a path, and some decode twice, so that a value of `%2e%2e`, which is sent
/// as `%252e%252e`, leads to the parent there. Values that take a third decoding are data.
fn contains_parent_segment(segment: &str) -> bool {
    // The segment is percent-encoded already, so the first decoding gives back the value.
    let once = decode_leniently(segment.as_bytes());
    let twice = decode_leniently(&once);
    [once, twice].iter().any(|path| {
        path.split(|byte| matches!(byte, b'/' | b'\\')).any(|segment| {
            // Java servers drop path parameters after `;`, others trim white space and control characters.
            let name = segment.split(|byte| *byte == b';').next().unwrap_or_default();
            name.trim_ascii_start().strip_prefix(b"..").is_some_and(|rest| rest.iter().all(|byte| *byte <= b' '))
        })
    })
}

/// Percent-decodes, including the overlong UTF-8 forms of `.`, `/` and `\` that lenient decoders accept.
fn decode_leniently(bytes: &[u8]) -> Vec<u8> {
    let mut decoded = Vec::with_capacity(bytes.len());
    for byte in percent::decode_bytes(bytes) {
        let character = match (decoded.last(), byte) {
            (Some(0xc0), 0xae) => Some(b'.'),
            (Some(0xc0), 0xaf) => Some(b'/'),
            (Some(0xc1), 0x9c) => Some(b'\\'),
            _ => None,
        };
        if character.is_some() {
            decoded.pop();
        }
        decoded.push(character.unwrap_or(byte));
    }
    decoded
}

/// Returns the error for a value that leads to a parent directory once decoded.
fn parent_segment_error(argument: &str) -> Error {
    invalid_argument(argument, "is part of a path and must not have `..` between slashes, also percent-encoded")
}

/// Returns the error for a value that makes a segment `.` or `..`.
fn dot_segment_error(argument: &str) -> Error {
    invalid_argument(argument, "is part of a path and must not make it `.` or `..`")
}
