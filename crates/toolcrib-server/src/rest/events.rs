//! `GET /api/events`: a stream of server-sent events. Journal records come without gaps; in between come measurements
//! such as source states, discovery progress and finished calls. Each event is rendered once for all listeners with the same
//! scope. A change of the tool lists is an event for the listeners whose own list changed, and so is a change of rules.
//!
//! ```text
//! event: record
//! id: 42
//! data: {"seq":42,"at":"…","type":"…","text":"…"}
//!
//! event: failed
//! data: {"source":"git","transition":"failed","at":"…","error":{…},"text":"`git` failed: …"}
//!
//! event: call
//! data: {"tool":"git__push","code":"OK",…}
//! ```
//!
//! Only records have an id. A client that reconnects sends the last one as `Last-Event-ID` and continues after it.

mod feed;
mod listener;
mod sse;

use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::IntoResponse;
use serde_json::{Value, json};
use toolcrib::core::text::sanitize_truncated;
use toolcrib::{Code, Error, Result};

use super::error::ApiResult;
use super::openapi_schema::{
    boolean, count, described, nullable, object_schema, string_enum, text, timestamp, with_optional,
};
use super::query::QueryParams;
use super::route::{ApiRoute, schema_ref};
use crate::auth::AuthorizedRequest;
use listener::EventListener;

pub(crate) use feed::EventFeed;

/// Form of the data of events and records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EventFormat {
    /// Toolcrib's own.
    Json,
    /// CloudEvents 1.0.
    CloudEvents,
}

impl EventFormat {
    /// Values of the parameter `format`.
    pub(super) const NAMES: [&'static str; 2] = ["json", "cloudevents"];

    /// Reads the parameter `format`.
    pub(super) fn from_params(params: &QueryParams) -> Result<EventFormat> {
        match params.text("format") {
            None | Some("json") => Ok(EventFormat::Json),
            Some("cloudevents") => Ok(EventFormat::CloudEvents),
            Some(other) => {
                let message = format!("`format` is json or cloudevents, not `{}`", sanitize_truncated(other, 40));
                Err(Error::new(Code::BadRequest, message))
            }
        }
    }
}

/// OpenAPI 3.1 has no form for a stream of events: the schema is that of the data of each event.
pub(super) fn routes() -> Vec<ApiRoute> {
    let last_event_id = json!({
        "name": "Last-Event-ID", "in": "header",
        "description": "Same as `after`; browsers send it when they reconnect", "schema": { "type": "string" },
    });
    let stream = json!({
        "description": "Server-sent events. `record` has the sequence number of a journal record as its id and the record \
            as its data; `source`, `progress`, `discovered`, `failed`, `recovered`, `call`, `catalog` and `lost` have no id",
        "content": { "text/event-stream": { "schema": schema_ref("Event") } },
    });
    vec![
        ApiRoute::read("/api/events", "watch_events", stream_events)
            .summary("Stream of events, until either side closes it")
            .query_param(
                "after",
                count(),
                "Start with the record after this sequence number; default: new records only",
            )
            .query_param("format", string_enum(&EventFormat::NAMES), "`cloudevents`: each event as a CloudEvent 1.0")
            .parameter(last_event_id)
            .response(200, stream)
            .error_responses(&[400, 429, 503]),
    ]
}

/// `Event` is the data of an event; its variants are in the order of the names of the events.
pub(super) fn schemas() -> Vec<(&'static str, Value)> {
    let about = |schema: Value, name: &str| described(schema, &format!("Data of the event `{name}`"));
    let progress = with_optional(
        object_schema(&[("source", text()), ("stage", string_enum(&["contacting", "recording"]))]),
        &[("tools", count())],
    );
    let transition = object_schema(&[
        ("source", text()),
        ("transition", string_enum(&["failed", "recovered"])),
        ("at", timestamp()),
        ("error", nullable(schema_ref("Failure"))),
        ("failing_since", nullable(timestamp())),
        ("text", described(text(), "The change in one line")),
    ]);
    let call = object_schema(&[
        ("tool", text()),
        ("source", nullable(text())),
        ("caller", text()),
        ("code", described(text(), "`OK`, or an error code")),
        ("at", timestamp()),
        ("elapsed_ms", count()),
    ]);
    let removed = object_schema(&[("id", text()), ("removed", boolean())]);
    let catalog = object_schema(&[("inventory_hash", text()), ("version", count())]);
    let names =
        ["Record", "Source", "SourceRemoved", "DiscoveryProgress", "Outcome", "SourceTransition", "CallFinished"];
    let variants = names.into_iter().chain(["CatalogChanged", "EventsLost", "CloudEvent"]).map(schema_ref);
    let event = json!({
        "description": "Data of an event: `record`, `source` (the source, or that it was removed), `progress`, `discovered`, \
            `failed` and `recovered`, `call`, `catalog`, `lost`; with `format=cloudevents` each in a CloudEvent",
        "anyOf": variants.collect::<Vec<_>>(),
    });
    let cloud_event = with_optional(
        object_schema(&[
            ("specversion", string_enum(&["1.0"])),
            ("id", described(text(), "Sequence number of a record; unique together with `source`")),
            ("source", described(text(), "URI of the store")),
            ("type", described(text(), "Such as `toolcrib.SourceDisabled` or `toolcrib.source.failed`")),
            ("time", timestamp()),
            ("datacontenttype", string_enum(&["application/json"])),
            ("data", json!({ "type": "object" })),
        ]),
        &[("subject", described(text(), "A source, or a tool as `source:tool`"))],
    );
    vec![
        ("Event", event),
        ("SourceRemoved", about(removed, "source")),
        ("DiscoveryProgress", about(progress, "progress")),
        ("SourceTransition", about(transition, "failed` and `recovered")),
        ("CallFinished", about(call, "call")),
        ("CatalogChanged", about(catalog, "catalog")),
        ("EventsLost", about(object_schema(&[("count", count())]), "lost")),
        ("CloudEvent", cloud_event),
    ]
}

/// Opens an event stream, within the limits for listeners.
async fn stream_events(request: AuthorizedRequest, headers: HeaderMap, params: QueryParams) -> ApiResult {
    let AuthorizedRequest { app, client, .. } = request;
    let after = resume_after(&headers, &params)?;
    let format = EventFormat::from_params(&params)?;
    // Taken before the journal is read, so that too many listeners cost no reads.
    let permit = app.event_feed.acquire_permit(&client.principal.identity().owner_key())?;
    let listener = EventListener::new(&app, client.principal.clone(), permit, after, format).await?;
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream")),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
        // nginx buffers responses by default, which would delay events.
        (header::HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no")),
    ];
    Ok((headers, Body::from_stream(listener.into_stream())).into_response())
}

/// Returns the sequence number after which a listener resumes. The header takes precedence over the query, because a
/// browser reconnects with the original URL.
fn resume_after(headers: &HeaderMap, params: &QueryParams) -> Result<Option<u64>> {
    let Some(last_id) = headers.get("last-event-id").filter(|last_id| !last_id.is_empty()) else {
        return params.number("after", 0..=u64::MAX);
    };
    let seq = last_id.to_str().ok().and_then(|text| text.trim().parse().ok());
    seq.map(Some).ok_or_else(|| {
        let text = sanitize_truncated(&String::from_utf8_lossy(last_id.as_bytes()), 40);
        Error::new(Code::BadRequest, format!("`Last-Event-ID` is the number of a record, not `{text}`"))
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use axum::http::StatusCode;
    use axum::response::Response;
    use toolcrib::config::{Config, Expose};
    use toolcrib::config_file::LoadedConfig;
    use toolcrib::core::principal::PrincipalIdentity;
    use toolcrib::{Principal, Registry, RegistryOptions};
    use toolcrib_mcp::server::{McpEndpoint, ServerOptions};

    use super::*;
    use crate::auth::{AuthenticatedClient, Role};
    use crate::mcp::McpService;
    use crate::state::{AppState, ServerConfig};

    fn client(token: &str) -> AuthenticatedClient {
        let principal = Principal::new(PrincipalIdentity::Token { id: token.into() }, token, Role::Viewer);
        AuthenticatedClient { principal, is_local: true, csrf: None }
    }

    async fn expect_rate_limited(response: Response) {
        assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
        assert!(response.headers().contains_key(header::RETRY_AFTER));
        let body = axum::body::to_bytes(response.into_body(), 4_096).await.unwrap();
        let error: serde_json::Value = serde_json::from_slice(&body).unwrap();
        assert_eq!((&error["error"]["code"], &error["error"]["retryable"]), (&json!("RATE_LIMITED"), &json!(true)));
    }

    #[tokio::test]
    async fn a_listener_beyond_the_limit_is_rejected_until_another_one_leaves() {
        let data_dir = tempfile::tempdir().unwrap();
        let registry = Registry::open(Config::default(), RegistryOptions::default()).await.unwrap();
        let service = McpService::new(registry.clone(), Expose::default());
        let endpoint = McpEndpoint::new(Arc::new(service), ServerOptions::new("toolcrib", "0"));
        let loaded_config = LoadedConfig::from_config(Config::default());
        let config = ServerConfig {
            loaded_config,
            data_dir: data_dir.path().to_owned(),
            require_token: false,
            refuse_own_process: false,
        };
        let app = AppState::new(config, registry, endpoint, ([127, 0, 0, 1], 0).into()).unwrap();
        let listen = async |identity: &str| {
            let request = AuthorizedRequest { app: app.clone(), client: client(identity), trace: None };
            stream_events(request, HeaderMap::new(), QueryParams::default()).await.into_response()
        };

        let mut permits = Vec::new();
        for identity in ["a", "b", "c", "d"] {
            let identity: Arc<str> = identity.into();
            permits.extend(std::iter::from_fn(|| app.event_feed.acquire_permit(&identity).ok()));
            assert_eq!(permits.len() % 250, 0, "a quarter of all permits for each");
            expect_rate_limited(listen(&identity).await).await;
        }
        assert_eq!((permits.len(), app.event_feed.listener_count()), (1_000, 1_000));
        expect_rate_limited(listen("e").await).await;

        permits.pop();
        let response = listen("e").await;
        assert_eq!((response.status(), app.event_feed.listener_count()), (StatusCode::OK, 1_000));
        drop(response);
        assert_eq!(app.event_feed.listener_count(), 999, "a dropped response frees its permit");
        assert_eq!(listen("d").await.status(), StatusCode::OK);
    }
}
