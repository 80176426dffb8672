//! Authorization middleware of every route: authenticates the client, compares its role with the permission that the
//! route requires, checks CSRF tokens, and ends streams whose credentials become invalid. Before it,
//! [`await_min_position`] waits for the position that an authenticated client requires.
//!
//! A request without sufficient rights gets 401 if it sent no credentials or invalid ones, and 403 if the role that it
//! proved is too low. A browser that asks for a page is redirected to the login instead of 401. A local client that was
//! not identified in time gets 503: it lacks nothing, and a retry may succeed.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::body::Body;
use axum::extract::rejection::ExtensionRejection;
use axum::extract::{FromRequestParts, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Redirect, Response};
use futures_util::StreamExt;
use serde_json::json;
use toolcrib::core::fingerprint::Fingerprint;
use toolcrib::{Code, Error, Principal, Requester, Result, Trace};

use super::{AuthenticatedClient, ConnectionPeer, Locality, Permission, Role, login};
use crate::position::{POSITION_TIMEOUT, position_error};
use crate::rest::{ApiError, read_body};
use crate::state::AppState;

/// How often an open stream is authorized again, for tokens and sessions that expire. Changed tokens and a reloaded
/// configuration trigger the check at once. An expired token can therefore read events for this long at most.
const RECHECK_INTERVAL: Duration = Duration::from_secs(2);
/// Delay after which a client that was not identified in time may try again.
const SEARCH_RETRY_DELAY_MS: u64 = 1000;

/// Middleware that runs the handler only for clients with the required permission. Inserts the [`AuthenticatedClient`]
/// into the request's extensions; on public routes it may be missing.
pub(crate) async fn authorize(
    State((app, required)): State<(AppState, Permission)>,
    mut request: Request,
    next: Next,
) -> Response {
    let locality = request_locality(&request);
    let peer = request_peer(&request);
    // Reads of public routes need no session, and probes must not wait for the store.
    if required.min_role().is_some() || !request.method().is_safe() {
        app.auth.look_up_session(request.headers()).await;
    }
    let client = match check_access(&app, request.headers(), required, locality, peer).await {
        Ok(client) => client,
        Err(error) => return rejection(&request, error, |invalid_token| app.auth.challenge(invalid_token)),
    };
    // Kept for streams only. A public route has nothing to check again.
    let mut authorization = None;
    if let Some(client) = client {
        if required.min_role().is_some() {
            let connection = request.extensions().get().cloned().unwrap_or_default();
            authorization = Some(StreamAuthorization {
                principal: client.principal.clone(),
                credentials: credential_headers(request.headers()),
                locality,
                connection,
            });
        }
        // Only sessions have a CSRF token. A bearer token is never added by a browser on its own, so it needs no such
        // check.
        if !request.method().is_safe() && client.csrf.is_some() {
            request = match check_csrf(&client, request).await {
                Ok(request) => request,
                Err(rejection) => return rejection,
            };
        }
        app.registry.tokens().record_use(&client.principal);
        request.extensions_mut().insert(client);
    }
    let response = next.run(request).await;
    match authorization.filter(|_| is_event_stream(&response)) {
        Some(authorization) => end_when_revoked(app, authorization, response),
        None => response,
    }
}

/// Waits until this node has applied the record with this number, if the client is authenticated. Others get the error at
/// once: they must not hold requests open. The route authorizes the request afterwards, with the tokens and rules of that
/// position. The request is mutable because a shared reference to its body cannot be held while waiting.
pub(crate) async fn await_min_position(
    app: &AppState,
    request: &mut Request,
    locality: Locality,
    peer: Option<IpAddr>,
    position: u64,
) -> Result<(), Response> {
    app.auth.look_up_session(request.headers()).await;
    let client = app.auth.authenticate(request.headers(), locality, peer).await;
    let client =
        client.map_err(|error| rejection(request, error, |invalid_token| app.auth.challenge(invalid_token)))?;
    if client.is_some() && app.registry.wait_for_position(position, POSITION_TIMEOUT).await {
        return Ok(());
    }
    Err(ApiError(position_error(&app.registry, position)).into_response())
}

/// Extractor of handlers behind [`authorize`]: the server, the client, and the trace of the request.
pub(crate) struct AuthorizedRequest {
    pub(crate) app: AppState,
    pub(crate) client: AuthenticatedClient,
    pub(crate) trace: Option<Trace>,
}

impl AuthorizedRequest {
    /// On whose behalf the request discovers sources.
    pub(crate) fn requester(&self) -> Requester {
        Requester { actor: Some(self.client.actor()), trace: self.trace.clone() }
    }
}

impl FromRequestParts<AppState> for AuthorizedRequest {
    type Rejection = ExtensionRejection;

    async fn from_request_parts(parts: &mut Parts, app: &AppState) -> Result<AuthorizedRequest, ExtensionRejection> {
        let Extension(client) = Extension::from_request_parts(parts, app).await?;
        Ok(AuthorizedRequest { app: app.clone(), client, trace: parts.extensions.get().cloned() })
    }
}

/// The grounds on which a request was authorized, kept to check an open stream again.
struct StreamAuthorization {
    /// The client when it opened the stream: its role, groups and claims decided what it gets.
    principal: Principal,
    /// `Authorization` and `Cookie` headers; empty for a local process without a token.
    credentials: HeaderMap,
    locality: Locality,
    connection: Arc<ConnectionPeer>,
}

impl StreamAuthorization {
    /// Whether the credentials still suffice: a client whose role was lowered, or whose groups or claims have changed,
    /// has to open another stream. The headers are those of the request that opened the stream; the process that owns
    /// the connection is known already. An invalid token does not count as a failed attempt.
    async fn is_valid(&self, app: &AppState) -> bool {
        // `identity.loopback` may have changed, so that a local process needs a token now. No other client becomes local.
        let mut locality = self.locality;
        if locality == Locality::Local {
            locality = app.auth.locality(&self.connection, &self.credentials).await;
        }
        let client = app.auth.reauthenticate(&self.credentials, locality).await;
        client.is_some_and(|AuthenticatedClient { principal, .. }| {
            principal.role() >= self.principal.role()
                && principal.groups() == self.principal.groups()
                && principal.claims() == self.principal.claims()
        })
    }
}

/// Returns the client if a route that requires [`Permission::Read`] would accept the headers. An unknown token is counted
/// by the route that rejects it, not here. An access token that was not verified yet is verified there, and a session of
/// another process is looked up there.
pub(crate) fn authenticate_reader(
    app: &AppState,
    headers: &HeaderMap,
    locality: Locality,
) -> Option<AuthenticatedClient> {
    if app.auth.has_unknown_session(headers) {
        return None;
    }
    let client = app.auth.authenticate_now(headers, locality)?;
    client.principal.role().has_permission(Permission::Read).then_some(client)
}

/// Returns the address of the client's end of the connection.
pub(super) fn request_peer(request: &Request) -> Option<IpAddr> {
    request.extensions().get::<Arc<ConnectionPeer>>()?.address()
}

/// Returns the locality that [`handle_request`](crate::middleware::handle_request) determined.
pub(super) fn request_locality(request: &Request) -> Locality {
    request.extensions().get().copied().unwrap_or(Locality::Network)
}

/// Copies the headers that carry credentials.
fn credential_headers(headers: &HeaderMap) -> HeaderMap {
    let names = [header::AUTHORIZATION, header::COOKIE];
    let pairs = names
        .into_iter()
        .flat_map(|name| headers.get_all(&name).iter().map(move |value| (name.clone(), value.clone())));
    pairs.collect()
}

/// Recognises a stream by its content type, for REST events and MCP streams alike.
fn is_event_stream(response: &Response) -> bool {
    response.headers().get(header::CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream"))
}

/// Ends a streaming response shortly after the credentials it was opened with expire or are revoked.
fn end_when_revoked(app: AppState, authorization: StreamAuthorization, response: Response) -> Response {
    let mut changes = app.event_feed.auth_changes.subscribe();
    let revoked = async move {
        while authorization.is_valid(&app).await {
            // When the feed is gone, only the interval is left.
            let changed = async {
                if changes.changed().await.is_err() {
                    std::future::pending().await
                }
            };
            // Check again in both cases: after a change and after the interval.
            let _ = tokio::time::timeout(RECHECK_INTERVAL, changed).await;
        }
    };
    let (parts, body) = response.into_parts();
    // Ends the body between two chunks. The client sees the end of the stream and is rejected when it opens a new one.
    let stream = body.into_data_stream().take_until(Box::pin(revoked));
    Response::from_parts(parts, Body::from_stream(stream))
}

/// Authenticates a request and compares the role with the required permission. The error tells what to send: a token
/// (`UNAUTHORIZED`), or a token with a higher role (`FORBIDDEN`).
async fn check_access(
    app: &AppState,
    headers: &HeaderMap,
    required: Permission,
    locality: Locality,
    peer: Option<IpAddr>,
) -> Result<Option<AuthenticatedClient>> {
    // Public routes ignore invalid credentials, and do not wait for an identity provider: probes need them.
    let Some(min_role) = required.min_role() else { return Ok(app.auth.authenticate_now(headers, locality)) };
    match app.auth.authenticate(headers, locality, peer).await? {
        Some(client) if client.principal.role() >= min_role => Ok(Some(client)),
        Some(client) if client.has_credentials(headers) => {
            let name = client.principal.name();
            let message =
                format!("this needs the role `{min_role}`, and `{name}` has the role `{}`", client.principal.role());
            Err(Error::new(Code::Forbidden, message))
        }
        // A local process without a token. Such a client has the role `agent`.
        Some(_) => Err(Error::new(
            Code::Unauthorized,
            "this needs `Authorization: Bearer` with the token in `TOOLCRIB_ADMIN_TOKEN`, or else in the file `admin.token` of \
             the data directory, or with one that `toolcrib token create NAME --role admin` creates",
        )),
        None => Err(missing_credentials(min_role, locality)),
    }
}

/// Error for a request without credentials that is not local either.
fn missing_credentials(min_role: Role, locality: Locality) -> Error {
    let message = format!(
        "{} `Authorization: Bearer` with a token; `toolcrib token create NAME --role {min_role}` creates one",
        locality.token_reason()
    );
    let error = Error::new(Code::Unauthorized, message);
    if locality == Locality::SearchTimedOut {
        return error.with_retryable(true).with_details(json!({ "retry_after_ms": SEARCH_RETRY_DELAY_MS }));
    }
    error
}

impl AuthenticatedClient {
    /// True when the request carried a token or a session cookie, and was not authenticated by locality alone.
    fn has_credentials(&self, headers: &HeaderMap) -> bool {
        self.csrf.is_some() || headers.contains_key(header::AUTHORIZATION)
    }
}

/// Response extension that marks a rejection of an authenticated client with too low a role. The console's error page
/// then suggests to sign in with another token.
#[derive(Debug, Clone, Copy)]
pub(crate) struct InsufficientRole;

/// Builds the response for a rejected request: a redirect to the login page for a browser without credentials, the error
/// envelope for all others. `challenge` makes the header of a 401 from the error of the token that was sent.
fn rejection(request: &Request, error: Error, challenge: impl FnOnce(Option<&Error>) -> HeaderValue) -> Response {
    let is_unauthorized = error.code == Code::Unauthorized;
    let needs_credentials = is_unauthorized && !error.is_retryable();
    if needs_credentials && is_browser_request(request) {
        // A form that was sent is not sent again after the login.
        let next = request.method().is_safe().then(|| request.uri().path_and_query()).flatten();
        return Redirect::to(&login::login_path(next.map(|next| next.as_str()))).into_response();
    }
    let has_token = request.headers().contains_key(header::AUTHORIZATION);
    let challenge = needs_credentials.then(|| challenge(has_token.then_some(&error)));
    let mut response = ApiError(error).into_response();
    if let Some(challenge) = challenge {
        response.headers_mut().insert(header::WWW_AUTHENTICATE, challenge);
    } else if !is_unauthorized {
        response.extensions_mut().insert(InsufficientRole);
    }
    response
}

/// True when `Accept` names `text/html`, as browsers do for pages and programs usually do not.
pub(crate) fn accepts_html(headers: &HeaderMap) -> bool {
    let accept = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    accept.contains("text/html")
}

/// True for a page request of a browser without an `Authorization` header.
fn is_browser_request(request: &Request) -> bool {
    let path = request.uri().path();
    // Programs use these paths. A redirect to a page would hide the error from them.
    let is_api = ["/api/", "/mcp", "/metrics"].iter().any(|prefix| path.starts_with(prefix));
    accepts_html(request.headers()) && !is_api && !request.headers().contains_key(header::AUTHORIZATION)
}

/// Requires the CSRF token of the session, in `X-CSRF-Token` or in the form field `csrf`. A browser sends the session
/// cookie with requests that other sites provoke; only pages of the console know the token. Returns the request with its
/// body, which may have been read.
async fn check_csrf(client: &AuthenticatedClient, request: Request) -> Result<Request, Response> {
    // Digests are compared instead of the tokens, so that the time taken tells nothing about the token.
    let expected = client.csrf.as_deref().map(Fingerprint::digest);
    let is_expected = |token: &[u8]| Some(Fingerprint::digest(token)) == expected;
    if let Some(token) = request.headers().get("x-csrf-token") {
        return if is_expected(token.as_bytes()) { Ok(request) } else { Err(csrf_error()) };
    }
    if !has_form_content_type(request.headers()) {
        return Err(csrf_error());
    }
    // The form has to be read to find the field, so the handler gets a new body with the same bytes.
    let (parts, body) = request.into_parts();
    let bytes = read_body(&parts.headers, body).await?;
    let field = url::form_urlencoded::parse(&bytes).find(|(name, _)| name == "csrf");
    if field.is_some_and(|(_, value)| is_expected(value.as_bytes())) {
        Ok(Request::from_parts(parts, Body::from(bytes)))
    } else {
        Err(csrf_error())
    }
}

/// True for the content type of an HTML form, with any parameters.
pub(super) fn has_form_content_type(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).map(HeaderValue::as_bytes).unwrap_or_default();
    let kind = kind.split(|byte| *byte == b';').next().unwrap_or_default();
    kind.trim_ascii().eq_ignore_ascii_case(b"application/x-www-form-urlencoded")
}

/// `FORBIDDEN`. A page that was loaded before the last login has an old token, so reloading it helps.
fn csrf_error() -> Response {
    let message = "missing or wrong CSRF token: a request with a session cookie carries it in the header \
                   `X-CSRF-Token` or in the form field `csrf`; reload the page";
    ApiError(Error::new(Code::Forbidden, message)).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: under load, agents without a token were asked for one.
    #[test]
    fn a_client_that_was_not_identified_in_time_is_asked_to_try_again() {
        for (locality, status, retry_after, has_challenge) in
            [(Locality::SearchTimedOut, 503, Some("1"), false), (Locality::Unidentified, 401, None, true)]
        {
            let challenge = |_: Option<&Error>| HeaderValue::from_static("Bearer");
            let response = rejection(&Request::default(), missing_credentials(Role::Agent, locality), challenge);
            let header = |name| response.headers().get(name).map(|value| value.to_str().unwrap());
            assert_eq!((response.status().as_u16(), header(header::RETRY_AFTER)), (status, retry_after));
            assert_eq!(header(header::WWW_AUTHENTICATE).is_some(), has_challenge);
            assert!(response.extensions().get::<InsufficientRole>().is_none());
        }
    }
}
