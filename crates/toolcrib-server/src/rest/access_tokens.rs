//! Access tokens. The secret of a token is in the response that creates it and nowhere else; only its digest is stored.
//!
//! All routes need the role `admin`, which is the default of [`ApiRoute`]. A change takes effect at once, also for open
//! streams and console sessions.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::{delete, get, patch};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use toolcrib::core::access::Role;
use toolcrib::core::inventory::{Inventory, TokenChange};
use toolcrib::core::text::sanitize_truncated;
use toolcrib::core::time::parse_long_duration;
use toolcrib::registry::{Precondition, TokenRequest};
use toolcrib::{Code, Error};

use super::body::JsonBody;
use super::error::ApiResult;
use super::openapi_schema::{
    array_of, boolean, closed, described, nullable, object_schema, partial_object, string_enum, text, timestamp,
    with_optional,
};
use super::precondition::{IfMatch, token_etag};
use super::query::PathParam;
use super::response::{created_json, ok_json, tagged_json};
use super::route::{ApiRoute, schema_ref};
use crate::auth::AuthorizedRequest;

/// A token is addressed by its id or its name; a name may change, an id never does.
pub(super) fn routes() -> Vec<ApiRoute> {
    let with_id =
        |route: ApiRoute| route.path_param("id", json!({ "type": "string", "minLength": 1 }), "Id or name of a token");
    vec![
        ApiRoute::new("GET", "/api/tokens", "list_tokens", get(list_tokens))
            .summary("All tokens, without their secrets")
            .json_response(200, "Tokens", "Tokens in the order of their names"),
        ApiRoute::post("/api/tokens", "create_token", create_token)
            .summary("Create a token; its secret is in this response only")
            .request_body("NewToken")
            .json_response(201, "CreatedToken", "The token")
            .error_responses(&[400, 409, 413, 415, 503]),
        with_id(ApiRoute::new("GET", "/api/tokens/{id}", "get_token", get(get_token)))
            .summary("One token, without its secret")
            .json_response(200, "Token", "The token")
            .tagged(200)
            .error_responses(&[400, 404]),
        with_id(ApiRoute::new("PATCH", "/api/tokens/{id}", "change_token", patch(change_token)))
            .summary("Change the name, role, groups or claims of a token")
            .optional_body("TokenChange")
            .json_response(200, "Token", "The token as it is now")
            .tagged(200)
            .precondition()
            .error_responses(&[400, 404, 409, 413, 415, 503]),
        with_id(ApiRoute::new("DELETE", "/api/tokens/{id}", "revoke_token", delete(revoke_token)))
            .summary("Revoke a token; it is rejected from now on")
            .response(204, json!({ "description": "The token was revoked" }))
            .precondition()
            .error_responses(&[400, 404, 503]),
    ]
}

/// `CreatedToken` is the only schema with the secret.
pub(super) fn schemas() -> Vec<(&'static str, Value)> {
    let role = string_enum(&["viewer", "agent", "admin"]);
    let groups = array_of(json!({ "type": "string", "pattern": "^[a-z0-9_-]{1,64}$" }));
    let groups = described(groups, "Groups that the token is restricted to; none: no restriction");
    let claims = described(json!({ "type": "object" }), "Claims that conditions of rules read");
    let last_used = described(nullable(timestamp()), "Last admitted request with the token; at most 5 seconds late");
    let fields = [
        ("id", text()),
        ("name", text()),
        ("role", role.clone()),
        ("groups", groups.clone()),
        ("claims", claims.clone()),
        ("created_at", timestamp()),
        ("expires_at", nullable(timestamp())),
        ("expired", boolean()),
        ("last_used", last_used),
    ];
    let created: Vec<(&str, Value)> = fields.iter().cloned().chain([("token", text())]).collect();
    let name = json!({ "type": "string", "pattern": "^[A-Za-z0-9][A-Za-z0-9._@-]{0,63}$" });
    let expires = described(nullable(text()), "Lifetime such as `12h`, `30d` or `8w`; default: unlimited");
    let new = object_schema(&[("name", name.clone()), ("role", role.clone())]);
    let restrictions = [("groups", nullable(groups)), ("claims", nullable(claims))];
    let change = partial_object(&[("name", nullable(name)), ("role", nullable(role))]);
    let change = with_optional(change, &restrictions);
    let optional = [&restrictions[..], &[("expires", expires)]].concat();
    vec![
        ("Token", object_schema(&fields)),
        ("Tokens", object_schema(&[("tokens", array_of(schema_ref("Token")))])),
        ("CreatedToken", object_schema(&created)),
        ("NewToken", closed(with_optional(new, &optional))),
        ("TokenChange", closed(change)),
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
    groups: Option<Vec<String>>,
    claims: Option<Map<String, Value>>,
}

/// Body of `PATCH /api/tokens/{id}`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ChangeTokenBody {
    name: Option<String>,
    role: Option<Role>,
    /// An empty list ends the restriction to groups.
    groups: Option<Vec<String>>,
    claims: Option<Map<String, Value>>,
}

/// `GET /api/tokens`.
async fn list_tokens(request: AuthorizedRequest) -> ApiResult {
    ok_json(&json!({ "tokens": request.app.registry.tokens().list() }))
}

/// `GET /api/tokens/{id}`.
async fn get_token(request: AuthorizedRequest, PathParam(name): PathParam) -> ApiResult {
    let token = request.app.registry.tokens().get(&name)?;
    tagged_json(&token, token_etag(&token))
}

/// `POST /api/tokens`.
async fn create_token(request: AuthorizedRequest, JsonBody(new): JsonBody<CreateTokenBody>) -> ApiResult {
    let invalid = |text: &str| {
        let message = format!("`expires` is a duration such as `12h` or `30d`, not `{}`", sanitize_truncated(text, 40));
        Error::new(Code::BadRequest, message)
    };
    let expires =
        new.expires.as_deref().map(|text| parse_long_duration(text).ok_or_else(|| invalid(text))).transpose()?;
    let CreateTokenBody { name, role, groups, claims, .. } = new;
    let (groups, claims) = (groups.unwrap_or_default(), claims.unwrap_or_default());
    let tokens = request.app.registry.tokens();
    let new = TokenRequest { name, role, expires, groups, claims };
    let created = tokens.create_from(new, request.client.actor()).await?;
    let mut response = created_json(&created, &format!("/api/tokens/{}", created.view.id))?;
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(response)
}

/// `PATCH /api/tokens/{id}`.
async fn change_token(
    request: AuthorizedRequest,
    PathParam(name): PathParam,
    if_match: IfMatch,
    JsonBody(change): JsonBody<ChangeTokenBody>,
) -> ApiResult {
    let tokens = request.app.registry.tokens();
    let id = tokens.get(&name)?.id;
    let is_unchanged = |inventory: &Inventory| if_match.check_token(inventory, &id);
    let tokens = tokens.only_if(Precondition::new(&is_unchanged));
    let ChangeTokenBody { name, role, groups, claims } = change;
    let change = TokenChange { id: id.clone(), name, role, groups, claims };
    let token = tokens.change(change, request.client.actor()).await?;
    tagged_json(&token, token_etag(&token))
}

/// `DELETE /api/tokens/{id}`.
async fn revoke_token(request: AuthorizedRequest, PathParam(name): PathParam, if_match: IfMatch) -> ApiResult {
    let tokens = request.app.registry.tokens();
    let id = tokens.get(&name)?.id;
    let is_unchanged = |inventory: &Inventory| if_match.check_token(inventory, &id);
    tokens.only_if(Precondition::new(&is_unchanged)).revoke(&id, request.client.actor()).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}
