//! A service whose tools do what a test needs, and raw ways to reach it.

use std::{
    future::poll_fn,
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use futures_util::{
    FutureExt, StreamExt,
    future::BoxFuture,
    stream::{self, BoxStream},
};
use http::{HeaderMap, Request, StatusCode};
use http_body::Body as _;
use serde_json::{
    Value, json,
    value::{RawValue, to_raw_value},
};
use tokio::sync::{Notify, broadcast};
use toolcrib_mcp::{
    RpcError,
    server::{
        ChangeNotification, EndpointBody, McpEndpoint, McpPeer, McpRequest as Asked, ServerOptions, Service,
        ServiceDescription,
    },
};

pub(crate) const MODERN: &str = "2026-07-28";
pub(crate) const LATEST_LEGACY: &str = "2025-11-25";

/// Its tools: `echo` (what it was given), `progress`, `wait` (until released or taken back), `ask`, `ask_two`,
/// `ask_twice`, `ask_then_wait`, `marked` (an argument that is a header too), `progress_then_hang` (ignores that it is
/// taken back), `panic`.
pub(crate) struct ServiceState {
    pub(crate) changed: broadcast::Sender<ChangeNotification>,
    pub(crate) release: Arc<Notify>,
    events: Mutex<Vec<String>>,
    recorded: Notify,
    pub(crate) disconnects: AtomicUsize,
}

impl ServiceState {
    pub(crate) fn new() -> Arc<ServiceState> {
        Arc::new(ServiceState {
            changed: broadcast::channel(16).0,
            release: Arc::default(),
            events: Mutex::default(),
            recorded: Notify::new(),
            disconnects: AtomicUsize::new(0),
        })
    }

    fn record(&self, what: String) {
        self.events.lock().unwrap().push(what);
        self.recorded.notify_waiters();
    }

    /// How often that happened so far.
    pub(crate) fn count(&self, what: &str) -> usize {
        self.events.lock().unwrap().iter().filter(|heard| *heard == what).count()
    }

    /// Waits until that happened so often.
    pub(crate) async fn wait_for(&self, what: &str, times: usize) {
        let waiting = async {
            loop {
                let news = self.recorded.notified();
                if self.count(what) >= times {
                    return;
                }
                news.await;
            }
        };
        let in_time = tokio::time::timeout(Duration::from_secs(20), waiting).await;
        assert!(in_time.is_ok(), "`{what}` did not happen; this did: {:?}", self.events.lock().unwrap());
    }
}

pub(crate) struct TestService(pub(crate) Arc<ServiceState>);

impl Service for TestService {
    fn describe(&self, _: &Arc<McpPeer>) -> BoxFuture<'static, ServiceDescription> {
        let capabilities = json!({ "tools": { "listChanged": true }, "resources": { "subscribe": true } });
        async move { ServiceDescription { capabilities: to_raw(&capabilities), instructions: Some("be kind".to_owned()) } }.boxed()
    }

    fn handle_request(&self, request: Asked) -> BoxFuture<'static, Result<Box<RawValue>, RpcError>> {
        handle_request(self.0.clone(), request).boxed()
    }

    fn changes(&self, _: &Arc<McpPeer>) -> BoxStream<'static, ChangeNotification> {
        self.0.record("listening".to_owned());
        stream::unfold(self.0.changed.subscribe(), |mut changes| async {
            let change = changes.recv().await.ok()?;
            Some((change, changes))
        })
        .boxed()
    }

    fn input_schema(&self, _: &Arc<McpPeer>, tool: &str) -> Option<Box<RawValue>> {
        (tool == "marked").then(|| to_raw(&header_schema()))
    }

    fn shutdown_response(&self, method: &str) -> Result<Box<RawValue>, RpcError> {
        Ok(text_result(&format!("{method} is unfinished")))
    }

    fn on_disconnect(&self, _: &Arc<McpPeer>) {
        self.0.disconnects.fetch_add(1, Ordering::SeqCst);
        self.0.record("gone".to_owned());
    }
}

fn header_schema() -> Value {
    json!({ "type": "object", "properties": { "region": { "type": "string", "x-mcp-header": "Region" } } })
}

async fn handle_request(bench: Arc<ServiceState>, request: Asked) -> Result<Box<RawValue>, RpcError> {
    let params = request.params.as_deref().map_or(Value::Null, parse);
    if let "resources/subscribe" | "resources/unsubscribe" = request.method.as_str() {
        bench.record(format!("{} {}", request.method, params["uri"].as_str().unwrap_or_default()));
        if params["uri"] == "no:1" {
            return Err(RpcError::new(RpcError::INVALID_PARAMS, "no such resource"));
        }
        return Ok(to_raw(&json!({})));
    }
    if request.method == "tools/list" {
        let plain = json!({ "name": "echo", "inputSchema": { "type": "object" } });
        return Ok(to_raw(&json!({ "tools": [plain, { "name": "marked", "inputSchema": header_schema() }] })));
    }
    if request.method != "tools/call" {
        return Err(RpcError::new(RpcError::METHOD_NOT_FOUND, "no such method"));
    }
    let outlet = &request.client;
    let question = to_raw(&json!({ "message": "who?", "requestedSchema": { "type": "object", "properties": {} } }));
    let ask = || outlet.send_request("elicitation/create", Some(&question));
    let name = params["name"].as_str().unwrap_or_default();
    bench.record(format!("begun {name}"));
    Ok(match name {
        "progress" => {
            for progress in 1..=3 {
                outlet.report_progress(&to_raw(&json!({ "progressToken": "somebody else's", "progress": progress })));
            }
            let late = outlet.clone();
            tokio::spawn(async move {
                tokio::task::yield_now().await;
                late.report_progress(&to_raw(&json!({ "progress": 99 })));
            });
            text_result("done")
        }
        "wait" => {
            tokio::select! {
                () = bench.release.notified() => text_result("released"),
                () = request.cancel.cancelled() => {
                    bench.record("cancelled".to_owned());
                    text_result("too late")
                }
            }
        }
        "progress_then_hang" => {
            outlet.report_progress(&to_raw(&json!({ "progress": 1 })));
            bench.record("hanging".to_owned());
            std::future::pending().await
        }
        "log" => {
            outlet.notify("notifications/message", Some(&to_raw(&json!({ "level": "info", "data": "hello" }))));
            bench.release.notified().await;
            text_result("logged")
        }
        "ask" => text_result(&parse(&ask().await?).to_string()),
        "ask_two" => {
            let (one, two) = tokio::join!(ask(), ask());
            text_result(&json!([parse(&one?), parse(&two?)]).to_string())
        }
        "ask_twice" => {
            let one = parse(&ask().await?);
            text_result(&json!([one, parse(&ask().await?)]).to_string())
        }
        "ask_then_wait" => {
            ask().await?;
            bench.record("answered".to_owned());
            request.cancel.cancelled().await;
            bench.record("cancelled".to_owned());
            text_result("too late")
        }
        "panic" => panic!("as the test wants"),
        "echo" | "marked" => to_raw(&json!({ "content": [], "structuredContent": params, "peer": {
            "name": request.peer.name, "era": request.peer.era, "query": request.peer.query } })),
        other => return Err(RpcError::new(RpcError::INVALID_PARAMS, format!("there is no tool `{other}`"))),
    })
}

pub(crate) fn text_result(text: &str) -> Box<RawValue> {
    to_raw(&json!({ "content": [{ "type": "text", "text": text }] }))
}

pub(crate) fn to_raw(value: &Value) -> Box<RawValue> {
    to_raw_value(value).unwrap()
}

pub(crate) fn parse(raw: &RawValue) -> Value {
    serde_json::from_str(raw.get()).unwrap()
}

pub(crate) fn test_endpoint(options: ServerOptions) -> (Arc<ServiceState>, McpEndpoint) {
    let bench = ServiceState::new();
    (bench.clone(), McpEndpoint::new(Arc::new(TestService(bench)), options))
}

/// A response whose body is read as it comes.
pub(crate) struct TestResponse {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    body: EndpointBody,
    text: String,
}

impl TestResponse {
    pub(crate) async fn next_frame(&mut self) -> Option<Bytes> {
        let body = Pin::new(&mut self.body);
        let mut body = body;
        let frame = poll_fn(|context| body.as_mut().poll_frame(context));
        let frame = tokio::time::timeout(Duration::from_secs(20), frame).await.expect("the stream says nothing");
        frame.map(|frame| frame.unwrap().into_data().unwrap())
    }

    /// The next event's id and message; priming and comments are passed over.
    pub(crate) async fn next_event(&mut self) -> Option<(String, Value)> {
        loop {
            while let Some((event, rest)) = self.text.split_once("\n\n") {
                let field = |name: &str| event.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
                let message =
                    field("data:").filter(|data| !data.is_empty()).map(|data| serde_json::from_str(data).unwrap());
                let id = field("id:").unwrap_or_default().to_owned();
                self.text = rest.to_owned();
                if let Some(message) = message {
                    return Some((id, message));
                }
            }
            let frame = self.next_frame().await?;
            self.text.push_str(std::str::from_utf8(&frame).unwrap());
        }
    }

    pub(crate) async fn next_message(&mut self) -> Value {
        self.next_event().await.expect("the stream is over").1
    }

    pub(crate) async fn read_text(mut self) -> String {
        while let Some(frame) = self.next_frame().await {
            self.text.push_str(std::str::from_utf8(&frame).unwrap());
        }
        self.text
    }

    pub(crate) async fn read_json(self) -> Value {
        let text = self.read_text().await;
        serde_json::from_str(&text).unwrap_or_else(|_| panic!("no JSON: {text:?}"))
    }

    pub(crate) fn is_stream(&self) -> bool {
        self.headers["content-type"] == "text/event-stream"
    }
}

pub(crate) async fn send_http(
    endpoint: &McpEndpoint,
    method: &str,
    headers: &[(&str, &str)],
    body: impl Into<Bytes>,
) -> TestResponse {
    let mut request = Request::builder().method(method).uri("/mcp?mode=full");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let response = endpoint.handle(request.body(body.into()).unwrap()).await;
    let (head, body) = response.into_parts();
    TestResponse { status: head.status, headers: head.headers, body, text: String::new() }
}

const ACCEPT_BOTH: (&str, &str) = ("accept", "application/json, text/event-stream");
const JSON_CONTENT: (&str, &str) = ("content-type", "application/json");

/// A whole request of 2026-07-28 with the headers it needs.
pub(crate) async fn send_modern(endpoint: &McpEndpoint, id: u64, method: &str, params: Value) -> TestResponse {
    send_modern_with(endpoint, id, method, params, json!({ "elicitation": {} })).await
}

pub(crate) async fn send_modern_with(
    endpoint: &McpEndpoint,
    id: u64,
    method: &str,
    mut params: Value,
    capabilities: Value,
) -> TestResponse {
    params["_meta"]["io.modelcontextprotocol/protocolVersion"] = json!(MODERN);
    params["_meta"]["io.modelcontextprotocol/clientCapabilities"] = capabilities;
    params["_meta"]["io.modelcontextprotocol/clientInfo"] = json!({ "name": "raw", "version": "1" });
    let name = params["name"].as_str().unwrap_or_default().to_owned();
    let body = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
    let mut headers = vec![ACCEPT_BOTH, JSON_CONTENT, ("mcp-protocol-version", MODERN), ("mcp-method", method)];
    if !name.is_empty() {
        headers.push(("mcp-name", &name));
    }
    send_http(endpoint, "POST", &headers, body.to_string()).await
}

pub(crate) async fn call_tool(endpoint: &McpEndpoint, id: u64, tool: &str) -> TestResponse {
    send_modern(endpoint, id, "tools/call", json!({ "name": tool, "arguments": {} })).await
}

/// A session of old.
pub(crate) struct TestSession {
    endpoint: McpEndpoint,
    pub(crate) id: String,
}

impl TestSession {
    pub(crate) async fn open(endpoint: &McpEndpoint, version: &str) -> TestSession {
        let answer = send_initialize(endpoint, version).await;
        assert_eq!(answer.status, StatusCode::OK);
        let id = answer.headers["mcp-session-id"].to_str().unwrap().to_owned();
        TestSession { endpoint: endpoint.clone(), id }
    }

    pub(crate) async fn send(&self, method: &str, more: &[(&str, &str)], body: &Value) -> TestResponse {
        let mut headers = vec![ACCEPT_BOTH, JSON_CONTENT, ("mcp-session-id", self.id.as_str())];
        headers.extend(more);
        let body = if body.is_null() { String::new() } else { body.to_string() };
        send_http(&self.endpoint, method, &headers, body).await
    }

    pub(crate) async fn post(&self, body: &Value) -> TestResponse {
        self.send("POST", &[], body).await
    }

    pub(crate) async fn call(&self, id: u64, tool: &str) -> TestResponse {
        self.post(&call_message(id, tool)).await
    }
}

pub(crate) fn call_message(id: u64, tool: &str) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {
        "name": tool, "arguments": {}, "_meta": { "progressToken": format!("token {id}") } } })
}

pub(crate) async fn send_initialize(endpoint: &McpEndpoint, version: &str) -> TestResponse {
    let params = json!({ "protocolVersion": version, "capabilities": { "elicitation": {} },
        "clientInfo": { "name": "raw", "version": "1" } });
    let body = json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params });
    send_http(endpoint, "POST", &[ACCEPT_BOTH, JSON_CONTENT], body.to_string()).await
}
