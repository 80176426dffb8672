//! Tools that this process carries out itself: what lists leave out is there when one tool is asked about.

use serde_json::{Value, json};
use toolcrib::registry::MissingScheme;
use toolcrib::testkit::ScriptedSource;

use crate::support::{id, open_yaml};

fn order_tool() -> Value {
    let needed = json!({ "scheme": "token", "kind": "bearer", "scopes": ["orders"] });
    let operation = json!({
        "mode": "sync_http", "method": "GET", "server": "https://shop.example/v1", "path": "/orders/{id}",
        "security": [[needed], []],
    });
    let whole = json!({ "type": "object", "properties": { "deep": { "type": "object", "properties": {} } } });
    json!({
        "name": "get_order",
        "inputSchema": { "type": "object", "properties": { "deep": {} } },
        "x-toolcrib-backing": {
            "execution": operation,
            "input_schema": whole,
            "output_schema": { "type": "object", "description": "An \u{200b}order" },
            "tags": ["orders", "shop"],
            "deprecated": true,
        },
    })
}

async fn tool_detail(keys: &str) -> Value {
    let shop = ScriptedSource::new([order_tool()]);
    let bench = open_yaml(&format!("sources:\n  shop: {{ {keys}, tags: [shop] }}\n"), &[("shop", &shop)]).await;
    bench.tools(toolcrib::registry::ToolFilter::default()).await.unwrap();
    let detail = bench.tool_detail("shop__get_order").unwrap();
    let mut json: Value = serde_json::from_str(detail.to_json().unwrap().get()).unwrap();
    json["whole"] = serde_json::from_str(detail.input_schema().get()).unwrap();
    json
}

#[tokio::test]
async fn one_tool_shows_its_request_its_tags_and_its_output_schema() {
    let found = tool_detail("openapi: shop.yaml").await;
    assert_eq!(
        found["execution"],
        json!({
            "mode": "sync_http",
            "method": "GET",
            "path": "/orders/{id}",
            "url_template": "https://shop.example/v1/orders/{id}",
            "security": [{ "token": ["orders"] }, {}],
        })
    );
    assert_eq!(found["tags"], json!(["shop", "orders"]));
    assert_eq!(found["output_schema"], json!({ "type": "object", "description": "An order" }));
    assert_eq!(found["deprecated"], true);
    assert_eq!(found["input_schema"], order_tool()["inputSchema"]);
    assert_eq!(found["whole"], order_tool()["x-toolcrib-backing"]["input_schema"]);
    let elsewhere = tool_detail("openapi: shop.yaml, base_url: 'http://127.0.0.1:8080/?key=hunter2'").await;
    assert!(!elsewhere.to_string().contains("hunter2"));
}

#[tokio::test]
async fn what_an_mcp_server_says_there_counts_for_nothing() {
    let found = tool_detail("command: scripted").await;
    assert_eq!(found["execution"]["mode"], "mcp_call");
    assert_eq!((&found["tags"], &found["output_schema"]), (&json!(["shop"]), &Value::Null));
    assert_eq!(found["whole"], order_tool()["inputSchema"]);
}

#[tokio::test]
async fn what_an_api_needs_is_known_from_its_tools() {
    let mut wants = order_tool();
    wants["x-toolcrib-backing"]["execution"]["security"] = json!([[{ "scheme": "token", "kind": "bearer" }]]);
    let shop = ScriptedSource::new([wants]);
    let bench = open_yaml("sources: { shop: { openapi: shop.yaml } }", &[("shop", &shop)]).await;
    assert_eq!(
        bench.api_requirements(&id("shop")),
        toolcrib::registry::ApiRequirements::default(),
        "nothing is known yet"
    );
    bench.tools(toolcrib::registry::ToolFilter::default()).await.unwrap();
    let needs = bench.api_requirements(&id("shop"));
    let token = MissingScheme { scheme: "token".into(), kind: "bearer".into(), tools: 1 };
    assert_eq!((needs.auth_missing, needs.servers[0].url.as_str()), (vec![token], "https://shop.example/v1"));
    assert_eq!(bench.api_requirements(&id("other")), toolcrib::registry::ApiRequirements::default());
}
