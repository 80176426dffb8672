//! `GET /api/whoami`: the principal of the request, for programs that check their token and for the console's script.

use axum::http::{HeaderValue, header};
use serde_json::{Value, json};
use toolcrib::core::principal::PrincipalIdentity;
use toolcrib::{Principal, Registry};

use super::error::ApiResult;
use super::openapi_schema::{array_of, described, nullable, object_schema, string_enum, text};
use super::response::ok_json;
use super::route::ApiRoute;
use crate::auth::AuthorizedRequest;

/// Requires [`Permission::Read`]: a client without credentials learns nothing but the error.
pub(super) fn routes() -> Vec<ApiRoute> {
    let route = ApiRoute::read("/api/whoami", "whoami", whoami);
    vec![route.summary("Identity, role, claims and groups of the client").json_response(
        200,
        "Visitor",
        "`local` is a local process without a token; only console sessions have a `csrf` token",
    )]
}

pub(super) fn schemas() -> Vec<(&'static str, Value)> {
    let fields = [
        ("name", text()),
        ("role", string_enum(&["viewer", "agent", "admin"])),
        ("csrf", nullable(text())),
        ("kind", string_enum(&["jwt", "token", "console", "local"])),
        ("issuer", described(nullable(text()), "Identity provider of a JWT")),
        ("sub", described(nullable(text()), "Subject of a JWT")),
        ("claims", json!({ "type": "object" })),
        (
            "groups",
            described(
                array_of(text()),
                "Groups whose tools the client sees; empty: no restriction to groups, or none of them",
            ),
        ),
    ];
    vec![("Visitor", object_schema(&fields))]
}

/// Returns the principal. Not cacheable, because it carries the CSRF token.
async fn whoami(AuthorizedRequest { app, client, .. }: AuthorizedRequest) -> ApiResult {
    let principal = &client.principal;
    let (issuer, sub) = if let PrincipalIdentity::Jwt { issuer, sub } = principal.identity() {
        (Some(&**issuer), Some(&**sub))
    } else {
        (None, None)
    };
    let mut response = ok_json(&json!({
        "name": principal.name(),
        "role": principal.role(),
        "csrf": client.csrf.as_deref(),
        "kind": principal.identity().kind(),
        "issuer": issuer,
        "sub": sub,
        "claims": principal.claims(),
        "groups": visible_groups(&app.registry, principal),
    }))?;
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(response)
}

/// Returns the groups whose tools a client sees, in the order of their names: those of its token, whether they exist or not,
/// or those that access rules give it.
fn visible_groups(registry: &Registry, principal: &Principal) -> Vec<String> {
    if !principal.groups().is_empty() {
        return principal.groups().to_vec();
    }
    let scope = registry.scope(principal);
    scope.groups().into_iter().flatten().map(|group| group.name.clone()).collect()
}
