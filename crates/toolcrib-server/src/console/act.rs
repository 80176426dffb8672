//! What forms wish for: each is done and answered with the page where it shows.

use axum::Extension;
use axum::extract::{Path, State};
use axum::response::Redirect;
use toolcrib::core::config::declare;
use toolcrib::core::inventory::{Actor, Command};
use toolcrib::core::text::shown_short;
use toolcrib::{Code, Error, Refresh, Result, SourceId};

use super::add;
use super::fields::Fields;
use super::happened::tool_path;
use crate::access::Visitor;
use crate::api::Fault;
use crate::house::House;

/// Declares a source and discovers it; one that fails is kept, and its page says why.
pub(super) async fn add_source(
    State(house): State<House>,
    Extension(visitor): Extension<Visitor>,
    fields: Fields,
) -> Result<Redirect, Fault> {
    let (name, keys) = add::read(&fields)?;
    let said = |faults: Vec<toolcrib::core::config::Fault>| {
        faults.into_iter().map(|fault| fault.message).collect::<Vec<_>>().join("; ")
    };
    let source = declare(&name, &keys, &house.data).map_err(|faults| Error::new(Code::ConfigInvalid, said(faults)))?;
    let id = source.id.clone();
    house.registry.declare(source, Actor::new(&visitor.name)).await?;
    Ok(Redirect::to(&format!("/sources/{id}")))
}

pub(super) async fn refresh_all(State(house): State<House>) -> Redirect {
    house.registry.refresh(Refresh { force: true, ..Refresh::default() }).await;
    Redirect::to("/sources")
}

pub(super) async fn refresh(State(house): State<House>, Path(id): Path<String>) -> Result<Redirect, Fault> {
    let id = known(&house, &id)?;
    house.registry.refresh(Refresh { sources: Some(vec![id.clone()]), force: true, ..Refresh::default() }).await;
    Ok(Redirect::to(&format!("/sources/{id}")))
}

pub(super) async fn change_source(
    State(house): State<House>,
    Extension(visitor): Extension<Visitor>,
    Path((id, action)): Path<(String, String)>,
) -> Result<Redirect, Fault> {
    let (id, actor) = (known(&house, &id)?, Actor::new(&visitor.name));
    match action.as_str() {
        "enable" => house.registry.execute(Command::Enable(id.clone()), actor).await.map(drop)?,
        "disable" => house.registry.execute(Command::Disable(id.clone()), actor).await.map(drop)?,
        "remove" => {
            house.registry.remove(&id, actor).await?;
            return Ok(Redirect::to("/sources"));
        }
        _ => return Err(Fault(Error::new(Code::NotFound, "a source can be refreshed, enabled, disabled and removed"))),
    }
    Ok(Redirect::to(&format!("/sources/{id}")))
}

pub(super) async fn change_tool(
    State(house): State<House>,
    Extension(visitor): Extension<Visitor>,
    Path((name, action)): Path<(String, String)>,
) -> Result<Redirect, Fault> {
    let (catalog, actor) = (house.registry.catalog(), Actor::new(&visitor.name));
    let tool = catalog.find(&name)?;
    let command = match action.as_str() {
        "enable" => Command::EnableTool(tool.id()),
        "disable" => Command::DisableTool(tool.id()),
        _ => return Err(Fault(Error::new(Code::NotFound, "a tool can be called, enabled and disabled"))),
    };
    house.registry.execute(command, actor).await?;
    Ok(Redirect::to(&tool_path(tool.name().as_str())))
}

fn known(house: &House, id: &str) -> Result<SourceId> {
    let unknown = || house.registry.unknown_source(&shown_short(id, 80));
    let id = SourceId::from_name(id).map_err(|_| unknown())?;
    house.registry.source(&id).map(|_| id).ok_or_else(unknown)
}
