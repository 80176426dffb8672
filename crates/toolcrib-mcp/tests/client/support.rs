//! Scripted servers: one over a byte stream, one over HTTP on a loopback port.

use std::{sync::Arc, time::Duration};

use parking_lot::Mutex;
use serde_json::{
    Value, json,
    value::{RawValue, to_raw_value},
};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, DuplexStream, ReadHalf, WriteHalf},
    net::{TcpListener, TcpStream},
    sync::{broadcast, mpsc},
    task::JoinHandle,
};
use toolcrib_mcp::{ClientOptions, ConnectTarget, McpClient, ProgressHandler, RequestOptions, WireError};
use url::Url;

pub(crate) fn to_raw(value: &Value) -> Box<RawValue> {
    to_raw_value(value).unwrap()
}

pub(crate) fn parse(raw: &RawValue) -> Value {
    serde_json::from_str(raw.get()).unwrap()
}

pub(crate) fn client_options() -> ClientOptions {
    ClientOptions::new("test", "1.0")
}

/// Handler that passes progress on to the returned receiver.
pub(crate) fn progress_channel() -> (ProgressHandler, mpsc::UnboundedReceiver<Box<RawValue>>) {
    let (sender, receiver) = mpsc::unbounded_channel();
    (Arc::new(move |params: &RawValue| sender.send(params.to_owned()).unwrap()), receiver)
}

pub(crate) fn request_options(seconds: u64) -> RequestOptions<'static> {
    RequestOptions::new(Duration::from_secs(seconds))
}

pub(crate) async fn call_tool(client: &McpClient, tool: &str) -> Result<Box<RawValue>, WireError> {
    client.call_tool(tool, &to_raw(&json!({})), None, None, &request_options(30)).await
}

/// The server's end of a byte stream, driven by the test.
pub(crate) struct StdioServer {
    reader: BufReader<ReadHalf<DuplexStream>>,
    writer: WriteHalf<DuplexStream>,
}

impl StdioServer {
    pub(crate) fn new() -> (StdioServer, ConnectTarget) {
        StdioServer::with_buffer(1024 * 1024)
    }

    pub(crate) fn with_buffer(bytes: usize) -> (StdioServer, ConnectTarget) {
        let (ours, theirs) = tokio::io::duplex(bytes);
        let (reader, writer) = tokio::io::split(ours);
        let (their_reader, their_writer) = tokio::io::split(theirs);
        let target = ConnectTarget::Stream { reader: Box::new(their_reader), writer: Box::new(their_writer) };
        (StdioServer { reader: BufReader::new(reader), writer }, target)
    }

    /// Connects a client in the legacy era.
    pub(crate) async fn connect(options: ClientOptions, capabilities: Value) -> (StdioServer, McpClient) {
        let (mut server, target) = StdioServer::new();
        let client = tokio::join!(McpClient::connect(target, options), server.accept_handshake(capabilities)).0;
        (server, client.unwrap())
    }

    pub(crate) async fn accept_handshake(&mut self, capabilities: Value) {
        let initialize = self.receive().await;
        assert_eq!(initialize["method"], "initialize");
        let result = json!({ "protocolVersion": "2025-06-18", "capabilities": capabilities,
            "serverInfo": { "name": "scripted", "version": "1" }, "instructions": "be kind" });
        self.respond(&initialize, &result).await;
        assert_eq!(self.receive().await["method"], "notifications/initialized");
    }

    pub(crate) async fn receive(&mut self) -> Value {
        let mut line = String::new();
        self.reader.read_line(&mut line).await.unwrap();
        serde_json::from_str(&line).unwrap_or_else(|_| panic!("not a message: {line:?}"))
    }

    pub(crate) async fn reads_eof(&mut self) -> bool {
        self.reader.read_u8().await.is_err()
    }

    pub(crate) async fn send_line(&mut self, text: impl AsRef<[u8]>) {
        self.writer.write_all(text.as_ref()).await.unwrap();
        self.writer.write_all(b"\n").await.unwrap();
    }

    pub(crate) async fn send(&mut self, message: &Value) {
        self.send_line(message.to_string()).await;
    }

    pub(crate) async fn respond(&mut self, request: &Value, result: &Value) {
        self.send(&json!({ "jsonrpc": "2.0", "id": request["id"], "result": result })).await;
    }

    pub(crate) async fn respond_with_error(&mut self, request: &Value, code: i64, message: &str) {
        self.send(&json!({ "jsonrpc": "2.0", "id": request["id"], "error": { "code": code, "message": message } }))
            .await;
    }
}

/// A request that the HTTP server received.
#[derive(Debug, Clone)]
pub(crate) struct RecordedRequest {
    pub(crate) http_method: String,
    pub(crate) path: String,
    head: String,
    pub(crate) body: Value,
}

impl RecordedRequest {
    pub(crate) fn header(&self, name: &str) -> Option<String> {
        let line = |line: &str| {
            let (key, value) = line.split_once(':')?;
            key.eq_ignore_ascii_case(name).then(|| value.trim().to_owned())
        };
        self.head.lines().skip(1).find_map(line)
    }

    pub(crate) fn method(&self) -> &str {
        self.body["method"].as_str().unwrap_or_default()
    }

    pub(crate) fn result(&self, result: &Value) -> HttpReply {
        HttpReply::json(200, &json!({ "jsonrpc": "2.0", "id": self.body["id"], "result": result }))
    }

    /// Replies to `server/discover`, the handshake and notifications like a legacy server; `None` for other requests.
    pub(crate) fn legacy_handshake(&self, session: &str) -> Option<HttpReply> {
        let result = json!({ "protocolVersion": "2025-06-18", "capabilities": { "tools": {} }, "serverInfo": {} });
        match (self.http_method.as_str(), self.method()) {
            ("GET", _) => Some(HttpReply::empty(405)),
            ("DELETE", _) => Some(HttpReply::empty(200)),
            (_, "server/discover") => Some(HttpReply::text(400, "Bad Request: not initialized")),
            (_, "initialize") => Some(self.result(&result).with_header("mcp-session-id", session)),
            (_, method) if method.starts_with("notifications/") => Some(HttpReply::empty(202)),
            _ => None,
        }
    }
}

#[derive(Debug, Clone, Default)]
pub(crate) struct HttpReply {
    status: u16,
    headers: Vec<(String, String)>,
    body: String,
    /// Whether the connection stays open after the body.
    keep_open: bool,
    /// Sends events after the body until the sender is dropped.
    live_events: Option<broadcast::Sender<String>>,
}

impl HttpReply {
    pub(crate) fn text(status: u16, body: &str) -> HttpReply {
        HttpReply { status, body: body.to_owned(), ..HttpReply::default() }.with_header("content-type", "text/plain")
    }

    pub(crate) fn empty(status: u16) -> HttpReply {
        HttpReply { status, ..HttpReply::default() }
    }

    pub(crate) fn json(status: u16, body: &Value) -> HttpReply {
        HttpReply { status, body: body.to_string(), ..HttpReply::default() }
            .with_header("content-type", "application/json")
    }

    pub(crate) fn events(body: impl Into<String>) -> HttpReply {
        HttpReply { status: 200, body: body.into(), ..HttpReply::default() }
            .with_header("content-type", "text/event-stream")
    }

    pub(crate) fn then_keep_open(mut self) -> HttpReply {
        self.keep_open = true;
        self
    }

    pub(crate) fn then_stream(mut self, live_events: &broadcast::Sender<String>) -> HttpReply {
        self.live_events = Some(live_events.clone());
        self
    }

    pub(crate) fn with_header(mut self, name: &str, value: &str) -> HttpReply {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }
}

pub(crate) fn sse_event(message: &Value) -> String {
    format!("data: {message}\n\n")
}

/// A server on a loopback port that replies by a function and records its requests.
pub(crate) struct ScriptedHttpServer {
    pub(crate) url: Url,
    requests: Arc<Mutex<Vec<RecordedRequest>>>,
    task: JoinHandle<()>,
}

impl ScriptedHttpServer {
    pub(crate) async fn start(
        reply: impl Fn(&RecordedRequest) -> HttpReply + Send + Sync + 'static,
    ) -> ScriptedHttpServer {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/mcp", listener.local_addr().unwrap()).parse().unwrap();
        let requests = Arc::new(Mutex::new(Vec::new()));
        let reply = Arc::new(reply);
        let recorded = requests.clone();
        let task = tokio::spawn(async move {
            loop {
                let (socket, _) = listener.accept().await.unwrap();
                let reply = reply.clone();
                let recorded = recorded.clone();
                tokio::spawn(async move { serve_connection(socket, &*reply, &recorded).await });
            }
        });
        ScriptedHttpServer { url, requests, task }
    }

    pub(crate) fn target(&self) -> ConnectTarget {
        ConnectTarget::Http { url: self.url.clone(), headers: Default::default() }
    }

    pub(crate) async fn connect(&self) -> Result<McpClient, WireError> {
        McpClient::connect(self.target(), client_options()).await
    }

    pub(crate) fn requests(&self) -> Vec<RecordedRequest> {
        self.requests.lock().clone()
    }

    /// Returns the JSON-RPC methods of POST requests and the HTTP methods of the others.
    pub(crate) fn methods(&self) -> Vec<String> {
        let name = |request: RecordedRequest| match request.http_method.as_str() {
            "POST" => request.method().to_owned(),
            http_method => http_method.to_owned(),
        };
        self.requests().into_iter().map(name).collect()
    }

    /// Waits until a matching request was received, without sleeping.
    pub(crate) async fn wait_for(&self, matches: impl Fn(&RecordedRequest) -> bool) -> RecordedRequest {
        loop {
            if let Some(request) = self.requests().into_iter().find(&matches) {
                return request;
            }
            tokio::task::yield_now().await;
        }
    }
}

impl Drop for ScriptedHttpServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Serves the requests of one TCP connection until the client closes it or a stream ends.
async fn serve_connection(
    socket: TcpStream,
    reply: &(impl Fn(&RecordedRequest) -> HttpReply + Send + Sync),
    recorded: &Mutex<Vec<RecordedRequest>>,
) -> Option<()> {
    socket.set_nodelay(true).unwrap();
    let mut socket = BufReader::new(socket);
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if socket.read_line(&mut head).await.ok()? == 0 {
                return None;
            }
        }
        let mut words = head.split_whitespace();
        let http_method = words.next()?.to_owned();
        let path = words.next()?.to_owned();
        let mut request = RecordedRequest { http_method, path, head, body: Value::Null };
        let length = request.header("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
        let mut body = vec![0; length];
        socket.read_exact(&mut body).await.ok()?;
        request.body = serde_json::from_slice(&body).unwrap_or_default();
        recorded.lock().push(request.clone());
        let HttpReply { status, headers, body, keep_open, live_events } = reply(&request);
        let live_events = live_events.map(|sender| sender.subscribe());
        let is_stream = headers.iter().any(|(_, value)| value == "text/event-stream");
        let mut head = format!("HTTP/1.1 {status} Status\r\n");
        for (name, value) in headers {
            head += &format!("{name}: {value}\r\n");
        }
        head += &if is_stream {
            "connection: close\r\n\r\n".into()
        } else {
            format!("content-length: {}\r\n\r\n", body.len())
        };
        socket.write_all(head.as_bytes()).await.ok()?;
        socket.write_all(body.as_bytes()).await.ok()?;
        if let Some(mut live_events) = live_events {
            while let Ok(event) = live_events.recv().await {
                socket.write_all(event.as_bytes()).await.ok()?;
            }
        }
        if keep_open {
            // Returns when the client closes the connection.
            let _ = socket.read_u8().await;
        }
        if is_stream || keep_open {
            return None;
        }
    }
}
