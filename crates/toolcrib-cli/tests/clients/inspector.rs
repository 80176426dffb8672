//! The command line of the MCP Inspector, against `serve` and against `mcp`, in both eras of the protocol.

use serde_json::{Value, json};
use toolcrib_testkit::programs::{self, Program};

use crate::support::test_server::{TestWorkspace, program_source};

#[test]
fn the_inspector_lists_searches_and_calls() {
    let (Some(inspector), Some(everything), Some(time)) =
        (programs::inspector(), programs::everything_server(), programs::time_server())
    else {
        return programs::skip("the_inspector_lists_searches_and_calls", "the Inspector or a server was not fetched");
    };
    let sources = json!({"everything": program_source(&everything, &[]), "time": program_source(&time, &[])});
    let workspace = TestWorkspace::new(&sources, &json!({"mode": "search"}));
    workspace.discover();
    let server = workspace.serve();
    let command = workspace.stdio_command();
    let config = json!({"mcpServers": {"toolcrib": {"command": command[0], "args": command[1..]}}});
    std::fs::write(workspace.path("mcp.json"), config.to_string()).unwrap();

    let over_http = [server.mcp_url(), "--transport".into(), "http".into()];
    let over_stdio = ["--config", "mcp.json", "--server", "toolcrib"].map(str::to_owned);
    for era in ["legacy", "modern"] {
        for target in [&over_http[..], &over_stdio[..]] {
            let listed = workspace.run_inspector(&inspector, target, era, &["--method", "tools/list", "--strict"]);
            let mut names: Vec<&str> =
                listed["tools"].as_array().unwrap().iter().filter_map(|tool| tool["name"].as_str()).collect();
            names.sort_unstable();
            assert_eq!(names, ["call_tool", "describe_tools", "search_tools"]);
            let arguments = r#"arguments={"a": 2, "b": 3}"#;
            let cli_arguments = ["call_tool", "--tool-arg", "name=everything__get-sum", "--tool-arg", arguments];
            workspace.assert_inspector_call(&inspector, target, era, &cli_arguments, "is 5");
        }
        let cli_arguments = ["search_tools", "--tool-arg", "query=add two numbers"];
        workspace.assert_inspector_call(&inspector, &over_http, era, &cli_arguments, "everything__get-sum(");
        let cli_arguments = ["describe_tools", "--tool-arg", r#"names=["time__convert_time"]"#];
        workspace.assert_inspector_call(&inspector, &over_http, era, &cli_arguments, "target_timezone");
    }
}

/// In full mode, because the Inspector calls only listed tools.
#[test]
fn the_inspector_calls_tools_by_their_own_names() {
    let (Some(inspector), Some(everything)) = (programs::inspector(), programs::everything_server()) else {
        return programs::skip(
            "the_inspector_calls_tools_by_their_own_names",
            "the Inspector or a server was not fetched",
        );
    };
    let workspace =
        TestWorkspace::new(&json!({"everything": program_source(&everything, &[])}), &json!({"mode": "full"}));
    workspace.discover();
    let server = workspace.serve();
    let target = [server.mcp_url(), "--transport".into(), "http".into()];
    let ask = |method: &str| workspace.run_inspector(&inspector, &target, "modern", &["--method", method]).to_string();
    assert!(ask("tools/list").contains("everything__get-tiny-image"));
    assert!(ask("prompts/list").contains("everything__"));
    assert!(ask("resources/list").contains("\"uri\""));
    let cli_arguments = ["everything__get-sum", "--tool-arg", "a=2", "b=3"];
    workspace.assert_inspector_call(&inspector, &target, "modern", &cli_arguments, "is 5");
    workspace.assert_inspector_call(&inspector, &target, "legacy", &["everything__get-tiny-image"], "image/png");
}

impl TestWorkspace {
    /// Runs the Inspector for one method and returns its output.
    #[track_caller]
    fn run_inspector(&self, inspector: &Program, target: &[String], era: &str, cli_arguments: &[&str]) -> Value {
        let options = ["--protocol-era", era].into_iter().chain(cli_arguments.iter().copied()).map(str::to_owned);
        let arguments = std::iter::once("--cli".to_owned()).chain(target.iter().cloned()).chain(options);
        self.run_client(inspector, &arguments.collect::<Vec<_>>())
    }

    /// Calls a tool and asserts that its result contains the text.
    #[track_caller]
    fn assert_inspector_call(
        &self,
        inspector: &Program,
        target: &[String],
        era: &str,
        cli_arguments: &[&str],
        expected: &str,
    ) {
        let cli_arguments = [&["--method", "tools/call", "--tool-name"], cli_arguments].concat();
        let stdout = self.run_inspector(inspector, target, era, &cli_arguments).to_string();
        assert!(stdout.contains(expected), "`{expected}` is not in {stdout}");
    }
}
