//! Login and logout of the console: with the one-time link that `serve` prints, or with a token.
//!
//! Both start a session with a new id, so an id that was planted in the browser before the login is worth nothing. The
//! pages work without scripts.

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::{get, post};
use maud::{Markup, html};
use toolcrib::{Code, Error, Result};
use url::form_urlencoded::{byte_serialize, parse};

use super::authorize::{has_form_content_type, request_locality, request_peer};
use super::{Locality, Permission, authorize, cookie};
use crate::console;
use crate::rest::{ApiError, RETRY_AFTER, error_response, read_body};
use crate::state::AppState;

/// Path of the login page, and of the form on it.
pub(super) const LOGIN_PATH: &str = "/login";

/// `Retry-After` of a login that the store prevented, in seconds.
const STORE_RETRY_AFTER: HeaderValue = HeaderValue::from_static("1");

/// Routes of the login page. `/login` itself needs no authorization; `/logout` checks the CSRF token.
pub(crate) fn router(app: &AppState) -> Router<AppState> {
    let logout = post(sign_out).layer(from_fn_with_state((app.clone(), Permission::Public), authorize));
    Router::new().route(LOGIN_PATH, get(show_login).post(sign_in)).route("/logout", logout)
}

/// Returns the path of the login page that redirects to `next` after the login.
pub(super) fn login_path(next: Option<&str>) -> String {
    match next.filter(|next| *next != "/") {
        Some(next) => format!("{LOGIN_PATH}?next={}", byte_serialize(next.as_bytes()).collect::<String>()),
        None => LOGIN_PATH.to_owned(),
    }
}

/// `GET /login`: redeems the one-time link in `key`, or shows the form.
async fn show_login(State(app): State<AppState>, request: Request) -> Response {
    let locality = request_locality(&request);
    // The key stays in the history of the browser; after its first use it is worthless.
    let query = request.uri().query().unwrap_or_default();
    let next = redirect_target(query.as_bytes());
    let Some((_, key)) = parse(query.as_bytes()).find(|(name, _)| name == "key") else {
        return login_page(&app, locality, StatusCode::OK, None, &next);
    };
    // Link previews and prefetching must not use up the link.
    if request.method() == Method::HEAD || is_prefetch(request.headers()) {
        return StatusCode::NO_CONTENT.into_response();
    }
    match app.registry.logins().redeem_link(&key).await {
        // A link of a node whose token was replaced since starts no session.
        Ok(Some(credential)) if app.auth.stored_credential(credential.clone()).is_some() => {
            return start_session(&app, request.headers(), locality, &credential, &next).await;
        }
        Ok(_) => {}
        Err(error) => return failed_login_page(&app, locality, error, &next),
    }
    let problem =
        "This link was used already, or is older than ten minutes. A link works once; sign in with a token instead.";
    login_page(&app, locality, StatusCode::GONE, Some(problem), &next)
}

/// `POST /login`: starts a session for the token in the form, or shows the form again with the reason.
async fn sign_in(State(app): State<AppState>, request: Request) -> Response {
    if !has_form_content_type(request.headers()) {
        let message = "send a form with the field `token`";
        return error_response(StatusCode::UNSUPPORTED_MEDIA_TYPE, Code::BadRequest, message);
    }
    let locality = request_locality(&request);
    let peer = request_peer(&request);
    let (parts, body) = request.into_parts();
    let bytes = match read_body(&parts.headers, body).await {
        Ok(bytes) => bytes,
        Err(rejection) => return rejection,
    };
    let next = redirect_target(&bytes);
    let token = parse(&bytes).find(|(name, _)| name == "token");
    let token = token.map(|(_, token)| token.trim().to_owned()).unwrap_or_default();
    // Counts against the rate limit like any other use of a wrong token, except for access tokens of identity providers,
    // which open no session.
    let error = match app.auth.verify_token(&token, peer).await {
        Ok(credential) => {
            return start_session(&app, &parts.headers, locality, app.auth.to_stored(&credential), &next).await;
        }
        Err(error) => error,
    };
    let (status, problem) = if error.code == Code::RateLimited {
        (StatusCode::TOO_MANY_REQUESTS, "There were too many wrong tokens. Try again in a minute.")
    } else if error.code == Code::StoreUnavailable {
        let problem = "The store is damaged, so stored tokens are not accepted. Sign in with the token in `TOOLCRIB_ADMIN_TOKEN`, or else in `admin.token` of the data directory.";
        (StatusCode::SERVICE_UNAVAILABLE, problem)
    } else {
        (StatusCode::UNAUTHORIZED, "Unknown, revoked or expired token.")
    };
    let mut response = login_page(&app, locality, status, Some(problem), &next);
    if status == StatusCode::TOO_MANY_REQUESTS {
        response.headers_mut().insert(header::RETRY_AFTER, RETRY_AFTER);
    }
    response
}

/// `POST /logout`: ends the session and deletes its cookie. Fails if the session is unknown and the store unavailable.
async fn sign_out(State(app): State<AppState>, headers: HeaderMap) -> Result<Response, ApiError> {
    if let Some(id) = cookie::session_id(&app.auth.cookie_name, &headers) {
        app.registry.logins().end_session(id).await?;
    }
    let cookie = cookie::expired_cookie(&app.auth.cookie_name, &headers)?;
    Ok(([(header::SET_COOKIE, cookie)], Redirect::to(LOGIN_PATH)).into_response())
}

/// Starts a session of a stored credential and redirects to `next`, or shows the form with the reason why it could not
/// be started.
async fn start_session(
    app: &AppState,
    headers: &HeaderMap,
    locality: Locality,
    credential: &str,
    next: &str,
) -> Response {
    let started = try_start_session(app, headers, credential, next).await;
    started.unwrap_or_else(|error| failed_login_page(app, locality, error, next))
}

/// Starts a session, ends the previous one of this browser, and redirects to `next`.
async fn try_start_session(app: &AppState, headers: &HeaderMap, credential: &str, next: &str) -> Result<Response> {
    let (auth, logins) = (&app.auth, app.registry.logins());
    let id = logins.start_session(credential).await?;
    if let Some(old_id) = cookie::session_id(&auth.cookie_name, headers) {
        logins.end_session(old_id).await?;
    }
    let response_headers = [
        (header::SET_COOKIE, cookie::session_cookie(&auth.cookie_name, headers, &id)?),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
    ];
    // When another site led here, the browser would follow a redirect without the new `SameSite=Strict` cookie. A page of
    // our own that navigates on is a same-site request.
    if headers.get("sec-fetch-site").is_some_and(|site| site == "cross-site") {
        let content = html! {
            meta http-equiv="refresh" content={ "0;url=" (next) };
            p { "You are signed in. " a href=(next) { "Open the console" } }
        };
        return Ok((response_headers, console::plain_page("Signed in", content)).into_response());
    }
    Ok((response_headers, Redirect::to(next)).into_response())
}

/// Renders the form after a login that the store prevented; other errors get the envelope.
fn failed_login_page(app: &AppState, locality: Locality, error: Error, next: &str) -> Response {
    if error.code != Code::StoreUnavailable {
        return ApiError(error).into_response();
    }
    tracing::warn!(%error, "a console session could not be started");
    let problem = "The store is unavailable, so no session can be started now (STORE_UNAVAILABLE). Try again in a moment; sessions \
                   that were started before go on working.";
    let mut response = login_page(app, locality, StatusCode::SERVICE_UNAVAILABLE, Some(problem), next);
    response.headers_mut().insert(header::RETRY_AFTER, STORE_RETRY_AFTER);
    response
}

/// True for a request by which a browser loads a link in advance.
fn is_prefetch(headers: &HeaderMap) -> bool {
    let text = |name| headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok()).unwrap_or_default();
    text("sec-purpose").contains("prefetch") || text("purpose").contains("prefetch")
}

/// Returns the path in the form field or query parameter `next` if it stays on this site, else `/`: no open redirect.
fn redirect_target(form: &[u8]) -> String {
    let next = parse(form).find(|(name, _)| name == "next").map(|(_, next)| next.into_owned());
    // Browsers resolve `//host` and `/\host` to another site.
    let is_own_path = |path: &String| {
        path.starts_with('/')
            && !path[1..].starts_with(['/', '\\'])
            && path.bytes().all(|byte| byte.is_ascii_graphic())
            && !path.starts_with(LOGIN_PATH)
    };
    next.filter(is_own_path).unwrap_or_else(|| "/".to_owned())
}

/// Renders the form, with the reason why a login failed if there is one. `next` is the page to go to afterwards.
fn login_page(app: &AppState, locality: Locality, status: StatusCode, problem: Option<&str>, next: &str) -> Response {
    let form = html! {
        @if let Some(problem) = problem { p.problem role="alert" { (problem) } }
        form.login method="post" action=(LOGIN_PATH) {
            input type="hidden" name="next" value=(next);
            label for="token" { "Token" }
            input #token type="password" name="token" required autofocus autocomplete="current-password" spellcheck="false";
            button type="submit" { "Sign in" }
        }
        (token_hint(app, locality))
    };
    let headers = [(header::CACHE_CONTROL, HeaderValue::from_static("no-store"))];
    (status, headers, console::plain_page("Sign in", form)).into_response()
}

/// Tells how to get a token. Only local clients learn the path of the data directory.
fn token_hint(app: &AppState, locality: Locality) -> Markup {
    html! {
        @if locality == Locality::Local {
            p.hint {
                "The administrator's token is in " code { (app.auth.admin_token_location()) }
                "; " code { "toolcrib token create NAME --role viewer" } " creates a token for another user."
            }
        } @else {
            p.hint { "The administrator creates a token with " code { "toolcrib token create NAME --role viewer" } "." }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_login_redirects_to_own_pages_only() {
        for (form, expected) in [
            ("next=/tools%3Fq%3Dx", "/tools?q=x"),
            ("", "/"),
            ("next=//evil.example", "/"),
            ("next=/%5Cevil.example", "/"),
            ("next=https://evil.example", "/"),
            ("next=javascript:alert(1)", "/"),
            ("next=/a%0d%0ab", "/"),
            ("next=/login", "/"),
        ] {
            assert_eq!(redirect_target(form.as_bytes()), expected, "{form}");
        }
        assert_eq!(login_path(Some("/tools?q=a b")), "/login?next=%2Ftools%3Fq%3Da+b");
        assert_eq!(login_path(Some("/")), "/login");
    }
}
