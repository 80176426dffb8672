//! Commands that manage sources, through the real binary.

use serde_json::{Value, json};

use crate::support::{CliOutput, Toolcrib, count_starts, scripted_server};

/// A configuration with one source that counts its starts, and the path of the counter.
fn config_with_start_counter(toolcrib: &Toolcrib, more: &str) -> (String, std::path::PathBuf) {
    let count = toolcrib.home().join("starts");
    let args = format!("[--count-file, {:?}{more}]", count);
    (format!("sources:\n  one: {{ command: {:?}, args: {args} }}\n", scripted_server()), count)
}

fn add_scripted_source(toolcrib: &Toolcrib, name: &str, flags: &[&str]) -> CliOutput {
    let server = scripted_server();
    toolcrib.run(&[&["add", name, "--", &server], flags].concat())
}

#[test]
fn add_reports_the_tools_of_the_source() {
    let toolcrib = Toolcrib::new();
    let added = add_scripted_source(&toolcrib, "My Server", &["--tools", "12"]);
    assert_eq!(added.code, 0, "{added:?}");
    assert!(added.stdout.starts_with("my_server: 12 tools ("), "{added:?}");
    assert!(added.stdout.contains("my_server__tool_0005 and 4 more"), "{added:?}");
    let server = scripted_server();
    let view = toolcrib.json(&["add", "other", "--env", "A=b=c", "--cwd", ".", "--", &server]);
    assert_eq!((&view["id"], &view["origin"], &view["tool_count"]), (&json!("other"), &json!("runtime"), &json!(3)));
    let config = toolcrib.json(&["config"]);
    assert_eq!(config["sources"]["other"]["cwd"], json!(toolcrib.project()));
    assert_eq!(config["sources"]["other"]["env"], json!({ "A": "***" }));
}

#[test]
fn a_source_that_cannot_be_discovered_is_kept_as_failed() {
    let toolcrib = Toolcrib::new();
    let added = add_scripted_source(&toolcrib, "bad", &["--exit", "3"]);
    assert_eq!(added.code, 1);
    assert_eq!(added.stdout, "bad: declared, but its discovery failed; `toolcrib refresh bad` tries again\n");
    assert!(added.stderr.contains("bad: the server exited while connecting (exit status 3)"), "{added:?}");
    assert_eq!(toolcrib.json(&["sources"])["sources"][0]["status"], "failed");
    let again = add_scripted_source(&toolcrib, "bad", &[]);
    assert_eq!((again.code, again.stderr.as_str()), (0, "`bad` had another declaration, which is replaced\n"));
    let server = scripted_server();
    let view = toolcrib.json(&["add", "worse", "--", &server, "--exit", "3"]);
    assert_eq!((&view["status"], &view["tool_count"]), (&json!("failed"), &json!(0)));
    assert!(view["last_error"]["message"].as_str().unwrap().contains("exit status 3"), "{view}");
}

#[test]
fn invalid_arguments_are_rejected_without_side_effects() {
    let toolcrib = Toolcrib::new();
    for (arguments, message) in [
        (&["add", "x", "--url", "docs.example.com"][..], "x.url: expected a URL that begins with `http://`"),
        (&["add", "call_tool", "--url", "http://x"], "`call_tool` cannot name a source: that name is reserved"),
        (&["add", "x", "--url", "http://x", "--header", "hunter2"], "`--header` takes NAME=VALUE"),
        (&["add", "x", "--env", "hunter2", "--", "server"], "`--env` takes NAME=VALUE"),
        (&["add", "x"], "required arguments were not provided"),
        (&["add", "x", "--transport", "http", "--", "server"], "cannot be used with"),
        (&["add", "x", "--cwd", ".", "--url", "http://x"], "cannot be used with"),
        (&["add", "x", "--url", "http://x", "--", "server"], "cannot be used with"),
        (&["add", "x", "--url", "http://x", "--transport", "tcp"], "invalid value 'tcp'"),
        (&["add", "x", "--openapi", "x.yaml", "--url", "http://x"], "cannot be used with"),
        (&["add", "x", "--openapi", "x.yaml", "--transport", "http"], "cannot be used with"),
        (&["add", "x", "--workflow", "x.yaml", "--bearer", "hunter2"], "cannot be used with"),
        (&["add", "x", "--tag", "a", "--url", "http://x"], "cannot be used with"),
        (&["add", "x", "--openapi", "ftp://x"], "x.openapi: expected a file or a URL that begins with"),
        (&["add", "x", "--openapi", "x.yaml", "--base-url", "x"], "x.base_url: expected a URL that begins with"),
        (&["disabel", "x"], "a similar subcommand exists: 'disable'"),
        (&["import", "--from", "emacs"], "invalid value 'emacs'"),
        (&["import", "no-such-file.json"], "cannot read `no-such-file.json`"),
        (&["logs", "x"], "no source named `x`"),
        (&["remove", "x"], "no source named `x`"),
        (&["invalidate", "x"], "no source named `x`"),
        (&["enable", "x"], "no source or tool named `x`"),
        (&["trust"], "no project file in the working directory or its parents; `toolcrib init` writes one"),
        (&["import"], "no servers of another client found; looked at\n  claude-desktop: "),
    ] {
        let outcome = toolcrib.run(arguments);
        assert_eq!(outcome.code, 2, "{outcome:?}");
        assert!(outcome.stderr.contains(message), "{outcome:?}");
        assert!(!outcome.stderr.contains("hunter2"), "{outcome:?}");
    }
    assert_eq!(toolcrib.json(&["sources"]), json!({ "sources": [] }));
}

#[test]
fn add_openapi_accepts_the_options_of_a_configuration_file() {
    let toolcrib = Toolcrib::new();
    let options = ["--base-url", "http://127.0.0.1:1/v1", "--header", "X-Team: hunter2", "--bearer", "${env:TOKEN}"];
    let filters =
        ["--include", "get_*", "--include", "GET *", "--exclude", "*x*", "--tag", "orders", "--allow-private"];
    let arguments = [&["add", "shop", "--openapi", "no-such.yaml"][..], &options, &filters].concat();
    let added = toolcrib.run(&arguments);
    assert_eq!(
        (added.code, added.stdout.starts_with("shop: declared, but its discovery failed")),
        (1, true),
        "{added:?}"
    );
    assert_eq!(toolcrib.run(&["add", "errands", "--workflow", "no-such.yaml"]).code, 1);
    let mut sources = toolcrib.json(&["config"])["sources"].take();
    sources["shop"].as_object_mut().unwrap().remove("origin");
    assert_eq!(
        sources["shop"],
        json!({
            "openapi": toolcrib.project().join("no-such.yaml"),
            "base_url": "http://127.0.0.1:1/v1",
            "include": ["get_*", "GET *"],
            "exclude": ["*x*"],
            "include_tags": ["orders"],
            "headers": { "X-Team": "***" },
            "auth": { "bearer": "${env:TOKEN}" },
            "allow_private": true,
        })
    );
    assert_eq!(sources["errands"]["workflow"], json!(toolcrib.project().join("no-such.yaml")));
}

#[test]
fn an_api_of_an_untrusted_file_is_not_contacted() {
    let toolcrib = Toolcrib::new();
    toolcrib.write(
        "toolcrib.yaml",
        "sources: { shop: { openapi: 'http://127.0.0.1:1/x', base_url: 'http://127.0.0.1:2', auth: { bearer: '${env:HOME}' } } }",
    );
    let listed = toolcrib.run(&["tools"]);
    listed.assert_stderr("is not trusted yet, so none of its sources is contacted");
    toolcrib.run_ok(&["trust"]).assert_stdout("  shop: the API of http://127.0.0.1:1/x (http://127.0.0.1:2)");
}

#[test]
fn a_source_of_the_configuration_cannot_be_added_or_removed() {
    let toolcrib = Toolcrib::new();
    let file = toolcrib.write("toolcrib.yaml", "sources:\n  files: { command: x }\n  wrong: { comand: x }\n");
    toolcrib.run_ok(&["trust"]);
    for (name, line) in [("files", 2), ("wrong", 3)] {
        let place = format!("`{}:{line}`", file.display());
        let added = add_scripted_source(&toolcrib, name, &[]);
        let message = format!(
            "error: `{name}` is declared in {place}, which takes precedence; change it there, or choose another name\n"
        );
        assert_eq!((added.code, added.stderr), (1, message));
        let removed = toolcrib.run(&["remove", name]);
        let message =
            format!("error: `{name}` is declared in {place}; remove it there, or run `toolcrib disable {name}`\n");
        assert_eq!((removed.code, removed.stderr), (1, message));
    }
}

#[test]
fn a_removed_source_is_gone() {
    let toolcrib = Toolcrib::new();
    assert_eq!(add_scripted_source(&toolcrib, "one", &[]).code, 0);
    assert_eq!(toolcrib.run_ok(&["remove", "One"]).stdout, "removed `one` and its 3 tools\n");
    assert_eq!(toolcrib.json(&["sources"]), json!({ "sources": [] }));
    assert_eq!(toolcrib.json(&["tools", "--cached"])["tools"], json!([]));
}

#[test]
fn sources_and_tools_are_enabled_and_disabled() {
    let mut toolcrib = Toolcrib::new();
    assert_eq!(add_scripted_source(&toolcrib, "one", &[]).code, 0);
    assert_eq!(add_scripted_source(&toolcrib, "two", &[]).code, 0);
    for (arguments, code, text) in [
        (&["disable", "one__echo", "two/add"][..], 0, "one__echo: disabled\ntwo__add: disabled\n"),
        (&["disable", "one:echo"], 0, "one__echo: already disabled\n"),
        (&["enable", "echo"], 1, "error: `echo` is offered by several sources: one__echo, two__echo\n"),
        (&["enable", "one__ech"], 1, "error: no tool named `one__ech`; did you mean "),
        (&["enable", "oen"], 2, "error: no source or tool named `oen`; did you mean `one`?\n"),
        (&["enable", "one"], 0, "one: already enabled\n"),
        (&["disable", "one"], 0, "one: disabled\n"),
        (
            &["enable", "one__add"],
            1,
            "error: `one` is disabled, and all its tools with it; run `toolcrib enable one` first\n",
        ),
        (&["enable", "two", "nonsense"], 2, "error: no source or tool named `nonsense`; "),
    ] {
        let outcome = toolcrib.run(arguments);
        let printed = if code == 0 { &outcome.stdout } else { &outcome.stderr };
        assert_eq!(outcome.code, code, "{outcome:?}");
        assert!(printed.starts_with(text), "{outcome:?}");
    }
    let expected = json!({ "source": "one", "enabled": true, "changed": true });
    assert_eq!(toolcrib.json(&["enable", "one"]), expected);
    let expected = json!({ "tool": "one__echo", "enabled": true, "changed": true });
    assert_eq!(toolcrib.json(&["enable", "one__echo"]), expected);
    toolcrib.set_variable("TOOLCRIB_SOURCE_ONE_ENABLED", "false");
    let overridden = toolcrib.run_ok(&["enable", "one"]);
    let hint =
        "hint: `TOOLCRIB_SOURCE_ONE_ENABLED` is set and takes precedence: `one` is disabled in this environment\n";
    assert_eq!((overridden.stdout.as_str(), overridden.stderr.as_str()), ("one: already enabled\n", hint));
    let expected = json!({ "one": { "enabled": { "value": false, "origin": "TOOLCRIB_SOURCE_ONE_ENABLED" } } });
    assert_eq!(toolcrib.json(&["config"])["overrides"], expected);
}

#[test]
fn a_disabled_source_and_its_tool_are_enabled_together() {
    let toolcrib = Toolcrib::new();
    assert_eq!(add_scripted_source(&toolcrib, "one", &[]).code, 0);
    assert_eq!(add_scripted_source(&toolcrib, "two", &[]).code, 0);
    for (arguments, code, text) in [
        (&["disable", "one", "one__echo"][..], 0, "one: disabled\none__echo: disabled\n"),
        (&["disable", "one/add", "one", "two"], 0, "one__add: disabled\none: already disabled\ntwo: disabled\n"),
        (&["enable", "one", "two__echo"], 1, "error: `two` is disabled, and all its tools with it; "),
        (&["enable", "one", "one__nothing"], 1, "error: no tool named `one__nothing`"),
        (&["enable", "one", "one__echo"], 0, "one: enabled\none__echo: enabled\n"),
        (&["enable", "add", "one"], 0, "one__add: enabled\none: already enabled\n"),
    ] {
        let outcome = toolcrib.run(arguments);
        let printed = if code == 0 { &outcome.stdout } else { &outcome.stderr };
        assert_eq!(outcome.code, code, "{outcome:?}");
        assert!(printed.starts_with(text), "{outcome:?}");
    }
    let listed = toolcrib.json(&["tools", "--cached"]);
    assert!(listed["tools"].as_array().unwrap().iter().all(|tool| tool["enabled"] == true), "{listed}");
}

#[test]
fn an_exact_tool_name_wins_over_a_sanitized_one() {
    let toolcrib = Toolcrib::new();
    let tools = toolcrib.write("tools.json", r#"{"tools": [{"name": "a.b"}, {"name": "a_b"}, {"name": "c.d"}]}"#);
    assert_eq!(add_scripted_source(&toolcrib, "one", &["--tools-file", tools.to_str().unwrap()]).code, 0);
    assert_eq!(toolcrib.run_ok(&["disable", "one"]).stdout, "one: disabled\n");
    let disabled = toolcrib.run_ok(&["disable", "one", "one__a_b", "one__c_d"]);
    assert_eq!(disabled.stdout, "one: already disabled\none__a_b: disabled\none__c_d: disabled\n");
    toolcrib.run_ok(&["enable", "one"]);
    let listed = toolcrib.json(&["tools", "--cached"]);
    let enabled: Vec<&Value> =
        listed["tools"].as_array().unwrap().iter().filter(|tool| tool["enabled"] == true).collect();
    assert_eq!(enabled.len(), 1, "{listed}");
    assert_eq!(enabled[0]["original_name"], "a.b", "{listed}");
}

#[test]
fn an_invalidated_source_is_stale() {
    let toolcrib = Toolcrib::new();
    assert_eq!(add_scripted_source(&toolcrib, "one", &[]).code, 0);
    assert_eq!(toolcrib.json(&["sources"])["sources"][0]["freshness"], "fresh");
    assert_eq!(toolcrib.run_ok(&["invalidate"]).stdout, "one: stale; refreshed at its next use\n");
    assert_eq!(toolcrib.json(&["sources"])["sources"][0]["freshness"], "stale");
    assert_eq!(toolcrib.json(&["invalidate", "one"]), json!({ "invalidated": ["one"] }));
    assert_eq!(toolcrib.json(&["tools", "--cached"])["tools"].as_array().unwrap().len(), 3);
}

#[test]
fn the_servers_of_other_clients_are_imported() {
    let toolcrib = Toolcrib::new();
    let count = toolcrib.home().join("starts");
    let server =
        json!({ "command": scripted_server(), "args": ["--count-file", count], "env": { "TOKEN": "hunter2" } });
    let cursor = json!({ "mcpServers": { "Files": server, "bad": { "comand": "x" }, "日": { "command": "x" } } });
    toolcrib.write("~/.cursor/mcp.json", &cursor.to_string());
    toolcrib.write(
        "~/.codeium/windsurf/mcp_config.json",
        r#"{ "mcpServers": { "files": { "command": "other" }, "docs": { "serverUrl": "http://127.0.0.1:1/mcp" } } }"#,
    );
    toolcrib.write("~/.gemini/settings.json", "{ not json");
    toolcrib.write("~/.config/Code/User/settings.json", r#"{ "editor.fontSize": 12 }"#);
    let summary = |results: &Value| -> Vec<String> {
        let line =
            |line: &Value| format!("{} {}", line["source"].as_str().unwrap_or("?"), line["status"].as_str().unwrap());
        results["results"].as_array().unwrap().iter().map(line).collect()
    };
    let expected =
        ["files imported", "bad failed", "source_85217f7a failed", "? failed", "files skipped", "docs imported"];
    toolcrib.write(".vscode/mcp.json", r#"{ "servers": { "planted": { "command": "x" } } }"#);

    let dry = toolcrib.json(&["import", "--dry-run"]);
    assert_eq!(summary(&dry), expected);
    assert!(!toolcrib.home().join("data").exists(), "a dry run writes nothing");

    assert_eq!(summary(&toolcrib.json(&["import"])), expected);
    let again = toolcrib.run(&["import", "--from", "cursor"]);
    assert_eq!(again.code, 1, "{again:?}");
    assert!(again.stdout.contains("files: already declared as in `"), "{again:?}");
    assert!(!again.stdout.contains("hunter2"), "{again:?}");
    assert_eq!(count_starts(&count), 0, "an import contacts nobody");

    toolcrib.write(
        "other.json",
        r#"{ "mcpServers": { "files": { "command": "other", "args": ["--token", "hunter2"] } } }"#,
    );
    let changed = toolcrib.run_ok(&["import", "other.json"]);
    assert_eq!(changed.stdout, "files: updated from `other.json`: other --token ***\n");
    let sources = toolcrib.json(&["sources"]);
    let ids: Vec<&Value> = sources["sources"].as_array().unwrap().iter().map(|source| &source["id"]).collect();
    assert_eq!(ids, ["docs", "files"]);
}

#[test]
fn import_skips_sources_of_the_configuration() {
    let toolcrib = Toolcrib::new();
    let config = toolcrib.write("toolcrib.yaml", "sources: { files: { command: x } }");
    toolcrib.write(".mcp.json", r#"{ "mcpServers": { "files": { "command": "y" }, "docs": { "url": "http://x" } } }"#);
    toolcrib.run_ok(&["trust"]);
    let imported = toolcrib.run_ok(&["import", ".mcp.json"]);
    let expected = format!(
        "files: skipped: `{}:1` declares that name, and the configuration takes precedence\ndocs: imported from `.mcp.json`: http://x\n",
        config.display()
    );
    assert_eq!(imported.stdout, expected);
    std::fs::remove_file(config).unwrap();
    let nothing = toolcrib.run(&["import"]);
    assert!(nothing.stderr.contains(".mcp.json` is read as the configuration already"), "{nothing:?}");
}

#[test]
fn an_exported_configuration_declares_the_same_sources() {
    let toolcrib = Toolcrib::new();
    toolcrib.write(
        "toolcrib.yaml",
        "sources:\n  a: { command: x, args: [--flag], ttl: 9m }\n  b: { url: 'http://x', enabled: false }\n",
    );
    toolcrib.run_ok(&["trust"]);
    let server = scripted_server();
    toolcrib.run_ok(&["add", "c", "--env", "TOKEN=hunter2", "--", &server, "--tools", "1"]);
    toolcrib.run_ok(&["disable", "a"]);
    let exported = toolcrib.run_ok(&["export", "--secrets"]);
    assert!(exported.stderr.contains("`env.TOKEN` of `c` may be secret and is written in clear text"), "{exported:?}");
    assert!(exported.stdout.contains("hunter2"), "{exported:?}");
    let other = Toolcrib::new();
    let file = other.write("toolcrib.yaml", &exported.stdout);
    other.run_ok(&["trust"]);
    let back = other.run_ok(&["export", "--secrets", "--config", file.to_str().unwrap()]);
    assert_eq!(back.stdout, exported.stdout);
    assert_eq!(other.json(&["export"]), toolcrib.json(&["export"]));
    assert_eq!(
        other.json(&["export"])["sources"]["a"],
        json!({ "command": "x", "args": ["--flag"], "ttl": "9m", "enabled": false })
    );
}

#[test]
fn a_project_file_runs_nothing_before_it_is_trusted() {
    let toolcrib = Toolcrib::new();
    let (config, count) = config_with_start_counter(&toolcrib, "");
    let file = toolcrib.write("toolcrib.yaml", &config);
    let listed = toolcrib.run_ok(&["tools"]);
    assert!(listed.stderr.contains("is not trusted yet"), "{listed:?}");
    let called = toolcrib.run(&["call", "one__echo", "text=hi"]);
    assert_eq!(called.code, 1, "{called:?}");
    assert_eq!(count_starts(&count), 0);

    let trusted = toolcrib.run_ok(&["trust"]);
    assert!(
        trusted.stdout.starts_with(&format!("`{}` is trusted now:\n  one: {}", file.display(), scripted_server())),
        "{trusted:?}"
    );
    assert!(toolcrib.run_ok(&["trust"]).stdout.contains("is trusted already"));
    assert_eq!(toolcrib.json(&["tools"])["tools"].as_array().unwrap().len(), 3);
    assert_eq!(count_starts(&count), 1);

    toolcrib.write("toolcrib.yaml", &config_with_start_counter(&toolcrib, ", --tools, '5'").0);
    let changed = toolcrib.run_ok(&["tools"]);
    assert!(changed.stderr.contains("has changed since it was trusted"), "{changed:?}");
    assert_eq!(count_starts(&count), 1, "changed commands need trust again");
    toolcrib.run_ok(&["--config", file.to_str().unwrap(), "tools"]);
    assert_eq!(count_starts(&count), 2, "a named file counts as trusted");
}

#[test]
fn config_shows_the_origin_of_each_value() {
    let toolcrib = Toolcrib::new();
    let user = toolcrib
        .write("~/.config/toolcrib/toolcrib.yaml", "sources: { mine: { command: m } }\ndefaults: { idle: 1m }\n");
    let project = toolcrib.write(
        "toolcrib.yaml",
        "sources:\n  docs: { url: 'http://x/?key=hunter2', auth: { bearer: hunter2 } }\n  bad: { ulr: x }\ndefaults:\n  ttl: 9m\n",
    );
    toolcrib.run_ok(&["trust"]);
    toolcrib.run(&["add", "late", "--url", "http://127.0.0.1:1/", "--bearer", "${env:TOKEN}"]);
    let config = toolcrib.json(&["config"]);
    let user = user.display().to_string();
    let project = project.display().to_string();
    assert_eq!(config["files"], json!([project, user]));
    assert_eq!(config["defaults"]["ttl"], json!({ "value": "9m", "origin": format!("{project}:5") }));
    assert_eq!(config["defaults"]["idle"], json!({ "value": "1m", "origin": format!("{user}:2") }));
    assert_eq!(config["defaults"]["call_timeout"], json!({ "value": "1m", "origin": "default" }));
    let sources = json!({
        "bad": { "faults": [
            format!("{project}:3: sources.bad: unknown key `ulr`; did you mean `url`?"),
            format!("{project}:3: sources.bad: needs one of `command`, `url`, `openapi`, `workflow` or `builtin`"),
        ], "origin": format!("{project}:3") },
        "docs": { "url": "http://x/?key=***", "auth": { "bearer": "***" }, "origin": format!("{project}:2") },
        "late": { "url": "http://127.0.0.1:1/", "auth": { "bearer": "${env:TOKEN}" }, "origin": "runtime" },
        "mine": { "command": "m", "origin": format!("{user}:1") },
    });
    assert_eq!(config["sources"], sources);
    let text = toolcrib.run_ok(&["config"]).stdout;
    for line in [
        &format!("  docs:  # {project}:2\n    url: \"http://x/?key=***\"\n    auth: {{\"bearer\":\"***\"}}\n"),
        "  late:  # runtime\n    url: \"http://127.0.0.1:1/\"\n",
        &format!("  ttl: 9m  # {project}:5\n"),
        "  on_conflict: exclude  # default\n",
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
}

#[test]
fn configuration_errors_name_file_line_and_key() {
    let toolcrib = Toolcrib::new();
    for (name, text, message) in [
        (
            "toolcrib.yaml",
            "sources: {}\ndefalts:\n  ttl: 5m\n",
            "FILE:2: unknown key `defalts`; did you mean `defaults`?",
        ),
        ("toolcrib.yaml", "defaults:\n  ttl: soon\n", "FILE:2: defaults.ttl: "),
        (
            "toolcrib.yaml",
            "sources:\n  My-A: { command: x }\n  my_a: { command: y }\n",
            "FILE:3: sources: `my_a` and `My-A` (line 2) both become the source `my_a`; rename one",
        ),
        ("toolcrib.json", "{ \"sources\": ", "FILE:1:"),
    ] {
        let file = toolcrib.write(name, text);
        let message = message.replace("FILE", &file.display().to_string());
        for command in ["sources", "config", "trust", "export"] {
            let outcome = toolcrib.run(&[command]);
            assert_eq!(outcome.code, 2, "{outcome:?}");
            assert!(outcome.stderr.starts_with(&format!("error: {message}")), "{message}\n{outcome:?}");
        }
        let envelope = toolcrib.json(&["sources"]);
        assert_eq!(envelope["error"]["code"], "CONFIG_INVALID");
        std::fs::remove_file(file).unwrap();
    }
}

#[test]
fn one_bad_source_does_not_stop_the_rest() {
    let toolcrib = Toolcrib::new();
    let server = scripted_server();
    let file = toolcrib.write(
        "toolcrib.yaml",
        &format!("sources:\n  good: {{ command: {server:?} }}\n  ends: {{ command: {server:?}, args: [--exit, '1'] }}\n  wrong: {{ comand: x }}\n"),
    );
    toolcrib.run_ok(&["trust"]);
    let tools = toolcrib.json(&["tools"]);
    assert_eq!(tools["tools"].as_array().unwrap().len(), 3);
    let sources = toolcrib.json(&["sources"]);
    let status = |index: usize| (&sources["sources"][index]["id"], &sources["sources"][index]["status"]);
    assert_eq!(status(0), (&json!("ends"), &json!("failed")));
    assert_eq!(status(1), (&json!("good"), &json!("success")));
    assert_eq!(status(2), (&json!("wrong"), &json!("failed")));
    let enabled = toolcrib.run(&["enable", "wrong"]);
    let message = format!(
        "error: `wrong` has an invalid declaration in `{}:4`; `toolcrib sources` shows the error\n",
        file.display()
    );
    assert_eq!((enabled.code, enabled.stderr), (2, message));
}

#[test]
fn logs_show_stderr_without_control_characters() {
    let toolcrib = Toolcrib::new();
    assert_eq!(add_scripted_source(&toolcrib, "one", &["--stderr", "first\n\u{1b}[31msecond\u{1b}[0m"]).code, 0);
    assert_eq!(toolcrib.run_ok(&["logs", "one"]).stdout, "first\nsecond\n");
    assert_eq!(toolcrib.run_ok(&["logs", "one", "-n", "1"]).stdout, "second\n");
    assert_eq!(toolcrib.json(&["logs", "one"]), json!({ "source": "one", "lines": ["first", "second"] }));
    assert_eq!(add_scripted_source(&toolcrib, "quiet", &[]).code, 0);
    let quiet = toolcrib.run_ok(&["logs", "quiet"]);
    assert_eq!((quiet.stdout.as_str(), quiet.stderr.as_str()), ("", "`quiet` has written nothing to stderr yet\n"));
}

#[test]
fn no_output_contains_secrets() {
    let toolcrib = Toolcrib::new();
    let server = scripted_server();
    let mut outcomes = vec![
        toolcrib.run(&[
            "-v",
            "add",
            "one",
            "--env",
            "TOKEN=hunter2",
            "--",
            &server,
            "--stderr",
            "token: hunter2",
            "--exit",
            "1",
        ]),
        toolcrib.run(&[
            "-v",
            "add",
            "two",
            "--url",
            "http://me:hunter2@127.0.0.1:1/mcp?key=hunter2",
            "--header",
            "X-Key=hunter2",
        ]),
        toolcrib.run(&["-v", "add", "three", "--url", "http://127.0.0.1:1/", "--bearer", "hunter2"]),
        toolcrib.run(&["-v", "add", "four", "--", "/no/such/program", "--api-key=hunter2", "--token", "hunter2"]),
    ];
    for command in ["sources", "config", "refresh", "trust", "tools"] {
        outcomes.push(toolcrib.run(&["-v", command]));
        outcomes.push(toolcrib.run(&["-v", command, "--json"]));
    }
    outcomes.push(toolcrib.run(&["logs", "one"]));
    for outcome in outcomes {
        let text = (outcome.stdout + &outcome.stderr).replace("\"--stderr\",\"token: hunter2\"", "");
        assert!(!text.contains("hunter2"), "{text}");
    }
}

#[test]
fn init_does_not_overwrite_a_configuration() {
    let toolcrib = Toolcrib::new();
    toolcrib.write(".mcp.json", "{}");
    let written = toolcrib.run_ok(&["init"]);
    assert!(written.stdout.starts_with(&format!("wrote `{}`", toolcrib.project().join("toolcrib.yaml").display())));
    assert!(written.stderr.starts_with("hint: `.mcp.json` here works with Toolcrib as it is"), "{written:?}");
    let again = toolcrib.run(&["init"]);
    assert_eq!(again.code, 1, "{again:?}");
    toolcrib.run_ok(&["init", "--force"]);
    let sources = toolcrib.run_ok(&["sources"]);
    assert_eq!((sources.stderr.as_str(), sources.stdout.starts_with("no sources yet")), ("", true));
}

#[test]
fn completions_and_help_exist_for_every_shell_and_command() {
    let toolcrib = Toolcrib::new();
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        assert!(toolcrib.run_ok(&["completions", shell]).stdout.contains("invalidate"), "{shell}");
    }
    for command in [
        "init",
        "import",
        "add",
        "remove",
        "enable",
        "disable",
        "invalidate",
        "config",
        "export",
        "trust",
        "logs",
        "completions",
    ] {
        let help = toolcrib.run_ok(&[command, "--help"]).stdout;
        assert!(help.contains("Example"), "{help}");
    }
    let none: [&str; 0] = [];
    let help = toolcrib.run(&none);
    assert_eq!(help.code, 2);
    assert!(help.stderr.contains("Usage: toolcrib"), "{help:?}");
}
