//! Where a piece of work belongs among what others do: W3C trace context, read from who asks and told to who is asked.
//! What is not valid counts as absent.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use http::{HeaderMap, HeaderName, HeaderValue};
use serde_json::value::{RawValue, to_raw_value};
use toolcrib_core::json::Fields;

/// The names are the same in HTTP headers and in `_meta` of MCP.
const PARENT: &str = "traceparent";
const STATE: &str = "tracestate";
/// What is longer may be dropped, says the specification.
const LONGEST_STATE: usize = 512;
const SAMPLED: u8 = 1;
/// Sampled, and whether the id is random; what the other bits mean is not known yet.
const KNOWN_FLAGS: u8 = 3;

/// One piece of work in a trace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trace {
    id: u128,
    span: u64,
    flags: u8,
    state: Option<Arc<str>>,
    reach: Reach,
}

/// Who learns of a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reach {
    /// Our own log.
    Log,
    /// Those who are asked, too: somebody told us of it, or it is exported.
    Upstream,
}

/// The id of a trace, as it is written everywhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceId(pub u128);

impl Trace {
    /// One that ties our own log together, and is told to nobody.
    pub fn quiet() -> Trace {
        Trace { id: nonzero(), span: nonzero_span(), flags: 0, state: None, reach: Reach::Log }
    }

    /// The beginning of one that is exported, if it is sampled.
    pub fn begin(sampled: bool) -> Trace {
        let flags = if sampled { KNOWN_FLAGS } else { KNOWN_FLAGS & !SAMPLED };
        Trace { flags, reach: Reach::Upstream, ..Trace::quiet() }
    }

    /// From `traceparent`, and `tracestate` where that is fit to be passed on.
    pub fn parse(parent: &str, state: Option<&str>) -> Option<Trace> {
        let parts: Vec<&str> = parent.splitn(5, '-').collect();
        let [version, id, span, flags, ref rest @ ..] = *parts else { return None };
        // A version to come may have more to say.
        let whole = rest.is_empty() || version != "00";
        let (id, span, flags) = (hex(id, 32)?, hex(span, 16)?, hex(flags, 2)?);
        if !whole || hex(version, 2)? == 0xff || id == 0 || span == 0 {
            return None;
        }
        let fit = |state: &&str| state.len() <= LONGEST_STATE && state.bytes().all(|byte| (0x20..0x7f).contains(&byte));
        Some(Trace {
            id,
            span: u64::try_from(span).ok()?,
            flags: u8::try_from(flags).ok()? & KNOWN_FLAGS,
            state: state.map(str::trim).filter(fit).filter(|state| !state.is_empty()).map(Arc::from),
            reach: Reach::Upstream,
        })
    }

    pub fn of_headers(headers: &HeaderMap) -> Option<Trace> {
        let mut parents = headers.get_all(PARENT).iter();
        let (parent, None) = (parents.next()?, parents.next()) else { return None };
        let states: Vec<&str> = headers.get_all(STATE).iter().filter_map(|state| state.to_str().ok()).collect();
        Trace::parse(parent.to_str().ok()?.trim(), Some(&states.join(",")))
    }

    /// From the `_meta` of a request of MCP.
    pub fn of_meta(meta: &RawValue) -> Option<Trace> {
        if !meta.get().contains(PARENT) {
            return None;
        }
        let fields = Fields::parse(meta)?;
        let text = |key: &str| serde_json::from_str::<String>(fields.get(key)?.get()).ok();
        Trace::parse(text(PARENT)?.trim(), text(STATE).as_deref())
    }

    /// Work that is part of this.
    pub fn child(&self) -> Trace {
        Trace { span: nonzero_span(), ..self.clone() }
    }

    pub fn id(&self) -> TraceId {
        TraceId(self.id)
    }

    pub fn span(&self) -> u64 {
        self.span
    }

    pub fn sampled(&self) -> bool {
        self.flags & SAMPLED != 0
    }

    #[must_use]
    pub fn with_sampled(mut self, sampled: bool) -> Trace {
        self.flags = if sampled { self.flags | SAMPLED } else { self.flags & !SAMPLED };
        self
    }

    pub fn state(&self) -> Option<&str> {
        self.state.as_deref()
    }

    /// What those who are asked are told, by its names.
    pub(crate) fn told(&self) -> Vec<(&'static str, String)> {
        match self.reach {
            Reach::Log => Vec::new(),
            Reach::Upstream => {
                let state = self.state.as_deref().map(|state| (STATE, state.to_owned()));
                [(PARENT, self.to_string())].into_iter().chain(state).collect()
            }
        }
    }

    /// The same as the `_meta` of a request of MCP; none when there is nothing to tell.
    pub(crate) fn meta(&self) -> Option<Box<RawValue>> {
        let told: BTreeMap<&str, String> = self.told().into_iter().collect();
        if told.is_empty() { None } else { to_raw_value(&told).ok() }
    }

    /// Adds what an HTTP server is told, unless the request says it already.
    pub(crate) fn add_to(&self, headers: &mut HeaderMap) {
        if headers.contains_key(PARENT) {
            return;
        }
        headers.remove(STATE);
        for (name, value) in self.told() {
            if let Ok(value) = HeaderValue::try_from(value) {
                headers.insert(HeaderName::from_static(name), value);
            }
        }
    }
}

/// As `traceparent` has it.
impl fmt::Display for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "00-{:032x}-{:016x}-{:02x}", self.id, self.span, self.flags)
    }
}

impl fmt::Display for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

fn hex(text: &str, length: usize) -> Option<u128> {
    let lower = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    let well = text.len() == length && text.bytes().all(lower);
    well.then(|| u128::from_str_radix(text, 16).ok())?
}

fn nonzero() -> u128 {
    rand::random::<u128>().max(1)
}

fn nonzero_span() -> u64 {
    rand::random::<u64>().max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn only_what_is_valid_is_taken() {
        for (parent, expected) in [
            (GOOD, true),
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
        let parent = Trace::parse(GOOD, Some("rojo=1")).unwrap();
        assert_eq!(parent.to_string(), GOOD);
        let mut headers = HeaderMap::new();
        parent.child().add_to(&mut headers);
        let told = Trace::of_headers(&headers).unwrap();
        assert_eq!((told.id(), told.state(), told.sampled()), (parent.id(), Some("rojo=1"), true));
        assert_ne!(told.span(), parent.span());

        let mut none = HeaderMap::new();
        Trace::quiet().child().add_to(&mut none);
        assert!(none.is_empty(), "what is for our log alone is told to nobody");
        let odd = Trace::parse(GOOD, Some("a=\u{7}")).unwrap();
        assert_eq!(odd.state(), None);
    }

    #[test]
    fn what_mcp_carries_is_read_from_meta() {
        let meta = |text: &str| RawValue::from_string(text.to_owned()).unwrap();
        let found = Trace::of_meta(&meta(&format!(r#"{{"x":1,"traceparent":"{GOOD}","tracestate":"a=b"}}"#)));
        assert_eq!(found, Trace::parse(GOOD, Some("a=b")));
        for odd in [r#"{"traceparent":5}"#, r#"{"traceparent":"junk"}"#, r#""traceparent""#, "{}"] {
            assert_eq!(Trace::of_meta(&meta(odd)), None, "{odd}");
        }
    }
}
