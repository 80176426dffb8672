//! What happens, live: records of the journal as they are written, and between them how sources fare, discoveries come
//! along, and calls end. Each event is written once for all who listen.

mod feed;
mod listener;
mod sse;

use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use serde_json::json;
use toolcrib::core::text::sanitize_truncated;
use toolcrib::{Code, Error, Result};

use super::error::ApiError;
use super::query::QueryParams;
use super::route::ApiRoute;
use crate::auth::{Permission, Principal};
use crate::state::AppState;
use feed::TooManyListeners;
use listener::EventListener;

pub(crate) use feed::EventFeed;

pub(super) fn routes() -> Vec<ApiRoute> {
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
        ApiRoute::new("GET", "/api/events", "watch_events", get(stream_events))
            .summary("What happens, live, until either side ends it")
            .requires(Permission::Read)
            .query_param("after", seq, "Begin with the record after this number; from now on otherwise")
            .parameter(last)
            .response(200, stream)
            .error_responses(&[400, 429, 503]),
    ]
}

async fn stream_events(
    State(app): State<AppState>,
    Extension(principal): Extension<Principal>,
    headers: HeaderMap,
    params: QueryParams,
) -> Result<Response, ApiError> {
    let after = resume_after(&headers, &params)?;
    let permit = app.event_feed.acquire_permit(&principal.identity).map_err(TooManyListeners::into_error)?;
    let listener = EventListener::new(&app, permit, after).await?;
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream")),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
        // Proxies that gather what they pass on would hold events back.
        (header::HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no")),
    ];
    Ok((headers, Body::from_stream(listener.into_stream())).into_response())
}

/// Where a listener wants to go on. The header is newer than an address that a browser uses again.
fn resume_after(headers: &HeaderMap, params: &QueryParams) -> Result<Option<u64>> {
    let Some(last) = headers.get("last-event-id").filter(|last| !last.is_empty()) else {
        return params.number("after", 0..=u64::MAX);
    };
    let number = last.to_str().ok().and_then(|text| text.trim().parse().ok());
    number.map(Some).ok_or_else(|| {
        let shown = sanitize_truncated(&String::from_utf8_lossy(last.as_bytes()), 40);
        Error::new(Code::BadRequest, format!("`Last-Event-ID` is the number of a record, not `{shown}`"))
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use axum::http::StatusCode;
    use toolcrib::config_file::LoadedConfig;
    use toolcrib::core::config::{Config, Expose};
    use toolcrib::{Registry, RegistryOptions};
    use toolcrib_mcp::server::{McpEndpoint, ServerOptions};

    use super::*;
    use crate::auth::Role;
    use crate::mcp::McpService;
    use crate::state::ServerConfig;

    fn principal(identity: &str) -> Principal {
        let name = identity.to_owned();
        Principal { name, role: Role::Viewer, is_local: true, identity: identity.into(), csrf: None }
    }

    async fn expect_rate_limited(response: Response) {
        assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
        assert!(response.headers().contains_key(header::RETRY_AFTER));
        let body = axum::body::to_bytes(response.into_body(), 4_096).await.unwrap();
        let error: serde_json::Value = serde_json::from_slice(&body).unwrap();
        assert_eq!((&error["error"]["code"], &error["error"]["retryable"]), (&json!("RATE_LIMITED"), &json!(true)));
    }

    #[tokio::test]
    async fn one_listener_too_many_is_told_to_come_again_and_let_in_when_another_left() {
        let data = tempfile::tempdir().unwrap();
        let registry = Registry::open(Config::default(), RegistryOptions::default()).await.unwrap();
        let service = McpService::new(registry.clone(), Expose::default());
        let endpoint = McpEndpoint::new(Arc::new(service), ServerOptions::new("toolcrib", "0"));
        let loaded_config = LoadedConfig::from_config(Config::default());
        let config = ServerConfig {
            loaded_config,
            data_dir: data.path().to_owned(),
            require_token: false,
            refuse_own_process: false,
        };
        let app = AppState::new(config, registry, endpoint, ([127, 0, 0, 1], 0).into()).unwrap();
        let listen = async |identity: &str| {
            let principal = Extension(principal(identity));
            stream_events(State(app.clone()), principal, HeaderMap::new(), QueryParams::default()).await.into_response()
        };

        let mut places = Vec::new();
        for identity in ["a", "b", "c", "d"] {
            let identity: Arc<str> = identity.into();
            places.extend(std::iter::from_fn(|| app.event_feed.acquire_permit(&identity).ok()));
            assert_eq!(places.len() % 250, 0, "a quarter of all places for each");
            expect_rate_limited(listen(&identity).await).await;
        }
        assert_eq!((places.len(), app.event_feed.listener_count()), (1_000, 1_000));
        expect_rate_limited(listen("e").await).await;

        places.pop();
        let heard = listen("e").await;
        assert_eq!((heard.status(), app.event_feed.listener_count()), (StatusCode::OK, 1_000));
        drop(heard);
        assert_eq!(app.event_feed.listener_count(), 999, "who leaves makes room");
        assert_eq!(listen("d").await.status(), StatusCode::OK);
    }
}
