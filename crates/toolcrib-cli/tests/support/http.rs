//! A minimal HTTP and MCP client for a running `toolcrib serve`.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::{Value, json};
pub(crate) use toolcrib_testkit::raw_http::RawHttpResponse;
use toolcrib_testkit::raw_http::encode_request;

use super::test_server::{ServeProcess, TEST_TIMEOUT};

/// Headers of every request of MCP 2026-07-28.
pub(crate) const MCP_HEADERS: &str = "Content-Type: application/json\r\nAccept: application/json, text/event-stream\r\n\
    MCP-Protocol-Version: 2026-07-28\r\n";

/// Sends a request on a new connection; `headers` are complete lines.
pub(crate) fn request(url: &str, method: &str, path: &str, headers: &str, body: &str) -> RawHttpResponse {
    let address = url.strip_prefix("http://").unwrap();
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
    // The server may reject the request and close before it has read the body.
    let _ = stream.write_all(&encode_request(address, method, path, headers, body.as_bytes()));
    let mut response = Vec::new();
    // A reset connection may still have delivered a response.
    let _ = stream.read_to_end(&mut response);
    RawHttpResponse::parse(&response)
}

/// Like [`request`], for a server that may be gone or hang: fails if it cannot be reached, does not respond in time, or
/// ends before its response is complete.
pub(crate) fn try_request(
    url: &str,
    method: &str,
    path: &str,
    headers: &str,
    body: &str,
    timeout: Duration,
) -> io::Result<RawHttpResponse> {
    let address = url.strip_prefix("http://").unwrap();
    let mut stream = TcpStream::connect_timeout(&address.parse().unwrap(), timeout)?;
    stream.set_read_timeout(Some(timeout))?;
    stream.write_all(&encode_request(address, method, path, headers, body.as_bytes()))?;
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes)?;
    let response = RawHttpResponse::parse(&bytes);
    let length = response.header("content-length").and_then(|length| length.parse().ok());
    if response.status == 0 || length.is_some_and(|length: usize| length != response.body.len()) {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(response)
}

/// Calls a tool over MCP 2026-07-28 with `more` in `_meta`; returns the result.
#[track_caller]
pub(crate) fn call_tool(server: &ServeProcess, tool: &str, arguments: &Value, more: Value) -> Value {
    call_tool_with_headers(server, tool, arguments, more, "")
}

/// Like [`call_tool`], with additional header lines.
#[track_caller]
pub(crate) fn call_tool_with_headers(
    server: &ServeProcess,
    tool: &str,
    arguments: &Value,
    more: Value,
    headers: &str,
) -> Value {
    mcp_request(server, "tools/call", json!({ "name": tool, "arguments": arguments, "_meta": more }), headers)
}

/// Sends a request of MCP 2026-07-28, which needs no session; returns the result.
#[track_caller]
pub(crate) fn mcp_request(server: &ServeProcess, method: &str, mut params: Value, headers: &str) -> Value {
    let mut meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": { "name": "test", "version": "1" },
    });
    meta.as_object_mut().unwrap().extend(params["_meta"].as_object().cloned().unwrap_or_default());
    params["_meta"] = meta;
    let name = params["name"].as_str().map(|name| format!("Mcp-Name: {name}\r\n")).unwrap_or_default();
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params }).to_string();
    let headers = format!("{MCP_HEADERS}Mcp-Method: {method}\r\n{name}{headers}");
    let response = request(&server.url, "POST", "/mcp", &headers, &body);
    assert_eq!(response.status, 200, "{response:?}");
    response.json()["result"].clone()
}
