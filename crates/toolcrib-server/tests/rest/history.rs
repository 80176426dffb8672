//! Tests lockfiles, differences, the history of a tool, and past versions of a tool.

use serde_json::{Value, json};
use toolcrib::testkit::ScriptedSource;

use super::support::{RestTestServer, start_discovered, wait_until};

fn order_tool(required: &[&str]) -> Value {
    let text = json!({ "type": "string" });
    json!({ "name": "order", "inputSchema": { "properties": { "item": text, "owner": text }, "required": required } })
}

async fn refresh_shop(server: &RestTestServer, status: u16) {
    server.post("/api/sources/shop/refresh?force=true", &Value::Null).await.expect_json(status);
}

#[tokio::test]
async fn history_is_returned_as_a_batch_of_cloud_events() {
    let shop = ScriptedSource::new(["order"]);
    let server = start_discovered(&[("shop", &shop)]).await;
    refresh_shop(&server, 200).await;
    let page = server.get("/api/history?after=0&limit=1&format=cloudevents").await;
    assert_eq!(page.header("content-type"), Some("application/cloudevents-batch+json"));
    let event = &page.json()[0];
    assert_eq!(
        (&event["specversion"], &event["id"], &event["type"]),
        (&json!("1.0"), &json!("1"), &json!("toolcrib.SourceDeclared"))
    );
    assert_eq!((&event["subject"], &event["datacontenttype"]), (&json!("shop"), &json!("application/json")));
    assert_eq!(event["data"], server.get("/api/history?after=0&limit=1").await.expect_json(200)["records"][0]);
    assert!(event["source"].as_str().unwrap().starts_with("urn:toolcrib:"), "{event}");
    let next = page.header("link").unwrap().split(['<', '>']).nth(1).unwrap().to_owned();
    assert_eq!(server.get(&next).await.json()[0]["id"], json!("2"), "{next}");
    let asked = server.get("/api/history").await.expect_json(200)["records"][1].clone();
    assert_eq!((&asked["type"], &asked["actor"]), (&json!("InventoryRecorded"), &json!("system")));
    assert_eq!(server.get("/api/history?format=yaml").await.status, 400);
}

#[tokio::test]
async fn the_actor_of_a_refresh_is_the_client_of_the_request() {
    let shop = ScriptedSource::new(["order"]);
    let server = start_discovered(&[("shop", &shop)]).await;
    let last_actor = async || {
        let history = server.get("/api/history").await.expect_json(200);
        history["records"].as_array().unwrap().last().unwrap()["actor"].as_str().unwrap().to_owned()
    };
    shop.set_tools(["order", "return"]);
    refresh_shop(&server, 200).await;
    assert_eq!(last_actor().await, "rest");
    shop.set_tools(["order"]);
    server.send_as_admin("POST", "/api/refresh?force=true", &Value::Null).await.expect_json(200);
    assert_eq!(last_actor().await, "rest:admin");
}

#[tokio::test]
async fn a_lockfile_and_the_history_show_the_same_differences() {
    let shop = ScriptedSource::new([order_tool(&[])]);
    let server = start_discovered(&[("shop", &shop)]).await;
    let lock = server.get("/api/lock").await.expect_json(200);
    assert!(lock["sources"]["shop"]["tools"]["shop__order"]["fingerprint"].is_string(), "{lock}");
    assert_eq!(
        server.post("/api/diff", &lock).await.expect_json(200),
        json!({ "differs": false, "sources": [], "stale": [] })
    );
    let records = server.get("/api/history").await.expect_json(200);
    let then = records["records"].as_array().unwrap().last().unwrap()["at"].as_str().unwrap().to_owned();
    wait_until("time has passed", async || server.registry.now().to_string() > then).await;

    shop.set_tools([order_tool(&["owner"]), json!({ "name": "cancel" })]);
    refresh_shop(&server, 200).await;
    let since = server.get(&format!("/api/diff?since={then}")).await.expect_json(200);
    assert_eq!(since, server.post("/api/diff", &lock).await.expect_json(200), "the same list was locked then");
    let source_diff = &since["sources"][0];
    assert_eq!((&source_diff["added"], &source_diff["removed"]), (&json!(["shop__cancel"]), &json!([])));
    assert_eq!(source_diff["changed"][0]["class"], json!("breaking"));
    assert_eq!(source_diff["changed"][0]["notes"], json!(["`owner` became required"]));

    let tool_history = server.get("/api/tools/shop__order/history").await.expect_json(200);
    let steps = tool_history["versions"].as_array().unwrap();
    assert_eq!(steps.iter().map(|step| step["what"].as_str().unwrap()).collect::<Vec<_>>(), ["changed", "added"]);
    assert_eq!(steps[0]["before"], steps[1]["after"]);
    assert_eq!(steps[0]["after"]["inputSchema"]["required"], json!(["owner"]));
    let past = server.get(&format!("/api/tools/shop__order?at={then}")).await.expect_json(200);
    assert_eq!(past["input_schema"]["required"], json!([]));
    assert_eq!(server.get(&format!("/api/tools/shop__cancel?at={then}")).await.status, 404);

    assert_eq!(server.get("/api/tools/shop__order?at=2999-01-01").await.status, 400, "a future time");
    let first = server.get("/api/history?after=0&limit=1").await.expect_json(200);
    assert_eq!(first["next_after"], first["records"][0]["seq"], "{first}");
    assert_eq!(server.get("/api/history?after=0&tool=shop__order").await.expect_json(200)["next_after"], json!(null));

    // A source that cannot be read is reported with its error, although its last list is still known.
    shop.fail("out of order");
    refresh_shop(&server, 503).await;
    for diff in [
        server.get(&format!("/api/diff?since={then}")).await.expect_json(200),
        server.post("/api/diff", &server.get("/api/lock").await.json()).await.expect_json(200),
    ] {
        assert_eq!(diff["sources"][0]["error"]["code"], json!("TOOL_UNAVAILABLE"), "{diff}");
        assert!(diff["sources"][0]["after"].is_string(), "{diff}");
    }
    server.stop().await;
}
