//! Operations of the test of secrets: servers that repeat them, commands, requests, and the content of the store.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread;

use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::support::http::{MCP_HEADERS, request};
use crate::support::test_server::{ServeProcess, TEST_TIMEOUT, TestWorkspace, read_or_empty};

const JSON: &str = "Content-Type: application/json\r\n";

/// All output of Toolcrib, each with a name.
#[derive(Default)]
pub(super) struct CollectedOutputs {
    pub(super) texts: Vec<(String, Vec<u8>)>,
    pub(super) operations: usize,
}

impl CollectedOutputs {
    pub(super) fn add(&mut self, name: impl Into<String>, bytes: impl Into<Vec<u8>>) {
        self.operations += 1;
        self.texts.push((name.into(), bytes.into()));
    }
}

/// A process that acts as all HTTP servers, and as the collector of traces.
pub(super) struct RepeatingServer {
    pub(super) child: Child,
    pub(super) port: u16,
}

impl RepeatingServer {
    pub(super) fn start(python: &Path, collected: &Path, granted: &str) -> RepeatingServer {
        let mut command = Command::new(python);
        command.arg(server_script()).arg("http").arg(collected).env("GRANTED", granted).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        RepeatingServer { child, port: line.trim().parse().unwrap() }
    }
}

impl Drop for RepeatingServer {
    fn drop(&mut self) {
        // Fails if the process has already ended.
        let _ = self.child.kill().and_then(|()| self.child.wait());
    }
}

pub(super) fn server_script() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/secrets/repeats.py").canonicalize().unwrap()
}

pub(super) fn find_python() -> Option<PathBuf> {
    let output = Command::new("python3").args(["-c", "import sys; print(sys.executable)"]).output().ok()?;
    output.status.success().then(|| PathBuf::from(String::from_utf8_lossy(&output.stdout).trim().to_owned()))
}

pub(super) struct SecretsRun<'a> {
    pub(super) workspace: &'a TestWorkspace,
    pub(super) variables: Vec<(String, String)>,
    pub(super) level: &'static [&'static str],
    pub(super) outputs: CollectedOutputs,
}

impl SecretsRun<'_> {
    pub(super) fn run_command(&mut self, arguments: &[&str]) -> String {
        let arguments = [arguments, self.level].concat();
        let mut command = self.workspace.toolcrib(&arguments);
        command.envs(self.variables.iter().map(|(name, value)| (name, value))).stdin(Stdio::null());
        let output = command.output().unwrap();
        let name = arguments.join(" ");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        self.outputs.add(format!("stdout of `{name}`"), output.stdout);
        self.outputs.texts.push((format!("stderr of `{name}`"), output.stderr));
        text
    }

    /// Runs an MCP client over stdio and collects what it receives.
    pub(super) fn run_stdio_client(&mut self) {
        let mut command = self.workspace.toolcrib(&[&["mcp", "--mode", "full"], self.level].concat());
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        let initialize = json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": { "name": "test", "version": "1" } });
        for (method, params) in [
            ("initialize", initialize),
            ("tools/list", json!({})),
            ("tools/call", json!({ "name": "repeats__fail", "arguments": { "item": 6 } })),
            ("tools/call", json!({ "name": "repeats__refuse", "arguments": { "item": 8, "how": 3 } })),
            ("tools/call", json!({ "name": "repeats__crash", "arguments": { "item": 9 } })),
        ] {
            let message =
                json!({ "jsonrpc": "2.0", "id": self.outputs.operations, "method": method, "params": params });
            writeln!(stdin, "{message}").unwrap();
            let answered = lines.find(|line| line.contains("\"id\"") && !line.contains("\"method\"")).unwrap();
            self.outputs.add(format!("mcp {method}"), answered);
        }
        drop(stdin);
        self.outputs.add("the rest of mcp", lines.collect::<String>());
        let mut log = Vec::new();
        child.stderr.take().unwrap().read_to_end(&mut log).unwrap();
        child.wait().unwrap();
        self.outputs.add("stderr of mcp", log);
    }

    pub(super) fn run_commands(&mut self, literal: &str) {
        let url = format!("http://me:{literal}@127.0.0.1:9/mcp?key={literal}");
        self.run_command(&["add", "late", "--url", &url, "--header", &format!("X-Key={literal}")]);
        self.run_command(&["export"]);
        self.run_command(&["remove", "late"]);
        for arguments in [
            &["refresh", "--force"][..],
            &["sources"],
            &["sources", "--json"],
            &["config"],
            &["config", "--json"],
            &["export"],
            &["export", "--json"],
            &["logs", "repeats", "-n", "500"],
            &["logs", "broken", "--json"],
            &["doctor"],
            &["doctor", "--json"],
            &["history", "--json"],
            &["history", "--checks"],
            &["stats", "--json"],
            &["verify"],
            &["trust"],
            &["trust", "--json"],
            &["tools", "--json", "--cached"],
            &["describe", "repeats__fail", "--json"],
            &["context"],
            &["search", "works with"],
            &["import", "toolcrib.json", "--dry-run"],
            &["lock"],
            &["call", "repeats__fail", "item=3"],
            &["call", "repeats__refuse", "item=4", "how=1", "--json"],
            &["call", "repeats__crash", "item=5"],
            &["call", "web__fail", "item=2", "how=4"],
            &["call", "api__ask", "status=500", "item=0", "--json"],
            &["call", "refused__ask"],
            &["call", "hosted__nothing"],
            &["disable", "cookie"],
            &["enable", "cookie"],
            &["invalidate", "repeats"],
        ] {
            self.run_command(arguments);
        }
    }

    pub(super) fn get(&mut self, server: &ServeProcess, path: &str) {
        let response = request(&server.url, "GET", path, "Accept: */*\r\n", "");
        self.outputs.add(format!("GET {path}"), format!("{response:?}"));
    }

    pub(super) fn post(&mut self, server: &ServeProcess, path: &str, headers: &str, body: &Value) {
        let response = request(&server.url, "POST", path, &format!("{JSON}{headers}"), &body.to_string());
        self.outputs.add(format!("POST {path} {body}"), format!("{response:?}"));
    }

    pub(super) fn mcp(&mut self, server: &ServeProcess, method: &str, mut params: Value) {
        params["_meta"] = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
            "io.modelcontextprotocol/clientInfo": { "name": "test", "version": "1" },
        });
        let name = params["name"].as_str().map(|name| format!("Mcp-Name: {name}\r\n")).unwrap_or_default();
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params }).to_string();
        let response = request(
            &server.url,
            "POST",
            "/mcp?mode=full",
            &format!("{MCP_HEADERS}Mcp-Method: {method}\r\n{name}"),
            &body,
        );
        self.outputs.add(format!("MCP {method} {body}"), format!("{response:?}"));
    }

    pub(super) fn run_server(&mut self, literal: &str) {
        let level = self.level;
        let variables: Vec<(&str, &str)> = self.variables.iter().map(|(name, value)| (&**name, &**value)).collect();
        let server =
            self.workspace.start_listening_with(&[&["serve", "--listen", "127.0.0.1:0"], level].concat(), &variables);
        let events = EventStream::connect(&server);
        let admin =
            format!("Authorization: Bearer {}\r\n", read_or_empty(&self.workspace.path("data/admin.token")).trim());
        let ids =
            ["repeats", "broken", "absent", "web", "basic", "cookie", "denied", "hosted", "whole", "api", "granted"];
        for id in ids {
            self.post(&server, &format!("/api/sources/{id}/refresh?force=true"), "", &json!({}));
        }
        // Each argument and variable of the stdio server, in different encodings.
        for item in 0..30 {
            let tool = ["fail", "refuse"][item % 2];
            let arguments = json!({ "arguments": { "item": item, "how": item } });
            self.post(&server, &format!("/api/tools/repeats__{tool}/call"), "", &arguments);
            let arguments =
                json!({ "name": format!("repeats__{tool}"), "arguments": { "item": item, "how": item + 5 } });
            self.mcp(&server, "tools/call", arguments);
        }
        for (item, id) in ["web", "basic", "cookie"].into_iter().cycle().take(15).enumerate() {
            let arguments = json!({ "arguments": { "item": item / 3, "how": item } });
            self.post(&server, &format!("/api/tools/{id}__fail/call"), "", &arguments);
        }
        for (item, id) in ["api", "granted", "refused"].into_iter().cycle().take(18).enumerate() {
            let status = [400, 401, 403, 404, 429, 500][item % 6];
            let arguments = json!({ "arguments": { "status": status, "item": item / 3, "how": item } });
            self.post(&server, &format!("/api/tools/{id}__ask/call"), "", &arguments);
        }
        for item in [0, 7, 12] {
            let arguments = json!({ "arguments": { "item": item, "how": item } });
            self.post(&server, "/api/tools/repeats__fine/call", "", &arguments);
            self.post(&server, "/api/tools/repeats__crash/call", "", &arguments);
        }
        self.mcp(&server, "tools/list", json!({}));
        self.mcp(&server, "server/discover", json!({}));
        let added = json!({ "id": "added", "url": format!("http://me:{literal}@127.0.0.1:9/mcp?key={literal}") });
        self.post(&server, "/api/sources", &admin, &added);
        self.post(&server, "/api/sources/web/enable", &admin, &json!({}));
        for path in [
            "/api/sources",
            "/api/config",
            "/api/stats",
            "/api/tools",
            "/api/history",
            "/api/context",
            "/api/whoami",
            "/api/search?q=works",
            "/api/tools?format=openai",
            "/api/lock",
            "/metrics",
            "/readyz",
            "/healthz",
            "/",
            "/sources",
            "/tools",
            "/activity",
            "/tools/repeats__fail",
            "/api/tools/repeats__fail",
            "/api/tools/api__ask",
            "/tools/api__ask",
            "/api/openapi.json",
        ] {
            self.get(&server, path);
        }
        for id in ids.into_iter().chain(["added"]) {
            self.get(&server, &format!("/api/sources/{id}"));
            self.get(&server, &format!("/sources/{id}"));
        }
        let removed = request(&server.url, "DELETE", "/api/sources/added", &admin, "");
        self.outputs.add("DELETE /api/sources/added", format!("{removed:?}"));
        self.run_stdio_client();
        self.run_commands(literal);
        drop(server);
        self.outputs.add("events", events.into_text());
        self.outputs.add(format!("log of serve {level:?}"), fs::read(self.workspace.path("serve.log")).unwrap());
    }
}

/// The live event stream, read until the server ends.
pub(super) struct EventStream {
    pub(super) text: Arc<Mutex<Vec<u8>>>,
    pub(super) reader: thread::JoinHandle<()>,
}

impl EventStream {
    pub(super) fn connect(server: &ServeProcess) -> EventStream {
        let address = server.url.strip_prefix("http://").unwrap().to_owned();
        let mut stream = TcpStream::connect(&address).unwrap();
        stream.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
        stream.write_all(format!("GET /api/events HTTP/1.1\r\nHost: {address}\r\n\r\n").as_bytes()).unwrap();
        let text = Arc::<Mutex<Vec<u8>>>::default();
        let received = text.clone();
        let reader = thread::spawn(move || {
            let mut buffer = vec![0; 64 * 1024];
            while let Ok(count @ 1..) = stream.read(&mut buffer) {
                received.lock().extend_from_slice(&buffer[..count]);
            }
        });
        EventStream { text, reader }
    }

    pub(super) fn into_text(self) -> Vec<u8> {
        self.reader.join().unwrap();
        std::mem::take(&mut *self.text.lock())
    }
}

/// Returns all cells of the store except definitions, and those of the definitions.
pub(super) fn read_store(python: &Path, data: &Path) -> (Vec<u8>, Vec<u8>) {
    let dump = "import sqlite3, sys
c = sqlite3.connect(sys.argv[1])
c.text_factory = bytes
for (name,) in c.execute('select name from sqlite_master where type = ?', ('table',)).fetchall():
    name = name.decode()
    if (name == 'definitions') == (sys.argv[2] == 'definitions'):
        for row in c.execute('select * from \"%s\"' % name):
            for cell in row:
                sys.stdout.buffer.write(cell if isinstance(cell, bytes) else str(cell).encode())
                sys.stdout.buffer.write(b'\\n')";
    let read = |what: &str| {
        let database = data.join("toolcrib.db");
        let output = Command::new(python).args(["-c", dump]).arg(database).arg(what).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        output.stdout
    };
    (read("others"), read("definitions"))
}

pub(super) fn list_files(directory: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap().map(Result::unwrap) {
        if entry.file_type().unwrap().is_dir() { list_files(&entry.path(), files) } else { files.push(entry.path()) }
    }
}
