//! A server on loopback that answers as a test says, and remembers what it heard.

use std::sync::{Arc, Mutex};

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

#[derive(Debug, Clone, Default)]
pub(super) struct Heard {
    pub(super) method: String,
    pub(super) target: String,
    pub(super) headers: Vec<(String, String)>,
    pub(super) body: String,
    /// Which connection it came over.
    pub(super) connection: usize,
}

impl Heard {
    /// Empty where there is none.
    pub(super) fn header(&self, name: &str) -> &str {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str()).unwrap_or_default()
    }

    pub(super) fn line(&self) -> String {
        format!("{} {}", self.method, self.target)
    }
}

/// What a server does with a request, which is the so manieth.
type Answers = dyn Fn(&Heard, usize) -> Answer + Send + Sync;

pub(super) enum Answer {
    /// A whole answer, head and body.
    Bytes(Vec<u8>),
    /// The connection ends.
    HangUp,
    /// Nothing, for ever.
    Silence,
}

#[derive(Debug)]
pub(super) struct Server {
    pub(super) url: String,
    heard: Arc<Mutex<Vec<Heard>>>,
    /// Ends with the test.
    _tasks: JoinSet<()>,
}

impl Server {
    pub(super) async fn start(answers: impl Fn(&Heard, usize) -> Answer + Send + Sync + 'static) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (heard, answers): (Arc<Mutex<Vec<Heard>>>, Arc<Answers>) = (Arc::default(), Arc::new(answers));
        let (mut tasks, all) = (JoinSet::new(), heard.clone());
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            for number in 0.. {
                let (stream, _) = listener.accept().await.unwrap();
                connections.spawn(serve(stream, number, all.clone(), answers.clone()));
            }
        });
        Server { url, heard, _tasks: tasks }
    }

    pub(super) fn heard(&self) -> Vec<Heard> {
        self.heard.lock().unwrap().clone()
    }

    pub(super) fn lines(&self) -> Vec<String> {
        self.heard().iter().map(Heard::line).collect()
    }
}

async fn serve(stream: TcpStream, connection: usize, all: Arc<Mutex<Vec<Heard>>>, answers: Arc<Answers>) {
    let mut stream = BufReader::new(stream);
    while let Some(mut heard) = read(&mut stream).await {
        heard.connection = connection;
        let number = {
            let mut all = all.lock().unwrap();
            all.push(heard.clone());
            all.len()
        };
        match answers(&heard, number) {
            Answer::Bytes(bytes) => {
                // Whoever has heard enough hangs up.
                let _gone = stream.write_all(&bytes).await;
            }
            Answer::HangUp => return,
            Answer::Silence => std::future::pending().await,
        }
    }
}

async fn read(stream: &mut BufReader<TcpStream>) -> Option<Heard> {
    let mut heard = Heard::default();
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
pub(super) fn reply(status: u16, headers: &str, body: &str) -> Answer {
    let headers: String = headers.lines().map(|line| format!("{}\r\n", line.trim())).collect();
    Answer::Bytes(format!("HTTP/1.1 {status} X\r\n{headers}content-length: {}\r\n\r\n{body}", body.len()).into_bytes())
}

pub(super) fn json(status: u16, body: &str) -> Answer {
    reply(status, "content-type: application/json", body)
}
