//! REST of a running `toolcrib serve`: the same JSON as the commands, and conformance with its OpenAPI document.

use std::process::{Command, Stdio};

use serde_json::{Value, json};
use toolcrib_testkit::programs;

use crate::support::http::request;
use crate::support::test_server::{ServeProcess, TestWorkspace};

impl ServeProcess {
    fn get_json(&self, path: &str) -> Value {
        let response = request(&self.url, "GET", path, "", "");
        assert_eq!(response.status, 200, "{path}: {response:?}");
        response.json()
    }
}

fn sources() -> Value {
    json!({
        "one": { "command": programs::scripted_server(), "title": "First", "tags": ["a"] },
        "two": { "command": programs::scripted_server(), "enabled": false },
        "core": { "builtin": ["calculate", "current_time"] },
    })
}

#[test]
fn routes_return_what_commands_print_as_json() {
    let workspace = TestWorkspace::new(&sources(), &json!({ "mode": "full" }));
    workspace.discover();
    let server = workspace.serve();
    for (command, path) in [
        (&["sources"][..], "/api/sources"),
        (&["tools", "--cached"], "/api/tools?limit=1000"),
        (&["tools", "--cached", "--source", "one"], "/api/tools?source=one"),
        (&["describe", "--cached", "one__add"], "/api/tools/one__add"),
        (&["search", "--cached", "add", "numbers"], "/api/search?q=add+numbers"),
        (&["context", "--cached", "--budget", "80"], "/api/context?budget=80"),
        (&["config"], "/api/config"),
    ] {
        let output = workspace.toolcrib(&[command, &["--json"]].concat()).output().unwrap();
        let printed: Value = serde_json::from_slice(&output.stdout).unwrap();
        let mut answered = server.get_json(path);
        // Only HTTP responses are paged.
        answered.as_object_mut().unwrap().shift_remove("next_cursor");
        assert_eq!(answered, printed, "{path}");
    }
    let output = workspace.toolcrib(&["tools", "--cached", "--format", "openai"]).output().unwrap();
    assert_eq!(server.get_json("/api/tools?format=openai"), serde_json::from_slice::<Value>(&output.stdout).unwrap());
    // Ages differ between the two requests, so compare only the other fields.
    let output = workspace.toolcrib(&["stats", "--json"]).output().unwrap();
    let printed = serde_json::from_slice::<Value>(&output.stdout).unwrap();
    let answered = server.get_json("/api/stats");
    for key in ["tool_count", "hits", "misses", "hit_ratio", "calls", "errors", "tools"] {
        assert_eq!(answered[key], printed[key], "{key}");
    }
}

/// With `--require-token` programs cannot be declared over HTTP, so that generated requests run nothing.
#[test]
fn generated_requests_get_the_documented_responses() {
    let test = "generated_requests_get_the_documented_responses";
    let Some((program, arguments)) = programs::schemathesis() else {
        return programs::skip(test, "schemathesis was not fetched");
    };
    let workspace = TestWorkspace::new(&sources(), &json!({}));
    workspace.discover();
    let server = workspace.start_listening(&["serve", "--require-token", "--listen", "127.0.0.1:0"]);
    let token = std::fs::read_to_string(workspace.path("data").join("admin.token")).unwrap();
    let mut command = Command::new(program);
    workspace.isolate(&mut command);
    command.args(arguments).args(["run", &format!("{}/api/openapi.json", server.url)]);
    command.args(["--header", &format!("Authorization: Bearer {}", token.trim())]);
    let output = command.stdin(Stdio::null()).output().unwrap();
    let output_text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{output_text}");
    let tested = output_text.lines().find_map(|line| line.trim().strip_prefix("Tested: ")?.parse::<usize>().ok());
    assert!(tested.is_some_and(|tested| tested >= 19), "{output_text}");
}
