//! Sources declared, changed and removed at run time, in the words of a configuration file.

mod change;
mod permit;
mod shapes;

use axum::Extension;
use axum::extract::State;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, patch, post};
use serde::Serialize;
use serde_json::{Map, Value, json};
use toolcrib::core::config::declare;
use toolcrib::registry::SourceView;
use toolcrib::{Code, Error, Outcome, Refresh, Result, Source, SourceId, Trace};

use super::asked::{Named, known_source};
use super::body::Json;
use super::fault::Fault;
use super::reply;
use super::route::Route;
use crate::access::Visitor;
use crate::house::House;

pub(super) use change::switch_source;
pub(super) use shapes::schemas;

use permit::permit;

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::new("POST", "/api/sources", "add_source", post(add))
            .about("Declare a source and discover it at once; when that fails it is kept, marked failed")
            .takes("NewSource")
            .answers(201, "DeclaredSource", "The source, and what its discovery came to")
            .refuses(&[400, 409, 413, 415, 503]),
        Route::new("PATCH", "/api/sources/{id}", "change_source", patch(change::change))
            .about("Change some keys of a source: a JSON merge patch, in which `null` takes a key away")
            .source_path()
            .may_take("SourceKeys")
            .answers(200, "DeclaredSource", "The source as it is now")
            .refuses(&[400, 404, 409, 413, 415, 503]),
        Route::new("DELETE", "/api/sources/{id}", "remove_source", delete(remove))
            .about("Remove a source that was declared at run time, with its tools")
            .source_path()
            .answer(204, json!({ "description": "It is gone" }))
            .refuses(&[400, 404, 409, 503]),
    ]
}

/// A source as it stands, with what its discovery came to.
#[derive(Debug, Serialize)]
struct Declared {
    #[serde(flatten)]
    source: SourceView,
    outcome: Option<Outcome>,
}

async fn add(
    State(house): State<House>,
    Extension(visitor): Extension<Visitor>,
    trace: Option<Extension<Trace>>,
    Json(mut keys): Json<Map<String, Value>>,
) -> Result<Response, Fault> {
    let name = name(&mut keys)?;
    let outcome = declare_source(&house, &visitor, &name, keys, trace.map(|trace| trace.0)).await?;
    let id = outcome.source.clone();
    let mut response = reply::json(StatusCode::CREATED, &declared(&house, &id, Some(outcome))?)?;
    // An id is made of letters, digits and `_`.
    if let Ok(location) = HeaderValue::from_str(&format!("/api/sources/{id}")) {
        response.headers_mut().insert(header::LOCATION, location);
    }
    Ok(response)
}

/// Declares a source that is new, and discovers it at once.
pub(crate) async fn declare_source(
    house: &House,
    visitor: &Visitor,
    name: &str,
    keys: Map<String, Value>,
    trace: Option<Trace>,
) -> Result<Outcome> {
    let source = read(house, name, keys)?;
    permit(house, visitor, &source).await?;
    let declaring = house.declaring.lock().await;
    if house.registry.source(&source.id).is_some() {
        return Err(taken(house, &source.id));
    }
    house.registry.declare_lazily(&source, visitor.actor()).await?;
    drop(declaring);
    house.registry.refresh_source(&source.id, Refresh { force: true, trace, ..Refresh::default() }).await
}

/// Removes a source that the configuration does not declare.
pub(crate) async fn remove_source(house: &House, visitor: &Visitor, id: &SourceId) -> Result<()> {
    if let Some(place) = house.found.load().declared_at(id) {
        let message = format!("`{id}` is declared in `{place}`; remove it there, or disable it");
        return Err(Error::new(Code::Conflict, message).with_retryable(false));
    }
    house.registry.remove(id, visitor.actor()).await
}

async fn remove(
    State(house): State<House>,
    Extension(visitor): Extension<Visitor>,
    Named(name): Named,
) -> Result<Response, Fault> {
    let id = known_source(&house.registry, &name)?;
    remove_source(&house, &visitor, &id).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// The name may stand under `id` too.
fn name(keys: &mut Map<String, Value>) -> Result<String> {
    let name = match (keys.shift_remove("name"), keys.shift_remove("id")) {
        (Some(_), Some(_)) => return Err(Error::new(Code::BadRequest, "`name` and `id` are the same; send one")),
        (name, id) => name.or(id),
    };
    match name {
        Some(Value::String(name)) => Ok(name),
        Some(_) | None => Err(Error::new(Code::BadRequest, "`name` is a text: it becomes the prefix of the tools")),
    }
}

/// Paths are relative to the configuration file, as if the keys stood there.
fn read(house: &House, name: &str, keys: Map<String, Value>) -> Result<Source> {
    let directory = house.found.load().directory()?;
    declare(name, &Value::Object(keys), &directory).map_err(|faults| {
        let said = faults.iter().map(|fault| match fault.key.strip_prefix("sources.") {
            Some(key) => format!("{key}: {}", fault.message),
            None => fault.message.clone(),
        });
        let message = said.collect::<Vec<_>>().join("; ");
        // There is no file, and so no line.
        let each = faults.iter().map(|fault| json!({ "key": fault.key, "message": fault.message }));
        Error::new(Code::ConfigInvalid, message).with_details(json!({ "faults": each.collect::<Vec<_>>() }))
    })
}

fn taken(house: &House, id: &SourceId) -> Error {
    let message = match house.found.load().declared_at(id) {
        Some(place) => format!("`{id}` is declared in `{place}`, which wins; change it there, or choose another name"),
        None => format!("there is a source `{id}` already; `PATCH /api/sources/{id}` changes it"),
    };
    Error::new(Code::Conflict, message).with_retryable(false)
}

fn declared(house: &House, id: &SourceId, outcome: Option<Outcome>) -> Result<Declared> {
    let source = house.registry.source(id).ok_or_else(|| house.registry.unknown_source(id.as_str()))?;
    Ok(Declared { source, outcome })
}
