//! Finding, describing and calling through the menu and by name.

use serde_json::value::RawValue;
use serde_json::{Value, json};
use toolcrib::core::config::{Config, Expose, ExposeMode};
use toolcrib::core::policy::{Rule, Rules, Verdict};
use toolcrib::testkit::{ScriptedReply, ScriptedSource, config_with_sources};
use toolcrib::{Refresh, Registry, RegistryOptions};
use toolcrib_mcp::{RequestOptions, WireError};
use toolcrib_server::McpService;
use toolcrib_testkit::programs;

use crate::support::{McpFixture, TEST_TIMEOUT, connect_client, start, start_configured, text_tool};

async fn start_shop() -> McpFixture {
    let shop =
        ScriptedSource::new([text_tool("order", "Orders goods. Slowly."), text_tool("refund", "Gives money back")]);
    let fixture = start(ExposeMode::Search, &[("shop", &shop)]).await;
    fixture.registry.refresh(Refresh::default()).await;
    fixture
}

#[tokio::test]
async fn a_search_offers_nothing_that_every_call_refuses() {
    let shop =
        ScriptedSource::new([text_tool("order", "Orders goods"), text_tool("refund", "Gives money back for goods")]);
    let mut config = config_with_sources(["shop"]);
    config.expose.mode = ExposeMode::Search;
    if let Ok(source) = &mut config.sources[0].source {
        source.settings.tools = Rules::new(vec![Rule { glob: "ref*".into(), verdict: Verdict::Deny }]);
    }
    let fixture = start_configured(config, &[("shop", &shop)]).await;
    fixture.registry.refresh(Refresh::default()).await;
    for query in ["goods", "shop__refund goods"] {
        let found = fixture.call_text("search_tools", json!({ "query": query })).await;
        assert!(found.contains("shop__order") && !found.contains("shop__refund"), "{found}");
    }
    let called = json!({ "name": "shop__refund", "arguments": { "text": "tea" } });
    assert_eq!(fixture.call_error("call_tool", called).await["code"], "FORBIDDEN");
}

#[tokio::test]
async fn a_tool_is_found_described_and_called() {
    let fixture = start_shop().await;
    let found = fixture.call_text("search_tools", json!({ "query": "order goods" })).await;
    assert!(found.starts_with("shop__order(text*: string, times: integer) — Orders goods"), "{found}");

    let described = fixture.call_text("describe_tools", json!({ "names": ["shop__order"] })).await;
    assert!(described.starts_with("shop__order(text*: string, times: integer)"), "{described}");
    assert!(described.contains("Orders goods. Slowly.") && described.contains("What to say"), "{described}");
    let full = fixture.call_text("describe_tools", json!({ "names": "shop__order", "full": true })).await;
    assert_eq!(serde_json::from_str::<Value>(&full).unwrap()["inputSchema"]["required"], json!(["text"]));
    let some = fixture.call_text("describe_tools", json!({ "names": ["shop__order", "nothing", "nobody"] })).await;
    assert!(some.starts_with("shop__order(") && some.contains("`nothing`") && some.contains("`nobody`"), "{some}");

    let called = json!({ "name": "shop__order", "arguments": { "text": "tea" } });
    assert_eq!(fixture.call_text("call_tool", called).await, r#"order {"text":"tea"}"#);
    // Unlisted, and callable by its name all the same; and arguments that somebody wrote as text.
    assert_eq!(fixture.call_text("shop__order", json!({ "text": "tea" })).await, r#"order {"text":"tea"}"#);
    let written = json!({ "name": "shop/order", "arguments": "{\"text\":\"tea\"}" });
    assert_eq!(fixture.call_text("call_tool", written).await, r#"order {"text":"tea"}"#);
}

#[tokio::test]
async fn the_first_greeting_carries_the_summary() {
    let fixture = start_shop().await;
    let (client, _server) = connect_client(&fixture.service, |_| {}).await;
    let instructions = client.server().instructions.clone().unwrap();
    assert!(instructions.contains("shop") && instructions.contains("search_tools"), "{instructions}");
}

#[tokio::test]
async fn wrong_arguments_come_back_with_the_faults_and_the_signature() {
    let fixture = start_shop().await;
    for (name, arguments) in [
        ("call_tool", json!({ "name": "shop__order", "arguments": { "times": "x" } })),
        ("shop__order", json!({ "times": "x" })),
    ] {
        let error = fixture.call_error(name, arguments).await;
        assert_eq!(error["code"], "TOOL_INVALID_INPUT");
        assert_eq!(error["details"]["faults"].as_array().unwrap().len(), 2, "{error}");
        assert_eq!(error["details"]["signature"], "shop__order(text*: string, times: integer)");
    }
}

#[tokio::test]
async fn the_signature_shows_the_argument_that_was_wrong() {
    let mut order = text_tool("order", "Orders");
    for number in 0..30 {
        order["inputSchema"]["properties"][format!("option_number_{number}")] = json!({ "type": "integer" });
    }
    order["inputSchema"]["properties"]["zone"] = json!({ "type": "array", "items": { "type": "string" } });
    let shop = ScriptedSource::new([order]);
    let fixture = start(ExposeMode::Search, &[("shop", &shop)]).await;
    let error = fixture.call_error("shop__order", json!({ "text": "x", "zone": 5 })).await;
    let signature = error["details"]["signature"].as_str().unwrap();
    assert!(signature.starts_with("shop__order(text*: string, zone: string[], "), "{signature}");
}

#[tokio::test]
async fn an_unknown_tool_is_answered_with_near_names() {
    let fixture = start_shop().await;
    for (name, arguments) in [
        ("call_tool", json!({ "name": "shop__ordr" })),
        ("shop__ordr", json!({})),
        ("describe_tools", json!({ "names": ["shop__ordr"] })),
    ] {
        let error = fixture.call_error(name, arguments).await;
        assert_eq!(error["code"], "TOOL_NOT_IMPLEMENTED");
        assert_eq!(error["details"]["near"][0], "shop__order", "{error}");
    }
}

#[tokio::test]
async fn the_menu_itself_says_what_it_wants() {
    let fixture = start_shop().await;
    for (name, arguments) in [
        ("search_tools", json!({})),
        ("search_tools", json!({ "query": 7 })),
        ("describe_tools", json!({ "names": [] })),
        ("describe_tools", json!({})),
        ("describe_tools", json!({ "names": [1] })),
        ("call_tool", json!({ "name": "shop__order", "args": { "text": "x" } })),
        ("call_tool", json!({ "name": "shop__order", "text": "x" })),
        ("call_tool", json!({})),
        ("call_tool", json!({ "name": "call_tool", "arguments": {} })),
        ("call_tool", json!([])),
    ] {
        let error = fixture.call_error(name, arguments.clone()).await;
        assert_eq!(error["code"], "TOOL_INVALID_INPUT", "{name} {arguments}");
        let signature = error["details"]["signature"].as_str().unwrap();
        assert!(signature.starts_with(name), "{signature}");
    }
}

#[tokio::test]
async fn any_query_gets_an_answer() {
    let fixture = start_shop().await;
    let long = "order ".repeat(100_000);
    for query in ["", " ", "\u{0}\u{7}\u{1b}[31m", "zzzz", "订购商品", "🙂", &long] {
        let said = fixture.call_text("search_tools", json!({ "query": query })).await;
        assert!(!said.is_empty());
    }
    // As a client writes a text that it cut in the middle of a character.
    let half = r#"{"name": "search_tools", "arguments": {"query": "order \ud83e"}}"#;
    let half = RawValue::from_string(half.to_owned()).unwrap();
    let answer = fixture.client.request("tools/call", Some(&half), &RequestOptions::new(TEST_TIMEOUT)).await.unwrap();
    assert!(answer.get().contains("shop__order"), "{answer}");
}

#[tokio::test]
async fn the_menu_describes_itself() {
    let said = start_shop().await.call_text("describe_tools", json!({ "names": ["search_tools"] })).await;
    assert!(said.starts_with("search_tools(query*: string"), "{said}");
}

#[tokio::test]
async fn a_limit_is_read_in_any_form_and_a_cut_is_told() {
    let many: Vec<Value> = (0..210).map(|number| text_tool(&format!("order_{number}"), "Orders")).collect();
    let shop = ScriptedSource::new(many);
    let fixture = start(ExposeMode::Search, &[("shop", &shop)]).await;
    fixture.registry.ensure_freshness(toolcrib::RequiredFreshness::Discovered, None, false).await;
    for (limit, lines) in [(json!(3), 3), (json!(3.0), 3), (json!("3"), 3), (json!(-1), 5), (json!(null), 5)] {
        let said = fixture.call_text("search_tools", json!({ "query": "orders", "limit": limit })).await;
        assert_eq!(said.lines().count(), lines, "{limit}: {said}");
    }
    let all = fixture.call_text("search_tools", json!({ "query": "orders", "limit": 0 })).await;
    assert!(all.lines().count() == 201 && all.ends_with("(10 more match; more words narrow it down)"), "{all:.200}");
}

#[tokio::test]
async fn who_must_be_allowed_first_is_told() {
    let shop = ScriptedSource::new([text_tool("order", "Orders")]);
    let fixture = start(ExposeMode::Search, &[("shop", &shop)]).await;
    let why = "its file is not trusted yet; `toolcrib trust` allows it";
    let sources = vec![toolcrib::SourceId::parse("shop").unwrap()];
    let untrusted = Some(toolcrib::UntrustedFile { reason: why.to_owned(), sources });
    fixture.registry.set_trust(toolcrib::Trust { untrusted, ..toolcrib::Trust::default() });
    let said = fixture.call_text("search_tools", json!({ "query": "orders" })).await;
    assert!(said.contains(&format!("1 source is not used: {why}")) && !said.contains("search again"), "{said}");
    let (client, _server) = connect_client(&fixture.service, |_| {}).await;
    assert!(client.server().instructions.as_ref().unwrap().contains(why));
}

#[tokio::test]
async fn results_and_errors_of_a_source_pass_unchanged() {
    let odd = ScriptedSource::new([text_tool("say", "Says things")]);
    let fixture = start(ExposeMode::Search, &[("odd", &odd)]).await;
    let result = json!({
        "content": [
            { "type": "image", "data": "aGk=", "mimeType": "image/png", "annotations": { "x": 1 } },
            { "type": "audio", "data": "aGk=", "mimeType": "audio/wav" },
            { "type": "resource", "resource": { "uri": "a://b", "text": "t" } },
            { "type": "new_in_2030", "what": [1, 2] },
        ],
        "structuredContent": { "n": 12345678901234567u64 },
        "isError": false,
        "_meta": { "vendor/key": "kept" },
        "unknown": { "kept": true },
    });
    let answer = result.clone();
    odd.set_reply(move |_, _| answer.clone());
    for (name, arguments) in [
        ("odd__say", json!({ "text": "x" })),
        ("call_tool", json!({ "name": "odd__say", "arguments": { "text": "x" } })),
    ] {
        assert_eq!(fixture.call(name, arguments).await, result);
    }

    odd.set_reply(|_, _| json!({ "content": [{ "type": "text", "text": "no" }], "isError": true }));
    assert_eq!(fixture.call("odd__say", json!({ "text": "x" })).await["isError"], true);
    odd.set_reply(|_, _| ScriptedReply::Disconnected("gone".into()));
    let error = fixture.call_error("odd__say", json!({ "text": "x" })).await;
    assert!(error["code"].as_str().unwrap().starts_with("TOOL_"), "{error}");
}

#[tokio::test]
async fn a_large_result_is_read_page_by_page() {
    let big = ScriptedSource::new([text_tool("say", "Says a lot")]);
    let fixture = start(ExposeMode::Search, &[("big", &big)]).await;
    let text: String = (0..60_000).map(|line| format!("line {line}\n")).collect();
    let whole = text.clone();
    big.set_reply(move |_, _| json!(whole.clone()));
    let mut read = String::new();
    let mut page = fixture.call("call_tool", json!({ "name": "big__say", "arguments": { "text": "x" } })).await;
    for _ in 0..20 {
        let blocks = page["content"].as_array().unwrap().clone();
        assert!(page.to_string().len() < 300_000);
        let note = blocks.last().and_then(|block| block["text"].as_str()).unwrap_or_default().to_owned();
        let next = note.split("page: \"").nth(1).and_then(|rest| rest.split('"').next()).map(str::to_owned);
        let told = blocks.len() - usize::from(note.starts_with("[page"));
        read.extend(blocks[..told].iter().filter_map(|block| block["text"].as_str()));
        match next {
            Some(next) => page = fixture.call("call_tool", json!({ "name": "big__say", "page": next })).await,
            None => break,
        }
    }
    assert_eq!(read, text);
    assert_eq!(big.calls(), 1, "a page never calls again");
    let error = fixture.call_error("call_tool", json!({ "name": "big__say", "page": "nonsense" })).await;
    assert_eq!(error["code"], "TOOL_INVALID_INPUT");
}

/// The cursor that a page's note names.
fn next_cursor(page: &Value) -> Option<String> {
    let note = page["content"].as_array()?.last()?["text"].as_str()?;
    Some(note.split("page: \"").nth(1)?.split('"').next()?.to_owned())
}

/// All that a call answers, read on by the same call with `page` among its arguments.
async fn read_all_pages(fixture: &McpFixture, name: &str, mut arguments: Value) -> Vec<Value> {
    let mut pages = vec![fixture.call(name, arguments.clone()).await];
    while let Some(cursor) = pages.last().and_then(next_cursor) {
        arguments["page"] = json!(cursor);
        pages.push(fixture.call(name, arguments.clone()).await);
    }
    pages
}

#[tokio::test]
async fn with_all_tools_listed_a_large_result_is_read_on_by_the_tool_itself() {
    let big = ScriptedSource::new([text_tool("say", "Says a lot")]);
    let fixture = start(ExposeMode::Full, &[("big", &big)]).await;
    let long = "0123456789".repeat(60_000);
    let whole = long.clone();
    big.set_reply(move |_, _| json!(whole.clone()));
    let pages = read_all_pages(&fixture, "big__say", json!({ "text": "x" })).await;
    let read: String = pages.iter().filter_map(|page| page["content"][0]["text"].as_str()).collect();
    assert_eq!((read == long, big.calls()), (true, 1));

    // One that looks like a cursor and is none calls nothing, and any other text is the tool's own.
    let unknown = format!("held-{:032x}-2", 7);
    let error = fixture.call_error("big__say", json!({ "text": "x", "page": unknown })).await;
    assert!(error["message"].as_str().unwrap().contains("call the tool again"), "{error}");
    assert_eq!(big.calls(), 1);
    fixture.call("big__say", json!({ "text": "x", "page": "7" })).await;
    assert_eq!(big.calls(), 2);
}

#[tokio::test]
async fn a_cursor_of_another_toolcrib_reaches_it() {
    let mut call = text_tool("call_tool", "Calls a tool of the Toolcrib behind");
    call["inputSchema"]["properties"]["page"] = json!({ "type": "string" });
    let inner = ScriptedSource::new([call]);
    let fixture = start(ExposeMode::Full, &[("inner", &inner)]).await;
    let page = format!("held-{:032x}-2", 7);
    fixture.call("inner__call_tool", json!({ "text": "x", "page": page })).await;
    assert_eq!(inner.calls(), 1);
}

/// Clients that hold results against the schema they were listed with refused what was cut.
#[tokio::test]
async fn a_large_result_keeps_what_its_schema_declares() {
    let mut say = text_tool("say", "Says a lot");
    say["outputSchema"] = json!({ "type": "object", "required": ["said"] });
    let big = ScriptedSource::new([say]);
    let fixture = start(ExposeMode::Full, &[("big", &big)]).await;
    let answer = |text: usize, structured: usize| {
        let structured = json!({ "said": "y".repeat(structured) });
        json!({ "content": [{ "type": "text", "text": "x".repeat(text) }], "structuredContent": structured })
    };
    let pages = async |result: &Value| {
        let result = result.clone();
        big.set_reply(move |_, _| result.clone());
        read_all_pages(&fixture, "big__say", json!({ "text": "x" })).await
    };

    let apart = answer(200_000, 200_000);
    assert_eq!(pages(&apart).await, [apart], "each is within the limit");

    let much_text = answer(600_000, 200_000);
    let split = pages(&much_text).await;
    assert_eq!(split.len(), 3);
    assert!(split.iter().all(|page| page["structuredContent"] == much_text["structuredContent"]));

    let split = pages(&answer(300_000, 300_000)).await;
    assert_eq!(split.len(), 2);
    assert!(split.iter().all(|page| page["isError"] == true && page.get("structuredContent").is_none()));
    let stats = fixture.registry.stats();
    assert_eq!((stats.calls, stats.errors), (3, 0), "the tool did not fail");

    // Through the menu nothing was declared.
    let forwarded = json!({ "name": "big__say", "arguments": { "text": "x" } });
    let split = read_all_pages(&fixture, "call_tool", forwarded).await;
    assert!(split.iter().all(|page| page.get("isError").is_none()));
}

#[tokio::test]
async fn what_is_no_method_is_said_so() {
    let fixture = start_shop().await;
    let Err(WireError::Rpc(error)) = fixture.request("tools/dance", json!({})).await else { panic!("it danced") };
    assert_eq!(error.code, -32601);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_step_of_progress_arrives_before_the_answer() {
    let config = format!(
        "sources: {{ s: {{ command: {:?}, args: [--with, slow, --progress, \"4\"] }} }}",
        programs::scripted_server()
    );
    let config = Config::read(&config, "toolcrib.yaml", std::path::Path::new(".")).unwrap();
    let registry = Registry::open(config, RegistryOptions::default()).await.unwrap();
    let surface = McpService::new(registry.clone(), Expose::default());
    let (client, _server) = connect_client(&surface, |_| {}).await;
    for round in 0..50 {
        let (progress, mut steps) = tokio::sync::mpsc::channel(16);
        let mut options = RequestOptions::new(TEST_TIMEOUT);
        options.progress = Some(progress);
        let arguments = serde_json::value::to_raw_value(&json!({})).unwrap();
        client.call_tool("s__slow", &arguments, None, None, &options).await.unwrap();
        let mut told = 0;
        while steps.try_recv().is_ok() {
            told += 1;
        }
        assert_eq!(told, 4, "in round {round}");
    }
    registry.close().await;
}

#[tokio::test]
async fn a_description_in_full_has_the_schemas_that_lists_leave_out() {
    let mut order = text_tool("order", "Order a thing");
    let whole = json!({ "type": "object", "properties": { "text": { "type": "string", "maxLength": 9 } } });
    order["x-toolcrib-backing"] = json!({
        "execution": { "mode": "sync_http", "method": "POST", "server": "http://x", "path": "/orders" },
        "input_schema": whole,
        "output_schema": { "type": "object" },
    });
    let shop = ScriptedSource::new([order]);
    let sources = "sources: { shop: { openapi: shop.yaml } }";
    let mut config = Config::read(sources, "toolcrib.yaml", std::path::Path::new("/p")).unwrap();
    config.expose.mode = ExposeMode::Search;
    let fixture = start_configured(config, &[("shop", &shop)]).await;
    fixture.registry.tools(toolcrib::registry::ToolFilter::default()).await.unwrap();
    let full = fixture.call_text("describe_tools", json!({ "names": "shop__order", "full": true })).await;
    let full: Value = serde_json::from_str(&full).unwrap();
    assert_eq!((&full["inputSchema"], &full["outputSchema"]), (&whole, &json!({ "type": "object" })));
    assert_eq!(full.get("x-toolcrib-backing"), None);
    let short = fixture.call_text("describe_tools", json!({ "names": "shop__order" })).await;
    assert!(short.ends_with("(`full`: true tells more)"), "{short}");
}
