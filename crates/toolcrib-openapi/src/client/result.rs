//! Converts an HTTP response to a tool result: JSON becomes structured content, text a text block, images and audio
//! media blocks; other content is described and included as a resource.
//!
//! An API's response to `GET /pets/1` becomes:
//!
//! ```json
//! { "content": [{ "type": "text", "text": "{\"id\":1}" }], "structuredContent": { "id": 1 },
//!   "_meta": { "toolcrib/http": { "status": 200, "headers": { "content-type": "application/json" } } } }
//! ```
//!
//! A further text block says how to get the next page of a list, if there is one (`pagination`).

use std::borrow::Cow;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, StatusCode};
use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value, json};
use toolcrib_connector::redact::Redactor;
use toolcrib_connector::{HTTP_KEY, PAGINATION_KEY, ToolResult};
use toolcrib_core::execution::OperationResponse;
use toolcrib_core::json::{parse_exact, plain_text, to_exact_raw};
use toolcrib_core::text::sanitize_truncated;
use toolcrib_core::{Code, Error, Result, ResultExt};

use super::content_encoding::ContentEncoding;
use super::pagination::PageArguments;
use super::send::{OutboundRequest, ReceivedResponse};

/// Maximum size of a response body; more is an error.
pub(super) const MAX_RESPONSE_BYTES: usize = 16 * 1024 * 1024;
/// Larger images and audio become resources like other binary content.
const MAX_MEDIA_BYTES: usize = 8 * 1024 * 1024;

/// Response headers that are reported in `_meta` and in error details. A list of safe ones: `set-cookie` and the like
/// may hold credentials.
const REPORTED_HEADERS: [&str; 20] = [
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
/// Prefixes of further reported headers.
const REPORTED_HEADER_PREFIXES: [&str; 3] = ["ratelimit", "x-ratelimit-", "x-pagination-"];
/// Bound on the number of reported headers.
const MAX_REPORTED_HEADERS: usize = 32;
/// Bound on the length of a reported header.
const MAX_HEADER_CHARS: usize = 1024;

/// Kind of a response body, by media type and content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BodyKind {
    /// `application/json`, any `+json`, or no media type and valid JSON.
    Json,
    /// Shown as text; decoded leniently.
    Text,
    Image,
    Audio,
    /// Described by status, media type and size, and included as a resource.
    Binary,
}

/// MCP `CallToolResult`.
#[derive(Serialize)]
struct CallResult<'a> {
    content: Vec<Value>,
    #[serde(rename = "structuredContent", skip_serializing_if = "Option::is_none")]
    structured: Option<StructuredContent<'a>>,
    #[serde(rename = "_meta")]
    meta: Box<RawValue>,
}

/// Structured content must be an object, so other JSON values are wrapped as `{"result": …}`. Raw, to keep numbers and
/// key order as they are.
#[derive(Serialize)]
#[serde(untagged)]
enum StructuredContent<'a> {
    /// Used as it is.
    Object(&'a RawValue),
    /// Arrays, strings, numbers, booleans and null.
    Other { result: &'a RawValue },
}

/// Builds the result of a successful response. `label` names the request in messages.
pub(super) fn build_result(label: &str, received: &ReceivedResponse, pages: &PageArguments) -> Result<ToolResult> {
    let ReceivedResponse { status, headers, body, is_truncated, .. } = received;
    if *is_truncated {
        let message = format!("the response to `{label}` is larger than 16 MiB; request less data");
        return Err(Error::new(Code::ToolExecutionFailed, message));
    }
    let kind = media_type(headers);
    // Content in an unknown encoding cannot be read, whatever its media type says.
    let body_kind = if is_encoded(headers) { BodyKind::Binary } else { classify_body(&kind, body) };
    let text = if body_kind == BodyKind::Json { json_text(body) } else { Cow::default() };
    let raw = serde_json::from_slice::<&RawValue>(&text).ok();
    let (mut content, structured) = match body_kind {
        // An empty body still has a status worth reporting.
        _ if body.is_empty() => (vec![text_block(&status.to_string())], None),
        // The raw text is the text block, so that large numbers and key order survive.
        BodyKind::Json => match raw {
            Some(raw) => (vec![text_block(raw.get())], Some(structured_content(raw))),
            // The media type says JSON, the content is not.
            None => (vec![text_block(&decode_body(headers, body))], None),
        },
        BodyKind::Text => (vec![text_block(&decode_body(headers, body))], None),
        BodyKind::Image if body.len() <= MAX_MEDIA_BYTES => (vec![media_block("image", &kind, body)], None),
        BodyKind::Audio if body.len() <= MAX_MEDIA_BYTES => (vec![media_block("audio", &kind, body)], None),
        BodyKind::Image | BodyKind::Audio | BodyKind::Binary => (describe_binary(received, &kind), None),
    };
    let mut meta = http_meta(*status, headers, pages.redactor());
    if body.is_empty() {
        meta[HTTP_KEY]["empty"] = json!(true);
    }
    if let Some(pagination) = pages.find(received, raw) {
        content.push(text_block(&pagination.to_text()));
        // Empty if no argument reaches the next page.
        let page_meta = pagination.to_meta();
        if !page_meta.is_empty() {
            meta[PAGINATION_KEY] = page_meta.into();
        }
    }
    serialize_result(content, structured, &meta)
}

/// The response for runtime expressions of a workflow, whatever its status: all headers, and a body that is JSON or
/// text. The URL is that of the request, without credentials.
pub(super) fn to_arazzo_response(request: &OutboundRequest, received: &ReceivedResponse) -> OperationResponse {
    let ReceivedResponse { status, headers, body, is_truncated, .. } = received;
    let text = || Value::String(decode_body(headers, body));
    let value = match classify_body(&media_type(headers), body) {
        _ if body.is_empty() || *is_truncated || is_encoded(headers) => None,
        BodyKind::Json => Some(parse_json(body).unwrap_or_else(text)),
        BodyKind::Text => Some(text()),
        BodyKind::Image | BodyKind::Audio | BodyKind::Binary => None,
    };
    let url = request.url.to_string();
    let method = request.method.to_string();
    OperationResponse { status: status.as_u16(), headers: header_pairs(headers), body: value, url, method }
}

/// Headers as name and value pairs, for runtime expressions.
pub(super) fn header_pairs(headers: &HeaderMap) -> Vec<(String, String)> {
    let text = |value: &HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    headers.iter().map(|(name, value)| (name.as_str().to_owned(), text(value))).collect()
}

/// Builds the result from a part of a response: the outcome of a polled job.
pub(super) fn build_result_from(value: &Value, received: &ReceivedResponse, redactor: &Redactor) -> Result<ToolResult> {
    let raw = to_exact_raw(value).context(Code::Internal, "cannot serialize a result")?;
    let content = vec![text_block(&plain_text(value))];
    let meta = http_meta(received.status, &received.headers, redactor);
    serialize_result(content, Some(structured_content(&raw)), &meta)
}

/// Serialises once; the layout is read from the text.
fn serialize_result(
    content: Vec<Value>,
    structured: Option<StructuredContent<'_>>,
    meta: &Value,
) -> Result<ToolResult> {
    let meta = to_exact_raw(meta).context(Code::Internal, "cannot serialize a result")?;
    let result = CallResult { content, structured, meta };
    let raw = to_raw_value(&result).context(Code::Internal, "cannot serialize a result")?;
    ToolResult::parse(raw).ok_or_else(|| Error::new(Code::Internal, "internal error: a result is not an object"))
}

fn structured_content(raw: &RawValue) -> StructuredContent<'_> {
    if raw.get().starts_with('{') { StructuredContent::Object(raw) } else { StructuredContent::Other { result: raw } }
}

/// Classifies a body by its media type, or by its content if there is none.
pub(super) fn classify_body(kind: &str, body: &[u8]) -> BodyKind {
    let (family, sub) = kind.split_once('/').unwrap_or((kind, ""));
    let textual =
        ["xml", "yaml", "x-yaml", "javascript", "graphql", "sql", "toml", "csv", "jwt", "x-www-form-urlencoded"];
    let json_lines = ["x-ndjson", "ndjson", "jsonl", "x-jsonl", "jsonlines", "json-seq", "problem+xml"];
    match family {
        _ if sub == "json" || sub.ends_with("+json") => BodyKind::Json,
        _ if sub.ends_with("+xml") || sub.ends_with("+yaml") => BodyKind::Text,
        "text" => BodyKind::Text,
        "image" => BodyKind::Image,
        "audio" => BodyKind::Audio,
        "application" if textual.contains(&sub) || json_lines.contains(&sub) => BodyKind::Text,
        // No media type: look at the content.
        "" => match std::str::from_utf8(&json_text(body)) {
            Ok(text) if serde_json::from_str::<&RawValue>(text).is_ok() => BodyKind::Json,
            Ok(text) if !text.contains('\0') => BodyKind::Text,
            Ok(_) | Err(_) => BodyKind::Binary,
        },
        _ => BodyKind::Binary,
    }
}

/// Media type in lower case without parameters; empty if there is none. It is shown in results, hence sanitised.
pub(super) fn media_type(headers: &HeaderMap) -> String {
    let kind = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    sanitize_truncated(kind.split(';').next().unwrap_or_default().trim(), 120).to_ascii_lowercase()
}

/// Decodes UTF-8; a body that is not valid UTF-8 and does not declare it is read as Latin-1.
pub(super) fn decode_body(headers: &HeaderMap, body: &[u8]) -> String {
    let kind = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let kind = kind.to_ascii_lowercase();
    let says_utf8 = kind.contains("charset=utf-8") || kind.contains("charset=\"utf-8");
    let body = json_text(body);
    match std::str::from_utf8(&body) {
        Ok(text) => text.to_owned(),
        Err(_) if says_utf8 => String::from_utf8_lossy(&body).into_owned(),
        Err(_) => body.iter().map(|byte| char::from(*byte)).collect(),
    }
}

/// Text without its byte order mark, as UTF-8 if the mark says that it is UTF-16. .NET services send both.
pub(super) fn json_text(body: &[u8]) -> Cow<'_, [u8]> {
    let from_utf16 = |rest: &[u8], unit: fn([u8; 2]) -> u16| {
        let units = rest.chunks_exact(2).map(|pair| unit([pair[0], pair[1]]));
        let text: String = char::decode_utf16(units).map(|unit| unit.unwrap_or(char::REPLACEMENT_CHARACTER)).collect();
        Cow::Owned(text.into_bytes())
    };
    match body {
        [0xef, 0xbb, 0xbf, rest @ ..] => Cow::Borrowed(rest),
        [0xff, 0xfe, rest @ ..] => from_utf16(rest, u16::from_le_bytes),
        [0xfe, 0xff, rest @ ..] => from_utf16(rest, u16::from_be_bytes),
        _ => Cow::Borrowed(body),
    }
}

/// Parses a body as JSON; integers keep all digits. `None` if it is not JSON.
pub(super) fn parse_json(body: &[u8]) -> Option<Value> {
    parse_exact(std::str::from_utf8(&json_text(body)).ok()?).ok()
}

/// Whether the body still has a content encoding: one that was not requested and cannot be decoded.
fn is_encoded(headers: &HeaderMap) -> bool {
    ContentEncoding::from_headers(headers) != ContentEncoding::Identity
}

fn text_block(text: &str) -> Value {
    json!({ "type": "text", "text": text })
}

fn media_block(block: &str, kind: &str, body: &[u8]) -> Value {
    json!({ "type": block, "data": STANDARD.encode(body), "mimeType": kind })
}

/// Text that describes binary content, and a resource block. Whether a client gets a large one in its result is decided
/// by the caller.
fn describe_binary(received: &ReceivedResponse, kind: &str) -> Vec<Value> {
    let kind = if kind.is_empty() { "application/octet-stream" } else { kind };
    let encodings = received.headers.get_all(CONTENT_ENCODING).iter();
    let encoding: Vec<_> = encodings.map(|value| String::from_utf8_lossy(value.as_bytes())).collect();
    let encoded = if is_encoded(&received.headers) {
        format!(" encoded as `{}`", sanitize_truncated(&encoding.join(", "), 40))
    } else {
        String::new()
    };
    let size = received.body.len();
    let text = format!("{} with binary content: `{kind}`{encoded}, {size} bytes", received.status);
    let blob = STANDARD.encode(&received.body);
    let resource = json!({ "uri": &received.shown_url, "mimeType": kind, "blob": blob });
    vec![text_block(&text), json!({ "type": "resource", "resource": resource })]
}

/// `_meta` with status and headers, which a result has no other place for: pagination links, rate limits, request ids.
fn http_meta(status: StatusCode, headers: &HeaderMap, redactor: &Redactor) -> Value {
    let mut meta = json!({ HTTP_KEY: { "status": status.as_u16(), "headers": reported_headers(headers) } });
    // Links may repeat credentials of the request.
    redactor.redact_value(&mut meta);
    meta
}

/// Reported headers of a response, bounded in number and length.
pub(super) fn reported_headers(headers: &HeaderMap) -> Value {
    // Repeated headers are joined, as RFC 9110 permits for lists.
    let mut reported = Map::new();
    for name in headers.keys().filter(|name| is_reported_header(name.as_str())).take(MAX_REPORTED_HEADERS) {
        let values: Vec<_> =
            headers.get_all(name).iter().map(|value| String::from_utf8_lossy(value.as_bytes())).collect();
        reported.insert(name.as_str().to_owned(), sanitize_truncated(&values.join(", "), MAX_HEADER_CHARS).into());
    }
    Value::Object(reported)
}

fn is_reported_header(name: &str) -> bool {
    REPORTED_HEADERS.contains(&name) || REPORTED_HEADER_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

#[cfg(test)]
mod tests;
