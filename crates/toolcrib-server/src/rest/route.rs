//! Builder for one row of the route table: path, handler, required permission, and its part of the OpenAPI document.
//!
//! Route and description are one value, so that neither can exist without the other.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::handler::Handler;
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;
use axum::routing::{MethodRouter, get, post};
use serde_json::{Map, Value, json};

use super::error::ApiError;
use super::openapi_descriptions::describe_operation;
use super::query::QueryParams;
use crate::auth::{Permission, authorize};
use crate::position::{POSITION_HEADER, STALE_HEADER};
use crate::state::AppState;

/// One operation of the REST API.
///
/// More than twenty methods: one for each part of the description of an operation.
#[derive(Debug)]
pub(crate) struct ApiRoute {
    /// In upper case; the document has it in lower case.
    method: &'static str,
    path: &'static str,
    /// Unique in the document; generated clients make method names of it.
    operation_id: &'static str,
    summary: &'static str,
    required: Permission,
    /// Permission that it requires instead while access rules exist.
    required_with_rules: Option<Permission>,
    parameters: Vec<Value>,
    /// The request body object of OpenAPI.
    body: Option<Value>,
    /// Response objects of OpenAPI, by status.
    responses: Map<String, Value>,
    handler: MethodRouter<AppState>,
}

impl ApiRoute {
    /// Begins a route. The handler must be for the same method: `ApiRoute::new("GET", "/api/x", "list_x", get(list_x))`.
    /// Without [`ApiRoute::requires`] it needs [`Permission::Manage`], so that a forgotten permission is not a leak.
    pub(super) fn new(
        method: &'static str,
        path: &'static str,
        operation_id: &'static str,
        handler: MethodRouter<AppState>,
    ) -> ApiRoute {
        let route = ApiRoute {
            method,
            path,
            operation_id,
            summary: "",
            required: Permission::Manage,
            required_with_rules: None,
            parameters: Vec::new(),
            body: None,
            responses: Map::new(),
            handler,
        };
        // Every route may answer with these. They come from the authorization layer, or are for query parameters that are
        // invalid or unknown (400), and for a position that is not reached (503).
        route.error_responses(&[400, 401, 403, 429, 503])
    }

    /// Begins a route that only reads: GET, for clients with [`Permission::Read`].
    pub(super) fn read<T: 'static>(
        path: &'static str,
        operation_id: &'static str,
        handler: impl Handler<T, AppState>,
    ) -> ApiRoute {
        ApiRoute::new("GET", path, operation_id, get(handler)).requires(Permission::Read)
    }

    /// Begins a POST route.
    pub(super) fn post<T: 'static>(
        path: &'static str,
        operation_id: &'static str,
        handler: impl Handler<T, AppState>,
    ) -> ApiRoute {
        ApiRoute::new("POST", path, operation_id, post(handler))
    }

    /// Sets the summary in the document.
    pub(super) fn summary(self, summary: &'static str) -> ApiRoute {
        ApiRoute { summary, ..self }
    }

    /// Sets the permission that a client needs.
    pub(super) fn requires(self, permission: Permission) -> ApiRoute {
        ApiRoute { required: permission, ..self }
    }

    /// Requires the role `admin` while access rules exist: the response tells of tools and sources beyond those of the
    /// client.
    pub(super) fn requires_admin_with_rules(self) -> ApiRoute {
        ApiRoute { required_with_rules: Some(Permission::Manage), ..self }
    }

    /// Describes the parameter `{name}` of the path.
    pub(super) fn path_param(self, name: &str, schema: Value, description: &str) -> ApiRoute {
        self.required_param(name, "path", schema, description)
    }

    /// Describes an optional query parameter.
    pub(super) fn query_param(self, name: &str, schema: Value, description: &str) -> ApiRoute {
        self.parameter(json!({ "name": name, "in": "query", "description": description, "schema": schema }))
    }

    /// Describes a required query parameter.
    pub(super) fn required_query_param(self, name: &str, schema: Value, description: &str) -> ApiRoute {
        self.required_param(name, "query", schema, description)
    }

    fn required_param(self, name: &str, location: &str, schema: Value, description: &str) -> ApiRoute {
        self.parameter(
            json!({ "name": name, "in": location, "required": true, "description": description, "schema": schema }),
        )
    }

    /// Describes a required JSON body by the name of its schema.
    pub(super) fn request_body(self, schema: &str) -> ApiRoute {
        ApiRoute { body: Some(json!({ "required": true, "content": json_content(schema_ref(schema)) })), ..self }
    }

    /// Describes an optional JSON body by the name of its schema.
    pub(super) fn optional_body(self, schema: &str) -> ApiRoute {
        ApiRoute { body: Some(json!({ "content": json_content(schema_ref(schema)) })), ..self }
    }

    /// Describes a JSON response by the name of its schema.
    pub(super) fn json_response(self, status: u16, schema: &str, description: &str) -> ApiRoute {
        self.response(status, json!({ "description": description, "content": json_content(schema_ref(schema)) }))
    }

    /// Describes any response, such as one without a body.
    pub(super) fn response(mut self, status: u16, response: Value) -> ApiRoute {
        self.responses.insert(status.to_string(), response);
        self
    }

    /// Adds another media type to a response that was described before.
    pub(super) fn response_content(mut self, status: u16, media_type: &str, schema: Value) -> ApiRoute {
        if let Some(response) = self.responses.get_mut(&status.to_string()) {
            response["content"][media_type] = json!({ "schema": schema });
        }
        self
    }

    /// Adds responses with the error envelope for these statuses.
    pub(super) fn error_responses(self, statuses: &[u16]) -> ApiRoute {
        let response = json!({ "$ref": "#/components/responses/Error" });
        statuses.iter().fold(self, |route, status| route.response(*status, response.clone()))
    }

    /// Describes `{id}` in the path as a source.
    pub(super) fn source_param(self) -> ApiRoute {
        self.path_param("id", json!({ "type": "string", "minLength": 1 }), "Id of a source")
    }

    /// Describes `{name}` in the path as a tool.
    pub(super) fn tool_param(self) -> ApiRoute {
        let description = "`source__tool`, `source:tool`, or the tool's own name if it is unique";
        self.path_param("name", json!({ "type": "string", "minLength": 1 }), description)
    }

    /// Describes a JSON response with one of several schemas.
    pub(super) fn json_response_any(self, status: u16, schemas: &[&str], description: &str) -> ApiRoute {
        let refs: Vec<Value> = schemas.iter().map(|schema| schema_ref(schema)).collect();
        self.response(status, json!({ "description": description, "content": json_content(json!({ "anyOf": refs })) }))
    }

    /// Describes that the route supports conditional requests with `If-None-Match`.
    pub(super) fn conditional(self) -> ApiRoute {
        let description = "`ETag` of a cached response: as long as it is current, the response is 304";
        let header = json!({
            "name": "If-None-Match", "in": "header", "description": description, "schema": { "type": "string" },
        });
        self.parameter(header).response(304, json!({ "description": "The cached response is current" }))
    }

    /// Describes that the route supports `If-Match`.
    pub(super) fn precondition(self) -> ApiRoute {
        let description = "`ETag` of the thing as it was read, `*`, or a list of tags: otherwise the response is 412";
        let header = json!({
            "name": "If-Match", "in": "header", "description": description, "schema": { "type": "string" },
        });
        self.parameter(header).error_responses(&[412])
    }

    /// Describes the `ETag` of a response, which `If-Match` of a later change takes.
    pub(super) fn tagged(mut self, status: u16) -> ApiRoute {
        if let Some(response) = self.responses.get_mut(&status.to_string()) {
            let description = "Tag for `If-Match`";
            response["headers"] = json!({ "ETag": { "description": description, "schema": { "type": "string" } } });
        }
        self
    }

    /// Adds a parameter object of OpenAPI.
    pub(super) fn parameter(mut self, parameter: Value) -> ApiRoute {
        self.parameters.push(parameter);
        self
    }

    /// Adds the route to a router, behind the authorization middleware. A route of the API rejects query parameters that
    /// it does not describe.
    pub(super) fn register(self, router: Router<AppState>, app: &AppState) -> Router<AppState> {
        let query_params = self.parameters.iter().filter(|parameter| parameter["in"] == "query");
        let known: Arc<[String]> =
            query_params.filter_map(|parameter| parameter["name"].as_str()).map(str::to_owned).collect();
        let checked = if self.path.starts_with("/api/") {
            self.handler.layer(from_fn_with_state(known, reject_unknown_params))
        } else {
            self.handler
        };
        let permissions = (app.clone(), self.required, self.required_with_rules);
        router.route(self.path, checked.layer(from_fn_with_state(permissions, authorize_route)))
    }

    /// Returns the tag that groups the operation in the document.
    pub(super) fn tag(&self) -> &'static str {
        openapi_tag(self.path)
    }

    /// Adds the operation to the `paths` of the document.
    pub(super) fn describe(self, paths: &mut Map<String, Value>) {
        let tag = self.tag();
        let mut parameters = self.parameters;
        parameters.push(json!({ "$ref": "#/components/parameters/MinPosition" }));
        let responses: Map<String, Value> =
            self.responses.into_iter().map(|(status, response)| (status, with_common_headers(response))).collect();
        let mut operation = json!({
            "operationId": self.operation_id,
            "summary": self.summary,
            "description": describe_operation(self.operation_id, self.summary, self.required, self.required_with_rules),
            "tags": [tag],
            "parameters": parameters,
            "responses": responses,
            "security": security(self.required),
        });
        if let Some(body) = self.body {
            operation["requestBody"] = body;
        }
        paths.entry(self.path).or_insert_with(|| json!({}))[self.method.to_lowercase()] = operation;
    }
}

/// Middleware that runs the handler only for clients with the permission that the route requires now.
async fn authorize_route(
    State((app, required, required_with_rules)): State<(AppState, Permission, Option<Permission>)>,
    request: Request,
    next: Next,
) -> Response {
    let has_rules = || app.registry.rules().may_restrict_access();
    let required = required_with_rules.filter(|_| has_rules()).unwrap_or(required);
    authorize(State((app, required)), request, next).await
}

/// Middleware that rejects query parameters that a route does not have.
async fn reject_unknown_params(
    State(known): State<Arc<[String]>>,
    request: Request,
    next: Next,
) -> Result<Response, ApiError> {
    QueryParams::parse(request.uri().query().unwrap_or_default())?.reject_unknown(&known)?;
    Ok(next.run(request).await)
}

/// Returns the tag that groups a route in the document: the first segment after `/api/`.
fn openapi_tag(path: &'static str) -> &'static str {
    let rest = path.strip_prefix("/api/").unwrap_or("operations");
    rest.split('/').next().unwrap_or_default()
}

/// Returns the security requirements of a permission. For reads and calls the token is optional, because local clients
/// need none.
fn security(required: Permission) -> Value {
    match required {
        Permission::Public => json!([]),
        Permission::Read | Permission::Use => json!([{}, { "token": [] }]),
        Permission::Manage => json!([{ "token": [] }]),
    }
}

/// Adds the headers of all responses to the description of one. A reference is to a response that has them.
pub(super) fn with_common_headers(mut response: Value) -> Value {
    if response.get("$ref").is_none() {
        response["headers"][POSITION_HEADER.as_str()] = json!({ "$ref": "#/components/headers/Position" });
        response["headers"][STALE_HEADER.as_str()] = json!({ "$ref": "#/components/headers/Stale" });
    }
    response
}

/// Returns the content object of a JSON body.
fn json_content(schema: Value) -> Value {
    json!({ "application/json": { "schema": schema } })
}

/// Returns a reference to a named schema.
pub(super) fn schema_ref(schema: &str) -> Value {
    json!({ "$ref": format!("#/components/schemas/{schema}") })
}
