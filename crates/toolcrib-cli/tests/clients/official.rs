//! The official SDK clients list, search, describe and call through `serve` and `mcp`, in both eras of the protocol, with
//! real upstream servers.

use serde_json::{Value, json};
use toolcrib_testkit::http_server::{HttpReply, LoopbackServer};
use toolcrib_testkit::programs::{self, Program};

use crate::support::test_server::{TestWorkspace, program_source, read_or_empty, wait_until};

#[test]
fn the_typescript_client_works_through_toolcrib() {
    check("the_typescript_client_works_through_toolcrib", programs::ts_client());
}

#[test]
fn the_python_client_works_through_toolcrib() {
    check("the_python_client_works_through_toolcrib", programs::python_client());
}

#[track_caller]
fn check(test: &str, client: Option<Program>) {
    let (Some(client), Some(everything), Some(time), Some(asking)) =
        (client, programs::everything_server(), programs::time_server(), programs::conformance_server())
    else {
        return programs::skip(test, "an official client or server was not fetched");
    };
    let workspace = test_workspace(&everything, &time, &asking);
    workspace.discover();

    let server = workspace.serve();
    for era in ["legacy", "modern"] {
        let report = workspace.run_official(&client, era, &call_requests(&workspace), &[server.mcp_url()]);
        assert_responses(&report, era);
        workspace.assert_cancelled();
    }
    for era in ["legacy", "modern"] {
        let command = workspace.stdio_command();
        let report = workspace.run_official(&client, era, &call_requests(&workspace), &command);
        assert_responses(&report, era);
        workspace.assert_cancelled();
    }
}

/// Both clients reject a result that does not match the tool's output schema.
#[test]
fn the_official_clients_read_large_results_with_a_schema() {
    let (Some(typescript), Some(python)) = (programs::ts_client(), programs::python_client()) else {
        let test = "the_official_clients_read_large_results_with_a_schema";
        return programs::skip(test, "an official client was not fetched");
    };
    let text = json!({"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]});
    let tools = json!([{"name": "echo", "inputSchema": text, "outputSchema": text}]);
    let sources = json!({"s": {"command": programs::scripted_server(), "args": ["--tools-file", "tools.json"], "cwd": ".",
        "result_limit": "2KiB"}});
    let workspace = TestWorkspace::new(&sources, &json!({"mode": "full"}));
    std::fs::write(workspace.path("tools.json"), tools.to_string()).unwrap();
    workspace.discover();
    let server = workspace.serve();
    // A result that fits is sent as text and as structured content; a larger one is paged as text.
    let fits = "a".repeat(1_500);
    let large = "0123456789".repeat(500);
    let echo = |text: &str| json!({"name": "s__echo", "arguments": {"text": text}, "read_on": true});
    let calls = json!([echo(&fits), echo(&large)]);
    for (client, era) in [(&typescript, "legacy"), (&typescript, "modern"), (&python, "legacy"), (&python, "modern")] {
        let report = workspace.run_official(client, era, &calls, &[server.mcp_url()]);
        assert_eq!(report["tools"], json!(["s__echo"]));
        let [whole, paged] = report["results"].as_array().unwrap().as_slice() else { panic!("{report}") };
        assert_eq!(whole["structuredContent"], json!({"text": fits}), "{whole}");
        assert_eq!(paged["isError"], true, "{paged}");
        let pages = [std::slice::from_ref(paged), paged["pages"].as_array().unwrap()].concat();
        let read: String = pages.iter().filter_map(|page| page["content"][0]["text"].as_str()).collect();
        assert_eq!(read, large, "{era} {pages:?}");
    }
}

/// A link in a result is valid for the client that got it, in each era.
#[test]
fn the_official_clients_read_a_held_binary() {
    let (Some(typescript), Some(python)) = (programs::ts_client(), programs::python_client()) else {
        return programs::skip("the_official_clients_read_a_held_binary", "an official client was not fetched");
    };
    let api = LoopbackServer::start(|_| HttpReply::new(200, "content-type: application/pdf", vec![7; 90_000]));
    let document = json!({
        "openapi": "3.1.0",
        "info": { "title": "Files", "version": "1" },
        "servers": [{ "url": api.url }],
        "paths": { "/report.pdf": { "get": { "operationId": "report", "responses": { "200": { "description": "it" } } } } },
    });
    for mode in ["full", "search"] {
        let sources = json!({ "files": { "openapi": "files.json", "allow_private": true } });
        let workspace = TestWorkspace::new(&sources, &json!({ "mode": mode }));
        std::fs::write(workspace.path("files.json"), document.to_string()).unwrap();
        workspace.discover();
        let server = workspace.serve();
        let calls = match mode {
            "full" => json!([{ "name": "files__report", "arguments": {}, "read_links": true }]),
            _ => json!([{ "name": "call_tool", "arguments": { "name": "files__report" }, "read_links": true }]),
        };
        for (client, era) in
            [(&typescript, "legacy"), (&typescript, "modern"), (&python, "legacy"), (&python, "modern")]
        {
            let report = workspace.run_official(client, era, &calls, &[server.mcp_url()]);
            let resource = &report["results"][0]["resources"][0];
            assert_eq!(resource["mimeType"], "application/pdf", "{mode} {era} {report}");
            assert_eq!(resource["blob"].as_str().map(str::len), Some(120_000));
        }
    }
}

/// Two real servers, one of each era that sends requests to the client, and one whose `hang` never returns.
fn test_workspace(everything: &Program, time: &Program, asking: &Program) -> TestWorkspace {
    let hanging = json!({"command": programs::scripted_server(), "args": ["--with", "hang", "--log-file", "hanging.log"], "cwd": "."});
    let sources = json!({
        "everything": program_source(everything, &[]),
        "time": program_source(time, &["--local-timezone", "Europe/Berlin"]),
        "asking": program_source(asking, &[]),
        "asking_new": program_source(asking, &["--modern"]),
        "hanging": hanging,
    });
    TestWorkspace::new(&sources, &json!({"mode": "search"}))
}

impl TestWorkspace {
    #[track_caller]
    fn run_official(&self, client: &Program, era: &str, calls: &Value, target: &[String]) -> Value {
        self.run_client(client, &[&[era.to_owned(), calls.to_string()], target].concat())
    }

    /// Asserts that the cancellation reached the upstream server, and clears its log for the next client.
    #[track_caller]
    fn assert_cancelled(&self) {
        let log = self.path("hanging.log");
        wait_until("the cancellation at the server", || read_or_empty(&log).contains("notifications/cancelled"));
        std::fs::write(&log, "").unwrap();
    }
}

fn call_requests(workspace: &TestWorkspace) -> Value {
    let convert = json!({"source_timezone": "Europe/Berlin", "time": "12:00", "target_timezone": "Asia/Tokyo"});
    let hangs = json!({"file": workspace.path("hanging.log"), "holds": "tools/call"});
    json!([
        {"name": "search_tools", "arguments": {"query": "convert a time to another time zone"}},
        {"name": "describe_tools", "arguments": {"names": ["time__convert_time"]}},
        {"name": "call_tool", "arguments": {"name": "time__convert_time", "arguments": convert}},
        {"name": "call_tool", "arguments": {"name": "time__convert_time", "arguments": {}}},
        {"name": "everything__get-sum", "arguments": {"a": 2, "b": 3}},
        {"name": "everything__get-tiny-image"},
        {"name": "everything__trigger-long-running-operation", "arguments": {"duration": 0.3, "steps": 3}},
        {"name": "asking__test_input_required_result_elicitation", "answer": {"name": "Ada"}},
        {"name": "call_tool", "arguments": {"name": "asking_new__test_input_required_result_elicitation"}, "answer": {"name": "Grace"}},
        {"name": "hanging__hang", "cancel_when": hangs},
        {"name": "everything__get-som"},
    ])
}

#[track_caller]
fn assert_responses(report: &Value, era: &str) {
    assert_eq!(report["version"], if era == "modern" { "2026-07-28" } else { "2025-11-25" });
    let instructions = report["instructions"].as_str().unwrap_or_default();
    assert!(instructions.contains("search_tools"), "{instructions}");
    let mut tools: Vec<&str> = report["tools"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    tools.sort_unstable();
    assert_eq!(tools, ["call_tool", "describe_tools", "search_tools"]);

    let [found, described, called, faulty, sum, image, slow, elicited, elicited_modern, cancelled, unknown] =
        report["results"].as_array().unwrap().as_slice()
    else {
        panic!("not as many results as calls: {report}");
    };
    assert_text_contains(found, "time__convert_time(");
    assert_text_contains(described, "target_timezone");
    assert_text_contains(called, "Asia/Tokyo");
    assert_text_contains(faulty, "TOOL_INVALID_INPUT");
    assert_text_contains(faulty, "time__convert_time(");
    assert_text_contains(sum, "5");
    let picture = image["content"].as_array().unwrap().iter().find(|part| part["type"] == "image").unwrap();
    assert_eq!(picture["mimeType"], "image/png");
    assert!(picture["data"].as_str().is_some_and(|data| data.starts_with("iVBORw0KGgo")), "{picture}");
    let progress: Vec<f64> = slow["progress"].as_array().unwrap().iter().filter_map(|step| step[0].as_f64()).collect();
    // The last step comes right before the response, and the TypeScript client may finish before it handles it. That
    // every step arrives before the response is tested with our own client.
    assert!(progress == [1.0, 2.0, 3.0] || progress == [1.0, 2.0], "{slow}");
    assert_eq!(elicited["asked"], json!(["What is your name?"]), "{elicited}");
    assert_text_contains(elicited, "Hello, Ada!");
    assert_eq!(elicited_modern["asked"], json!(["What is your name?"]), "{elicited_modern}");
    assert_text_contains(elicited_modern, "Hello, Grace!");
    assert_eq!(cancelled["cancelled"], true, "{cancelled}");
    assert_text_contains(unknown, "TOOL_NOT_IMPLEMENTED");
    assert_text_contains(unknown, "everything__get-sum");
}

#[track_caller]
fn assert_text_contains(result: &Value, expected: &str) {
    let parts = result["content"].as_array().map(Vec::as_slice).unwrap_or_default();
    let text: Vec<&str> = parts.iter().filter_map(|part| part["text"].as_str()).collect();
    assert!(text.join("\n").contains(expected), "`{expected}` is not in {result}");
}
