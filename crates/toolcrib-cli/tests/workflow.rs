//! Workflows over the API that `toolcrib demo --api` serves, through the real binary.
#![cfg(unix)]

use std::process::Stdio;

use serde_json::{Value, json};

use crate::support::test_server::TestWorkspace;

const WORKFLOW_DOCUMENT: &str = include_str!("../../../fixtures/shop.arazzo.yaml");

/// Runs a command; returns its exit code, stdout and stderr.
fn run(workspace: &TestWorkspace, arguments: &[&str]) -> (i32, String, String) {
    let output = workspace.toolcrib(arguments).stdin(Stdio::null()).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code().unwrap_or(-1), text(&output.stdout), text(&output.stderr))
}

#[test]
fn a_workflow_runs_over_the_demo_api() {
    let workspace = TestWorkspace::new(&json!({}), &json!({}));
    let shop = workspace.start_listening(&["demo", "--api"]);
    std::fs::write(workspace.path("shop.arazzo.yaml"), WORKFLOW_DOCUMENT).unwrap();
    let document = format!("{}/openapi.json", shop.url);

    let (code, added, stderr) = run(&workspace, &["add", "errands", "--workflow", "shop.arazzo.yaml"]);
    assert_eq!(code, 0, "{stderr}");
    assert!(added.starts_with("errands: 1 tool"), "{added}");
    let (code, _, stderr) = run(&workspace, &["call", "errands__buy_cheapest", "category=dairy"]);
    assert_ne!(code, 0);
    assert!(stderr.contains("`toolcrib add shop --openapi http://127.0.0.1:8080/openapi.json`"), "{stderr}");

    let (code, _, stderr) = run(&workspace, &["add", "shop", "--openapi", &document, "--allow-private"]);
    assert_eq!(code, 0, "{stderr}");
    let call = ["--json", "call", "errands__buy_cheapest", "category=dairy", "quantity=3"];
    let (code, result, stderr) = run(&workspace, &call);
    assert_eq!(code, 0, "{stderr}");
    let result: Value = serde_json::from_str(&result).unwrap();
    assert_eq!(result["structured"], json!({ "product": "Milk, one litre", "order": 1, "total": 4.2 }), "{result}");

    let (code, _, stderr) = run(&workspace, &["call", "errands__buy_cheapest", "category=dairy", "quantity=90"]);
    assert_ne!(code, 0);
    assert!(stderr.contains("failed at step `order`"), "{stderr}");
    assert!(stderr.contains("there are 57 of `milk-1`, not 90"), "{stderr}");
}
