//! The console: plain pages for people, rendered here, from the same registry that everything else reads.
//! Text from sources is text, always: maud escapes it, and nothing a page says is run.

mod page;

use axum::Router;
use axum::extract::State;
use axum::middleware::from_fn_with_state;
use axum::routing::get;
use maud::{Markup, html};

use crate::access::{Needs, admit};
use crate::house::House;

pub(crate) fn router(house: &House) -> Router<House> {
    let overview = get(overview).layer(from_fn_with_state((house.clone(), Needs::Reading), admit));
    Router::new().route("/", overview)
}

/// A page for somebody we may know nothing of.
pub(crate) fn plain_page(title: &str, content: Markup) -> Markup {
    page::page(title, content)
}

async fn overview(State(house): State<House>) -> Markup {
    let sources = house.registry.sources();
    page::page("Overview", html! { p { (sources.len()) " sources" } })
}
