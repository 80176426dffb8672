//! A source changed key by key.

use axum::Extension;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde_json::{Map, Value};
use toolcrib::core::config::{Secrets, export_json};
use toolcrib::core::inventory::Origin;
use toolcrib::registry::{DeclareOutcome, EnableOutcome, EnableTarget, EnabledState};
use toolcrib::{Code, Error, Refresh, Result, Source, SourceId, Trace};

use super::{authorize, declared_source, parse_source};
use crate::auth::Principal;
use crate::rest::body::JsonBody;
use crate::rest::error::ApiError;
use crate::rest::query::{PathParam, find_source_id};
use crate::rest::response;
use crate::state::AppState;

pub(super) async fn change_source(
    State(app): State<AppState>,
    Extension(principal): Extension<Principal>,
    trace: Option<Extension<Trace>>,
    PathParam(name): PathParam,
    JsonBody(mut patch): JsonBody<Map<String, Value>>,
) -> Result<Response, ApiError> {
    let id = find_source_id(&app.registry, &name)?;
    let switch = patch.shift_remove("enabled").map(parse_enabled).transpose()?;
    let declaring = app.declare_lock.lock().await;
    let source = if patch.is_empty() { None } else { Some(apply_patch(&app, &id, &patch)?) };
    // Nobody is asked twice about what is to stay as it is.
    let before = app.registry.declaration(&id);
    if let Some(source) = source.as_ref().filter(|source| before.is_none_or(|before| before.kind != source.kind)) {
        authorize(&app, &principal, source).await?;
    }
    // What is to be off is not looked at in between.
    if switch == Some(EnabledState::Disabled) {
        set_source_enabled(&app, &principal, &id, EnabledState::Disabled).await?;
    }
    let mut changed = match &source {
        Some(source) => app.registry.declare_lazily(source, principal.actor()).await?,
        None => DeclareOutcome::Same,
    };
    if switch == Some(EnabledState::Enabled)
        && set_source_enabled(&app, &principal, &id, EnabledState::Enabled).await?.changed
    {
        changed = DeclareOutcome::Changed;
    }
    drop(declaring);
    // A source that connects to something else now, or was never known, is discovered; one that is fresh is not.
    let refresh = Refresh { trace: trace.map(|trace| trace.0), ..Refresh::default() };
    let outcome = match changed {
        DeclareOutcome::Same => None,
        DeclareOutcome::New | DeclareOutcome::Changed => Some(app.registry.refresh_source(&id, refresh).await?),
    };
    Ok(response::json_response(StatusCode::OK, &declared_source(&app, &id, outcome)?)?)
}

/// Enables or disables a source that is stated well.
pub(in crate::rest) async fn set_source_enabled(
    app: &AppState,
    principal: &Principal,
    id: &SourceId,
    switch: EnabledState,
) -> Result<EnableOutcome> {
    ensure_declared(app, id)?;
    app.registry.set_enabled(EnableTarget::Source(id.clone()), switch, principal.actor()).await
}

fn parse_enabled(enabled: Value) -> Result<EnabledState> {
    match enabled {
        Value::Bool(true) | Value::Null => Ok(EnabledState::Enabled),
        Value::Bool(false) => Ok(EnabledState::Disabled),
        Value::Number(_) | Value::String(_) | Value::Array(_) | Value::Object(_) => {
            Err(Error::new(Code::BadRequest, "`enabled` is true or false"))
        }
    }
}

/// The declaration with the patch laid over it.
fn apply_patch(app: &AppState, id: &SourceId, patch: &Map<String, Value>) -> Result<Source> {
    if let Some(key) = ["name", "id"].into_iter().find(|key| patch.contains_key(*key)) {
        let message = format!("`{key}` cannot change: declare a source with the new name, and remove this one");
        return Err(Error::new(Code::BadRequest, message));
    }
    ensure_declared(app, id)?;
    let configured = app.registry.inventory().source(id).is_some_and(|state| state.origin == Origin::Config);
    if configured {
        let place = app.loaded_config.load().declared_at(id).unwrap_or_else(|| "the configuration".into());
        let message = format!("`{id}` is declared in `{place}`; change it there. Only `enabled` can be changed here");
        return Err(Error::new(Code::Conflict, message).with_retryable(false));
    }
    let before = app.registry.declaration(id).ok_or_else(|| app.registry.unknown_source_error(id.as_str()))?;
    let mut keys = export_json(&[&before], Secrets::Plain)["sources"][id.as_str()].take();
    merge_patch(&mut keys, &Value::Object(patch.clone()));
    match keys {
        Value::Object(keys) => parse_source(app, id.as_str(), keys),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            Err(Error::new(Code::Internal, format!("the keys of `{id}` cannot be read")))
        }
    }
}

/// One that the configuration states wrongly has no declaration to change.
fn ensure_declared(app: &AppState, id: &SourceId) -> Result<()> {
    if app.registry.inventory().source(id).is_some() {
        return Ok(());
    }
    let place = app.loaded_config.load().declared_at(id).unwrap_or_else(|| "the configuration".into());
    let message = format!("`{id}` is stated wrongly in `{place}`; its `last_error` says how");
    Err(Error::new(Code::Conflict, message).with_retryable(false))
}

/// RFC 7396.
fn merge_patch(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    if let Value::Object(target) = target {
        for (key, value) in patch {
            match value {
                Value::Null => drop(target.shift_remove(key)),
                Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) | Value::Object(_) => {
                    merge_patch(target.entry(key.clone()).or_insert(Value::Null), value);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_patch_is_laid_over_key_by_key() {
        let mut keys = json!({ "url": "http://x", "headers": { "A": "1", "B": "2" }, "tags": ["a"] });
        merge_patch(
            &mut keys,
            &json!({ "headers": { "A": null, "C": "3" }, "tags": ["b"], "ttl": "1m", "title": null }),
        );
        assert_eq!(keys, json!({ "url": "http://x", "headers": { "B": "2", "C": "3" }, "tags": ["b"], "ttl": "1m" }));
    }
}
