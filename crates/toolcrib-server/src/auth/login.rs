//! Signing in to the console and out of it: by the link that `serve` prints, which is good once, or with a token.

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::{get, post};
use maud::{Markup, html};
use toolcrib::{Code, Result};
use url::form_urlencoded::{byte_serialize, parse};

use super::authorize::{has_form_content_type, request_locality};
use super::sessions::Credential;
use super::{Locality, Permission, authorize, cookie};
use crate::console;
use crate::rest::{ApiError, RETRY_AFTER, error_response, read_body};
use crate::state::AppState;

pub(super) const LOGIN_PATH: &str = "/login";

pub(crate) fn router(house: &AppState) -> Router<AppState> {
    let out = post(sign_out).layer(from_fn_with_state((house.clone(), Permission::Public), authorize));
    Router::new().route(LOGIN_PATH, get(show_login).post(sign_in)).route("/logout", out)
}

/// Where to sign in, and be led back from.
pub(super) fn login_path(back: Option<&str>) -> String {
    match back.filter(|back| *back != "/") {
        Some(back) => format!("{LOGIN_PATH}?next={}", byte_serialize(back.as_bytes()).collect::<String>()),
        None => LOGIN_PATH.to_owned(),
    }
}

async fn show_login(State(house): State<AppState>, request: Request) -> Response {
    let locality = request_locality(&request);
    let query = request.uri().query().unwrap_or_default();
    let next = redirect_target(query.as_bytes());
    let Some((_, key)) = parse(query.as_bytes()).find(|(name, _)| name == "key") else {
        return login_page(&house, locality, StatusCode::OK, None, &next);
    };
    // What only looks ahead does not use the link up.
    if request.method() == Method::HEAD || is_prefetch(request.headers()) {
        return StatusCode::NO_CONTENT.into_response();
    }
    match house.auth.sessions.redeem_login_link(&key, house.registry.now()) {
        true => start_session(&house, request.headers(), Credential::Admin, &next)
            .unwrap_or_else(IntoResponse::into_response),
        false => {
            let said = "This link was used already, or is older than ten minutes. A link is good once; sign in with a token instead.";
            login_page(&house, locality, StatusCode::GONE, Some(said), &next)
        }
    }
}

async fn sign_in(State(house): State<AppState>, request: Request) -> Response {
    if !has_form_content_type(request.headers()) {
        let message = "send a form with the field `token`";
        return error_response(StatusCode::UNSUPPORTED_MEDIA_TYPE, Code::BadRequest, message);
    }
    let locality = request_locality(&request);
    let (parts, body) = request.into_parts();
    let bytes = match read_body(&parts.headers, body).await {
        Ok(bytes) => bytes,
        Err(refused) => return refused,
    };
    let (next, token) = (redirect_target(&bytes), parse(&bytes).find(|(name, _)| name == "token"));
    let token = token.map(|(_, token)| token.trim().to_owned()).unwrap_or_default();
    match house.auth.verify_token(&house.registry, &token) {
        Ok(holder) => start_session(&house, &parts.headers, holder, &next).unwrap_or_else(IntoResponse::into_response),
        Err(error) if error.code == Code::RateLimited => {
            let said = "There were too many wrong tokens. Try again in a minute.";
            let mut response = login_page(&house, locality, StatusCode::TOO_MANY_REQUESTS, Some(said), &next);
            response.headers_mut().insert(header::RETRY_AFTER, RETRY_AFTER);
            response
        }
        Err(error) if error.code == Code::StoreUnavailable => {
            let said = "The store is damaged, so that stored tokens are not accepted. Sign in with the token in `admin.token` of the data directory.";
            login_page(&house, locality, StatusCode::SERVICE_UNAVAILABLE, Some(said), &next)
        }
        Err(_) => {
            let said = "This token is not known here, or was revoked, or has expired.";
            login_page(&house, locality, StatusCode::UNAUTHORIZED, Some(said), &next)
        }
    }
}

async fn sign_out(State(house): State<AppState>, headers: HeaderMap) -> Result<Response, ApiError> {
    if let Some(id) = cookie::session_id(house.auth.address, &headers) {
        house.auth.sessions.end(id);
    }
    let cookie = cookie::expired_cookie(house.auth.address, &headers)?;
    Ok(([(header::SET_COOKIE, cookie)], Redirect::to(LOGIN_PATH)).into_response())
}

/// Begins a session; the one that this browser had before ends.
fn start_session(house: &AppState, headers: &HeaderMap, holder: Credential, next: &str) -> Result<Response, ApiError> {
    let access = &house.auth;
    if let Some(old) = cookie::session_id(access.address, headers) {
        access.sessions.end(old);
    }
    let id = access.sessions.start(holder, house.registry.now());
    let fields = [
        (header::SET_COOKIE, cookie::session_cookie(access.address, headers, &id)?),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
    ];
    // A visit that another site led to is sent on without the cookie by a redirect; one that our own page leads to is not.
    if headers.get("sec-fetch-site").is_some_and(|site| site == "cross-site") {
        let onward = html! {
            meta http-equiv="refresh" content={ "0;url=" (next) };
            p { "You are signed in. " a href=(next) { "Go on to the console" } }
        };
        return Ok((fields, console::plain_page("Signed in", onward)).into_response());
    }
    Ok((fields, Redirect::to(next)).into_response())
}

fn is_prefetch(headers: &HeaderMap) -> bool {
    let said = |name| headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok()).unwrap_or_default();
    said("sec-purpose").contains("prefetch") || said("purpose").contains("prefetch")
}

/// Where to go on to: a place of our own, whatever was asked for.
fn redirect_target(form: &[u8]) -> String {
    let asked = parse(form).find(|(name, _)| name == "next").map(|(_, next)| next.into_owned());
    // A browser takes `//host` and `/\host` for another site.
    let is_ours = |path: &String| {
        path.starts_with('/')
            && !path[1..].starts_with(['/', '\\'])
            && path.bytes().all(|byte| byte.is_ascii_graphic())
            && !path.starts_with(LOGIN_PATH)
    };
    asked.filter(is_ours).unwrap_or_else(|| "/".to_owned())
}

fn login_page(house: &AppState, locality: Locality, status: StatusCode, said: Option<&str>, next: &str) -> Response {
    let form = html! {
        @if let Some(said) = said { p.problem role="alert" { (said) } }
        form.login method="post" action=(LOGIN_PATH) {
            input type="hidden" name="next" value=(next);
            label for="token" { "Token" }
            input #token type="password" name="token" required autofocus autocomplete="current-password" spellcheck="false";
            button type="submit" { "Sign in" }
        }
        (token_hint(house, locality))
    };
    let fields = [(header::CACHE_CONTROL, HeaderValue::from_static("no-store"))];
    (status, fields, console::plain_page("Sign in", form)).into_response()
}

/// Where a token is to be had. Only a local process of the same user is told where things lie.
fn token_hint(house: &AppState, locality: Locality) -> Markup {
    html! {
        @if locality == Locality::Local {
            p.hint {
                "Yours is in the file " code { (house.data_dir.join("admin.token").display()) }
                "; " code { "toolcrib token create NAME --role viewer" } " makes one for somebody else."
            }
        } @else {
            p.hint { "Whoever runs this makes one with " code { "toolcrib token create NAME --role viewer" } "." }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_led_back_to_our_own_pages_alone() {
        for (asked, expected) in [
            ("next=/tools%3Fq%3Dx", "/tools?q=x"),
            ("", "/"),
            ("next=//evil.example", "/"),
            ("next=/%5Cevil.example", "/"),
            ("next=https://evil.example", "/"),
            ("next=javascript:alert(1)", "/"),
            ("next=/a%0d%0ab", "/"),
            ("next=/login", "/"),
        ] {
            assert_eq!(redirect_target(asked.as_bytes()), expected, "{asked}");
        }
        assert_eq!(login_path(Some("/tools?q=a b")), "/login?next=%2Ftools%3Fq%3Da+b");
        assert_eq!(login_path(Some("/")), "/login");
    }
}
