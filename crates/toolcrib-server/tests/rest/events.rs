//! Tests the event stream.

use std::path::Path;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::net::TcpStream;
use toolcrib::config::Config;
use toolcrib::testkit::ScriptedSource;
use toolcrib::{Refresh, RegistryOptions};

use super::support::{TEST_TIMEOUT, start_discovered, start_with};
use crate::test_server::RunningServer;

/// Reads events from an open event stream.
pub(crate) struct EventStreamReader(Lines<BufReader<TcpStream>>);

#[derive(Debug, PartialEq)]
pub(crate) struct ReceivedEvent {
    pub(crate) event: String,
    pub(crate) id: Option<u64>,
    pub(crate) data: Value,
}

impl EventStreamReader {
    pub(crate) async fn open(server: &RunningServer, path: &str, headers: &str) -> EventStreamReader {
        let mut reader = EventStreamReader::start(server, path, headers).await;
        while reader.next_line().await.is_some_and(|line| line != ": listening") {}
        reader
    }

    /// Requests a stream without waiting for its beginning.
    pub(crate) async fn start(server: &RunningServer, path: &str, headers: &str) -> EventStreamReader {
        let stream = server.start_request("GET", path, headers, b"").await;
        EventStreamReader(BufReader::new(stream).lines())
    }

    /// The next line, or `None` after the end of the stream.
    async fn next_line(&mut self) -> Option<String> {
        tokio::time::timeout(TEST_TIMEOUT, self.0.next_line()).await.unwrap().unwrap_or_default()
    }

    pub(crate) async fn next_event(&mut self) -> Option<ReceivedEvent> {
        let (mut event, mut id) = (String::new(), None);
        loop {
            let line = self.next_line().await?;
            // All other lines are chunk sizes or empty.
            if let Some(name) = line.strip_prefix("event: ") {
                (event, id) = (name.to_owned(), None);
            } else if let Some(number) = line.strip_prefix("id: ") {
                id = number.parse().ok();
            } else if let Some(data) = line.strip_prefix("data: ") {
                return Some(ReceivedEvent { event, id, data: serde_json::from_str(data).unwrap() });
            }
        }
    }

    pub(crate) async fn next_named(&mut self, event: &str) -> ReceivedEvent {
        loop {
            let received = self.next_event().await.unwrap();
            if received.event == event {
                return received;
            }
        }
    }
}

#[tokio::test]
async fn events_are_streamed_as_they_happen() {
    let shop = ScriptedSource::new(["order"]);
    let server = start_discovered(&[("shop", &shop)]).await;
    let head = server.registry.inventory().version;
    let mut reader = EventStreamReader::open(&server, "/api/events", "").await;
    server.post("/api/tools/shop__order/call", &json!({})).await.expect_json(200);
    let call = reader.next_event().await.unwrap();
    assert_eq!((call.event.as_str(), call.id, &call.data["tool"]), ("call", None, &json!("shop__order")));
    assert_eq!((&call.data["code"], &call.data["caller"]), (&json!("OK"), &json!("rest")));

    shop.set_tools(["order", "return"]);
    server.post("/api/sources/shop/refresh?force=true", &Value::Null).await.expect_json(200);
    let source = reader.next_named("source").await;
    assert_eq!((&source.data["id"], &source.data["status"]), (&json!("shop"), &json!("discovering")));
    assert_eq!(reader.next_named("progress").await.data["source"], "shop");
    let record = reader.next_named("record").await;
    assert_eq!((record.id, &record.data["seq"]), (Some(head + 1), &json!(head + 1)));
    assert_eq!(
        (&record.data["type"], &record.data["data"]["added"]),
        (&json!("InventoryRecorded"), &json!(["return"]))
    );
    assert!(record.data["text"].is_string(), "{record:?}");
    assert_eq!(reader.next_named("discovered").await.data["added"], json!(["shop__return"]));
    assert_eq!(reader.next_named("source").await.data["tool_count"], 2);

    server.send_as_admin("POST", "/api/sources/shop/disable", &Value::Null).await.expect_json(200);
    assert_eq!(reader.next_named("record").await.id, Some(head + 2));
    server.stop().await;
    // The server does not wait for listeners when it stops.
    while reader.next_event().await.is_some() {}
}

#[tokio::test]
async fn a_failure_and_a_recovery_are_events_in_both_formats() {
    let shop = ScriptedSource::new(["order"]);
    let server = start_discovered(&[("shop", &shop)]).await;
    let head = server.registry.inventory().version;
    let mut plain = EventStreamReader::open(&server, "/api/events", "").await;
    let mut cloud =
        EventStreamReader::open(&server, &format!("/api/events?format=cloudevents&after={}", head - 1), "").await;
    let record = cloud.next_named("record").await;
    assert_eq!((record.id, &record.data["id"]), (Some(head), &json!(head.to_string())), "from the journal");
    assert_eq!(
        (&record.data["type"], &record.data["data"]["seq"]),
        (&json!("toolcrib.InventoryRecorded"), &json!(head))
    );

    shop.fail("out of order");
    server.post("/api/sources/shop/refresh?force=true", &Value::Null).await.expect_json(503);
    server.post("/api/sources/shop/refresh?force=true", &Value::Null).await.expect_json(503);
    shop.recover();
    server.post("/api/sources/shop/refresh?force=true", &Value::Null).await.expect_json(200);
    let failed = plain.next_named("failed").await;
    assert_eq!((failed.id, &failed.data["source"]), (None, &json!("shop")));
    assert_eq!(
        failed.data["error"],
        json!({ "code": "TOOL_UNAVAILABLE", "message": "out of order", "retryable": true })
    );
    // The second failure is no event of this kind.
    let is_transition = |event: &str| ["failed", "recovered"].contains(&event);
    let mut next = plain.next_event().await.unwrap();
    while !is_transition(&next.event) {
        next = plain.next_event().await.unwrap();
    }
    assert_eq!((next.event.as_str(), &next.data["text"]), ("recovered", &json!("`shop` recovered")));

    let failed = cloud.next_named("failed").await;
    assert_eq!(
        (failed.id, &failed.data["type"], &failed.data["subject"]),
        (None, &json!("toolcrib.source.failed"), &json!("shop"))
    );
    assert_eq!((&failed.data["specversion"], &failed.data["source"]), (&json!("1.0"), &record.data["source"]));
    assert!(failed.data["id"].is_string() && failed.data["time"].is_string(), "{failed:?}");
    assert_eq!(server.get("/api/events?format=yaml").await.status, 400);
}

#[tokio::test]
async fn a_listener_resumes_without_gap_or_duplicate() {
    let shop = ScriptedSource::new(["order"]);
    let server = start_discovered(&[("shop", &shop)]).await;
    let switch = async |times: usize| {
        for number in 0..times {
            let what = if number % 2 == 0 { "disable" } else { "enable" };
            server.send_as_admin("POST", &format!("/api/sources/shop/{what}"), &Value::Null).await.expect_json(200);
        }
    };
    switch(20).await;
    let head = server.registry.inventory().version;
    let mut by_query = EventStreamReader::open(&server, "/api/events?after=1", "").await;
    let mut by_header =
        EventStreamReader::open(&server, "/api/events?after=1", &format!("Last-Event-ID: {}\r\n", head - 2)).await;
    let mut beyond = EventStreamReader::open(&server, &format!("/api/events?after={}", u64::MAX), "").await;
    switch(2).await;
    for (reader, first) in [(&mut by_query, 2), (&mut by_header, head - 1), (&mut beyond, head + 1)] {
        for expected in first..=head + 2 {
            assert_eq!(reader.next_named("record").await.id, Some(expected));
        }
    }
}

#[tokio::test]
async fn a_slow_listener_misses_no_record() {
    let shop = ScriptedSource::new(["order"]);
    let server = start_discovered(&[("shop", &shop)]).await;
    let head = server.registry.inventory().version;
    let mut slow = EventStreamReader::open(&server, "/api/events", "").await;
    // More events than the socket and the queue can hold.
    for _ in 0..20_000 {
        let _ = server
            .registry
            .call("nowhere", json!({}))
            .without_discovery()
            .caller(toolcrib::Principal::local("x".repeat(500)))
            .await;
    }
    server.send_as_admin("POST", "/api/sources/shop/disable", &Value::Null).await.expect_json(200);
    let (mut lost, mut record) = (0, None);
    while record.is_none() {
        let received = slow.next_event().await.unwrap();
        match received.event.as_str() {
            "lost" => lost += received.data["count"].as_u64().unwrap(),
            "record" => record = received.id,
            _ => {}
        }
    }
    assert!(lost > 0);
    assert_eq!(record, Some(head + 1));
}

#[tokio::test]
async fn agents_get_no_events_about_hidden_tools() {
    let shop = ScriptedSource::new(["order", "wipe"]);
    let yaml = "sources: { shop: { command: x, tools: { wipe: hide } } }";
    let config = Config::read(yaml, "toolcrib.yaml", Path::new("/")).unwrap();
    let server = start_with(config, RegistryOptions::default(), &[("shop", &shop)]).await;
    let admin = format!("Authorization: Bearer {}\r\n", server.admin_token);
    let mut agent_events = EventStreamReader::open(&server, "/api/events?after=0", "").await;
    let mut admin_events = EventStreamReader::open(&server, "/api/events?after=0", &admin).await;
    server.registry.refresh(Refresh::default()).await;
    server.send_as_admin("POST", "/api/tools/shop__wipe/disable", &Value::Null).await.expect_json(200);
    server.send_as_admin("POST", "/api/tools/shop__order/disable", &Value::Null).await.expect_json(200);
    let mut texts = Vec::new();
    for events in [&mut agent_events, &mut admin_events] {
        let mut text = String::new();
        loop {
            let event = events.next_event().await.unwrap();
            text.push_str(&format!("{} {}\n", event.event, event.data));
            if event.data["type"] == "ToolDisabled" && event.data["tool"] == "order" {
                break;
            }
        }
        texts.push(text);
    }
    assert!(texts[0].contains("discovered") && !texts[0].contains("wipe"), "{}", texts[0]);
    assert!(texts[1].contains("ToolDisabled") && texts[1].contains("\"wipe\""), "{}", texts[1]);
    // Resumed from the journal, in which the last record that the agent gets is not the last one.
    server.send_as_admin("POST", "/api/tools/shop__wipe/enable", &Value::Null).await.expect_json(200);
    let mut resumed = EventStreamReader::open(&server, "/api/events?after=0", "").await;
    server.send_as_admin("POST", "/api/tools/shop__order/enable", &Value::Null).await.expect_json(200);
    let mut kinds = Vec::new();
    while kinds.last() != Some(&json!("ToolEnabled")) {
        kinds.push(resumed.next_named("record").await.data["type"].clone());
    }
    assert_eq!(kinds, ["SourceDeclared", "InventoryRecorded", "ToolDisabled", "ToolEnabled"]);
}

#[tokio::test]
async fn a_stream_ends_when_the_role_of_its_token_is_lowered() {
    let shop = ScriptedSource::new(["order"]);
    let server = start_discovered(&[("shop", &shop)]).await;
    let new = json!({ "name": "ada", "role": "admin" });
    let created = server.send_as_admin("POST", "/api/tokens", &new).await.expect_json(201);
    let headers = format!("Authorization: Bearer {}\r\n", created["token"].as_str().unwrap());
    let mut events = EventStreamReader::open(&server, "/api/events", &headers).await;
    server.send_as_admin("PATCH", "/api/tokens/ada", &json!({ "role": "agent" })).await.expect_json(200);
    while events.next_event().await.is_some() {}
}
