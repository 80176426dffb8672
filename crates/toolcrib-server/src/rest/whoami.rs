//! `GET /api/whoami`: the principal of the request, for programs that check their token and for the console's script.

use axum::http::{HeaderValue, header};
use serde_json::{Value, json};

use super::error::ApiResult;
use super::openapi_schema::{nullable, object_schema, string_enum, text};
use super::response::ok_json;
use super::route::ApiRoute;
use crate::auth::AuthorizedRequest;

/// Requires [`Permission::Read`]: a client without credentials learns nothing but the error.
pub(super) fn routes() -> Vec<ApiRoute> {
    vec![ApiRoute::read("/api/whoami", "whoami", whoami).summary("Name and role of the client").json_response(
        200,
        "Visitor",
        "`local` is a local process without a token; only console sessions have a `csrf` token",
    )]
}

pub(super) fn schemas() -> Vec<(&'static str, Value)> {
    let role = string_enum(&["viewer", "agent", "admin"]);
    vec![("Visitor", object_schema(&[("name", text()), ("role", role), ("csrf", nullable(text()))]))]
}

/// Returns the principal. Not cacheable, because it carries the CSRF token.
async fn whoami(AuthorizedRequest { client, .. }: AuthorizedRequest) -> ApiResult {
    let name = client.principal.name();
    let role = client.principal.role();
    let mut response = ok_json(&json!({ "name": name, "role": role, "csrf": client.csrf.as_deref() }))?;
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(response)
}
