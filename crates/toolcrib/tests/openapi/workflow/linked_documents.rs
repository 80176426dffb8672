//! Workflows of other Arazzo documents as steps.

use serde_json::{Value, json};
use toolcrib::refresh::RefreshStatus;
use toolcrib::{Code, Principal, SourceId};
use toolcrib_testkit::http_server::{HttpReply, LoopbackServer};

use super::{OpenApiTestRegistry, buy_workflow, open_shop_with_workflow, order_step_with, run_buy};

fn start_server() -> LoopbackServer {
    LoopbackServer::start(|_| HttpReply::json(201, r#"{"id": 7}"#))
}

/// The workflow `buy`, whose only step runs a workflow of the document `other`.
fn buying_elsewhere(url: &str, workflow: &str) -> Value {
    let step = json!({
        "stepId": "pay",
        "workflowId": format!("$sourceDescriptions.other.{workflow}"),
        "parameters": [{ "name": "thing", "value": "$inputs.category" }],
    });
    let mut document = buy_workflow(json!([step]), json!({ "receipt": "$steps.pay.outputs.receipt" }));
    let other = json!({ "name": "other", "url": url, "type": "arazzo" });
    document["sourceDescriptions"].as_array_mut().unwrap().push(other);
    document
}

/// Another document in `parts`, with a description of the API relative to it and a component of its own.
fn other_document(workflows: Value) -> Value {
    json!({
        "arazzo": "1.0.1",
        "info": { "title": "Other", "version": "1" },
        "sourceDescriptions": [
            { "name": "the_api", "url": "../api.json", "type": "openapi" },
            { "name": "caller", "url": "../flow.json", "type": "arazzo" },
        ],
        "components": { "parameters": { "limit": { "name": "X-Limit", "in": "header", "value": 3 } } },
        "workflows": workflows,
    })
}

fn pay_workflow() -> Value {
    json!({
        "workflowId": "pay",
        "inputs": { "type": "object", "properties": { "thing": { "type": "string" } } },
        "steps": [order_step_with(json!({ "requestBody": { "payload": { "sku": "$inputs.thing" } } }))],
        "outputs": { "receipt": "$steps.order.outputs.id" },
    })
}

async fn open(server: &LoopbackServer, main: &Value, other: &Value) -> OpenApiTestRegistry {
    let registry = open_shop_with_workflow(server, main, json!({})).await;
    std::fs::create_dir_all(registry.home.path().join("parts")).unwrap();
    std::fs::write(registry.home.path().join("parts/other.json"), other.to_string()).unwrap();
    registry
}

fn skipped_reasons(registry: &OpenApiTestRegistry) -> Vec<String> {
    let skipped = registry.view(&Principal::local("test")).skipped_tools(&SourceId::parse("errands").unwrap());
    skipped.into_iter().map(|skipped| skipped.reason.clone()).collect()
}

#[tokio::test]
async fn a_step_runs_a_workflow_of_another_document() {
    let server = start_server();
    let main = buying_elsewhere("./parts/other.json", "pay");
    let registry = open(&server, &main, &other_document(json!([pay_workflow()]))).await;
    assert_eq!(run_buy(&registry).await.unwrap(), json!({ "receipt": 7 }));
    assert_eq!(server.requests()[0].text(), r#"{"sku":"light"}"#);
    // Only workflows of the main document are tools.
    assert!(!registry.tool_names().await.contains(&"errands__pay".to_owned()));

    // A change of the other document counts.
    registry.sources().invalidate(None).await.unwrap();
    assert_eq!(registry.refresh_source("errands").await.status, RefreshStatus::Unchanged);
    let mut changed = pay_workflow();
    changed["outputs"] = json!({ "receipt": "changed" });
    std::fs::write(registry.home.path().join("parts/other.json"), other_document(json!([changed])).to_string())
        .unwrap();
    assert_eq!(run_buy(&registry).await.unwrap(), json!({ "receipt": "changed" }));
}

#[tokio::test]
async fn inputs_of_a_nested_workflow_are_validated_before_any_request() {
    let server = start_server();
    let mut pay = pay_workflow();
    pay["inputs"] = json!({ "type": "object", "required": ["thing"], "additionalProperties": false,
        "properties": { "thing": { "type": "string" }, "amount": { "type": "integer" } } });
    let list = json!({ "stepId": "first", "operationId": "list products" });
    let check = async |other_document_runs: bool, parameters: Value, steps_before: &[Value], expected: &str| {
        let mut main = buying_elsewhere("parts/other.json", "pay");
        let workflow = &mut main["workflows"][0];
        workflow["steps"][0]["parameters"] = parameters;
        if !other_document_runs {
            workflow["steps"][0]["workflowId"] = json!("pay");
        }
        workflow["steps"] = steps_before.iter().chain(workflow["steps"].as_array().unwrap()).cloned().collect();
        main["workflows"].as_array_mut().unwrap().push(pay.clone());
        let registry = open(&server, &main, &other_document(json!([pay]))).await;
        let result = run_buy(&registry).await;
        let Some(fault) = expected.strip_prefix("refused: ") else {
            result.unwrap();
            return;
        };
        let error = result.unwrap_err();
        let code = if steps_before.is_empty() { Code::ToolInvalidInput } else { Code::ToolExecutionFailed };
        assert_eq!(error.code, code, "{error}");
        let prefix = "step `pay` of the workflow `buy` cannot be executed: wrong inputs for the workflow `pay`: ";
        assert_eq!(error.message, format!("{prefix}{fault}"));
    };
    let thing = json!({ "name": "thing", "value": "x" });
    for other_document_runs in [true, false] {
        for (parameter, expected) in [
            (json!({ "name": "amount", "value": "notanumber" }), r#"/amount "notanumber" is not of type "integer""#),
            (json!({ "name": "sum", "value": 1 }), "/sum is not an argument of this tool"),
        ] {
            check(other_document_runs, json!([thing, parameter]), &[], &format!("refused: {expected}")).await;
        }
        check(other_document_runs, json!([]), &[], "refused: /thing is required").await;
    }
    assert_eq!(server.request_lines(), [""; 0]);
    check(true, json!([]), &[list], "refused: /thing is required").await;
    assert_eq!(server.request_lines(), ["GET /products"]);
    // Values take the types that are declared, and `null` counts as absent.
    check(true, json!([thing, { "name": "amount", "value": "{$inputs.quantity}" }]), &[], "runs").await;
    check(true, json!([thing, { "name": "amount", "value": null }]), &[], "runs").await;
}

#[tokio::test]
async fn outputs_of_a_workflow_of_another_document_can_be_used() {
    let server = start_server();
    let mut pay = pay_workflow();
    pay["steps"] = json!([order_step_with(json!({}))]);
    let expressions = ["$sourceDescriptions.other.pay.outputs.receipt", "$workflows.pay.outputs.receipt"];
    for (has_own, expected) in [(false, [Some(7), Some(7)]), (true, [Some(7), None])] {
        let mut main = buying_elsewhere("parts/other.json", "pay");
        let buy = &mut main["workflows"][0];
        buy["dependsOn"] = json!(["$sourceDescriptions.other.pay"]);
        let value = json!({ "name": "receipt", "in": "query", "value": expressions[0] });
        buy["steps"] = json!([{ "stepId": "list", "operationId": "list products", "parameters": [value] }]);
        buy["outputs"] = json!({ "described": expressions[0], "plain": expressions[1] });
        if has_own {
            main["workflows"].as_array_mut().unwrap().push(pay.clone());
        }
        let registry = open(&server, &main, &other_document(json!([pay]))).await;
        let outputs = run_buy(&registry).await.unwrap();
        let actual = ["described", "plain"].map(|name| outputs.get(name).and_then(Value::as_i64));
        assert_eq!(actual, expected);
        assert_eq!(server.request_lines().pop().unwrap(), "GET /products?receipt=7");
    }
}

#[tokio::test]
async fn workflows_that_call_each_other_in_a_cycle_fail_with_the_cycle() {
    let server = start_server();
    let back = json!({ "stepId": "back", "workflowId": "$sourceDescriptions.caller.buy",
        "parameters": [{ "name": "category", "value": "x" }] });
    let other = other_document(json!([{ "workflowId": "pay", "steps": [back] }]));
    let registry = open(&server, &buying_elsewhere("parts/other.json", "pay"), &other).await;
    let error = run_buy(&registry).await.unwrap_err();
    assert_eq!(error.code, Code::ToolExecutionFailed);
    let cycle = "workflows of several documents call each other in a cycle: `buy` → `pay` → `buy`";
    assert!(error.message.contains(cycle), "{error}");
    assert_eq!(server.request_lines(), [""; 0]);
}

#[tokio::test]
async fn a_workflow_is_skipped_if_the_other_document_cannot_be_used() {
    let server = start_server();
    let broken = json!({ "workflowId": "broken", "steps": [{ "stepId": "s", "workflowId": "$sourceDescriptions.caller.nope" }] });
    let other = other_document(json!([pay_workflow(), broken]));
    let outside = tempfile::NamedTempFile::new().unwrap();
    let outside = outside.path().to_str().unwrap();
    for (url, workflow, expected) in [
        ("parts/missing.json", "pay", "the document `other` cannot be used: it cannot be read: "),
        ("parts/other.json", "steal", "the document `other` has no workflow `steal` that can run"),
        ("parts/other.json", "broken", "the document `other` has no workflow `broken` that can run"),
        (
            outside,
            "pay",
            "the document `other` cannot be used: it is outside of the directory of the workflow document",
        ),
        (
            "https://example.com/x.json",
            "pay",
            "the document `other` cannot be used: it is not a local file; download it",
        ),
        ("api.json", "pay", "the document `other` cannot be used: this is not an Arazzo document: "),
    ] {
        let registry = open(&server, &buying_elsewhere(url, workflow), &other).await;
        registry.refresh_source("errands").await;
        let reasons = skipped_reasons(&registry);
        assert!(reasons.len() == 1 && reasons[0].starts_with(expected), "{url} {workflow}: {reasons:?}");
        run_buy(&registry).await.unwrap_err();
    }
    // It can be used as soon as it exists.
    let registry = open(&server, &buying_elsewhere("parts/late.json", "pay"), &other).await;
    registry.refresh_source("errands").await;
    assert_eq!(skipped_reasons(&registry).len(), 1);
    std::fs::write(registry.home.path().join("parts/late.json"), other.to_string()).unwrap();
    registry.sources().invalidate(None).await.unwrap();
    registry.refresh_source("errands").await;
    assert_eq!(run_buy(&registry).await.unwrap(), json!({ "receipt": 7 }));
}
