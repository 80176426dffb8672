//! One row of the table of routes: where it is, what it needs of who comes, and what the document says of it.

use axum::Router;
use axum::middleware::from_fn_with_state;
use axum::routing::MethodRouter;
use serde_json::{Map, Value, json};

use crate::auth::{Permission, authorize};
use crate::state::AppState;

#[derive(Debug)]
pub(crate) struct ApiRoute {
    method: &'static str,
    path: &'static str,
    /// Its `operationId`.
    operation_id: &'static str,
    summary: &'static str,
    required: Permission,
    parameters: Vec<Value>,
    body: Option<Value>,
    responses: Map<String, Value>,
    handler: MethodRouter<AppState>,
}

impl ApiRoute {
    /// The handler must be for the same method: `Route::new("GET", "/api/x", "list_x", get(list))`.
    pub(super) fn new(
        method: &'static str,
        path: &'static str,
        operation: &'static str,
        handler: MethodRouter<AppState>,
    ) -> ApiRoute {
        let (parameters, answers) = (Vec::new(), Map::new());
        let route = ApiRoute {
            method,
            path,
            operation_id: operation,
            summary: "",
            required: Permission::Manage,
            parameters,
            body: None,
            responses: answers,
            handler,
        };
        route.error_responses(&[401, 403, 429])
    }

    pub(super) fn summary(self, summary: &'static str) -> ApiRoute {
        ApiRoute { summary, ..self }
    }

    /// A route that says nothing is for those who manage.
    pub(super) fn requires(self, needs: Permission) -> ApiRoute {
        ApiRoute { required: needs, ..self }
    }

    /// What `{name}` in the path stands for.
    pub(super) fn path_param(self, name: &str, schema: Value, about: &str) -> ApiRoute {
        self.parameter(json!({ "name": name, "in": "path", "required": true, "description": about, "schema": schema }))
    }

    /// A parameter of the query that may be left out.
    pub(super) fn query_param(self, name: &str, schema: Value, about: &str) -> ApiRoute {
        self.parameter(json!({ "name": name, "in": "query", "description": about, "schema": schema }))
    }

    /// A parameter of the query that must be there.
    pub(super) fn required_query_param(self, name: &str, schema: Value, about: &str) -> ApiRoute {
        self.parameter(json!({ "name": name, "in": "query", "required": true, "description": about, "schema": schema }))
    }

    /// A JSON body of this shape, a name among the `schemas`.
    pub(super) fn request_body(self, schema: &str) -> ApiRoute {
        let content = json!({ "application/json": { "schema": schema_ref(schema) } });
        ApiRoute { body: Some(json!({ "required": true, "content": content })), ..self }
    }

    /// As `takes`, where all of it may be left out.
    pub(super) fn optional_body(self, schema: &str) -> ApiRoute {
        let content = json!({ "application/json": { "schema": schema_ref(schema) } });
        ApiRoute { body: Some(json!({ "content": content })), ..self }
    }

    /// JSON of this shape, a name among the `schemas`.
    pub(super) fn json_response(self, status: u16, schema: &str, about: &str) -> ApiRoute {
        self.response(
            status,
            json!({ "description": about, "content": { "application/json": { "schema": schema_ref(schema) } } }),
        )
    }

    /// Something other than JSON, or nothing.
    pub(super) fn response(mut self, status: u16, response: Value) -> ApiRoute {
        self.responses.insert(status.to_string(), response);
        self
    }

    /// The envelope of an error, with these statuses.
    pub(super) fn error_responses(self, statuses: &[u16]) -> ApiRoute {
        statuses.iter().fold(self, |route, status| {
            let response = json!({ "$ref": "#/components/responses/Error" });
            route.response(*status, response)
        })
    }

    /// `{id}` in the path is a source.
    pub(super) fn source_param(self) -> ApiRoute {
        self.path_param("id", json!({ "type": "string", "minLength": 1 }), "A source")
    }

    /// `{name}` in the path is a tool.
    pub(super) fn tool_param(self) -> ApiRoute {
        let about = "`source__tool`, `source:tool`, or the tool's own name when it is unique";
        self.path_param("name", json!({ "type": "string", "minLength": 1 }), about)
    }

    /// JSON of one of these shapes.
    pub(super) fn json_response_any(self, status: u16, schemas: &[&str], about: &str) -> ApiRoute {
        let shapes: Vec<Value> = schemas.iter().map(|schema| schema_ref(schema)).collect();
        let content = json!({ "application/json": { "schema": { "anyOf": shapes } } });
        self.response(status, json!({ "description": about, "content": content }))
    }

    /// With `If-None-Match`, the tag of an answer that the client has.
    pub(super) fn conditional(self) -> ApiRoute {
        let about = "The `ETag` of an answer at hand: while it holds, the answer is 304";
        let header =
            json!({ "name": "If-None-Match", "in": "header", "description": about, "schema": { "type": "string" } });
        self.parameter(header).response(304, json!({ "description": "What the client has still holds" }))
    }

    pub(super) fn parameter(mut self, parameter: Value) -> ApiRoute {
        self.parameters.push(parameter);
        self
    }

    pub(super) fn register(self, router: Router<AppState>, app: &AppState) -> Router<AppState> {
        let guarded = self.handler.layer(from_fn_with_state((app.clone(), self.required), authorize));
        router.route(self.path, guarded)
    }

    /// Writes the operation into the document's `paths`.
    pub(super) fn describe(self, paths: &mut Map<String, Value>) {
        let mut operation = json!({
            "operationId": self.operation_id,
            "summary": self.summary,
            "tags": [openapi_tag(self.path)],
            "parameters": self.parameters,
            "responses": self.responses,
            "security": security(self.required),
        });
        if let Some(body) = self.body {
            operation["requestBody"] = body;
        }
        paths.entry(self.path).or_insert_with(|| json!({}))[self.method.to_lowercase()] = operation;
    }
}

/// What a route is about: the first word after `/api/`.
fn openapi_tag(path: &str) -> &str {
    let rest = path.strip_prefix("/api/").unwrap_or("operations");
    rest.split('/').next().unwrap_or_default()
}

/// On the machine itself, who reads and calls needs no token.
fn security(needs: Permission) -> Value {
    match needs {
        Permission::Public => json!([]),
        Permission::Read | Permission::Use => json!([{}, { "token": [] }]),
        Permission::Manage => json!([{ "token": [] }]),
    }
}

pub(super) fn schema_ref(schema: &str) -> Value {
    json!({ "$ref": format!("#/components/schemas/{schema}") })
}
