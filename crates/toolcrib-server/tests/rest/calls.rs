//! Tests tool calls over REST.

use serde_json::{Value, json};
use toolcrib::RegistryOptions;
use toolcrib::config::Config;
use toolcrib::registry::RegistryNotice;
use toolcrib::testkit::{ScriptedReply, ScriptedSource};

use super::support::{RestTestServer, TEST_TIMEOUT, start_discovered, start_with, wait_until};

fn order_tool() -> Value {
    let schema = json!({ "type": "object", "properties": { "what": { "type": "string" } }, "required": ["what"] });
    json!({ "name": "order", "description": "Orders something", "inputSchema": schema })
}

async fn call_tool(server: &RestTestServer, name: &str, body: Value) -> (u16, Value) {
    let response = server.post(&format!("/api/tools/{name}/call"), &body).await;
    (response.status, response.json())
}

#[tokio::test]
async fn a_call_returns_a_result_or_an_error() {
    let shop = ScriptedSource::new([order_tool()]);
    let server = start_discovered(&[("shop", &shop)]).await;
    let (status, result) = call_tool(&server, "shop__order", json!({ "arguments": { "what": "tea" } })).await;
    assert_eq!((status, &result["is_error"], &result["source"]), (200, &json!(false), &json!("shop")));
    assert_eq!(result["content"][0]["text"], "order {\"what\":\"tea\"}");
    for (name, body, status, code) in [
        ("shop__order", json!({ "arguments": {} }), 400, "TOOL_INVALID_INPUT"),
        ("shop__ordre", json!({}), 404, "TOOL_NOT_IMPLEMENTED"),
        ("shop__", json!({}), 400, "TOOL_INVALID_INPUT"),
        ("a%0Ab", json!({}), 400, "TOOL_INVALID_INPUT"),
        ("%3Cb%3E", json!({}), 400, "TOOL_INVALID_INPUT"),
        ("shop__order", json!({ "argument": {} }), 400, "BAD_REQUEST"),
        ("shop__order", json!({ "arguments": [] }), 400, "BAD_REQUEST"),
        ("shop__order", json!({ "arguments": {}, "timeout": "soon" }), 400, "BAD_REQUEST"),
        ("shop__order", json!({ "arguments": { "what": "x" }, "yes": true }), 403, "FORBIDDEN"),
        ("shop__order", json!({ "page": "page-nonsense" }), 400, "TOOL_INVALID_INPUT"),
    ] {
        let (actual, response) = call_tool(&server, name, body.clone()).await;
        assert_eq!((actual, &response["error"]["code"]), (status, &json!(code)), "{name} {body}: {response}");
    }
    shop.set_reply(|_, _| json!({ "content": [], "isError": true }));
    assert_eq!(call_tool(&server, "order", json!({ "arguments": { "what": "x" } })).await.1["is_error"], true);
    shop.set_reply(|_, _| ScriptedReply::Rejected("no".into()));
    assert_eq!(
        call_tool(&server, "order", json!({ "arguments": { "what": "x" }, "timeout": "99999999h" })).await.0,
        502
    );
    shop.set_reply(|_, _| ScriptedReply::Disconnected("gone".into()));
    assert!(matches!(call_tool(&server, "order", json!({ "arguments": { "what": "x" } })).await.0, 502 | 503));
}

#[tokio::test]
async fn integers_of_arguments_keep_their_digits() {
    let shop = ScriptedSource::new([json!({ "name": "find", "inputSchema": {
        "type": "object", "properties": { "id": { "type": "integer" }, "ids": { "items": { "type": "integer" } } } } })]);
    let server = start_discovered(&[("shop", &shop)]).await;
    let arguments = r#"{"id":123456789012345678901234567890,"ids":[-18446744073709551616]}"#;
    let body = format!(r#"{{"arguments":{arguments}}}"#);
    let headers = "Content-Type: application/json\r\n";
    let response = server.send("POST", "/api/tools/shop__find/call", headers, body).await.json();
    assert_eq!(response["content"][0]["text"], format!("find {arguments}"));
    let body = r#"{"arguments":{"id":[123456789012345678901234567890]}}"#;
    let response = server.send("POST", "/api/tools/shop__find/call", headers, body).await;
    assert_eq!((response.status, &response.json()["error"]["code"]), (400, &json!("TOOL_INVALID_INPUT")));
}

#[tokio::test]
async fn a_client_that_disconnects_cancels_its_call() {
    let shop = ScriptedSource::new([order_tool()]);
    let server = start_discovered(&[("shop", &shop)]).await;
    let mut notices = server.registry.subscribe();
    shop.pause();
    let body = json!({ "arguments": { "what": "tea" } }).to_string();
    let headers = "Content-Type: application/json\r\n";
    let connection = server.start_request("POST", "/api/tools/shop__order/call", headers, body.as_bytes()).await;
    wait_until("the call", async || shop.calls() == 1).await;
    drop(connection);
    // The source is paused and the call timeout is long, so only the disconnect can end the call.
    let ended = async {
        loop {
            if let RegistryNotice::CallFinished(called) = notices.recv().await.unwrap() {
                return called;
            }
        }
    };
    let called = tokio::time::timeout(TEST_TIMEOUT, ended).await.unwrap();
    assert_eq!(called.code, "TOOL_EXECUTION_FAILED");
}

#[tokio::test]
async fn a_large_result_is_returned_in_pages_or_as_a_whole() {
    let shop = ScriptedSource::new(["list"]);
    shop.set_reply(|_, _| json!("x".repeat(20_000)));
    let text = json!({ "sources": { "shop": { "command": "scripted", "result_limit": "8KiB" } } }).to_string();
    let config = Config::read(&text, "toolcrib.json", std::path::Path::new("/")).unwrap();
    let server = start_with(config, RegistryOptions::default(), &[("shop", &shop)]).await;
    let (mut read, mut body) = (0, json!({}));
    loop {
        let (status, page) = call_tool(&server, "shop__list", body).await;
        assert_eq!(status, 200, "{page}");
        let text = page["content"][0]["text"].as_str().unwrap();
        read += text.bytes().filter(|byte| *byte == b'x').count();
        match page["page"]["next"].as_str() {
            Some(next) => body = json!({ "page": next }),
            None => break,
        }
    }
    assert!(read >= 20_000, "{read}");
    assert_eq!(shop.calls(), 1);
    let (_, whole) = call_tool(&server, "shop__list", json!({ "whole": true })).await;
    assert_eq!(whole["content"][0]["text"].as_str().unwrap().len(), 20_000);
}

#[tokio::test]
async fn a_caller_above_its_limit_gets_429_with_the_time_to_wait() {
    let shop = ScriptedSource::new(["list"]);
    let source = json!({ "command": "scripted", "limits": { "concurrent_calls": 1 } });
    let text = json!({ "sources": { "shop": source }, "limits": { "calls_per_minute": 1 } }).to_string();
    let config = Config::read(&text, "toolcrib.json", std::path::Path::new("/")).unwrap();
    let server = start_with(config, RegistryOptions::default(), &[("shop", &shop)]).await;
    assert_eq!(call_tool(&server, "shop__list", json!({})).await.0, 200);
    let response = server.post("/api/tools/shop__list/call", &json!({})).await;
    let error = &response.json()["error"];
    let wait_ms = error["details"]["retry_after_ms"].as_u64().unwrap();
    assert_eq!((response.status, &error["code"], &error["retryable"]), (429, &json!("RATE_LIMITED"), &json!(true)));
    assert_eq!((&error["details"]["by"], shop.calls()), (&json!("caller"), 1));
    assert!((1..=60_000).contains(&wait_ms), "{wait_ms}");
    assert_eq!(response.header("retry-after"), Some(wait_ms.div_ceil(1000).to_string().as_str()));
    // Everything but calls is not limited.
    assert_eq!(server.get("/api/tools").await.status, 200);

    let metrics = server.get("/metrics").await.body;
    for line in [
        r#"toolcrib_caller_calls_total{caller="rest",outcome="error"} 0"#,
        r#"toolcrib_caller_calls_total{caller="rest",outcome="ok"} 1"#,
        r#"toolcrib_caller_calls_total{caller="rest",outcome="rate_limited"} 1"#,
        r#"toolcrib_source_calls_in_flight{source="shop"} 0"#,
        r#"toolcrib_source_calls_waiting{source="shop"} 0"#,
    ] {
        assert!(metrics.lines().any(|actual| actual == line), "{line}: {metrics}");
    }
}
