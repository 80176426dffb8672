//! HTTP server on loopback whose replies the test defines, and which records the requests.
//!
//! It has a thread for each connection and needs no runtime, so that blocking tests and the scripted servers can use it,
//! too. HTTP is written by hand, because a test controls each byte of a response.

use std::fmt::Display;
use std::io::{self, BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, mpsc};
use std::thread;

use parking_lot::Mutex;
use serde_json::{Value, json};

/// Running server; ends with the test process.
#[derive(Debug)]
pub struct LoopbackServer {
    /// `http://127.0.0.1:PORT`.
    pub url: String,
    requests: Arc<Mutex<Vec<ReceivedRequest>>>,
}

impl LoopbackServer {
    /// Starts a server on a free port. It replies with the result of the function.
    ///
    /// # Panics
    ///
    /// If there is no free port.
    #[expect(clippy::unwrap_used, reason = "fails the calling test")]
    pub fn start(reply_to: impl Fn(&ReceivedRequest) -> HttpReply + Send + Sync + 'static) -> LoopbackServer {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let requests = Arc::<Mutex<Vec<ReceivedRequest>>>::default();
        let recorded = requests.clone();
        let reply_to = Arc::new(reply_to);
        thread::spawn(move || {
            for (connection, stream) in listener.incoming().map_while(Result::ok).enumerate() {
                let recorded = recorded.clone();
                let reply_to = reply_to.clone();
                let respond = move |mut request: ReceivedRequest| {
                    request.connection = connection;
                    let mut requests = recorded.lock();
                    request.number = requests.len() + 1;
                    requests.push(request.clone());
                    drop(requests);
                    reply_to(&request)
                };
                thread::spawn(move || {
                    // The client may close the connection after it has read enough.
                    let _ = serve_connection(&stream, respond);
                });
            }
        });
        LoopbackServer { url, requests }
    }

    /// Returns all requests so far.
    pub fn requests(&self) -> Vec<ReceivedRequest> {
        self.requests.lock().clone()
    }

    /// Returns the request lines of all requests so far.
    pub fn request_lines(&self) -> Vec<String> {
        self.requests.lock().iter().map(ReceivedRequest::request_line).collect()
    }
}

/// Serves the requests of a connection until the client closes it or a reply ends it.
///
/// # Errors
///
/// If the connection breaks.
pub fn serve_connection(stream: &TcpStream, respond: impl Fn(ReceivedRequest) -> HttpReply) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut reader = BufReader::new(stream);
    let mut writer = stream;
    while let Some(request) = ReceivedRequest::read(&mut reader)? {
        let reply = respond(request);
        // In one write: the second of two could wait for an acknowledgement of the first.
        writer.write_all(&reply.to_bytes())?;
        match reply.then {
            AfterReply::ReadNext => {}
            AfterReply::Close => break,
            AfterReply::KeepOpen => return io::copy(&mut reader, &mut io::sink()).map(drop),
            AfterReply::Stream(events) => {
                for event in events {
                    writer.write_all(event.as_bytes())?;
                }
                break;
            }
        }
    }
    Ok(())
}

/// Request with its complete body.
#[derive(Debug, Clone, Default)]
pub struct ReceivedRequest {
    pub method: String,
    /// Path and query.
    pub target: String,
    /// Names are in lower case.
    headers: Vec<(String, String)>,
    pub body: Vec<u8>,
    /// Number of the connection, from zero.
    pub connection: usize,
    /// Number among all requests of the server, from one.
    pub number: usize,
}

impl ReceivedRequest {
    /// Reads the next request of a connection; `None` if the client closed it.
    fn read(stream: &mut impl BufRead) -> io::Result<Option<ReceivedRequest>> {
        let mut request = ReceivedRequest::default();
        let mut line = String::new();
        if stream.read_line(&mut line)? == 0 {
            return Ok(None);
        }
        let mut words = line.split_whitespace().map(str::to_owned);
        request.method = words.next().unwrap_or_default();
        request.target = words.next().unwrap_or_default();
        loop {
            line.clear();
            stream.read_line(&mut line)?;
            let Some((name, value)) = line.split_once(':') else { break };
            request.headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
        let length = request.header("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
        request.body.resize(length, 0);
        stream.read_exact(&mut request.body)?;
        Ok(Some(request))
    }

    /// Returns the value of a header by its name in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// Method and target, as in the request line.
    pub fn request_line(&self) -> String {
        format!("{} {}", self.method, self.target)
    }

    /// Returns the body as text; invalid UTF-8 is replaced.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// Returns the body as JSON; `null` if it is not.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    /// Returns the method of a JSON-RPC message, or an empty text.
    pub fn rpc_method(&self) -> String {
        self.json()["method"].as_str().unwrap_or_default().to_owned()
    }

    /// Replies to a JSON-RPC request with a result.
    pub fn rpc_result(&self, result: &Value) -> HttpReply {
        HttpReply::json(200, json!({ "jsonrpc": "2.0", "id": self.json()["id"], "result": result }))
    }

    /// Replies to `server/discover`, the handshake and notifications like a server of MCP 2025-06-18; `None` for other
    /// requests.
    pub fn legacy_handshake(&self, session: &str) -> Option<HttpReply> {
        let result = json!({ "protocolVersion": "2025-06-18", "capabilities": { "tools": {} }, "serverInfo": {} });
        match (self.method.as_str(), self.rpc_method().as_str()) {
            ("GET", _) => Some(HttpReply::empty(405)),
            ("DELETE", _) => Some(HttpReply::empty(200)),
            (_, "server/discover") => Some(HttpReply::text(400, "Bad Request: not initialized")),
            (_, "initialize") => Some(self.rpc_result(&result).with_header("mcp-session-id", session)),
            (_, method) if method.starts_with("notifications/") => Some(HttpReply::empty(202)),
            _ => None,
        }
    }
}

/// Response of the server, and what it does with the connection afterwards.
#[derive(Debug)]
pub struct HttpReply {
    /// Status line and headers; empty if the body is the whole response.
    head: String,
    body: Vec<u8>,
    then: AfterReply,
}

/// Use of a connection after a response.
#[derive(Debug)]
enum AfterReply {
    ReadNext,
    Close,
    /// Until the client closes it.
    KeepOpen,
    /// Until the [`EventSender`] is dropped.
    Stream(mpsc::Receiver<String>),
}

impl HttpReply {
    /// Response with a status code, which may be followed by a reason, and with header lines.
    pub fn new(status: impl Display, headers: &str, body: impl Into<Vec<u8>>) -> HttpReply {
        let headers: String = headers.lines().map(|line| format!("{}\r\n", line.trim())).collect();
        let head = format!("HTTP/1.1 {status} \r\n{headers}");
        HttpReply { head, body: body.into(), then: AfterReply::ReadNext }
    }

    /// Response without a body.
    pub fn empty(status: impl Display) -> HttpReply {
        HttpReply::new(status, "", "")
    }

    /// Plain text.
    pub fn text(status: u16, body: &str) -> HttpReply {
        HttpReply::new(status, "content-type: text/plain", body)
    }

    /// JSON, as a text or as a value.
    pub fn json(status: u16, body: impl Display) -> HttpReply {
        HttpReply::new(status, "content-type: application/json", body.to_string())
    }

    /// Event stream that ends after these events.
    pub fn events(events: impl Into<Vec<u8>>) -> HttpReply {
        HttpReply::new(200, "content-type: text/event-stream", events).then_close()
    }

    /// Complete response, head and body, as the test wrote it.
    pub fn raw(bytes: impl Into<Vec<u8>>) -> HttpReply {
        HttpReply { head: String::new(), body: bytes.into(), then: AfterReply::ReadNext }
    }

    /// Closes the connection without a response.
    pub fn close() -> HttpReply {
        HttpReply::raw("").then_close()
    }

    /// Keeps the connection open without a response.
    pub fn never() -> HttpReply {
        HttpReply::raw("").then_keep_open()
    }

    /// Adds a header.
    #[must_use]
    pub fn with_header(mut self, name: &str, value: &str) -> HttpReply {
        self.head += &format!("{name}: {value}\r\n");
        self
    }

    /// Closes the connection after the body, whose length is not sent.
    #[must_use]
    pub fn then_close(self) -> HttpReply {
        HttpReply { then: AfterReply::Close, ..self }
    }

    /// Sends the body without its length and keeps the connection open.
    #[must_use]
    pub fn then_keep_open(self) -> HttpReply {
        HttpReply { then: AfterReply::KeepOpen, ..self }
    }

    /// Sends events after the body.
    #[must_use]
    pub fn then_stream(self, events: &EventSender) -> HttpReply {
        let (sender, receiver) = mpsc::channel();
        events.0.lock().push(sender);
        HttpReply { then: AfterReply::Stream(receiver), ..self }
    }

    fn to_bytes(&self) -> Vec<u8> {
        let framing = match self.then {
            _ if self.head.is_empty() => String::new(),
            AfterReply::ReadNext => format!("content-length: {}\r\n\r\n", self.body.len()),
            AfterReply::Close | AfterReply::KeepOpen | AfterReply::Stream(_) => "connection: close\r\n\r\n".to_owned(),
        };
        [self.head.as_bytes(), framing.as_bytes(), &self.body].concat()
    }
}

/// Sends events to all streams that [`HttpReply::then_stream`] started.
#[derive(Debug, Clone, Default)]
pub struct EventSender(Arc<Mutex<Vec<mpsc::Sender<String>>>>);

impl EventSender {
    /// Sends an event to the streams that are open. Returns their number.
    pub fn send(&self, event: &str) -> usize {
        let mut streams = self.0.lock();
        streams.retain(|stream| stream.send(event.to_owned()).is_ok());
        streams.len()
    }
}
