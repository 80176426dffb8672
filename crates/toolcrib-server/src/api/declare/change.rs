//! A source changed key by key.

use axum::Extension;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde_json::{Map, Value};
use toolcrib::core::config::{Secrets, export_json};
use toolcrib::core::inventory::Origin;
use toolcrib::registry::{Declared, Switch, Switched, Target};
use toolcrib::{Code, Error, Refresh, Result, Source, SourceId, Trace};

use super::{declared, permit, read};
use crate::access::Visitor;
use crate::api::asked::{Named, known_source};
use crate::api::body::Json;
use crate::api::fault::Fault;
use crate::api::reply;
use crate::house::House;

pub(super) async fn change(
    State(house): State<House>,
    Extension(visitor): Extension<Visitor>,
    trace: Option<Extension<Trace>>,
    Named(name): Named,
    Json(mut patch): Json<Map<String, Value>>,
) -> Result<Response, Fault> {
    let id = known_source(&house.registry, &name)?;
    let switch = patch.shift_remove("enabled").map(switch).transpose()?;
    let declaring = house.declaring.lock().await;
    let source = if patch.is_empty() { None } else { Some(patched(&house, &id, &patch)?) };
    // Nobody is asked twice about what is to stay as it is.
    let before = house.registry.declaration(&id);
    if let Some(source) = source.as_ref().filter(|source| before.is_none_or(|before| before.kind != source.kind)) {
        permit(&house, &visitor, source).await?;
    }
    // What is to be off is not looked at in between.
    if switch == Some(Switch::Disabled) {
        switch_source(&house, &visitor, &id, Switch::Disabled).await?;
    }
    let mut changed = match &source {
        Some(source) => house.registry.declare_lazily(source, visitor.actor()).await?,
        None => Declared::Same,
    };
    if switch == Some(Switch::Enabled) && switch_source(&house, &visitor, &id, Switch::Enabled).await?.changed {
        changed = Declared::Changed;
    }
    drop(declaring);
    // A source that connects to something else now, or was never known, is discovered; one that is fresh is not.
    let refresh = Refresh { trace: trace.map(|trace| trace.0), ..Refresh::default() };
    let outcome = match changed {
        Declared::Same => None,
        Declared::New | Declared::Changed => Some(house.registry.refresh_source(&id, refresh).await?),
    };
    Ok(reply::json(StatusCode::OK, &declared(&house, &id, outcome)?)?)
}

/// Enables or disables a source that is stated well.
pub(in crate::api) async fn switch_source(
    house: &House,
    visitor: &Visitor,
    id: &SourceId,
    switch: Switch,
) -> Result<Switched> {
    stated_well(house, id)?;
    house.registry.switch(Target::Source(id.clone()), switch, visitor.actor()).await
}

fn switch(enabled: Value) -> Result<Switch> {
    match enabled {
        Value::Bool(true) | Value::Null => Ok(Switch::Enabled),
        Value::Bool(false) => Ok(Switch::Disabled),
        Value::Number(_) | Value::String(_) | Value::Array(_) | Value::Object(_) => {
            Err(Error::new(Code::BadRequest, "`enabled` is true or false"))
        }
    }
}

/// The declaration with the patch laid over it.
fn patched(house: &House, id: &SourceId, patch: &Map<String, Value>) -> Result<Source> {
    if let Some(key) = ["name", "id"].into_iter().find(|key| patch.contains_key(*key)) {
        let message = format!("`{key}` cannot change: declare a source with the new name, and remove this one");
        return Err(Error::new(Code::BadRequest, message));
    }
    stated_well(house, id)?;
    let configured = house.registry.inventory().source(id).is_some_and(|state| state.origin == Origin::Config);
    if configured {
        let place = house.found.load().declared_at(id).unwrap_or_else(|| "the configuration".into());
        let message = format!("`{id}` is declared in `{place}`; change it there. Only `enabled` can be changed here");
        return Err(Error::new(Code::Conflict, message).with_retryable(false));
    }
    let before = house.registry.declaration(id).ok_or_else(|| house.registry.unknown_source(id.as_str()))?;
    let mut keys = export_json(&[&before], Secrets::Plain)["sources"][id.as_str()].take();
    merge(&mut keys, &Value::Object(patch.clone()));
    match keys {
        Value::Object(keys) => read(house, id.as_str(), keys),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            Err(Error::new(Code::Internal, format!("the keys of `{id}` cannot be read")))
        }
    }
}

/// One that the configuration states wrongly has no declaration to change.
fn stated_well(house: &House, id: &SourceId) -> Result<()> {
    if house.registry.inventory().source(id).is_some() {
        return Ok(());
    }
    let place = house.found.load().declared_at(id).unwrap_or_else(|| "the configuration".into());
    let message = format!("`{id}` is stated wrongly in `{place}`; its `last_error` says how");
    Err(Error::new(Code::Conflict, message).with_retryable(false))
}

/// RFC 7396.
fn merge(target: &mut Value, patch: &Value) {
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
                    merge(target.entry(key.clone()).or_insert(Value::Null), value);
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
        merge(&mut keys, &json!({ "headers": { "A": null, "C": "3" }, "tags": ["b"], "ttl": "1m", "title": null }));
        assert_eq!(keys, json!({ "url": "http://x", "headers": { "B": "2", "C": "3" }, "tags": ["b"], "ttl": "1m" }));
    }
}
