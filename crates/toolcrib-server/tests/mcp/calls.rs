//! Tests searching, describing and calling tools, through the meta tools and by name.

use serde_json::value::RawValue;
use serde_json::{Value, json};
use toolcrib::config::{Config, Expose, ExposeMode};
use toolcrib::core::json::{parse_exact, plain_text};
use toolcrib::core::policy::{Rule, Rules, Verdict};
use toolcrib::testkit::{ScriptedReply, ScriptedSource, config_with_sources};
use toolcrib::{Refresh, Registry, RegistryOptions};
use toolcrib_mcp::{RequestOptions, WireError};
use toolcrib_server::McpService;
use toolcrib_testkit::programs;

use super::support::{McpFixture, TEST_TIMEOUT, connect_client, start, start_configured, text_tool};

async fn start_shop() -> McpFixture {
    let shop =
        ScriptedSource::new([text_tool("order", "Orders goods. Slowly."), text_tool("refund", "Gives money back")]);
    let fixture = start(ExposeMode::Search, &[("shop", &shop)]).await;
    fixture.registry.refresh(Refresh::default()).await;
    fixture
}

#[tokio::test]
async fn a_search_does_not_return_denied_tools() {
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
async fn a_tool_can_be_found_described_and_called() {
    let fixture = start_shop().await;
    let found = fixture.call_text("search_tools", json!({ "query": "order goods" })).await;
    assert!(found.starts_with("shop__order(text*: string, times: integer) — Orders goods"), "{found}");
    let weak = fixture.call_text("search_tools", json!({ "query": "drowning slowly in homework" })).await;
    assert!(weak.starts_with("shop__order(") && weak.ends_with("\nhint: weak matches only"), "{weak}");

    let described = fixture.call_text("describe_tools", json!({ "names": ["shop__order"] })).await;
    assert!(described.starts_with("shop__order(text*: string, times: integer)"), "{described}");
    assert!(described.contains("Orders goods. Slowly.") && described.contains("What to say"), "{described}");
    let full = fixture.call_text("describe_tools", json!({ "names": "shop__order", "full": true })).await;
    assert_eq!(serde_json::from_str::<Value>(&full).unwrap()["inputSchema"]["required"], json!(["text"]));
    let some = fixture.call_text("describe_tools", json!({ "names": ["shop__order", "nothing", "nobody"] })).await;
    assert!(some.starts_with("shop__order(") && some.contains("`nothing`") && some.contains("`nobody`"), "{some}");

    let called = json!({ "name": "shop__order", "arguments": { "text": "tea" } });
    assert_eq!(fixture.call_text("call_tool", called).await, r#"order {"text":"tea"}"#);
    // A tool that is not listed can be called by its name, and arguments may be JSON in a string.
    assert_eq!(fixture.call_text("shop__order", json!({ "text": "tea" })).await, r#"order {"text":"tea"}"#);
    let with_json_string = json!({ "name": "shop/order", "arguments": "{\"text\":\"tea\"}" });
    assert_eq!(fixture.call_text("call_tool", with_json_string).await, r#"order {"text":"tea"}"#);
}

#[tokio::test]
async fn integers_of_arguments_keep_their_digits() {
    let integer: Value = parse_exact("123456789012345678901234567890").unwrap();
    let schema = json!({ "type": "object", "properties": { "id": { "type": "integer", "default": integer } } });
    let shop = ScriptedSource::new([json!({ "name": "find", "inputSchema": schema })]);
    let fixture = start(ExposeMode::Search, &[("shop", &shop)]).await;
    fixture.registry.refresh(Refresh::default()).await;
    let expected = r#"find {"id":123456789012345678901234567890}"#;
    let arguments = json!({ "id": integer });
    assert_eq!(fixture.call_text("shop__find", arguments.clone()).await, expected);
    for arguments in [arguments.clone(), json!(plain_text(&arguments))] {
        let called = json!({ "name": "shop__find", "arguments": arguments });
        assert_eq!(fixture.call_text("call_tool", called).await, expected);
    }
    shop.set_reply(move |_, input| {
        let structured = json!({ "found": input["id"] });
        json!({ "content": [], "structuredContent": structured })
    });
    let result = fixture.call("shop__find", arguments).await;
    assert_eq!(result["structuredContent"], json!({ "found": integer }));
    let described = fixture.call_text("describe_tools", json!({ "names": ["shop__find"] })).await;
    assert!(described.contains("default 123456789012345678901234567890"), "{described}");
}

#[tokio::test]
async fn the_instructions_contain_the_summary() {
    let fixture = start_shop().await;
    let (client, _server) = connect_client(&fixture.service, |_| {}).await;
    let instructions = client.server().instructions.clone().unwrap();
    assert!(instructions.contains("shop") && instructions.contains("search_tools"), "{instructions}");
}

#[tokio::test]
async fn argument_errors_contain_faults_and_signature() {
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
async fn the_signature_in_an_error_shows_the_wrong_argument() {
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
async fn an_unknown_tool_is_reported_with_similar_names() {
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
async fn meta_tools_report_their_own_argument_errors() {
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
async fn any_query_gets_a_response() {
    let fixture = start_shop().await;
    let long = "order ".repeat(100_000);
    for query in ["", " ", "\u{0}\u{7}\u{1b}[31m", "zzzz", "订购商品", "🙂", &long] {
        let text = fixture.call_text("search_tools", json!({ "query": query })).await;
        assert!(!text.is_empty());
    }
    // Half of a surrogate pair, as sent by a client that cut a text within a character.
    let params = r#"{"name": "search_tools", "arguments": {"query": "order \ud83e"}}"#;
    let params = RawValue::from_string(params.to_owned()).unwrap();
    let result = fixture.client.request("tools/call", Some(&params), &RequestOptions::new(TEST_TIMEOUT)).await.unwrap();
    assert!(result.get().contains("shop__order"), "{result}");
}

#[tokio::test]
async fn meta_tools_can_be_described() {
    let text = start_shop().await.call_text("describe_tools", json!({ "names": ["search_tools"] })).await;
    assert!(text.starts_with("search_tools(query*: string"), "{text}");
}

#[tokio::test]
async fn a_search_limit_is_accepted_in_any_form_and_truncation_is_reported() {
    let many: Vec<Value> = (0..210).map(|number| text_tool(&format!("order_{number}"), "Orders")).collect();
    let shop = ScriptedSource::new(many);
    let fixture = start(ExposeMode::Search, &[("shop", &shop)]).await;
    fixture
        .registry
        .refresher()
        .ensure_freshness(toolcrib::RequiredFreshness::Discovered, None, Default::default())
        .await;
    for (limit, lines) in [(json!(3), 3), (json!(3.0), 3), (json!("3"), 3), (json!(-1), 5), (json!(null), 5)] {
        let text = fixture.call_text("search_tools", json!({ "query": "orders", "limit": limit })).await;
        assert_eq!(text.lines().count(), lines, "{limit}: {text}");
    }
    let all = fixture.call_text("search_tools", json!({ "query": "orders", "limit": 0 })).await;
    assert!(all.lines().count() == 201 && all.ends_with("(10 more match; more words narrow it down)"), "{all:.200}");
}

#[tokio::test]
async fn untrusted_sources_are_reported() {
    let shop = ScriptedSource::new([text_tool("order", "Orders")]);
    let fixture = start(ExposeMode::Search, &[("shop", &shop)]).await;
    let why = "its file is not trusted yet; `toolcrib trust` allows it";
    let sources = vec![toolcrib::SourceId::parse("shop").unwrap()];
    let untrusted = Some(toolcrib::UntrustedFile { reason: why.to_owned(), sources });
    fixture.registry.configuration().set_trust(toolcrib::Trust { untrusted, ..toolcrib::Trust::default() });
    let text = fixture.call_text("search_tools", json!({ "query": "orders" })).await;
    assert!(text.contains(&format!("1 source is not used: {why}")) && !text.contains("search again"), "{text}");
    let (client, _server) = connect_client(&fixture.service, |_| {}).await;
    assert!(client.server().instructions.as_ref().unwrap().contains(why));
}

#[tokio::test]
async fn results_and_errors_of_a_source_are_forwarded_unchanged() {
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
    let reply = result.clone();
    odd.set_reply(move |_, _| reply.clone());
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
        let data_blocks = blocks.len() - usize::from(note.starts_with("[page"));
        read.extend(blocks[..data_blocks].iter().filter_map(|block| block["text"].as_str()));
        match next {
            Some(next) => page = fixture.call("call_tool", json!({ "name": "big__say", "page": next })).await,
            None => break,
        }
    }
    assert_eq!(read, text);
    assert_eq!(big.calls(), 1, "reading a page does not call the tool again");
    let error = fixture.call_error("call_tool", json!({ "name": "big__say", "page": "nonsense" })).await;
    assert_eq!(error["code"], "TOOL_INVALID_INPUT");
}

/// The cursor in the note at the end of a page.
fn next_cursor(page: &Value) -> Option<String> {
    let note = page["content"].as_array()?.last()?["text"].as_str()?;
    Some(note.split("page: \"").nth(1)?.split('"').next()?.to_owned())
}

/// Calls a tool and reads all pages of its result by calling it again with `page` among its arguments.
async fn read_all_pages(fixture: &McpFixture, name: &str, mut arguments: Value) -> Vec<Value> {
    let mut pages = vec![fixture.call(name, arguments.clone()).await];
    while let Some(cursor) = pages.last().and_then(next_cursor) {
        assert!(cursor.starts_with(fixture.registry.node().as_str()), "only this process can serve it: {cursor}");
        arguments["page"] = json!(cursor);
        pages.push(fixture.call(name, arguments.clone()).await);
    }
    pages
}

#[tokio::test]
async fn in_full_mode_further_pages_are_read_through_the_tool_itself() {
    let big = ScriptedSource::new([text_tool("say", "Says a lot")]);
    let fixture = start(ExposeMode::Full, &[("big", &big)]).await;
    let long = "0123456789".repeat(60_000);
    let whole = long.clone();
    big.set_reply(move |_, _| json!(whole.clone()));
    let pages = read_all_pages(&fixture, "big__say", json!({ "text": "x" })).await;
    let read: String = pages.iter().filter_map(|page| page["content"][0]["text"].as_str()).collect();
    assert_eq!((read == long, big.calls()), (true, 1));

    // An unknown value in the form of a cursor is an error; any other `page` is an argument of the tool.
    let unknown = format!("{:024x}-page-{:032x}-2", 7, 7);
    let error = fixture.call_error("big__say", json!({ "text": "x", "page": unknown })).await;
    assert!(error["message"].as_str().unwrap().contains("call the tool again"), "{error}");
    assert_eq!(big.calls(), 1);
    fixture.call("big__say", json!({ "text": "x", "page": "7" })).await;
    assert_eq!(big.calls(), 2);
}

#[tokio::test]
async fn a_cursor_of_an_upstream_toolcrib_is_forwarded() {
    let mut call = text_tool("call_tool", "Calls a tool of the Toolcrib behind");
    call["inputSchema"]["properties"]["page"] = json!({ "type": "string" });
    let inner = ScriptedSource::new([call]);
    let fixture = start(ExposeMode::Full, &[("inner", &inner)]).await;
    let page = format!("{:024x}-page-{:032x}-2", 7, 7);
    fixture.call("inner__call_tool", json!({ "text": "x", "page": page })).await;
    assert_eq!(inner.calls(), 1);
}

/// Clients that check results against the listed output schema rejected results that had been cut.
#[tokio::test]
async fn a_large_result_stays_valid_for_its_output_schema() {
    let mut say = text_tool("say", "Says a lot");
    say["outputSchema"] = json!({ "type": "object", "required": ["said"] });
    let big = ScriptedSource::new([say]);
    let fixture = start(ExposeMode::Full, &[("big", &big)]).await;
    let result_of_size = |text: usize, structured: usize| {
        let structured = json!({ "said": "y".repeat(structured) });
        json!({ "content": [{ "type": "text", "text": "x".repeat(text) }], "structuredContent": structured })
    };
    let pages = async |result: &Value| {
        let result = result.clone();
        big.set_reply(move |_, _| result.clone());
        read_all_pages(&fixture, "big__say", json!({ "text": "x" })).await
    };

    let within_limits = result_of_size(200_000, 200_000);
    assert_eq!(pages(&within_limits).await, [within_limits], "each part is within the limit");

    let much_text = result_of_size(600_000, 200_000);
    let split = pages(&much_text).await;
    assert_eq!(split.len(), 3);
    assert!(split.iter().all(|page| page["structuredContent"] == much_text["structuredContent"]));

    let split = pages(&result_of_size(300_000, 300_000)).await;
    assert_eq!(split.len(), 2);
    assert!(split.iter().all(|page| page["isError"] == true && page.get("structuredContent").is_none()));
    let stats = fixture.registry.statistics().totals();
    assert_eq!((stats.calls, stats.errors), (3, 0), "the tool did not fail");

    // `call_tool` declares no output schema.
    let forwarded = json!({ "name": "big__say", "arguments": { "text": "x" } });
    let split = read_all_pages(&fixture, "call_tool", forwarded).await;
    assert!(split.iter().all(|page| page.get("isError").is_none()));
}

#[tokio::test]
async fn an_unknown_method_is_an_error() {
    let fixture = start_shop().await;
    let Err(WireError::Rpc(error)) = fixture.request("tools/dance", json!({})).await else {
        panic!("the unknown method was accepted")
    };
    assert_eq!(error.code, -32601);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_progress_arrives_before_the_result() {
    let config = format!(
        "sources: {{ s: {{ command: {:?}, args: [--with, slow, --progress, \"4\"] }} }}",
        programs::scripted_server()
    );
    let config = Config::read(&config, "toolcrib.yaml", std::path::Path::new(".")).unwrap();
    let registry = Registry::open(config, RegistryOptions::default()).await.unwrap();
    let service = McpService::new(registry.clone(), Expose::default());
    let (client, _server) = connect_client(&service, |_| {}).await;
    for round in 0..50 {
        let (progress, mut steps) = toolcrib::testkit::progress_channel();
        let options = RequestOptions { progress: Some(&progress), ..RequestOptions::new(TEST_TIMEOUT) };
        let arguments = serde_json::value::to_raw_value(&json!({})).unwrap();
        client.call_tool("s__slow", &arguments, None, None, &options).await.unwrap();
        let mut received = 0;
        while steps.try_recv().is_ok() {
            received += 1;
        }
        assert_eq!(received, 4, "in round {round}");
    }
    registry.close().await;
}

#[tokio::test]
async fn a_full_description_has_the_complete_schemas() {
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
    assert!(short.ends_with("(`full`: true shows all)"), "{short}");
}

/// Regression: agents were told to use commands, and could not read what a removed tool was.
#[tokio::test]
async fn a_removed_tool_can_be_described_and_errors_name_meta_tools() {
    let shop = ScriptedSource::new([text_tool("order", "Orders goods"), text_tool("old", "Did something")]);
    let fixture = start(ExposeMode::Search, &[("shop", &shop)]).await;
    fixture.registry.refresh(Refresh::default()).await;
    shop.set_tools([text_tool("order", "Orders goods")]);
    fixture.registry.refresh(Refresh { force: true, ..Refresh::default() }).await;
    let error = fixture.call_error("shop__old", json!({ "text": "x" })).await;
    let message = error["message"].as_str().unwrap();
    assert!(message.ends_with("; `describe_tools` shows its last definition"), "{message}");
    let described = fixture.call_text("describe_tools", json!({ "names": ["shop__old"] })).await;
    assert!(described.starts_with("`shop__old` was removed at 20"), "{described}");
    assert!(described.contains("shop__old(text*: string") && described.contains("Did something"), "{described}");
    let error = fixture.call_error("xyzzy", json!({})).await;
    assert_eq!(error["message"], "no tool named `xyzzy`; `search_tools` finds tools");
}

#[tokio::test]
async fn a_call_above_the_limit_is_a_result_with_the_error() {
    let shop = ScriptedSource::new([text_tool("order", "Orders goods")]);
    let mut config = config_with_sources(["shop"]);
    config.expose.mode = ExposeMode::Search;
    config.limits.calls_per_minute = Some(2);
    let fixture = start_configured(config, &[("shop", &shop)]).await;
    fixture.registry.refresh(Refresh::default()).await;
    // Searching is not limited, and a call through the meta tool counts once.
    for _ in 0..3 {
        fixture.call_text("search_tools", json!({ "query": "order" })).await;
    }
    let called = || json!({ "name": "shop__order", "arguments": { "text": "tea" } });
    fixture.call_text("call_tool", called()).await;
    fixture.call_text("shop__order", json!({ "text": "tea" })).await;
    for (tool, arguments) in [("call_tool", called()), ("shop__order", json!({ "text": "tea" }))] {
        let error = fixture.call_error(tool, arguments).await;
        assert_eq!((&error["code"], &error["retryable"]), (&json!("RATE_LIMITED"), &json!(true)), "{error}");
        assert_eq!(error["details"]["by"], "caller");
        assert!(error["details"]["retry_after_ms"].as_u64().is_some_and(|wait| wait <= 30_000), "{error}");
    }
    assert_eq!(shop.calls(), 2);
}
