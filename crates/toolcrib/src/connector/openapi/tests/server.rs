//! A server on loopback that answers as a test says, and remembers what it heard.

use std::sync::{Arc, Mutex};

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

#[derive(Debug, Clone, Default)]
pub(super) struct ReceivedRequest {
    pub(super) method: String,
    pub(super) target: String,
    pub(super) headers: Vec<(String, String)>,
    pub(super) body: String,
    /// Which connection it came over.
    pub(super) connection: usize,
}

impl ReceivedRequest {
    /// Empty where there is none.
    pub(super) fn header(&self, name: &str) -> &str {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str()).unwrap_or_default()
    }

    pub(super) fn request_line(&self) -> String {
        format!("{} {}", self.method, self.target)
    }
}

/// What a server does with a request, which is the so manieth.
type ReplyFn = dyn Fn(&ReceivedRequest, usize) -> ServerReply + Send + Sync;

pub(super) enum ServerReply {
    /// A whole answer, head and body.
    Bytes(Vec<u8>),
    /// The connection ends.
    CloseConnection,
    /// Nothing, for ever.
    NeverReply,
}

#[derive(Debug)]
pub(super) struct LoopbackServer {
    pub(super) url: String,
    requests: Arc<Mutex<Vec<ReceivedRequest>>>,
    /// Ends with the test.
    _tasks: JoinSet<()>,
}

impl LoopbackServer {
    pub(super) async fn start(
        answers: impl Fn(&ReceivedRequest, usize) -> ServerReply + Send + Sync + 'static,
    ) -> LoopbackServer {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (heard, answers): (Arc<Mutex<Vec<ReceivedRequest>>>, Arc<ReplyFn>) = (Arc::default(), Arc::new(answers));
        let mut tasks = JoinSet::new();
        let all = heard.clone();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            for number in 0.. {
                let (stream, _) = listener.accept().await.unwrap();
                connections.spawn(serve(stream, number, all.clone(), answers.clone()));
            }
        });
        LoopbackServer { url, requests: heard, _tasks: tasks }
    }

    pub(super) fn requests(&self) -> Vec<ReceivedRequest> {
        self.requests.lock().unwrap().clone()
    }

    pub(super) fn request_lines(&self) -> Vec<String> {
        self.requests().iter().map(ReceivedRequest::request_line).collect()
    }
}

async fn serve(stream: TcpStream, connection: usize, all: Arc<Mutex<Vec<ReceivedRequest>>>, answers: Arc<ReplyFn>) {
    let mut stream = BufReader::new(stream);
    while let Some(mut heard) = read_request(&mut stream).await {
        heard.connection = connection;
        let number = {
            let mut all = all.lock().unwrap();
            all.push(heard.clone());
            all.len()
        };
        match answers(&heard, number) {
            ServerReply::Bytes(bytes) => {
                // Whoever has heard enough hangs up.
                let _gone = stream.write_all(&bytes).await;
            }
            ServerReply::CloseConnection => return,
            ServerReply::NeverReply => std::future::pending().await,
        }
    }
}

async fn read_request(stream: &mut BufReader<TcpStream>) -> Option<ReceivedRequest> {
    let mut heard = ReceivedRequest::default();
    let mut line = String::new();
    stream.read_line(&mut line).await.ok()?;
    let mut words = line.split_whitespace();
    (heard.method, heard.target) = (words.next()?.to_owned(), words.next()?.to_owned());
    loop {
        line.clear();
        stream.read_line(&mut line).await.ok()?;
        let Some((name, value)) = line.trim_end().split_once(": ") else { break };
        heard.headers.push((name.to_ascii_lowercase(), value.to_owned()));
    }
    let length = heard.header("content-length").parse().unwrap_or(0);
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.ok()?;
    heard.body = String::from_utf8_lossy(&body).into_owned();
    Some(heard)
}

/// An answer with these headers, one a line.
pub(super) fn reply(status: u16, headers: &str, body: &str) -> ServerReply {
    let headers: String = headers.lines().map(|line| format!("{}\r\n", line.trim())).collect();
    ServerReply::Bytes(
        format!("HTTP/1.1 {status} X\r\n{headers}content-length: {}\r\n\r\n{body}", body.len()).into_bytes(),
    )
}

pub(super) fn json_reply(status: u16, body: &str) -> ServerReply {
    reply(status, "content-type: application/json", body)
}
