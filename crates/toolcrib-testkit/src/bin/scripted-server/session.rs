//! One session on stdio: reads requests, answers them, shows the faults it was told to show.

use std::collections::BTreeMap;
use std::env;
use std::io::{self, BufRead};
use std::process;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};
use toolcrib_testkit::fake::{Fake, Reply, append, said};

use crate::Own;
use crate::output::Output;

/// Serves until the other side closes.
pub(crate) fn run(fake: Fake, own: Own) {
    let output = Arc::new(Output::new(own.junk));
    let mut session = Session { fake: Arc::new(fake), own, output, hanging: Vec::new(), asking: BTreeMap::new() };
    for line in io::stdin().lock().split(b'\n') {
        let line = line.expect("read a line");
        if line.trim_ascii().is_empty() {
            continue;
        }
        match serde_json::from_slice(&line) {
            Ok(message) => session.take(&message),
            Err(error) => session.send(&Reply::Error(-32700, error.to_string()), &Value::Null),
        }
    }
}

struct Session {
    fake: Arc<Fake>,
    own: Own,
    output: Arc<Output>,
    /// Requests that never get an answer.
    hanging: Vec<Value>,
    /// Calls that wait for what the client answers, by the number of the question.
    asking: BTreeMap<u64, Value>,
}

impl Session {
    fn take(&mut self, message: &Value) {
        let Some(method) = message["method"].as_str() else { return self.answered(message) };
        if let Some(path) = &self.own.log_file {
            append(path, method).expect("log the method");
        }
        match message.get("id") {
            Some(id) => self.request(method, &message["params"], id),
            None => self.notification(method, &message["params"]),
        }
    }

    fn notification(&self, method: &str, params: &Value) {
        if method == "notifications/cancelled" && self.hanging.contains(&params["requestId"]) {
            eprintln!("cancelled");
        }
    }

    fn request(&mut self, method: &str, params: &Value, id: &Value) {
        if method == "tools/call" && self.own.dies_now() {
            process::exit(1);
        }
        let tool = if method == "tools/call" { params["name"].as_str() } else { None };
        match (method, tool) {
            ("tools/list", _) if self.fake.flags.delay.is_some() => self.list_late(params, id),
            (_, Some("slow")) => self.slow(params, id),
            (_, Some("env")) if self.own.env_tool => self.send(&Reply::value(&said(&environment())), id),
            (_, Some("elicit")) if self.fake.is_modern() => self.ask_by_result(params, id),
            (_, Some("elicit")) => self.ask("elicitation/create", params, id),
            (_, Some("sample")) => self.ask("sampling/createMessage", params, id),
            (_, Some("meta")) => self.send(&Reply::value(&said(&params["_meta"].to_string())), id),
            (_, Some("announce")) => {
                let arguments = &params["arguments"];
                let method = arguments["method"].as_str().unwrap_or("notifications/tools/list_changed");
                self.output.notify(method, arguments.get("params").unwrap_or(&json!({})));
                self.send(&Reply::value(&said("announced")), id);
            }
            _ => {
                let reply = self.fake.answer(method, params);
                self.send(&reply, id);
            }
        }
    }

    fn send(&mut self, reply: &Reply, id: &Value) {
        match reply {
            Reply::Crash => process::exit(1),
            Reply::Hang => self.hanging.push(id.clone()),
            Reply::Result(_) | Reply::Error(..) | Reply::WrongVersion { .. } => {
                if let Some(message) = reply.message(id) {
                    self.output.send(&message);
                }
            }
        }
    }

    /// Asks the client, and gives its answer as the answer to the call.
    fn ask(&mut self, method: &str, params: &Value, id: &Value) {
        let number = self.asking.len() as u64 + 1;
        let question = json!({"message": "how?", "requestedSchema": {"type": "object"}, "asked": params["arguments"]});
        let request = json!({"jsonrpc": "2.0", "id": number, "method": method, "params": question});
        self.asking.insert(number, id.clone());
        self.output.send(request.to_string().as_bytes());
    }

    fn answered(&mut self, message: &Value) {
        let call = message["id"].as_u64().and_then(|number| self.asking.get(&number)).cloned();
        let answer = message.get("result").or(message.get("error")).cloned().unwrap_or_default();
        if let Some(call) = call {
            self.send(&Reply::value(&said(&answer.to_string())), &call);
        }
    }

    /// As servers of 2026 ask: by a result that is none yet.
    fn ask_by_result(&mut self, params: &Value, id: &Value) {
        let question = json!({"message": "how?", "requestedSchema": {"type": "object"}, "asked": params["arguments"]});
        let result = match params.get("inputResponses") {
            Some(answers) => {
                let mut result = said(&answers["how"].to_string());
                result["resultType"] = json!("complete");
                result
            }
            None => json!({
                "resultType": "input_required",
                "inputRequests": {"how": {"method": "elicitation/create", "params": question}},
                "requestState": "asked",
            }),
        };
        self.send(&Reply::value(&result), id);
    }

    /// In a thread of its own: other requests are answered meanwhile.
    fn list_late(&self, params: &Value, id: &Value) {
        let (fake, output) = (Arc::clone(&self.fake), Arc::clone(&self.output));
        let (params, id) = (params.clone(), id.clone());
        thread::spawn(move || {
            fake.delay();
            if let Some(message) = fake.answer("tools/list", &params).message(&id) {
                output.send(&message);
            }
        });
    }

    fn slow(&self, params: &Value, id: &Value) {
        let output = Arc::clone(&self.output);
        let (token, id) = (params["_meta"].get("progressToken").cloned(), id.clone());
        let steps = self.own.progress.unwrap_or(3);
        thread::spawn(move || {
            for step in 1..=steps {
                thread::sleep(Duration::from_millis(10));
                if let Some(token) = &token {
                    let progress = json!({"progressToken": token, "progress": step, "total": steps});
                    output.notify("notifications/progress", &progress);
                }
            }
            if let Some(message) = Reply::value(&said("done")).message(&id) {
                output.send(&message);
            }
        });
    }
}

fn environment() -> String {
    let all: BTreeMap<String, String> = env::vars_os()
        .map(|(name, value)| (name.to_string_lossy().into_owned(), value.to_string_lossy().into_owned()))
        .collect();
    json!(all).to_string()
}
