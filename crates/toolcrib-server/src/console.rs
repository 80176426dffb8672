//! The web console: server-rendered HTML pages over the same registry as all other interfaces. Works without scripts.
//! Text from sources is untrusted: maud escapes it, and the content security policy forbids inline code.
//!
//! A page module has a handler `show`, which collects the data and renders the content; `page` puts the layout around
//! it. Forms post to `actions` or `tool`, which redirect to a page or render one. The script (`assets/console.js`)
//! fetches the same pages and copies the differences into the document. It works by attributes, among them:
//! - `data-act`, `data-call`: forms that are submitted without leaving the page;
//! - `data-announce`: the part of a preview that screen readers announce;
//! - `data-keep`: an element with user input, replaced only if the value of the attribute changes;
//! - `data-kept`: a placeholder for a part that the server left out because the page has it;
//! - `data-pending`: a part that is still being computed, so that the page is fetched again soon;
//! - `data-preview`: a form whose answer is fetched while it is edited; the attribute names the part that is copied;
//! - `data-static`: a page that is not refreshed, because it has unsaved input or shows something once;
//! - `data-source`, `data-tool`, `data-own`: the subject of the page, to ignore events about others.

mod page;

mod overview;
mod sources;

mod access;
mod activity;
mod source;
mod tool;
mod tools;

mod actions;
mod add_form;
mod form_data;

mod activity_list;
mod alerts;
mod chart;
mod diff;
mod history;
mod nodes;
mod text;

mod assets;
mod error_page;

use axum::Router;
use axum::middleware::{from_fn, from_fn_with_state};
use axum::routing::{get, post};
use maud::{Markup, html};

pub(crate) use error_page::not_found;

use crate::auth::{AuthenticatedClient, Permission, authorize};
use crate::state::AppState;

/// Builds the router of all pages and form actions. Reading needs [`Permission::Read`], refreshing and calling
/// [`Permission::Use`], changing [`Permission::Manage`]. Assets are public, because the login page uses them. Errors of
/// all routes become pages.
pub(crate) fn router(app: &AppState) -> Router<AppState> {
    let authorized = |permission| from_fn_with_state((app.clone(), permission), authorize);
    Router::new()
        .route("/", get(overview::show).layer(authorized(Permission::Read)))
        .route("/sources", get(sources::show).layer(authorized(Permission::Read)))
        .route("/sources/{id}", get(source::show).layer(authorized(Permission::Read)))
        .route("/tools", get(tools::show).layer(authorized(Permission::Read)))
        .route("/tools/{name}", get(tool::show).layer(authorized(Permission::Read)))
        .route("/activity", get(activity::show).layer(authorized(Permission::Read)))
        .route("/refresh", post(actions::refresh_all).layer(authorized(Permission::Use)))
        .route("/sources/{id}/refresh", post(actions::refresh_source).layer(authorized(Permission::Use)))
        .route("/tools/{name}/call", post(tool::call_tool).layer(authorized(Permission::Use)))
        .route("/sources", post(actions::add_source).layer(authorized(Permission::Manage)))
        .route("/sources/{id}/{action}", post(actions::change_source).layer(authorized(Permission::Manage)))
        .route("/tools/{name}/{action}", post(actions::change_tool).layer(authorized(Permission::Manage)))
        .route("/access", get(access::show).layer(authorized(Permission::Manage)))
        .merge(access::router().route_layer(authorized(Permission::Manage)))
        .route("/assets/{file}", get(assets::serve_asset))
        .layer(from_fn(error_page::render_error_pages))
}

/// Renders a page without navigation, for clients that may not be signed in.
pub(crate) fn plain_page(title: &str, content: Markup) -> Markup {
    page::render_shell(title, html! {}, html! { div.refusal { h1 { (title) } (content) } })
}

/// Renders the hidden CSRF field of a form; empty without a session. Every form that changes something needs it.
fn csrf_field(client: &AuthenticatedClient) -> Markup {
    html! { @if let Some(csrf) = &client.csrf { input type="hidden" name="csrf" value=(csrf); } }
}
