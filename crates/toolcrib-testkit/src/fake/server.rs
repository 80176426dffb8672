//! Responses of a fake server to MCP methods, independent of the transport.
//!
//! The server keeps no state between requests, except for what the files of its flags contain. A test changes its
//! behaviour while it runs through these files.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::Path;

use serde_json::{Value, json};

use super::tools::{FakeCallResult, call_tool};
use super::{HangPoint, ServerFlags, features, list};

/// Protocol versions with `initialize`.
const LEGACY_VERSIONS: [&str; 4] = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"];
/// Protocol version with `server/discover`.
const MODERN_VERSION: &str = "2026-07-28";

/// Fake MCP server without a transport. Shared by all threads of a binary.
#[derive(Debug)]
pub struct FakeServer {
    pub flags: ServerFlags,
}

/// Response to a request. Results are bytes, since one of the faults is invalid UTF-8.
#[derive(Debug)]
pub enum FakeReply {
    /// JSON text of the result.
    Result(Vec<u8>),
    /// Code and message of a JSON-RPC error.
    Error(i64, String),
    /// A server of 2026-07-28 received `initialize`, which only older versions have.
    UnsupportedVersion { requested: String },
    /// The process exits without a response.
    Crash,
    /// No response is ever sent.
    Hang,
}

impl FakeServer {
    /// Whether the file of `--features-file` says that a list comes later.
    pub fn is_late(&self, method: &str) -> bool {
        features::is_late(&self.flags, method)
    }

    /// Handles a request.
    pub fn handle(&self, method: &str, params: &Value) -> FakeReply {
        let reply = features::list(&self.flags, method, self.is_modern());
        if let Some(reply) = reply.or_else(|| features::read_item(&self.flags, method, params)) {
            return reply;
        }
        match method {
            "initialize" => self.initialize(params),
            "server/discover" => self.discover(),
            "ping" => FakeReply::from_value(&json!({})),
            "tools/list" => self.tools_list(params),
            "tools/call" => self.tools_call(params),
            "resources/list" if self.flags.resources => {
                FakeReply::from_value(&json!({"resources": [{"uri": "note://one", "name": "one"}]}))
            }
            "resources/subscribe" if self.flags.unwatchable_file.as_ref().is_some_and(|file| file.exists()) => {
                FakeReply::Error(-32603, "not now".to_owned())
            }
            "resources/unsubscribe" if self.flags.hang == Some(HangPoint::Unsubscribe) => FakeReply::Hang,
            "resources/subscribe" | "resources/unsubscribe" if self.flags.resources => {
                FakeReply::from_value(&json!({}))
            }
            _ => FakeReply::Error(-32601, format!("Method not found: {method}")),
        }
    }

    /// Whether the server supports 2026-07-28, and only that version.
    pub fn is_modern(&self) -> bool {
        self.flags.version.as_deref() == Some(MODERN_VERSION)
    }

    /// Sleeps for the configured delay. Blocks the calling thread, which is the one that serves the request.
    pub fn delay(&self) {
        if let Some(delay) = self.flags.delay {
            std::thread::sleep(delay);
        }
    }

    /// Appends a line to the count file, if there is one.
    pub fn append_count_line(&self, line: &str) -> io::Result<()> {
        self.flags.count_file.as_deref().map_or(Ok(()), |path| append_line(path, line))
    }

    /// Accepts the requested version if it is known, and offers the latest legacy version otherwise. A server of
    /// 2026-07-28 answers with the error of that version, from which a client learns that it must use
    /// `server/discover`.
    fn initialize(&self, params: &Value) -> FakeReply {
        if self.flags.hang == Some(HangPoint::Start) {
            return FakeReply::Hang;
        }
        let requested = params["protocolVersion"].as_str().unwrap_or_default();
        if self.is_modern() {
            return FakeReply::UnsupportedVersion { requested: requested.to_owned() };
        }
        let known = LEGACY_VERSIONS.iter().copied().find(|version| *version == requested);
        let version = self.flags.version.as_deref().or(known).unwrap_or("2025-11-25");
        let mut capabilities = json!({"tools": {"listChanged": true}});
        if self.flags.resources {
            capabilities["resources"] = json!({"subscribe": true});
        }
        let mut response = json!({
            "protocolVersion": version,
            "capabilities": capabilities,
            "serverInfo": {"name": "scripted", "version": "1.0.0"},
        });
        features::add_to_handshake(&self.flags, &mut response);
        FakeReply::from_value(&response)
    }

    /// Responds to `server/discover`, which only the modern protocol has.
    fn discover(&self) -> FakeReply {
        if self.flags.hang == Some(HangPoint::Start) {
            return FakeReply::Hang;
        }
        if !self.is_modern() {
            return FakeReply::Error(-32601, "Method not found: server/discover".to_owned());
        }
        let mut response = json!({
            "resultType": "complete",
            "supportedVersions": [MODERN_VERSION],
            "capabilities": {"tools": {"listChanged": true}},
            "ttlMs": 0,
            "cacheScope": "private",
            "_meta": {"io.modelcontextprotocol/serverInfo": {"name": "scripted", "version": "1.0.0"}},
        });
        features::add_to_handshake(&self.flags, &mut response);
        FakeReply::from_value(&response)
    }

    /// Responds with a page of the tool list. Built as bytes, so that tools are served unchanged. Since the list is
    /// read for each request, a file that a test changes between two pages shows its new content on the second.
    fn tools_list(&self, params: &Value) -> FakeReply {
        if self.flags.hang == Some(HangPoint::List) {
            return FakeReply::Hang;
        }
        let tools = match list::read_tool_list(&self.flags) {
            Ok(tools) => tools,
            Err(error) => return FakeReply::Error(-32603, format!("read the list of tools: {error}")),
        };
        let (page, next) = list::select_page(&self.flags, &tools, params["cursor"].as_str());
        let mut result = br#"{"tools":["#.to_vec();
        result.extend(page.join(&b','));
        result.push(b']');
        if let Some(next) = next {
            result.extend(format!(r#","nextCursor":"{next}""#).bytes());
        }
        if self.is_modern() {
            let (ttl_ms, scope) = match self.flags.ttl_ms {
                Some(ttl_ms) => (ttl_ms, "public"),
                None => (0, "private"),
            };
            result.extend(format!(r#","resultType":"complete","ttlMs":{ttl_ms},"cacheScope":"{scope}""#).bytes());
        }
        result.push(b'}');
        FakeReply::Result(result)
    }

    /// Calls a tool. The list is read only for a name without behaviour, to tell a listed tool from an unknown one.
    fn tools_call(&self, params: &Value) -> FakeReply {
        if self.flags.hang == Some(HangPoint::Call) {
            return FakeReply::Hang;
        }
        let name = params["name"].as_str().unwrap_or_default();
        let is_listed = || list::read_tool_list(&self.flags).is_ok_and(|tools| list::tool_names(&tools).contains(name));
        match call_tool(name, &params["arguments"], is_listed) {
            FakeCallResult::Result(mut result) => {
                if self.is_modern() {
                    result["resultType"] = json!("complete");
                }
                FakeReply::from_value(&result)
            }
            FakeCallResult::Error(code, text) => FakeReply::Error(code, text),
            FakeCallResult::Crash => FakeReply::Crash,
            FakeCallResult::Hang => FakeReply::Hang,
        }
    }
}

impl FakeReply {
    /// Creates a result.
    pub fn from_value(value: &Value) -> FakeReply {
        FakeReply::Result(value.to_string().into_bytes())
    }

    /// Returns the JSON-RPC message, or `None` where no response is sent.
    pub fn to_message(&self, id: &Value) -> Option<Vec<u8>> {
        match self {
            FakeReply::Result(result) => {
                let mut bytes = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":"#).into_bytes();
                bytes.extend(result);
                bytes.push(b'}');
                Some(bytes)
            }
            FakeReply::Error(code, text) => Some(error_message(id, &json!({"code": code, "message": text}))),
            FakeReply::UnsupportedVersion { requested } => {
                let data = json!({"supported": [MODERN_VERSION], "requested": requested});
                Some(error_message(
                    id,
                    &json!({"code": -32022, "message": "Unsupported protocol version", "data": data}),
                ))
            }
            FakeReply::Crash | FakeReply::Hang => None,
        }
    }
}

/// JSON-RPC error message.
fn error_message(id: &Value, error: &Value) -> Vec<u8> {
    json!({"jsonrpc": "2.0", "id": id, "error": error}).to_string().into_bytes()
}

/// Appends a line with a single `O_APPEND` write, so that lines of several processes are not mixed. Creates the file.
pub fn append_line(path: &Path, line: &str) -> io::Result<()> {
    OpenOptions::new().create(true).append(true).open(path)?.write_all(format!("{line}\n").as_bytes())
}
