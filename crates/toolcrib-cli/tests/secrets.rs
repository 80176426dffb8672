//! Secrets of sources, in every place that takes one, through every command, route and page at three log levels: none of
//! them leaves Toolcrib, however it is encoded. The servers of this test repeat what they are given in errors, on stderr,
//! in their descriptions and when they crash.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod support;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;

use serde_json::{Value, json};
use toolcrib_testkit::rig;

use support::served::{PATIENCE, Place, Served, read};
use support::web::{MCP, request};

const JSON: &str = "Content-Type: application/json\r\n";
const LEVELS: [&[&str]; 3] = [&[], &["-v"], &["-vvv"]];

/// Everything that left Toolcrib, with the name of where it did.
#[derive(Default)]
struct Outputs {
    texts: Vec<(String, Vec<u8>)>,
    operations: usize,
}

impl Outputs {
    fn add(&mut self, name: impl Into<String>, bytes: impl Into<Vec<u8>>) {
        self.operations += 1;
        self.texts.push((name.into(), bytes.into()));
    }
}

/// A secret, and where it is given.
struct Canary {
    number: usize,
    value: String,
    /// Written into the configuration itself: its definition is stored with the source.
    is_literal: bool,
}

impl Canary {
    /// The part of it that nothing else can contain.
    fn core(&self) -> String {
        core(self.number)
    }

    /// What must not be found.
    fn needles(&self) -> Vec<String> {
        let core = self.core();
        let hex = |upper: bool| {
            let digits = core.bytes().map(|byte| format!("{byte:02x}")).collect::<String>();
            if upper { digits.to_uppercase() } else { digits }
        };
        // A cut message may show the beginning of it.
        let mut needles = vec![core[..8].to_owned(), hex(false), hex(true)];
        needles.extend((0..3).map(|before| within_base64(core.as_bytes(), before)));
        needles.push(core.bytes().map(|byte| format!("%{byte:02X}")).collect());
        needles
    }
}

fn core(number: usize) -> String {
    format!("c{number:02}Vb7qLwZ{number:02}kxT")
}

/// The characters of Base64 that stand for these bytes alone, with `before` others in front of them.
fn within_base64(bytes: &[u8], before: usize) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let bits: Vec<u8> = std::iter::repeat_n(0, before)
        .chain(bytes.iter().copied())
        .flat_map(|byte| (0..8).rev().map(move |bit| byte >> bit & 1))
        .collect();
    let letters: String = bits
        .chunks_exact(6)
        .map(|six| char::from(ALPHABET[usize::from(six.iter().fold(0, |value, bit| value << 1 | bit))]))
        .collect();
    letters[(before * 8).div_ceil(6)..].to_owned()
}

/// The process that plays all servers over HTTP, and the collector of traces.
struct Repeats {
    child: Child,
    port: u16,
}

impl Repeats {
    fn start(python: &Path, collected: &Path, granted: &str) -> Repeats {
        let mut command = Command::new(python);
        command.arg(script()).arg("http").arg(collected).env("GRANTED", granted).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        Repeats { child, port: line.trim().parse().unwrap() }
    }
}

impl Drop for Repeats {
    fn drop(&mut self) {
        let _gone = self.child.kill().and_then(|()| self.child.wait());
    }
}

fn script() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/secrets/repeats.py").canonicalize().unwrap()
}

fn python() -> Option<PathBuf> {
    let output = Command::new("python3").args(["-c", "import sys; print(sys.executable)"]).output().ok()?;
    output.status.success().then(|| PathBuf::from(String::from_utf8_lossy(&output.stdout).trim().to_owned()))
}

/// Hands out secrets in the ways that sources take them.
struct Canaries<'a> {
    place: &'a Path,
    all: Vec<Canary>,
    variables: Vec<(String, String)>,
}

impl Canaries<'_> {
    /// A value with a new secret in it: `*` stands for it.
    fn value(&mut self, shape: &str, is_literal: bool) -> String {
        let number = self.all.len() + 1;
        let value = shape.replace('*', &core(number));
        self.all.push(Canary { number, value: value.clone(), is_literal });
        value
    }

    fn literal(&mut self, shape: &str) -> String {
        self.value(shape, true)
    }

    fn env(&mut self, shape: &str) -> String {
        let value = self.value(shape, false);
        let name = format!("GIVEN_{}", self.all.len());
        self.variables.push((name.clone(), value));
        format!("${{env:{name}}}")
    }

    fn default(&mut self, shape: &str) -> String {
        format!("${{env:NOT_SET_ANYWHERE:-{}}}", self.value(shape, true))
    }

    fn file(&mut self, shape: &str) -> String {
        let value = self.value(shape, false);
        // Outside of the data directory, which is searched.
        let path = self.place.join(format!("given_{}", self.all.len()));
        fs::write(&path, format!("{value}\n")).unwrap();
        format!("${{file:{}}}", path.display())
    }

    /// A directory whose name is secret.
    fn directory(&mut self) -> String {
        let path = self.value(&format!("{}/d-*", self.place.display()), false);
        fs::create_dir_all(&path).unwrap();
        let name = format!("GIVEN_{}", self.all.len());
        self.variables.push((name.clone(), path));
        format!("${{env:{name}}}")
    }
}

const KEY: &str = "-----BEGIN PRIVATE KEY-----\nMIIEvQ*\nAASCBKcw\n-----END PRIVATE KEY-----";

fn sources(given: &mut Canaries<'_>, python: &Path, port: u16) -> Value {
    let http = format!("http://127.0.0.1:{port}");
    let script = script().to_string_lossy().into_owned();
    let cwd = given.directory();
    let programs = given.directory();
    let linked = Path::new(&given.all[1].value).join("python3");
    symlink(python, linked).unwrap();
    given.variables.push(("S_INHERITED".to_owned(), String::new()));
    let inherited = given.value("*", false);
    if let Some((_, value)) = given.variables.iter_mut().find(|(name, _)| name == "S_INHERITED") {
        *value = inherited;
    }
    let repeats = json!({
        "command": format!("{programs}/python3"),
        "cwd": cwd,
        "inherit_env": ["S_INHERITED"],
        "args": [
            script, "stdio",
            given.env("*"),
            "--token", given.env("*=="),
            format!("--token={}", given.env("a/b+*=")),
            format!("NAME={}", given.env("it's \"*\" \\ & more")),
            given.file("*"),
            given.default("*"),
            "--token", given.literal("*="),
            given.literal("--api-key=*=="),
            "-H", given.literal("Authorization: Bearer *"),
            "-e", given.literal("NAME=*"),
            given.literal("postgres://me:*@db.example/x"),
            given.literal("https://h.example/x?page=*"),
            given.literal(r#"{"apiKey":"*"}"#),
            given.literal("ghp_*0123456789"),
        ],
        "env": {
            "S_PLAIN": given.env("*"),
            "S_LOGIN": given.env("me:*"),
            "S_KEY": given.env(KEY),
            "S_JSON": given.env(r#"{"client":"x","secret":"*"}"#),
            "S_BEARER": format!("Bearer {}", given.env("*")),
            "S_FILE": given.file(r#"{"private_key":"-----BEGIN\n*\n-----END","n":1}"#),
            "S_DOTENV": given.file("A=1\nTOKEN='*'"),
            "S_LITERAL": given.literal("*"),
            "S_PASSWORD": given.literal("pw *"),
            "S_DEFAULT": given.default("*"),
            "S_ADDRESS": given.env("https://hooks.example/services/*/x"),
        },
    });
    json!({
        "repeats": repeats,
        "broken": {
            "command": python, "args": [script, "broken", given.env("*"), given.literal("--password=*")],
            "env": { "S_A": given.env("*") },
        },
        "absent": { "command": given.env("/nowhere/*"), "args": [given.env("*")] },
        "web": {
            "url": format!("http://{}:{}@127.0.0.1:{port}/mcp/{}?key={}&page={}", given.env("u*"), given.env("p*"),
                given.env("*"), given.env("q*&="), given.literal("*")),
            "headers": { "X-Tenant": given.env("*"), "X-Literal": given.literal("*") },
            "auth": { "bearer": given.env("*") },
        },
        "basic": { "url": format!("{http}/mcp"), "auth": { "basic": { "user": given.env("*"), "password": given.file("*:x") } } },
        "cookie": { "url": format!("{http}/mcp"), "auth": { "api_key": { "name": "sid", "in": "cookie", "value": given.env("*") } } },
        "denied": { "url": format!("{http}/denied/{}", given.env("*")), "headers": { "X-Key": given.env("* *") } },
        "hosted": { "url": format!("https://{}.invalid/mcp", given.env("*")) },
        "whole": { "url": given.env(&format!("{http}/denied/*?x=y")) },
        "api": {
            "openapi": format!("{http}/doc?key={}", given.env("*")), "base_url": format!("{http}/{}", given.env("*")),
            "headers": { "X-Account": "{{ account }}" }, "variables": { "account": given.env("*") },
            "auth": { "api_key": { "name": "key", "in": "query", "value": given.env("* /?") } }, "allow_private": true,
        },
        "granted": {
            "openapi": "api.json", "base_url": http, "allow_private": true,
            "auth": { "oauth2": { "token_url": format!("{http}/token"), "client_id": given.env("*"), "client_secret": given.env("*&=") } },
        },
        "refused": {
            "openapi": "api.json", "base_url": http, "allow_private": true,
            "auth": { "oauth2": { "token_url": format!("{http}/token/bad"), "client_id": "me", "client_secret": given.literal("*") } },
        },
    })
}

struct Run<'a> {
    place: &'a Place,
    variables: Vec<(String, String)>,
    level: &'static [&'static str],
    outputs: Outputs,
}

impl Run<'_> {
    fn command(&mut self, arguments: &[&str]) -> String {
        let arguments = [arguments, self.level].concat();
        let mut command = self.place.toolcrib(&arguments);
        command.envs(self.variables.iter().map(|(name, value)| (name, value))).stdin(Stdio::null());
        let output = command.output().unwrap();
        let name = arguments.join(" ");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        self.outputs.add(format!("stdout of `{name}`"), output.stdout);
        self.outputs.texts.push((format!("stderr of `{name}`"), output.stderr));
        text
    }

    /// What a client on stdio gets to read.
    fn stdio_client(&mut self) {
        let mut command = self.place.toolcrib(&[&["mcp", "--mode", "full"], self.level].concat());
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

    fn commands(&mut self, literal: &str) {
        let url = format!("http://me:{literal}@127.0.0.1:9/mcp?key={literal}");
        self.command(&["add", "late", "--url", &url, "--header", &format!("X-Key={literal}")]);
        self.command(&["export"]);
        self.command(&["remove", "late"]);
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
            self.command(arguments);
        }
    }

    fn get(&mut self, served: &Served, path: &str) {
        let answer = request(&served.url, "GET", path, "Accept: */*\r\n", "");
        self.outputs.add(format!("GET {path}"), format!("{answer:?}"));
    }

    fn post(&mut self, served: &Served, path: &str, headers: &str, body: &Value) {
        let answer = request(&served.url, "POST", path, &format!("{JSON}{headers}"), &body.to_string());
        self.outputs.add(format!("POST {path} {body}"), format!("{answer:?}"));
    }

    fn mcp(&mut self, served: &Served, method: &str, mut params: Value) {
        params["_meta"] = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
            "io.modelcontextprotocol/clientInfo": { "name": "test", "version": "1" },
        });
        let name = params["name"].as_str().map(|name| format!("Mcp-Name: {name}\r\n")).unwrap_or_default();
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params }).to_string();
        let answer =
            request(&served.url, "POST", "/mcp?mode=full", &format!("{MCP}Mcp-Method: {method}\r\n{name}"), &body);
        self.outputs.add(format!("MCP {method} {body}"), format!("{answer:?}"));
    }

    fn served(&mut self, literal: &str) {
        let level = self.level;
        let variables: Vec<(&str, &str)> = self.variables.iter().map(|(name, value)| (&**name, &**value)).collect();
        let served = self.place.started_with(&[&["serve", "--listen", "127.0.0.1:0"], level].concat(), &variables);
        let events = Events::watch(&served);
        let admin = format!("Authorization: Bearer {}\r\n", read(&self.place.path("data/admin.token")).trim());
        let ids =
            ["repeats", "broken", "absent", "web", "basic", "cookie", "denied", "hosted", "whole", "api", "granted"];
        for id in ids {
            self.post(&served, &format!("/api/sources/{id}/refresh?force=true"), "", &json!({}));
        }
        // Each argument and variable of the server on stdio, each in another way.
        for item in 0..30 {
            let tool = ["fail", "refuse"][item % 2];
            let arguments = json!({ "arguments": { "item": item, "how": item } });
            self.post(&served, &format!("/api/tools/repeats__{tool}/call"), "", &arguments);
            let arguments =
                json!({ "name": format!("repeats__{tool}"), "arguments": { "item": item, "how": item + 5 } });
            self.mcp(&served, "tools/call", arguments);
        }
        for (item, id) in ["web", "basic", "cookie"].into_iter().cycle().take(15).enumerate() {
            let arguments = json!({ "arguments": { "item": item / 3, "how": item } });
            self.post(&served, &format!("/api/tools/{id}__fail/call"), "", &arguments);
        }
        for (item, id) in ["api", "granted", "refused"].into_iter().cycle().take(18).enumerate() {
            let status = [400, 401, 403, 404, 429, 500][item % 6];
            let arguments = json!({ "arguments": { "status": status, "item": item / 3, "how": item } });
            self.post(&served, &format!("/api/tools/{id}__ask/call"), "", &arguments);
        }
        for item in [0, 7, 12] {
            let arguments = json!({ "arguments": { "item": item, "how": item } });
            self.post(&served, "/api/tools/repeats__fine/call", "", &arguments);
            self.post(&served, "/api/tools/repeats__crash/call", "", &arguments);
        }
        self.mcp(&served, "tools/list", json!({}));
        self.mcp(&served, "server/discover", json!({}));
        let added = json!({ "id": "added", "url": format!("http://me:{literal}@127.0.0.1:9/mcp?key={literal}") });
        self.post(&served, "/api/sources", &admin, &added);
        self.post(&served, "/api/sources/web/enable", &admin, &json!({}));
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
            self.get(&served, path);
        }
        for id in ids.into_iter().chain(["added"]) {
            self.get(&served, &format!("/api/sources/{id}"));
            self.get(&served, &format!("/sources/{id}"));
        }
        let removed = request(&served.url, "DELETE", "/api/sources/added", &admin, "");
        self.outputs.add("DELETE /api/sources/added", format!("{removed:?}"));
        self.stdio_client();
        self.commands(literal);
        drop(served);
        self.outputs.add("events", events.end());
        self.outputs.add(format!("log of serve {level:?}"), fs::read(self.place.path("serve.log")).unwrap());
    }
}

/// The stream of live events, read until the server ends.
struct Events {
    text: Arc<Mutex<Vec<u8>>>,
    reader: thread::JoinHandle<()>,
}

impl Events {
    fn watch(served: &Served) -> Events {
        let address = served.url.strip_prefix("http://").unwrap().to_owned();
        let mut stream = TcpStream::connect(&address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(format!("GET /api/events HTTP/1.1\r\nHost: {address}\r\n\r\n").as_bytes()).unwrap();
        let text = Arc::<Mutex<Vec<u8>>>::default();
        let into = text.clone();
        let reader = thread::spawn(move || {
            let mut buffer = vec![0; 64 * 1024];
            while let Ok(count @ 1..) = stream.read(&mut buffer) {
                into.lock().unwrap().extend_from_slice(&buffer[..count]);
            }
        });
        Events { text, reader }
    }

    fn end(self) -> Vec<u8> {
        self.reader.join().unwrap();
        std::mem::take(&mut *self.text.lock().unwrap())
    }
}

/// Every cell of the store but the definitions, and those apart.
fn stored(python: &Path, data: &Path) -> (Vec<u8>, Vec<u8>) {
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

fn files(directory: &Path, into: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap().map(Result::unwrap) {
        match entry.file_type().unwrap().is_dir() {
            true => files(&entry.path(), into),
            false => into.push(entry.path()),
        }
    }
}

/// Adds to `found` which of the secrets are in the text, and where.
fn search(canaries: &[Canary], name: &str, bytes: &[u8], found: &mut Vec<String>) {
    let text = String::from_utf8_lossy(bytes);
    for canary in canaries {
        for needle in canary.needles() {
            if let Some(at) = text.find(&needle) {
                let around = &text.as_bytes()[at.saturating_sub(300)..text.len().min(at + 200)];
                let (number, value) = (canary.number, &canary.value);
                found.push(format!("secret {number} (`{value}`) is in {name}:\n{}", String::from_utf8_lossy(around)));
            }
        }
    }
}

#[test]
fn no_secret_of_a_source_leaves_toolcrib() {
    let Some(python) = python() else { return rig::skip("secrets", "no Python") };
    let place = Place::new(&json!({}), &json!({}));
    let collected = place.path("traces");
    // What is to be searched is below `data`; the secrets themselves lie beside it.
    let beside = place.path("beside");
    fs::create_dir(&beside).unwrap();
    let mut given = Canaries { place: &beside, all: Vec::new(), variables: Vec::new() };
    let granted = given.value("*", false);
    given.all.clear();
    let repeats = Repeats::start(&python, &collected, &granted.replace("c01", "c99").replace("01k", "99k"));
    let sources = sources(&mut given, &python, repeats.port);
    let added = given.literal("*");
    let proxy = given.value("http://me:*@127.0.0.1:9", false);
    let Canaries { mut all, mut variables, .. } = given;
    all.push(Canary { number: 99, value: core(99), is_literal: false });
    assert!(all.len() >= 47, "{} secrets", all.len());
    place.configure(&sources, &json!({}));
    let parameter = |name: &str| json!({ "name": name, "in": "query", "schema": { "type": "integer" } });
    let parameters = ["status", "item", "how"].map(parameter);
    let operation =
        json!({ "operationId": "ask", "parameters": parameters, "responses": { "200": { "description": "done" } } });
    let document = json!({ "openapi": "3.1.0", "info": { "title": "R", "version": "1" }, "paths": { "/ask": { "get": operation } } });
    fs::write(place.path("api.json"), document.to_string()).unwrap();
    variables.extend([
        ("https_proxy".to_owned(), proxy),
        ("no_proxy".to_owned(), "127.0.0.1".to_owned()),
        ("OTEL_EXPORTER_OTLP_ENDPOINT".to_owned(), format!("http://127.0.0.1:{}", repeats.port)),
    ]);

    // A log that others may read is made private again.
    fs::create_dir_all(place.path("data/logs")).unwrap();
    fs::set_permissions(place.path("data"), fs::Permissions::from_mode(0o700)).unwrap();
    fs::set_permissions(place.path("data/logs"), fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(place.path("data/logs/repeats.log"), "").unwrap();
    fs::set_permissions(place.path("data/logs/repeats.log"), fs::Permissions::from_mode(0o644)).unwrap();

    let mut run = Run { place: &place, variables, level: &[], outputs: Outputs::default() };
    for level in LEVELS {
        run.level = level;
        run.served(&added);
    }
    let Outputs { texts, operations } = run.outputs;
    assert!(operations >= 300, "{operations} operations");
    let mut found = Vec::new();
    for (name, bytes) in &texts {
        search(&all, name, bytes, &mut found);
    }
    // The servers were reached and did repeat what they got.
    let told = |wanted: &str| texts.iter().any(|(_, bytes)| String::from_utf8_lossy(bytes).contains(wanted));
    for wanted in ["failed: ***", "refused: ***", "fatal: ***", "got ***", "Works with ***"] {
        assert!(told(wanted), "`{wanted}` was never told");
    }

    let (others, definitions) = stored(&python, &place.path("data"));
    search(&all, "the store", &others, &mut found);
    let (literals, references): (Vec<Canary>, Vec<Canary>) = all.into_iter().partition(|canary| canary.is_literal);
    search(&references, "the definitions", &definitions, &mut found);
    let mut below = Vec::new();
    files(&place.path("data"), &mut below);
    for path in below {
        let bytes = fs::read(&path).unwrap();
        search(&references, &path.display().to_string(), &bytes, &mut found);
        // Only the row of a source's definition holds what was written into the configuration.
        if !path.file_name().unwrap().to_string_lossy().starts_with("toolcrib.db") {
            search(&literals, &path.display().to_string(), &bytes, &mut found);
        }
    }
    let traces = fs::read(&collected).unwrap();
    assert!(!traces.is_empty(), "no traces were exported");
    search(&references, "the traces", &traces, &mut found);
    search(&literals, "the traces", &traces, &mut found);
    assert!(found.is_empty(), "{} times:\n{}", found.len(), found[..found.len().min(20)].join("\n\n"));

    let mode = |name: &str| fs::metadata(place.path(name)).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode("data/logs"), mode("data/logs/repeats.log"), mode("data/logs/broken.log")), (0o700, 0o600, 0o600));
}

#[test]
fn an_export_masks_literals_unless_they_are_asked_for() {
    let place = Place::new(
        &json!({
            "one": { "command": "server", "args": ["--token", "abc=", "${env:BARE}"], "env": { "A": "literal-value" } },
            "two": { "url": "https://me:pw@h.example/mcp?key=abc&t=${env:T}", "auth": { "bearer": "${env:T}" } },
        }),
        &json!({}),
    );
    let run = |arguments: &[&str]| {
        let output = place.toolcrib(arguments).stdin(Stdio::null()).output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (output.status.code(), text(output.stdout), text(output.stderr))
    };
    let (code, masked, hints) = run(&["export", "--json"]);
    assert_eq!(code, Some(0));
    let exported: Value = serde_json::from_str(&masked).unwrap();
    assert_eq!(exported["sources"]["one"]["args"], json!(["--token", "***", "${env:BARE}"]));
    assert_eq!(exported["sources"]["one"]["env"], json!({ "A": "***" }));
    assert_eq!(exported["sources"]["two"]["url"], "https://***@h.example/mcp?key=***&t=${env:T}");
    assert_eq!(exported["sources"]["two"]["auth"], json!({ "bearer": "${env:T}" }));
    assert!(hints.contains("`args[1]`, `env.A` of `one`") && hints.contains("`url` of `two`"), "{hints}");
    assert!(hints.contains("--secrets"), "{hints}");

    // A masked export is a configuration that can be read.
    let (_, yaml, _) = run(&["export"]);
    fs::write(place.path("toolcrib.json"), &masked).unwrap();
    assert_eq!(run(&["export"]).1, yaml);
    place.configure(&exported["sources"], &json!({}));
    assert!(!run(&["sources"]).1.contains("failed"));
}

#[test]
fn literals_are_exported_with_secrets() {
    let place = Place::new(&json!({ "one": { "command": "server", "env": { "A": "literal-value" } } }), &json!({}));
    let output = place.toolcrib(&["export", "--secrets"]).stdin(Stdio::null()).output().unwrap();
    assert!(String::from_utf8_lossy(&output.stdout).contains("literal-value"));
    assert!(String::from_utf8_lossy(&output.stderr).contains("keep the file safe"));
}

#[test]
fn the_link_to_the_console_is_not_printed_into_a_file() {
    let place = Place::new(&json!({}), &json!({}));
    let mut command = place.toolcrib(&["serve", "--listen", "127.0.0.1:0"]);
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let listening = lines.next().unwrap();
    let console = lines.next().unwrap();
    let hint = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok).next().unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    let url = listening.strip_prefix("listening on ").unwrap();
    assert_eq!(console, format!("console at {url}/"));
    assert!(hint.contains("admin.token") && !hint.contains("key="), "{hint}");
    assert_eq!(lines.next(), None);
}
