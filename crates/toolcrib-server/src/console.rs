//! The console: plain pages for people, rendered here, from the same registry that everything else reads.
//! Text from sources is text, always: maud escapes it, and nothing a page says is run.

mod page;
mod refusal;

mod activity;
mod overview;
mod source;
mod sources;
mod tool;
mod tools;

mod act;
mod add;
mod assets;
mod attention;
mod chart;
mod diff;
mod fields;
mod happened;
mod past;
mod words;

use axum::Router;
use axum::middleware::{from_fn, from_fn_with_state};
use axum::routing::{get, post};
use maud::{Markup, html};

pub(crate) use refusal::not_found;

use crate::access::{Needs, Visitor, admit};
use crate::house::House;

pub(crate) fn router(house: &House) -> Router<House> {
    let admitted = |needs| from_fn_with_state((house.clone(), needs), admit);
    Router::new()
        .route("/", get(overview::show).layer(admitted(Needs::Reading)))
        .route("/sources", get(sources::show).layer(admitted(Needs::Reading)))
        .route("/sources/{id}", get(source::show).layer(admitted(Needs::Reading)))
        .route("/tools", get(tools::show).layer(admitted(Needs::Reading)))
        .route("/tools/{name}", get(tool::show).layer(admitted(Needs::Reading)))
        .route("/activity", get(activity::show).layer(admitted(Needs::Reading)))
        .route("/refresh", post(act::refresh_all).layer(admitted(Needs::Using)))
        .route("/sources/{id}/refresh", post(act::refresh).layer(admitted(Needs::Using)))
        .route("/tools/{name}/call", post(tool::call).layer(admitted(Needs::Using)))
        .route("/sources", post(act::add_source).layer(admitted(Needs::Managing)))
        .route("/sources/{id}/{action}", post(act::change_source).layer(admitted(Needs::Managing)))
        .route("/tools/{name}/{action}", post(act::change_tool).layer(admitted(Needs::Managing)))
        .route("/assets/{file}", get(assets::serve))
        .layer(from_fn(refusal::dress))
}

/// A page for somebody we may know nothing of.
pub(crate) fn plain_page(title: &str, content: Markup) -> Markup {
    page::shell(title, html! {}, html! { div.refusal { h1 { (title) } (content) } })
}

/// What proves that a form was made here; only those with a session need it.
fn guarded(visitor: &Visitor) -> Markup {
    html! { @if let Some(csrf) = &visitor.csrf { input type="hidden" name="csrf" value=(csrf); } }
}
