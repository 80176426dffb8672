//! What forms wish for: each is done as over REST, and answered with the page where it shows.

use axum::Extension;
use axum::extract::{Path, State};
use axum::response::Redirect;
use toolcrib::registry::{EnableTarget, EnabledState};
use toolcrib::{Code, Error, Refresh, Result, Trace};

use super::activity_list::tool_path;
use super::add_form;
use super::form_data::FormData;
use crate::auth::Principal;
use crate::rest::{ApiError, declare_source, find_source_id, remove_source};
use crate::state::AppState;

/// Declares a source and discovers it; one that fails is kept, and its page says why.
pub(super) async fn add_source(
    State(app): State<AppState>,
    Extension(principal): Extension<Principal>,
    trace: Option<Extension<Trace>>,
    fields: FormData,
) -> Result<Redirect, ApiError> {
    let (name, keys) = add_form::parse_form(&fields)?;
    let declared = declare_source(&app, &principal, &name, keys, trace.map(|trace| trace.0)).await;
    // Who filled in a form sees which source it is about; the key is what helps.
    let outcome = declared.map_err(|mut error| {
        error.message = error.message.strip_prefix(&format!("{name}.")).unwrap_or(&error.message).to_owned();
        error
    })?;
    Ok(Redirect::to(&format!("/sources/{}", outcome.source)))
}

pub(super) async fn refresh_all(State(app): State<AppState>) -> Redirect {
    app.registry.refresh(Refresh { force: true, ..Refresh::default() }).await;
    Redirect::to("/sources")
}

pub(super) async fn refresh_source(State(app): State<AppState>, Path(id): Path<String>) -> Result<Redirect, ApiError> {
    let id = find_source_id(&app.registry, &id)?;
    app.registry.refresh(Refresh { sources: Some(vec![id.clone()]), force: true, ..Refresh::default() }).await;
    Ok(Redirect::to(&format!("/sources/{id}")))
}

pub(super) async fn change_source(
    State(app): State<AppState>,
    Extension(principal): Extension<Principal>,
    Path((id, action)): Path<(String, String)>,
) -> Result<Redirect, ApiError> {
    let id = find_source_id(&app.registry, &id)?;
    if action == "remove" {
        remove_source(&app, &principal, &id).await?;
        return Ok(Redirect::to("/sources"));
    }
    app.registry.set_enabled(EnableTarget::Source(id.clone()), parse_action(&action)?, principal.actor()).await?;
    Ok(Redirect::to(&format!("/sources/{id}")))
}

pub(super) async fn change_tool(
    State(app): State<AppState>,
    Extension(principal): Extension<Principal>,
    Path((name, action)): Path<(String, String)>,
) -> Result<Redirect, ApiError> {
    let target = app.registry.tool_target(&name)?;
    app.registry.set_enabled(target, parse_action(&action)?, principal.actor()).await?;
    Ok(Redirect::to(&tool_path(&name)))
}

fn parse_action(action: &str) -> Result<EnabledState> {
    match action {
        "enable" => Ok(EnabledState::Enabled),
        "disable" => Ok(EnabledState::Disabled),
        _ => Err(Error::new(Code::NotFound, "nothing of this kind can be done here")),
    }
}
