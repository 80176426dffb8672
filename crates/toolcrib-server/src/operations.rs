//! For those who keep it running: is it alive, is it ready, what does it do.

mod exposition;
mod metrics;

use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};

use crate::api::Fault;
use crate::house::House;

/// Touches no store: it tells what the registry's upkeep last saw.
pub(crate) async fn ready(State(house): State<House>) -> Result<&'static str, Fault> {
    house.registry.ready()?;
    Ok("ready\n")
}

pub(crate) async fn measured(State(house): State<House>) -> Response {
    ([(header::CONTENT_TYPE, exposition::CONTENT_TYPE)], metrics::written(&house)).into_response()
}
