//! Tests prompts, resources and instructions: listed from the catalogue, with a notification exactly when a list changes.

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::broadcast;
use toolcrib::config::{Config, Expose, ExposeMode};
use toolcrib::core::access::Role;
use toolcrib::core::inventory::{Actor, Command};
use toolcrib::refresh::RefreshWait;
use toolcrib::{Principal, Refresh, Registry, SourceId};
use toolcrib_mcp::{ClientOptions, ConnectTarget, ConnectionEvent, Era, McpClient};
use toolcrib_server::McpService;
use toolcrib_testkit::observe::{read_lines, replace_file, wait_until};
use toolcrib_testkit::programs::{self, scripted_source};

use super::support::{TEST_TIMEOUT, connect_client, open_with_processes, result_text, send_request, serve_http};

/// An MCP service over the servers `a` and `b`, whose features are in files.
struct FeatureFixture {
    registry: Registry,
    service: McpService,
    directory: TempDir,
}

impl FeatureFixture {
    async fn new(mode: ExposeMode) -> FeatureFixture {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
        for id in ["a", "b"] {
            std::fs::write(path(id), some_features(id).to_string()).unwrap();
        }
        let source = |id: &str| {
            scripted_source(&["--features-file", &path(id), "--count-file", &path("starts"), "--with", "announce"])
        };
        let (registry, service) = open_with_processes(json!({ "a": source("a"), "b": source("b") }), mode).await;
        FeatureFixture { registry, service, directory }
    }

    fn set_features(&self, id: &str, features: Value) {
        replace_file(&self.directory.path().join(id), &features.to_string());
    }

    async fn refresh(&self) {
        self.registry.refresh(Refresh { force: true, ..Refresh::default() }).await;
    }

    /// How often a server was started.
    fn starts(&self) -> usize {
        read_lines(&self.directory.path().join("starts")).len()
    }
}

fn some_features(id: &str) -> Value {
    json!({
        "prompts": [{"name": "review", "description": "Reviews a change"}],
        "resources": [{"uri": "note://one", "name": "one", "size": 3}],
        "resourceTemplates": [{"uriTemplate": "note://{name}", "name": "any"}],
        "instructions": format!("Instructions of {id}."),
    })
}

async fn list(client: &McpClient, method: &str) -> Value {
    send_request(client, method, json!({})).await.unwrap()
}

/// Methods of the notifications about lists that a client has got until now.
fn received(events: &mut broadcast::Receiver<ConnectionEvent>) -> Vec<String> {
    let mut methods = Vec::new();
    while let Ok(event) = events.try_recv() {
        methods.push(match event {
            ConnectionEvent::ToolsChanged => "tools".to_owned(),
            ConnectionEvent::Other { method, .. } => method,
            ConnectionEvent::Closed => "closed".to_owned(),
        });
    }
    methods
}

/// Waits for the notification that a list changed; there must be no other one before it.
async fn wait_for_notification(events: &mut broadcast::Receiver<ConnectionEvent>, expected: &str) {
    let event = tokio::time::timeout(TEST_TIMEOUT, events.recv()).await.unwrap().unwrap();
    assert!(matches!(&event, ConnectionEvent::Other { method, .. } if method == expected), "{event:?}");
}

#[tokio::test]
async fn prompts_and_resources_are_listed_without_starting_a_server() {
    let fixture = FeatureFixture::new(ExposeMode::Full).await;
    fixture.refresh().await;
    let starts = fixture.starts();
    let legacy = connect_client(&fixture.service, |_| {}).await;
    let modern = connect_client(&fixture.service, |options: &mut ClientOptions| options.era = Some(Era::Modern)).await;
    for (client, _) in [&legacy, &modern] {
        let prompts = list(client, "prompts/list").await;
        assert_eq!(
            prompts["prompts"],
            json!([
                {"name": "a__review", "description": "Reviews a change"},
                {"name": "b__review", "description": "Reviews a change"},
            ])
        );
        let resources = list(client, "resources/list").await;
        assert_eq!(resources["resources"][1], json!({"uri": "toolcrib://b/note://one", "name": "b__one", "size": 3}));
        let templates = list(client, "resources/templates/list").await;
        assert_eq!(
            templates["resourceTemplates"][0],
            json!({"uriTemplate": "toolcrib://a/note://{name}", "name": "a__any"})
        );
        assert_eq!(templates["resourceTemplates"].as_array().unwrap().len(), 2);
    }
    assert_eq!(fixture.starts(), starts);
    let id = SourceId::parse("a").unwrap();
    fixture.registry.execute(Command::Disable(id), Actor::new("operator")).await.unwrap();
    let prompts = list(&legacy.0, "prompts/list").await;
    assert_eq!(prompts["prompts"].as_array().unwrap().len(), 1, "those of a disabled source are gone at once");
}

#[tokio::test]
async fn clients_are_notified_exactly_when_their_lists_change() {
    let fixture = FeatureFixture::new(ExposeMode::Full).await;
    fixture.set_features("b", json!({}));
    fixture.refresh().await;
    let (client, _server) = connect_client(&fixture.service, |_| {}).await;
    let mut events = client.events();
    for method in ["tools/list", "prompts/list", "resources/list"] {
        list(&client, method).await;
    }
    // A list that arrives late.
    fixture.set_features("b", json!({"prompts": [{"name": "late"}]}));
    fixture.refresh().await;
    wait_for_notification(&mut events, "notifications/prompts/list_changed").await;
    let prompts = list(&client, "prompts/list").await;
    assert_eq!(prompts["prompts"][1]["name"], "b__late");
    // Unchanged lists and other instructions notify no client.
    fixture.set_features("b", json!({"prompts": [{"name": "late"}], "instructions": "Other ones."}));
    fixture.refresh().await;
    fixture.refresh().await;
    fixture
        .set_features("b", json!({"prompts": [{"name": "late"}], "resourceTemplates": [{"uriTemplate": "x://{y}"}]}));
    // An announcement of the server makes Toolcrib read its lists.
    let announcement = json!({"method": "notifications/resources/list_changed"});
    send_request(&client, "tools/call", json!({"name": "b__announce", "arguments": announcement})).await.unwrap();
    wait_for_notification(&mut events, "notifications/resources/list_changed").await;
    assert_eq!(
        list(&client, "resources/templates/list").await["resourceTemplates"][1]["uriTemplate"],
        "toolcrib://b/x://{y}"
    );
    // A source that goes takes its lists with it.
    let id = SourceId::parse("a").unwrap();
    fixture.registry.execute(Command::Disable(id), Actor::new("operator")).await.unwrap();
    let mut last: Vec<ConnectionEvent> = Vec::new();
    for _ in 0..3 {
        last.push(tokio::time::timeout(TEST_TIMEOUT, events.recv()).await.unwrap().unwrap());
    }
    assert!(matches!(last[0], ConnectionEvent::ToolsChanged), "{last:?}");
    list(&client, "tools/list").await;
    assert_eq!(received(&mut events), [""; 0]);
}

#[tokio::test]
async fn a_list_that_arrives_after_the_tools_is_announced() {
    let fixture = FeatureFixture::new(ExposeMode::Full).await;
    fixture.set_features("b", json!({"prompts": "late"}));
    fixture.registry.refresh(Refresh { wait_for: RefreshWait::Tools, ..Refresh::default() }).await;
    // The lists of `a` follow at once.
    let prompt_count = |id: &str| fixture.registry.sources().get(&SourceId::parse(id).unwrap()).unwrap().prompt_count;
    wait_until("the prompt of `a` is recorded", || prompt_count("a") == 1).await;
    let (client, _server) = connect_client(&fixture.service, |_| {}).await;
    let mut events = client.events();
    assert_eq!(list(&client, "prompts/list").await["prompts"].as_array().unwrap().len(), 1);
    fixture.set_features("b", json!({"prompts": [{"name": "slow"}]}));
    wait_for_notification(&mut events, "notifications/prompts/list_changed").await;
    let prompts = list(&client, "prompts/list").await;
    assert_eq!(prompts["prompts"][1]["name"], "b__slow");
}

#[tokio::test]
async fn a_listening_client_of_the_modern_era_is_notified() {
    let fixture = FeatureFixture::new(ExposeMode::Full).await;
    fixture.set_features("b", json!({}));
    fixture.refresh().await;
    let server = serve_http("127.0.0.1:0", &fixture.service).await;
    let target = ConnectTarget::Http { url: server.mcp_url(), headers: Default::default() };
    let mut options = ClientOptions::new("test", "0");
    options.listen = true;
    let client = McpClient::connect(target, options).await.unwrap();
    assert_eq!(client.era(), Era::Modern);
    let mut events = client.events();
    // The subscription begins some time after the connection: change the list until a notification arrives.
    let notified = async {
        for number in 0.. {
            fixture.set_features("b", json!({"prompts": [{"name": format!("late{number}")}]}));
            fixture.refresh().await;
            while let Ok(event) = events.try_recv() {
                match event {
                    ConnectionEvent::Other { method, .. } if method == "notifications/prompts/list_changed" => return,
                    ConnectionEvent::Other { method, .. } => assert_eq!(method, "notifications/message"),
                    event @ (ConnectionEvent::ToolsChanged | ConnectionEvent::Closed) => panic!("{event:?}"),
                }
            }
        }
    };
    tokio::time::timeout(TEST_TIMEOUT, notified).await.unwrap();
}

#[tokio::test]
async fn search_mode_has_no_notifications_about_prompts() {
    let fixture = FeatureFixture::new(ExposeMode::Search).await;
    fixture.refresh().await;
    let (client, _server) = connect_client(&fixture.service, |_| {}).await;
    let mut events = client.events();
    list(&client, "tools/list").await;
    fixture.set_features("b", json!({"prompts": [{"name": "late"}]}));
    fixture.refresh().await;
    list(&client, "tools/list").await;
    assert_eq!(received(&mut events), [""; 0]);
    assert!(!client.server().instructions.as_deref().unwrap_or_default().contains("Instructions of a."));
}

#[tokio::test]
async fn instructions_of_servers_stand_under_their_names_in_full_mode() {
    let fixture = FeatureFixture::new(ExposeMode::Full).await;
    fixture.set_features("b", json!({"instructions": format!("Long\u{200b}: {}", "word ".repeat(2_000))}));
    fixture.refresh().await;
    let (client, _server) = connect_client(&fixture.service, |_| {}).await;
    let instructions = client.server().instructions.clone().unwrap();
    assert!(instructions.contains("\n\na:\n  Instructions of a.\n\nb:\n  Long: word word"), "{instructions}");
    assert!(instructions.ends_with("word…") && instructions.len() < 4_200, "{}", instructions.len());
}

#[tokio::test]
async fn a_long_list_has_pages_and_names_without_prefix() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("features");
    let prompts: Vec<Value> = (0..2_500).map(|number| json!({"name": format!("p{number:04}")})).collect();
    std::fs::write(&file, json!({ "prompts": prompts }).to_string()).unwrap();
    let source = scripted_source(&["--features-file", file.to_str().unwrap()]);
    let config = json!({"sources": {"s": source}}).to_string();
    let config = Config::read(&config, "toolcrib.json", directory.path()).unwrap();
    let registry = Registry::open(config, Default::default()).await.unwrap();
    let expose = Expose { mode: ExposeMode::Full, prefix: false, ..Expose::default() };
    let service = McpService::new(registry.clone(), expose);
    registry.refresh(Refresh::default()).await;
    let (client, _server) = connect_client(&service, |_| {}).await;
    let mut names: Vec<String> = Vec::new();
    let mut params = json!({});
    loop {
        let page = send_request(&client, "prompts/list", params).await.unwrap();
        let prompts = page["prompts"].as_array().unwrap();
        names.extend(prompts.iter().map(|prompt| prompt["name"].as_str().unwrap().to_owned()));
        match page.get("nextCursor") {
            Some(cursor) => params = json!({ "cursor": cursor }),
            None => break,
        }
    }
    assert_eq!((names.len(), names[0].as_str(), names[2_499].as_str()), (2_500, "p0000", "p2499"));
    assert!(send_request(&client, "prompts/list", json!({"cursor": "nonsense"})).await.is_err());
}

#[tokio::test]
async fn prompts_and_resources_of_a_real_server_work_through_the_catalogue() {
    let Some((program, arguments)) = programs::everything_server() else {
        return programs::skip(
            "features::prompts_and_resources_of_a_real_server_work_through_the_catalogue",
            "the server was not fetched",
        );
    };
    let sources = json!({"everything": {"command": program, "args": arguments}, "other": scripted_source(&[])});
    let (registry, service) = open_with_processes(sources, ExposeMode::Full).await;
    registry.refresh(Refresh::default()).await;
    let (client, _server) = connect_client(&service, |_| {}).await;
    assert!(client.server().instructions.clone().unwrap().contains("\n\neverything:\n"));
    let prompts = list(&client, "prompts/list").await;
    assert!(prompts["prompts"].as_array().unwrap().iter().any(|prompt| prompt["name"] == "everything__simple-prompt"));
    let prompt = json!({"name": "everything__simple-prompt"});
    assert!(send_request(&client, "prompts/get", prompt).await.unwrap()["messages"][0]["content"]["text"].is_string());
    // By its own name too: only one source lists it.
    send_request(&client, "prompts/get", json!({"name": "simple-prompt"})).await.unwrap();
    let resources = list(&client, "resources/list").await;
    let uri = resources["resources"][0]["uri"].clone();
    assert!(uri.as_str().unwrap().starts_with("toolcrib://everything/"), "{uri}");
    let read = send_request(&client, "resources/read", json!({ "uri": uri })).await.unwrap();
    assert_eq!(read["contents"][0]["uri"], uri);
    let templates = list(&client, "resources/templates/list").await;
    assert!(!templates["resourceTemplates"].as_array().unwrap().is_empty());
}

#[tokio::test]
async fn a_source_whose_tools_are_all_hidden_is_unknown_and_one_without_tools_is_not() {
    let directory = tempfile::tempdir().unwrap();
    let features = directory.path().join("features");
    std::fs::write(&features, json!({"prompts": [{"name": "review"}]}).to_string()).unwrap();
    let mut vault = scripted_source(&["--resources", "--features-file", features.to_str().unwrap()]);
    vault["tools"] = json!({"*": "hide"});
    let sources = json!({"notes": scripted_source(&["--resources", "--tools", "0"]), "vault": vault});
    let (registry, service) = open_with_processes(sources, ExposeMode::Full).await;
    registry.refresh(Refresh::default()).await;
    let (client, _server) = connect_client(&service, |_| {}).await;
    let resources = list(&client, "resources/list").await["resources"].clone();
    assert_eq!(resources.as_array().unwrap().len(), 1, "{resources}");
    assert_eq!(resources[0]["uri"], "toolcrib://notes/note://one");
    assert_eq!(list(&client, "prompts/list").await["prompts"], json!([]));
    let argument = json!({"name": "x", "value": "y"});
    let requests = [
        ("resources/read", json!({"uri": "toolcrib://NAME/note://one"})),
        ("resources/subscribe", json!({"uri": "toolcrib://NAME/note://one"})),
        ("prompts/get", json!({"name": "NAME__review"})),
        ("completion/complete", json!({"ref": {"type": "ref/prompt", "name": "NAME__review"}, "argument": argument})),
    ];
    for (method, params) in requests {
        let mut answers = Vec::new();
        for name in ["vault", "xxxxx"] {
            let params = serde_json::from_str(&params.to_string().replace("NAME", name)).unwrap();
            let error = send_request(&client, method, params).await.unwrap_err();
            answers.push(error.to_string().replace(name, "NAME"));
        }
        assert_eq!(answers[0], answers[1], "{method}");
    }
    // Both sources list it; only one of them counts.
    send_request(&client, "resources/subscribe", json!({"uri": "note://one"})).await.unwrap();
    assert!(send_request(&client, "prompts/get", json!({"name": "review"})).await.is_err());
    // Clients are agents, also with the token of an administrator.
    let server = serve_http("127.0.0.1:0", &service).await;
    let token = format!("Bearer {}", server.admin_token).parse().unwrap();
    let headers = http::HeaderMap::from_iter([(http::header::AUTHORIZATION, token)]);
    let target = ConnectTarget::Http { url: server.mcp_url(), headers };
    let admin = McpClient::connect(target, ClientOptions::new("test", "0")).await.unwrap();
    assert_eq!(admin.server().instructions, None);
    assert_eq!(list(&admin, "prompts/list").await["prompts"], json!([]));
    assert_eq!(list(&admin, "resources/list").await["resources"].as_array().unwrap().len(), 1);
    assert_eq!(list(&admin, "tools/list").await["tools"], json!([]));
}

/// Regression: requests failed until a client had listed something.
#[tokio::test]
async fn prompts_and_resources_can_be_requested_before_anything_is_discovered() {
    let argument = json!({"name": "x", "value": "y"});
    for (method, params) in [
        ("prompts/get", json!({"name": "b__only"})),
        ("prompts/get", json!({"name": "only"})),
        ("resources/read", json!({"uri": "toolcrib://b/note://only"})),
        ("resources/read", json!({"uri": "note://only"})),
        ("completion/complete", json!({"ref": {"type": "ref/prompt", "name": "only"}, "argument": argument})),
        ("completion/complete", json!({"ref": {"type": "ref/resource", "uri": "note://only"}, "argument": argument})),
        ("completion/complete", json!({"ref": {"type": "ref/prompt", "name": "b__only"}, "argument": argument})),
    ] {
        let fixture = FeatureFixture::new(ExposeMode::Full).await;
        fixture.set_features("b", json!({"prompts": [{"name": "only"}], "resources": [{"uri": "note://only"}]}));
        let (client, _server) = connect_client(&fixture.service, |_| {}).await;
        let result = send_request(&client, method, params.clone()).await;
        assert!(result.is_ok(), "{method} {params}: {result:?}");
    }
}

#[tokio::test]
async fn a_prompt_of_a_source_that_cannot_be_discovered_says_why() {
    let sources = json!({"broken": scripted_source(&["--exit", "7"])});
    let (_registry, service) = open_with_processes(sources, ExposeMode::Full).await;
    let (client, _server) = connect_client(&service, |_| {}).await;
    for (method, params) in [
        ("prompts/get", json!({"name": "broken__review"})),
        ("resources/read", json!({"uri": "toolcrib://broken/note://one"})),
    ] {
        let error = send_request(&client, method, params).await.unwrap_err().to_string();
        assert!(error.contains("`broken` are unknown") && !error.contains("toolcrib refresh"), "{error}");
    }
}

/// Opens a service over the servers `a` and `b` that lists names without prefixes.
async fn open_without_prefixes(directory: &TempDir, features: [Value; 2]) -> (Registry, McpService) {
    let mut sources = json!({});
    for (id, features) in ["a", "b"].into_iter().zip(features) {
        let file = directory.path().join(id);
        std::fs::write(&file, features.to_string()).unwrap();
        let special_tool = if id == "a" { "meta" } else { "capabilities" };
        sources[id] = scripted_source(&["--features-file", file.to_str().unwrap(), "--with", special_tool]);
    }
    let config = Config::read(&json!({ "sources": sources }).to_string(), "toolcrib.json", directory.path()).unwrap();
    let registry = Registry::open(config, Default::default()).await.unwrap();
    let expose = Expose { mode: ExposeMode::Full, prefix: false, ..Expose::default() };
    (registry.clone(), McpService::new(registry, expose))
}

#[tokio::test]
async fn a_listed_name_without_prefix_can_be_called_before_anything_is_discovered() {
    let directory = tempfile::tempdir().unwrap();
    let (_registry, service) = open_without_prefixes(&directory, [json!({}), json!({})]).await;
    let (client, _server) = connect_client(&service, |_| {}).await;
    let result = send_request(&client, "tools/call", json!({"name": "meta"})).await.unwrap();
    assert_eq!(result["isError"], false, "{result}");
}

#[tokio::test]
async fn items_of_several_sources_keep_their_prefix() {
    let features = |own: &str| {
        json!({
            "prompts": [{"name": "p"}, {"name": own}],
            "resources": [{"uri": "note://one", "name": "one"}, {"uri": format!("note://{own}"), "name": own}],
        })
    };
    let directory = tempfile::tempdir().unwrap();
    let (registry, service) = open_without_prefixes(&directory, [features("x"), features("y")]).await;
    registry.refresh(Refresh::default()).await;
    let (client, _server) = connect_client(&service, |_| {}).await;
    let prompts = list(&client, "prompts/list").await;
    assert_eq!(prompts["prompts"], json!([{"name": "a__p"}, {"name": "b__p"}, {"name": "x"}, {"name": "y"}]));
    let resources = list(&client, "resources/list").await;
    assert_eq!(
        resources["resources"],
        json!([
            {"uri": "note://x", "name": "x"},
            {"uri": "note://y", "name": "y"},
            {"uri": "toolcrib://a/note://one", "name": "a__one"},
            {"uri": "toolcrib://b/note://one", "name": "b__one"},
        ])
    );
    for name in ["a__p", "b__p", "x", "y"] {
        send_request(&client, "prompts/get", json!({ "name": name })).await.unwrap();
    }
    for uri in ["toolcrib://b/note://one", "note://y"] {
        let read = send_request(&client, "resources/read", json!({ "uri": uri })).await.unwrap();
        assert_eq!(read["contents"][0]["uri"], uri);
    }
}

#[tokio::test]
async fn a_page_of_prompts_is_bounded_in_bytes() {
    let fixture = FeatureFixture::new(ExposeMode::Full).await;
    let prompt = |number: usize| json!({"name": format!("p{number}"), "description": "x".repeat(200_000)});
    fixture.set_features("a", json!({"prompts": (0..9).map(prompt).collect::<Vec<_>>()}));
    fixture.set_features("b", json!({}));
    fixture.refresh().await;
    let (client, _server) = connect_client(&fixture.service, |_| {}).await;
    let first = list(&client, "prompts/list").await;
    assert_eq!(first["prompts"].as_array().unwrap().len(), 5);
    let second = send_request(&client, "prompts/list", json!({"cursor": first["nextCursor"]})).await.unwrap();
    assert_eq!((second["prompts"].as_array().unwrap().len(), second.get("nextCursor")), (4, None));
}

#[tokio::test]
async fn instructions_do_not_name_tools_that_agents_must_not_know_of() {
    let directory = tempfile::tempdir().unwrap();
    let features = directory.path().join("features");
    let instructions = "Start with echo. Use `add` for sums.\nNever call tool_0002 on Fridays.\nBe brief.";
    std::fs::write(&features, json!({ "instructions": instructions }).to_string()).unwrap();
    let mut source = scripted_source(&["--tools", "5", "--features-file", features.to_str().unwrap()]);
    source["tools"] = json!({"add": "deny", "tool_0002": "hide"});
    let (registry, service) = open_with_processes(json!({ "s": source }), ExposeMode::Full).await;
    registry.refresh(Refresh::default()).await;
    let (client, _server) = connect_client(&service, |_| {}).await;
    let shown = client.server().instructions.clone().unwrap();
    assert!(shown.ends_with("\n\ns:\n  Start with echo.\n  Be brief."), "{shown}");
    let id = SourceId::parse("s").unwrap();
    let source_of = |principal: &Principal| registry.sources().get_for(principal, &id).unwrap().instructions;
    assert_eq!(source_of(&Principal::local("agent")).as_deref(), Some("Start with echo.\nBe brief."));
    assert_eq!(source_of(&Principal::local("admin").with_role(Role::Admin)).as_deref(), Some(instructions));
    for (query, is_found) in [("fridays", false), ("brief", true)] {
        let result =
            send_request(&client, "tools/call", json!({"name": "search_tools", "arguments": {"query": query}}));
        assert_eq!(result_text(&result.await.unwrap()).contains("s__echo"), is_found, "{query}");
    }
}
