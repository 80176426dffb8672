//! The address: the base, the path with its templates filled, the query. What is filled in stays in its segment or in its
//! parameter, and never climbs.

use serde_json::{Map, Value};

use super::escape::{self, Escape};
use super::style::Writing;
use super::{document, form, given, media, plain, refused, traced};
use crate::error::{Code, Error, Result};
use crate::execution::{Form, Operation, Parameter, Place, Style};

/// What HTTP libraries can hold.
const LONGEST: usize = 65_534;

pub(super) fn build(operation: &Operation, base: &str, arguments: &Map<String, Value>) -> Result<String> {
    let base = Base::read(base)?;
    // What follows a `#` in a path only tells operations apart.
    let (path, _) = split_outside_braces(&operation.path, '#');
    let (path, path_query) = split_outside_braces(path, '?');

    let mut query: Vec<String> = Vec::new();
    query.extend(base.query.map(|query| escape::LITERAL.value(query)));
    if let Some(template) = path_query {
        query.extend(fixed_pairs(template, operation, arguments)?);
    }
    for parameter in &operation.parameters {
        query.extend(query_pieces(parameter, arguments)?);
    }
    query.retain(|piece| !piece.is_empty());

    let mut url = base.origin.to_owned();
    url.push_str(&escape::LITERAL.value(base.path));
    if !path.is_empty() && !path.starts_with('/') {
        url.push('/');
    }
    url.push_str(&filled_path(path, operation, arguments)?);
    if !query.is_empty() {
        url.push('?');
        url.push_str(&query.join("&"));
    }
    if url.len() > LONGEST {
        let message =
            format!("the address of the request would have {} bytes, more than {LONGEST}; give less", url.len());
        return Err(Error::new(Code::ToolInvalidInput, message));
    }
    Ok(url)
}

/// The parts of the address that a path is appended to.
struct Base<'a> {
    origin: &'a str,
    /// Without a slash at its end.
    path: &'a str,
    query: Option<&'a str>,
}

impl<'a> Base<'a> {
    fn read(base: &'a str) -> Result<Base<'a>> {
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
        Ok(Base { origin, path: path.trim_end_matches('/'), query })
    }
}

fn filled_path(path: &str, operation: &Operation, arguments: &Map<String, Value>) -> Result<String> {
    let mut filled = Vec::new();
    let mut rest = Some(path);
    while let Some(text) = rest {
        let (segment, next) = split_outside_braces(text, '/');
        filled.push(filled_segment(segment, operation, arguments)?);
        rest = next;
    }
    Ok(filled.join("/"))
}

fn filled_segment(segment: &str, operation: &Operation, arguments: &Map<String, Value>) -> Result<String> {
    let mut filled = String::new();
    let mut last_argument = None;
    for piece in pieces(segment) {
        match piece {
            Piece::Literal(text) => filled.push_str(&escape::LITERAL.value(text)),
            Piece::Name(name) => {
                let parameter = path_parameter(name, operation)?;
                let value = given(parameter, arguments)?.unwrap_or(&Value::Null);
                let text = path_text(parameter, value)?;
                // The matrix style has a form for an empty string, and it is no empty segment.
                if text.is_empty() || *value == "" && !text.starts_with(';') {
                    return Err(refused(&parameter.argument, "is part of a path and must not be empty"));
                }
                if is_dots(&text) || *value == "." || *value == ".." {
                    return Err(dots(&parameter.argument));
                }
                filled.push_str(&text);
                last_argument = Some(&parameter.argument);
            }
        }
    }
    // Two values, or a value and what stands beside it, may make up what neither is.
    match last_argument {
        Some(argument) if is_dots(&filled) => Err(dots(argument)),
        Some(argument) if climbs(&filled) => Err(climbing(argument)),
        Some(_) | None => Ok(filled),
    }
}

fn path_parameter<'a>(name: &str, operation: &'a Operation) -> Result<&'a Parameter> {
    let found = operation.parameters.iter().find(|parameter| parameter.place == Place::Path && parameter.name == name);
    found.ok_or_else(|| {
        let message = format!(
            "the path `{}` has `{{{name}}}`, for which the document declares no parameter; its author must add one",
            operation.path
        );
        Error::new(Code::ToolInvalidInput, message)
    })
}

fn path_text(parameter: &Parameter, value: &Value) -> Result<String> {
    Ok(match &parameter.form {
        _ if value.is_null() => String::new(),
        Form::Style { style, explode, allow_reserved } => {
            let escape = if *allow_reserved { escape::RESERVED_IN_PATH } else { Escape::Unreserved };
            writing(parameter, *style, *explode, escape).text(value)?.unwrap_or_default()
        }
        Form::Content { media_type } => Escape::Unreserved.value(&document(value, media_type)),
    })
}

/// The query that a path has of its own, pair by pair. A pair with a template in it that the document declares as part of
/// the query is left to that parameter.
fn fixed_pairs(template: &str, operation: &Operation, arguments: &Map<String, Value>) -> Result<Vec<String>> {
    let declared = |piece: &Piece<'_>| match piece {
        Piece::Literal(_) => false,
        Piece::Name(name) => {
            let mut parameters = operation.parameters.iter();
            parameters.any(|parameter| parameter.place == Place::Query && parameter.name == *name)
        }
    };
    let mut pairs = Vec::new();
    for pair in template.split('&') {
        if pieces(pair).iter().any(declared) {
            continue;
        }
        let mut filled = String::new();
        for piece in pieces(pair) {
            match piece {
                Piece::Literal(text) => filled.push_str(&escape::LITERAL.value(text)),
                Piece::Name(name) => {
                    let parameter = path_parameter(name, operation)?;
                    let value = given(parameter, arguments)?.filter(|value| !value.is_null());
                    filled.push_str(&Escape::Unreserved.value(&value.map(plain).unwrap_or_default()));
                }
            }
        }
        pairs.push(filled);
    }
    Ok(pairs)
}

/// What a parameter puts into the query: `name=value`, or several of them.
fn query_pieces(parameter: &Parameter, arguments: &Map<String, Value>) -> Result<Vec<String>> {
    match parameter.place {
        Place::Query | Place::Querystring => {}
        Place::Path | Place::Header | Place::Cookie => return Ok(Vec::new()),
    }
    let Some(value) = given(parameter, arguments)? else {
        return Ok(Vec::new());
    };
    if parameter.place == Place::Querystring {
        return whole_query(parameter, value);
    }
    let pairs = match &parameter.form {
        // A parameter that must be there and is null is there without a value, as the table of styles has it.
        Form::Style { .. } if value.is_null() => vec![(Escape::Unreserved.name(&parameter.name), String::new())],
        Form::Style { style, explode, allow_reserved } => {
            let escape = if *allow_reserved { escape::RESERVED_IN_QUERY } else { Escape::Unreserved };
            writing(parameter, *style, *explode, escape).pairs(value)?
        }
        Form::Content { media_type } => {
            let text = match media::essence(media_type).as_str() {
                form::MEDIA_TYPE => form::plain_text(&parameter.argument, value, LONGEST)?,
                _other => document(value, media_type),
            };
            vec![(Escape::Unreserved.name(&parameter.name), Escape::Unreserved.value(&text))]
        }
    };
    let pairs = traced(&parameter.argument, parameter.required, pairs)?;
    Ok(pairs.into_iter().map(|(name, value)| format!("{name}={value}")).collect())
}

/// The whole query out of one value. A string that is plain text, or a form already, is a query that the agent wrote, of
/// which the delimiters stay; any other document is encoded as a whole.
fn whole_query(parameter: &Parameter, value: &Value) -> Result<Vec<String>> {
    let media_type = match &parameter.form {
        Form::Style { .. } => form::MEDIA_TYPE,
        Form::Content { media_type } => media_type,
    };
    let text = match (media::essence(media_type).as_str(), value) {
        (_, Value::Null) if !media::is_json(media_type) => String::new(),
        (form::MEDIA_TYPE | "text/plain", Value::String(text)) => escape::LITERAL.value(text),
        (form::MEDIA_TYPE, _) => form::plain_text(&parameter.argument, value, LONGEST)?,
        (_, _) => Escape::Unreserved.value(&document(value, media_type)),
    };
    Ok(vec![text])
}

fn writing(parameter: &Parameter, style: Style, explode: bool, escape: Escape) -> Writing<'_> {
    Writing { argument: &parameter.argument, name: &parameter.name, style, explode, escape, room: LONGEST }
}

enum Piece<'a> {
    Literal(&'a str),
    Name(&'a str),
}

/// A brace that nothing closes is itself.
fn pieces(text: &str) -> Vec<Piece<'_>> {
    let mut pieces = Vec::new();
    let mut rest = text;
    while let Some((before, name, after)) = first_template(rest) {
        pieces.push(Piece::Literal(before));
        pieces.push(Piece::Name(name));
        rest = after;
    }
    pieces.push(Piece::Literal(rest));
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
pub fn is_dots(segment: &str) -> bool {
    matches!(segment.to_ascii_lowercase().replace("%2e", ".").as_str(), "." | "..")
}

/// Whether a filled segment has `..` between slashes of either kind once it is decoded: many servers and proxies decode
/// `%2F` before they resolve a path. Some decode twice, so that a value of `%2e%2e`, which is sent as `%252e%252e`, climbs
/// there; what takes a third time is data.
fn climbs(segment: &str) -> bool {
    let once = decoded(segment.as_bytes());
    let twice = decoded(&once);
    [once, twice].iter().any(|path| {
        path.split(|byte| matches!(byte, b'/' | b'\\')).any(|part| {
            // Servers of Java drop what follows a `;`, others white space and control characters at the end.
            let name = part.split(|byte| *byte == b';').next().unwrap_or_default();
            name.trim_ascii_start().strip_prefix(b"..").is_some_and(|rest| rest.iter().all(|byte| *byte <= b' '))
        })
    })
}

/// Percent-decoded, with the overlong forms of `.`, `/` and `\` in UTF-8 that careless decoders accept.
fn decoded(bytes: &[u8]) -> Vec<u8> {
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

fn climbing(argument: &str) -> Error {
    refused(argument, "is part of a path and must not have `..` between slashes, also percent-encoded")
}

fn dots(argument: &str) -> Error {
    refused(argument, "is part of a path and must not make it `.` or `..`")
}
