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
        let mut line = String::new();
        let mut length = 0;
        let mut etag = String::new();
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
                "etag" => value.clone_into(&mut etag),
                _ => {}
            }
        }
        // A 304 response has no body and no length.
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body)?;
        Ok(RawResponse { etag, body })
    }

    /// Writes the request in one piece.
    fn send_get(&mut self, path: &str, headers: &str) -> Result<()> {
        let request = format!("GET {path} HTTP/1.1\r\nHost: {}\r\n{headers}\r\n", self.address);
        Ok(self.stream.get_mut().write_all(request.as_bytes())?)
    }
}
