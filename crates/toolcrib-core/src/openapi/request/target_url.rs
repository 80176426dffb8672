//! The address: the base, the path with its templates filled, the query. What is filled in stays in its segment or in its
//! parameter, and never climbs.

use serde_json::{Map, Value};

use super::escape::{self, EscapeMode};
use super::style::ValueWriter;
use super::{argument_value, invalid_argument, media_type, require_nonempty, serialize_as, to_plain_text, urlencoded};
use crate::error::{Code, Error, Result};
use crate::execution::{Operation, OperationParameter, ParameterLocation, ParameterStyle, Serialization};

/// What HTTP libraries can hold.
const MAX_REQUEST_URL_LEN: usize = 65_534;

pub(super) fn build_url(operation: &Operation, base: &str, arguments: &Map<String, Value>) -> Result<String> {
    let base = BaseUrl::parse(base)?;
    // What follows a `#` in a path only tells operations apart.
    let (path, _) = split_outside_braces(&operation.path, '#');
    let (path, path_query) = split_outside_braces(path, '?');

    let mut query: Vec<String> = Vec::new();
    query.extend(base.query.map(|query| escape::LITERAL.encode_value(query)));
    if let Some(template) = path_query {
        query.extend(fill_path_query(template, operation, arguments)?);
    }
    for parameter in &operation.parameters {
        query.extend(query_pairs(parameter, arguments)?);
    }
    query.retain(|piece| !piece.is_empty());

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
            "the address of the request would have {} bytes, more than {MAX_REQUEST_URL_LEN}; give less",
            url.len()
        );
        return Err(Error::new(Code::ToolInvalidInput, message));
    }
    Ok(url)
}

/// The parts of the address that a path is appended to.
struct BaseUrl<'a> {
    origin: &'a str,
    /// Without a slash at its end.
    path: &'a str,
    query: Option<&'a str>,
}

impl<'a> BaseUrl<'a> {
    fn parse(base: &'a str) -> Result<BaseUrl<'a>> {
        let base = base.split('#').next().unwrap_or_default();
        let authority = match base.find("://") {
            Some(scheme) if scheme > 0 && !base[scheme + 3..].is_empty() => scheme + 3,
            Some(_) | None => {
                let message = "there is no address to send the request to; set `base_url` on the source";
                return Err(Error::new(Code::ToolUnavailable, message).with_retryable(false));
            }
        };
        let end = base[authority..].find(['/', '?']).map_or(base.len(), |index| authority + index);
        let (origin, rest) = base.split_at(end);
        let (path, query) = rest.split_once('?').map_or((rest, None), |(path, query)| (path, Some(query)));
        Ok(BaseUrl { origin, path: path.trim_end_matches('/'), query })
    }
}

fn fill_path(path: &str, operation: &Operation, arguments: &Map<String, Value>) -> Result<String> {
    let mut filled = Vec::new();
    let mut rest = Some(path);
    while let Some(text) = rest {
        let (segment, next) = split_outside_braces(text, '/');
        filled.push(fill_segment(segment, operation, arguments)?);
        rest = next;
    }
    Ok(filled.join("/"))
}

fn fill_segment(segment: &str, operation: &Operation, arguments: &Map<String, Value>) -> Result<String> {
    let mut filled = String::new();
    let mut last_argument = None;
    for piece in split_template(segment) {
        match piece {
            TemplatePiece::Literal(text) => filled.push_str(&escape::LITERAL.encode_value(text)),
            TemplatePiece::Parameter(name) => {
                let parameter = find_path_parameter(name, operation)?;
                let value = argument_value(parameter, arguments)?.unwrap_or(&Value::Null);
                let text = serialize_path_value(parameter, value)?;
                // The matrix style has a form for an empty string, and it is no empty segment.
                if text.is_empty() || *value == "" && !text.starts_with(';') {
                    return Err(invalid_argument(&parameter.argument, "is part of a path and must not be empty"));
                }
                if is_dot_segment(&text) || *value == "." || *value == ".." {
                    return Err(dot_segment_error(&parameter.argument));
                }
                filled.push_str(&text);
                last_argument = Some(&parameter.argument);
            }
        }
    }
    // Two values, or a value and what stands beside it, may make up what neither is.
    match last_argument {
        Some(argument) if is_dot_segment(&filled) => Err(dot_segment_error(argument)),
        Some(argument) if contains_parent_segment(&filled) => Err(parent_segment_error(argument)),
        Some(_) | None => Ok(filled),
    }
}

fn find_path_parameter<'a>(name: &str, operation: &'a Operation) -> Result<&'a OperationParameter> {
    let found = operation
        .parameters
        .iter()
        .find(|parameter| parameter.location == ParameterLocation::Path && parameter.name == name);
    found.ok_or_else(|| {
        let message = format!(
            "the path `{}` has `{{{name}}}`, for which the document declares no parameter; its author must add one",
            operation.path
        );
        Error::new(Code::ToolInvalidInput, message)
    })
}

fn serialize_path_value(parameter: &OperationParameter, value: &Value) -> Result<String> {
    Ok(match &parameter.serialization {
        _ if value.is_null() => String::new(),
        Serialization::Style { style, explode, allow_reserved } => {
            let escape = if *allow_reserved { escape::RESERVED_IN_PATH } else { EscapeMode::Unreserved };
            value_writer(parameter, *style, *explode, escape).to_text(value)?.unwrap_or_default()
        }
        Serialization::Content { media_type } => EscapeMode::Unreserved.encode_value(&serialize_as(value, media_type)),
    })
}

/// The query that a path has of its own, pair by pair. A pair with a template in it that the document declares as part of
/// the query is left to that parameter.
fn fill_path_query(template: &str, operation: &Operation, arguments: &Map<String, Value>) -> Result<Vec<String>> {
    let declared = |piece: &TemplatePiece<'_>| match piece {
        TemplatePiece::Literal(_) => false,
        TemplatePiece::Parameter(name) => {
            let mut parameters = operation.parameters.iter();
            parameters.any(|parameter| parameter.location == ParameterLocation::Query && parameter.name == *name)
        }
    };
    let mut pairs = Vec::new();
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

/// What a parameter puts into the query: `name=value`, or several of them.
fn query_pairs(parameter: &OperationParameter, arguments: &Map<String, Value>) -> Result<Vec<String>> {
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
        // A parameter that must be there and is null is there without a value, as the table of styles has it.
        Serialization::Style { .. } if value.is_null() => {
            vec![(EscapeMode::Unreserved.encode_name(&parameter.name), String::new())]
        }
        Serialization::Style { style, explode, allow_reserved } => {
            let escape = if *allow_reserved { escape::RESERVED_IN_QUERY } else { EscapeMode::Unreserved };
            value_writer(parameter, *style, *explode, escape).to_pairs(value)?
        }
        Serialization::Content { media_type } => {
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

/// The whole query out of one value. A string that is plain text, or a form already, is a query that the agent wrote, of
/// which the delimiters stay; any other document is encoded as a whole.
fn serialize_querystring(parameter: &OperationParameter, value: &Value) -> Result<Vec<String>> {
    let media_type = match &parameter.serialization {
        Serialization::Style { .. } => urlencoded::MEDIA_TYPE,
        Serialization::Content { media_type } => media_type,
    };
    let text = match (media_type::essence(media_type).as_str(), value) {
        (_, Value::Null) if !media_type::is_json(media_type) => String::new(),
        (urlencoded::MEDIA_TYPE | "text/plain", Value::String(text)) => escape::LITERAL.encode_value(text),
        (urlencoded::MEDIA_TYPE, _) => {
            urlencoded::serialize_plain_form(&parameter.argument, value, MAX_REQUEST_URL_LEN)?
        }
        (_, _) => EscapeMode::Unreserved.encode_value(&serialize_as(value, media_type)),
    };
    Ok(vec![text])
}

fn value_writer(
    parameter: &OperationParameter,
    style: ParameterStyle,
    explode: bool,
    escape: EscapeMode,
) -> ValueWriter<'_> {
    ValueWriter {
        argument: &parameter.argument,
        name: &parameter.name,
        style,
        explode,
        escape,
        max_bytes: MAX_REQUEST_URL_LEN,
    }
}

enum TemplatePiece<'a> {
    Literal(&'a str),
    Parameter(&'a str),
}

/// A brace that nothing closes is itself.
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

fn first_template(text: &str) -> Option<(&str, &str, &str)> {
    let (before, rest) = text.split_once('{')?;
    let (name, after) = rest.split_once('}')?;
    Some((before, name, after))
}

fn split_outside_braces(text: &str, delimiter: char) -> (&str, Option<&str>) {
    let mut searched = 0;
    loop {
        let rest = &text[searched..];
        let literal = first_template(rest).map_or(rest.len(), |(before, _, _)| before.len());
        if let Some(index) = rest[..literal].find(delimiter) {
            let (before, after) = text.split_at(searched + index);
            return (before, Some(&after[delimiter.len_utf8()..]));
        }
        match first_template(rest) {
            Some((_, _, after)) => searched = text.len() - after.len(),
            None => return (text, None),
        }
    }
}

/// Whether a segment leads nowhere or up. Libraries read `%2e` as a dot.
pub fn is_dot_segment(segment: &str) -> bool {
    matches!(segment.to_ascii_lowercase().replace("%2e", ".").as_str(), "." | "..")
}

/// Whether a filled segment has `..` between slashes of either kind once it is decoded: many servers and proxies decode
/// `%2F` before they resolve a path. Some decode twice, so that a value of `%2e%2e`, which is sent as `%252e%252e`, climbs
/// there; what takes a third time is data.
fn contains_parent_segment(segment: &str) -> bool {
    let once = decode_leniently(segment.as_bytes());
    let twice = decode_leniently(&once);
    [once, twice].iter().any(|path| {
        path.split(|byte| matches!(byte, b'/' | b'\\')).any(|part| {
            // Servers of Java drop what follows a `;`, others white space and control characters at the end.
            let name = part.split(|byte| *byte == b';').next().unwrap_or_default();
            name.trim_ascii_start().strip_prefix(b"..").is_some_and(|rest| rest.iter().all(|byte| *byte <= b' '))
        })
    })
}

/// Percent-decoded, with the overlong forms of `.`, `/` and `\` in UTF-8 that careless decoders accept.
fn decode_leniently(bytes: &[u8]) -> Vec<u8> {
    let mut decoded = Vec::with_capacity(bytes.len());
    for byte in percent_encoding::percent_decode(bytes) {
        let plain = match (decoded.last(), byte) {
            (Some(0xc0), 0xae) => Some(b'.'),
            (Some(0xc0), 0xaf) => Some(b'/'),
            (Some(0xc1), 0x9c) => Some(b'\\'),
            _ => None,
        };
        if plain.is_some() {
            decoded.pop();
        }
        decoded.push(plain.unwrap_or(byte));
    }
    decoded
}

fn parent_segment_error(argument: &str) -> Error {
    invalid_argument(argument, "is part of a path and must not have `..` between slashes, also percent-encoded")
}

fn dot_segment_error(argument: &str) -> Error {
    invalid_argument(argument, "is part of a path and must not make it `.` or `..`")
}
