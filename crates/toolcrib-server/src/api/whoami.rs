//! Who is asking, as we see it: for programs that want to know what their token may, and for the console's script.

use axum::Extension;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use axum::routing::get;
use serde_json::{Value, json};

use super::fault::Fault;
use super::reply;
use super::route::Route;
use super::shape::{nullable, object, one_of};
use crate::access::{Needs, Visitor};

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::new("GET", "/api/whoami", "whoami", get(whoami))
            .about("Who you are here, and what you may")
            .needs(Needs::Reading)
            .answers(200, "Visitor", "`local` is whoever came without a token; `csrf` is a console session's alone"),
    ]
}

pub(super) fn schemas() -> Vec<(&'static str, Value)> {
    let text = json!({ "type": "string" });
    let role = one_of(&["viewer", "agent", "admin"]);
    vec![("Visitor", object(&[("name", text.clone()), ("role", role), ("csrf", nullable(text))]))]
}

async fn whoami(Extension(visitor): Extension<Visitor>) -> Result<Response, Fault> {
    let Visitor { name, role, csrf, .. } = visitor;
    let mut response = reply::json(StatusCode::OK, &json!({ "name": name, "role": role, "csrf": csrf.as_deref() }))?;
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(response)
}
