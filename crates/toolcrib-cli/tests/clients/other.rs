//! Clients that are not official: FastMCP in both eras of the protocol, and mcporter, which uses the official TypeScript SDK
//! of the versions up to 2025-11-25. Over HTTP and over stdio.

use serde_json::{Value, json};
use toolcrib_testkit::programs;

use crate::support::test_server::{TestWorkspace, program_source};

const RESOURCE: &str = "toolcrib://everything/demo://resource/static/document/features.md";

#[test]
fn fastmcp_lists_calls_and_reads() {
    let (Some(client), Some(workspace)) = (programs::fastmcp_client(), everything_workspace()) else {
        return programs::skip("fastmcp_lists_calls_and_reads", "FastMCP or `server-everything` was not fetched");
    };
    let server = workspace.serve();
    let requests = json!({"tool": "everything__get-sum", "arguments": {"a": 2, "b": 3},
        "prompt": "everything__simple-prompt", "resource": RESOURCE})
    .to_string();
    for era in ["legacy", "modern"] {
        for target in [vec![server.mcp_url()], workspace.stdio_command()] {
            let report = workspace.run_client(&client, &[vec![era.to_owned(), requests.clone()], target].concat());
            assert_eq!(report["result"], "The sum of 2 and 3 is 5.");
            assert_eq!(report["prompt"], "This is a simple prompt without arguments.");
            assert!(report["resource"].as_str().unwrap().contains("# "), "{report}");
            assert_listed(&report["tools"], "everything__get-tiny-image");
            assert_listed(&report["prompts"], "everything__args-prompt");
            assert_listed(&report["resources"], RESOURCE);
            assert_listed(&report["templates"], "toolcrib://everything/demo://resource/dynamic/text/{resourceId}");
        }
    }
}

#[test]
fn mcporter_lists_calls_and_reads() {
    let (Some(mcporter), Some(workspace)) = (programs::mcporter(), everything_workspace()) else {
        return programs::skip("mcporter_lists_calls_and_reads", "mcporter or `server-everything` was not fetched");
    };
    let server = workspace.serve();
    let [command, arguments @ ..] = &workspace.stdio_command()[..] else { unreachable!() };
    let servers =
        json!({"over_http": {"baseUrl": server.mcp_url()}, "over_stdio": {"command": command, "args": arguments}});
    let config = json!({"mcpServers": servers, "imports": []});
    std::fs::write(workspace.path("mcporter.json"), config.to_string()).unwrap();
    for name in ["over_http", "over_stdio"] {
        let run = |arguments: &[&str]| {
            let all = ["--config", "mcporter.json"].into_iter().chain(arguments.iter().copied()).map(str::to_owned);
            workspace.run_client(&mcporter, &all.collect::<Vec<_>>())
        };
        let listed = run(&["list", name, "--json"]);
        let names: Value = listed["tools"].as_array().unwrap().iter().map(|tool| tool["name"].clone()).collect();
        assert_listed(&names, "everything__get-sum");
        let sum = run(&["call", &format!("{name}.everything__get-sum"), "a:2", "b:3", "--output", "json"]);
        assert_eq!(sum["content"][0]["text"], "The sum of 2 and 3 is 5.");
        let read = run(&["resource", name, RESOURCE, "--json"]);
        assert!(read.to_string().contains("# "), "{read}");
    }
}

/// Returns a workspace in full mode with the tools of `server-everything`.
fn everything_workspace() -> Option<TestWorkspace> {
    let sources = json!({"everything": program_source(&programs::everything_server()?, &[])});
    let workspace = TestWorkspace::new(&sources, &json!({"mode": "full"}));
    workspace.discover();
    Some(workspace)
}

#[track_caller]
fn assert_listed(list: &Value, expected: &str) {
    assert!(list.as_array().unwrap().contains(&json!(expected)), "`{expected}` is not in {list}");
}
