//! Sources and tools, enabled and disabled; and lists that are to be read again.

use axum::Extension;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::post;
use serde_json::{Value, json};
use toolcrib::registry::Switch;

use super::asked::{Named, known_source};
use super::declare::switch_source;
use super::fault::Fault;
use super::reply;
use super::route::Route;
use super::shape::{and_perhaps, object, strings};
use crate::access::Visitor;
use crate::house::House;

pub(super) fn routes() -> Vec<Route> {
    let source = |path, operation, handler| {
        Route::new("POST", path, operation, handler).source_path().answers(200, "Switched", "What it is now")
    };
    let tool = |path, operation, handler| {
        Route::new("POST", path, operation, handler).tool_path().answers(200, "Switched", "What it is now")
    };
    vec![
        source("/api/sources/{id}/enable", "enable_source", post(enable_source))
            .about("Enable a source: agents see its tools")
            .refuses(&[400, 404, 409, 503]),
        source("/api/sources/{id}/disable", "disable_source", post(disable_source))
            .about("Disable a source: agents see its tools no longer, and they stay known")
            .refuses(&[400, 404, 409, 503]),
        Route::new("POST", "/api/sources/{id}/invalidate", "invalidate_source", post(invalidate))
            .about("Have a source discovered again at the next need; its tools stay listed meanwhile")
            .source_path()
            .answers(200, "Invalidated", "Which are due now")
            .refuses(&[400, 404, 503]),
        tool("/api/tools/{name}/enable", "enable_tool", post(enable_tool))
            .about("Enable a tool")
            .refuses(&[400, 403, 404, 409, 503]),
        tool("/api/tools/{name}/disable", "disable_tool", post(disable_tool))
            .about("Disable a tool: agents see it no longer, and it stays known")
            .refuses(&[400, 403, 404, 409, 503]),
    ]
}

pub(super) fn schemas() -> Vec<(&'static str, Value)> {
    let switched = object(&[("enabled", json!({ "type": "boolean" })), ("changed", json!({ "type": "boolean" }))]);
    let named = [("source", json!({ "type": "string" })), ("tool", json!({ "type": "string" }))];
    vec![("Switched", and_perhaps(switched, &named)), ("Invalidated", object(&[("invalidated", strings())]))]
}

async fn enable_source(house: State<House>, visitor: Extension<Visitor>, named: Named) -> Result<Response, Fault> {
    source(house, visitor, named, Switch::Enabled).await
}

async fn disable_source(house: State<House>, visitor: Extension<Visitor>, named: Named) -> Result<Response, Fault> {
    source(house, visitor, named, Switch::Disabled).await
}

async fn enable_tool(house: State<House>, visitor: Extension<Visitor>, named: Named) -> Result<Response, Fault> {
    tool(house, visitor, named, Switch::Enabled).await
}

async fn disable_tool(house: State<House>, visitor: Extension<Visitor>, named: Named) -> Result<Response, Fault> {
    tool(house, visitor, named, Switch::Disabled).await
}

async fn source(
    State(house): State<House>,
    Extension(visitor): Extension<Visitor>,
    Named(name): Named,
    switch: Switch,
) -> Result<Response, Fault> {
    let id = known_source(&house.registry, &name)?;
    let switched = switch_source(&house, &visitor, &id, switch).await?;
    Ok(reply::json(StatusCode::OK, &switched)?)
}

async fn tool(
    State(house): State<House>,
    Extension(visitor): Extension<Visitor>,
    Named(name): Named,
    switch: Switch,
) -> Result<Response, Fault> {
    let target = house.registry.target(&name)?;
    let switched = house.registry.switch(target, switch, visitor.actor()).await?;
    Ok(reply::json(StatusCode::OK, &switched)?)
}

async fn invalidate(State(house): State<House>, Named(name): Named) -> Result<Response, Fault> {
    let id = known_source(&house.registry, &name)?;
    house.registry.invalidate(Some(&id)).await?;
    Ok(reply::json(StatusCode::OK, &json!({ "invalidated": [id] }))?)
}
