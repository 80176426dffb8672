//! `GET /api/whoami`: the principal of the request, for programs that check their token and for the console's script.

use axum::Extension;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use axum::routing::get;
use serde_json::{Value, json};

use super::error::ApiError;
use super::openapi_schema::{nullable, object_schema, string_enum};
use super::response;
use super::route::ApiRoute;
use crate::auth::{AuthenticatedClient, Permission};

/// Requires [`Permission::Read`]: a client without credentials learns nothing but the error.
pub(super) fn routes() -> Vec<ApiRoute> {
    vec![
        ApiRoute::new("GET", "/api/whoami", "whoami", get(whoami))
            .summary("Name and role of the client")
            .requires(Permission::Read)
            .json_response(
                200,
                "Visitor",
                "`local` is a local process without a token; only console sessions have a `csrf` token",
            ),
    ]
}

pub(super) fn schemas() -> Vec<(&'static str, Value)> {
    let text = json!({ "type": "string" });
    let role = string_enum(&["viewer", "agent", "admin"]);
    vec![("Visitor", object_schema(&[("name", text.clone()), ("role", role), ("csrf", nullable(text))]))]
}

/// Returns the principal. Not cacheable, because it carries the CSRF token.
async fn whoami(Extension(client): Extension<AuthenticatedClient>) -> Result<Response, ApiError> {
    let AuthenticatedClient { principal, csrf, .. } = client;
    let (name, role) = (principal.name(), principal.role());
    let mut response =
        response::json_response(StatusCode::OK, &json!({ "name": name, "role": role, "csrf": csrf.as_deref() }))?;
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(response)
}
