//! One row of the table of routes: where it is, what it needs of who comes, and what the document says of it.

use axum::Router;
use axum::middleware::from_fn_with_state;
use axum::routing::MethodRouter;
use serde_json::{Map, Value, json};

use crate::access::{Needs, admit};
use crate::house::House;

#[derive(Debug)]
pub(crate) struct Route {
    method: &'static str,
    path: &'static str,
    /// Its `operationId`.
    operation: &'static str,
    summary: &'static str,
    needs: Needs,
    parameters: Vec<Value>,
    body: Option<Value>,
    answers: Map<String, Value>,
    handler: MethodRouter<House>,
}

impl Route {
    /// The handler must be for the same method: `Route::new("GET", "/api/x", "list_x", get(list))`.
    pub(super) fn new(
        method: &'static str,
        path: &'static str,
        operation: &'static str,
        handler: MethodRouter<House>,
    ) -> Route {
        let (parameters, answers) = (Vec::new(), Map::new());
        let route = Route {
            method,
            path,
            operation,
            summary: "",
            needs: Needs::Managing,
            parameters,
            body: None,
            answers,
            handler,
        };
        route.refuses(&[401, 403, 429])
    }

    pub(super) fn about(self, summary: &'static str) -> Route {
        Route { summary, ..self }
    }

    /// A route that says nothing is for those who manage.
    pub(super) fn needs(self, needs: Needs) -> Route {
        Route { needs, ..self }
    }

    /// What `{name}` in the path stands for.
    pub(super) fn path(self, name: &str, schema: Value, about: &str) -> Route {
        self.parameter(json!({ "name": name, "in": "path", "required": true, "description": about, "schema": schema }))
    }

    /// A parameter of the query that may be left out.
    pub(super) fn query(self, name: &str, schema: Value, about: &str) -> Route {
        self.parameter(json!({ "name": name, "in": "query", "description": about, "schema": schema }))
    }

    /// A parameter of the query that must be there.
    pub(super) fn query_required(self, name: &str, schema: Value, about: &str) -> Route {
        self.parameter(json!({ "name": name, "in": "query", "required": true, "description": about, "schema": schema }))
    }

    /// A JSON body of this shape, a name among the `schemas`.
    pub(super) fn takes(self, schema: &str) -> Route {
        let content = json!({ "application/json": { "schema": reference(schema) } });
        Route { body: Some(json!({ "required": true, "content": content })), ..self }
    }

    /// As `takes`, where all of it may be left out.
    pub(super) fn may_take(self, schema: &str) -> Route {
        let content = json!({ "application/json": { "schema": reference(schema) } });
        Route { body: Some(json!({ "content": content })), ..self }
    }

    /// JSON of this shape, a name among the `schemas`.
    pub(super) fn answers(self, status: u16, schema: &str, about: &str) -> Route {
        self.answer(
            status,
            json!({ "description": about, "content": { "application/json": { "schema": reference(schema) } } }),
        )
    }

    /// Something other than JSON, or nothing.
    pub(super) fn answer(mut self, status: u16, response: Value) -> Route {
        self.answers.insert(status.to_string(), response);
        self
    }

    /// The envelope of an error, with these statuses.
    pub(super) fn refuses(self, statuses: &[u16]) -> Route {
        statuses.iter().fold(self, |route, status| {
            let response = json!({ "$ref": "#/components/responses/Error" });
            route.answer(*status, response)
        })
    }

    /// `{id}` in the path is a source.
    pub(super) fn source_path(self) -> Route {
        self.path("id", json!({ "type": "string", "minLength": 1 }), "A source")
    }

    /// `{name}` in the path is a tool.
    pub(super) fn tool_path(self) -> Route {
        let about = "`source__tool`, `source:tool`, or the tool's own name when it is unique";
        self.path("name", json!({ "type": "string", "minLength": 1 }), about)
    }

    /// JSON of one of these shapes.
    pub(super) fn answers_any(self, status: u16, schemas: &[&str], about: &str) -> Route {
        let shapes: Vec<Value> = schemas.iter().map(|schema| reference(schema)).collect();
        let content = json!({ "application/json": { "schema": { "anyOf": shapes } } });
        self.answer(status, json!({ "description": about, "content": content }))
    }

    /// With `If-None-Match`, the tag of an answer that the client has.
    pub(super) fn may_be_unchanged(self) -> Route {
        let about = "The `ETag` of an answer at hand: while it holds, the answer is 304";
        let header =
            json!({ "name": "If-None-Match", "in": "header", "description": about, "schema": { "type": "string" } });
        self.parameter(header).answer(304, json!({ "description": "What the client has still holds" }))
    }

    pub(super) fn parameter(mut self, parameter: Value) -> Route {
        self.parameters.push(parameter);
        self
    }

    pub(super) fn add_to(self, router: Router<House>, house: &House) -> Router<House> {
        let guarded = self.handler.layer(from_fn_with_state((house.clone(), self.needs), admit));
        router.route(self.path, guarded)
    }

    /// Writes the operation into the document's `paths`.
    pub(super) fn describe(self, paths: &mut Map<String, Value>) {
        let mut operation = json!({
            "operationId": self.operation,
            "summary": self.summary,
            "tags": [tag(self.path)],
            "parameters": self.parameters,
            "responses": self.answers,
            "security": security(self.needs),
        });
        if let Some(body) = self.body {
            operation["requestBody"] = body;
        }
        paths.entry(self.path).or_insert_with(|| json!({}))[self.method.to_lowercase()] = operation;
    }
}

/// What a route is about: the first word after `/api/`.
fn tag(path: &str) -> &str {
    let rest = path.strip_prefix("/api/").unwrap_or("operations");
    rest.split('/').next().unwrap_or_default()
}

/// On the machine itself, who reads and calls needs no token.
fn security(needs: Needs) -> Value {
    match needs {
        Needs::Nothing => json!([]),
        Needs::Reading | Needs::Using => json!([{}, { "token": [] }]),
        Needs::Managing => json!([{ "token": [] }]),
    }
}

pub(super) fn reference(schema: &str) -> Value {
    json!({ "$ref": format!("#/components/schemas/{schema}") })
}
