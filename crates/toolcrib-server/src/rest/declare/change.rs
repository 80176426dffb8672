//! `PATCH /api/sources/{id}`: changes single keys of a source by a JSON merge patch.
//!
//! The patch is applied to the keys of the stored declaration, and the result is parsed like a new one. So every check
//! of a declaration applies to a change as well.

use serde_json::{Map, Value};
use toolcrib::config::{Secrets, export_json};
use toolcrib::core::access_rules::AccessRules;
use toolcrib::core::fingerprint::Fingerprint;
use toolcrib::core::inventory::{Inventory, Origin};
use toolcrib::registry::{DeclareOutcome, EnableOutcome, EnableTarget, EnabledState, Precondition};
use toolcrib::{Code, Error, Refresh, Result, Source, SourceId};

use super::{authorize, authorize_references, declared_source, parse_source};
use crate::auth::{AuthenticatedClient, AuthorizedRequest};
use crate::rest::body::JsonBody;
use crate::rest::error::ApiResult;
use crate::rest::precondition::{IfMatch, source_etag};
use crate::rest::query::{PathParam, find_source_id};
use crate::rest::response::tagged_json;
use crate::state::AppState;

/// Maximum number of times that a patch is applied, if other processes change the same source meanwhile.
const MAX_ATTEMPTS: usize = 5;

/// Applies a patch and discovers the source again if necessary.
pub(super) async fn change_source(
    request: AuthorizedRequest,
    PathParam(name): PathParam,
    if_match: IfMatch,
    JsonBody(patch): JsonBody<Map<String, Value>>,
) -> ApiResult {
    let requester = request.requester();
    let AuthorizedRequest { app, client, .. } = request;
    let id = find_source_id(&app.registry, &client.principal, &name)?;
    authorize_references(&app, &client, &patch)?;
    let patch = SourcePatch::parse(patch)?;
    let guard = app.declare_lock.lock().await;
    let mut attempts = 0;
    let outcome = loop {
        attempts += 1;
        let base = declared_version(&app, &id)?;
        let source = if patch.keys.is_empty() { None } else { Some(apply_patch(&app, &id, &patch.keys)?) };
        // Only a change of the connection needs authorization; a remote administrator may change the title of any source.
        let before = app.registry.sources().declaration(&id);
        if let Some(source) = source.as_ref().filter(|source| before.is_none_or(|before| before.kind != source.kind)) {
            authorize(&app, &client, source).await?;
        }
        let is_unchanged = |inventory: &Inventory| {
            if_match.check_source(inventory, &id)?;
            // The result of the patch replaces the declaration, so it must be made from the current one.
            let current = inventory.source(&id).map(|state| state.definition);
            if source.is_none() || current == Some(base) {
                return Ok(());
            }
            Err(Error::new(Code::Conflict, format!("`{id}` is being changed by other requests; try again")))
        };
        let sources = app.registry.sources().only_if(Precondition::new(&is_unchanged));
        match sources.change(&id, source.as_ref(), patch.switch, client.actor()).await {
            // Another process has changed the source meanwhile.
            Err(error) if error.code == Code::Conflict && attempts < MAX_ATTEMPTS => {
                if declared_version(&app, &id)? == base {
                    return Err(error.into());
                }
            }
            outcome => break outcome?,
        }
    };
    drop(guard);
    // Not forced: only a source whose connection changed or that was never discovered is contacted.
    let mut refresh_outcome = None;
    if outcome != DeclareOutcome::Same {
        let refresh = Refresh { requester, ..Refresh::brief() };
        refresh_outcome = Some(app.registry.refresher().refresh_one(&id, refresh).await?);
    }
    let declared = declared_source(&app, &id, refresh_outcome)?;
    let etag = source_etag(&app.registry, &declared.source);
    tagged_json(&declared, etag)
}

/// Enables or disables a source. Fails for one with an invalid declaration in the configuration.
pub(in crate::rest) async fn set_source_enabled(
    app: &AppState,
    client: &AuthenticatedClient,
    id: &SourceId,
    enabled: EnabledState,
    if_match: &IfMatch,
) -> Result<EnableOutcome> {
    ensure_declared(app, id)?;
    let is_unchanged = |inventory: &Inventory| if_match.check_source(inventory, id);
    let sources = app.registry.sources().only_if(Precondition::new(&is_unchanged));
    sources.set_enabled(EnableTarget::Source(id.clone()), enabled, client.actor()).await
}

/// A merge patch, with the switch of the source apart from the keys of its declaration.
struct SourcePatch {
    /// Changes of the declaration.
    keys: Map<String, Value>,
    switch: Option<EnabledState>,
}

impl SourcePatch {
    /// Reads `enabled`: true and false switch the source and leave its declaration as it is, because that may be in a
    /// file. A reference becomes part of the declaration; `null` removes it there and enables the source, which is the
    /// default.
    fn parse(mut keys: Map<String, Value>) -> Result<SourcePatch> {
        let switch = match keys.get("enabled") {
            None => None,
            Some(Value::Bool(true)) => Some(EnabledState::Enabled),
            Some(Value::Bool(false)) => Some(EnabledState::Disabled),
            Some(Value::Null) => return Ok(SourcePatch { keys, switch: Some(EnabledState::Enabled) }),
            Some(Value::String(text)) if text.contains("${") => return Ok(SourcePatch { keys, switch: None }),
            Some(Value::String(_) | Value::Number(_) | Value::Array(_) | Value::Object(_)) => {
                let message = "`enabled` must be true, false, null or a reference such as `${env:NAME}`";
                return Err(Error::new(Code::BadRequest, message));
            }
        };
        keys.shift_remove("enabled");
        Ok(SourcePatch { keys, switch })
    }
}

/// Returns the version of the declaration of a source. Fails for one with an invalid declaration in the configuration.
fn declared_version(app: &AppState, id: &SourceId) -> Result<Fingerprint> {
    ensure_declared(app, id)?;
    let inventory = app.registry.inventory();
    inventory.source(id).map(|state| state.definition).ok_or_else(|| app.registry.sources().unknown_error(id.as_str()))
}

/// Returns the declaration with the patch applied.
fn apply_patch(app: &AppState, id: &SourceId, patch: &Map<String, Value>) -> Result<Source> {
    if let Some(key) = ["name", "id"].into_iter().find(|key| patch.contains_key(*key)) {
        let message = format!("`{key}` cannot change: declare a source with the new name, and remove this one");
        return Err(Error::new(Code::BadRequest, message));
    }
    let is_configured = app.registry.inventory().source(id).is_some_and(|state| state.origin == Origin::Config);
    if is_configured {
        let location = app.loaded_config.load().declared_at(id).unwrap_or_else(|| "the configuration".into());
        let message = format!(
            "`{id}` is declared in `{location}`; change it there. Only `enabled: true` and `enabled: false` work here"
        );
        return Err(Error::new(Code::Conflict, message).with_retryable(false));
    }
    let declaration =
        app.registry.sources().declaration(id).ok_or_else(|| app.registry.sources().unknown_error(id.as_str()))?;
    // With secrets in plain text, because the keys are parsed into the declaration that is stored.
    let mut keys = export_json(&[&declaration], &AccessRules::default(), Secrets::Plain)["sources"][id.as_str()].take();
    merge_patch(&mut keys, &Value::Object(patch.clone()));
    match keys {
        Value::Object(keys) => parse_source(app, id.as_str(), keys),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            Err(Error::new(Code::Internal, format!("the keys of `{id}` cannot be read")))
        }
    }
}

/// Fails for a source with an invalid declaration in the configuration: it is listed, but has no declaration to change.
fn ensure_declared(app: &AppState, id: &SourceId) -> Result<()> {
    if app.registry.inventory().source(id).is_some() {
        return Ok(());
    }
    let location = app.loaded_config.load().declared_at(id).unwrap_or_else(|| "the configuration".into());
    let message = format!("the declaration of `{id}` in `{location}` is invalid; see its `last_error`");
    Err(Error::new(Code::Conflict, message).with_retryable(false))
}

/// Applies a JSON merge patch (RFC 7396). Objects are merged key by key, `null` removes a key, and everything else,
/// lists included, is replaced.
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
    fn a_patch_merges_objects_and_replaces_other_values() {
        let mut keys = json!({ "url": "http://x", "headers": { "A": "1", "B": "2" }, "tags": ["a"] });
        merge_patch(
            &mut keys,
            &json!({ "headers": { "A": null, "C": "3" }, "tags": ["b"], "ttl": "1m", "title": null }),
        );
        assert_eq!(keys, json!({ "url": "http://x", "headers": { "B": "2", "C": "3" }, "tags": ["b"], "ttl": "1m" }));
    }
}
