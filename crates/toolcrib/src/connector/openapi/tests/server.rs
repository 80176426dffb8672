//! HTTP server on loopback with replies defined by the test, which records the requests.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// One received request.
#[derive(Debug, Clone, Default)]
pub(super) struct ReceivedRequest {
    pub(super) method: String,
    pub(super) target: String,
    pub(super) headers: Vec<(String, String)>,
    pub(super) body: String,
    /// Number of the connection it came over.
    pub(super) connection: usize,
}

impl ReceivedRequest {
    /// Value of a header; empty if absent.
    pub(super) fn header(&self, name: &str) -> &str {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str()).unwrap_or_default()
    }

    /// Method and target, as in the request line.
    pub(super) fn request_line(&self) -> String {
        format!("{} {}", self.method, self.target)
    }
}

/// Reply to a request; the number counts the requests of the server from one.
type ServerReplyFn = dyn Fn(&ReceivedRequest, usize) -> ServerReply + Send + Sync;

/// Reaction of the server to a request.
pub(super) enum ServerReply {
    /// Sends a complete response, head and body.
    Bytes(Vec<u8>),
    /// Closes the connection without a response.
    CloseConnection,
    /// Keeps the connection open without a response.
    NeverReply,
}

/// Running server; ends when dropped.
#[derive(Debug)]
pub(super) struct LoopbackServer {
    pub(super) url: String,
    requests: Arc<Mutex<Vec<ReceivedRequest>>>,
    /// Aborted on drop.
    _tasks: JoinSet<()>,
}

impl LoopbackServer {
    /// Starts a server on a free port.
    pub(super) async fn start(
        reply_to: impl Fn(&ReceivedRequest, usize) -> ServerReply + Send + Sync + 'static,
    ) -> LoopbackServer {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let requests: Arc<Mutex<Vec<ReceivedRequest>>> = Arc::default();
        let reply_to: Arc<ServerReplyFn> = Arc::new(reply_to);
        let mut tasks = JoinSet::new();
        let recorded = requests.clone();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            for number in 0.. {
                let (stream, _) = listener.accept().await.unwrap();
                connections.spawn(serve(stream, number, recorded.clone(), reply_to.clone()));
            }
        });
        LoopbackServer { url, requests, _tasks: tasks }
    }

    /// All requests so far.
    pub(super) fn requests(&self) -> Vec<ReceivedRequest> {
        self.requests.lock().clone()
    }

    /// Request lines of all requests so far.
    pub(super) fn request_lines(&self) -> Vec<String> {
        self.requests().iter().map(ReceivedRequest::request_line).collect()
    }
}

/// Serves one connection until it is closed.
async fn serve(
    stream: TcpStream,
    connection: usize,
    requests: Arc<Mutex<Vec<ReceivedRequest>>>,
    reply_to: Arc<ServerReplyFn>,
) {
    let mut stream = BufReader::new(stream);
    while let Some(mut request) = read_request(&mut stream).await {
        request.connection = connection;
        let number = {
            let mut requests = requests.lock();
            requests.push(request.clone());
            requests.len()
        };
        match reply_to(&request, number) {
            ServerReply::Bytes(bytes) => {
                // The client may close the connection after it has read enough.
                let _ = stream.write_all(&bytes).await;
            }
            ServerReply::CloseConnection => return,
            ServerReply::NeverReply => std::future::pending().await,
        }
    }
}

/// Reads one request; `None` at the end of the connection.
async fn read_request(stream: &mut BufReader<TcpStream>) -> Option<ReceivedRequest> {
    let mut request = ReceivedRequest::default();
    let mut line = String::new();
    stream.read_line(&mut line).await.ok()?;
    let mut words = line.split_whitespace();
    request.method = words.next()?.to_owned();
    request.target = words.next()?.to_owned();
    loop {
        line.clear();
        stream.read_line(&mut line).await.ok()?;
        let Some((name, value)) = line.trim_end().split_once(": ") else { break };
        request.headers.push((name.to_ascii_lowercase(), value.to_owned()));
    }
    let length = request.header("content-length").parse().unwrap_or(0);
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.ok()?;
    request.body = String::from_utf8_lossy(&body).into_owned();
    Some(request)
}

/// Response with these headers, one per line.
pub(super) fn reply(status: u16, headers: &str, body: &str) -> ServerReply {
    let headers: String = headers.lines().map(|line| format!("{}\r\n", line.trim())).collect();
    ServerReply::Bytes(
        format!("HTTP/1.1 {status} X\r\n{headers}content-length: {}\r\n\r\n{body}", body.len()).into_bytes(),
    )
}

/// JSON response.
pub(super) fn json_reply(status: u16, body: &str) -> ServerReply {
    reply(status, "content-type: application/json", body)
}
