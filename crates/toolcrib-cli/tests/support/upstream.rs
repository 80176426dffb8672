//! A loopback HTTP server that sends the same response to every request and records the requests.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;

use parking_lot::Mutex;

/// A received request.
#[derive(Debug, Clone)]
pub(crate) struct CapturedHttpRequest {
    /// `POST /v1/traces HTTP/1.1`.
    pub(crate) line: String,
    head: String,
    pub(crate) body: Vec<u8>,
}

impl CapturedHttpRequest {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut fields = self.head.lines().filter_map(|line| line.split_once(':'));
        fields.find(|(field, _)| field.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
    }
}

/// The server; runs until the test process ends.
pub(crate) struct Upstream {
    pub(crate) url: String,
    requests: Arc<Mutex<Vec<CapturedHttpRequest>>>,
}

impl Upstream {
    /// Responds with this JSON.
    pub(crate) fn responding_with(json: &'static str) -> Upstream {
        Upstream::new(Some(json))
    }

    /// Accepts connections and never responds.
    pub(crate) fn silent() -> Upstream {
        Upstream::new(None)
    }

    fn new(response: Option<&'static str>) -> Upstream {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let requests = Arc::<Mutex<Vec<CapturedHttpRequest>>>::default();
        let recorded = requests.clone();
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let recorded = recorded.clone();
                thread::spawn(move || serve(&stream, response, &recorded));
            }
        });
        Upstream { url, requests }
    }

    /// All requests so far.
    pub(crate) fn requests(&self) -> Vec<CapturedHttpRequest> {
        self.requests.lock().clone()
    }
}

/// Serves requests on one connection until the client closes it.
fn serve(stream: &TcpStream, response: Option<&str>, recorded: &Mutex<Vec<CapturedHttpRequest>>) -> Option<()> {
    let mut reader = BufReader::new(stream);
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") && head != "\r\n" {
            reader.read_line(&mut head).ok().filter(|read| *read > 0)?;
        }
        let mut requests = CapturedHttpRequest { line: line.trim().to_owned(), head, body: Vec::new() };
        let length = requests.header("content-length").and_then(|length| length.parse().ok()).unwrap_or_default();
        requests.body.resize(length, 0);
        reader.read_exact(&mut requests.body).ok()?;
        recorded.lock().push(requests);
        let Some(response) = response else { continue };
        let length = response.len();
        let head = format!("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n");
        let mut writer = stream;
        writer.write_all(head.as_bytes()).and_then(|()| writer.write_all(response.as_bytes())).ok()?;
    }
}
