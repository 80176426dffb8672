//! Sources declared, changed and removed at run time, in the words of a configuration file.

mod authorize;
mod change;
mod source_schema;

use axum::Extension;
use axum::extract::State;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, patch, post};
use serde::Serialize;
use serde_json::{Map, Value, json};
use toolcrib::core::config;
use toolcrib::registry::SourceView;
use toolcrib::{Code, Error, Refresh, RefreshOutcome, Result, Source, SourceId, Trace};

use super::body::JsonBody;
use super::error::ApiError;
use super::query::{PathParam, find_source_id};
use super::response;
use super::route::ApiRoute;
use crate::auth::Principal;
use crate::state::AppState;

pub(super) use change::set_source_enabled;
pub(super) use source_schema::schemas;

use authorize::authorize;

pub(super) fn routes() -> Vec<ApiRoute> {
    vec![
        ApiRoute::new("POST", "/api/sources", "add_source", post(add_source))
            .summary("Declare a source and discover it at once; when that fails it is kept, marked failed")
            .request_body("NewSource")
            .json_response(201, "DeclaredSource", "The source, and what its discovery came to")
            .error_responses(&[400, 409, 413, 415, 503]),
        ApiRoute::new("PATCH", "/api/sources/{id}", "change_source", patch(change::change_source))
            .summary("Change some keys of a source: a JSON merge patch, in which `null` takes a key away")
            .source_param()
            .optional_body("SourceKeys")
            .json_response(200, "DeclaredSource", "The source as it is now")
            .error_responses(&[400, 404, 409, 413, 415, 503]),
        ApiRoute::new("DELETE", "/api/sources/{id}", "remove_source", delete(delete_source))
            .summary("Remove a source that was declared at run time, with its tools")
            .source_param()
            .response(204, json!({ "description": "It is gone" }))
            .error_responses(&[400, 404, 409, 503]),
    ]
}

/// A source as it stands, with what its discovery came to.
#[derive(Debug, Serialize)]
struct DeclaredSource {
    #[serde(flatten)]
    source: SourceView,
    outcome: Option<RefreshOutcome>,
}

async fn add_source(
    State(app): State<AppState>,
    Extension(principal): Extension<Principal>,
    trace: Option<Extension<Trace>>,
    JsonBody(mut keys): JsonBody<Map<String, Value>>,
) -> Result<Response, ApiError> {
    let name = take_name(&mut keys)?;
    let outcome = declare_source(&app, &principal, &name, keys, trace.map(|trace| trace.0)).await?;
    let id = outcome.source.clone();
    let mut response = response::json_response(StatusCode::CREATED, &declared_source(&app, &id, Some(outcome))?)?;
    // An id is made of letters, digits and `_`.
    if let Ok(location) = HeaderValue::from_str(&format!("/api/sources/{id}")) {
        response.headers_mut().insert(header::LOCATION, location);
    }
    Ok(response)
}

/// Declares a source that is new, and discovers it at once.
pub(crate) async fn declare_source(
    app: &AppState,
    principal: &Principal,
    name: &str,
    keys: Map<String, Value>,
    trace: Option<Trace>,
) -> Result<RefreshOutcome> {
    let source = parse_source(app, name, keys)?;
    authorize(app, principal, &source).await?;
    let declaring = app.declare_lock.lock().await;
    if app.registry.source(&source.id).is_some() {
        return Err(already_declared(app, &source.id));
    }
    app.registry.declare_lazily(&source, principal.actor()).await?;
    drop(declaring);
    app.registry.refresh_source(&source.id, Refresh { force: true, trace, ..Refresh::default() }).await
}

/// Removes a source that the configuration does not declare.
pub(crate) async fn remove_source(app: &AppState, principal: &Principal, id: &SourceId) -> Result<()> {
    if let Some(place) = app.loaded_config.load().declared_at(id) {
        let message = format!("`{id}` is declared in `{place}`; remove it there, or disable it");
        return Err(Error::new(Code::Conflict, message).with_retryable(false));
    }
    app.registry.remove(id, principal.actor()).await
}

async fn delete_source(
    State(app): State<AppState>,
    Extension(principal): Extension<Principal>,
    PathParam(name): PathParam,
) -> Result<Response, ApiError> {
    let id = find_source_id(&app.registry, &name)?;
    remove_source(&app, &principal, &id).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// The name may stand under `id` too.
fn take_name(keys: &mut Map<String, Value>) -> Result<String> {
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
fn parse_source(app: &AppState, name: &str, keys: Map<String, Value>) -> Result<Source> {
    let place = app.loaded_config.load().base_directory()?;
    config::parse_source(name, &Value::Object(keys), &place).map_err(|faults| {
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

fn already_declared(app: &AppState, id: &SourceId) -> Error {
    let message = match app.loaded_config.load().declared_at(id) {
        Some(place) => format!("`{id}` is declared in `{place}`, which wins; change it there, or choose another name"),
        None => format!("there is a source `{id}` already; `PATCH /api/sources/{id}` changes it"),
    };
    Error::new(Code::Conflict, message).with_retryable(false)
}

fn declared_source(app: &AppState, id: &SourceId, outcome: Option<RefreshOutcome>) -> Result<DeclaredSource> {
    let source = app.registry.source(id).ok_or_else(|| app.registry.unknown_source_error(id.as_str()))?;
    Ok(DeclaredSource { source, outcome })
}
