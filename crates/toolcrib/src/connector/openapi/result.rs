//! From an answer over HTTP to the result of a call: JSON as structured content, text as text, pictures as pictures,
//! anything else described.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE};
use http::{HeaderMap, StatusCode};
use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value, json};
use toolcrib_core::arazzo::Response;
use toolcrib_core::text::shown_short;
use toolcrib_core::{Code, Error, Result, ResultExt};

use super::call::listed;
use super::send::{Outgoing, Received};
use crate::connector::Answer;

/// Bytes of an answer that are read.
pub(super) const LARGEST: usize = 16 * 1024 * 1024;
/// A picture or a sound that is larger is described.
const LARGEST_MEDIA: usize = 8 * 1024 * 1024;
/// Any other binary content that is larger is described alone.
const LARGEST_BLOB: usize = 64 * 1024;

/// Headers that tell more about an answer, and the beginnings of such.
const USEFUL: [&str; 20] = [
    "allow",
    "cache-control",
    "content-disposition",
    "content-language",
    "content-range",
    "content-type",
    "date",
    "deprecation",
    "etag",
    "last-modified",
    "link",
    "location",
    "preference-applied",
    "retry-after",
    "sunset",
    "warning",
    "x-correlation-id",
    "x-request-id",
    "x-total",
    "x-total-count",
];
const USEFUL_BEGINNINGS: [&str; 3] = ["ratelimit", "x-ratelimit-", "x-pagination-"];
const MOST_HEADERS: usize = 32;
const LONGEST_HEADER: usize = 1024;

/// What a body is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Nature {
    Json,
    Text,
    Image,
    Audio,
    Binary,
}

#[derive(Serialize)]
struct CallResult<'a> {
    content: Vec<Value>,
    #[serde(rename = "structuredContent", skip_serializing_if = "Option::is_none")]
    structured: Option<Structured<'a>>,
    #[serde(rename = "_meta")]
    meta: Value,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Structured<'a> {
    Object(&'a RawValue),
    Other { result: &'a RawValue },
}

/// The result of a call that went well.
pub(super) fn answer(label: &str, received: &Received) -> Result<Answer> {
    let Received { status, headers, body, cut, .. } = received;
    let kind = media_type(headers);
    let nature = if is_packed(headers) { Nature::Binary } else { nature(&kind, body) };
    let (content, structured) = match nature {
        _ if body.is_empty() => (vec![text(&status.to_string())], None),
        Nature::Json | Nature::Text if *cut => {
            let message = format!("the answer to `{label}` is larger than 16 MiB; ask for less of it");
            return Err(Error::new(Code::ToolExecutionFailed, message));
        }
        Nature::Json => match serde_json::from_slice::<&RawValue>(body) {
            Ok(raw) => (vec![text(raw.get())], Some(structured(raw))),
            // It only says that it is JSON.
            Err(_) => (vec![text(&decoded(headers, body))], None),
        },
        Nature::Text => (vec![text(&decoded(headers, body))], None),
        Nature::Image if fits(received, LARGEST_MEDIA) => (vec![media("image", &kind, body)], None),
        Nature::Audio if fits(received, LARGEST_MEDIA) => (vec![media("audio", &kind, body)], None),
        Nature::Image | Nature::Audio | Nature::Binary => (described(received, &kind), None),
    };
    written(&CallResult { content, structured, meta: meta(*status, headers) })
}

/// The answer as expressions see it, whatever its status: all of its headers, and a body that is JSON or text. Its
/// address is that of the request, without credentials.
pub(super) fn response(draft: &Outgoing, received: &Received) -> Response {
    let Received { status, headers, body, cut, .. } = received;
    let text = || Value::String(decoded(headers, body));
    let value = match nature(&media_type(headers), body) {
        _ if body.is_empty() || *cut || is_packed(headers) => None,
        Nature::Json => Some(serde_json::from_slice(body).unwrap_or_else(|_| text())),
        Nature::Text => Some(text()),
        Nature::Image | Nature::Audio | Nature::Binary => None,
    };
    let (url, method) = (draft.url.to_string(), draft.method.to_string());
    Response { status: status.as_u16(), headers: listed(headers), body: value, url, method }
}

/// A part of an answer as the result: what a call came to that was looked at until it was done.
pub(super) fn answer_with(value: &Value, received: &Received) -> Result<Answer> {
    let raw = to_raw_value(value).context(Code::Internal, "write a result")?;
    let content = vec![text(value.as_str().unwrap_or(raw.get()))];
    written(&CallResult { content, structured: Some(structured(&raw)), meta: meta(received.status, &received.headers) })
}

fn written(result: &CallResult<'_>) -> Result<Answer> {
    let raw = to_raw_value(result).context(Code::Internal, "write a result")?;
    Answer::read(raw).ok_or_else(|| Error::new(Code::Internal, "a result is no object"))
}

fn structured(raw: &RawValue) -> Structured<'_> {
    if raw.get().starts_with('{') { Structured::Object(raw) } else { Structured::Other { result: raw } }
}

pub(super) fn nature(kind: &str, body: &[u8]) -> Nature {
    let (family, sub) = kind.split_once('/').unwrap_or((kind, ""));
    let textual =
        ["xml", "yaml", "x-yaml", "javascript", "graphql", "sql", "toml", "csv", "jwt", "x-www-form-urlencoded"];
    let lines = ["x-ndjson", "ndjson", "jsonl", "x-jsonl", "jsonlines", "json-seq", "problem+xml"];
    match family {
        _ if sub == "json" || sub.ends_with("+json") => Nature::Json,
        _ if sub.ends_with("+xml") || sub.ends_with("+yaml") => Nature::Text,
        "text" => Nature::Text,
        "image" => Nature::Image,
        "audio" => Nature::Audio,
        "application" if textual.contains(&sub) || lines.contains(&sub) => Nature::Text,
        // Nobody said what it is.
        "" => match std::str::from_utf8(body) {
            Ok(said) if serde_json::from_str::<&RawValue>(said).is_ok() => Nature::Json,
            Ok(said) if !said.contains('\0') => Nature::Text,
            Ok(_) | Err(_) => Nature::Binary,
        },
        _ => Nature::Binary,
    }
}

/// In small letters, without parameters; empty where there is none.
pub(super) fn media_type(headers: &HeaderMap) -> String {
    let kind = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    shown_short(kind.split(';').next().unwrap_or_default().trim(), 120).to_ascii_lowercase()
}

/// UTF-8, or what looks like it; else each byte is a character.
pub(super) fn decoded(headers: &HeaderMap, body: &[u8]) -> String {
    let kind = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let kind = kind.to_ascii_lowercase();
    let says_utf8 = kind.contains("charset=utf-8") || kind.contains("charset=\"utf-8");
    let body = body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body);
    match std::str::from_utf8(body) {
        Ok(text) => text.to_owned(),
        Err(_) if says_utf8 => String::from_utf8_lossy(body).into_owned(),
        Err(_) => body.iter().map(|byte| char::from(*byte)).collect(),
    }
}

/// Nobody asked for that, and nobody here unpacks it.
fn is_packed(headers: &HeaderMap) -> bool {
    headers.get(CONTENT_ENCODING).is_some_and(|encoding| !encoding.as_bytes().eq_ignore_ascii_case(b"identity"))
}

fn fits(received: &Received, most: usize) -> bool {
    !received.cut && received.body.len() <= most
}

fn text(text: &str) -> Value {
    json!({ "type": "text", "text": text })
}

fn media(block: &str, kind: &str, body: &[u8]) -> Value {
    json!({ "type": block, "data": STANDARD.encode(body), "mimeType": kind })
}

fn described(received: &Received, kind: &str) -> Vec<Value> {
    let kind = if kind.is_empty() { "application/octet-stream" } else { kind };
    let length = received.headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok());
    let size = match (received.cut, length.and_then(|length| length.parse::<u64>().ok())) {
        (false, _) => format!("{} bytes", received.body.len()),
        (true, Some(length)) => format!("{length} bytes"),
        (true, None) => "more than 16 MiB".to_owned(),
    };
    let mut content = vec![text(&format!("{} with binary content: `{kind}`, {size}", received.status))];
    if fits(received, LARGEST_BLOB) {
        let (uri, blob) = (&received.place, STANDARD.encode(&received.body));
        content.push(json!({ "type": "resource", "resource": { "uri": uri, "mimeType": kind, "blob": blob } }));
    }
    content
}

fn meta(status: StatusCode, headers: &HeaderMap) -> Value {
    json!({ "toolcrib/http": { "status": status.as_u16(), "headers": useful(headers) } })
}

/// The headers that tell something, bounded.
pub(super) fn useful(headers: &HeaderMap) -> Value {
    let mut shown = Map::new();
    for name in headers.keys().filter(|name| is_useful(name.as_str())).take(MOST_HEADERS) {
        let values: Vec<_> =
            headers.get_all(name).iter().map(|value| String::from_utf8_lossy(value.as_bytes())).collect();
        shown.insert(name.as_str().to_owned(), shown_short(&values.join(", "), LONGEST_HEADER).into());
    }
    Value::Object(shown)
}

fn is_useful(name: &str) -> bool {
    USEFUL.contains(&name) || USEFUL_BEGINNINGS.iter().any(|beginning| name.starts_with(beginning))
}

#[cfg(test)]
mod tests;
