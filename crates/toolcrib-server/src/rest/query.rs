//! What an address says: the parameters of its query and the names in its path. What is written wrongly gets an error
//! that tells what to write; parameters that nobody knows are passed over.

use std::borrow::Cow;
use std::ops::RangeInclusive;

use axum::extract::{FromRequestParts, RawPathParams};
use http::request::Parts;
use toolcrib::core::Timestamp;
use toolcrib::core::text::sanitize_truncated;
use toolcrib::core::time::TimeSpec;
use toolcrib::{Code, Error, Registry, Result, SourceId};

use super::error::ApiError;

/// The parameters of a query, each once.
#[derive(Debug, Default)]
pub(super) struct QueryParams(Vec<(String, String)>);

/// More than any route knows.
const MAX_QUERY_PARAMS: usize = 64;

/// The one name in a path, decoded.
#[derive(Debug)]
pub(super) struct PathParam(pub(super) String);

impl QueryParams {
    pub(super) fn parse(query: &str) -> Result<QueryParams> {
        let mut params: Vec<(String, String)> = Vec::new();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            if params.len() == MAX_QUERY_PARAMS {
                return Err(bad_request(format!("the address has more than {MAX_QUERY_PARAMS} parameters")));
            }
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let (name, value) = (decode_form_value(name)?, decode_form_value(value)?);
            if params.iter().any(|(given, _)| *given == name) {
                return Err(bad_request(format!("`{}` is given twice", sanitize_truncated(&name, 40))));
            }
            params.push((name, value));
        }
        Ok(QueryParams(params))
    }

    /// One that is empty counts as left out.
    pub(super) fn text(&self, name: &str) -> Option<&str> {
        self.value(name).filter(|value| !value.is_empty())
    }

    fn value(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(given, _)| given == name).map(|(_, value)| value.as_str())
    }

    pub(super) fn number(&self, name: &str, range: RangeInclusive<u64>) -> Result<Option<u64>> {
        let Some(text) = self.value(name) else { return Ok(None) };
        let number = text.parse().ok().filter(|number| range.contains(number));
        let (least, most) = (range.start(), range.end());
        let expected = match *most {
            u64::MAX => format!("a whole number from {least} on"),
            most => format!("a whole number from {least} to {most}"),
        };
        number
            .map(Some)
            .ok_or_else(|| bad_request(format!("`{name}` is {expected}, not `{}`", sanitize_truncated(text, 40))))
    }

    pub(super) fn flag(&self, name: &str) -> Result<bool> {
        match self.value(name) {
            None | Some("false" | "0") => Ok(false),
            Some("true" | "1") => Ok(true),
            Some(other) => {
                Err(bad_request(format!("`{name}` is true or false, not `{}`", sanitize_truncated(other, 40))))
            }
        }
    }

    /// A time, or so long before `now`.
    pub(super) fn timestamp(&self, name: &str, now: Timestamp) -> Result<Option<Timestamp>> {
        let Some(text) = self.text(name) else { return Ok(None) };
        let when: TimeSpec =
            text.parse().map_err(|error: Error| bad_request(format!("`{name}`: {}", error.message)))?;
        Ok(Some(when.resolve(now)))
    }

    /// A source that there is.
    pub(super) fn source(&self, registry: &Registry) -> Result<Option<SourceId>> {
        self.text("source").map(|name| find_source_id(registry, name)).transpose()
    }

    /// There are no groups yet; a list that passed over the wish for one would be too long.
    pub(super) fn reject_group(&self) -> Result<()> {
        match self.text("group") {
            None => Ok(()),
            Some(_) => Err(Error::new(Code::NotFound, "there are no groups in this version")),
        }
    }
}

/// An id that exists, from any spelling of it.
pub(crate) fn find_source_id(registry: &Registry, name: &str) -> Result<SourceId> {
    let id = SourceId::from_name(name).ok().filter(|id| registry.source(id).is_some());
    id.ok_or_else(|| registry.unknown_source_error(&sanitize_truncated(name, 80)))
}

fn bad_request(message: String) -> Error {
    Error::new(Code::BadRequest, message)
}

/// `+` is a space; a `%` must be followed by two digits, and all of it must be UTF-8.
fn decode_form_value(text: &str) -> Result<String> {
    let spaced: Cow<'_, str> = if text.contains('+') { text.replace('+', " ").into() } else { text.into() };
    percent_decode(&spaced)
}

fn percent_decode(text: &str) -> Result<String> {
    let malformed =
        || bad_request("the address is written wrongly: `%` needs two hexadecimal digits that give UTF-8".into());
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let mut digit = || rest.next().and_then(|digit| char::from(digit).to_digit(16));
        let (high, low) = (digit().ok_or_else(malformed)?, digit().ok_or_else(malformed)?);
        bytes.push((high * 16 + low) as u8);
    }
    String::from_utf8(bytes).map_err(|_| malformed())
}

impl<S: Sync> FromRequestParts<S> for QueryParams {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<QueryParams, ApiError> {
        Ok(QueryParams::parse(parts.uri.query().unwrap_or_default())?)
    }
}

impl<S: Send + Sync> FromRequestParts<S> for PathParam {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<PathParam, ApiError> {
        let wrong = || bad_request("the name in the address is not UTF-8".into());
        let params = RawPathParams::from_request_parts(parts, state).await.map_err(|_| wrong())?;
        let name = params.iter().next().map(|(_, value)| value.to_owned()).ok_or_else(wrong)?;
        Ok(PathParam(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_is_read_or_refused_with_what_to_write() {
        let params = QueryParams::parse("a=1+2&b=%C3%A4&c&force=true&limit=7&").unwrap();
        assert_eq!((params.text("a"), params.text("b"), params.text("c")), (Some("1 2"), Some("ä"), None));
        assert_eq!((params.flag("force").unwrap(), params.number("limit", 1..=9).unwrap()), (true, Some(7)));
        for (query, says) in [("a=%zz", "two hexadecimal"), ("a=%ff", "UTF-8"), ("a=%", "two"), ("a=1&a=2", "twice")] {
            let error = QueryParams::parse(query).unwrap_err();
            assert!(error.code == Code::BadRequest && error.message.contains(says), "{query}: {}", error.message);
        }
        let many: Vec<String> = (0..=MAX_QUERY_PARAMS).map(|number| format!("p{number}=")).collect();
        assert!(QueryParams::parse(&many[1..].join("&")).is_ok());
        assert!(QueryParams::parse(&many.join("&")).unwrap_err().message.contains("more than 64"));
        for limit in ["0", "10", "-1", "1.5", "x", "99999999999999999999999"] {
            let params = QueryParams::parse(&format!("limit={limit}")).unwrap();
            assert_eq!(params.number("limit", 1..=9).unwrap_err().code, Code::BadRequest, "{limit}");
        }
    }
}
