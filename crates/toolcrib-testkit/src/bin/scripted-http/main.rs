//! A scripted MCP server over Streamable HTTP, on loopback, a thread a connection. docs/testing.md lists its flags.

#![expect(clippy::expect_used, reason = "a test fixture may fail loudly")]

use std::io::{self, Write};
use std::net::TcpListener;
use std::sync::Arc;
use std::thread;

use toolcrib_testkit::fake::{ArgumentReader, FakeServer, ServerFlags};

mod endpoint;

mod http;

/// The flags that only make sense over HTTP.
#[derive(Debug, Default)]
struct HttpFlags {
    port: u16,
    /// A session is unknown after so many requests.
    forget_session_after: Option<u64>,
    require_bearer: Option<String>,
    /// Answers come as an event stream.
    sse_answers: bool,
    /// The status that answers every `tools/call`, and a header beside it.
    refuse_calls: Option<String>,
    refuse_header: Option<(String, String)>,
}

fn main() {
    let mut own = HttpFlags::default();
    let flags = ServerFlags::from_args(|flag, words| own.parse_flag(flag, words));
    let listener = TcpListener::bind(("127.0.0.1", own.port)).expect("listen on loopback");
    let address = listener.local_addr().expect("know the own address");
    let endpoint = Arc::new(endpoint::ScriptedEndpoint::new(FakeServer { flags }, own));

    let mut out = io::stdout();
    writeln!(out, "listening on http://{address}/mcp").and_then(|()| out.flush()).expect("say where");
    for stream in listener.incoming() {
        let stream = stream.expect("accept a connection");
        let endpoint = Arc::clone(&endpoint);
        thread::spawn(move || endpoint.serve(&stream));
    }
}

impl HttpFlags {
    fn parse_flag(&mut self, flag: &str, words: &mut ArgumentReader) -> bool {
        match flag {
            "--port" => self.port = words.next_value(flag),
            "--forget-session-after" => self.forget_session_after = Some(words.next_value(flag)),
            "--require-bearer" => self.require_bearer = Some(words.next_value(flag)),
            "--sse-answers" => self.sse_answers = true,
            "--refuse-calls" => self.refuse_calls = Some(words.next_value(flag)),
            "--refuse-header" => {
                let header: String = words.next_value(flag);
                self.refuse_header = header.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()));
            }
            _ => return false,
        }
        true
    }
}
