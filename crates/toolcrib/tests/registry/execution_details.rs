//! Tools of OpenAPI sources: `tool` has the execution details that lists omit.

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
    let fixture = open_yaml(&format!("sources:\n  shop: {{ {keys}, tags: [shop] }}\n"), &[("shop", &shop)]).await;
    fixture.tools(toolcrib::registry::ToolFilter::default()).await.unwrap();
    let detail = fixture.tool("shop__get_order").unwrap();
    let mut json: Value = serde_json::from_str(detail.to_json().unwrap().get()).unwrap();
    json["full_input_schema"] = serde_json::from_str(detail.input_schema().get()).unwrap();
    json
}

#[tokio::test]
async fn tool_detail_has_execution_tags_and_output_schema() {
    let detail = tool_detail("openapi: shop.yaml").await;
    assert_eq!(
        detail["execution"],
        json!({
            "mode": "sync_http",
            "method": "GET",
            "path": "/orders/{id}",
            "url_template": "https://shop.example/v1/orders/{id}",
            "security": [{ "token": ["orders"] }, {}],
            "headers": {
                "Accept": "application/json, */*;q=0.1",
                "Accept-Encoding": "gzip, deflate",
                "User-Agent": concat!("toolcrib/", env!("CARGO_PKG_VERSION")),
            },
            "query": {},
            "body": null,
            "auth_error": null,
        })
    );
    assert_eq!(detail["tags"], json!(["shop", "orders"]));
    assert_eq!(detail["output_schema"], json!({ "type": "object", "description": "An order" }));
    assert_eq!(detail["deprecated"], true);
    assert_eq!(detail["input_schema"], order_tool()["inputSchema"]);
    assert_eq!(detail["full_input_schema"], order_tool()["x-toolcrib-backing"]["input_schema"]);
    let authorized =
        tool_detail("openapi: shop.yaml, auth: { bearer: '${env:SHOP_TOKEN}' }, headers: { X-Key: hunter2 }").await;
    let headers = &authorized["execution"]["headers"];
    assert_eq!(headers["Authorization"], "Bearer ${env:SHOP_TOKEN}");
    assert_eq!(headers["X-Key"], "***");
    let overridden = tool_detail("openapi: shop.yaml, base_url: 'http://127.0.0.1:8080/?key=hunter2'").await;
    assert!(!overridden.to_string().contains("hunter2"));
    assert_eq!(overridden["execution"]["url_template"], "http://127.0.0.1:8080/orders/{id}?key=***");
}

#[tokio::test]
async fn execution_details_from_an_mcp_server_are_ignored() {
    let detail = tool_detail("command: scripted").await;
    assert_eq!(detail["execution"]["mode"], "mcp_call");
    assert_eq!((&detail["tags"], &detail["output_schema"]), (&json!(["shop"]), &Value::Null));
    assert_eq!(detail["full_input_schema"], order_tool()["inputSchema"]);
}

#[tokio::test]
async fn a_past_tool_has_the_fields_with_a_history_and_no_execution_details_of_an_mcp_server() {
    let shop = ScriptedSource::new([order_tool()]);
    for (declared, has_spec) in [("openapi: shop.yaml", true), ("command: scripted", false)] {
        let fixture = open_yaml(&format!("sources: {{ shop: {{ {declared} }} }}"), &[("shop", &shop)]).await;
        fixture.tools(toolcrib::registry::ToolFilter::default()).await.unwrap();
        let past = fixture.history().tool_at("shop/get_order", fixture.now()).await.unwrap();
        assert_eq!((past.execution_spec.is_some(), past.is_pruned()), (has_spec, has_spec), "{declared}");
        assert_eq!((past.policy, past.usage.clone()), (None, None));
        let json: Value = serde_json::from_str(past.to_json().unwrap().get()).unwrap();
        let keys: Vec<&String> = json.as_object().unwrap().keys().collect();
        let expected = "id name source original_name title description input_schema output_schema annotations \
                        fingerprint at updated_at definition";
        assert_eq!(keys, expected.split_whitespace().collect::<Vec<_>>());
        assert_eq!(json["definition"], order_tool());
        assert_eq!((&json["input_schema"], &json["output_schema"]), (&order_tool()["inputSchema"], &Value::Null));
    }
}

#[tokio::test]
async fn api_requirements_are_derived_from_the_tools() {
    let mut wants = order_tool();
    wants["x-toolcrib-backing"]["execution"]["security"] = json!([[{ "scheme": "token", "kind": "bearer" }]]);
    let shop = ScriptedSource::new([wants]);
    let fixture = open_yaml("sources: { shop: { openapi: shop.yaml } }", &[("shop", &shop)]).await;
    assert_eq!(
        fixture.sources().api_requirements(&id("shop")),
        toolcrib::registry::ApiRequirements::default(),
        "nothing is known yet"
    );
    fixture.tools(toolcrib::registry::ToolFilter::default()).await.unwrap();
    let needs = fixture.sources().api_requirements(&id("shop"));
    let token = MissingScheme { scheme: "token".into(), kind: "bearer".into(), tools: 1 };
    assert_eq!((needs.auth_missing, needs.servers[0].url.as_str()), (vec![token], "https://shop.example/v1"));
    assert_eq!(fixture.sources().api_requirements(&id("other")), toolcrib::registry::ApiRequirements::default());
}
