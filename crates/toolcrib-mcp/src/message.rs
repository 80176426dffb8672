//! JSON-RPC messages, read as borrowed raw JSON and written by hand: what lies deeper than one level is never parsed,
//! so neither depth nor unknown fields nor thirty-digit numbers matter.

use std::{borrow::Cow, fmt};

use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{MapAccess, Visitor},
    ser::SerializeMap,
};
use serde_json::value::{RawValue, to_raw_value};

use crate::error::{RpcError, WireError};

/// What the other side sent.
#[derive(Debug)]
pub(crate) enum IncomingMessage<'a> {
    Response {
        id: u64,
        outcome: Result<&'a RawValue, RpcError>,
    },
    /// An error that names no request: over HTTP it answers the body it came back for.
    ErrorWithoutId(RpcError),
    Request {
        id: &'a RawValue,
        method: Cow<'a, str>,
        params: Option<&'a RawValue>,
    },
    Notification {
        method: Cow<'a, str>,
        params: Option<&'a RawValue>,
    },
}

#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(borrow, default)]
    jsonrpc: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "even_null")]
    id: Option<&'a RawValue>,
    #[serde(borrow, default)]
    method: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    params: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "even_null")]
    result: Option<&'a RawValue>,
    #[serde(borrow, default)]
    error: Option<&'a RawValue>,
}

/// Reads one message; `None` for anything that is none.
pub(crate) fn parse(text: &str) -> Option<IncomingMessage<'_>> {
    let mut envelope: Envelope<'_> = serde_json::from_str(text).ok()?;
    envelope.id = envelope.id.filter(|id| id.get() != "null");
    envelope.classify()
}

/// Reads one message as a server must: what breaks the rules is answered with the error, under the id if it has one.
pub(crate) fn parse_strict(text: &str) -> Result<IncomingMessage<'_>, (Option<&RawValue>, RpcError)> {
    let invalid = |why: &str| RpcError::new(RpcError::INVALID_REQUEST, format!("this is no JSON-RPC message: {why}"));
    let envelope: Envelope<'_> =
        serde_json::from_str(text).map_err(|_| match serde_json::from_str::<&RawValue>(text) {
            Ok(_) => (None, invalid("it is no object, or one of its parts is of the wrong type")),
            Err(error) => (None, RpcError::new(RpcError::PARSE, format!("this is no JSON: {error}"))),
        })?;
    let id = envelope.id.filter(|id| matches!(id.get().as_bytes().first(), Some(b'"' | b'-' | b'0'..=b'9')));
    if envelope.jsonrpc.is_none_or(|version| version.get() != r#""2.0""#) {
        return Err((id, invalid("`jsonrpc` is not `2.0`")));
    }
    if envelope.id.is_some() && id.is_none() && envelope.method.is_some() {
        return Err((None, invalid("an id is a text or a number")));
    }
    if envelope.params.is_some_and(|params| !params.get().starts_with('{')) {
        return Err((id, RpcError::new(RpcError::INVALID_PARAMS, "parameters are an object")));
    }
    envelope.classify().ok_or_else(|| (id, invalid("it is neither request nor notification nor answer")))
}

impl<'a> Envelope<'a> {
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

/// The parts of a batch, as peers of 2025-03-26 may send them; a single message is a batch of one.
pub(crate) fn split_batch(text: &str) -> Vec<&str> {
    let text = text.trim_start_matches('\u{feff}');
    if !text.trim_start().starts_with('[') {
        return vec![text];
    }
    let batch: Vec<&RawValue> = serde_json::from_str(text).unwrap_or_default();
    batch.into_iter().map(RawValue::get).collect()
}

pub(crate) fn encode_request(id: u64, method: &str, params: Option<&RawValue>) -> Result<String, WireError> {
    encode(&OutgoingEnvelope { jsonrpc: "2.0", id: Some(id), method, params })
}

pub(crate) fn encode_notification(method: &str, params: Option<&RawValue>) -> Result<String, WireError> {
    encode(&OutgoingEnvelope { jsonrpc: "2.0", id: None, method, params })
}

pub(crate) fn encode_cancelled(id: u64) -> Result<String, WireError> {
    let params = to_raw(&serde_json::json!({ "requestId": id, "reason": "nobody waits for the answer any more" }))?;
    encode_notification("notifications/cancelled", Some(&params))
}

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

/// A JSON object opened one level deep: its keys in their order, its values untouched.
#[derive(Debug, Default)]
pub(crate) struct RawObject<'a>(Vec<(Cow<'a, str>, Cow<'a, RawValue>)>);

/// A short text, borrowed unless it is written with escapes.
#[derive(Deserialize)]
pub(crate) struct JsonString<'a>(#[serde(borrow)] pub(crate) Cow<'a, str>);

impl<'a> RawObject<'a> {
    /// `None` for anything but an object.
    pub(crate) fn parse(raw: &'a RawValue) -> Option<RawObject<'a>> {
        serde_json::from_str(raw.get()).ok()
    }

    pub(crate) fn get(&self, key: &str) -> Option<&RawValue> {
        self.0.iter().find(|(name, _)| name == key).map(|(_, value)| value.as_ref())
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &RawValue)> {
        self.0.iter().map(|(name, value)| (name.as_ref(), value.as_ref()))
    }

    pub(crate) fn get_string(&self, key: &str) -> Option<String> {
        serde_json::from_str(self.get(key)?.get()).ok()
    }

    pub(crate) fn set(&mut self, key: &'a str, value: Box<RawValue>) {
        self.put(key, Cow::Owned(value));
    }

    pub(crate) fn set_borrowed(&mut self, key: &'a str, value: &'a RawValue) {
        self.put(key, Cow::Borrowed(value));
    }

    fn put(&mut self, key: &'a str, value: Cow<'a, RawValue>) {
        match self.0.iter_mut().find(|(name, _)| name == key) {
            Some((_, old)) => *old = value,
            None => self.0.push((Cow::Borrowed(key), value)),
        }
    }

    /// Of a key given twice, the first; the others go with it.
    pub(crate) fn take(&mut self, key: &str) -> Option<Cow<'a, RawValue>> {
        let position = self.0.iter().position(|(name, _)| name == key)?;
        let (_, value) = self.0.remove(position);
        self.retain(|name| name != key);
        Some(value)
    }

    pub(crate) fn retain(&mut self, keep: impl Fn(&str) -> bool) {
        self.0.retain(|(name, _)| keep(name));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

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

/// Anything as raw JSON.
pub(crate) fn to_raw<T: Serialize + ?Sized>(value: &T) -> Result<Box<RawValue>, WireError> {
    to_raw_value(value).map_err(encode_error)
}

fn encode_error(error: serde_json::Error) -> WireError {
    WireError::Protocol(format!("a message cannot be written as JSON: {error}"))
}

/// Our ids are numbers; some servers send them back as strings.
fn parse_id(id: &RawValue) -> Option<u64> {
    id.get().trim_matches('"').parse().ok()
}

fn parse_error_object(error: &RawValue) -> RpcError {
    let Some(object) = RawObject::parse(error) else {
        return RpcError::new(RpcError::INTERNAL, error.get());
    };
    let code = object.get("code").and_then(|code| code.get().parse().ok()).unwrap_or(RpcError::INTERNAL);
    let message = object.get_string("message").unwrap_or_default();
    RpcError { code, message, data: object.get("data").map(ToOwned::to_owned) }
}

fn even_null<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_of_ten_thousand_levels_is_read() {
        let deep = format!("{}1{}", "[".repeat(10_000), "]".repeat(10_000));
        let text = format!(r#"{{"jsonrpc":"2.0","id":7,"result":{deep},"extra":{deep}}}"#);
        let Some(IncomingMessage::Response { id: 7, outcome: Ok(result) }) = parse(&text) else {
            panic!("not an answer")
        };
        assert_eq!(result.get(), deep);
    }

    #[test]
    fn answers_come_in_all_shapes() {
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
    fn an_object_keeps_order_numbers_and_what_it_does_not_know() {
        let raw = RawValue::from_string(r#"{"z":1,"a":123456789012345678901234567890,"z2":{"b":[ ]}}"#.into()).unwrap();
        let mut object = RawObject::parse(&raw).unwrap();
        object.set("a2", RawValue::from_string("true".into()).unwrap());
        assert_eq!(
            object.to_raw().unwrap().get(),
            r#"{"z":1,"a":123456789012345678901234567890,"z2":{"b":[ ]},"a2":true}"#
        );
    }

    #[test]
    fn a_request_is_one_object() {
        assert_eq!(encode_request(1, "ping", None).unwrap(), r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#);
    }
}
