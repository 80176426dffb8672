//! W3C trace context: parsed from incoming requests (HTTP headers, MCP `_meta`), and propagated to sources. Invalid
//! values count as absent.
//!
//! ```text
//! traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01
//!              version-trace id-span id-flags (01: sampled)
//! tracestate:  vendor=value,… (passed on unchanged)
//! ```
//!
//! Each call and discovery is a span of its own: the source receives its id as parent, within the trace of the client.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use http::{HeaderMap, HeaderName, HeaderValue};
use serde_json::value::{RawValue, to_raw_value};
use toolcrib_core::json::RawFields;

/// Names of the fields, the same in HTTP headers and in MCP's `_meta`.
const TRACEPARENT: &str = "traceparent";
const TRACESTATE: &str = "tracestate";
/// Maximum length of `tracestate`; the specification requires to propagate at least 512 characters.
const MAX_TRACESTATE_LEN: usize = 512;
/// Flag: the trace is sampled.
const SAMPLED_FLAG: u8 = 1;
/// Flags of the specification: sampled, and random trace id. Other bits are reserved. Reserved bits are not passed on,
/// as the specification demands.
const KNOWN_FLAGS: u8 = 3;

/// A span within a trace: trace id, span id and flags.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trace {
    id: u128,
    span_id: u64,
    flags: u8,
    /// `tracestate` of the parent.
    state: Option<Arc<str>>,
    propagation: Propagation,
}

/// Destination of a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Propagation {
    /// To the log only.
    LogOnly,
    /// To sources too: the trace came from a client, or is exported.
    Upstream,
}

/// Whether the spans of a trace are exported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sampling {
    /// They are, here and by the sources that receive the trace.
    Sampled,
    /// They are not; the trace is propagated all the same.
    NotSampled,
}

/// Id of a trace; displays as 32 hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceId(pub u128);

impl Trace {
    /// Starts a trace that only correlates log lines and is not propagated.
    pub fn log_only() -> Trace {
        Trace {
            id: random_trace_id(),
            span_id: random_span_id(),
            flags: 0,
            state: None,
            propagation: Propagation::LogOnly,
        }
    }

    /// Starts a sampled trace that is propagated.
    pub fn start() -> Trace {
        Trace { flags: KNOWN_FLAGS, propagation: Propagation::Upstream, ..Trace::log_only() }
    }

    /// Returns a sampled root span that is propagated, in the trace of the log events of a request.
    pub fn start_within(log: &Trace) -> Trace {
        Trace { id: log.id, ..Trace::start() }
    }

    /// Whether the trace only correlates log lines: its span is not exported and has no children.
    pub fn is_log_only(&self) -> bool {
        self.propagation == Propagation::LogOnly
    }

    /// Parses `traceparent`, and `tracestate` if it is valid. A malformed `tracestate` is dropped without affecting the
    /// rest.
    pub fn parse(parent: &str, state: Option<&str>) -> Option<Trace> {
        let parts: Vec<&str> = parent.splitn(5, '-').collect();
        let [version, id, span, flags, ref rest @ ..] = *parts else { return None };
        // Later versions may append further fields.
        let has_valid_length = rest.is_empty() || version != "00";
        let id = parse_hex(id, 32)?;
        let span_id = parse_hex(span, 16)?;
        let flags = parse_hex(flags, 2)?;
        if !has_valid_length || parse_hex(version, 2)? == 0xff || id == 0 || span_id == 0 {
            return None;
        }
        let is_valid =
            |state: &&str| state.len() <= MAX_TRACESTATE_LEN && state.bytes().all(|byte| (0x20..0x7f).contains(&byte));
        Some(Trace {
            id,
            span_id: u64::try_from(span_id).ok()?,
            flags: u8::try_from(flags).ok()? & KNOWN_FLAGS,
            state: state.map(str::trim).filter(is_valid).filter(|state| !state.is_empty()).map(Arc::from),
            propagation: Propagation::Upstream,
        })
    }

    /// Parses the headers of a request. Several `traceparent` headers are invalid.
    pub fn from_headers(headers: &HeaderMap) -> Option<Trace> {
        let mut parents = headers.get_all(TRACEPARENT).iter();
        let (parent, None) = (parents.next()?, parents.next()) else { return None };
        let states: Vec<&str> = headers.get_all(TRACESTATE).iter().filter_map(|state| state.to_str().ok()).collect();
        Trace::parse(parent.to_str().ok()?.trim(), Some(&states.join(",")))
    }

    /// Parses the `_meta` of an MCP request.
    pub fn from_meta(meta: &RawValue) -> Option<Trace> {
        // A cheap test first: most requests carry no trace.
        if !meta.get().contains(TRACEPARENT) {
            return None;
        }
        let fields = RawFields::parse(meta)?;
        let text = |key: &str| serde_json::from_str::<String>(fields.get(key)?.get()).ok();
        Trace::parse(text(TRACEPARENT)?.trim(), text(TRACESTATE).as_deref())
    }

    /// Returns a new span within the same trace.
    pub fn child(&self) -> Trace {
        Trace { span_id: random_span_id(), ..self.clone() }
    }

    /// Returns the id of the trace.
    pub fn id(&self) -> TraceId {
        TraceId(self.id)
    }

    /// Returns the id of the span.
    pub fn span_id(&self) -> u64 {
        self.span_id
    }

    /// Whether the trace is sampled.
    pub fn is_sampled(&self) -> bool {
        self.flags & SAMPLED_FLAG != 0
    }

    /// Sets whether the trace is sampled.
    #[must_use]
    pub fn with_sampling(mut self, sampling: Sampling) -> Trace {
        match sampling {
            Sampling::Sampled => self.flags |= SAMPLED_FLAG,
            Sampling::NotSampled => self.flags &= !SAMPLED_FLAG,
        }
        self
    }

    /// Returns the `tracestate`.
    pub fn state(&self) -> Option<&str> {
        self.state.as_deref()
    }

    /// Returns the fields to propagate, by name; empty for a trace of the log only.
    pub fn propagated_fields(&self) -> Vec<(&'static str, String)> {
        match self.propagation {
            Propagation::LogOnly => Vec::new(),
            Propagation::Upstream => {
                let state = self.state.as_deref().map(|state| (TRACESTATE, state.to_owned()));
                [(TRACEPARENT, self.to_string())].into_iter().chain(state).collect()
            }
        }
    }

    /// Returns the fields to propagate as `_meta` of an MCP request; `None` if there are none.
    pub fn to_meta(&self) -> Option<Box<RawValue>> {
        let fields: BTreeMap<&str, String> = self.propagated_fields().into_iter().collect();
        if fields.is_empty() { None } else { to_raw_value(&fields).ok() }
    }

    /// Adds the fields to propagate to HTTP headers, unless there is a `traceparent` already.
    pub fn add_to_headers(&self, headers: &mut HeaderMap) {
        if headers.contains_key(TRACEPARENT) {
            return;
        }
        // A state without its parent would be that of another trace.
        headers.remove(TRACESTATE);
        for (name, value) in self.propagated_fields() {
            if let Ok(value) = HeaderValue::try_from(value) {
                headers.insert(HeaderName::from_static(name), value);
            }
        }
    }
}

/// As the value of `traceparent`.
impl fmt::Display for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "00-{:032x}-{:016x}-{:02x}", self.id, self.span_id, self.flags)
    }
}

impl fmt::Display for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// Parses lower-case hexadecimal digits of an exact length. Upper case is invalid by the specification;
/// `from_str_radix` alone would also accept a sign.
fn parse_hex(text: &str, length: usize) -> Option<u128> {
    let is_lower_hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    let is_valid = text.len() == length && text.bytes().all(is_lower_hex);
    is_valid.then(|| u128::from_str_radix(text, 16).ok())?
}

/// Returns a random trace id; zero is invalid.
fn random_trace_id() -> u128 {
    rand::random::<u128>().max(1)
}

/// Returns a random span id; zero is invalid.
fn random_span_id() -> u64 {
    rand::random::<u64>().max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const VALID_TRACEPARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn only_valid_values_are_accepted() {
        for (parent, expected) in [
            (VALID_TRACEPARENT, true),
            ("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00", true),
            ("cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-what-the-future", true),
            ("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more", false),
            ("ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", false),
            ("00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01", false),
            ("00-00000000000000000000000000000000-b7ad6b7169203331-01", false),
            ("00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01", false),
            ("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331", false),
            ("00-0af7651916cd43dd8448eb211c80319c-b7ad6b71692033-01", false),
            ("00-+af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", false),
            ("", false),
        ] {
            assert_eq!(Trace::parse(parent, None).is_some(), expected, "{parent}");
        }
    }

    #[test]
    fn a_child_is_propagated_with_the_trace_and_its_own_span() {
        let parent = Trace::parse(VALID_TRACEPARENT, Some("rojo=1")).unwrap();
        assert_eq!(parent.to_string(), VALID_TRACEPARENT);
        let mut headers = HeaderMap::new();
        parent.child().add_to_headers(&mut headers);
        let received = Trace::from_headers(&headers).unwrap();
        assert_eq!((received.id(), received.state(), received.is_sampled()), (parent.id(), Some("rojo=1"), true));
        assert_ne!(received.span_id(), parent.span_id());

        let mut none = HeaderMap::new();
        Trace::log_only().child().add_to_headers(&mut none);
        assert!(none.is_empty(), "a trace of the log only is not propagated");
        let odd = Trace::parse(VALID_TRACEPARENT, Some("a=\u{7}")).unwrap();
        assert_eq!(odd.state(), None);
    }

    #[test]
    fn a_trace_is_parsed_from_meta() {
        let meta = |text: &str| RawValue::from_string(text.to_owned()).unwrap();
        let trace =
            Trace::from_meta(&meta(&format!(r#"{{"x":1,"traceparent":"{VALID_TRACEPARENT}","tracestate":"a=b"}}"#)));
        assert_eq!(trace, Trace::parse(VALID_TRACEPARENT, Some("a=b")));
        for odd in [r#"{"traceparent":5}"#, r#"{"traceparent":"junk"}"#, r#""traceparent""#, "{}"] {
            assert_eq!(Trace::from_meta(&meta(odd)), None, "{odd}");
        }
    }
}
