//! Binary responses of an API: written to a file by `call --output`, held as a resource over MCP.
#![cfg(unix)]

use std::process::Stdio;

use serde_json::{Value, json};
use toolcrib_testkit::http_server::{HttpReply, LoopbackServer};

use crate::support::http::{call_tool, mcp_request};
use crate::support::test_server::TestWorkspace;

/// More than fits into a result.
fn report() -> Vec<u8> {
    (0..100_000u32).map(|byte| (byte % 251) as u8).collect()
}

/// An API whose responses are a PDF of 100,000 bytes, a video of more than 16 MiB, nothing, a small image, JSON, CSV and
/// an error.
fn start_api() -> LoopbackServer {
    LoopbackServer::start(|request| match request.target.as_str() {
        "/report.pdf" => HttpReply::new(200, "content-type: application/pdf", report()),
        "/video" => HttpReply::new(200, "content-type: video/mp4", vec![0; 16 * 1024 * 1024 + 1]),
        "/nothing" => HttpReply::new(204, "", ""),
        "/icon" => HttpReply::new(200, "content-type: image/png", b"\x89PNG"),
        "/pets" => HttpReply::json(200, "[1, 2]").with_header("link", "</pets?page=2>; rel=next"),
        "/rows" => {
            HttpReply::new(200, "content-type: text/csv", "a,b\n1,2").with_header("link", "</rows?page=2>; rel=next")
        }
        _ => HttpReply::json(404, r#"{"message": "nothing here"}"#),
    })
}

fn workspace(api: &LoopbackServer) -> TestWorkspace {
    let get = |id: &str| {
        let page = json!({ "name": "page", "in": "query", "schema": { "type": "integer" } });
        json!({ "get": { "operationId": id, "parameters": [page], "responses": { "200": { "description": "it" } } } })
    };
    let document = json!({
        "openapi": "3.1.0",
        "info": { "title": "Files", "version": "1" },
        "servers": [{ "url": api.url }],
        "paths": {
            "/report.pdf": get("report"), "/video": get("video"), "/nothing": get("nothing"), "/icon": get("icon"),
            "/pets": get("pets"), "/rows": get("rows"), "/none": get("none"),
        },
    });
    let sources = json!({ "files": { "openapi": "files.json", "allow_private": true } });
    let workspace = TestWorkspace::new(&sources, &json!({}));
    std::fs::write(workspace.path("files.json"), document.to_string()).unwrap();
    workspace
}

/// Runs a command; returns its exit code, stdout and stderr.
fn run(workspace: &TestWorkspace, arguments: &[&str]) -> (i32, String, String) {
    let output = workspace.toolcrib(arguments).stdin(Stdio::null()).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code().unwrap_or(-1), text(&output.stdout), text(&output.stderr))
}

#[test]
fn call_writes_the_content_of_a_result_to_a_file() {
    let api = start_api();
    let workspace = workspace(&api);
    let file = workspace.path("out.bin");
    let file = file.to_str().unwrap();
    let call = |tool: &str| run(&workspace, &["call", tool, "--output", file]);

    let (code, stdout, stderr) = call("files__report");
    assert_eq!((code, stdout), (0, format!("wrote 100000 bytes (application/pdf) to `{file}`\n")), "{stderr}");
    assert_eq!(std::fs::read(file).unwrap(), report());
    let (code, stdout, stderr) = call("files__icon");
    assert_eq!((code, stdout), (0, format!("wrote 4 bytes (image/png) to `{file}`\n")), "{stderr}");
    assert_eq!(std::fs::read(file).unwrap(), b"\x89PNG");
    // Without the line about the next page.
    for (tool, content) in [("files__pets", "[1, 2]"), ("files__rows", "a,b\n1,2")] {
        assert_eq!(call(tool).0, 0);
        assert_eq!(std::fs::read_to_string(file).unwrap(), content);
    }
    let (_, stdout, stderr) = run(&workspace, &["call", "files__pets"]);
    assert_eq!(stdout, "[1, 2]\n");
    assert!(stderr.contains("next page: page=2"), "{stderr}");

    let (code, stdout, _) = run(&workspace, &["call", "files__report", "--output", file, "--json"]);
    let result: Value = serde_json::from_str(&stdout).unwrap();
    let link = &result["content"][1];
    assert_eq!((code, &link["type"], &link["size"]), (0, &json!("resource_link"), &json!(100_000)), "{result}");
    assert_eq!(link["uri"], format!("file://{file}"));

    std::fs::write(file, "old").unwrap();
    let (code, _, stderr) = call("files__none");
    assert_eq!((code, std::fs::read_to_string(file).unwrap().as_str()), (1, "old"), "{stderr}");
    let (code, _, stderr) = call("files__video");
    assert_eq!((code, std::fs::read_to_string(file).unwrap().as_str()), (1, "old"), "{stderr}");
    assert!(stderr.contains("is larger than 16 MiB; request less data"), "{stderr}");
    // The status is not content.
    let (code, stdout, _) = call("files__nothing");
    assert_eq!((code, stdout), (0, format!("wrote 0 bytes to `{file}`\n")));
    assert_eq!(std::fs::read(file).unwrap(), b"");
    let before = api.requests().len();
    let (code, _, stderr) = run(&workspace, &["call", "files__report", "--output", "/no/such/directory/x"]);
    assert_eq!((code, api.requests().len()), (2, before), "{stderr}");
    assert!(stderr.contains("`/no/such/directory` is not a directory"), "{stderr}");
    let (_, stdout, _) = run(&workspace, &["call", "files__report"]);
    assert!(stdout.contains("report.pdf; `--output FILE` writes it]"), "{stdout}");
}

#[test]
fn call_writes_the_content_of_a_result_to_stdout() {
    let api = start_api();
    let workspace = workspace(&api);
    let call = |tool: &str| workspace.toolcrib(&["call", tool, "--output", "-"]).stdin(Stdio::null()).output().unwrap();
    let icon = call("files__icon");
    assert_eq!((icon.status.code(), icon.stdout.as_slice()), (Some(0), b"\x89PNG".as_slice()), "{icon:?}");
    assert_eq!(String::from_utf8_lossy(&icon.stderr).lines().last(), Some("wrote 4 bytes (image/png) to stdout"));
    assert_eq!(call("files__pets").stdout, b"[1, 2]");
    let failed = call("files__none");
    assert_eq!((failed.status.code(), failed.stdout.as_slice()), (Some(1), b"".as_slice()), "{failed:?}");
    assert!(!workspace.path("-").exists());
    let (code, _, stderr) = run(&workspace, &["call", "files__icon", "--output", "-", "--json"]);
    assert_eq!(code, 2);
    assert!(stderr.contains("`--output -` and `--json` both write to stdout"), "{stderr}");
}

#[test]
fn a_large_binary_is_a_resource_that_the_same_principal_can_read() {
    let api = start_api();
    let workspace = workspace(&api);
    let server = workspace.serve();
    let result = call_tool(&server, "files__report", &json!({}), json!({}));
    let link = &result["content"][1];
    assert_eq!((&link["type"], &link["name"]), (&json!("resource_link"), &json!("report.pdf")), "{result}");
    assert_eq!((&link["mimeType"], &link["size"]), (&json!("application/pdf"), &json!(100_000)));
    let uri = link["uri"].as_str().unwrap();
    let read =
        |uri: &str| mcp_request(&server, "resources/read", json!({ "uri": uri }), &format!("Mcp-Name: {uri}\r\n"));
    let content = read(uri)["contents"][0].clone();
    assert_eq!((&content["uri"], &content["mimeType"]), (&json!(uri), &json!("application/pdf")));
    assert_eq!(content["blob"].as_str().unwrap().len(), 100_000usize.div_ceil(3) * 4);
    let small = call_tool(&server, "files__icon", &json!({}), json!({}));
    assert_eq!(small["content"][0]["type"], "image", "{small}");
    // Pages of a list are said in the result, too.
    let list = call_tool(&server, "files__pets", &json!({}), json!({}));
    assert_eq!(list["content"][1]["text"], "next page: page=2", "{list}");
    assert_eq!(list["_meta"]["toolcrib/pagination"], json!({ "next": { "page": 2 } }));
}
