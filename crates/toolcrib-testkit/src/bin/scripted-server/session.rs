//! MCP session on stdio: reads messages, responds, and shows the configured faults.
//!
//! Requests are answered in order by the reading thread; only a delayed list and the tool `slow` get threads of their
//! own, so that a test can send other requests meanwhile. A question to the client stays open until its response
//! arrives.

use std::collections::BTreeMap;
use std::env;
use std::io::{self, BufRead};
use std::process;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};
use toolcrib_testkit::fake::{FakeReply, FakeServer, append_line, text_result};

use crate::StdioFlags;
use crate::output::StdoutWriter;

/// Serves until the client closes stdin.
pub(crate) fn run(fake: FakeServer, stdio_flags: StdioFlags) {
    let output = Arc::new(StdoutWriter::new(stdio_flags.junk));
    let mut session = FakeStdioSession {
        fake: Arc::new(fake),
        stdio_flags,
        output,
        unanswered: Vec::new(),
        pending_questions: BTreeMap::new(),
        client_capabilities: Value::Null,
    };
    for line in io::stdin().lock().split(b'\n') {
        let line = line.expect("read a line");
        if line.trim_ascii().is_empty() {
            continue;
        }
        match serde_json::from_slice(&line) {
            Ok(message) => session.handle_message(&message),
            Err(error) => session.send(&FakeReply::Error(-32700, error.to_string()), &Value::Null),
        }
    }
}

/// State of the session.
struct FakeStdioSession {
    fake: Arc<FakeServer>,
    stdio_flags: StdioFlags,
    output: Arc<StdoutWriter>,
    /// Ids of requests that never get a response.
    unanswered: Vec<Value>,
    /// Ids of calls that wait for a response of the client, by the id of the server's request.
    pending_questions: BTreeMap<u64, Value>,
    /// Capabilities that the client declared in `initialize`.
    client_capabilities: Value,
}

impl FakeStdioSession {
    /// Dispatches a message: response, request or notification.
    fn handle_message(&mut self, message: &Value) {
        let Some(method) = message["method"].as_str() else { return self.handle_response(message) };
        if let Some(path) = &self.stdio_flags.log_file {
            append_line(path, method).expect("log the method");
            if let Some(reason) = message["params"]["reason"].as_str() {
                append_line(path, &format!("reason: {reason}")).expect("log the reason");
            }
        }
        match message.get("id") {
            Some(id) => self.handle_request(method, &message["params"], id),
            None => self.handle_notification(method, &message["params"]),
        }
    }

    /// Prints `cancelled` to stderr if a request without a response is cancelled, so that a test can see it.
    fn handle_notification(&self, method: &str, params: &Value) {
        if method == "notifications/cancelled" && self.unanswered.contains(&params["requestId"]) {
            eprintln!("cancelled");
        }
    }

    /// Handles a request. Tools that need the session are handled here, all others by the fake server.
    fn handle_request(&mut self, method: &str, params: &Value, id: &Value) {
        if method == "tools/call" && self.stdio_flags.should_crash() {
            process::exit(1);
        }
        if method == "initialize" {
            self.client_capabilities = params["capabilities"].clone();
        }
        let tool = if method == "tools/call" { params["name"].as_str() } else { None };
        match (method, tool) {
            ("tools/list", _) if self.fake.flags.delay.is_some() => self.list_after_delay(params, id),
            _ if self.fake.is_late(method) => self.list_later(method, params, id),
            (_, Some("slow")) => self.call_slow(params, id),
            (_, Some("env")) if self.stdio_flags.env_tool => {
                self.send(&FakeReply::from_value(&text_result(&environment_json())), id)
            }
            (_, Some("elicit")) if self.fake.is_modern() => self.ask_by_input_required(params, id),
            (_, Some("elicit")) => self.ask_client("elicitation/create", params, id),
            (_, Some("sample")) => self.ask_client("sampling/createMessage", params, id),
            (_, Some("meta")) => self.send(&FakeReply::from_value(&text_result(&params["_meta"].to_string())), id),
            (_, Some("capabilities")) => {
                self.send(&FakeReply::from_value(&text_result(&self.client_capabilities.to_string())), id);
            }
            (_, Some("announce")) => {
                let arguments = &params["arguments"];
                let method = arguments["method"].as_str().unwrap_or("notifications/tools/list_changed");
                self.output.notify(method, arguments.get("params").unwrap_or(&json!({})));
                self.send(&FakeReply::from_value(&text_result("announced")), id);
            }
            _ => {
                let reply = self.fake.handle(method, params);
                self.send(&reply, id);
            }
        }
    }

    /// Sends a response, or carries out the fault that takes its place: a crash ends the process, a hang remembers the
    /// id.
    fn send(&mut self, reply: &FakeReply, id: &Value) {
        match reply {
            FakeReply::Crash => process::exit(1),
            FakeReply::Hang => self.unanswered.push(id.clone()),
            FakeReply::Result(_) | FakeReply::Error(..) | FakeReply::UnsupportedVersion { .. } => {
                if let Some(message) = reply.to_message(id) {
                    self.output.send(&message);
                }
            }
        }
    }

    /// Sends a request to the client. Its response becomes the result of the call.
    fn ask_client(&mut self, method: &str, params: &Value, id: &Value) {
        let number = self.pending_questions.len() as u64 + 1;
        let question = json!({"message": "how?", "requestedSchema": {"type": "object"}, "asked": params["arguments"]});
        let request = json!({"jsonrpc": "2.0", "id": number, "method": method, "params": question});
        self.pending_questions.insert(number, id.clone());
        self.output.send(request.to_string().as_bytes());
    }

    /// Passes the client's response on as the result of the call that asked for it.
    fn handle_response(&mut self, message: &Value) {
        let call = message["id"].as_u64().and_then(|number| self.pending_questions.get(&number)).cloned();
        let answer = message.get("result").or(message.get("error")).cloned().unwrap_or_default();
        if let Some(call) = call {
            self.send(&FakeReply::from_value(&text_result(&answer.to_string())), &call);
        }
    }

    /// Asks the client as in protocol 2026-07-28: with a result of type `input_required`.
    fn ask_by_input_required(&mut self, params: &Value, id: &Value) {
        let question = json!({"message": "how?", "requestedSchema": {"type": "object"}, "asked": params["arguments"]});
        let result = match params.get("inputResponses") {
            Some(answers) => {
                let mut result = text_result(&answers["how"].to_string());
                result["resultType"] = json!("complete");
                result
            }
            None => json!({
                "resultType": "input_required",
                "inputRequests": {"how": {"method": "elicitation/create", "params": question}},
                "requestState": "asked",
            }),
        };
        self.send(&FakeReply::from_value(&result), id);
    }

    /// Sends the tool list after a delay, in its own thread so that other requests are answered meanwhile.
    fn list_after_delay(&self, params: &Value, id: &Value) {
        let fake = Arc::clone(&self.fake);
        let output = Arc::clone(&self.output);
        let params = params.clone();
        let id = id.clone();
        thread::spawn(move || {
            fake.delay();
            if let Some(message) = fake.handle("tools/list", &params).to_message(&id) {
                output.send(&message);
            }
        });
    }

    /// Responds when the file with the lists says so, in its own thread so that other requests are answered meanwhile.
    fn list_later(&self, method: &str, params: &Value, id: &Value) {
        let fake = Arc::clone(&self.fake);
        let output = Arc::clone(&self.output);
        let (method, params, id) = (method.to_owned(), params.clone(), id.clone());
        thread::spawn(move || {
            while fake.is_late(&method) {
                thread::sleep(Duration::from_millis(10));
            }
            if let Some(message) = fake.handle(&method, &params).to_message(&id) {
                output.send(&message);
            }
        });
    }

    /// Reports progress in a few steps, then responds.
    fn call_slow(&self, params: &Value, id: &Value) {
        let output = Arc::clone(&self.output);
        let token = params["_meta"].get("progressToken").cloned();
        let id = id.clone();
        let steps = self.stdio_flags.progress.unwrap_or(3);
        thread::spawn(move || {
            for step in 1..=steps {
                thread::sleep(Duration::from_millis(10));
                if let Some(token) = &token {
                    let progress = json!({"progressToken": token, "progress": step, "total": steps});
                    output.notify("notifications/progress", &progress);
                }
            }
            if let Some(message) = FakeReply::from_value(&text_result("done")).to_message(&id) {
                output.send(&message);
            }
        });
    }
}

/// Returns the environment of the server as a JSON object.
fn environment_json() -> String {
    let all: BTreeMap<String, String> = env::vars_os()
        .map(|(name, value)| (name.to_string_lossy().into_owned(), value.to_string_lossy().into_owned()))
        .collect();
    json!(all).to_string()
}
