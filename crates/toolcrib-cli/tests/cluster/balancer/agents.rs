//! Agents that call tools through the balancer, one call after the other: clients of MCP 2026-07-28, and clients of
//! 2025-11-25 with a session.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;

use serde_json::{Value, json};

use super::upstream::{JOB_TOOLS, job_arguments};
use crate::support::http::{MCP_HEADERS, RawHttpResponse, try_request};
use crate::support::test_server::TEST_TIMEOUT;

/// Headers of every request of MCP 2025-11-25.
const LEGACY_HEADERS: &str = "Content-Type: application/json\r\nAccept: application/json, text/event-stream\r\n\
    MCP-Protocol-Version: 2025-11-25\r\n";
/// Maximum number of attempts to begin a session.
const MAX_SESSION_ATTEMPTS: usize = 5;

/// An agent and its counters, which the test reads while it works.
#[derive(Debug)]
pub(super) struct CallingAgent {
    number: usize,
    /// Whether it is a client of 2025-11-25.
    is_legacy: bool,
    /// Number of calls that have ended.
    pub(super) calls: AtomicUsize,
    pub(super) is_stopped: AtomicBool,
}

/// Work of one agent.
#[derive(Debug, Default)]
pub(super) struct AgentReport {
    /// Jobs whose call succeeded.
    pub(super) succeeded: Vec<String>,
    /// Requests without the expected response.
    pub(super) failures: Vec<SentRequest>,
    /// Sessions that were begun because a node did not know the former one.
    pub(super) renewed_sessions: usize,
}

/// A request and its end.
#[derive(Debug)]
pub(super) struct SentRequest {
    /// `None` for a request that is no call of a tool.
    pub(super) job: Option<String>,
    pub(super) sent_at: Instant,
    pub(super) ended_at: Instant,
    pub(super) answer: io::Result<RawHttpResponse>,
}

impl CallingAgent {
    /// Every third agent is a client of 2025-11-25.
    pub(super) fn new(number: usize) -> CallingAgent {
        let is_legacy = number.is_multiple_of(3);
        CallingAgent { number, is_legacy, calls: AtomicUsize::new(0), is_stopped: AtomicBool::new(false) }
    }

    /// Calls tools until it is stopped. `token` is that of an agent.
    pub(super) fn run(&self, balancer: &str, token: &str) -> AgentReport {
        let mut client = AgentClient { balancer, token, session: None, report: AgentReport::default() };
        for number in 0.. {
            if self.is_stopped.load(Ordering::SeqCst) {
                break;
            }
            let job = format!("job-{}-{number}", self.number);
            let tool = JOB_TOOLS[number % JOB_TOOLS.len()];
            if self.is_legacy {
                client.call_in_session(tool, &job)
            } else {
                client.call(tool, &job)
            }
            self.calls.fetch_add(1, Ordering::SeqCst);
        }
        client.report
    }
}

/// Connection data and results of an agent.
struct AgentClient<'a> {
    balancer: &'a str,
    token: &'a str,
    session: Option<String>,
    report: AgentReport,
}

impl AgentClient<'_> {
    /// Calls a tool as a client of 2026-07-28. A call that failed is not repeated: it may have been executed.
    fn call(&mut self, tool: &str, job: &str) {
        let meta = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
            "io.modelcontextprotocol/clientInfo": { "name": "agent", "version": "1" },
        });
        let params = json!({ "name": tool, "arguments": job_arguments(tool, job), "_meta": meta });
        let headers = format!("{MCP_HEADERS}Mcp-Method: tools/call\r\nMcp-Name: {tool}\r\n");
        let request = self.send("tools/call", &params, &headers, Some(job));
        self.record_call(request);
    }

    /// Calls a tool in the session. A node that does not know the session has not executed the call: then it is repeated,
    /// once, in a new session.
    fn call_in_session(&mut self, tool: &str, job: &str) {
        let params = json!({ "name": tool, "arguments": job_arguments(tool, job) });
        let mut request = self.send_in_session("tools/call", &params, Some(job));
        if request.answer.as_ref().is_ok_and(|response| response.status == 404) {
            self.report.renewed_sessions += 1;
            self.session = None;
            request = self.send_in_session("tools/call", &params, Some(job));
        }
        self.record_call(request);
    }

    /// Records the end of a call.
    fn record_call(&mut self, request: SentRequest) {
        let job = request.job.clone().unwrap_or_default();
        let result = request.answer.as_ref().ok().and_then(rpc_message).unwrap_or_default();
        let content = &result["result"]["content"];
        let is_done = result["result"]["isError"] != json!(true)
            && content.as_array().is_some_and(|parts| parts.iter().any(|part| has_text(part, &job)));
        if is_done {
            self.report.succeeded.push(job);
        } else {
            self.report.failures.push(request);
        }
    }

    fn send_in_session(&mut self, method: &str, params: &Value, job: Option<&str>) -> SentRequest {
        let session = match self.session.take() {
            Some(session) => session,
            None => self.begin_session(),
        };
        let request = self.send(method, params, &format!("{LEGACY_HEADERS}Mcp-Session-Id: {session}\r\n"), job);
        self.session = Some(session);
        request
    }

    /// Begins a session and returns its id. An attempt may be lost with its node.
    fn begin_session(&mut self) -> String {
        let client = json!({ "name": "agent", "version": "1" });
        let params = json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client });
        for _ in 0..MAX_SESSION_ATTEMPTS {
            let request = self.send("initialize", &params, LEGACY_HEADERS, None);
            let session = request.answer.as_ref().ok().and_then(|response| response.header("mcp-session-id"));
            match session {
                Some(session) => return session.to_owned(),
                None => self.report.failures.push(request),
            }
        }
        panic!("no node begins a session: {:?}", self.report.failures);
    }

    fn send(&self, method: &str, params: &Value, headers: &str, job: Option<&str>) -> SentRequest {
        let headers = format!("Authorization: Bearer {}\r\n{headers}", self.token);
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params }).to_string();
        let sent_at = Instant::now();
        let answer = try_request(self.balancer, "POST", "/mcp", &headers, &body, TEST_TIMEOUT);
        SentRequest { job: job.map(str::to_owned), sent_at, ended_at: Instant::now(), answer }
    }
}

/// The JSON-RPC message of a response, which may be an event stream.
fn rpc_message(response: &RawHttpResponse) -> Option<Value> {
    let data = response.body.lines().filter_map(|line| line.strip_prefix("data: ")).next_back();
    serde_json::from_str(data.unwrap_or(&response.body)).ok()
}

/// Whether a content part is text with this job, and not with one whose name begins with it.
fn has_text(part: &Value, job: &str) -> bool {
    let text = part["text"].as_str().unwrap_or_default();
    text == job || text.contains(&format!("\"{job}\""))
}
