//! The layer before every route that needs something of who comes.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Redirect, Response};
use futures_util::StreamExt;
use toolcrib::core::fingerprint::Fingerprint;
use toolcrib::{Code, Error, Result};

use super::{ConnectionPeer, Locality, Permission, Principal, login};
use crate::rest::{ApiError, read_body};
use crate::state::AppState;

/// How often it is looked whether the client of a stream is still admitted: for tokens and sessions that expire. That a
/// token or the configuration changed is heard at once.
const RECHECK_INTERVAL: Duration = Duration::from_secs(2);

/// Lets those in who may; handlers find a [`Visitor`] among the request's extensions.
pub(crate) async fn authorize(
    State((house, needs)): State<(AppState, Permission)>,
    mut request: Request,
    next: Next,
) -> Response {
    let locality = request_locality(&request);
    let visitor = match check_access(&house, request.headers(), needs, locality) {
        Ok(visitor) => visitor,
        Err(error) => return rejection(&request, error),
    };
    let mut admission = None;
    if let Some(visitor) = visitor {
        if needs.min_role().is_some() {
            let connection = request.extensions().get().cloned().unwrap_or_default();
            admission = Some(StreamAuthorization {
                required: needs,
                credentials: credential_headers(request.headers()),
                locality,
                connection,
            });
        }
        if !request.method().is_safe() && visitor.csrf.is_some() {
            request = match check_csrf(&visitor, request).await {
                Ok(request) => request,
                Err(refused) => return refused,
            };
        }
        request.extensions_mut().insert(visitor);
    }
    let response = next.run(request).await;
    match admission.filter(|_| is_event_stream(&response)) {
        Some(admission) => end_when_revoked(house, admission, response),
        None => response,
    }
}

/// What a request was let in by.
struct StreamAuthorization {
    required: Permission,
    /// Nothing for a local process without a token.
    credentials: HeaderMap,
    locality: Locality,
    connection: Arc<ConnectionPeer>,
}

impl StreamAuthorization {
    async fn is_valid(&self, house: &AppState) -> bool {
        // A local process may need a token now. Any other client does not become a local one.
        let mut locality = self.locality;
        if locality == Locality::Local {
            locality = house.auth.locality(&self.connection, &self.credentials).await;
        }
        is_still_authorized(house, &self.credentials, self.required, locality)
    }
}

/// Whether a route that only reads would let somebody in. A wrong token counts where it is refused, not here.
pub(crate) fn can_read(house: &AppState, headers: &HeaderMap, locality: Locality) -> bool {
    is_still_authorized(house, headers, Permission::Read, locality)
}

/// As it was decided before the router.
pub(super) fn request_locality(request: &Request) -> Locality {
    request.extensions().get().copied().unwrap_or(Locality::Network)
}

fn credential_headers(headers: &HeaderMap) -> HeaderMap {
    let wanted = [header::AUTHORIZATION, header::COOKIE];
    let each = wanted
        .into_iter()
        .flat_map(|name| headers.get_all(&name).iter().map(move |value| (name.clone(), value.clone())));
    each.collect()
}

fn is_event_stream(response: &Response) -> bool {
    response.headers().get(header::CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream"))
}

/// A stream goes on long after its request was let in: it ends soon after what that was let in by does.
fn end_when_revoked(house: AppState, admission: StreamAuthorization, response: Response) -> Response {
    let mut changes = house.event_feed.subscribe_auth_changes();
    let refused = async move {
        while admission.is_valid(&house).await {
            // Where nobody tells of changes any more, time goes on.
            let heard = async {
                if changes.changed().await.is_err() {
                    std::future::pending().await
                }
            };
            let _or_later = tokio::time::timeout(RECHECK_INTERVAL, heard).await;
        }
    };
    let (parts, body) = response.into_parts();
    let stream = body.into_data_stream().take_until(Box::pin(refused));
    Response::from_parts(parts, Body::from_stream(stream))
}

fn is_still_authorized(house: &AppState, shown: &HeaderMap, needs: Permission, locality: Locality) -> bool {
    let Some(least) = needs.min_role() else { return true };
    house.auth.reauthenticate(&house.registry, shown, locality).is_some_and(|visitor| visitor.role >= least)
}

fn check_access(
    house: &AppState,
    headers: &HeaderMap,
    needs: Permission,
    locality: Locality,
) -> Result<Option<Principal>> {
    let visitor = house.auth.authenticate(&house.registry, headers, locality);
    // What is open to all is not closed to who shows something old.
    let Some(least) = needs.min_role() else { return Ok(visitor.ok().flatten()) };
    let visitor = visitor?;
    match visitor {
        Some(visitor) if visitor.role >= least => Ok(Some(visitor)),
        Some(visitor) if visitor.has_credentials(headers) => {
            let message =
                format!("this needs the role `{least}`, and `{}` has the role `{}`", visitor.name, visitor.role);
            Err(Error::new(Code::Forbidden, message))
        }
        Some(_) => Err(Error::new(
            Code::Unauthorized,
            "this needs `Authorization: Bearer` with the token in the file `admin.token` of the data directory, or with \
             one that `toolcrib token create NAME --role admin` makes",
        )),
        None => {
            let message = format!(
                "{} `Authorization: Bearer` with a token; `toolcrib token create NAME --role {least}` makes one",
                locality.token_reason()
            );
            Err(Error::new(Code::Unauthorized, message))
        }
    }
}

impl Principal {
    fn has_credentials(&self, headers: &HeaderMap) -> bool {
        self.csrf.is_some() || headers.contains_key(header::AUTHORIZATION)
    }
}

/// Marks the refusal of somebody we know, whose role is not enough.
#[derive(Debug, Clone, Copy)]
pub(crate) struct InsufficientRole;

/// Programs get the error; people with a browser are asked to sign in where that would help.
fn rejection(request: &Request, error: Error) -> Response {
    if error.code == Code::Unauthorized && is_browser_request(request) {
        let back = request.method().is_safe().then(|| request.uri().path_and_query()).flatten();
        return Redirect::to(&login::login_path(back.map(|back| back.as_str()))).into_response();
    }
    let unauthorized = error.code == Code::Unauthorized;
    let mut response = ApiError(error).into_response();
    if !unauthorized {
        response.extensions_mut().insert(InsufficientRole);
    }
    if unauthorized {
        let challenge = HeaderValue::from_static("Bearer realm=\"toolcrib\"");
        response.headers_mut().insert(header::WWW_AUTHENTICATE, challenge);
    }
    response
}

/// A browser that is to show something says so.
pub(crate) fn accepts_html(headers: &HeaderMap) -> bool {
    let accept = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    accept.contains("text/html")
}

fn is_browser_request(request: &Request) -> bool {
    let path = request.uri().path();
    let programs = ["/api/", "/mcp", "/metrics"].iter().any(|prefix| path.starts_with(prefix));
    accepts_html(request.headers()) && !programs && !request.headers().contains_key(header::AUTHORIZATION)
}

/// A cookie comes along whoever made the browser send it. What only our own pages know tells that it was one of them:
/// the header that their script sends, or the field of their forms.
async fn check_csrf(visitor: &Principal, request: Request) -> Result<Request, Response> {
    let expected = visitor.csrf.as_deref().map(Fingerprint::digest);
    let right = |given: &[u8]| Some(Fingerprint::digest(given)) == expected;
    if let Some(given) = request.headers().get("x-csrf-token") {
        return if right(given.as_bytes()) { Ok(request) } else { Err(csrf_error()) };
    }
    if !has_form_content_type(request.headers()) {
        return Err(csrf_error());
    }
    let (parts, body) = request.into_parts();
    let bytes = read_body(&parts.headers, body).await?;
    let given = url::form_urlencoded::parse(&bytes).find(|(name, _)| name == "csrf");
    match given.is_some_and(|(_, value)| right(value.as_bytes())) {
        true => Ok(Request::from_parts(parts, Body::from(bytes))),
        false => Err(csrf_error()),
    }
}

pub(super) fn has_form_content_type(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).map(HeaderValue::as_bytes).unwrap_or_default();
    let kind = kind.split(|byte| *byte == b';').next().unwrap_or_default();
    kind.trim_ascii().eq_ignore_ascii_case(b"application/x-www-form-urlencoded")
}

fn csrf_error() -> Response {
    let message = "a session's request carries its page's token, as `X-CSRF-Token` or as the field `csrf`, and this one \
                   does not; load the page again";
    ApiError(Error::new(Code::Forbidden, message)).into_response()
}
