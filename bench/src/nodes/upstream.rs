//! MCP servers of many sources in this process: each path is a server with tools of its own.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::serve::ListenerExt;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};
use toolcrib::core::ToolId;

use crate::Result;
use crate::recorded_tools::{SourceTools, renamed_tools, split_into_sources};

/// Running servers; they end when this is dropped.
pub(super) struct UpstreamServers {
    /// URL of the server of each source, as a configuration of sources.
    pub(super) sources: Map<String, Value>,
    /// All tools, by the names that the servers give them.
    pub(super) tools: Vec<ToolId>,
    _runtime: Runtime,
}

/// State of the servers.
struct UpstreamTools {
    /// JSON array of the tools of each source.
    lists: Vec<String>,
    /// Time that a server takes for its list.
    delay: Duration,
}

impl UpstreamServers {
    /// Starts servers with recorded tools: as many sources, each with as many tools.
    pub(super) fn start(sources: usize, tools_per_source: usize, delay: Duration) -> Result<UpstreamServers> {
        let tools = renamed_tools(sources * tools_per_source)?;
        let lists = split_into_sources(&tools, tools_per_source)?;
        // One worker: they share the machine with what is measured.
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0"))?;
        let address = listener.local_addr()?;
        let sources = lists.iter().enumerate();
        let sources =
            sources.map(|(number, list)| (list.id.to_string(), json!({"url": format!("http://{address}/{number}")})));
        let sources = sources.collect();
        let names = lists.iter().map(tool_ids).collect::<Result<Vec<_>>>()?;
        let lists = lists.into_iter().map(|SourceTools { tools, .. }| serde_json::to_string(&tools));
        let tools = UpstreamTools { lists: lists.collect::<std::result::Result<_, _>>()?, delay };
        let router = Router::new().route("/{source}", post(answer)).with_state(Arc::new(tools));
        let listener = listener.tap_io(|stream| {
            // Without it the connection is only slower, so an error is ignored.
            let _ = stream.set_nodelay(true);
        });
        runtime.spawn(async { axum::serve(listener, router).await });
        Ok(UpstreamServers { sources, tools: names.into_iter().flatten().collect(), _runtime: runtime })
    }
}

/// Returns the tools of a list by their names.
fn tool_ids(list: &SourceTools) -> Result<Vec<ToolId>> {
    #[derive(Deserialize)]
    struct NamedTool {
        name: String,
    }
    let ids = list.tools.iter().map(|tool| {
        let NamedTool { name } = serde_json::from_str(tool.get())?;
        Ok(ToolId { source: list.id.clone(), name })
    });
    ids.collect()
}

/// JSON-RPC message, parsed as far as needed.
#[derive(Deserialize)]
struct UpstreamMessage<'a> {
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    #[serde(default)]
    method: String,
}

/// Answers a message to the server with this number. There are no sessions, and headers are not checked.
async fn answer(State(servers): State<Arc<UpstreamTools>>, Path(source): Path<usize>, body: Bytes) -> Response {
    let (Ok(message), Some(tools)) = (serde_json::from_slice::<UpstreamMessage<'_>>(&body), servers.lists.get(source))
    else {
        return StatusCode::BAD_REQUEST.into_response();
    };
    // A message without an id is a notification.
    let Some(id) = message.id else { return StatusCode::ACCEPTED.into_response() };
    let content = match message.method.as_str() {
        "tools/list" => {
            tokio::time::sleep(servers.delay).await;
            format!(r#""result":{{"resultType":"complete","ttlMs":0,"cacheScope":"private","tools":{tools}}}"#)
        }
        "server/discover" => {
            let result = json!({
                "resultType": "complete", "ttlMs": 0, "cacheScope": "private",
                "supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}},
                "_meta": {"io.modelcontextprotocol/serverInfo": {"name": "bench", "version": "1"}},
            });
            format!(r#""result":{result}"#)
        }
        _ => r#""error":{"code":-32601,"message":"Method not found"}"#.to_owned(),
    };
    let response = format!(r#"{{"jsonrpc":"2.0","id":{id},{content}}}"#);
    ([(header::CONTENT_TYPE, "application/json")], response).into_response()
}
