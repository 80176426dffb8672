//! Headers and cookies. A value that would end its line, or a cookie that would begin another, is refused.

use serde_json::{Map, Value};

use super::escape::{self, Escape};
use super::style::Writing;
use super::{document, given, media, refused, traced};
use crate::error::Result;
use crate::execution::{Form, Operation, Parameter, Place, Style};

/// What a connection says of itself: no document and no agent has a say in it.
const OF_THE_CONNECTION: [&str; 11] = [
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

/// How many media types `Accept` names.
const MOST_ACCEPTED: usize = 5;

/// As many bytes of cookies as servers take.
const ROOM: usize = 65_534;

pub(super) fn headers(operation: &Operation, arguments: &Map<String, Value>) -> Result<Vec<(String, String)>> {
    let mut headers = vec![("Accept".to_owned(), accept(&operation.accept))];
    for parameter in operation.parameters.iter().filter(|parameter| parameter.place == Place::Header) {
        let Some(value) = given(parameter, arguments)? else { continue };
        if OF_THE_CONNECTION.contains(&parameter.name.to_ascii_lowercase().as_str()) {
            continue;
        }
        if !media::is_token(&parameter.name) {
            return Err(refused(&parameter.argument, "goes into a header whose name is none; leave it out"));
        }
        if let Some(text) = header_text(parameter, value)? {
            headers.push((parameter.name.clone(), sound(&parameter.argument, text)?));
        }
    }
    Ok(headers)
}

/// JSON first, for that is what agents read best; whatever else there is comes last.
fn accept(media_types: &[String]) -> String {
    let sound = media_types.iter().filter(|media_type| media::is_sound(media_type) && !media_type.contains(','));
    let (mut accepted, others): (Vec<&str>, Vec<&str>) =
        sound.map(String::as_str).filter(|media_type| *media_type != "*/*").partition(|name| media::is_json(name));
    accepted.extend(others);
    if accepted.is_empty() {
        accepted.push("application/json");
    }
    accepted.truncate(MOST_ACCEPTED);
    accepted.push("*/*;q=0.1");
    accepted.join(", ")
}

/// Nothing is encoded in a header, says the specification. One that must be there and is undefined is empty.
fn header_text(parameter: &Parameter, value: &Value) -> Result<Option<String>> {
    Ok(match &parameter.form {
        Form::Style { style, explode, .. } => {
            let style = match style {
                Style::SpaceDelimited | Style::PipeDelimited | Style::TabDelimited => *style,
                Style::Simple | Style::Label | Style::Matrix | Style::Form | Style::DeepObject | Style::Cookie => {
                    Style::Simple
                }
            };
            let text = writing(parameter, style, *explode, Escape::Nothing).text(value)?;
            text.or_else(|| parameter.required.then(String::new))
        }
        Form::Content { media_type } => Some(document(value, media_type)),
    })
}

pub(super) fn cookies(operation: &Operation, arguments: &Map<String, Value>) -> Result<Vec<(String, String)>> {
    let mut cookies = Vec::new();
    for parameter in operation.parameters.iter().filter(|parameter| parameter.place == Place::Cookie) {
        let Some(value) = given(parameter, arguments)? else { continue };
        match &parameter.form {
            Form::Style { .. } if value.is_null() => {
                cookies.push((Escape::Unreserved.name(&parameter.name), String::new()));
            }
            Form::Style { style: Style::Cookie, explode, .. } => {
                let pairs = writing(parameter, Style::Cookie, *explode, Escape::Nothing).pairs(value)?;
                for (name, value) in traced(&parameter.argument, parameter.required, pairs)? {
                    cookies.push(sound_cookie(&parameter.argument, name, value)?);
                }
            }
            Form::Style { style, explode, allow_reserved } => {
                let escape = if *allow_reserved { escape::RESERVED_IN_COOKIE } else { Escape::Unreserved };
                let pairs = writing(parameter, *style, *explode, escape).pairs(value)?;
                cookies.extend(traced(&parameter.argument, parameter.required, pairs)?);
            }
            Form::Content { media_type } => {
                let text = Escape::Unreserved.value(&document(value, media_type));
                cookies.push((Escape::Unreserved.name(&parameter.name), text));
            }
        }
    }
    Ok(cookies)
}

fn writing(parameter: &Parameter, style: Style, explode: bool, escape: Escape) -> Writing<'_> {
    Writing { argument: &parameter.argument, name: &parameter.name, style, explode, escape, room: ROOM }
}

fn sound(argument: &str, text: String) -> Result<String> {
    if text.chars().any(|character| character.is_control() && character != '\t') {
        return Err(refused(argument, "goes into a header and must not have line breaks or other control characters"));
    }
    if text.starts_with([' ', '\t']) || text.ends_with([' ', '\t']) {
        return Err(refused(
            argument,
            "goes into a header and must not begin or end with a space, which would get lost",
        ));
    }
    Ok(text)
}

/// The style `cookie` encodes nothing, so what would not stay one cookie is refused.
fn sound_cookie(argument: &str, name: String, value: String) -> Result<(String, String)> {
    if !media::is_token(&name) {
        return Err(refused(argument, "makes a cookie with a name that is none"));
    }
    if value.chars().any(|character| character.is_control() || character == ';') {
        return Err(refused(
            argument,
            "goes into a cookie and must not have `;` or control characters; encode them first",
        ));
    }
    Ok((name, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_asked_for_first_and_anything_last() {
        let cases: [(&[&str], &str); 5] = [
            (&[], "application/json, */*;q=0.1"),
            (&["*/*"], "application/json, */*;q=0.1"),
            (&["text/csv"], "text/csv, */*;q=0.1"),
            (&["text/csv", "application/problem+json"], "application/problem+json, text/csv, */*;q=0.1"),
            (&["a/b\r\nX-Evil: 1", "a/1", "a/2", "a/3", "a/4", "a/5", "a/6"], "a/1, a/2, a/3, a/4, a/5, */*;q=0.1"),
        ];
        for (media_types, expected) in cases {
            let media_types: Vec<String> = media_types.iter().map(ToString::to_string).collect();
            assert_eq!(accept(&media_types), expected);
        }
    }
}
