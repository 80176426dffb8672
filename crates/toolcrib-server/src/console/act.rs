//! What forms wish for: each is done as over REST, and answered with the page where it shows.

use axum::Extension;
use axum::extract::{Path, State};
use axum::response::Redirect;
use toolcrib::registry::{Switch, Target};
use toolcrib::{Code, Error, Refresh, Result, Trace};

use super::add;
use super::fields::Fields;
use super::happened::tool_path;
use crate::access::Visitor;
use crate::api::{Fault, declare_source, known_source, remove_source};
use crate::house::House;

/// Declares a source and discovers it; one that fails is kept, and its page says why.
pub(super) async fn add_source(
    State(house): State<House>,
    Extension(visitor): Extension<Visitor>,
    trace: Option<Extension<Trace>>,
    fields: Fields,
) -> Result<Redirect, Fault> {
    let (name, keys) = add::read(&fields)?;
    let declared = declare_source(&house, &visitor, &name, keys, trace.map(|trace| trace.0)).await;
    // Who filled in a form sees which source it is about; the key is what helps.
    let outcome = declared.map_err(|mut error| {
        error.message = error.message.strip_prefix(&format!("{name}.")).unwrap_or(&error.message).to_owned();
        error
    })?;
    Ok(Redirect::to(&format!("/sources/{}", outcome.source)))
}

pub(super) async fn refresh_all(State(house): State<House>) -> Redirect {
    house.registry.refresh(Refresh { force: true, ..Refresh::default() }).await;
    Redirect::to("/sources")
}

pub(super) async fn refresh(State(house): State<House>, Path(id): Path<String>) -> Result<Redirect, Fault> {
    let id = known_source(&house.registry, &id)?;
    house.registry.refresh(Refresh { sources: Some(vec![id.clone()]), force: true, ..Refresh::default() }).await;
    Ok(Redirect::to(&format!("/sources/{id}")))
}

pub(super) async fn change_source(
    State(house): State<House>,
    Extension(visitor): Extension<Visitor>,
    Path((id, action)): Path<(String, String)>,
) -> Result<Redirect, Fault> {
    let id = known_source(&house.registry, &id)?;
    if action == "remove" {
        remove_source(&house, &visitor, &id).await?;
        return Ok(Redirect::to("/sources"));
    }
    house.registry.switch(Target::Source(id.clone()), switch(&action)?, visitor.actor()).await?;
    Ok(Redirect::to(&format!("/sources/{id}")))
}

pub(super) async fn change_tool(
    State(house): State<House>,
    Extension(visitor): Extension<Visitor>,
    Path((name, action)): Path<(String, String)>,
) -> Result<Redirect, Fault> {
    let target = house.registry.target(&name)?;
    house.registry.switch(target, switch(&action)?, visitor.actor()).await?;
    Ok(Redirect::to(&tool_path(&name)))
}

fn switch(action: &str) -> Result<Switch> {
    match action {
        "enable" => Ok(Switch::Enabled),
        "disable" => Ok(Switch::Disabled),
        _ => Err(Error::new(Code::NotFound, "nothing of this kind can be done here")),
    }
}
