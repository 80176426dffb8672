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

use super::{ConnectionPeer, Locality, Needs, Visitor, login};
use crate::api::{Fault, whole};
use crate::house::House;

/// How often it is looked whether the client of a stream is still admitted: for tokens and sessions that expire. That a
/// token or the configuration changed is heard at once.
const LOOK_AGAIN: Duration = Duration::from_secs(2);

/// Lets those in who may; handlers find a [`Visitor`] among the request's extensions.
pub(crate) async fn admit(State((house, needs)): State<(House, Needs)>, mut request: Request, next: Next) -> Response {
    let locality = locality(&request);
    let visitor = match known(&house, request.headers(), needs, locality) {
        Ok(visitor) => visitor,
        Err(error) => return refused(&request, error),
    };
    let mut admission = None;
    if let Some(visitor) = visitor {
        if needs.role().is_some() {
            let connection = request.extensions().get().cloned().unwrap_or_default();
            admission = Some(Admission { needs, shown: credentials(request.headers()), locality, connection });
        }
        if !request.method().is_safe() && visitor.csrf.is_some() {
            request = match made_here(&visitor, request).await {
                Ok(request) => request,
                Err(refused) => return refused,
            };
        }
        request.extensions_mut().insert(visitor);
    }
    let response = next.run(request).await;
    match admission.filter(|_| is_stream(&response)) {
        Some(admission) => while_admitted(house, admission, response),
        None => response,
    }
}

/// What a request was let in by.
struct Admission {
    needs: Needs,
    /// Nothing for a local process without a token.
    shown: HeaderMap,
    locality: Locality,
    connection: Arc<ConnectionPeer>,
}

impl Admission {
    async fn holds(&self, house: &House) -> bool {
        // A local process may need a token now. Any other client does not become a local one.
        let mut locality = self.locality;
        if locality == Locality::Local {
            locality = house.access.locality(&self.connection, &self.shown).await;
        }
        is_still_known(house, &self.shown, self.needs, locality)
    }
}

/// Whether a route that only reads would let somebody in. A wrong token counts where it is refused, not here.
pub(crate) fn may_read(house: &House, headers: &HeaderMap, locality: Locality) -> bool {
    is_still_known(house, headers, Needs::Reading, locality)
}

/// As it was decided before the router.
pub(super) fn locality(request: &Request) -> Locality {
    request.extensions().get().copied().unwrap_or(Locality::Network)
}

fn credentials(headers: &HeaderMap) -> HeaderMap {
    let wanted = [header::AUTHORIZATION, header::COOKIE];
    let each = wanted
        .into_iter()
        .flat_map(|name| headers.get_all(&name).iter().map(move |value| (name.clone(), value.clone())));
    each.collect()
}

fn is_stream(response: &Response) -> bool {
    response.headers().get(header::CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream"))
}

/// A stream goes on long after its request was let in: it ends soon after what that was let in by does.
fn while_admitted(house: House, admission: Admission, response: Response) -> Response {
    let mut changes = house.feed.access_changes();
    let refused = async move {
        while admission.holds(&house).await {
            // Where nobody tells of changes any more, time goes on.
            let heard = async {
                if changes.changed().await.is_err() {
                    std::future::pending().await
                }
            };
            let _or_later = tokio::time::timeout(LOOK_AGAIN, heard).await;
        }
    };
    let (parts, body) = response.into_parts();
    let stream = body.into_data_stream().take_until(Box::pin(refused));
    Response::from_parts(parts, Body::from_stream(stream))
}

fn is_still_known(house: &House, shown: &HeaderMap, needs: Needs, locality: Locality) -> bool {
    let Some(least) = needs.role() else { return true };
    house.access.still(&house.registry, shown, locality).is_some_and(|visitor| visitor.role >= least)
}

fn known(house: &House, headers: &HeaderMap, needs: Needs, locality: Locality) -> Result<Option<Visitor>> {
    let visitor = house.access.visitor(&house.registry, headers, locality);
    // What is open to all is not closed to who shows something old.
    let Some(least) = needs.role() else { return Ok(visitor.ok().flatten()) };
    let visitor = visitor?;
    match visitor {
        Some(visitor) if visitor.role >= least => Ok(Some(visitor)),
        Some(visitor) if visitor.showed_something(headers) => {
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
                locality.reason()
            );
            Err(Error::new(Code::Unauthorized, message))
        }
    }
}

impl Visitor {
    fn showed_something(&self, headers: &HeaderMap) -> bool {
        self.csrf.is_some() || headers.contains_key(header::AUTHORIZATION)
    }
}

/// Marks the refusal of somebody we know, whose role is not enough.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RoleTooLow;

/// Programs get the error; people with a browser are asked to sign in where that would help.
fn refused(request: &Request, error: Error) -> Response {
    if error.code == Code::Unauthorized && is_for_people(request) {
        let back = request.method().is_safe().then(|| request.uri().path_and_query()).flatten();
        return Redirect::to(&login::asking(back.map(|back| back.as_str()))).into_response();
    }
    let unauthorized = error.code == Code::Unauthorized;
    let mut response = Fault(error).into_response();
    if !unauthorized {
        response.extensions_mut().insert(RoleTooLow);
    }
    if unauthorized {
        let challenge = HeaderValue::from_static("Bearer realm=\"toolcrib\"");
        response.headers_mut().insert(header::WWW_AUTHENTICATE, challenge);
    }
    response
}

/// A browser that is to show something says so.
pub(crate) fn takes_pages(headers: &HeaderMap) -> bool {
    let accept = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    accept.contains("text/html")
}

fn is_for_people(request: &Request) -> bool {
    let path = request.uri().path();
    let programs = ["/api/", "/mcp", "/metrics"].iter().any(|prefix| path.starts_with(prefix));
    takes_pages(request.headers()) && !programs && !request.headers().contains_key(header::AUTHORIZATION)
}

/// A cookie comes along whoever made the browser send it. What only our own pages know tells that it was one of them:
/// the header that their script sends, or the field of their forms.
async fn made_here(visitor: &Visitor, request: Request) -> Result<Request, Response> {
    let expected = visitor.csrf.as_deref().map(Fingerprint::of);
    let right = |given: &[u8]| Some(Fingerprint::of(given)) == expected;
    if let Some(given) = request.headers().get("x-csrf-token") {
        return if right(given.as_bytes()) { Ok(request) } else { Err(forged()) };
    }
    if !is_form(request.headers()) {
        return Err(forged());
    }
    let (parts, body) = request.into_parts();
    let bytes = whole(&parts.headers, body).await?;
    let given = url::form_urlencoded::parse(&bytes).find(|(name, _)| name == "csrf");
    match given.is_some_and(|(_, value)| right(value.as_bytes())) {
        true => Ok(Request::from_parts(parts, Body::from(bytes))),
        false => Err(forged()),
    }
}

pub(super) fn is_form(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).map(HeaderValue::as_bytes).unwrap_or_default();
    let kind = kind.split(|byte| *byte == b';').next().unwrap_or_default();
    kind.trim_ascii().eq_ignore_ascii_case(b"application/x-www-form-urlencoded")
}

fn forged() -> Response {
    let message = "a session's request carries its page's token, as `X-CSRF-Token` or as the field `csrf`, and this one \
                   does not; load the page again";
    Fault(Error::new(Code::Forbidden, message)).into_response()
}
