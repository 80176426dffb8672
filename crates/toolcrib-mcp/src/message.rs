//! JSON-RPC messages as borrowed raw JSON. Only the first level is parsed, so that deep values, unknown fields and
//! thirty-digit numbers pass through unchanged.
//!
//! There are four kinds of messages, told apart by their fields:
//!
//! ```json
//! {"jsonrpc":"2.0","id":7,"method":"tools/call","params":{}}
//! {"jsonrpc":"2.0","method":"notifications/progress","params":{}}
//! {"jsonrpc":"2.0","id":7,"result":{}}
//! {"jsonrpc":"2.0","id":7,"error":{"code":-32602,"message":"…"}}
//! ```
//!
//! A request, a notification (no id), a response with a result and one with an error. Clients parse leniently
//! ([`parse`]), because real servers deviate; servers parse strictly ([`parse_strict`]), because a rejection tells the
//! author of a client about the mistake.

use std::{borrow::Cow, fmt};

use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{MapAccess, Visitor},
    ser::SerializeMap,
};
use serde_json::value::{RawValue, to_raw_value};

use crate::error::{RpcError, WireError};

/// A received message, borrowed from its text.
#[derive(Debug)]
pub(crate) enum IncomingMessage<'a> {
    /// The response to a request of this process, whose ids are numbers.
    Response { id: u64, outcome: Result<&'a RawValue, RpcError> },
    /// An error without a request id. Over HTTP it answers the request whose response it is.
    ErrorWithoutId(RpcError),
    /// The id is raw JSON, because the response must repeat it exactly: `1`, `1.0` and `"1"` are different texts.
    Request { id: &'a RawValue, method: Cow<'a, str>, params: Option<&'a RawValue> },
    /// A message without an id, which gets no response.
    Notification { method: Cow<'a, str>, params: Option<&'a RawValue> },
}

/// All fields that a JSON-RPC message may have. Two of them may be `null`, which differs from absent: the id of an
/// error that names no request, and a result without content.
#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(borrow, default)]
    jsonrpc: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "deserialize_nullable")]
    id: Option<&'a RawValue>,
    #[serde(borrow, default)]
    method: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    params: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "deserialize_nullable")]
    result: Option<&'a RawValue>,
    #[serde(borrow, default)]
    error: Option<&'a RawValue>,
}

/// Parses one message leniently, as clients do: real servers omit `jsonrpc` or send ids as strings. Returns `None` for
/// anything that is not a message.
pub(crate) fn parse(text: &str) -> Option<IncomingMessage<'_>> {
    let mut envelope: Envelope<'_> = serde_json::from_str(text).ok()?;
    // An id of `null` names no request. With a method such a message is a notification, with an error one without an
    // id.
    envelope.id = envelope.id.filter(|id| id.get() != "null");
    envelope.classify()
}

/// Parses one message strictly, as servers do. The error is the response to an invalid message, under its id if it has
/// a valid one.
pub(crate) fn parse_strict(text: &str) -> Result<IncomingMessage<'_>, (Option<&RawValue>, RpcError)> {
    let invalid = |why: &str| RpcError::new(RpcError::INVALID_REQUEST, format!("not a JSON-RPC message: {why}"));
    let envelope: Envelope<'_> =
        // The second parse tells malformed JSON from valid JSON of another shape; the two have different codes.
        serde_json::from_str(text).map_err(|_| match serde_json::from_str::<&RawValue>(text) {
            Ok(_) => (None, invalid("it is not an object, or one of its fields has the wrong type")),
            Err(error) => (None, RpcError::new(RpcError::PARSE, format!("not JSON: {error}"))),
        })?;
    // MCP allows a string or a number. Any other id is not repeated in the error response.
    let id = envelope.id.filter(|id| matches!(id.get().as_bytes().first(), Some(b'"' | b'-' | b'0'..=b'9')));
    if envelope.jsonrpc.is_none_or(|version| version.get() != r#""2.0""#) {
        return Err((id, invalid("`jsonrpc` is not `2.0`")));
    }
    if envelope.id.is_some() && id.is_none() && envelope.method.is_some() {
        return Err((None, invalid("`id` must be a string or a number")));
    }
    if envelope.params.is_some_and(|params| !params.get().starts_with('{')) {
        return Err((id, RpcError::new(RpcError::INVALID_PARAMS, "`params` must be an object")));
    }
    envelope.classify().ok_or_else(|| (id, invalid("it is neither a request nor a notification nor a response")))
}

impl<'a> Envelope<'a> {
    /// Determines the kind of message from the fields that are present. A method takes precedence, then an error; a
    /// result without a usable id answers no request and is no message.
    fn classify(self) -> Option<IncomingMessage<'a>> {
        match self {
            Envelope { method: Some(method), id: Some(id), params, .. } => {
                Some(IncomingMessage::Request { id, method, params })
            }
            Envelope { method: Some(method), id: None, params, .. } => {
                Some(IncomingMessage::Notification { method, params })
            }
            Envelope { error: Some(error), id, .. } => Some(match id.and_then(parse_id) {
                Some(id) => IncomingMessage::Response { id, outcome: Err(parse_error_object(error)) },
                None => IncomingMessage::ErrorWithoutId(parse_error_object(error)),
            }),
            Envelope { result: Some(result), id, .. } => {
                Some(IncomingMessage::Response { id: id.and_then(parse_id)?, outcome: Ok(result) })
            }
            Envelope { .. } => None,
        }
    }
}

/// Splits a batch, which peers up to 2025-03-26 may send, into its messages. A single message is a batch of one.
pub(crate) fn split_batch(text: &str) -> Vec<&str> {
    // A server may write a byte order mark first.
    let text = text.trim_start_matches('\u{feff}');
    if !text.trim_start().starts_with('[') {
        return vec![text];
    }
    // A malformed batch has no messages; the caller decides whether that is an error.
    let batch: Vec<&RawValue> = serde_json::from_str(text).unwrap_or_default();
    batch.into_iter().map(RawValue::get).collect()
}

/// Encodes a request. `params` are inserted as they are, so the text may contain line breaks between tokens; transports
/// that need one line replace them.
pub(crate) fn encode_request(id: u64, method: &str, params: Option<&RawValue>) -> Result<String, WireError> {
    encode(&OutgoingEnvelope { jsonrpc: "2.0", id: Some(id), method, params })
}

/// Encodes a notification.
pub(crate) fn encode_notification(method: &str, params: Option<&RawValue>) -> Result<String, WireError> {
    encode(&OutgoingEnvelope { jsonrpc: "2.0", id: None, method, params })
}

/// Encodes `notifications/cancelled` for our request `id`.
pub(crate) fn encode_cancelled(id: u64, reason: Option<&str>) -> Result<String, WireError> {
    let reason = reason.unwrap_or("the response is no longer awaited");
    let params = to_raw(&serde_json::json!({ "requestId": id, "reason": reason }))?;
    encode_notification("notifications/cancelled", Some(&params))
}

/// Encodes the response to the peer's request `id`, which is sent back exactly as it came.
pub(crate) fn encode_response(id: &RawValue, outcome: &Result<Box<RawValue>, RpcError>) -> Result<String, WireError> {
    #[derive(Serialize)]
    struct ResponseEnvelope<'a> {
        jsonrpc: &'static str,
        id: &'a RawValue,
        #[serde(skip_serializing_if = "Option::is_none")]
        result: Option<&'a RawValue>,
        #[serde(skip_serializing_if = "Option::is_none")]
        error: Option<ErrorObject<'a>>,
    }
    #[derive(Serialize)]
    struct ErrorObject<'a> {
        code: i64,
        message: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        data: Option<&'a RawValue>,
    }
    let (result, error) = match outcome {
        Ok(result) => (Some(result.as_ref()), None),
        Err(error) => {
            (None, Some(ErrorObject { code: error.code, message: &error.message, data: error.data.as_deref() }))
        }
    };
    serde_json::to_string(&ResponseEnvelope { jsonrpc: "2.0", id, result, error }).map_err(encode_error)
}

/// A request, or without an id a notification.
#[derive(Serialize)]
struct OutgoingEnvelope<'a> {
    jsonrpc: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<u64>,
    method: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    params: Option<&'a RawValue>,
}

fn encode(outgoing: &OutgoingEnvelope<'_>) -> Result<String, WireError> {
    serde_json::to_string(outgoing).map_err(encode_error)
}

/// A JSON object parsed one level deep: keys in their order, values as raw JSON. Lookups are linear, since the objects
/// of the protocol have a handful of keys.
#[derive(Debug, Default)]
pub(crate) struct RawObject<'a>(Vec<(Cow<'a, str>, Cow<'a, RawValue>)>);

/// A string, borrowed unless it contains escapes. serde borrows a plain `Cow<str>` field only with this attribute. A
/// wrapper also borrows where no attribute can be placed, such as for the keys of a map.
#[derive(Deserialize)]
pub(crate) struct JsonString<'a>(#[serde(borrow)] pub(crate) Cow<'a, str>);

impl<'a> RawObject<'a> {
    /// Parses an object; `None` for any other value.
    pub(crate) fn parse(raw: &'a RawValue) -> Option<RawObject<'a>> {
        serde_json::from_str(raw.get()).ok()
    }

    /// Returns the value of a key; the first one if the key occurs twice.
    pub(crate) fn get(&self, key: &str) -> Option<&RawValue> {
        self.0.iter().find(|(name, _)| name == key).map(|(_, value)| value.as_ref())
    }

    /// Iterates over the entries in their order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &RawValue)> {
        self.0.iter().map(|(name, value)| (name.as_ref(), value.as_ref()))
    }

    /// Returns a value decoded as a string; `None` if it is absent or of another type.
    pub(crate) fn get_string(&self, key: &str) -> Option<String> {
        serde_json::from_str(self.get(key)?.get()).ok()
    }

    /// Sets a key, in its old position if it exists.
    pub(crate) fn set(&mut self, key: &'a str, value: Box<RawValue>) {
        self.put(key, Cow::Owned(value));
    }

    /// Like [`RawObject::set`], without copying the value.
    pub(crate) fn set_borrowed(&mut self, key: &'a str, value: &'a RawValue) {
        self.put(key, Cow::Borrowed(value));
    }

    fn put(&mut self, key: &'a str, value: Cow<'a, RawValue>) {
        match self.0.iter_mut().find(|(name, _)| name == key) {
            Some((_, old)) => *old = value,
            None => self.0.push((Cow::Borrowed(key), value)),
        }
    }

    /// Removes a key and returns its value; of a key that occurs twice, all are removed and the first is returned.
    pub(crate) fn take(&mut self, key: &str) -> Option<Cow<'a, RawValue>> {
        let position = self.0.iter().position(|(name, _)| name == key)?;
        let (_, value) = self.0.remove(position);
        self.retain(|name| name != key);
        Some(value)
    }

    /// Keeps only the keys for which `keep` returns `true`.
    pub(crate) fn retain(&mut self, keep: impl Fn(&str) -> bool) {
        self.0.retain(|(name, _)| keep(name));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Encodes the object again.
    pub(crate) fn to_raw(&self) -> Result<Box<RawValue>, WireError> {
        to_raw(self)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for RawObject<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct EntriesVisitor;
        impl<'de> Visitor<'de> for EntriesVisitor {
            type Value = Vec<(Cow<'de, str>, Cow<'de, RawValue>)>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Self::Value, M::Error> {
                // Room for the keys of a typical tool or call without growing.
                let mut entries = Vec::with_capacity(8);
                while let Some((JsonString(key), value)) = map.next_entry::<JsonString<'de>, &'de RawValue>()? {
                    entries.push((key, Cow::Borrowed(value)));
                }
                Ok(entries)
            }
        }
        deserializer.deserialize_map(EntriesVisitor).map(RawObject)
    }
}

impl Serialize for RawObject<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (key, value) in &self.0 {
            map.serialize_entry(key, value.as_ref())?;
        }
        map.end()
    }
}

/// Returns `{}`.
pub(crate) fn empty_object() -> Box<RawValue> {
    RawValue::from_string("{}".to_owned()).unwrap_or_default()
}

/// Makes a message one line of a byte stream. Raw JSON may contain line breaks between tokens (never inside them); a
/// space is equivalent there.
pub(crate) fn to_line(text: String) -> Vec<u8> {
    let mut bytes = text.into_bytes();
    for byte in &mut bytes {
        if matches!(byte, b'\n' | b'\r') {
            *byte = b' ';
        }
    }
    bytes.push(b'\n');
    bytes
}

/// Encodes any value as raw JSON.
pub(crate) fn to_raw<T: Serialize + ?Sized>(value: &T) -> Result<Box<RawValue>, WireError> {
    to_raw_value(value).map_err(encode_error)
}

fn encode_error(error: serde_json::Error) -> WireError {
    WireError::Protocol(format!("a message cannot be encoded as JSON: {error}"))
}

/// Parses the id of a response. Our ids are numbers; some servers send them back as strings.
fn parse_id(id: &RawValue) -> Option<u64> {
    // A fraction, a negative number or other text is no id of this process. A result with such an id is ignored; an
    // error with one becomes `ErrorWithoutId`, which over HTTP answers the POST.
    id.get().trim_matches('"').parse().ok()
}

/// Parses an error object leniently: whatever it is, the request it answers has failed.
fn parse_error_object(error: &RawValue) -> RpcError {
    let Some(object) = RawObject::parse(error) else {
        // Some servers send a plain string.
        return RpcError::new(RpcError::INTERNAL, error.get());
    };
    let code = object.get("code").and_then(|code| code.get().parse().ok()).unwrap_or(RpcError::INTERNAL);
    let message = object.get_string("message").unwrap_or_default();
    RpcError { code, message, data: object.get("data").map(ToOwned::to_owned) }
}

/// Deserializes a present field into `Some`, also when it is `null`, which serde would map to `None`.
fn deserialize_nullable<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_response_of_ten_thousand_levels_is_parsed() {
        let deep = format!("{}1{}", "[".repeat(10_000), "]".repeat(10_000));
        let text = format!(r#"{{"jsonrpc":"2.0","id":7,"result":{deep},"extra":{deep}}}"#);
        let Some(IncomingMessage::Response { id: 7, outcome: Ok(result) }) = parse(&text) else {
            panic!("not a response")
        };
        assert_eq!(result.get(), deep);
    }

    #[test]
    fn irregular_messages_are_parsed() {
        assert!(matches!(
            parse(r#"{"id":"7","result":null}"#),
            Some(IncomingMessage::Response { id: 7, outcome: Ok(_) })
        ));
        assert!(matches!(
            parse(r#"{"id":null,"error":{"code":-1,"message":"no"}}"#),
            Some(IncomingMessage::ErrorWithoutId(_))
        ));
        assert!(matches!(parse(r#"{"id":"x","method":"ping"}"#), Some(IncomingMessage::Request { .. })));
        assert!(matches!(parse(r#"{"method":"a/b"}"#), Some(IncomingMessage::Notification { .. })));
        assert!(parse("Server started").is_none());
        assert!(parse("42").is_none());
        assert_eq!(split_batch(r#"[{"id":1},{"id":2}]"#), [r#"{"id":1}"#, r#"{"id":2}"#]);
    }

    #[test]
    fn an_object_keeps_order_numbers_and_unknown_keys() {
        let raw = RawValue::from_string(r#"{"z":1,"a":123456789012345678901234567890,"z2":{"b":[ ]}}"#.into()).unwrap();
        let mut object = RawObject::parse(&raw).unwrap();
        object.set("a2", RawValue::from_string("true".into()).unwrap());
        assert_eq!(
            object.to_raw().unwrap().get(),
            r#"{"z":1,"a":123456789012345678901234567890,"z2":{"b":[ ]},"a2":true}"#
        );
    }

    #[test]
    fn a_request_without_params_has_no_params_field() {
        assert_eq!(encode_request(1, "ping", None).unwrap(), r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#);
    }
}
