//! Access tokens. The secret of a token is in the response that creates it and nowhere else; only its digest is stored.
//!
//! All routes need the role `admin`, which is the default of [`ApiRoute`]. A change takes effect at once, also for open
//! streams and console sessions.

use axum::Extension;
use axum::extract::State;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, patch, post};
use serde::Deserialize;
use serde_json::{Value, json};
use toolcrib::core::access::Role;
use toolcrib::core::text::sanitize_truncated;
use toolcrib::core::time::parse_long_duration;
use toolcrib::{Code, Error};

use super::body::JsonBody;
use super::error::ApiError;
use super::openapi_schema::{nullable, object_schema, partial_object, string_enum};
use super::query::PathParam;
use super::response;
use super::route::{ApiRoute, schema_ref};
use crate::auth::AuthenticatedClient;
use crate::state::AppState;

/// A token is addressed by its id or its name; a name may change, an id never does.
pub(super) fn routes() -> Vec<ApiRoute> {
    let with_id =
        |route: ApiRoute| route.path_param("id", json!({ "type": "string", "minLength": 1 }), "Id or name of a token");
    vec![
        ApiRoute::new("GET", "/api/tokens", "list_tokens", get(list_tokens))
            .summary("All tokens, without their secrets")
            .json_response(200, "Tokens", "Tokens in the order of their names"),
        ApiRoute::new("POST", "/api/tokens", "create_token", post(create_token))
            .summary("Create a token; its secret is in this response only")
            .request_body("NewToken")
            .json_response(201, "CreatedToken", "The token")
            .error_responses(&[400, 409, 413, 415, 503]),
        with_id(ApiRoute::new("GET", "/api/tokens/{id}", "get_token", get(get_token)))
            .summary("One token, without its secret")
            .json_response(200, "Token", "The token")
            .error_responses(&[400, 404]),
        with_id(ApiRoute::new("PATCH", "/api/tokens/{id}", "change_token", patch(change_token)))
            .summary("Change the name or role of a token")
            .optional_body("TokenChange")
            .json_response(200, "Token", "The token as it is now")
            .error_responses(&[400, 404, 409, 413, 415, 503]),
        with_id(ApiRoute::new("DELETE", "/api/tokens/{id}", "revoke_token", delete(revoke_token)))
            .summary("Revoke a token; it is rejected from now on")
            .response(204, json!({ "description": "The token was revoked" }))
            .error_responses(&[400, 404, 503]),
    ]
}

/// `CreatedToken` is the only schema with the secret.
pub(super) fn schemas() -> Vec<(&'static str, Value)> {
    let text = json!({ "type": "string" });
    let role = string_enum(&["viewer", "agent", "admin"]);
    let timestamp = json!({ "type": "string", "format": "date-time" });
    let fields = [
        ("id", text.clone()),
        ("name", text.clone()),
        ("role", role.clone()),
        ("created_at", timestamp.clone()),
        ("expires_at", nullable(timestamp)),
        ("expired", json!({ "type": "boolean" })),
    ];
    let created: Vec<(&str, Value)> = fields.iter().cloned().chain([("token", text)]).collect();
    let name = json!({ "type": "string", "pattern": "^[A-Za-z0-9][A-Za-z0-9._@-]{0,63}$" });
    let expires = json!({ "type": ["string", "null"], "description": "Lifetime such as `12h`, `30d` or `8w`; default: unlimited" });
    let mut new = object_schema(&[("name", name.clone()), ("role", role.clone())]);
    new["properties"]["expires"] = expires;
    new["additionalProperties"] = json!(false);
    let mut change = partial_object(&[("name", nullable(name)), ("role", nullable(role))]);
    change["additionalProperties"] = json!(false);
    let tokens = object_schema(&[("tokens", json!({ "type": "array", "items": schema_ref("Token") }))]);
    vec![
        ("Token", object_schema(&fields)),
        ("Tokens", tokens),
        ("CreatedToken", object_schema(&created)),
        ("NewToken", new),
        ("TokenChange", change),
    ]
}

/// Body of `POST /api/tokens`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct CreateTokenBody {
    name: String,
    role: Role,
    /// A duration from now on; without it the token is valid until it is revoked.
    expires: Option<String>,
}

/// Body of `PATCH /api/tokens/{id}`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ChangeTokenBody {
    name: Option<String>,
    role: Option<Role>,
}

/// `GET /api/tokens`.
async fn list_tokens(State(app): State<AppState>) -> Result<Response, ApiError> {
    Ok(response::json_response(StatusCode::OK, &json!({ "tokens": app.registry.tokens().list() }))?)
}

/// `GET /api/tokens/{id}`.
async fn get_token(State(app): State<AppState>, PathParam(name): PathParam) -> Result<Response, ApiError> {
    Ok(response::json_response(StatusCode::OK, &app.registry.tokens().get(&name)?)?)
}

/// `POST /api/tokens`.
async fn create_token(
    State(app): State<AppState>,
    Extension(client): Extension<AuthenticatedClient>,
    JsonBody(new): JsonBody<CreateTokenBody>,
) -> Result<Response, ApiError> {
    let invalid = |text: &str| {
        let message = format!("`expires` is a duration such as `12h` or `30d`, not `{}`", sanitize_truncated(text, 40));
        Error::new(Code::BadRequest, message)
    };
    let expires =
        new.expires.as_deref().map(|text| parse_long_duration(text).ok_or_else(|| invalid(text))).transpose()?;
    let created = app.registry.tokens().create(&new.name, new.role, expires, client.actor()).await?;
    let mut response = response::json_response(StatusCode::CREATED, &created)?;
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    // An id has hexadecimal digits only, so this never fails.
    if let Ok(location) = HeaderValue::from_str(&format!("/api/tokens/{}", created.view.id)) {
        response.headers_mut().insert(header::LOCATION, location);
    }
    Ok(response)
}

/// `PATCH /api/tokens/{id}`.
async fn change_token(
    State(app): State<AppState>,
    Extension(client): Extension<AuthenticatedClient>,
    PathParam(name): PathParam,
    JsonBody(change): JsonBody<ChangeTokenBody>,
) -> Result<Response, ApiError> {
    let changed = app.registry.tokens().change(&name, change.name, change.role, client.actor()).await?;
    Ok(response::json_response(StatusCode::OK, &changed)?)
}

/// `DELETE /api/tokens/{id}`.
async fn revoke_token(
    State(app): State<AppState>,
    Extension(client): Extension<AuthenticatedClient>,
    PathParam(name): PathParam,
) -> Result<Response, ApiError> {
    app.registry.tokens().revoke(&name, client.actor()).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}
