//! A loopback HTTP server that sends the same response to every request and records the requests.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

#[derive(Debug, Clone)]
pub(crate) struct RecordedRequest {
    /// `POST /v1/traces HTTP/1.1`.
    pub(crate) line: String,
    head: String,
    pub(crate) body: Vec<u8>,
}

impl RecordedRequest {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut fields = self.head.lines().filter_map(|line| line.split_once(':'));
        fields.find(|(field, _)| field.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
    }
}

/// The server; runs until the test process ends.
pub(crate) struct Upstream {
    pub(crate) url: String,
    asked: Arc<Mutex<Vec<RecordedRequest>>>,
}

impl Upstream {
    /// Responds with this JSON.
    pub(crate) fn answering(json: &'static str) -> Upstream {
        Upstream::new(Some(json))
    }

    /// Accepts connections and never responds.
    pub(crate) fn silent() -> Upstream {
        Upstream::new(None)
    }

    fn new(answer: Option<&'static str>) -> Upstream {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let asked = Arc::<Mutex<Vec<RecordedRequest>>>::default();
        let keep = asked.clone();
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let keep = keep.clone();
                thread::spawn(move || serve(&stream, answer, &keep));
            }
        });
        Upstream { url, asked }
    }

    pub(crate) fn asked(&self) -> Vec<RecordedRequest> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Serves requests on one connection until the client closes it.
fn serve(stream: &TcpStream, answer: Option<&str>, keep: &Mutex<Vec<RecordedRequest>>) -> Option<()> {
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
        let mut asked = RecordedRequest { line: line.trim().to_owned(), head, body: Vec::new() };
        let length = asked.header("content-length").and_then(|length| length.parse().ok()).unwrap_or_default();
        asked.body.resize(length, 0);
        reader.read_exact(&mut asked.body).ok()?;
        keep.lock().unwrap_or_else(PoisonError::into_inner).push(asked);
        let Some(answer) = answer else { continue };
        let length = answer.len();
        let head = format!("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n");
        let mut writer = stream;
        writer.write_all(head.as_bytes()).and_then(|()| writer.write_all(answer.as_bytes())).ok()?;
    }
}
