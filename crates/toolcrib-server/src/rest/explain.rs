//! `POST /api/explain` and `GET /api/tools/{name}/callers`: why a caller may or may not use a tool, and who may.

use axum::routing::get;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use toolcrib::core::access::Role;
use toolcrib::registry::PreviewCaller;
use toolcrib::{Code, Error, Principal, Registry, Result};

use super::body::JsonBody;
use super::error::ApiResult;
use super::openapi_schema::{
    array_of, boolean, closed, described, nullable, object_schema, string_array, string_enum, text, with_optional,
};
use super::query::PathParam;
use super::response::{ok_json, render_blocking};
use super::route::{ApiRoute, schema_ref};
use crate::auth::{AuthorizedRequest, Permission};
use crate::position::with_content_position;

pub(super) fn routes() -> Vec<ApiRoute> {
    vec![
        ApiRoute::post("/api/explain", "explain_access", explain)
            .summary("Verdict on a tool for a caller, with the rules that led to it")
            .requires(Permission::Read)
            .request_body("ExplainRequest")
            .json_response(200, "Explanation", "The rules are in the order in which they are applied")
            .error_responses(&[400, 404, 413, 415]),
        ApiRoute::new("GET", "/api/tools/{name}/callers", "list_callers", get(list_callers))
            .summary("Groups that have a tool, and the verdict on it for each known caller")
            .tool_param()
            .json_response(200, "Callers", "Local processes, the holders of tokens, callers of identity providers")
            .error_responses(&[400, 404]),
    ]
}

pub(super) fn schemas() -> Vec<(&'static str, Value)> {
    let rule = object_schema(&[
        ("kind", string_enum(&["role", "token", "access", "group", "source", "policy"])),
        ("name", text()),
        ("effect", described(text(), "Its part in the verdict, in words")),
    ]);
    let explanation = [
        ("verdict", string_enum(&["allow", "ask", "deny", "hide"])),
        (
            "visible",
            described(boolean(), "Whether the caller sees the tool; administrators see denied and hidden ones"),
        ),
        ("rules", array_of(rule)),
    ];
    let caller = [
        ("caller", text()),
        ("kind", string_enum(&["jwt", "token", "console", "local"])),
        ("role", string_enum(&["viewer", "agent", "admin"])),
    ];
    let caller: Vec<(&str, Value)> = caller.into_iter().chain(explanation.iter().cloned()).collect();
    let tool = described(text(), "`source__tool`, `source:tool`, or the tool's own name if it is unique");
    let token = described(nullable(text()), "Id or name of a token; only for administrators");
    let claims = described(
        nullable(json!({ "type": "object" })),
        "Claims of an access token of an identity provider, whose configuration gives the role; only for administrators",
    );
    let request = with_optional(object_schema(&[("tool", tool)]), &[("token", token), ("claims", claims)]);
    let given_by = described(string_array(), "Active access rules that give the group to callers");
    let group = object_schema(&[("name", text()), ("access", given_by)]);
    let groups = described(array_of(group), "Groups that have the tool");
    vec![
        ("ExplainRequest", closed(request)),
        ("Explanation", object_schema(&explanation)),
        ("Callers", object_schema(&[("groups", groups), ("callers", array_of(schema_ref("CallerVerdict")))])),
        ("CallerVerdict", object_schema(&caller)),
    ]
}

/// Body of `POST /api/explain`. Without a token and claims it is about the client itself.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ExplainBody {
    tool: String,
    token: Option<String>,
    claims: Option<Map<String, Value>>,
}

/// `POST /api/explain`.
async fn explain(request: AuthorizedRequest, JsonBody(body): JsonBody<ExplainBody>) -> ApiResult {
    let (registry, client) = (&request.app.registry, &request.client.principal);
    let ExplainBody { tool, token, claims } = body;
    let caller = match (token, claims) {
        (None, None) => None,
        (Some(token), None) => Some(PreviewCaller::Token(token)),
        (None, Some(claims)) => Some(PreviewCaller::Claims(claims)),
        (Some(_), Some(_)) => return Err(Error::new(Code::BadRequest, "send `token` or `claims`, not both").into()),
    };
    let position = registry.position();
    let caller = find_caller(registry, client, caller)?;
    let response = ok_json(&registry.rules().explain(client, &caller, &tool)?)?;
    Ok(with_content_position(response, position))
}

/// Returns the principal to explain a verdict for. Administrators may ask about every caller, others about themselves.
fn find_caller(registry: &Registry, client: &Principal, caller: Option<PreviewCaller>) -> Result<Principal> {
    match caller {
        None => Ok(client.clone()),
        Some(caller) if client.role() == Role::Admin => registry.rules().preview_principal(&caller),
        Some(_) => {
            let message = "only the role `admin` may ask about other callers; leave out `token` and `claims`";
            Err(Error::new(Code::Forbidden, message))
        }
    }
}

/// `GET /api/tools/{name}/callers`.
async fn list_callers(request: AuthorizedRequest, PathParam(name): PathParam) -> ApiResult {
    let AuthorizedRequest { app, client, .. } = request;
    let find = move || app.registry.rules_for(&client.principal).access_to(&name, &app.auth.known_jwt_callers());
    ok_json(&render_blocking(find).await?)
}
