//! The console: plain pages for people, rendered here, from the same registry that everything else reads.
//! Text from sources is text, always: maud escapes it, and nothing a page says is run.

mod error_page;
mod page;

mod activity;
mod overview;
mod source;
mod sources;
mod tool;
mod tools;

mod actions;
mod activity_list;
mod add_form;
mod alerts;
mod assets;
mod chart;
mod diff;
mod form_data;
mod history;
mod text;

use axum::Router;
use axum::middleware::{from_fn, from_fn_with_state};
use axum::routing::{get, post};
use maud::{Markup, html};

pub(crate) use error_page::not_found;

use crate::auth::{Permission, Principal, authorize};
use crate::state::AppState;

pub(crate) fn router(app: &AppState) -> Router<AppState> {
    let admitted = |needs| from_fn_with_state((app.clone(), needs), authorize);
    Router::new()
        .route("/", get(overview::show).layer(admitted(Permission::Read)))
        .route("/sources", get(sources::show).layer(admitted(Permission::Read)))
        .route("/sources/{id}", get(source::show).layer(admitted(Permission::Read)))
        .route("/tools", get(tools::show).layer(admitted(Permission::Read)))
        .route("/tools/{name}", get(tool::show).layer(admitted(Permission::Read)))
        .route("/activity", get(activity::show).layer(admitted(Permission::Read)))
        .route("/refresh", post(actions::refresh_all).layer(admitted(Permission::Use)))
        .route("/sources/{id}/refresh", post(actions::refresh_source).layer(admitted(Permission::Use)))
        .route("/tools/{name}/call", post(tool::call_tool).layer(admitted(Permission::Use)))
        .route("/sources", post(actions::add_source).layer(admitted(Permission::Manage)))
        .route("/sources/{id}/{action}", post(actions::change_source).layer(admitted(Permission::Manage)))
        .route("/tools/{name}/{action}", post(actions::change_tool).layer(admitted(Permission::Manage)))
        .route("/assets/{file}", get(assets::serve_asset))
        .layer(from_fn(error_page::render_error_pages))
}

/// A page for somebody we may know nothing of.
pub(crate) fn plain_page(title: &str, content: Markup) -> Markup {
    page::render_shell(title, html! {}, html! { div.refusal { h1 { (title) } (content) } })
}

/// What proves that a form was made here; only those with a session need it.
fn csrf_field(principal: &Principal) -> Markup {
    html! { @if let Some(csrf) = &principal.csrf { input type="hidden" name="csrf" value=(csrf); } }
}
