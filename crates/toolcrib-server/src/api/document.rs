//! `/api/openapi.json`, made from the table of routes.

use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::header;
use serde_json::{Map, Value, json};

use super::routes;

#[derive(Debug, Clone)]
pub(super) struct Document(Bytes);

pub(super) fn bytes() -> Document {
    Document(Bytes::from(document().to_string()))
}

impl IntoResponse for Document {
    fn into_response(self) -> Response {
        ([(header::CONTENT_TYPE, "application/json")], self.0).into_response()
    }
}

fn document() -> Value {
    let mut paths: Map<String, Value> = Map::new();
    for route in routes() {
        let path = paths.entry(route.path).or_insert_with(|| json!({}));
        path[route.method.to_lowercase()] = json!({ "operationId": route.operation, "summary": route.summary });
    }
    json!({
        "openapi": "3.1.0",
        "info": { "title": "Toolcrib", "version": env!("CARGO_PKG_VERSION") },
        "paths": paths,
    })
}
