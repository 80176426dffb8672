//! Handlers of form submissions. Each performs the same operation as its REST route, then redirects to the page that
//! shows the result.
//!
//! A redirect after a POST keeps a reload of the page from submitting the form again. The CSRF token has been checked
//! by the authorization layer.

use axum::extract::Path;
use axum::response::Redirect;
use toolcrib::core::text::sanitize_truncated;
use toolcrib::registry::{EnableTarget, EnabledState};
use toolcrib::{Code, Error, Refresh, Result};

use super::activity_list::tool_path;
use super::add_form;
use super::form_data::FormData;
use crate::auth::AuthorizedRequest;
use crate::rest::{ApiError, IfMatch, declare_source, find_source_id, known_sources, remove_source};

/// Declares a source and discovers it. If the discovery fails, the source stays and its page shows the error.
pub(super) async fn add_source(request: AuthorizedRequest, form_data: FormData) -> Result<Redirect, ApiError> {
    let (name, keys) = add_form::parse_form(&form_data)?;
    let result = declare_source(&request, &name, keys).await;
    // The user knows which source the form is about; the message starts with the key instead of `name.key`.
    let outcome = result.map_err(|mut error| {
        error.message = error.message.strip_prefix(&format!("{name}.")).unwrap_or(&error.message).to_owned();
        error
    })?;
    Ok(Redirect::to(&format!("/sources/{}", outcome.source)))
}

/// Refreshes all sources that the client may know of. Waits until all discoveries have ended; their outcomes are on the
/// page.
pub(super) async fn refresh_all(request: AuthorizedRequest) -> Redirect {
    let known_sources = known_sources(&request.app.registry, &request.client.principal);
    let refresh = Refresh { known_sources, force: true, requester: request.requester(), ..Refresh::brief() };
    request.app.registry.refresh(refresh).await;
    Redirect::to("/sources")
}

/// Refreshes one source. A failure is shown on its page.
pub(super) async fn refresh_source(request: AuthorizedRequest, Path(id): Path<String>) -> Result<Redirect, ApiError> {
    let id = find_source_id(&request.app.registry, &request.client.principal, &id)?;
    // Not a failure of the source, which its page would show.
    request.app.registry.sources().ensure_may_start(&id)?;
    let requester = request.requester();
    let refresh = Refresh { sources: Some(vec![id.clone()]), force: true, requester, ..Refresh::brief() };
    request.app.registry.refresh(refresh).await;
    Ok(Redirect::to(&format!("/sources/{id}")))
}

/// Enables, disables or removes a source.
pub(super) async fn change_source(
    AuthorizedRequest { app, client, .. }: AuthorizedRequest,
    Path((id, action)): Path<(String, String)>,
) -> Result<Redirect, ApiError> {
    let id = find_source_id(&app.registry, &client.principal, &id)?;
    if action == "remove" {
        remove_source(&app, &client, &id, &IfMatch::default()).await?;
        return Ok(Redirect::to("/sources"));
    }
    app.registry
        .sources()
        .set_enabled(EnableTarget::Source(id.clone()), parse_action(&action)?, client.actor())
        .await?;
    Ok(Redirect::to(&format!("/sources/{id}")))
}

/// Enables or disables a tool.
pub(super) async fn change_tool(
    AuthorizedRequest { app, client, .. }: AuthorizedRequest,
    Path((name, action)): Path<(String, String)>,
) -> Result<Redirect, ApiError> {
    let target = app.registry.sources().tool_target(&client.principal, &name)?;
    app.registry.sources().set_enabled(target, parse_action(&action)?, client.actor()).await?;
    Ok(Redirect::to(&tool_path(&name)))
}

/// An unknown action is an unknown path, hence `NOT_FOUND`.
fn parse_action(action: &str) -> Result<EnabledState> {
    match action {
        "enable" => Ok(EnabledState::Enabled),
        "disable" => Ok(EnabledState::Disabled),
        _ => {
            let action = sanitize_truncated(action, 40);
            Err(Error::new(Code::NotFound, format!("unknown action `{action}`")))
        }
    }
}
