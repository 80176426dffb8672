//! The MCP endpoint: sessions, authorization, and the answers of the fake behind them.

use std::collections::BTreeMap;
use std::io::{self, BufReader};
use std::net::TcpStream;
use std::sync::Mutex;
use std::thread;

use serde_json::Value;
use toolcrib_testkit::fake::{Fake, Reply};

use crate::Own;
use crate::http::{Request, Response};

#[derive(Debug)]
pub(crate) struct Endpoint {
    fake: Fake,
    own: Own,
    sessions: Mutex<Sessions>,
}

/// The sessions given out, each with the number of requests since.
#[derive(Debug, Default)]
struct Sessions {
    given: u64,
    live: BTreeMap<String, u64>,
}

impl Endpoint {
    pub(crate) fn new(fake: Fake, own: Own) -> Endpoint {
        Endpoint { fake, own, sessions: Mutex::default() }
    }

    /// Serves a connection; one that breaks is the client's affair.
    pub(crate) fn serve(&self, stream: &TcpStream) {
        let _ = self.requests(stream);
    }

    fn requests(&self, stream: &TcpStream) -> io::Result<()> {
        stream.set_nodelay(true)?;
        let mut reader = BufReader::new(stream);
        let mut writer = stream;
        while let Some(request) = Request::read(&mut reader)? {
            self.respond(&request).write(&mut writer)?;
        }
        Ok(())
    }

    fn respond(&self, request: &Request) -> Response {
        let message: Value = serde_json::from_slice(&request.body).unwrap_or_default();
        let rpc = message["method"].as_str().unwrap_or_default();
        let counted = if rpc.is_empty() { request.method.as_str() } else { rpc };
        self.fake.count(counted).expect("count this request");
        self.fake.delay();
        if request.path != "/mcp" {
            return Response::empty("404 Not Found");
        }
        if !self.is_authorized(request) {
            return Response::empty("401 Unauthorized").with("WWW-Authenticate", "Bearer".to_owned());
        }
        match request.method.as_str() {
            "POST" => self.post(request, &message, rpc),
            "DELETE" => self.delete(request),
            _ => Response::empty("405 Method Not Allowed").with("Allow", "POST, DELETE".to_owned()),
        }
    }

    fn is_authorized(&self, request: &Request) -> bool {
        let Some(token) = &self.own.require_bearer else { return true };
        request.header("authorization") == Some(&format!("Bearer {token}"))
    }

    fn post(&self, request: &Request, message: &Value, rpc: &str) -> Response {
        let refused = if rpc == "initialize" || self.fake.is_modern() { None } else { self.refuse(request) };
        if let Some(response) = refused {
            return response;
        }
        if let Some(status) = self.own.refuse_calls.as_ref().filter(|_| rpc == "tools/call") {
            let response = Response::empty(status);
            let header = self.own.refuse_header.clone();
            return header.into_iter().fold(response, |response, (name, value)| response.with(&name, value));
        }
        let Some(id) = message.get("id").filter(|_| !rpc.is_empty()) else { return Response::empty("202 Accepted") };
        let reply = self.fake.answer(rpc, &message["params"]);
        let Some(body) = reply.message(id) else { give_up(&reply) };
        let response = if self.own.sse_answers { Response::event(&body) } else { Response::json("200 OK", body) };
        match reply {
            Reply::Result(_) if rpc == "initialize" => response.with("Mcp-Session-Id", self.new_session()),
            Reply::Result(_) | Reply::Error(..) | Reply::WrongVersion { .. } | Reply::Crash | Reply::Hang => response,
        }
    }

    fn delete(&self, request: &Request) -> Response {
        let mut sessions = self.sessions.lock().expect("no thread fails meanwhile");
        let known = request.header("mcp-session-id").and_then(|id| sessions.live.remove(id));
        Response::empty(if known.is_some() { "200 OK" } else { "404 Not Found" })
    }

    fn new_session(&self) -> String {
        let mut sessions = self.sessions.lock().expect("no thread fails meanwhile");
        sessions.given += 1;
        let id = format!("session-{}", sessions.given);
        sessions.live.insert(id.clone(), 0);
        id
    }

    /// Counts a request of a session; one without a session, or of a session we do not know, gets this response.
    fn refuse(&self, request: &Request) -> Option<Response> {
        let Some(id) = request.header("mcp-session-id") else {
            return Some(error("400 Bad Request", "Bad Request: Mcp-Session-Id header is required"));
        };
        let mut sessions = self.sessions.lock().expect("no thread fails meanwhile");
        let Some(count) = sessions.live.get_mut(id) else {
            return Some(error("404 Not Found", "Session not found"));
        };
        *count += 1;
        if self.own.forget_session_after.is_some_and(|most| *count > most) {
            sessions.live.remove(id);
            return Some(error("404 Not Found", "Session not found"));
        }
        None
    }
}

fn error(status: &str, text: &str) -> Response {
    let reply = Reply::Error(-32000, text.to_owned());
    Response::json(status, reply.message(&Value::Null).unwrap_or_default())
}

/// A crash ends the process; a call that hangs keeps its connection until the client has enough.
fn give_up(reply: &Reply) -> ! {
    if matches!(reply, Reply::Crash) {
        std::process::exit(1);
    }
    loop {
        thread::park();
    }
}
