//! Declares, changes and removes sources at run time, with the keys of a configuration file.
//!
//! ```json
//! { "name": "docs", "url": "https://docs.example.com/mcp", "headers": { "X-Team": "core" } }
//! ```
//!
//! Sources of the configuration cannot be changed here: the file would win at the next reload. Only `enabled` can,
//! because it is a switch in the inventory and not part of the declaration.

mod change;

mod authorize;
mod source_schema;

use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::{delete, patch};
use serde::Serialize;
use serde_json::{Map, Value, json};
use toolcrib::config;
use toolcrib::core::inventory::Inventory;
use toolcrib::registry::{Precondition, SourceView};
use toolcrib::secret::resolve_variables;
use toolcrib::{Code, Error, Refresh, RefreshOutcome, Result, Source, SourceId};

use super::body::JsonBody;
use super::error::ApiResult;
use super::precondition::{IfMatch, source_etag};
use super::query::{PathParam, find_source};
use super::response::created_json;
use super::route::ApiRoute;
use crate::auth::{AuthenticatedClient, AuthorizedRequest};
use crate::state::AppState;

pub(super) use change::set_source_enabled;
pub(super) use source_schema::schemas;

use authorize::{authorize, authorize_references};

/// All of them need [`Permission::Manage`](crate::auth::Permission::Manage), the default of a route.
pub(super) fn routes() -> Vec<ApiRoute> {
    vec![
        ApiRoute::post("/api/sources", "add_source", add_source)
            .summary("Declare a source and discover it at once; if the discovery fails, the source stays with status `failed`")
            .request_body("NewSource")
            .json_response(201, "DeclaredSource", "The source and the outcome of its discovery")
            .tagged(201)
            .error_responses(&[400, 409, 413, 415, 503]),
        ApiRoute::new("PATCH", "/api/sources/{id}", "change_source", patch(change::change_source))
            .summary("Change keys of a source by a JSON merge patch (RFC 7396); `null` removes a key")
            .source_param()
            .optional_body("SourceKeys")
            .json_response(200, "DeclaredSource", "The source as it is now")
            .tagged(200)
            .precondition()
            .error_responses(&[400, 404, 409, 413, 415, 503]),
        ApiRoute::new("DELETE", "/api/sources/{id}", "remove_source", delete(delete_source))
            .summary("Remove a source that was declared at run time, with its tools")
            .source_param()
            .response(204, json!({ "description": "The source was removed" }))
            .precondition()
            .error_responses(&[400, 404, 409, 503]),
    ]
}

/// A source, with the outcome of the discovery that its declaration or change triggered.
#[derive(Debug, Serialize)]
struct DeclaredSource {
    #[serde(flatten)]
    source: SourceView,
    outcome: Option<RefreshOutcome>,
}

/// `POST /api/sources`.
async fn add_source(request: AuthorizedRequest, JsonBody(mut keys): JsonBody<Map<String, Value>>) -> ApiResult {
    let name = take_name(&mut keys)?;
    let outcome = declare_source(&request, &name, keys).await?;
    let id = outcome.source.clone();
    let declared = declared_source(&request.app, &id, Some(outcome))?;
    let mut response = created_json(&declared, &format!("/api/sources/{id}"))?;
    response.headers_mut().insert(header::ETAG, source_etag(&request.app.registry, &declared.source));
    Ok(response)
}

/// Declares a new source and discovers it. Fails with `CONFLICT` if the id exists. Also used by the console.
pub(crate) async fn declare_source(
    request: &AuthorizedRequest,
    name: &str,
    keys: Map<String, Value>,
) -> Result<RefreshOutcome> {
    let AuthorizedRequest { app, client, .. } = request;
    authorize_references(app, client, &keys)?;
    let source = parse_source(app, name, keys)?;
    // Before the lock: it may resolve host names, which takes long.
    authorize(app, client, &source).await?;
    // Two requests for the same id would otherwise both find it free, and the second would replace the first.
    let guard = app.declare_lock.lock().await;
    if app.registry.sources().get(&source.id).is_some() {
        return Err(already_declared(app, &source.id));
    }
    app.registry.sources().declare_lazily(&source, client.actor()).await?;
    // The discovery may take long; other declarations need not wait for it.
    drop(guard);
    let refresh = Refresh { force: true, requester: request.requester(), ..Refresh::brief() };
    app.registry.refresher().refresh_one(&source.id, refresh).await
}

/// Removes a source that was declared at run time. Also used by the console. A source of the configuration would come
/// back at the next reload, so removing it is refused.
pub(crate) async fn remove_source(
    app: &AppState,
    client: &AuthenticatedClient,
    id: &SourceId,
    if_match: &IfMatch,
) -> Result<()> {
    if let Some(location) = app.loaded_config.load().declared_at(id) {
        let message = format!("`{id}` is declared in `{location}`; remove it there, or disable it");
        return Err(Error::new(Code::Conflict, message).with_retryable(false));
    }
    let is_unchanged = |inventory: &Inventory| if_match.check_source(inventory, id);
    app.registry.sources().only_if(Precondition::new(&is_unchanged)).remove(id, client.actor()).await
}

/// `DELETE /api/sources/{id}`.
async fn delete_source(request: AuthorizedRequest, PathParam(name): PathParam, if_match: IfMatch) -> ApiResult {
    let source = find_source(&request.app.registry, &request.client.principal, &name)?;
    remove_source(&request.app, &request.client, &source.id, &if_match).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// Removes the name from the keys; `id` is accepted as an alias.
fn take_name(keys: &mut Map<String, Value>) -> Result<String> {
    let name = match (keys.shift_remove("name"), keys.shift_remove("id")) {
        (Some(_), Some(_)) => return Err(Error::new(Code::BadRequest, "`name` and `id` mean the same; send only one")),
        (name, id) => name.or(id),
    };
    match name {
        Some(Value::String(name)) => Ok(name),
        Some(_) | None => {
            Err(Error::new(Code::BadRequest, "`name` must be a string; it becomes the prefix of the tools"))
        }
    }
}

/// Parses the keys of a source. Relative paths refer to the directory of the configuration file, as if the keys were in
/// it. All faults are reported at once, in the message and, by key, in the details.
fn parse_source(app: &AppState, name: &str, keys: Map<String, Value>) -> Result<Source> {
    let base_directory = app.loaded_config.load().base_directory()?;
    let keys = Value::Object(keys);
    config::parse_source_resolved(name, &keys, &base_directory, &resolve_variables).map_err(|faults| {
        let messages = faults.iter().map(|fault| match fault.key.strip_prefix("sources.") {
            Some(key) => format!("{key}: {}", fault.message),
            None => fault.message.clone(),
        });
        let message = messages.collect::<Vec<_>>().join("; ");
        // Unlike those of a file, these faults have no line number.
        let details = faults.iter().map(|fault| json!({ "key": fault.key, "message": fault.message }));
        Error::new(Code::ConfigInvalid, message).with_details(json!({ "faults": details.collect::<Vec<_>>() }))
    })
}

/// `CONFLICT`, with the way to change the existing source. Trying again would not help, so it is not retryable.
fn already_declared(app: &AppState, id: &SourceId) -> Error {
    let error = match app.loaded_config.load().declared_at(id) {
        Some(location) => {
            let message = format!(
                "`{id}` is declared in `{location}`, which takes precedence; change it there, or choose another name"
            );
            Error::new(Code::Conflict, message)
        }
        None => {
            let error = Error::new(Code::Conflict, format!("the source `{id}` already exists"));
            error.with_next_step(&format!("toolcrib add {id}"), &format!("PATCH /api/sources/{id}"), "changes it")
        }
    };
    error.with_retryable(false)
}

/// Builds the response body. Fails if the source was removed meanwhile.
fn declared_source(app: &AppState, id: &SourceId, outcome: Option<RefreshOutcome>) -> Result<DeclaredSource> {
    let source = app.registry.sources().get(id).ok_or_else(|| app.registry.sources().unknown_error(id.as_str()))?;
    Ok(DeclaredSource { source, outcome })
}
