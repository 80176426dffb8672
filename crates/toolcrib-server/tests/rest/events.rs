//! What listeners hear.

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::net::TcpStream;
use toolcrib::testkit::Scripted;

use crate::support::{SOON, Stage, known};

/// One who listens.
struct Ear(Lines<BufReader<TcpStream>>);

#[derive(Debug, PartialEq)]
struct Heard {
    event: String,
    id: Option<u64>,
    data: Value,
}

impl Ear {
    async fn open(stage: &Stage, path: &str, headers: &str) -> Ear {
        let stream = stage.open("GET", path, headers, b"").await;
        let mut ear = Ear(BufReader::new(stream).lines());
        while ear.line().await.is_some_and(|line| line != ": listening") {}
        ear
    }

    /// Nothing once the stream has ended.
    async fn line(&mut self) -> Option<String> {
        tokio::time::timeout(SOON, self.0.next_line()).await.unwrap().unwrap_or_default()
    }

    async fn next(&mut self) -> Option<Heard> {
        let (mut event, mut id) = (String::new(), None);
        loop {
            let line = self.line().await?;
            // What else there is are sizes of chunks and empty lines.
            if let Some(name) = line.strip_prefix("event: ") {
                (event, id) = (name.to_owned(), None);
            } else if let Some(number) = line.strip_prefix("id: ") {
                id = number.parse().ok();
            } else if let Some(data) = line.strip_prefix("data: ") {
                return Some(Heard { event, id, data: serde_json::from_str(data).unwrap() });
            }
        }
    }

    async fn next_of(&mut self, event: &str) -> Heard {
        loop {
            let heard = self.next().await.unwrap();
            if heard.event == event {
                return heard;
            }
        }
    }
}

#[tokio::test]
async fn what_happens_is_heard_as_it_happens() {
    let shop = Scripted::new(["order"]);
    let stage = known(&[("shop", &shop)]).await;
    let head = stage.registry.inventory().version;
    let mut ear = Ear::open(&stage, "/api/events", "").await;
    stage.post("/api/tools/shop__order/call", &json!({})).await.with(200);
    let call = ear.next().await.unwrap();
    assert_eq!((call.event.as_str(), call.id, &call.data["tool"]), ("call", None, &json!("shop__order")));
    assert_eq!((&call.data["code"], &call.data["caller"]), (&json!("OK"), &json!("rest")));

    shop.offer(["order", "return"]);
    stage.post("/api/sources/shop/refresh?force=true", &Value::Null).await.with(200);
    let source = ear.next_of("source").await;
    assert_eq!((&source.data["id"], &source.data["status"]), (&json!("shop"), &json!("discovering")));
    assert_eq!(ear.next_of("progress").await.data["source"], "shop");
    let record = ear.next_of("record").await;
    assert_eq!((record.id, &record.data["seq"]), (Some(head + 1), &json!(head + 1)));
    assert_eq!(
        (&record.data["type"], &record.data["data"]["added"]),
        (&json!("InventoryRecorded"), &json!(["return"]))
    );
    assert!(record.data["text"].is_string(), "{record:?}");
    assert_eq!(ear.next_of("discovered").await.data["added"], json!(["shop__return"]));
    assert_eq!(ear.next_of("source").await.data["tool_count"], 2);

    stage.manage("POST", "/api/sources/shop/disable", &Value::Null).await.with(200);
    assert_eq!(ear.next_of("record").await.id, Some(head + 2));
    stage.end().await;
    // The server does not wait for those who listen.
    while ear.next().await.is_some() {}
}

#[tokio::test]
async fn a_listener_goes_on_where_it_was_without_gap_or_duplicate() {
    let shop = Scripted::new(["order"]);
    let stage = known(&[("shop", &shop)]).await;
    let switch = async |times: usize| {
        for number in 0..times {
            let what = if number % 2 == 0 { "disable" } else { "enable" };
            stage.manage("POST", &format!("/api/sources/shop/{what}"), &Value::Null).await.with(200);
        }
    };
    switch(20).await;
    let head = stage.registry.inventory().version;
    let mut by_query = Ear::open(&stage, "/api/events?after=1", "").await;
    let mut by_header = Ear::open(&stage, "/api/events?after=1", &format!("Last-Event-ID: {}\r\n", head - 2)).await;
    let mut beyond = Ear::open(&stage, &format!("/api/events?after={}", u64::MAX), "").await;
    switch(2).await;
    for (ear, first) in [(&mut by_query, 2), (&mut by_header, head - 1), (&mut beyond, head + 1)] {
        for expected in first..=head + 2 {
            assert_eq!(ear.next_of("record").await.id, Some(expected));
        }
    }
}

#[tokio::test]
async fn a_listener_that_falls_behind_misses_no_record() {
    let shop = Scripted::new(["order"]);
    let stage = known(&[("shop", &shop)]).await;
    let head = stage.registry.inventory().version;
    let mut slow = Ear::open(&stage, "/api/events", "").await;
    // More than its socket and its queue hold.
    for _ in 0..20_000 {
        let _ = stage
            .registry
            .call(
                &toolcrib::Caller { name: "x".repeat(500) },
                "nowhere",
                json!({}),
                toolcrib::CallOptions { cached: true, ..Default::default() },
            )
            .await;
    }
    stage.manage("POST", "/api/sources/shop/disable", &Value::Null).await.with(200);
    let (mut lost, mut record) = (0, None);
    while record.is_none() {
        let heard = slow.next().await.unwrap();
        match heard.event.as_str() {
            "lost" => lost += heard.data["count"].as_u64().unwrap(),
            "record" => record = heard.id,
            _ => {}
        }
    }
    assert!(lost > 0);
    assert_eq!(record, Some(head + 1));
}
