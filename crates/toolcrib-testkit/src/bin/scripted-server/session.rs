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
    let mut session = Session { fake: Arc::new(fake), own, output, hanging: Vec::new() };
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
}

impl Session {
    fn take(&mut self, message: &Value) {
        let Some(method) = message["method"].as_str() else { return };
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
            (_, Some("announce")) => {
                self.output.notify("notifications/tools/list_changed", &json!({}));
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
