//! A service with tools for the tests, and helpers to send raw requests to it.

use std::{
    future::poll_fn,
    pin::Pin,
    sync::{
        Arc,
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
use parking_lot::Mutex;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::sync::{Notify, broadcast};
use toolcrib_mcp::{
    RpcError,
    server::{
        ChangeNotification, EndpointBody, McpEndpoint, McpPeer, McpRequest, ServerOptions, Service, ServiceDescription,
    },
};

use crate::{parse, to_raw};

pub(crate) const MODERN: &str = "2026-07-28";
pub(crate) const LATEST_LEGACY: &str = "2025-11-25";

/// State of the [`TestService`], with which a test observes and controls it. Its tools: `echo` (returns its
/// parameters), `progress`, `wait` (until released or cancelled), `log`, `ask`, `ask_two`, `ask_twice`,
/// `ask_then_wait`, `marked` (has an argument with `x-mcp-header`), `progress_then_hang` (ignores cancellation),
/// `panic`.
pub(crate) struct ServiceState {
    pub(crate) changed: broadcast::Sender<ChangeNotification>,
    /// Lets `wait` and `log` finish.
    pub(crate) release: Arc<Notify>,
    /// Events that the service recorded, such as `started wait` or `cancelled`, in order.
    events: Mutex<Vec<String>>,
    /// Fires when an event was recorded.
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

    fn record(&self, event: String) {
        self.events.lock().push(event);
        self.recorded.notify_waiters();
    }

    /// Returns how often an event was recorded.
    pub(crate) fn count(&self, event: &str) -> usize {
        self.events.lock().iter().filter(|recorded| *recorded == event).count()
    }

    /// Waits until an event was recorded so many times.
    pub(crate) async fn wait_for(&self, event: &str, times: usize) {
        let waiting = async {
            loop {
                let recorded = self.recorded.notified();
                if self.count(event) >= times {
                    return;
                }
                recorded.await;
            }
        };
        let result = tokio::time::timeout(Duration::from_secs(20), waiting).await;
        assert!(result.is_ok(), "no event `{event}` among {:?}", self.events.lock());
    }
}

/// The service under test.
pub(crate) struct TestService(pub(crate) Arc<ServiceState>);

impl Service for TestService {
    fn describe(&self, _: &Arc<McpPeer>) -> BoxFuture<'static, ServiceDescription> {
        let capabilities = json!({ "tools": { "listChanged": true }, "resources": { "subscribe": true } });
        // With line breaks, which a service may leave between the tokens of raw JSON.
        let capabilities = RawValue::from_string(format!("{capabilities:#}")).unwrap();
        async move { ServiceDescription { capabilities, instructions: Some("be kind".to_owned()) } }.boxed()
    }

    fn handle_request(&self, request: McpRequest) -> BoxFuture<'static, Result<Box<RawValue>, RpcError>> {
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
        self.0.record("disconnected".to_owned());
    }
}

fn header_schema() -> Value {
    json!({ "type": "object", "properties": { "region": { "type": "string", "x-mcp-header": "Region" } } })
}

async fn handle_request(service: Arc<ServiceState>, request: McpRequest) -> Result<Box<RawValue>, RpcError> {
    let params = request.params.as_deref().map_or(Value::Null, parse);
    if let "resources/subscribe" | "resources/unsubscribe" = request.method.as_str() {
        service.record(format!("{} {}", request.method, params["uri"].as_str().unwrap_or_default()));
        if params["uri"] == "no:1" {
            return Err(RpcError::new(RpcError::INVALID_PARAMS, "no such resource"));
        }
        return Ok(to_raw(&json!({})));
    }
    if request.method == "tools/list" {
        let echo = json!({ "name": "echo", "inputSchema": { "type": "object" } });
        return Ok(to_raw(&json!({ "tools": [echo, { "name": "marked", "inputSchema": header_schema() }] })));
    }
    if request.method != "tools/call" {
        return Err(RpcError::new(RpcError::METHOD_NOT_FOUND, "no such method"));
    }
    let client = &request.client;
    let question = to_raw(&json!({ "message": "who?", "requestedSchema": { "type": "object", "properties": {} } }));
    let ask = || client.send_request("elicitation/create", Some(&question));
    let name = params["name"].as_str().unwrap_or_default();
    service.record(format!("started {name}"));
    Ok(match name {
        "progress" => {
            for progress in 1..=3 {
                client.report_progress(&to_raw(
                    &json!({ "progressToken": "another client's token", "progress": progress }),
                ));
            }
            let handle = client.clone();
            tokio::spawn(async move {
                tokio::task::yield_now().await;
                handle.report_progress(&to_raw(&json!({ "progress": 99 })));
            });
            text_result("done")
        }
        "wait" => {
            tokio::select! {
                () = service.release.notified() => text_result("released"),
                () = request.cancel.cancelled() => {
                    service.record("cancelled".to_owned());
                    text_result("too late")
                }
            }
        }
        "progress_then_hang" => {
            client.report_progress(&to_raw(&json!({ "progress": 1 })));
            service.record("hanging".to_owned());
            std::future::pending().await
        }
        "log" => {
            client.notify("notifications/message", Some(&to_raw(&json!({ "level": "info", "data": "hello" }))));
            service.release.notified().await;
            text_result("logged")
        }
        "ask" => text_result(&parse(&ask().await?).to_string()),
        "ask_two" => {
            let (first, second) = tokio::join!(ask(), ask());
            text_result(&json!([parse(&first?), parse(&second?)]).to_string())
        }
        "ask_twice" => {
            let first = parse(&ask().await?);
            text_result(&json!([first, parse(&ask().await?)]).to_string())
        }
        "ask_then_wait" => {
            ask().await?;
            service.record("answered".to_owned());
            request.cancel.cancelled().await;
            service.record("cancelled".to_owned());
            text_result("too late")
        }
        "panic" => panic!("requested by the test"),
        "echo" | "marked" => to_raw(&json!({ "content": [], "structuredContent": params, "peer": {
            "name": request.peer.name, "era": request.peer.era, "query": request.peer.query } })),
        other => return Err(RpcError::new(RpcError::INVALID_PARAMS, format!("there is no tool `{other}`"))),
    })
}

pub(crate) fn text_result(text: &str) -> Box<RawValue> {
    to_raw(&json!({ "content": [{ "type": "text", "text": text }] }))
}

pub(crate) fn test_endpoint(options: ServerOptions) -> (Arc<ServiceState>, McpEndpoint) {
    let service = ServiceState::new();
    (service.clone(), McpEndpoint::new(Arc::new(TestService(service)), options))
}

/// A response whose body is read incrementally.
pub(crate) struct TestResponse {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    body: EndpointBody,
    text: String,
}

impl TestResponse {
    pub(crate) async fn next_frame(&mut self) -> Option<Bytes> {
        let mut body = Pin::new(&mut self.body);
        let frame = poll_fn(|context| body.as_mut().poll_frame(context));
        let frame = tokio::time::timeout(Duration::from_secs(20), frame).await.expect("no data in time");
        frame.map(|frame| frame.unwrap().into_data().unwrap())
    }

    /// Returns id and message of the next event; priming events and comments are skipped.
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
        self.next_event().await.expect("the stream ended").1
    }

    pub(crate) async fn read_text(mut self) -> String {
        while let Some(frame) = self.next_frame().await {
            self.text.push_str(std::str::from_utf8(&frame).unwrap());
        }
        self.text
    }

    pub(crate) async fn read_json(self) -> Value {
        let text = self.read_text().await;
        serde_json::from_str(&text).unwrap_or_else(|_| panic!("not JSON: {text:?}"))
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

/// Sends a complete request of 2026-07-28 with its required headers.
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

/// A session of a legacy client.
pub(crate) struct TestSession {
    endpoint: McpEndpoint,
    pub(crate) id: String,
}

impl TestSession {
    pub(crate) async fn open(endpoint: &McpEndpoint, version: &str) -> TestSession {
        let response = send_initialize(endpoint, version).await;
        assert_eq!(response.status, StatusCode::OK);
        let id = response.headers["mcp-session-id"].to_str().unwrap().to_owned();
        TestSession { endpoint: endpoint.clone(), id }
    }

    pub(crate) async fn send(&self, method: &str, extra_headers: &[(&str, &str)], body: &Value) -> TestResponse {
        let mut headers = vec![ACCEPT_BOTH, JSON_CONTENT, ("mcp-session-id", self.id.as_str())];
        headers.extend(extra_headers);
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
    send_initialize_accepting(endpoint, version, ACCEPT_BOTH.1).await
}

pub(crate) async fn send_initialize_accepting(endpoint: &McpEndpoint, version: &str, accept: &str) -> TestResponse {
    let params = json!({ "protocolVersion": version, "capabilities": { "elicitation": {} },
        "clientInfo": { "name": "raw", "version": "1" } });
    let body = json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params });
    send_http(endpoint, "POST", &[("accept", accept), JSON_CONTENT], body.to_string()).await
}
