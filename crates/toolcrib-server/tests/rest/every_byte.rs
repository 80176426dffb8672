//! One test collects every byte that clients get over REST, MCP, event streams, search and the console, and finds nothing of
//! the tools that they may not know of: no name, text or count.

use std::path::Path;
use std::sync::Arc;

use serde_json::{Value, json};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use toolcrib::config::Config;
use toolcrib::core::features::{ByFeatureKind, OfferedFeatures, OfferedList};
use toolcrib::core::json::to_exact_raw;
use toolcrib::testkit::{ScriptedReply, ScriptedSource};
use toolcrib::{Refresh, RegistryOptions, SourceId};

use super::scopes::operation_paths;
use super::support::{RawHttpResponse, RestTestServer, TEST_TIMEOUT, start_with};

/// Words of what the clients may not know of: names, descriptions, parameters, values, tags, prompts, resources, rules.
const HIDDEN_WORDS: [&str; 18] = [
    "refund",
    "zebrafish",
    "narwhal",
    "quetzal",
    "okapi",
    "pangolin",
    "kakapo",
    "reopen",
    "unlock",
    "vault",
    "axolotl",
    "ibex",
    "tapir",
    "vicuna",
    "jerboa",
    "gharial",
    "quokka",
    "secret",
];

/// The source `shop`, of which clients see `order` alone.
const SHOP: &str = "expose: { essential: [shop__refund] }
sources:
  shop: { command: x, tools: { refund: ask }, essential: [refund] }
";
/// Sources and rules that clients may not know of, and the group of the token `ada`.
const HIDDEN: &str =
    "  vault: { command: x, title: Ibex, tags: [axolotl], tools: { unlock: ask }, essential: [unlock] }
  gharial: { command: x }
groups:
  desk: { select: [{ source: shop, name: order }], instructions: Words for the desk., essential: [order], mode: search }
  empty: { tools: [shop__quokka] }
  secrets: { select: [{ source: vault }], instructions: Words for quokkas. }
policies:
  - { name: secret-tools, match: { name: 're*', when: [{ claim: caller.token, equals: bob }] }, verdict: hide }
  - { name: secret-vault, match: { source: vault, when: [{ claim: caller.token, equals: bob }] }, verdict: deny }
  - { name: secret-gharial, match: { source: gharial, when: [{ claim: caller.token, equals: bob }] }, verdict: hide }
";

fn order(description: &str) -> Value {
    json!({ "name": "order", "description": description, "inputSchema": {
        "type": "object", "properties": { "sku": { "type": "string", "enum": ["lamp", "chair"] } } } })
}

fn refund(description: &str) -> Value {
    json!({ "name": "refund", "title": "Narwhal", "description": description, "inputSchema": {
        "type": "object", "properties": { "quetzal": { "type": "string", "enum": ["okapi"] } }, "required": ["quetzal"] } })
}

fn features(instructions: &str, prompt: &str, resource: &str, template: &str) -> OfferedFeatures {
    let list = |item: Value| match item["name"].as_str() {
        Some("") => OfferedList::default(),
        _ => OfferedList::Items(vec![to_exact_raw(&item).unwrap()]),
    };
    let lists = ByFeatureKind {
        prompts: list(json!({ "name": prompt, "description": "A prompt" })),
        resources: list(json!({ "name": resource, "uri": format!("{resource}://one") })),
        resource_templates: list(json!({ "name": template, "uriTemplate": format!("{template}://{{name}}") })),
    };
    OfferedFeatures { lists, instructions: Some(instructions.to_owned()), ..OfferedFeatures::default() }
}

struct HidingServer {
    server: RestTestServer,
    shop: Arc<ScriptedSource>,
    vault: Arc<ScriptedSource>,
}

/// Starts a server on which most is hidden. One hidden tool was removed, one source cannot be discovered.
async fn start_hiding() -> HidingServer {
    let shop = ScriptedSource::new([order("Orders a lamp"), refund("Zebrafish"), json!("reopen")]);
    shop.set_features(features("Buy lamps here. `refund` returns a pangolin.", "", "", ""));
    shop.set_reply(|tool, _| match tool {
        "refund" => ScriptedReply::Disconnected("`refund` of `shop` failed: kakapo".into()),
        _ => json!("ordered").into(),
    });
    let vault = ScriptedSource::new(["unlock"]);
    vault.set_features(features("Mind the jerboa.", "tapir", "vicuna", "jerboa"));
    let gharial = ScriptedSource::new(["swim"]);
    gharial.fail("the gharial sleeps");
    let config = Config::read(&format!("{SHOP}{HIDDEN}"), "toolcrib.yaml", Path::new("/")).unwrap();
    let sources = [("shop", &shop), ("vault", &vault), ("gharial", &gharial)];
    let server = start_with(config, RegistryOptions::default(), &sources).await;
    let fixture = HidingServer { server, shop, vault };
    fixture.refresh().await;
    fixture.set_tools("Orders a lamp", "Zebrafish").await;
    fixture
}

/// Starts a server that has nothing but what the clients see of the other one.
async fn start_reference() -> RestTestServer {
    let shop = ScriptedSource::new([order("Orders a lamp")]);
    shop.set_features(features("Buy lamps here.", "", "", ""));
    let config = Config::read(SHOP, "toolcrib.yaml", Path::new("/")).unwrap();
    let server = start_with(config, RegistryOptions::default(), &[("shop", &shop)]).await;
    server.registry.refresh(Refresh::default()).await;
    server
}

impl HidingServer {
    async fn refresh(&self) {
        let sources = ["shop", "vault"].map(|id| SourceId::parse(id).unwrap());
        let refresh = Refresh { sources: Some(sources.into()), force: true, ..Refresh::default() };
        self.server.registry.refresh(refresh).await;
    }

    async fn set_tools(&self, of_order: &str, of_refund: &str) {
        self.shop.set_tools([order(of_order), refund(of_refund)]);
        self.vault.set_tools([json!({ "name": "unlock", "description": of_refund })]);
        self.refresh().await;
    }

    /// Lets a call of the hidden tool fail, so that the error is the last one of its source.
    async fn fail_hidden_call(&self) {
        let body = json!({ "arguments": { "quetzal": "okapi" }, "yes": true });
        let failed = self.server.send_as_admin("POST", "/api/tools/shop__refund/call", &body).await;
        assert!(failed.body.contains("kakapo"), "{failed:?}");
        let source = self.server.send_as_admin("GET", "/api/sources/shop", &Value::Null).await;
        assert!(source.body.contains("kakapo"), "{source:?}");
    }
}

/// A client and what it got.
struct Client<'a> {
    server: &'a RestTestServer,
    /// Header line with the token.
    headers: String,
    /// Every response, with the request that it answers.
    responses: Vec<(String, String)>,
    /// Open streams, with their paths.
    streams: Vec<(String, TcpStream)>,
}

impl<'a> Client<'a> {
    async fn new(server: &'a RestTestServer, token: Value) -> Client<'a> {
        let created = server.send_as_admin("POST", "/api/tokens", &token).await.expect_json(201);
        let headers = format!("Authorization: Bearer {}\r\n", created["token"].as_str().unwrap());
        Client { server, headers, responses: Vec::new(), streams: Vec::new() }
    }

    async fn send(&mut self, method: &str, path: &str, headers: &str, body: &str) -> RawHttpResponse {
        let headers = format!("{}{headers}", self.headers);
        let response = self.server.send(method, path, &headers, body).await;
        self.responses.push((format!("{method} {path} {body}"), format!("{response:?}")));
        response
    }

    async fn get(&mut self, path: &str) -> RawHttpResponse {
        self.send("GET", path, "", "").await
    }

    async fn post(&mut self, path: &str, body: &Value) -> RawHttpResponse {
        self.send("POST", path, "Content-Type: application/json\r\n", &body.to_string()).await
    }

    async fn open_stream(&mut self, method: &str, path: &str, headers: &str, body: &str) {
        let headers = format!("{}{headers}", self.headers);
        let stream = self.server.start_request(method, path, &headers, body).await;
        self.streams.push((path.to_owned(), stream));
    }

    /// Opens a session of the legacy era; returns the header lines of its requests and the result of `initialize`.
    async fn open_session(&mut self, path: &str) -> (String, Value) {
        let headers = "Content-Type: application/json\r\nAccept: application/json, text/event-stream\r\n\
                       MCP-Protocol-Version: 2025-06-18\r\n";
        let params = json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": { "name": "t", "version": "0" } });
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params }).to_string();
        let opened = self.send("POST", path, headers, &body).await;
        let id = opened.header("mcp-session-id").unwrap();
        (format!("{headers}Mcp-Session-Id: {id}\r\n"), opened.json()["result"].clone())
    }

    /// Sends a request in a session, or one of the modern era; returns the result, or the error.
    async fn request(&mut self, path: &str, session: Option<&str>, method: &str, mut params: Value) -> Value {
        let headers = match session {
            Some(session) => session.to_owned(),
            None => {
                params["_meta"] = json!({
                    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                    "io.modelcontextprotocol/clientCapabilities": {},
                });
                modern_headers(method, &params)
            }
        };
        let body = json!({ "jsonrpc": "2.0", "id": 7, "method": method, "params": params }).to_string();
        let response = self.send("POST", path, &headers, &body).await;
        let body = response.body.trim();
        // A response of an event stream is its last event.
        let text = body.lines().rev().find_map(|line| line.strip_prefix("data: ")).unwrap_or(body);
        let response: Value = serde_json::from_str(text).unwrap();
        response.get("result").unwrap_or(&response["error"]).clone()
    }

    async fn call_tool(&mut self, path: &str, session: Option<&str>, name: &str, arguments: Value) -> Value {
        self.request(path, session, "tools/call", json!({ "name": name, "arguments": arguments })).await
    }

    /// Fails if a response has a hidden word that the request does not have.
    fn check_responses(&self, name: &str) {
        for (request, response) in &self.responses {
            let (request, response) = (request.to_lowercase(), response.to_lowercase());
            for word in HIDDEN_WORDS.iter().filter(|word| !request.contains(**word)) {
                assert!(!response.contains(word), "`{word}` for {name}: {request}\n{response}");
            }
        }
    }
}

fn modern_headers(method: &str, params: &Value) -> String {
    let name = params["name"].as_str().or(params["uri"].as_str());
    let name = name.map(|name| format!("Mcp-Name: {name}\r\n")).unwrap_or_default();
    format!(
        "Content-Type: application/json\r\nAccept: application/json, text/event-stream\r\n\
         MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: {method}\r\n{name}"
    )
}

/// Reads all of REST and the console.
async fn read_rest(client: &mut Client<'_>) {
    let mut paths = operation_paths(client.server, "get", "shop", "shop__order").await;
    paths.retain(|path| path != "/api/events" && !path.starts_with("/api/search"));
    let others = [
        "/api/search?q=lamp+spare&limit=50",
        "/api/tools?state=deprecated",
        "/api/tools?state=disabled",
        "/api/tools?order=calls",
        "/api/tools?order=tokens",
        "/api/tools?format=mcp",
        "/api/tools?format=openai",
        "/api/tools?format=anthropic",
        "/api/tools?group=desk",
        "/api/history?after=0",
        "/api/history?after=0&format=cloudevents",
        "/api/history?source=shop",
        "/api/history?tool=shop__order",
        "/api/nothing",
        "/healthz",
        "/readyz",
        "/metrics",
        "/",
        "/sources",
        "/sources/shop",
        "/tools",
        "/tools?q=lamp",
        "/tools/shop__order",
        "/activity",
        "/access",
        "/access/callers",
        "/login",
        "/nothing",
    ];
    for path in paths.iter().map(String::as_str).chain(others) {
        client.get(path).await;
    }
    let lockfile = client.get("/api/lock").await;
    if lockfile.status == 200 {
        client.post("/api/diff", &lockfile.json()).await;
    }
    for path in ["/api/refresh", "/api/sources/shop/refresh?force=true", "/refresh", "/sources/shop/refresh"] {
        client.send("POST", path, "Content-Type: application/x-www-form-urlencoded\r\n", "").await;
    }
    client.post("/api/explain", &json!({ "tool": "shop__order" })).await;
    client.post("/api/tools/shop__order/call", &json!({ "arguments": { "sku": 5 } })).await;
    client.post("/api/tools/shop__order/call", &json!({ "arguments": { "sku": "lamp" } })).await;
    client.post("/api/tools/shop__ordre/call", &json!({})).await;
    let form = "Content-Type: application/x-www-form-urlencoded\r\n";
    client.send("POST", "/tools/shop__order/call", form, "sku=lamp").await;
}

/// Reads all of MCP at one URL, in a session or without. Streams of notifications stay open.
async fn read_mcp(client: &mut Client<'_>, path: &str, session: Option<&str>) {
    if session.is_none() {
        client.request(path, session, "server/discover", json!({})).await;
    }
    for method in ["tools/list", "prompts/list", "resources/list", "resources/templates/list", "nothing"] {
        client.request(path, session, method, json!({})).await;
    }
    let about = json!({ "ref": { "type": "ref/prompt", "name": "x" }, "argument": { "name": "a", "value": "" } });
    client.request(path, session, "completion/complete", about).await;
    for query in ["", "lamp spare", "ordre", "anything at all"] {
        client.call_tool(path, session, "search_tools", json!({ "query": query, "limit": 50 })).await;
    }
    for names in [json!(["shop__order"]), json!(["shop__ordre", "calculate"])] {
        client.call_tool(path, session, "describe_tools", json!({ "names": names, "full": true })).await;
    }
    for name in ["shop__order", "order", "shop__ordre", "x"] {
        client.call_tool(path, session, "call_tool", json!({ "name": name, "arguments": { "sku": 1 } })).await;
        client.call_tool(path, session, name, json!({ "sku": "lamp" })).await;
    }
    match session {
        Some(session) => client.open_stream("GET", path, session, "").await,
        None => {
            let params = json!({
                "notifications": { "toolsListChanged": true, "promptsListChanged": true, "resourcesListChanged": true },
                "_meta": { "io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {} },
            });
            let headers = modern_headers("subscriptions/listen", &params);
            let body = json!({ "jsonrpc": "2.0", "id": 9, "method": "subscriptions/listen", "params": params });
            client.open_stream("POST", path, &headers, &body.to_string()).await;
        }
    }
}

/// Checks that hidden names get the responses of names that do not exist.
async fn compare_with_unknown_names(client: &mut Client<'_>) {
    let sources = [("vault", "vaxlt"), ("gharial", "ghaxial")];
    for (hidden, unknown) in [("shop__refund", "shop__refuzd"), ("shop__reopen", "shop__reopez")] {
        for path in ["/api/tools/NAME", "/api/tools/NAME/history", "/api/history?tool=NAME", "/tools/NAME"] {
            let answers = [hidden, unknown].map(|name| path.replace("NAME", name));
            expect_equal(client, "GET", answers, (hidden, unknown)).await;
        }
        let paths = [hidden, unknown].map(|name| format!("/api/tools/{name}/call"));
        expect_equal(client, "POST", paths, (hidden, unknown)).await;
        for tool in ["call_tool", "describe_tools"] {
            let mut results = Vec::new();
            for name in [hidden, unknown] {
                let arguments = json!({ "name": name, "names": [name], "arguments": {} });
                let result = client.call_tool("/mcp", None, tool, arguments).await;
                results.push(result.to_string().replace(name, "NAME"));
            }
            assert_eq!(results[0], results[1], "{tool}");
        }
    }
    for (hidden, unknown) in sources {
        for path in ["/api/sources/NAME", "/api/tools?source=NAME", "/api/history?source=NAME", "/sources/NAME"] {
            let paths = [hidden, unknown].map(|name| path.replace("NAME", name));
            expect_equal(client, "GET", paths, (hidden, unknown)).await;
        }
    }
    let paths = ["/api/tools/gharial__swim/call", "/api/tools/ghaxial__swim/call"].map(str::to_owned);
    expect_equal(client, "POST", paths, ("gharial", "ghaxial")).await;
}

async fn expect_equal(client: &mut Client<'_>, method: &str, paths: [String; 2], names: (&str, &str)) {
    let hidden = client.send(method, &paths[0], "", "").await;
    let unknown = client.send(method, &paths[1], "", "").await;
    assert_eq!(
        (hidden.status, hidden.body.replace(names.0, "NAME")),
        (unknown.status, unknown.body.replace(names.1, "NAME")),
        "{method} {}",
        paths[0]
    );
    assert_eq!(hidden.status, 404, "{method} {}: {hidden:?}", paths[0]);
}

/// Reads the responses that do not tell times. They are the same on both servers.
async fn read_comparable(client: &mut Client<'_>) -> Vec<String> {
    let mut responses = Vec::new();
    for path in [
        "/api/tools?format=mcp",
        "/api/tools?format=openai",
        "/api/tools?format=anthropic",
        "/api/tools?names=shop__*&format=gemini",
        "/api/context",
        "/api/context?budget=100",
        "/api/search?q=order+lamp",
    ] {
        responses.push(client.get(path).await.body);
    }
    let tool_count = client.get("/api/stats").await.expect_json(200)["tool_count"].to_string();
    let mut source = client.get("/api/sources/shop").await.expect_json(200);
    let source = ["tool_count", "tools", "set_aside", "instructions", "prompt_count"].map(|key| source[key].take());
    responses.extend([tool_count, json!(source).to_string()]);
    for path in ["/mcp", "/mcp?mode=full", "/mcp?mode=search", "/mcp?tools=*o*"] {
        let (session, initialized) = client.open_session(path).await;
        responses.push(initialized.to_string());
        responses.push(client.request(path, Some(&session), "tools/list", json!({})).await.to_string());
        responses.push(client.request(path, Some(&session), "prompts/list", json!({})).await.to_string());
        let found =
            client.call_tool(path, Some(&session), "search_tools", json!({ "query": "order refund lamp" })).await;
        responses.push(found.to_string());
        let discovered = client.request(path, None, "server/discover", json!({})).await;
        responses.push(json!([discovered["instructions"], discovered["capabilities"]]).to_string());
    }
    responses
}

#[tokio::test]
async fn no_byte_tells_of_a_tool_that_its_reader_may_not_know_of() {
    let fixture = start_hiding().await;
    let server = &fixture.server;
    // Responses to an administrator, of all routes, are in the caches.
    for path in operation_paths(server, "get", "shop", "shop__order").await {
        if path != "/api/events" {
            server.send_as_admin("GET", &path, &Value::Null).await;
        }
    }
    let reference = start_reference().await;
    let mut own = Client::new(&reference, json!({ "name": "ada", "role": "agent" })).await;
    let expected = read_comparable(&mut own).await;

    let mut clients = Vec::new();
    for (token, sees) in [
        (json!({ "name": "ada", "role": "agent", "groups": ["desk"] }), true),
        (json!({ "name": "bob", "role": "agent" }), true),
        (json!({ "name": "eve", "role": "agent", "groups": ["empty"] }), false),
    ] {
        let name = token["name"].as_str().unwrap().to_owned();
        let mut client = Client::new(server, token).await;
        let etag = client.get("/api/tools").await;
        client.open_stream("GET", "/api/events?after=0", "", "").await;
        if sees {
            assert_eq!(
                read_comparable(&mut client).await,
                expected,
                "{name} gets what a server without the rest responds"
            );
        }
        fixture.fail_hidden_call().await;
        read_rest(&mut client).await;
        fixture.fail_hidden_call().await;
        for path in ["/mcp", "/mcp?mode=full", "/mcp?mode=search", "/mcp?tools=*e*", "/mcp/desk", "/mcp?group=desk"] {
            let is_open = sees || !path.contains("desk");
            assert_eq!(client.send("GET", path, "", "").await.status == 404, !is_open, "{path} for {name}");
            if is_open {
                let (session, _) = client.open_session(path).await;
                read_mcp(&mut client, path, Some(&session)).await;
                read_mcp(&mut client, path, None).await;
            }
        }
        compare_with_unknown_names(&mut client).await;
        // A change of a hidden tool changes no tag.
        fixture.set_tools("Orders a lamp", &format!("Zebrafish, changed for {name}")).await;
        assert_eq!(client.get("/api/tools").await.header("etag"), etag.header("etag"), "{name}");
        clients.push((name, client, sees));
    }
    // An administrator gets every word: the requests above can find them.
    let mut admin = Client::new(server, json!({ "name": "root", "role": "admin" })).await;
    fixture.fail_hidden_call().await;
    read_rest(&mut admin).await;
    let (session, _) = admin.open_session("/mcp?mode=full").await;
    read_mcp(&mut admin, "/mcp?mode=full", Some(&session)).await;
    let everything = format!("{:?}", admin.responses).to_lowercase();
    let missing: Vec<&&str> = HIDDEN_WORDS.iter().filter(|word| !everything.contains(**word)).collect();
    assert_eq!(missing, [&""; 0]);

    fixture.set_tools("Orders a chair", "Zebrafish, again").await;
    for (name, mut client, sees) in clients {
        for (path, mut stream) in std::mem::take(&mut client.streams) {
            let is_full = sees && path == "/mcp?mode=full";
            let expected = match path.as_str() {
                "/api/events?after=0" if sees => "\"type\":\"InventoryRecorded\"",
                "/api/events?after=0" => ": listening",
                _ if is_full => "tools/list_changed",
                _ => "",
            };
            let text = read_stream(&mut stream, expected).await;
            assert!(!is_full || text.matches("tools/list_changed").count() == 1, "hidden changes are not told: {text}");
            client.responses.push((path, text));
        }
        client.check_responses(&name);
    }
}

/// Reads what a stream has sent so far, at least until it has an expected part.
async fn read_stream(stream: &mut TcpStream, expected: &str) -> String {
    let mut bytes = Vec::new();
    while bytes.is_empty() || !String::from_utf8_lossy(&bytes).contains(expected) {
        let read = tokio::time::timeout(TEST_TIMEOUT, stream.read_buf(&mut bytes)).await.unwrap().unwrap();
        assert_ne!(read, 0, "{}", String::from_utf8_lossy(&bytes));
    }
    while let Ok(1..) = stream.try_read_buf(&mut bytes) {}
    String::from_utf8_lossy(&bytes).into_owned()
}

#[tokio::test]
async fn the_endpoint_of_a_group_has_its_instructions_essential_tools_and_mode() {
    let fixture = start_hiding().await;
    let mut client = Client::new(&fixture.server, json!({ "name": "bob2", "role": "admin" })).await;
    let names = async |client: &mut Client<'_>, path: &str| -> Vec<String> {
        let (session, _) = client.open_session(path).await;
        let listed = client.request(path, Some(&session), "tools/list", json!({})).await;
        listed["tools"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
    };
    let meta_tools = ["search_tools", "describe_tools", "call_tool"];
    for path in ["/mcp/desk", "/mcp?group=desk"] {
        let (session, initialized) = client.open_session(path).await;
        let instructions = initialized["instructions"].as_str().unwrap();
        assert!(
            instructions.starts_with("Words for the desk.\n\n") && instructions.contains("1 tool"),
            "{instructions}"
        );
        let listed = names(&mut client, path).await;
        assert!(
            listed.len() == 4 && meta_tools.iter().all(|name| listed.iter().any(|listed| listed == name)),
            "{listed:?}"
        );
        assert!(listed.contains(&"shop__order".to_owned()), "{listed:?}");
        let hidden = client.call_tool(path, Some(&session), "vault__unlock", json!({})).await;
        assert!(hidden["isError"] == true && hidden.to_string().contains("TOOL_NOT_IMPLEMENTED"), "{hidden}");
        let discovered = client.request(path, None, "server/discover", json!({})).await;
        assert_eq!(discovered["instructions"].as_str(), Some(instructions));
    }
    assert_eq!(names(&mut client, "/mcp/desk?mode=full").await, ["shop__order"]);
    assert_eq!(names(&mut client, "/mcp?mode=full").await, ["shop__order", "shop__refund", "vault__unlock"]);
    assert_eq!(names(&mut client, "/mcp?mode=full&tools=*un*").await, ["shop__refund", "vault__unlock"]);
    assert_eq!(client.send("GET", "/mcp/nothing", "", "").await.status, 404);
    let mut limited = Client::new(&fixture.server, json!({ "name": "ada", "role": "agent", "groups": ["desk"] })).await;
    let unknown = limited.send("GET", "/mcp/nothing", "", "").await.body.replace("nothing", "NAME");
    let hidden = limited.send("GET", "/mcp/secrets", "", "").await;
    assert_eq!((hidden.status, hidden.body.replace("secrets", "NAME")), (404, unknown));
}
