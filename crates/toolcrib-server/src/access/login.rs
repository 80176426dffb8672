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

use super::admit::{is_form, locality};
use super::sessions::Holder;
use super::{Locality, Needs, admit, cookie};
use crate::api::{Fault, LATER, refusal, whole};
use crate::console;
use crate::house::House;

pub(super) const PATH: &str = "/login";

pub(crate) fn router(house: &House) -> Router<House> {
    let out = post(sign_out).layer(from_fn_with_state((house.clone(), Needs::Nothing), admit));
    Router::new().route(PATH, get(ask).post(sign_in)).route("/logout", out)
}

/// Where to sign in, and be led back from.
pub(super) fn asking(back: Option<&str>) -> String {
    match back.filter(|back| *back != "/") {
        Some(back) => format!("{PATH}?next={}", byte_serialize(back.as_bytes()).collect::<String>()),
        None => PATH.to_owned(),
    }
}

async fn ask(State(house): State<House>, request: Request) -> Response {
    let locality = locality(&request);
    let query = request.uri().query().unwrap_or_default();
    let next = next(query.as_bytes());
    let Some((_, key)) = parse(query.as_bytes()).find(|(name, _)| name == "key") else {
        return page(&house, locality, StatusCode::OK, None, &next);
    };
    // What only looks ahead does not use the link up.
    if request.method() == Method::HEAD || looks_ahead(request.headers()) {
        return StatusCode::NO_CONTENT.into_response();
    }
    match house.access.sessions.take_link(&key, house.registry.now()) {
        true => signed_in(&house, request.headers(), Holder::Admin, &next).unwrap_or_else(IntoResponse::into_response),
        false => {
            let said = "This link was used already, or is older than ten minutes. A link is good once; sign in with a token instead.";
            page(&house, locality, StatusCode::GONE, Some(said), &next)
        }
    }
}

async fn sign_in(State(house): State<House>, request: Request) -> Response {
    if !is_form(request.headers()) {
        let message = "send a form with the field `token`";
        return refusal(StatusCode::UNSUPPORTED_MEDIA_TYPE, Code::BadRequest, message);
    }
    let locality = locality(&request);
    let (parts, body) = request.into_parts();
    let bytes = match whole(&parts.headers, body).await {
        Ok(bytes) => bytes,
        Err(refused) => return refused,
    };
    let (next, token) = (next(&bytes), parse(&bytes).find(|(name, _)| name == "token"));
    let token = token.map(|(_, token)| token.trim().to_owned()).unwrap_or_default();
    match house.access.holder(&house.registry, &token) {
        Ok(holder) => signed_in(&house, &parts.headers, holder, &next).unwrap_or_else(IntoResponse::into_response),
        Err(error) if error.code == Code::RateLimited => {
            let said = "There were too many wrong tokens. Try again in a minute.";
            let mut response = page(&house, locality, StatusCode::TOO_MANY_REQUESTS, Some(said), &next);
            response.headers_mut().insert(header::RETRY_AFTER, LATER);
            response
        }
        Err(error) if error.code == Code::StoreUnavailable => {
            let said = "The store is damaged, so that stored tokens are not accepted. Sign in with the token in `admin.token` of the data directory.";
            page(&house, locality, StatusCode::SERVICE_UNAVAILABLE, Some(said), &next)
        }
        Err(_) => {
            let said = "This token is not known here, or was revoked, or has expired.";
            page(&house, locality, StatusCode::UNAUTHORIZED, Some(said), &next)
        }
    }
}

async fn sign_out(State(house): State<House>, headers: HeaderMap) -> Result<Response, Fault> {
    if let Some(id) = cookie::session(house.access.address, &headers) {
        house.access.sessions.end(id);
    }
    let cookie = cookie::forget(house.access.address, &headers)?;
    Ok(([(header::SET_COOKIE, cookie)], Redirect::to(PATH)).into_response())
}

/// Begins a session; the one that this browser had before ends.
fn signed_in(house: &House, headers: &HeaderMap, holder: Holder, next: &str) -> Result<Response, Fault> {
    let access = &house.access;
    if let Some(old) = cookie::session(access.address, headers) {
        access.sessions.end(old);
    }
    let id = access.sessions.begin(holder, house.registry.now());
    let fields = [
        (header::SET_COOKIE, cookie::set(access.address, headers, &id)?),
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

fn looks_ahead(headers: &HeaderMap) -> bool {
    let said = |name| headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok()).unwrap_or_default();
    said("sec-purpose").contains("prefetch") || said("purpose").contains("prefetch")
}

/// Where to go on to: a place of our own, whatever was asked for.
fn next(form: &[u8]) -> String {
    let asked = parse(form).find(|(name, _)| name == "next").map(|(_, next)| next.into_owned());
    // A browser takes `//host` and `/\host` for another site.
    let is_ours = |path: &String| {
        path.starts_with('/')
            && !path[1..].starts_with(['/', '\\'])
            && path.bytes().all(|byte| byte.is_ascii_graphic())
            && !path.starts_with(PATH)
    };
    asked.filter(is_ours).unwrap_or_else(|| "/".to_owned())
}

fn page(house: &House, locality: Locality, status: StatusCode, said: Option<&str>, next: &str) -> Response {
    let form = html! {
        @if let Some(said) = said { p.problem role="alert" { (said) } }
        form.login method="post" action=(PATH) {
            input type="hidden" name="next" value=(next);
            label for="token" { "Token" }
            input #token type="password" name="token" required autofocus autocomplete="current-password" spellcheck="false";
            button type="submit" { "Sign in" }
        }
        (hint(house, locality))
    };
    let fields = [(header::CACHE_CONTROL, HeaderValue::from_static("no-store"))];
    (status, fields, console::plain_page("Sign in", form)).into_response()
}

/// Where a token is to be had. Only a local process of the same user is told where things lie.
fn hint(house: &House, locality: Locality) -> Markup {
    html! {
        @if locality == Locality::Local {
            p.hint {
                "Yours is in the file " code { (house.data.join("admin.token").display()) }
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
            assert_eq!(next(asked.as_bytes()), expected, "{asked}");
        }
        assert_eq!(asking(Some("/tools?q=a b")), "/login?next=%2Ftools%3Fq%3Da+b");
        assert_eq!(asking(Some("/")), "/login");
    }
}
