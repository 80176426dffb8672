//! `/api/openapi.json`, generated from the table of routes.
//!
//! The document depends on the version alone, so it is rendered once when the router is built.

use serde_json::{Map, Value, json};

use super::openapi_descriptions::describe_tag;
use super::route::{schema_ref, with_common_headers};
use super::{routes, schemas};
use crate::position::MIN_POSITION_PARAM;

/// Builds the OpenAPI 3.1 document.
pub(super) fn build_document() -> Value {
    let mut paths: Map<String, Value> = Map::new();
    let mut tags: Vec<&str> = Vec::new();
    for route in routes() {
        if !tags.contains(&route.tag()) {
            tags.push(route.tag());
        }
        route.describe(&mut paths);
    }
    let tags: Vec<Value> =
        tags.into_iter().map(|tag| json!({ "name": tag, "description": describe_tag(tag) })).collect();
    let error = with_common_headers(json!({
        "description": "Error code, message and details",
        "content": { "application/json": { "schema": schema_ref("Error") } },
    }));
    let min_position = json!({
        "name": MIN_POSITION_PARAM, "in": "query",
        "description": "The server waits up to two seconds until it has applied the record with this sequence number, and \
                        answers 503 if it has not: with several nodes, so that a client reads what it wrote to another one",
        "schema": { "type": "integer", "minimum": 0 },
    });
    let position = json!({
        "description": "Sequence number of the last record that the response shows; of a change, at least that of its record",
        "schema": { "type": "integer", "minimum": 0 },
    });
    let stale = json!({
        "description": "Seconds since the store was last reached; absent while it is reached",
        "schema": { "type": "integer", "minimum": 1 },
    });
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Toolcrib",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "One catalogue of every tool an AI agent may use",
            "license": { "name": env!("CARGO_PKG_LICENSE"), "identifier": env!("CARGO_PKG_LICENSE") },
            "contact": { "name": "Toolcrib" },
        },
        "servers": [{ "url": "/" }],
        "tags": tags,
        "paths": paths,
        "components": {
            "schemas": schemas().into_iter().map(|(name, schema)| (name.to_owned(), schema)).collect::<Map<_, _>>(),
            "parameters": { "MinPosition": min_position },
            "headers": { "Position": position, "Stale": stale },
            "responses": { "Error": error },
            "securitySchemes": { "token": {
                "type": "http", "scheme": "bearer",
                "description": "The token in `TOOLCRIB_ADMIN_TOKEN`, or else in `admin.token` of the data directory, or one created with `toolcrib token create`",
            } },
        },
    })
}
