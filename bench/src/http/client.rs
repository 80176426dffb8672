//! Minimal HTTP client with little overhead of its own: one connection, one request at a time.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use crate::Result;

/// Fails the benchmark instead of hanging. Long, because it only has to end a run that would never end.
const READ_TIMEOUT: Duration = Duration::from_secs(300);

/// Client with one persistent connection.
pub(crate) struct RawHttpClient {
    stream: BufReader<TcpStream>,
    address: String,
}

/// Parts of a response that the benchmark needs.
pub(crate) struct RawResponse {
    /// Empty if the response has none.
    pub(crate) etag: String,
    /// Value of the header `x-toolcrib-position`; 0 if the response has none.
    pub(crate) position: u64,
    pub(crate) body: Vec<u8>,
}

impl RawHttpClient {
    /// Connects to a server.
    pub(crate) fn connect(address: &str) -> Result<RawHttpClient> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(READ_TIMEOUT))?;
        Ok(RawHttpClient { stream: BufReader::with_capacity(1 << 18, stream), address: address.to_owned() })
    }

    /// Connects to `/api/events` and waits until the subscription is confirmed by the comment `: listening`. Dropping
    /// the client ends the subscription.
    pub(crate) fn subscribe_events(address: &str) -> Result<RawHttpClient> {
        let mut client = RawHttpClient::connect(address)?;
        client.send_get("/api/events", "")?;
        let mut line = String::new();
        while !line.contains(": listening") {
            line.clear();
            if client.stream.read_line(&mut line)? == 0 {
                return Err("the event stream ended before it was confirmed".into());
            }
        }
        Ok(client)
    }

    /// Sends a GET request and reads the response. `headers` are complete lines.
    pub(crate) fn get(&mut self, path: &str, headers: &str) -> Result<RawResponse> {
        self.send_get(path, headers)?;
        self.read_response(path)
    }

    /// Sends a POST request without a body and reads the response.
    pub(crate) fn post(&mut self, path: &str, headers: &str) -> Result<RawResponse> {
        self.send("POST", path, &format!("{headers}Content-Length: 0\r\n"))?;
        self.read_response(path)
    }

    /// Waits for the next journal record of an event stream and returns its number.
    pub(crate) fn next_record(&mut self) -> Result<u64> {
        let mut line = String::new();
        loop {
            line.clear();
            if self.stream.read_line(&mut line)? == 0 {
                return Err("the event stream ended".into());
            }
            // An event begins a line, whatever the chunks of the stream are. Only records have an id.
            if let Some(number) = line.strip_prefix("id: ") {
                return Ok(number.trim_end().parse()?);
            }
        }
    }

    fn read_response(&mut self, path: &str) -> Result<RawResponse> {
        let mut line = String::new();
        let mut length = 0;
        let mut response = RawResponse { etag: String::new(), position: 0, body: Vec::new() };
        self.stream.read_line(&mut line)?;
        if !line.starts_with("HTTP/1.1 200") && !line.starts_with("HTTP/1.1 304") {
            return Err(format!("{path} returned {line}").into());
        }
        loop {
            line.clear();
            self.stream.read_line(&mut line)?;
            let Some((name, value)) = line.trim_end().split_once(": ") else { break };
            match name.to_ascii_lowercase().as_str() {
                "content-length" => length = value.parse()?,
                "etag" => value.clone_into(&mut response.etag),
                "x-toolcrib-position" => response.position = value.parse()?,
                _ => {}
            }
        }
        // A 304 response has no body and no length.
        response.body.resize(length, 0);
        self.stream.read_exact(&mut response.body)?;
        Ok(response)
    }

    fn send_get(&mut self, path: &str, headers: &str) -> Result<()> {
        self.send("GET", path, headers)
    }

    /// Writes the request in one piece.
    fn send(&mut self, method: &str, path: &str, headers: &str) -> Result<()> {
        let request = format!("{method} {path} HTTP/1.1\r\nHost: {}\r\n{headers}\r\n", self.address);
        Ok(self.stream.get_mut().write_all(request.as_bytes())?)
    }
}
