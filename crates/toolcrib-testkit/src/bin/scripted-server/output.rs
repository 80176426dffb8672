//! Writes messages to stdout, one per line. Shared by all threads that respond, so that lines are never mixed.

use std::io::{self, Write};

use parking_lot::Mutex;
use serde_json::Value;

/// Writer of JSON-RPC messages.
#[derive(Debug)]
pub(crate) struct StdoutWriter {
    stdout: Mutex<io::Stdout>,
    /// Also write lines that are not messages around each message.
    junk: bool,
}

impl StdoutWriter {
    pub(crate) fn new(junk: bool) -> StdoutWriter {
        StdoutWriter { stdout: Mutex::new(io::stdout()), junk }
    }

    /// Sends one message. Errors are ignored: the client may have closed the pipe already.
    pub(crate) fn send(&self, message: &[u8]) {
        let mut line = Vec::with_capacity(message.len() + 64);
        if self.junk {
            // Looks like the beginning of JSON, and is followed by an empty line.
            line.extend(b"INFO about to answer {\n\n");
        }
        line.extend(message);
        line.push(b'\n');
        if self.junk {
            // Looks like the beginning of a batch.
            line.extend(b"[1, 2, \nINFO answered\n");
        }
        let mut out = self.stdout.lock();
        let _ = out.write_all(&line).and_then(|()| out.flush());
    }

    /// Sends a notification.
    pub(crate) fn notify(&self, method: &str, params: &Value) {
        let message = serde_json::json!({"jsonrpc": "2.0", "method": method, "params": params});
        self.send(message.to_string().as_bytes());
    }
}
