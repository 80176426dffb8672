//! Scripted servers: one over a byte stream, one over HTTP on a loopback port.

use std::{sync::Arc, time::Duration};

use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, DuplexStream, ReadHalf, WriteHalf};
use tokio::sync::mpsc;
use toolcrib_mcp::{ClientOptions, ConnectTarget, McpClient, ProgressHandler, RequestOptions, WireError};
use toolcrib_testkit::http_server::{HttpReply, LoopbackServer, ReceivedRequest};
use url::Url;

use crate::to_raw;

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

pub(crate) fn sse_event(message: &Value) -> String {
    format!("data: {message}\n\n")
}

/// An HTTP server with the path of an MCP endpoint.
pub(crate) struct ScriptedHttpServer {
    pub(crate) url: Url,
    server: LoopbackServer,
}

impl ScriptedHttpServer {
    pub(crate) fn start(reply: impl Fn(&ReceivedRequest) -> HttpReply + Send + Sync + 'static) -> ScriptedHttpServer {
        let server = LoopbackServer::start(reply);
        ScriptedHttpServer { url: format!("{}/mcp", server.url).parse().unwrap(), server }
    }

    pub(crate) fn target(&self) -> ConnectTarget {
        ConnectTarget::Http { url: self.url.clone(), headers: Default::default() }
    }

    pub(crate) async fn connect(&self) -> Result<McpClient, WireError> {
        McpClient::connect(self.target(), client_options()).await
    }

    pub(crate) fn requests(&self) -> Vec<ReceivedRequest> {
        self.server.requests()
    }

    /// Returns the JSON-RPC methods of POST requests and the HTTP methods of the others.
    pub(crate) fn methods(&self) -> Vec<String> {
        let name = |request: ReceivedRequest| match request.method.as_str() {
            "POST" => request.rpc_method(),
            _ => request.method,
        };
        self.requests().into_iter().map(name).collect()
    }

    /// Waits until a matching request was received, without sleeping.
    pub(crate) async fn wait_for(&self, matches: impl Fn(&ReceivedRequest) -> bool) -> ReceivedRequest {
        loop {
            if let Some(request) = self.requests().into_iter().find(&matches) {
                return request;
            }
            tokio::task::yield_now().await;
        }
    }
}
