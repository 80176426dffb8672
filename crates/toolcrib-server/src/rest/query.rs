//! Extractors for query parameters and the path parameter. Malformed values and unknown parameters get an error that
//! tells what is expected.
//!
//! axum's own extractors are not used, because their rejections are plain texts and not error envelopes.

use std::borrow::Cow;
use std::ops::RangeInclusive;

use axum::extract::{FromRequestParts, RawPathParams};
use http::request::Parts;
use toolcrib::catalog::View;
use toolcrib::core::Timestamp;
use toolcrib::core::percent;
use toolcrib::core::principal::ViewNarrowing;
use toolcrib::core::text::{closest_match, sanitize_truncated};
use toolcrib::core::time::TimeSpec;
use toolcrib::registry::SourceView;
use toolcrib::{Code, Error, Principal, Registry, Result, SourceId};

use super::cache::ContentScope;
use super::error::ApiError;

/// Decoded query parameters, each at most once; the values of a repeated `names` are joined with commas.
#[derive(Debug, Default)]
pub(super) struct QueryParams(Vec<(String, String)>);

/// Parameter that may be repeated, because it is a list.
const LIST_PARAM: &str = "names";
/// Maximum number of parameters: far more than any route has. Each is compared with all before it.
const MAX_QUERY_PARAMS: usize = 64;

/// The single parameter of a path, decoded.
#[derive(Debug)]
pub(super) struct PathParam(pub(super) String);

impl QueryParams {
    /// Parses the query of a URI.
    pub(super) fn parse(query: &str) -> Result<QueryParams> {
        let mut params: Vec<(String, String)> = Vec::new();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            if params.len() == MAX_QUERY_PARAMS {
                return Err(bad_request(format!("the URL has more than {MAX_QUERY_PARAMS} query parameters")));
            }
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let name = decode_form_value(name)?;
            let value = decode_form_value(value)?;
            match params.iter_mut().find(|(known, _)| *known == name) {
                None => params.push((name, value)),
                Some((_, values)) if name == LIST_PARAM => *values = format!("{values},{value}"),
                // A proxy might look at one of them and the handler at the other.
                Some(_) => return Err(bad_request(format!("`{}` is given twice", sanitize_truncated(&name, 40)))),
            }
        }
        Ok(QueryParams(params))
    }

    /// Rejects parameters that a route does not have: ignoring a misspelt filter would return what it should leave out.
    pub(super) fn reject_unknown(&self, known: &[String]) -> Result<()> {
        let Some((name, _)) = self.0.iter().find(|(name, _)| !known.contains(name)) else { return Ok(()) };
        let shown = sanitize_truncated(name, 40);
        let known = || known.iter().map(String::as_str);
        let hint = match (closest_match(name, known()), known().next()) {
            (Some(near), _) => format!("did you mean `{near}`?"),
            (None, Some(_)) => {
                format!("known are {}", known().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", "))
            }
            (None, None) => "this route has none".to_owned(),
        };
        Err(bad_request(format!("unknown query parameter `{shown}`; {hint}")))
    }

    /// Returns the entries of a comma-separated list; empty ones are left out.
    pub(super) fn list(&self, name: &str) -> Vec<String> {
        let entries = self.text(name).unwrap_or_default().split(',').map(str::trim);
        entries.filter(|entry| !entry.is_empty()).map(str::to_owned).collect()
    }

    /// Returns a parameter; an empty one counts as missing.
    pub(super) fn text(&self, name: &str) -> Option<&str> {
        self.value(name).filter(|value| !value.is_empty())
    }

    /// Returns a parameter as it was sent, which may be empty.
    pub(super) fn value(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// Parses a whole number within `range`. `None` if the parameter is missing; an empty value is an error.
    pub(super) fn number(&self, name: &str, range: RangeInclusive<u64>) -> Result<Option<u64>> {
        let Some(text) = self.value(name) else { return Ok(None) };
        let number = text.parse().ok().filter(|number| range.contains(number));
        let min = range.start();
        let expected = match *range.end() {
            u64::MAX => format!("a whole number from {min} on"),
            max => format!("a whole number from {min} to {max}"),
        };
        number
            .map(Some)
            .ok_or_else(|| bad_request(format!("`{name}` is {expected}, not `{}`", sanitize_truncated(text, 40))))
    }

    /// Parses a boolean; a missing one is false.
    pub(super) fn flag(&self, name: &str) -> Result<bool> {
        match self.value(name) {
            None | Some("false" | "0") => Ok(false),
            Some("true" | "1") => Ok(true),
            Some(other) => {
                Err(bad_request(format!("`{name}` is true or false, not `{}`", sanitize_truncated(other, 40))))
            }
        }
    }

    /// Parses a point in time, or a duration that is subtracted from `now`.
    pub(super) fn timestamp(&self, name: &str, now: Timestamp) -> Result<Option<Timestamp>> {
        let Some(text) = self.text(name) else { return Ok(None) };
        let time: TimeSpec =
            text.parse().map_err(|error: Error| bad_request(format!("`{name}`: {}", error.message)))?;
        Ok(Some(time.resolve(now)))
    }

    /// Returns the id in the parameter `source`, which must be one that the principal may know of.
    pub(super) fn source(&self, registry: &Registry, principal: &Principal) -> Result<Option<SourceId>> {
        self.text("source").map(|name| find_source_id(registry, principal, name)).transpose()
    }

    /// Narrows a principal to the group in the parameter `group`. A group that the principal does not see is unknown.
    pub(super) fn narrow(&self, registry: &Registry, principal: &Principal) -> Result<Principal> {
        let Some(name) = self.text("group") else { return Ok(principal.clone()) };
        let (rules, scope) = (registry.rules().in_force(), registry.scope(principal));
        if !rules.group(name).is_some_and(|group| scope.allows_endpoint(group)) {
            return Err(Error::new(Code::NotFound, format!("no group named `{}`", sanitize_truncated(name, 80))));
        }
        let narrowing = ViewNarrowing { group: Some(name.to_owned()), ..principal.narrowing().clone() };
        Ok(principal.narrowed(narrowing))
    }

    /// Returns the scope of a list of tools, see [`ContentScope`]. A list of a group is not cached: the cached response of a
    /// group with all tools of the view would be found without the group being looked up, also when it is gone.
    pub(super) fn list_scope(&self, view: &View, source: Option<&SourceId>) -> ContentScope {
        if self.text("group").is_some() { ContentScope::Registry } else { ContentScope::for_list(view, source) }
    }
}

/// Returns the id of a source that the principal may know of, from any spelling that maps to it.
pub(crate) fn find_source_id(registry: &Registry, principal: &Principal, name: &str) -> Result<SourceId> {
    find_source(registry, principal, name).map(|source| source.id)
}

/// Like [`find_source_id`], with the state of the source.
pub(crate) fn find_source(registry: &Registry, principal: &Principal, name: &str) -> Result<SourceView> {
    let source = SourceId::from_name(name).ok().and_then(|id| registry.sources().get_for(principal, &id));
    source.ok_or_else(|| registry.visibility(principal).unknown_source_error(&sanitize_truncated(name, 80)))
}

fn bad_request(message: String) -> Error {
    Error::new(Code::BadRequest, message)
}

/// Decodes a form-encoded name or value strictly: `+` is a space, `%` needs two digits, and the result must be UTF-8.
fn decode_form_value(text: &str) -> Result<String> {
    let spaced: Cow<'_, str> = if text.contains('+') { text.replace('+', " ").into() } else { text.into() };
    percent_decode(&spaced)
}

/// Unlike the usual decoders it does not replace malformed sequences: a name that was changed on the way would be
/// looked up in vain or, worse, name another tool.
fn percent_decode(text: &str) -> Result<String> {
    let malformed =
        "malformed percent-encoding in the URL: `%` needs two hexadecimal digits, and the result must be UTF-8";
    percent::decode_strict(text).map(Cow::into_owned).ok_or_else(|| bad_request(malformed.into()))
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
        let invalid = || bad_request("the name in the path is not UTF-8".into());
        let params = RawPathParams::from_request_parts(parts, state).await.map_err(|_| invalid())?;
        let name = params.iter().next().map(|(_, value)| value.to_owned()).ok_or_else(invalid)?;
        Ok(PathParam(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_is_parsed_or_rejected_with_what_is_expected() {
        let params = QueryParams::parse("a=1+2&b=%C3%A4&c&force=true&limit=7&").unwrap();
        assert_eq!((params.text("a"), params.text("b"), params.text("c")), (Some("1 2"), Some("ä"), None));
        assert_eq!((params.flag("force").unwrap(), params.number("limit", 1..=9).unwrap()), (true, Some(7)));
        for (query, expected) in
            [("a=%zz", "two hexadecimal"), ("a=%ff", "UTF-8"), ("a=%", "two"), ("a=1&a=2", "twice")]
        {
            let error = QueryParams::parse(query).unwrap_err();
            assert!(error.code == Code::BadRequest && error.message.contains(expected), "{query}: {}", error.message);
        }
        let params = QueryParams::parse("names=a,b&names=,c*").unwrap();
        assert_eq!(params.list("names"), ["a", "b", "c*"]);
        let known = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        assert!(params.reject_unknown(&known(&["names"])).is_ok());
        for (names, expected) in [
            (&["name", "limit"][..], "unknown query parameter `names`; did you mean `name`?"),
            (&["limit", "cursor"], "unknown query parameter `names`; known are `limit`, `cursor`"),
            (&[], "unknown query parameter `names`; this route has none"),
        ] {
            assert_eq!(params.reject_unknown(&known(names)).unwrap_err().message, expected);
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
