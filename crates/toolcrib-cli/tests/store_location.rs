//! The store that a configuration file names, and the label of the node (`--node`).

use serde_json::{Value, json};

use crate::support::{CliOutput, Toolcrib, count_starts, scripted_server};

const BUILTIN: &str = "sources: { core: { builtin: [calculate] } }\n";

#[test]
fn the_store_of_a_file_is_relative_to_it_and_the_option_wins() {
    let mut toolcrib = Toolcrib::new();
    let file = toolcrib.write("config/toolcrib.yaml", &format!("{BUILTIN}store: \"sqlite:${{env:NAME}}.db\"\n"));
    let file = file.to_str().unwrap();
    toolcrib.run(&["sources", "--config", file]).assert_code(2).assert_stderr("config/toolcrib.yaml:2: store: ");
    toolcrib.set_variable("NAME", "team");
    let listed = toolcrib.run_ok(&["sources", "--config", file]);
    assert!(toolcrib.project().join("config/team.db").is_file());
    assert_eq!(listed.stderr, "", "the data directory, which holds the end of the journal, was created");
    let config = toolcrib.json(&["config", "--config", file]);
    assert_eq!(config["store"]["value"], "sqlite:${env:NAME}.db");
    assert_eq!(config["store"]["origin"], format!("{file}:2"));
    toolcrib.run_ok(&["config", "--config", file]).assert_stdout("\nstore: \"sqlite:${env:NAME}.db\"  # ");

    let option = format!("sqlite:{}", toolcrib.project().join("other.db").display());
    toolcrib.run_ok(&["sources", "--config", file, "--store", &option]);
    assert!(toolcrib.project().join("other.db").is_file());
    let checks = toolcrib.json(&["doctor", "--config", file])["checks"].clone();
    let store = checks.as_array().unwrap().iter().find(|check| check["name"] == "store").cloned().unwrap();
    assert!(store["message"].as_str().unwrap().starts_with("sqlite can be opened"), "{store}");
}

/// Nothing listens at the port.
#[test]
fn a_password_in_a_store_is_never_printed() {
    let toolcrib = Toolcrib::new();
    toolcrib.write("toolcrib.yaml", &format!("{BUILTIN}store: \"postgres://me:hunter2@127.0.0.1:1/team\"\n"));
    let trusted = toolcrib.run_ok(&["trust"]);
    trusted.assert_stdout("  store: \"postgres://***@127.0.0.1:1/team\"\n");
    let check = |output: CliOutput| assert!(!format!("{output:?}").contains("hunter2"), "{output:?}");
    check(trusted);
    for arguments in [&["sources"][..], &["export"], &["doctor"], &["verify", "-vvv"], &["config", "-vvv"]] {
        check(toolcrib.run(arguments));
    }
    let config = toolcrib.run_ok(&["config", "--json"]);
    config.assert_stdout("\"postgres://***@127.0.0.1:1/team\"").assert_stderr("cannot be reached");
    check(config);
    check(toolcrib.run_ok(&["export", "--store", "memory:"]));
}

#[test]
fn the_store_of_a_project_is_used_once_it_is_trusted() {
    let toolcrib = Toolcrib::new();
    let store = toolcrib.project().join("team.db");
    toolcrib.write("toolcrib.yaml", &format!("{BUILTIN}store: sqlite:team.db\n"));
    let ignored = "so the store that it names is not used; review it, then run `toolcrib trust`";
    toolcrib.run_ok(&["sources"]).assert_stderr(ignored);
    assert!(!store.exists());
    toolcrib.run_ok(&["trust"]);
    let sources = toolcrib.run_ok(&["sources"]);
    assert!(store.is_file() && !sources.stderr.contains(ignored), "{sources:?}");
    toolcrib.write("toolcrib.yaml", &format!("{BUILTIN}store: sqlite:elsewhere.db\n"));
    toolcrib.run_ok(&["sources"]).assert_stderr("has changed since it was trusted (store)").assert_stderr(ignored);
    assert!(!toolcrib.project().join("elsewhere.db").exists());
}

/// Regression: `backup` wrote another store into the file than the one that the project names.
#[test]
fn commands_about_the_store_refuse_that_of_an_untrusted_project() {
    let toolcrib = Toolcrib::new();
    toolcrib.write("toolcrib.yaml", &format!("{BUILTIN}store: sqlite:team.db\n"));
    let commands: [&[&str]; 6] = [
        &["backup", "b.db"],
        &["restore", "b.db", "--replace"],
        &["store", "migrate"],
        &["store", "prune"],
        &["verify"],
        &["verify", "--accept-damage"],
    ];
    for command in commands {
        let refused = toolcrib.run(command);
        refused
            .assert_code(2)
            .assert_stderr("so the store that it names is not used; review it, then run `toolcrib trust`");
    }
    assert!(!toolcrib.home().join("data").exists(), "nothing was created");
    toolcrib.run_ok(&["trust"]);
    toolcrib.run_ok(&["sources"]);
    for command in commands {
        toolcrib.run_ok(command);
    }
    toolcrib.write("toolcrib.yaml", &format!("{BUILTIN}store: sqlite:elsewhere.db\n"));
    toolcrib.run(&["verify"]).assert_code(2).assert_stderr("has changed since it was trusted (store)");
    let data = toolcrib.home().join("own");
    toolcrib.run_ok(&["verify", "--data", data.to_str().unwrap()]);
    toolcrib.run_ok(&["verify", "--store", "memory:"]);
}

/// A store that the user's own file names may be shared with projects, whose sources a command elsewhere must not remove.
#[test]
fn a_store_of_the_users_file_keeps_the_sources_of_projects() {
    let toolcrib = Toolcrib::new();
    toolcrib.write("~/.config/toolcrib/toolcrib.yaml", "store: sqlite:shared.db\n");
    let file = toolcrib.write("config/toolcrib.yaml", BUILTIN);
    let ids =
        |sources: &Value| sources["sources"].as_array().unwrap().iter().map(|source| source["id"].clone()).collect();
    let with_file: Vec<Value> = ids(&toolcrib.json(&["sources", "--config", file.to_str().unwrap()]));
    let without: Vec<Value> = ids(&toolcrib.json(&["sources"]));
    assert_eq!((with_file, without), (vec![json!("core")], vec![json!("core")]));
    assert!(toolcrib.home().join(".config/toolcrib/shared.db").is_file());
}

/// Regression: every command failed.
#[test]
fn an_empty_variable_counts_as_unset() {
    let mut toolcrib = Toolcrib::new();
    toolcrib.write("~/.config/toolcrib/toolcrib.yaml", BUILTIN);
    for name in ["TOOLCRIB_NODE", "TOOLCRIB_CONFIG", "TOOLCRIB_DATA"] {
        toolcrib.set_variable(name, "");
    }
    toolcrib.run_ok(&["sources"]).assert_stdout("core");
    toolcrib.run_ok(&["sources", "--node", "a"]).assert_stdout("core");
}

/// Regression: both used the stale list without a word.
#[test]
fn a_stale_list_that_other_nodes_refresh_is_neither_locked_nor_compared() {
    let mut toolcrib = Toolcrib::new();
    let server = scripted_server();
    let file =
        toolcrib.write("toolcrib.yaml", &format!("sources: {{ gpu: {{ command: {server:?}, nodes: [gpu-1] }} }}\n"));
    let file = file.to_str().unwrap();
    toolcrib.run_ok(&["lock", "--config", file, "--node", "gpu-1"]);
    toolcrib.set_variable("TOOLCRIB_NODE", "web");
    toolcrib.run_ok(&["lock", "--config", file]);
    toolcrib.run_ok(&["diff", "--ci", "--config", file]);
    toolcrib.run_ok(&["invalidate", "gpu", "--config", file]);
    let hint = "hint: the tool list of gpu is stale; it is refreshed on the node `gpu-1`";
    for (command, message) in [
        (&["lock"][..], "nothing was locked, because the current tool list could not be read from `gpu`"),
        (&["diff", "--ci"], "nothing was compared, because only other nodes refresh the stale tool list of `gpu`"),
    ] {
        let failed = toolcrib.run(&[command, &["--config", file]].concat());
        failed.assert_code(1).assert_stderr(message).assert_stderr(hint);
    }
    for command in [&["tools"][..], &["tools", "--fresh"], &["lock", "--cached"]] {
        toolcrib.run_ok(&[command, &["--config", file]].concat()).assert_stderr(hint);
    }
    toolcrib.run_ok(&["lock", "--config", file, "--node", "gpu-1"]);
    toolcrib.run_ok(&["diff", "--ci", "--config", file]);
}

#[test]
fn a_command_starts_only_the_sources_of_its_node() {
    let mut toolcrib = Toolcrib::new();
    let (server, count) = (scripted_server(), toolcrib.home().join("starts"));
    let sources =
        format!("sources: {{ gpu: {{ command: {server:?}, args: [--count-file, {count:?}], nodes: [gpu-1] }} }}\n");
    let file = toolcrib.write("config/toolcrib.yaml", &sources);
    let file = file.to_str().unwrap();
    toolcrib.run(&["sources", "--config", file, "--node", "gpu 1"]).assert_code(2).assert_stderr("a label has 1 to 64");
    toolcrib.set_variable("TOOLCRIB_NODE", "web");
    let message = "`gpu` runs on the node `gpu-1` only; this node is `web`";
    let called = toolcrib.json(&["call", "gpu__echo", "text=hi", "--config", file]);
    assert_eq!((&called["error"]["code"], &called["error"]["retryable"]), (&json!("TOOL_UNAVAILABLE"), &json!(true)));
    assert_eq!(called["error"]["message"], message);
    assert_eq!(called["error"]["details"], json!({ "nodes": ["gpu-1"], "node": "web" }));
    toolcrib.run(&["refresh", "gpu", "--config", file]).assert_code(1).assert_stdout(message);
    let listed = toolcrib.json(&["tools", "--config", file]);
    assert_eq!(listed["tools"], json!([]));
    assert_eq!(count_starts(&count), 0);

    toolcrib.run_ok(&["call", "gpu__echo", "text=hi", "--config", file, "--node", "gpu-1"]);
    let starts = count_starts(&count);
    let refreshed = toolcrib.run_ok(&["refresh", "--config", file]);
    refreshed.assert_stdout("gpu: unchanged, ");
    assert!(!toolcrib.json(&["tools", "--config", file])["tools"].as_array().unwrap().is_empty());
    assert_eq!(count_starts(&count), starts);
    assert_eq!(toolcrib.json(&["sources", "--config", file])["sources"][0]["nodes"], json!(["gpu-1"]));
    toolcrib.run_ok(&["export", "--config", file]).assert_stdout("nodes: [\"gpu-1\"]");
}
