//! What happens, live: records of the journal as they are written, and between them how sources fare, discoveries come
//! along, and calls end. Each event is written once for all who listen.

mod feed;
mod listener;
mod told;

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use serde_json::json;
use toolcrib::core::text::shown_short;
use toolcrib::{Code, Error, Result};

use super::asked::Asked;
use super::fault::Fault;
use super::route::Route;
use crate::access::Needs;
use crate::house::House;
use listener::Listener;

pub(crate) use feed::Feed;

pub(super) fn routes() -> Vec<Route> {
    let seq = json!({ "type": "integer", "minimum": 0 });
    let last = json!({
        "name": "Last-Event-ID", "in": "header",
        "description": "As `after`; sent by browsers that connect again", "schema": { "type": "string" },
    });
    let stream = json!({
        "description": "Server-sent events. `record` has the number of a journal record as its id and the record as its \
            data; `source`, `progress`, `discovered`, `call`, `catalog` and `lost` have none",
        "content": { "text/event-stream": { "schema": { "type": "string" } } },
    });
    vec![
        Route::new("GET", "/api/events", "watch_events", get(events))
            .about("What happens, live, until either side ends it")
            .needs(Needs::Reading)
            .query("after", seq, "Begin with the record after this number; from now on otherwise")
            .parameter(last)
            .answer(200, stream)
            .refuses(&[400, 429, 503]),
    ]
}

async fn events(State(house): State<House>, headers: HeaderMap, asked: Asked) -> Result<Response, Fault> {
    let after = after(&headers, &asked)?;
    let Some(place) = house.feed.place() else {
        return Err(Error::new(Code::RateLimited, "too many listen already; try again in a moment").into());
    };
    let listener = Listener::new(&house, place, after).await?;
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream")),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
        // Proxies that gather what they pass on would hold events back.
        (header::HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no")),
    ];
    Ok((headers, Body::from_stream(listener.stream())).into_response())
}

/// Where a listener wants to go on. The header is newer than an address that a browser uses again.
fn after(headers: &HeaderMap, asked: &Asked) -> Result<Option<u64>> {
    let Some(last) = headers.get("last-event-id").filter(|last| !last.is_empty()) else {
        return asked.number("after", 0..=u64::MAX);
    };
    let number = last.to_str().ok().and_then(|text| text.trim().parse().ok());
    number.map(Some).ok_or_else(|| {
        let shown = shown_short(&String::from_utf8_lossy(last.as_bytes()), 40);
        Error::new(Code::BadRequest, format!("`Last-Event-ID` is the number of a record, not `{shown}`"))
    })
}
