//! Minimal MCP client on stdio: JSON lines and nothing else.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::{Value, json};

/// Client with its server process, which is killed on drop.
pub(crate) struct JsonLinesClient {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl JsonLinesClient {
    /// Starts a server and initializes the session.
    pub(crate) fn start(program: &Path, arguments: &[String]) -> JsonLinesClient {
        let mut command = Command::new(program);
        command.args(arguments);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let stdin = child.stdin.take().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let mut client = JsonLinesClient { child, stdin, stdout };
        let client_info = json!({"name": "testkit", "version": "1"});
        client.request(
            "initialize",
            json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client_info}),
        );
        client.write_message(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        client
    }

    fn write_message(&mut self, message: &Value) {
        self.stdin.write_all(format!("{message}\n").as_bytes()).unwrap();
    }

    /// Sends a request and returns its result.
    pub(crate) fn request(&mut self, method: &str, params: Value) -> Value {
        let message = self
            .request_line(method, params)
            .unwrap_or_else(|| panic!("the server exited before it responded to `{method}`"));
        serde_json::from_str::<Value>(&message).unwrap()["result"].clone()
    }

    /// Returns the tool names on a page of the list.
    pub(crate) fn tool_names(&mut self, params: Value) -> Vec<String> {
        let list = self.request("tools/list", params);
        list["tools"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
    }

    /// Sends a request and returns the line of its response; `None` if the server exited.
    pub(crate) fn request_line(&mut self, method: &str, params: Value) -> Option<String> {
        self.write_message(&json!({"jsonrpc": "2.0", "id": method, "method": method, "params": params}));
        loop {
            let mut line = String::new();
            if self.stdout.read_line(&mut line).unwrap() == 0 {
                return None;
            }
            let message: Value = serde_json::from_str(&line).unwrap();
            if message["id"] == method {
                return Some(line);
            }
        }
    }
}

impl Drop for JsonLinesClient {
    fn drop(&mut self) {
        let _ = self.child.kill().and_then(|()| self.child.wait());
    }
}
