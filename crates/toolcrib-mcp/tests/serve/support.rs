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
    server::{Body, Change, Endpoint, Greeting, Peer, Request as Asked, ServerOptions, Service},
};

pub(crate) const MODERN: &str = "2026-07-28";
pub(crate) const LATEST: &str = "2025-11-25";

/// Its tools: `echo` (what it was given), `progress`, `wait` (until released or taken back), `ask`, `ask_two`,
/// `ask_twice`, `ask_then_wait`, `marked` (an argument that is a header too), `progress_then_hang` (ignores that it is
/// taken back), `panic`.
pub(crate) struct Bench {
    pub(crate) changed: broadcast::Sender<Change>,
    pub(crate) release: Arc<Notify>,
    heard: Mutex<Vec<String>>,
    news: Notify,
    pub(crate) gone: AtomicUsize,
}

impl Bench {
    pub(crate) fn new() -> Arc<Bench> {
        Arc::new(Bench {
            changed: broadcast::channel(16).0,
            release: Arc::default(),
            heard: Mutex::default(),
            news: Notify::new(),
            gone: AtomicUsize::new(0),
        })
    }

    fn note(&self, what: String) {
        self.heard.lock().unwrap().push(what);
        self.news.notify_waiters();
    }

    /// How often that happened so far.
    pub(crate) fn times(&self, what: &str) -> usize {
        self.heard.lock().unwrap().iter().filter(|heard| *heard == what).count()
    }

    /// Waits until that happened so often.
    pub(crate) async fn heard(&self, what: &str, times: usize) {
        let waiting = async {
            loop {
                let news = self.news.notified();
                if self.times(what) >= times {
                    return;
                }
                news.await;
            }
        };
        let in_time = tokio::time::timeout(Duration::from_secs(20), waiting).await;
        assert!(in_time.is_ok(), "`{what}` did not happen; this did: {:?}", self.heard.lock().unwrap());
    }
}

pub(crate) struct Bound(pub(crate) Arc<Bench>);

impl Service for Bound {
    fn greeting(&self, _: &Arc<Peer>) -> BoxFuture<'static, Greeting> {
        let capabilities = json!({ "tools": { "listChanged": true }, "resources": { "subscribe": true } });
        async move { Greeting { capabilities: raw(&capabilities), instructions: Some("be kind".to_owned()) } }.boxed()
    }

    fn request(&self, request: Asked) -> BoxFuture<'static, Result<Box<RawValue>, RpcError>> {
        answer(self.0.clone(), request).boxed()
    }

    fn changes(&self, _: &Arc<Peer>) -> BoxStream<'static, Change> {
        self.0.note("listening".to_owned());
        stream::unfold(self.0.changed.subscribe(), |mut changes| async {
            let change = changes.recv().await.ok()?;
            Some((change, changes))
        })
        .boxed()
    }

    fn input_schema(&self, _: &Arc<Peer>, tool: &str) -> Option<Box<RawValue>> {
        (tool == "marked").then(|| raw(&marked()))
    }

    fn unfinished(&self, method: &str) -> Result<Box<RawValue>, RpcError> {
        Ok(said(&format!("{method} is unfinished")))
    }

    fn gone(&self, _: &Arc<Peer>) {
        self.0.gone.fetch_add(1, Ordering::SeqCst);
        self.0.note("gone".to_owned());
    }
}

fn marked() -> Value {
    json!({ "type": "object", "properties": { "region": { "type": "string", "x-mcp-header": "Region" } } })
}

async fn answer(bench: Arc<Bench>, request: Asked) -> Result<Box<RawValue>, RpcError> {
    let params = request.params.as_deref().map_or(Value::Null, parsed);
    if let "resources/subscribe" | "resources/unsubscribe" = request.method.as_str() {
        bench.note(format!("{} {}", request.method, params["uri"].as_str().unwrap_or_default()));
        if params["uri"] == "no:1" {
            return Err(RpcError::new(RpcError::INVALID_PARAMS, "no such resource"));
        }
        return Ok(raw(&json!({})));
    }
    if request.method == "tools/list" {
        let plain = json!({ "name": "echo", "inputSchema": { "type": "object" } });
        return Ok(raw(&json!({ "tools": [plain, { "name": "marked", "inputSchema": marked() }] })));
    }
    if request.method != "tools/call" {
        return Err(RpcError::new(RpcError::METHOD_NOT_FOUND, "no such method"));
    }
    let outlet = &request.outlet;
    let question = raw(&json!({ "message": "who?", "requestedSchema": { "type": "object", "properties": {} } }));
    let ask = || outlet.ask("elicitation/create", Some(&question));
    let name = params["name"].as_str().unwrap_or_default();
    bench.note(format!("begun {name}"));
    Ok(match name {
        "progress" => {
            for progress in 1..=3 {
                outlet.progress(&raw(&json!({ "progressToken": "somebody else's", "progress": progress })));
            }
            let late = outlet.clone();
            tokio::spawn(async move {
                tokio::task::yield_now().await;
                late.progress(&raw(&json!({ "progress": 99 })));
            });
            said("done")
        }
        "wait" => {
            tokio::select! {
                () = bench.release.notified() => said("released"),
                () = request.cancel.cancelled() => {
                    bench.note("cancelled".to_owned());
                    said("too late")
                }
            }
        }
        "progress_then_hang" => {
            outlet.progress(&raw(&json!({ "progress": 1 })));
            bench.note("hanging".to_owned());
            std::future::pending().await
        }
        "log" => {
            outlet.notify("notifications/message", Some(&raw(&json!({ "level": "info", "data": "hello" }))));
            bench.release.notified().await;
            said("logged")
        }
        "ask" => said(&parsed(&ask().await?).to_string()),
        "ask_two" => {
            let (one, two) = tokio::join!(ask(), ask());
            said(&json!([parsed(&one?), parsed(&two?)]).to_string())
        }
        "ask_twice" => {
            let one = parsed(&ask().await?);
            said(&json!([one, parsed(&ask().await?)]).to_string())
        }
        "ask_then_wait" => {
            ask().await?;
            bench.note("answered".to_owned());
            request.cancel.cancelled().await;
            bench.note("cancelled".to_owned());
            said("too late")
        }
        "panic" => panic!("as the test wants"),
        "echo" | "marked" => raw(&json!({ "content": [], "structuredContent": params, "peer": {
            "name": request.peer.name, "era": request.peer.era, "query": request.peer.query } })),
        other => return Err(RpcError::new(RpcError::INVALID_PARAMS, format!("there is no tool `{other}`"))),
    })
}

pub(crate) fn said(text: &str) -> Box<RawValue> {
    raw(&json!({ "content": [{ "type": "text", "text": text }] }))
}

pub(crate) fn raw(value: &Value) -> Box<RawValue> {
    to_raw_value(value).unwrap()
}

pub(crate) fn parsed(raw: &RawValue) -> Value {
    serde_json::from_str(raw.get()).unwrap()
}

pub(crate) fn endpoint(options: ServerOptions) -> (Arc<Bench>, Endpoint) {
    let bench = Bench::new();
    (bench.clone(), Endpoint::new(Arc::new(Bound(bench)), options))
}

/// A response whose body is read as it comes.
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    body: Body,
    text: String,
}

impl Answer {
    pub(crate) async fn frame(&mut self) -> Option<Bytes> {
        let body = Pin::new(&mut self.body);
        let mut body = body;
        let frame = poll_fn(|context| body.as_mut().poll_frame(context));
        let frame = tokio::time::timeout(Duration::from_secs(20), frame).await.expect("the stream says nothing");
        frame.map(|frame| frame.unwrap().into_data().unwrap())
    }

    /// The next event's id and message; priming and comments are passed over.
    pub(crate) async fn event(&mut self) -> Option<(String, Value)> {
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
            let frame = self.frame().await?;
            self.text.push_str(std::str::from_utf8(&frame).unwrap());
        }
    }

    pub(crate) async fn message(&mut self) -> Value {
        self.event().await.expect("the stream is over").1
    }

    pub(crate) async fn whole(mut self) -> String {
        while let Some(frame) = self.frame().await {
            self.text.push_str(std::str::from_utf8(&frame).unwrap());
        }
        self.text
    }

    pub(crate) async fn json(self) -> Value {
        let text = self.whole().await;
        serde_json::from_str(&text).unwrap_or_else(|_| panic!("no JSON: {text:?}"))
    }

    pub(crate) fn is_stream(&self) -> bool {
        self.headers["content-type"] == "text/event-stream"
    }
}

pub(crate) async fn send(
    endpoint: &Endpoint,
    method: &str,
    headers: &[(&str, &str)],
    body: impl Into<Bytes>,
) -> Answer {
    let mut request = Request::builder().method(method).uri("/mcp?mode=full");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let response = endpoint.handle(request.body(body.into()).unwrap()).await;
    let (head, body) = response.into_parts();
    Answer { status: head.status, headers: head.headers, body, text: String::new() }
}

const BOTH: (&str, &str) = ("accept", "application/json, text/event-stream");
const JSON: (&str, &str) = ("content-type", "application/json");

/// A whole request of 2026-07-28 with the headers it needs.
pub(crate) async fn modern(endpoint: &Endpoint, id: u64, method: &str, params: Value) -> Answer {
    modern_with(endpoint, id, method, params, json!({ "elicitation": {} })).await
}

pub(crate) async fn modern_with(
    endpoint: &Endpoint,
    id: u64,
    method: &str,
    mut params: Value,
    capabilities: Value,
) -> Answer {
    params["_meta"]["io.modelcontextprotocol/protocolVersion"] = json!(MODERN);
    params["_meta"]["io.modelcontextprotocol/clientCapabilities"] = capabilities;
    params["_meta"]["io.modelcontextprotocol/clientInfo"] = json!({ "name": "raw", "version": "1" });
    let name = params["name"].as_str().unwrap_or_default().to_owned();
    let body = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
    let mut headers = vec![BOTH, JSON, ("mcp-protocol-version", MODERN), ("mcp-method", method)];
    if !name.is_empty() {
        headers.push(("mcp-name", &name));
    }
    send(endpoint, "POST", &headers, body.to_string()).await
}

pub(crate) async fn call(endpoint: &Endpoint, id: u64, tool: &str) -> Answer {
    modern(endpoint, id, "tools/call", json!({ "name": tool, "arguments": {} })).await
}

/// A session of old.
pub(crate) struct Session {
    endpoint: Endpoint,
    pub(crate) id: String,
}

impl Session {
    pub(crate) async fn open(endpoint: &Endpoint, version: &str) -> Session {
        let answer = initialize(endpoint, version).await;
        assert_eq!(answer.status, StatusCode::OK);
        let id = answer.headers["mcp-session-id"].to_str().unwrap().to_owned();
        Session { endpoint: endpoint.clone(), id }
    }

    pub(crate) async fn send(&self, method: &str, more: &[(&str, &str)], body: &Value) -> Answer {
        let mut headers = vec![BOTH, JSON, ("mcp-session-id", self.id.as_str())];
        headers.extend(more);
        let body = if body.is_null() { String::new() } else { body.to_string() };
        send(&self.endpoint, method, &headers, body).await
    }

    pub(crate) async fn post(&self, body: &Value) -> Answer {
        self.send("POST", &[], body).await
    }

    pub(crate) async fn call(&self, id: u64, tool: &str) -> Answer {
        self.post(&calling(id, tool)).await
    }
}

pub(crate) fn calling(id: u64, tool: &str) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {
        "name": tool, "arguments": {}, "_meta": { "progressToken": format!("token {id}") } } })
}

pub(crate) async fn initialize(endpoint: &Endpoint, version: &str) -> Answer {
    let params = json!({ "protocolVersion": version, "capabilities": { "elicitation": {} },
        "clientInfo": { "name": "raw", "version": "1" } });
    let body = json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params });
    send(endpoint, "POST", &[BOTH, JSON], body.to_string()).await
}
