//! Scripted servers: one at the end of a byte stream, one behind a loopback port.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use serde_json::{
    Value, json,
    value::{RawValue, to_raw_value},
};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, DuplexStream, ReadHalf, WriteHalf},
    net::{TcpListener, TcpStream},
    sync::broadcast,
    task::JoinHandle,
};
use toolcrib_mcp::{Client, Options, RequestOptions, Target, WireError};
use url::Url;

pub(crate) fn raw(value: &Value) -> Box<RawValue> {
    to_raw_value(value).unwrap()
}

pub(crate) fn parsed(raw: &RawValue) -> Value {
    serde_json::from_str(raw.get()).unwrap()
}

pub(crate) fn options() -> Options {
    Options::new("test", "1.0")
}

pub(crate) fn within(seconds: u64) -> RequestOptions {
    RequestOptions::new(Duration::from_secs(seconds))
}

pub(crate) async fn call(client: &Client, tool: &str) -> Result<Box<RawValue>, WireError> {
    client.call_tool(tool, &raw(&json!({})), None, None, &within(30)).await
}

/// The server's end of a byte stream.
pub(crate) struct Peer {
    reader: BufReader<ReadHalf<DuplexStream>>,
    writer: WriteHalf<DuplexStream>,
}

impl Peer {
    pub(crate) fn new() -> (Peer, Target) {
        Peer::with_room(1024 * 1024)
    }

    pub(crate) fn with_room(bytes: usize) -> (Peer, Target) {
        let (ours, theirs) = tokio::io::duplex(bytes);
        let (reader, writer) = tokio::io::split(ours);
        let (their_reader, their_writer) = tokio::io::split(theirs);
        let target = Target::Stream { reader: Box::new(their_reader), writer: Box::new(their_writer) };
        (Peer { reader: BufReader::new(reader), writer }, target)
    }

    /// A connected pair in the legacy era.
    pub(crate) async fn connected(options: Options, capabilities: Value) -> (Peer, Client) {
        let (mut peer, target) = Peer::new();
        let client = tokio::join!(Client::connect(target, options), peer.welcome(capabilities)).0;
        (peer, client.unwrap())
    }

    pub(crate) async fn welcome(&mut self, capabilities: Value) {
        let hello = self.hear().await;
        assert_eq!(hello["method"], "initialize");
        let result = json!({ "protocolVersion": "2025-06-18", "capabilities": capabilities,
            "serverInfo": { "name": "scripted", "version": "1" }, "instructions": "be kind" });
        self.answer(&hello, &result).await;
        assert_eq!(self.hear().await["method"], "notifications/initialized");
    }

    pub(crate) async fn hear(&mut self) -> Value {
        let mut line = String::new();
        self.reader.read_line(&mut line).await.unwrap();
        serde_json::from_str(&line).unwrap_or_else(|_| panic!("no message: {line:?}"))
    }

    pub(crate) async fn hears_the_end(&mut self) -> bool {
        self.reader.read_u8().await.is_err()
    }

    pub(crate) async fn say(&mut self, text: impl AsRef<[u8]>) {
        self.writer.write_all(text.as_ref()).await.unwrap();
        self.writer.write_all(b"\n").await.unwrap();
    }

    pub(crate) async fn tell(&mut self, message: &Value) {
        self.say(message.to_string()).await;
    }

    pub(crate) async fn answer(&mut self, request: &Value, result: &Value) {
        self.tell(&json!({ "jsonrpc": "2.0", "id": request["id"], "result": result })).await;
    }

    pub(crate) async fn refuse(&mut self, request: &Value, code: i64, message: &str) {
        self.tell(&json!({ "jsonrpc": "2.0", "id": request["id"], "error": { "code": code, "message": message } }))
            .await;
    }
}

/// A request as a loopback server saw it.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) verb: String,
    pub(crate) path: String,
    head: String,
    pub(crate) body: Value,
}

impl Request {
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

    pub(crate) fn result(&self, result: &Value) -> Reply {
        Reply::json(200, &json!({ "jsonrpc": "2.0", "id": self.body["id"], "result": result }))
    }

    /// What a legacy server answers to `server/discover` and the handshake; `None` for the rest.
    pub(crate) fn legacy_handshake(&self, session: &str) -> Option<Reply> {
        let result = json!({ "protocolVersion": "2025-06-18", "capabilities": { "tools": {} }, "serverInfo": {} });
        match (self.verb.as_str(), self.method()) {
            ("GET", _) => Some(Reply::empty(405)),
            ("DELETE", _) => Some(Reply::empty(200)),
            (_, "server/discover") => Some(Reply::text(400, "Bad Request: not initialized")),
            (_, "initialize") => Some(self.result(&result).with("mcp-session-id", session)),
            (_, method) if method.starts_with("notifications/") => Some(Reply::empty(202)),
            _ => None,
        }
    }
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Reply {
    status: u16,
    headers: Vec<(String, String)>,
    body: String,
    /// Held open after the body, or for ever fed from here.
    hold: bool,
    feed: Option<broadcast::Sender<String>>,
}

impl Reply {
    pub(crate) fn text(status: u16, body: &str) -> Reply {
        Reply { status, body: body.to_owned(), ..Reply::default() }.with("content-type", "text/plain")
    }

    pub(crate) fn empty(status: u16) -> Reply {
        Reply { status, ..Reply::default() }
    }

    pub(crate) fn json(status: u16, body: &Value) -> Reply {
        Reply { status, body: body.to_string(), ..Reply::default() }.with("content-type", "application/json")
    }

    pub(crate) fn events(body: impl Into<String>) -> Reply {
        Reply { status: 200, body: body.into(), ..Reply::default() }.with("content-type", "text/event-stream")
    }

    pub(crate) fn held_open(mut self) -> Reply {
        self.hold = true;
        self
    }

    pub(crate) fn fed_by(mut self, feed: &broadcast::Sender<String>) -> Reply {
        self.feed = Some(feed.clone());
        self
    }

    pub(crate) fn with(mut self, name: &str, value: &str) -> Reply {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }
}

pub(crate) fn event(message: &Value) -> String {
    format!("data: {message}\n\n")
}

/// A server on a loopback port that answers by a function and remembers what it was asked.
pub(crate) struct Server {
    pub(crate) url: Url,
    seen: Arc<Mutex<Vec<Request>>>,
    task: JoinHandle<()>,
}

impl Server {
    pub(crate) async fn start(reply: impl Fn(&Request) -> Reply + Send + Sync + 'static) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/mcp", listener.local_addr().unwrap()).parse().unwrap();
        let (seen, reply) = (Arc::new(Mutex::new(Vec::new())), Arc::new(reply));
        let noted = seen.clone();
        let task = tokio::spawn(async move {
            loop {
                let (socket, _) = listener.accept().await.unwrap();
                let (reply, noted) = (reply.clone(), noted.clone());
                tokio::spawn(async move { serve(socket, &*reply, &noted).await });
            }
        });
        Server { url, seen, task }
    }

    pub(crate) fn target(&self) -> Target {
        Target::Http { url: self.url.clone(), headers: Default::default() }
    }

    pub(crate) async fn connect(&self) -> Result<Client, WireError> {
        Client::connect(self.target(), options()).await
    }

    pub(crate) fn seen(&self) -> Vec<Request> {
        self.seen.lock().unwrap().clone()
    }

    pub(crate) fn methods(&self) -> Vec<String> {
        let name = |request: Request| match request.verb.as_str() {
            "POST" => request.method().to_owned(),
            verb => verb.to_owned(),
        };
        self.seen().into_iter().map(name).collect()
    }

    /// Waits until a request of this kind has come, without sleeping.
    pub(crate) async fn until(&self, wanted: impl Fn(&Request) -> bool) -> Request {
        loop {
            if let Some(found) = self.seen().into_iter().find(&wanted) {
                return found;
            }
            tokio::task::yield_now().await;
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(
    socket: TcpStream,
    reply: &(impl Fn(&Request) -> Reply + Send + Sync),
    seen: &Mutex<Vec<Request>>,
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
        let mut first = head.split_whitespace();
        let (verb, path) = (first.next()?.to_owned(), first.next()?.to_owned());
        let mut request = Request { verb, path, head, body: Value::Null };
        let length = request.header("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
        let mut body = vec![0; length];
        socket.read_exact(&mut body).await.ok()?;
        request.body = serde_json::from_slice(&body).unwrap_or_default();
        seen.lock().unwrap().push(request.clone());
        let Reply { status, headers, body, hold, feed } = reply(&request);
        let feed = feed.map(|feed| feed.subscribe());
        let is_stream = headers.iter().any(|(_, value)| value == "text/event-stream");
        let mut head = format!("HTTP/1.1 {status} Said\r\n");
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
        if let Some(mut feed) = feed {
            while let Ok(more) = feed.recv().await {
                socket.write_all(more.as_bytes()).await.ok()?;
            }
        }
        if hold {
            let _until_they_leave = socket.read_u8().await;
        }
        if is_stream || hold {
            return None;
        }
    }
}
