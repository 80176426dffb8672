//! Groups, access rules and policies: reads them, and defines and removes those that are not in the configuration. The three
//! kinds have the same routes.
//!
//! ```text
//! GET /api/groups                       {"groups":[{"name":"support","select":[…],…,"members":[…],"missing":[],"origin":"config"}]}
//! PUT /api/access/support-desk          the definition, as in a configuration file
//! DELETE /api/policies/NAME?dry_run=1   what would change for the callers that are known
//! ```
//!
//! All routes need the role `admin`, which is the default of [`ApiRoute`]. A change takes effect at once, also for open
//! streams.

mod schema;

use std::sync::atomic::{AtomicBool, Ordering};

use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::{delete, get, put};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use toolcrib::config::{ConfigDiagnostic, REQUEST_BODY, parse_rule};
use toolcrib::core::access_rules::{NamedRule, RuleKind};
use toolcrib::core::inventory::{Inventory, Origin};
use toolcrib::registry::{Precondition, RuleChange};
use toolcrib::{Registry, Result};

use super::body::RequiredJsonBody;
use super::error::ApiResult;
use super::precondition::{IfAbsent, IfMatch, rule_etag};
use super::query::{PathParam, QueryParams};
use super::response::{created_json, json_response, ok_json, render_blocking, tagged_json};
use super::route::ApiRoute;
use crate::auth::AuthorizedRequest;

pub(super) use schema::schemas;

/// Paths, operations and schemas of one kind of rule.
struct RuleRoutes {
    kind: RuleKind,
    list_path: &'static str,
    path: &'static str,
    /// Operations: list, read, define, remove.
    operation_ids: [&'static str; 4],
    /// Summaries of the operations.
    summaries: [&'static str; 4],
    schema: &'static str,
    list_schema: &'static str,
    definition_schema: &'static str,
}

const RULE_ROUTES: [RuleRoutes; 3] = [
    RuleRoutes {
        kind: RuleKind::Group,
        list_path: "/api/groups",
        path: "/api/groups/{name}",
        operation_ids: ["list_groups", "get_group", "define_group", "remove_group"],
        summaries: [
            "All groups with their tools",
            "One group with its tools",
            "Define a group, or replace it",
            "Remove a group that no rule refers to",
        ],
        schema: "Group",
        list_schema: "Groups",
        definition_schema: "GroupDefinition",
    },
    RuleRoutes {
        kind: RuleKind::Access,
        list_path: "/api/access",
        path: "/api/access/{name}",
        operation_ids: ["list_access_rules", "get_access_rule", "define_access_rule", "remove_access_rule"],
        summaries: [
            "All access rules, which give groups to callers",
            "One access rule",
            "Define an access rule, or replace it",
            "Remove an access rule",
        ],
        schema: "AccessRule",
        list_schema: "AccessRules",
        definition_schema: "AccessRuleDefinition",
    },
    RuleRoutes {
        kind: RuleKind::Policy,
        list_path: "/api/policies",
        path: "/api/policies/{name}",
        operation_ids: ["list_policies", "get_policy", "define_policy", "remove_policy"],
        summaries: [
            "All policies, which give verdicts on tools",
            "One policy",
            "Define a policy, or replace it",
            "Remove a policy",
        ],
        schema: "Policy",
        list_schema: "Policies",
        definition_schema: "PolicyDefinition",
    },
];

pub(super) fn routes() -> Vec<ApiRoute> {
    RULE_ROUTES.iter().flat_map(RuleRoutes::routes).collect()
}

impl RuleRoutes {
    fn routes(&self) -> [ApiRoute; 4] {
        let kind = self.kind;
        let [list_id, get_id, define_id, remove_id] = self.operation_ids;
        let [list_summary, get_summary, define_summary, remove_summary] = self.summaries;
        let with_name = |route: ApiRoute| {
            let schema = json!({ "type": "string", "pattern": "^[a-z0-9_-]{1,64}$" });
            route.path_param("name", schema, &format!("Name of the {}", kind.noun()))
        };
        let with_dry_run = |route: ApiRoute| {
            let description = "Writes nothing; answers what would change for the callers that are known: local processes, \
                               the holders of tokens, and callers of identity providers with a valid token";
            with_name(route).query_param("dry_run", json!({ "type": "boolean", "default": false }), description)
        };
        let list = ApiRoute::new("GET", self.list_path, list_id, get(move |request| list_rules(kind, request)))
            .summary(list_summary)
            .json_response(200, self.list_schema, "In the order of their names");
        let read = ApiRoute::new("GET", self.path, get_id, get(move |request, name| get_rule(kind, request, name)));
        let read = with_name(read)
            .summary(get_summary)
            .json_response(200, self.schema, "The definition")
            .tagged(200)
            .error_responses(&[400, 404]);
        let define =
            move |request, name, conditions, params, body| define_rule(kind, request, name, conditions, params, body);
        let if_none_match = json!({
            "name": "If-None-Match", "in": "header", "description": "`*`: only if there is none of this name yet, otherwise 412",
            "schema": { "type": "string" },
        });
        let define = with_dry_run(ApiRoute::new("PUT", self.path, define_id, put(define)))
            .summary(define_summary)
            .request_body(self.definition_schema)
            .json_response_any(200, &[self.schema, "RuleChangePreview"], "It was replaced; or the preview")
            .tagged(200)
            .json_response(201, self.schema, "It is new")
            .tagged(201)
            .precondition()
            .parameter(if_none_match)
            .error_responses(&[400, 409, 413, 415, 503]);
        let remove = move |request, name, if_match, params| remove_rule(kind, request, name, if_match, params);
        let remove = with_dry_run(ApiRoute::new("DELETE", self.path, remove_id, delete(remove)))
            .summary(remove_summary)
            .json_response(200, "RuleChangePreview", "The preview, with `dry_run`")
            .response(204, json!({ "description": "It was removed" }))
            .precondition()
            .error_responses(&[400, 404, 409, 503]);
        [list, read, define, remove]
    }
}

/// `GET /api/groups`, `/api/access` and `/api/policies`.
async fn list_rules(kind: RuleKind, request: AuthorizedRequest) -> ApiResult {
    let list = move || {
        let definitions = request.app.registry.rules_for(&request.client.principal);
        let rules = definitions.in_force();
        let rules = rules.iter().filter(|(rule, _)| rule.kind() == kind);
        Ok(rules.map(|(rule, origin)| definitions.to_json(&rule, origin)).collect::<Vec<Value>>())
    };
    ok_json(&json!({ kind.plural(): render_blocking(list).await? }))
}

/// `GET /api/groups/{name}`, `/api/access/{name}` and `/api/policies/{name}`.
async fn get_rule(kind: RuleKind, request: AuthorizedRequest, PathParam(name): PathParam) -> ApiResult {
    let registry = &request.app.registry;
    let found = registry.rules().in_force().find(kind, &name);
    let (rule, origin) = found.ok_or_else(|| registry.rules().unknown_error(kind, &name))?;
    let etag = rule_etag(&rule, origin);
    tagged_json(&render_rule(&request, rule, origin).await?, etag)
}

/// `PUT /api/groups/{name}`, `/api/access/{name}` and `/api/policies/{name}`.
async fn define_rule(
    kind: RuleKind,
    request: AuthorizedRequest,
    PathParam(name): PathParam,
    (if_match, if_absent): (IfMatch, IfAbsent),
    params: QueryParams,
    RequiredJsonBody(body): RequiredJsonBody<Box<RawValue>>,
) -> ApiResult {
    let in_force = request.app.registry.rules().in_force();
    let rule = parse_rule(kind, &name, body.get(), REQUEST_BODY)
        .and_then(|parsed| parsed.check_groups(&in_force))
        .map_err(|faults| ConfigDiagnostic::combined_error(&faults))?;
    let is_replaced = AtomicBool::new(false);
    let is_unchanged = |inventory: &Inventory| {
        let known = inventory.rules().find(kind, &name);
        is_replaced.store(known.is_some(), Ordering::Relaxed);
        if_absent.check_rule(known.as_ref(), kind, &name)?;
        if_match.check_rule(known.as_ref(), kind, &name)
    };
    let registry = &request.app.registry;
    if params.flag("dry_run")? {
        is_unchanged(&registry.inventory())?;
        return preview(&request, RuleChange::Define(Box::new(rule))).await;
    }
    let local_had_none = registry.rules().leave_local_without_tools();
    let rules = registry.rules().only_if(Precondition::new(&is_unchanged));
    rules.define(rule.clone(), request.client.actor()).await?;
    let etag = rule_etag(&rule, Origin::Runtime);
    let mut response = render_rule(&request, rule, Origin::Runtime).await?;
    if let Some(warning) = local_warning(registry, local_had_none) {
        response["warnings"] = json!([warning]);
    }
    let mut response = if is_replaced.into_inner() {
        json_response(StatusCode::OK, &response)?
    } else {
        created_json(&response, &format!("/api/{}/{name}", kind.plural()))?
    };
    response.headers_mut().insert(header::ETAG, etag);
    Ok(response)
}

/// `DELETE /api/groups/{name}`, `/api/access/{name}` and `/api/policies/{name}`.
async fn remove_rule(
    kind: RuleKind,
    request: AuthorizedRequest,
    PathParam(name): PathParam,
    if_match: IfMatch,
    params: QueryParams,
) -> ApiResult {
    let registry = &request.app.registry;
    let is_unchanged =
        |inventory: &Inventory| if_match.check_rule(inventory.rules().find(kind, &name).as_ref(), kind, &name);
    if params.flag("dry_run")? {
        let inventory = registry.inventory();
        if inventory.rules().origin(kind, &name).is_none() {
            return Err(registry.rules().unknown_error(kind, &name).into());
        }
        is_unchanged(&inventory)?;
        return preview(&request, RuleChange::Remove(kind, name)).await;
    }
    let local_had_none = registry.rules().leave_local_without_tools();
    let rules = registry.rules().only_if(Precondition::new(&is_unchanged));
    rules.remove(kind, &name, request.client.actor()).await?;
    // The response has no body; the warning is in the log.
    local_warning(registry, local_had_none);
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// Answers what a change would do.
async fn preview(request: &AuthorizedRequest, change: RuleChange) -> ApiResult {
    let (app, client) = (request.app.clone(), request.client.clone());
    let preview = move || app.registry.rules_for(&client.principal).preview(&change, &app.auth.known_jwt_callers());
    ok_json(&render_blocking(preview).await?)
}

/// Renders a rule for the client of a request, on a blocking thread.
async fn render_rule(request: &AuthorizedRequest, rule: NamedRule, origin: Origin) -> Result<Value> {
    let (app, client) = (request.app.clone(), request.client.clone());
    render_blocking(move || Ok(app.registry.rules_for(&client.principal).to_json(&rule, origin))).await
}

/// Returns and logs a warning if a change has left local processes without tools. `had_none` tells whether they had none
/// before it.
fn local_warning(registry: &Registry, had_none: bool) -> Option<String> {
    let warning = registry.rules().local_warning().filter(|_| !had_none)?;
    tracing::warn!("{warning}");
    Some(warning)
}
