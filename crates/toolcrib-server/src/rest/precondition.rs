//! `If-Match`: a change is refused with 412 when the thing has changed since the client read it. Checked in the write of the
//! change, so of two clients with the same tag one is refused, whichever process they ask.
//!
//! ```text
//! GET /api/sources/docs                         → ETag: "0af7…"
//! PATCH /api/sources/docs, If-Match: "0af7…"    → 200, or 412 CONFLICT
//! ```

use axum::extract::FromRequestParts;
use axum::http::{HeaderValue, header};
use http::request::Parts;
use serde_json::{Value, json};
use toolcrib::config::rule_to_json;
use toolcrib::core::access::Role;
use toolcrib::core::access_rules::{NamedRule, RuleKind};
use toolcrib::core::fingerprint::Fingerprint;
use toolcrib::core::inventory::{Inventory, Origin};
use toolcrib::core::principal::Claims;
use toolcrib::registry::{SourceView, TokenView, ToolView};
use toolcrib::{Code, Error, Registry, Result, SourceId};

use super::error::ApiError;
use super::response::make_etag;

/// The `If-Match` headers of a request.
#[derive(Debug, Default)]
pub(crate) struct IfMatch(Vec<HeaderValue>);

impl IfMatch {
    /// Whether the request has no such header.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Fails with `CONFLICT` (412) if the headers list neither the current tag nor `*`. `what` names the thing in the
    /// message. Weak tags never match, as RFC 9110 demands for changes.
    pub(super) fn check(&self, current: &HeaderValue, what: &str) -> Result<()> {
        if self.accepts(|tag| tag == current.as_bytes()) {
            return Ok(());
        }
        Err(changed_error(what, json!({ "if_match": true, "etag": current.to_str().unwrap_or_default() })))
    }

    /// Whether there are no headers, or they list `*` or a tag that `is_current` accepts.
    fn accepts(&self, is_current: impl Fn(&[u8]) -> bool) -> bool {
        let tags = self.0.iter().flat_map(|value| value.as_bytes().split(|byte| *byte == b','));
        self.0.is_empty() || tags.map(<[u8]>::trim_ascii).any(|tag| tag == b"*" || is_current(tag))
    }
}

/// Error for a thing that has changed since the client read it, without its current tag.
pub(super) fn concurrent_change_error(what: &str) -> Error {
    changed_error(what, json!({ "if_match": true }))
}

fn changed_error(what: &str, details: Value) -> Error {
    let message = format!("{what} has changed since it was read (`If-Match`); read it again");
    Error::new(Code::Conflict, message).with_retryable(false).with_details(details)
}

impl<S: Sync> FromRequestParts<S> for IfMatch {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<IfMatch, ApiError> {
        Ok(IfMatch(parts.headers.get_all(header::IF_MATCH).iter().cloned().collect()))
    }
}

/// `If-None-Match: *` of a change: the thing must not exist yet.
#[derive(Debug, Clone, Copy)]
pub(super) struct IfAbsent(bool);

impl<S: Sync> FromRequestParts<S> for IfAbsent {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<IfAbsent, ApiError> {
        Ok(IfAbsent(parts.headers.get_all(header::IF_NONE_MATCH).iter().any(|value| value == "*")))
    }
}

impl IfAbsent {
    /// Fails with `CONFLICT` (412) if the header was sent and there is a group, access rule or policy of this name.
    pub(super) fn check_rule(self, rule: Option<&(NamedRule, Origin)>, kind: RuleKind, name: &str) -> Result<()> {
        if !self.0 || rule.is_none() {
            return Ok(());
        }
        let message = format!("the {} `{name}` exists already (`If-None-Match: *`)", kind.noun());
        Err(Error::new(Code::Conflict, message).with_retryable(false).with_details(json!({ "if_none_match": true })))
    }
}

/// Whether an error says that `If-Match` or `If-None-Match` did not hold.
pub(super) fn is_failed_precondition(error: &Error) -> bool {
    let has = |name: &str| error.details.as_ref().is_some_and(|details| details.get(name).is_some());
    error.code == Code::Conflict && (has("if_match") || has("if_none_match"))
}

/// Tag of a source for `If-Match`: it covers what a client can change, the declaration and whether it is enabled. Tools,
/// freshness and connection change all the time by themselves and would make every change fail.
pub(super) fn source_etag(registry: &Registry, source: &SourceView) -> HeaderValue {
    let declared = declared_source_etag(&registry.inventory(), &source.id);
    // An invalid declaration of the configuration: it changes with its error.
    declared.unwrap_or_else(|| make_etag(format!("{} {:?}", source.id, source.last_error)))
}

/// Tag of a declared source; `None` for another one.
fn declared_source_etag(inventory: &Inventory, id: &SourceId) -> Option<HeaderValue> {
    let state = inventory.source(id)?;
    let (origin, definition) = (state.origin, state.definition);
    Some(make_etag(format!("{id} {origin:?} {definition} {} {:?}", state.enabled, state.switched)))
}

/// Tag of a tool: a digest of what a change concerns, which `If-Match` compares, and one of the response, which has
/// counters that change with every call.
pub(super) fn tool_etag(tool: &ToolView, body: &[u8]) -> HeaderValue {
    let tag = format!("{}{}\"", tool_tag_start(tool), Fingerprint::digest(body).short_hex(32));
    HeaderValue::from_str(&tag).unwrap_or_else(|_| make_etag(body))
}

/// The part of a tool's tag that covers its definition, switch and policy, with the quote before it.
fn tool_tag_start(tool: &ToolView) -> String {
    let ToolView { name, fingerprint, history, policy, .. } = tool;
    let revision = Fingerprint::digest(format!("{name} {fingerprint} {history:?} {policy:?}"));
    format!("\"{}-", revision.short_hex(32))
}

impl IfMatch {
    /// Fails if the definition, switch or policy of a tool has changed since the client read it.
    pub(super) fn check_tool(&self, tool: &ToolView, what: &str) -> Result<()> {
        let start = tool_tag_start(tool);
        let is_current = self.accepts(|tag| tag.starts_with(start.as_bytes()));
        is_current.then_some(()).ok_or_else(|| concurrent_change_error(what))
    }

    /// Fails if a source has changed since the client read it, or does not exist any more.
    pub(super) fn check_source(&self, inventory: &Inventory, id: &SourceId) -> Result<()> {
        let unknown = || Error::new(Code::NotFound, format!("no source named `{id}`"));
        self.check(&declared_source_etag(inventory, id).ok_or_else(unknown)?, &format!("the source `{id}`"))
    }

    /// Fails if a token has changed since the client read it, or does not exist any more.
    pub(super) fn check_token(&self, inventory: &Inventory, id: &str) -> Result<()> {
        let unknown = || Error::new(Code::NotFound, format!("no token with the id `{id}`"));
        let token = inventory.token(id).ok_or_else(unknown)?;
        let etag = make_token_etag(&token.id, token.name(), token.role(), token.groups(), token.claims());
        self.check(&etag, &format!("the token `{}`", token.name()))
    }

    /// Fails if a group, access rule or policy has changed since the client read it, or does not exist any more; `rule` is
    /// the current one.
    pub(super) fn check_rule(&self, rule: Option<&(NamedRule, Origin)>, kind: RuleKind, name: &str) -> Result<()> {
        let what = format!("the {} `{name}`", kind.noun());
        match rule {
            Some((rule, origin)) => self.check(&rule_etag(rule, *origin), &what),
            None if self.is_empty() => Ok(()),
            None => Err(concurrent_change_error(&what)),
        }
    }
}

/// Tag of a group, access rule or policy: it covers the definition. The tools of a group change with their sources.
pub(super) fn rule_etag(rule: &NamedRule, origin: Origin) -> HeaderValue {
    make_etag(json!([rule.kind().as_str(), origin, rule_to_json(rule)]).to_string())
}

/// Tag of a token for `If-Match`: it covers what a client can change. The last use changes all the time by itself.
pub(super) fn token_etag(token: &TokenView) -> HeaderValue {
    make_token_etag(&token.id, &token.name, token.role, &token.groups, &token.claims)
}

fn make_token_etag(id: &str, name: &str, role: Role, groups: &[String], claims: &Claims) -> HeaderValue {
    make_etag(json!([id, name, role, groups, claims]).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_needs_the_current_tag_or_any() {
        let etag = make_etag("x");
        let text = etag.to_str().unwrap();
        let check = |values: &[&str]| {
            let values = values.iter().map(|value| value.parse().unwrap());
            IfMatch(values.collect()).check(&etag, "the source `x`")
        };
        for values in [&[][..], &[text], &["*"], &["\"a\" , ", text], &[&format!("\"a\", {text},\"b\"")]] {
            assert!(check(values).is_ok(), "{values:?}");
        }
        for values in [&["\"a\""][..], &[""], &[&format!("W/{text}")], &[&text[1..]]] {
            let error = check(values).unwrap_err();
            assert!(is_failed_precondition(&error) && !error.is_retryable(), "{values:?}");
        }
    }
}
