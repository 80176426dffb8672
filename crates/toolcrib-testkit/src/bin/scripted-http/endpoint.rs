//! MCP endpoint of the scripted HTTP server: sessions and authorization in front of the fake server.
//!
//! Order of the checks: path (404), bearer token (401), method (405), session (400, 404), refused calls. Each is a
//! response that Toolcrib must map to a distinct error. GET is refused: there is no stream for notifications.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use serde_json::Value;
use toolcrib_testkit::fake::{FakeReply, FakeServer};
use toolcrib_testkit::http_server::{HttpReply, ReceivedRequest};

use crate::HttpFlags;

/// State that all connections share.
#[derive(Debug)]
pub(crate) struct ScriptedEndpoint {
    fake: FakeServer,
    http_flags: HttpFlags,
    sessions: Mutex<ScriptedSessions>,
}

/// Issued sessions.
#[derive(Debug, Default)]
struct ScriptedSessions {
    /// Number of sessions issued so far; part of the next id.
    issued: u64,
    /// Number of requests of each session that is not forgotten yet.
    active: BTreeMap<String, u64>,
}

impl ScriptedEndpoint {
    pub(crate) fn new(fake: FakeServer, http_flags: HttpFlags) -> ScriptedEndpoint {
        ScriptedEndpoint { fake, http_flags, sessions: Mutex::default() }
    }

    /// Counts a request, waits for the configured delay and responds.
    pub(crate) fn respond(&self, request: &ReceivedRequest) -> HttpReply {
        let message = request.json();
        let rpc_method = message["method"].as_str().unwrap_or_default();
        // The JSON-RPC method if there is one, for example `tools/list`; otherwise the HTTP method.
        let counted = if rpc_method.is_empty() { request.method.as_str() } else { rpc_method };
        self.fake.append_count_line(counted).expect("count this request");
        self.fake.delay();
        if request.target != "/mcp" {
            return HttpReply::empty("404 Not Found");
        }
        if !self.is_authorized(request) {
            return HttpReply::empty("401 Unauthorized").with_header("WWW-Authenticate", "Bearer");
        }
        match request.method.as_str() {
            "POST" => self.handle_post(request, &message, rpc_method),
            "DELETE" => self.handle_delete(request),
            _ => HttpReply::empty("405 Method Not Allowed").with_header("Allow", "POST, DELETE"),
        }
    }

    /// Checks the bearer token, if one is required.
    fn is_authorized(&self, request: &ReceivedRequest) -> bool {
        let Some(token) = &self.http_flags.require_bearer else { return true };
        request.header("authorization") == Some(&format!("Bearer {token}"))
    }

    /// Handles a JSON-RPC message. `initialize` issues a session; the modern protocol has none.
    fn handle_post(&self, request: &ReceivedRequest, message: &Value, rpc_method: &str) -> HttpReply {
        let needs_session = rpc_method != "initialize" && !self.fake.is_modern();
        if let Some(response) = needs_session.then(|| self.check_session(request)).flatten() {
            return response;
        }
        if let Some(status) = self.http_flags.refuse_calls.as_ref().filter(|_| rpc_method == "tools/call") {
            let response = HttpReply::empty(status);
            let header = self.http_flags.refuse_header.iter();
            return header.fold(response, |response, (name, value)| response.with_header(name, value));
        }
        // A notification, or a response of the client.
        let Some(id) = message.get("id").filter(|_| !rpc_method.is_empty()) else {
            return HttpReply::empty("202 Accepted");
        };
        let reply = self.fake.handle(rpc_method, &message["params"]);
        let Some(body) = reply.to_message(id) else {
            if matches!(reply, FakeReply::Crash) {
                std::process::exit(1);
            }
            return HttpReply::never();
        };
        let response = if self.http_flags.sse_answers {
            let event = [b"event: message\ndata: ", body.as_slice(), b"\n\n"].concat();
            HttpReply::new(200, "content-type: text/event-stream", event)
        } else {
            json_reply("200 OK", body)
        };
        match reply {
            FakeReply::Result(_) if rpc_method == "initialize" => {
                response.with_header("Mcp-Session-Id", &self.new_session())
            }
            FakeReply::Result(_)
            | FakeReply::Error(..)
            | FakeReply::UnsupportedVersion { .. }
            | FakeReply::Crash
            | FakeReply::Hang => response,
        }
    }

    /// Ends a session.
    fn handle_delete(&self, request: &ReceivedRequest) -> HttpReply {
        let mut sessions = self.sessions.lock();
        let known = request.header("mcp-session-id").and_then(|id| sessions.active.remove(id));
        HttpReply::empty(if known.is_some() { "200 OK" } else { "404 Not Found" })
    }

    /// Issues a session id.
    fn new_session(&self) -> String {
        let mut sessions = self.sessions.lock();
        sessions.issued += 1;
        let id = format!("session-{}", sessions.issued);
        sessions.active.insert(id.clone(), 0);
        id
    }

    /// Counts a request of a session. Returns the error response to a request without a session or with an unknown one;
    /// `None` if the request may proceed.
    fn check_session(&self, request: &ReceivedRequest) -> Option<HttpReply> {
        let Some(id) = request.header("mcp-session-id") else {
            return Some(error_response("400 Bad Request", "Bad Request: Mcp-Session-Id header is required"));
        };
        let mut sessions = self.sessions.lock();
        let Some(count) = sessions.active.get_mut(id) else {
            return Some(error_response("404 Not Found", "Session not found"));
        };
        *count += 1;
        if self.http_flags.forget_session_after.is_some_and(|max_requests| *count > max_requests) {
            sessions.active.remove(id);
            return Some(error_response("404 Not Found", "Session not found"));
        }
        None
    }
}

/// JSON-RPC error without a request id, as servers send it for an invalid session.
fn error_response(status: &str, text: &str) -> HttpReply {
    let reply = FakeReply::Error(-32000, text.to_owned());
    json_reply(status, reply.to_message(&Value::Null).unwrap_or_default())
}

/// JSON that may contain invalid UTF-8.
fn json_reply(status: &str, body: Vec<u8>) -> HttpReply {
    HttpReply::new(status, "content-type: application/json", body)
}
