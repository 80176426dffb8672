//! Standard output, one message a line, shared by the threads that answer.

use std::io::{self, Write};
use std::sync::Mutex;

use serde_json::Value;

#[derive(Debug)]
pub(crate) struct StdoutWriter {
    stdout: Mutex<io::Stdout>,
    /// Lines around every message that are no messages.
    junk: bool,
}

impl StdoutWriter {
    pub(crate) fn new(junk: bool) -> StdoutWriter {
        StdoutWriter { stdout: Mutex::new(io::stdout()), junk }
    }

    /// Sends one message; a reader that is gone is none of our business.
    pub(crate) fn send(&self, message: &[u8]) {
        let mut line = Vec::with_capacity(message.len() + 64);
        if self.junk {
            line.extend(b"INFO about to answer {\n\n");
        }
        line.extend(message);
        line.push(b'\n');
        if self.junk {
            line.extend(b"[1, 2, \nINFO answered\n");
        }
        let mut out = self.stdout.lock().expect("no thread fails while it writes");
        let _ = out.write_all(&line).and_then(|()| out.flush());
    }

    pub(crate) fn notify(&self, method: &str, params: &Value) {
        let message = serde_json::json!({"jsonrpc": "2.0", "method": method, "params": params});
        self.send(message.to_string().as_bytes());
    }
}
