//! Scripted MCP server over Streamable HTTP on loopback, with one thread per connection. docs/testing.md lists its
//! flags.
//!
//! It prints `listening on http://127.0.0.1:PORT/mcp` as its first line, which tests wait for, and runs until it is
//! killed.

#![expect(clippy::expect_used, reason = "a test fixture may fail loudly")]

use std::io::{self, Write};
use std::net::TcpListener;
use std::sync::Arc;
use std::thread;

use toolcrib_testkit::fake::{ArgumentReader, FakeServer, ServerFlags};
use toolcrib_testkit::http_server::serve_connection;

mod endpoint;

/// Flags that only the HTTP server has.
#[derive(Debug, Default)]
struct HttpFlags {
    /// Port to listen on; 0, the default, chooses a free one.
    port: u16,
    /// Number of requests after which a session is forgotten.
    forget_session_after: Option<u64>,
    /// Token that every request must have.
    require_bearer: Option<String>,
    /// Respond with event streams.
    sse_answers: bool,
    /// Status of the response to every `tools/call`.
    refuse_calls: Option<String>,
    /// Additional header of that response.
    refuse_header: Option<(String, String)>,
}

fn main() {
    let mut http_flags = HttpFlags::default();
    let flags = ServerFlags::from_args(|flag, arguments| http_flags.parse_flag(flag, arguments));
    let listener = TcpListener::bind(("127.0.0.1", http_flags.port)).expect("listen on loopback");
    let address = listener.local_addr().expect("get the local address");
    let endpoint = Arc::new(endpoint::ScriptedEndpoint::new(FakeServer { flags }, http_flags));

    let mut out = io::stdout();
    writeln!(out, "listening on http://{address}/mcp").and_then(|()| out.flush()).expect("print the address");
    for stream in listener.incoming() {
        let stream = stream.expect("accept a connection");
        let endpoint = Arc::clone(&endpoint);
        thread::spawn(move || {
            // A broken connection is not a failure of the server: tests close them at will.
            let _ = serve_connection(&stream, |request| endpoint.respond(&request));
        });
    }
}

impl HttpFlags {
    /// Parses one flag; false if it is unknown.
    fn parse_flag(&mut self, flag: &str, arguments: &mut ArgumentReader) -> bool {
        match flag {
            "--port" => self.port = arguments.next_value(flag),
            "--forget-session-after" => self.forget_session_after = Some(arguments.next_value(flag)),
            "--require-bearer" => self.require_bearer = Some(arguments.next_value(flag)),
            "--sse-answers" => self.sse_answers = true,
            "--refuse-calls" => self.refuse_calls = Some(arguments.next_value(flag)),
            "--refuse-header" => {
                let header: String = arguments.next_value(flag);
                self.refuse_header = header.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()));
            }
            _ => return false,
        }
        true
    }
}
