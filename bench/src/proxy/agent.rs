//! Minimal MCP client with hand-written HTTP/1.1, so that its own cost hardly counts.
//!
//! One connection, one request at a time. A body is searched as text, so an event stream is accepted as well as JSON.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::{Value, json};

use crate::Result;

/// Protocol version of an agent.
#[derive(Debug, Clone, Copy)]
pub(crate) enum AgentProtocol {
    Legacy,
    Modern,
}

impl AgentProtocol {
    /// Version as in the protocol.
    pub(crate) fn name(self) -> &'static str {
        match self {
            AgentProtocol::Legacy => "2025-11-25",
            AgentProtocol::Modern => "2026-07-28",
        }
    }
}

/// Agent with one connection.
pub(crate) struct Agent {
    stream: BufReader<TcpStream>,
    host: String,
    path: String,
    version: AgentProtocol,
    /// Session id of the legacy protocol.
    session: Option<String>,
    /// Id of the last request.
    id: u64,
}

/// Parts of a response that the agent needs.
struct AgentResponse {
    status: u16,
    /// Session id that the server issued with this response.
    session: Option<String>,
    body: Vec<u8>,
}

impl Agent {
    /// Connects, and initializes a session in the legacy protocol.
    pub(crate) fn connect(url: &str, version: AgentProtocol) -> Result<Agent> {
        let address = url.strip_prefix("http://").ok_or("the URL is not plain HTTP")?;
        let (host, path) = address.split_once('/').ok_or("the URL has no path")?;
        let stream = TcpStream::connect(host)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(30)))?;
        let host = host.to_owned();
        let path = format!("/{path}");
        let mut agent = Agent { stream: BufReader::new(stream), host, path, version, session: None, id: 0 };
        if let AgentProtocol::Legacy = version {
            agent.initialize()?;
        }
        Ok(agent)
    }

    /// Initializes a session of the legacy protocol.
    fn initialize(&mut self) -> Result<()> {
        let info = json!({"name": "bench", "version": "1"});
        let params = json!({"protocolVersion": self.version.name(), "capabilities": {}, "clientInfo": info});
        let message = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params});
        let response = self.post("", &message.to_string())?;
        response.expect_status(200)?;
        self.session = response.session;
        let message = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
        self.post("", &message.to_string())?.expect_status(202)
    }

    /// Calls an echo tool and checks that the result contains the text and is no error.
    pub(crate) fn call(&mut self, tool: &str, text: &str) -> Result<()> {
        self.id += 1;
        let mut params = json!({"name": tool, "arguments": {"text": text}});
        let mut headers = String::new();
        if let AgentProtocol::Modern = self.version {
            params["_meta"] = request_meta(self.version);
            headers = format!("Mcp-Method: tools/call\r\nMcp-Name: {tool}\r\n");
        }
        let message = json!({"jsonrpc": "2.0", "id": self.id, "method": "tools/call", "params": params});
        let response = self.post(&headers, &message.to_string())?;
        response.expect_status(200)?;
        let body = String::from_utf8_lossy(&response.body);
        if body.contains(text) && !body.contains("\"isError\":true") { Ok(()) } else { Err(body.into()) }
    }

    /// Lists the tools in the modern protocol.
    pub(crate) fn list_tools(&mut self) -> Result<()> {
        self.id += 1;
        let params = json!({"_meta": request_meta(self.version)});
        let message = json!({"jsonrpc": "2.0", "id": self.id, "method": "tools/list", "params": params});
        self.post("Mcp-Method: tools/list\r\n", &message.to_string())?.expect_status(200)
    }

    /// Sends a POST request in a single write and reads the response.
    fn post(&mut self, headers: &str, body: &str) -> Result<AgentResponse> {
        let Agent { host, path, .. } = self;
        let session = self.session.as_ref().map(|id| format!("Mcp-Session-Id: {id}\r\n")).unwrap_or_default();
        let version = self.version.name();
        let length = body.len();
        let request = format!(
            "POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n\
             Accept: application/json, text/event-stream\r\nMCP-Protocol-Version: {version}\r\n\
             {session}{headers}Content-Length: {length}\r\n\r\n{body}"
        );
        self.stream.get_mut().write_all(request.as_bytes())?;
        self.read_response()
    }

    /// Reads a response with `Content-Length` or chunked encoding. A chunked one ends with a chunk of size 0, an event
    /// stream included.
    fn read_response(&mut self) -> Result<AgentResponse> {
        let line = self.read_line()?;
        let status = line.split(' ').nth(1).and_then(|status| status.parse().ok()).ok_or(line)?;
        let mut response = AgentResponse { status, session: None, body: Vec::new() };
        let mut length = 0;
        let mut chunked = false;
        loop {
            let line = self.read_line()?;
            let Some((name, value)) = line.split_once(':') else { break };
            match name.to_ascii_lowercase().as_str() {
                "content-length" => length = value.trim().parse()?,
                "transfer-encoding" => chunked = value.trim().eq_ignore_ascii_case("chunked"),
                "mcp-session-id" => response.session = Some(value.trim().to_owned()),
                _ => {}
            }
        }
        if !chunked {
            response.body.resize(length, 0);
            self.stream.read_exact(&mut response.body)?;
            return Ok(response);
        }
        loop {
            let size = usize::from_str_radix(self.read_line()?.trim(), 16)?;
            let begin = response.body.len();
            response.body.resize(begin + size, 0);
            self.stream.read_exact(&mut response.body[begin..])?;
            self.read_line()?;
            if size == 0 {
                return Ok(response);
            }
        }
    }

    /// Reads a line without its line ending; empty at the end of the headers.
    fn read_line(&mut self) -> Result<String> {
        let mut line = String::new();
        if self.stream.read_line(&mut line)? == 0 {
            return Err("the connection was closed".into());
        }
        Ok(line.trim_end().to_owned())
    }
}

impl AgentResponse {
    /// Fails unless the response has this status.
    fn expect_status(&self, status: u16) -> Result<()> {
        if self.status == status {
            return Ok(());
        }
        Err(format!("{} instead of {status}: {}", self.status, String::from_utf8_lossy(&self.body)).into())
    }
}

/// `_meta` of a request, which replaces the session in the modern protocol.
fn request_meta(version: AgentProtocol) -> Value {
    json!({
        "io.modelcontextprotocol/protocolVersion": version.name(),
        "io.modelcontextprotocol/clientInfo": {"name": "bench", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    })
}
