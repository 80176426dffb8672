//! For those who keep it running: is it alive, is it ready, what does it do.

mod exposition;
mod metrics;

use axum::Router;
use axum::extract::State;
use axum::http::header;
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use toolcrib::{Code, Error};

use crate::access::{Needs, admit};
use crate::api::Fault;
use crate::house::House;

pub(crate) fn router(house: &House) -> Router<House> {
    let reading = from_fn_with_state((house.clone(), Needs::Reading), admit);
    Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(ready))
        .route("/metrics", get(measured).layer(reading))
}

/// Touches no store: it tells what the registry's upkeep last saw.
async fn ready(State(house): State<House>) -> Result<&'static str, Fault> {
    if house.traffic.leaves() {
        return Err(Fault(Error::new(Code::StoreUnavailable, "it is leaving; ask another")));
    }
    house.registry.ready()?;
    Ok("ready\n")
}

async fn measured(State(house): State<House>) -> Response {
    ([(header::CONTENT_TYPE, exposition::CONTENT_TYPE)], metrics::written(&house)).into_response()
}
