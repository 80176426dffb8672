//! Where a piece of work belongs among what others do: W3C trace context, read from who asks and told to who is asked.
//! What is not valid counts as absent.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use http::{HeaderMap, HeaderName, HeaderValue};
use serde_json::value::{RawValue, to_raw_value};
use toolcrib_core::json::RawFields;

/// The names are the same in HTTP headers and in `_meta` of MCP.
const TRACEPARENT: &str = "traceparent";
const TRACESTATE: &str = "tracestate";
/// What is longer may be dropped, says the specification.
const MAX_TRACESTATE_LEN: usize = 512;
const SAMPLED_FLAG: u8 = 1;
/// Sampled, and whether the id is random; what the other bits mean is not known yet.
const KNOWN_FLAGS: u8 = 3;

/// One piece of work in a trace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trace {
    id: u128,
    span_id: u64,
    flags: u8,
    state: Option<Arc<str>>,
    propagation: Propagation,
}

/// Who learns of a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Propagation {
    /// Our own log.
    LogOnly,
    /// Those who are asked, too: somebody told us of it, or it is exported.
    Upstream,
}

/// The id of a trace, as it is written everywhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceId(pub u128);

impl Trace {
    /// One that ties our own log together, and is told to nobody.
    pub fn log_only() -> Trace {
        Trace {
            id: random_trace_id(),
            span_id: random_span_id(),
            flags: 0,
            state: None,
            propagation: Propagation::LogOnly,
        }
    }

    /// The beginning of one that is exported, if it is sampled.
    pub fn start(sampled: bool) -> Trace {
        let flags = if sampled { KNOWN_FLAGS } else { KNOWN_FLAGS & !SAMPLED_FLAG };
        Trace { flags, propagation: Propagation::Upstream, ..Trace::log_only() }
    }

    /// From `traceparent`, and `tracestate` where that is fit to be passed on.
    pub fn parse(parent: &str, state: Option<&str>) -> Option<Trace> {
        let parts: Vec<&str> = parent.splitn(5, '-').collect();
        let [version, id, span, flags, ref rest @ ..] = *parts else { return None };
        // A version to come may have more to say.
        let whole = rest.is_empty() || version != "00";
        let (id, span, flags) = (parse_hex(id, 32)?, parse_hex(span, 16)?, parse_hex(flags, 2)?);
        if !whole || parse_hex(version, 2)? == 0xff || id == 0 || span == 0 {
            return None;
        }
        let fit =
            |state: &&str| state.len() <= MAX_TRACESTATE_LEN && state.bytes().all(|byte| (0x20..0x7f).contains(&byte));
        Some(Trace {
            id,
            span_id: u64::try_from(span).ok()?,
            flags: u8::try_from(flags).ok()? & KNOWN_FLAGS,
            state: state.map(str::trim).filter(fit).filter(|state| !state.is_empty()).map(Arc::from),
            propagation: Propagation::Upstream,
        })
    }

    pub fn from_headers(headers: &HeaderMap) -> Option<Trace> {
        let mut parents = headers.get_all(TRACEPARENT).iter();
        let (parent, None) = (parents.next()?, parents.next()) else { return None };
        let states: Vec<&str> = headers.get_all(TRACESTATE).iter().filter_map(|state| state.to_str().ok()).collect();
        Trace::parse(parent.to_str().ok()?.trim(), Some(&states.join(",")))
    }

    /// From the `_meta` of a request of MCP.
    pub fn from_meta(meta: &RawValue) -> Option<Trace> {
        if !meta.get().contains(TRACEPARENT) {
            return None;
        }
        let fields = RawFields::parse(meta)?;
        let text = |key: &str| serde_json::from_str::<String>(fields.get(key)?.get()).ok();
        Trace::parse(text(TRACEPARENT)?.trim(), text(TRACESTATE).as_deref())
    }

    /// Work that is part of this.
    pub fn child(&self) -> Trace {
        Trace { span_id: random_span_id(), ..self.clone() }
    }

    pub fn id(&self) -> TraceId {
        TraceId(self.id)
    }

    pub fn span_id(&self) -> u64 {
        self.span_id
    }

    pub fn is_sampled(&self) -> bool {
        self.flags & SAMPLED_FLAG != 0
    }

    #[must_use]
    pub fn with_sampled(mut self, sampled: bool) -> Trace {
        self.flags = if sampled { self.flags | SAMPLED_FLAG } else { self.flags & !SAMPLED_FLAG };
        self
    }

    pub fn state(&self) -> Option<&str> {
        self.state.as_deref()
    }

    /// What those who are asked are told, by its names.
    pub(crate) fn propagated_fields(&self) -> Vec<(&'static str, String)> {
        match self.propagation {
            Propagation::LogOnly => Vec::new(),
            Propagation::Upstream => {
                let state = self.state.as_deref().map(|state| (TRACESTATE, state.to_owned()));
                [(TRACEPARENT, self.to_string())].into_iter().chain(state).collect()
            }
        }
    }

    /// The same as the `_meta` of a request of MCP; none when there is nothing to tell.
    pub(crate) fn to_meta(&self) -> Option<Box<RawValue>> {
        let told: BTreeMap<&str, String> = self.propagated_fields().into_iter().collect();
        if told.is_empty() { None } else { to_raw_value(&told).ok() }
    }

    /// Adds what an HTTP server is told, unless the request says it already.
    pub(crate) fn add_to_headers(&self, headers: &mut HeaderMap) {
        if headers.contains_key(TRACEPARENT) {
            return;
        }
        headers.remove(TRACESTATE);
        for (name, value) in self.propagated_fields() {
            if let Ok(value) = HeaderValue::try_from(value) {
                headers.insert(HeaderName::from_static(name), value);
            }
        }
    }
}

/// As `traceparent` has it.
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

fn parse_hex(text: &str, length: usize) -> Option<u128> {
    let lower = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    let well = text.len() == length && text.bytes().all(lower);
    well.then(|| u128::from_str_radix(text, 16).ok())?
}

fn random_trace_id() -> u128 {
    rand::random::<u128>().max(1)
}

fn random_span_id() -> u64 {
    rand::random::<u64>().max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const VALID_TRACEPARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn only_what_is_valid_is_taken() {
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
    fn a_child_is_told_with_the_trace_and_a_span_of_its_own() {
        let parent = Trace::parse(VALID_TRACEPARENT, Some("rojo=1")).unwrap();
        assert_eq!(parent.to_string(), VALID_TRACEPARENT);
        let mut headers = HeaderMap::new();
        parent.child().add_to_headers(&mut headers);
        let told = Trace::from_headers(&headers).unwrap();
        assert_eq!((told.id(), told.state(), told.is_sampled()), (parent.id(), Some("rojo=1"), true));
        assert_ne!(told.span_id(), parent.span_id());

        let mut none = HeaderMap::new();
        Trace::log_only().child().add_to_headers(&mut none);
        assert!(none.is_empty(), "what is for our log alone is told to nobody");
        let odd = Trace::parse(VALID_TRACEPARENT, Some("a=\u{7}")).unwrap();
        assert_eq!(odd.state(), None);
    }

    #[test]
    fn what_mcp_carries_is_read_from_meta() {
        let meta = |text: &str| RawValue::from_string(text.to_owned()).unwrap();
        let found =
            Trace::from_meta(&meta(&format!(r#"{{"x":1,"traceparent":"{VALID_TRACEPARENT}","tracestate":"a=b"}}"#)));
        assert_eq!(found, Trace::parse(VALID_TRACEPARENT, Some("a=b")));
        for odd in [r#"{"traceparent":5}"#, r#"{"traceparent":"junk"}"#, r#""traceparent""#, "{}"] {
            assert_eq!(Trace::from_meta(&meta(odd)), None, "{odd}");
        }
    }
}
