//! Error pages: turns error envelopes of console routes into HTML.
//!
//! Handlers of the console return the same errors as those of REST. One middleware renders them, so no handler has to
//! know about pages.

use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::http::response::Parts;
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use maud::{Markup, html};
use serde_json::Value;

use super::history::render_code_spans;
use super::page::render_shell;
use crate::auth::InsufficientRole;
use crate::rest::ConsoleMessage;

/// Maximum size of an error body that is read; envelopes are much smaller.
const MAX_ERROR_BYTES: usize = 64 * 1024;

/// Middleware that renders every error response of the inner routes as a page.
pub(crate) async fn render_error_pages(request: Request, next: Next) -> Response {
    let response = next.run(request).await;
    let failed = response.status().is_client_error() || response.status().is_server_error();
    let kind = response.headers().get(header::CONTENT_TYPE).map(HeaderValue::as_bytes).unwrap_or_default();
    // A page that a handler rendered itself, such as the login with a reason, stays.
    if failed && !kind.starts_with(b"text/html") { to_error_page(response).await } else { response }
}

/// Replaces the body of an error response by a page; status and other headers stay.
async fn to_error_page(response: Response) -> Response {
    let (mut parts, body) = response.into_parts();
    let body = to_bytes(body, MAX_ERROR_BYTES).await.unwrap_or_default();
    let envelope: Value = serde_json::from_slice(&body).unwrap_or_default();
    let field = |key: &str| envelope["error"][key].as_str().map(str::to_owned);
    // A missing asset has an empty body.
    let code = field("code").unwrap_or_else(|| "NOT_FOUND".into());
    let message = parts.extensions.get::<ConsoleMessage>().map(|ConsoleMessage(message)| message.clone());
    let message = message.unwrap_or_else(|| "there is nothing at this address".into());
    let advice = advice(&parts);
    // It is that of the envelope.
    parts.headers.remove(header::CONTENT_LENGTH);
    parts.headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
    Response::from_parts(parts.clone(), Body::from(render_page(parts.status, &code, &message, advice).into_string()))
}

/// Builds the page for an unknown path.
pub(crate) fn not_found() -> Response {
    let page = render_page(StatusCode::NOT_FOUND, "NOT_FOUND", "there is no page at this address", suggested_links());
    (StatusCode::NOT_FOUND, page).into_response()
}

/// Returns the next step for a status; empty if the message says it already.
fn advice(parts: &Parts) -> Markup {
    match parts.status {
        StatusCode::NOT_FOUND => suggested_links(),
        StatusCode::UNAUTHORIZED => html! { a.button href="/login" { "Sign in" } },
        StatusCode::FORBIDDEN if parts.extensions.get::<InsufficientRole>().is_some() => html! {
            a href="/login" { "Sign in" } " with a token that has this role, or open the link that "
            code { "toolcrib serve" } " printed when it started."
        },
        StatusCode::FORBIDDEN => html! {},
        StatusCode::SERVICE_UNAVAILABLE => {
            html! { "This may be temporary: try again in a moment, or go to the " a href="/sources" { "sources" } "." }
        }
        _ => html! { "Go back and try again, or go to the " a href="/" { "overview" } "." },
    }
}

fn suggested_links() -> Markup {
    html! { a href="/tools" { "Search the tools" } " or go to the " a href="/" { "overview" } "." }
}

/// Renders the page without a principal: the client may not be signed in.
fn render_page(status: StatusCode, code: &str, message: &str, advice: Markup) -> Markup {
    let title = match status {
        StatusCode::NOT_FOUND => "Not found",
        StatusCode::UNAUTHORIZED => "Sign in",
        StatusCode::FORBIDDEN => "Not allowed",
        StatusCode::SERVICE_UNAVAILABLE => "Not available",
        _ => "Request failed",
    };
    let content = html! {
        div.refusal {
            // The script reads the message from the second paragraph.
            p.faint { (status.as_u16()) " · " code { (code) } }
            h1 { (title) }
            p { (render_code_spans(&to_sentence(message))) }
            p { (advice) }
        }
    };
    render_shell(
        title,
        html! { nav aria-label="Pages" { ul id="pages" {
            li { a href="/" { "Overview" } }
            li { a href="/sources" { "Sources" } }
            li { a href="/tools" { "Tools" } }
            li { a href="/activity" { "Activity" } }
        } } },
        content,
    )
}

/// Turns an error message, which starts in lower case and has no full stop, into a sentence.
fn to_sentence(message: &str) -> String {
    let mut characters = message.chars();
    let first: String = characters.next().into_iter().flat_map(char::to_uppercase).collect();
    let end = if message.ends_with(['.', '?', '!']) { "" } else { "." };
    format!("{first}{}{end}", characters.as_str())
}
