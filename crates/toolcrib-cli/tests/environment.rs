//! Effects of the environment of a process: settings that refer to it, and sources that it declares; and names that are
//! too long for an id.

use serde_json::{Value, json};

use crate::support::test_project::{TestProject, field_values};

const API_DOCUMENT: &str = "openapi: 3.1.0\ninfo: { title: a, version: '1' }\nservers: [{ url: 'http://127.0.0.1:9' }]\n\
    paths: { /orders: { get: { operationId: listOrders, responses: {} } } }\n";

/// Prints the sources as JSON, with variables; returns them by id.
fn sources_with(project: &TestProject, variables: &[(&str, &str)]) -> Value {
    let output = project.run_with(&["--config", "toolcrib.yaml", "sources", "--json"], variables);
    let listed: Value = serde_json::from_str(&output.assert_code(0).stdout).unwrap();
    let by_id = listed["sources"]
        .as_array()
        .unwrap()
        .iter()
        .map(|source| (source["id"].as_str().unwrap().to_owned(), source.clone()));
    by_id.collect::<serde_json::Map<_, _>>().into()
}

#[test]
fn settings_may_be_references_to_the_environment() {
    let project = TestProject::new(
        "one: { command: SERVER, enabled: \"${env:RUBE_MCP_ENABLED}\", ttl: \"${env:ONE_TTL:-7m}\" }\n\
         two: { command: SERVER, tags: [\"${env:TWO_TAG:-x}\"], lifecycle: \"${env:LIFE:-transient}\" }",
    );
    let on = sources_with(&project, &[("RUBE_MCP_ENABLED", "true")]);
    assert_eq!((&on["one"]["enabled"], &on["one"]["ttl_ms"]), (&json!(true), &json!(420_000)));
    let records = project.json(1, &["refresh"]);
    assert_eq!(records["results"][0]["error"]["code"], "CONFIG_INVALID", "{records}");
    assert_eq!((&records["results"][0]["contacted"], &records["totals"]["failed"]), (&json!(false), &json!(1)));
    let history =
        || project.run_with(&["--config", "toolcrib.yaml", "history", "--json"], &[("RUBE_MCP_ENABLED", "no")]).stdout;
    let before = history();
    // The value belongs to the process: nothing is recorded.
    let off = sources_with(&project, &[("RUBE_MCP_ENABLED", "0"), ("ONE_TTL", "1h")]);
    assert_eq!(
        (&off["one"]["enabled"], &off["one"]["ttl_ms"], &off["two"]["enabled"]),
        (&json!(false), &json!(3_600_000), &json!(true))
    );
    assert_eq!(history(), before);

    for (variables, key, reason) in [
        (&[][..], "toolcrib.yaml:2: sources.one.enabled", "RUBE_MCP_ENABLED"),
        (&[("RUBE_MCP_ENABLED", "hunter2")], "toolcrib.yaml:2: sources.one.enabled", "expected true or false"),
        (
            &[("RUBE_MCP_ENABLED", "true"), ("ONE_TTL", "soon")],
            "toolcrib.yaml:2: sources.one.ttl",
            "expected a duration",
        ),
    ] {
        let sources = sources_with(&project, variables);
        let message = sources["one"]["last_error"]["message"].as_str().unwrap_or_default();
        assert!(
            message.contains(key) && message.contains(reason) && !message.contains("hunter2"),
            "{variables:?}: {sources}"
        );
        assert_eq!(
            (&sources["one"]["status"], &sources["one"]["last_error"]["retryable"]),
            (&json!("failed"), &json!(false))
        );
        assert_eq!(sources["two"]["last_error"], Value::Null, "{sources}");
    }
}

#[test]
fn the_environment_may_declare_a_source_for_this_process() {
    let project = TestProject::new("one: { command: SERVER }");
    let command = format!("{} --with 'echo'", crate::support::scripted_server());
    let variables = [("TOOLCRIB_SOURCE_EXTRA_COMMAND", command.as_str())];
    let run = |arguments: &[&str]| project.run_with(&[&["--config", "toolcrib.yaml"], arguments].concat(), &variables);
    let sources = sources_with(&project, &variables);
    assert_eq!((&sources["extra"]["transport"], &sources["extra"]["status"]), (&json!("stdio"), &json!("never")));
    run(&["call", "extra__echo", "text=hi"]).assert_code(0).assert_stdout("hi");
    let tools: Value = serde_json::from_str(&run(&["tools", "--json"]).assert_code(0).stdout).unwrap();
    assert!(field_values(&tools["tools"], "name").contains(&"extra__echo"), "{tools}");
    run(&["remove", "extra"]).assert_stderr("`TOOLCRIB_SOURCE_EXTRA_COMMAND`");
    run(&["disable", "extra"]).assert_stderr("`TOOLCRIB_SOURCE_EXTRA_COMMAND`");

    let history = project.json(0, &["history"]);
    assert!(!field_values(&history["records"], "source").contains(&"extra"), "{history}");
    assert_eq!(sources_with(&project, &[])["extra"], Value::Null);
    let unclosed = [("TOOLCRIB_SOURCE_EXTRA_COMMAND", "x 'y")];
    let output = project.run_with(&["--config", "toolcrib.yaml", "sources"], &unclosed);
    output.assert_code(0).assert_stderr("TOOLCRIB_SOURCE_EXTRA_COMMAND: is not a command line: a quote is not closed");
}

#[test]
fn a_long_name_is_cut_and_works_as_given() {
    let name = "The tools of the whole research department";
    let project = TestProject::new("");
    let output = project.run(&["--json", "add", name, "--", &crate::support::scripted_server()]);
    let added: Value = serde_json::from_str(&output.assert_code(0).stdout).unwrap();
    let sources = project.json(0, &["sources"]);
    let id = field_values(&sources["sources"], "id")[0];
    assert!(id.starts_with("the_tools_of_the_whole") && id.len() <= 32, "{added}");
    project.run(&["refresh", name, "--force"]).assert_code(0);
    project.run(&["remove", name]).assert_code(0);

    let project = TestProject::new(&format!("\"{name}\": {{ command: SERVER }}"));
    let variable = "TOOLCRIB_SOURCE_THE_TOOLS_OF_THE_WHOLE_RESEARCH_DEPARTMENT_ENABLED";
    let sources = sources_with(&project, &[(variable, "false")]);
    assert_eq!(sources[id]["enabled"], json!(false), "{sources}");
}

#[test]
fn a_path_from_a_variable_is_relative_to_the_file() {
    let project = TestProject::new("");
    std::fs::create_dir_all(project.path("project/rel/sub")).unwrap();
    project.write("rel/api.yaml", API_DOCUMENT);
    std::os::unix::fs::symlink(crate::support::scripted_server(), project.path("project/rel/run.sh")).unwrap();
    project.write(
        "rel/c.yaml",
        "sources:\n  \
           api: { openapi: \"${env:DOC}\" }\n  \
           fallback: { openapi: \"${env:NO_DOC:-./api.yaml}\" }\n  \
           core: { builtin: [file_list], roots: [\"${env:ROOT}\"] }\n  \
           server: { command: \"${env:PROGRAM}\", cwd: \"${env:DIRECTORY}\" }\n",
    );
    let variables = [("DOC", "api.yaml"), ("ROOT", "."), ("PROGRAM", "./run.sh"), ("DIRECTORY", "sub")];
    let run = |arguments: &[&str], variables: &[(&str, &str)]| {
        project.run_with(&[&["--config", "rel/c.yaml"], arguments].concat(), variables)
    };
    run(&["refresh"], &variables).assert_code(0);
    run(&["call", "core__file_list"], &variables).assert_code(0).assert_stdout("api.yaml");

    // An error names the file that is missing.
    let missing = [&variables[1..], &[("DOC", "../missing.yaml")]].concat();
    let output = run(&["refresh", "api"], &missing);
    output.assert_code(1);
    let path = project.path("project/missing.yaml");
    assert!((output.stdout.clone() + &output.stderr).contains(path.to_str().unwrap()), "{output:?}");
}

#[test]
fn overrides_that_do_not_fit_a_source_are_reported_and_its_list_is_recorded() {
    let project = TestProject::new("one: { command: SERVER }");
    let run = |arguments: &[&str], variables: &[(&str, &str)]| {
        project.run_with(&[&["--config", "toolcrib.yaml"], arguments].concat(), variables)
    };
    run(&["refresh"], &[("TOOLCRIB_SOURCE_ONE_TOKEN", "x")])
        .assert_code(0)
        .assert_stderr("TOOLCRIB_SOURCE_ONE_TOKEN: a program gets no bearer token");
    assert_eq!(sources_with(&project, &[])["one"]["status"], "success");
    // A URL replaces the program, for this process.
    let url = [("TOOLCRIB_SOURCE_ONE_URL", "http://127.0.0.1:9/mcp")];
    let overridden = sources_with(&project, &url);
    assert_eq!((&overridden["one"]["transport"], &overridden["one"]["command"]), (&json!("http"), &Value::Null));
    run(&["refresh", "one"], &url).assert_code(1);
    assert_eq!(sources_with(&project, &[])["one"]["transport"], "stdio");
}
