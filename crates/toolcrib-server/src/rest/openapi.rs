//! `/api/openapi.json`, generated from the table of routes.
//!
//! The document depends on the version alone, so it is rendered once when the router is built.

use serde_json::{Map, Value, json};

use super::route::schema_ref;
use super::{routes, schemas};

/// Builds the OpenAPI 3.1 document.
pub(super) fn build_document() -> Value {
    let mut paths: Map<String, Value> = Map::new();
    routes().into_iter().for_each(|route| route.describe(&mut paths));
    let error = json!({
        "description": "Error code, message and details",
        "content": { "application/json": { "schema": schema_ref("Error") } },
    });
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Toolcrib",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "One catalogue of every tool an AI agent may use",
        },
        "servers": [{ "url": "/" }],
        "paths": paths,
        "components": {
            "schemas": schemas().into_iter().map(|(name, schema)| (name.to_owned(), schema)).collect::<Map<_, _>>(),
            "responses": { "Error": error },
            "securitySchemes": { "token": {
                "type": "http", "scheme": "bearer",
                "description": "The token in `admin.token` of the data directory, or one created with `toolcrib token create`",
            } },
        },
    })
}
