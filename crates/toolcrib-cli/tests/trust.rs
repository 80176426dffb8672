//! A project file has no effect before it is trusted, and needs trust again when it would do more.

use serde_json::{Value, json};

use crate::support::{Toolcrib, count_starts, scripted_server};

const USER_CONFIG: &str = "~/.config/toolcrib/toolcrib.yaml";

/// Returns whether a command asks for trust in the project file.
fn asks_for_trust(toolcrib: &Toolcrib) -> bool {
    let stderr = toolcrib.run_ok(&["tools", "--cached"]).stderr;
    stderr.contains("is not trusted yet") || stderr.contains("has changed since it was trusted")
}

fn source_status(toolcrib: &Toolcrib, id: &str) -> Value {
    let sources = toolcrib.json(&["sources"]);
    let sources = sources["sources"].as_array().into_iter().flatten();
    sources.into_iter().find(|source| source["id"] == id).cloned().unwrap_or_default()
}

#[test]
fn an_untrusted_file_has_no_effect() {
    let toolcrib = Toolcrib::new();
    let count = toolcrib.home().join("starts");
    let server = scripted_server();
    toolcrib.write(USER_CONFIG, &format!("sources: {{ mine: {{ command: {server:?} }} }}\n"));
    toolcrib.write(
        "toolcrib.yaml",
        &format!(
            "sources:\n  mine: {{ command: {server:?}, args: [--count-file, {count:?}] }}\n  theirs: {{ command: x }}\n\
             defaults: {{ ttl: 99m }}\nexpose: {{ prefix: false }}\n"
        ),
    );
    let listed = toolcrib.json(&["tools"]);
    let names: Vec<&str> =
        listed["tools"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    assert!(
        !names.is_empty() && names.iter().all(|name| name.starts_with("mine__")),
        "the user's own works: {names:?}"
    );
    assert_eq!(count_starts(&count), 0, "what the file makes of it is not run");
    assert_eq!(source_status(&toolcrib, "mine")["ttl_ms"], 300_000);
    let theirs = source_status(&toolcrib, "theirs");
    assert_eq!((&theirs["status"], &theirs["last_error"]["code"]), (&json!("failed"), &json!("FORBIDDEN")));
    let config = toolcrib.json(&["config"]);
    assert_eq!(config["defaults"]["ttl"]["origin"], "default");
    assert_eq!(config["expose"]["prefix"]["value"], true);
    assert!(config["untrusted"]["reason"].as_str().unwrap().ends_with("is not trusted yet"), "{config}");

    let stdout = toolcrib.run_ok(&["trust"]).stdout;
    assert!(stdout.contains("    replaces your own `mine`\n"), "{stdout}");
    assert!(stdout.contains("  defaults: {\"ttl\":\"99m\"}\n  expose: {\"prefix\":false}\n"), "{stdout}");
    toolcrib.json(&["tools"]);
    assert_eq!(count_starts(&count), 1);
    assert_eq!(source_status(&toolcrib, "mine")["ttl_ms"], 99 * 60_000);
}

#[test]
fn a_widening_change_needs_trust_and_keeps_cached_tools() {
    let toolcrib = Toolcrib::new();
    let server = scripted_server();
    let file = |keys: &str| format!("sources:\n  one: {{ command: {server:?}{keys} }}\n");
    toolcrib.write("toolcrib.yaml", &file(", tools: { 'echo*': deny }"));
    toolcrib.run_ok(&["trust"]);
    let tools = toolcrib.json(&["tools"])["tools"].as_array().unwrap().len();

    toolcrib.write("toolcrib.yaml", &file(", tools: { 'echo*': deny, '*': ask }, ttl: 1h, title: One"));
    assert!(!asks_for_trust(&toolcrib), "narrowing needs no trust");
    for widened in ["", ", tools: { 'echo*': ask }", ", tools: { 'echo*': deny, echo: allow }"] {
        toolcrib.write("toolcrib.yaml", &file(widened));
        assert!(asks_for_trust(&toolcrib), "{widened}");
        let known = toolcrib.json(&["tools", "--cached"])["tools"].as_array().unwrap().len();
        assert!(known > 0 && known <= tools, "the list stays");
        let called = toolcrib.json(&["call", "one__echo", "text=hi"]);
        assert_eq!(called["error"]["code"], "FORBIDDEN", "{called}");
    }
    toolcrib.write("toolcrib.yaml", "sources: {}\ndefaults: { ttl: 1m }\n");
    assert!(asks_for_trust(&toolcrib), "`defaults` are new");
    assert_eq!(source_status(&toolcrib, "one")["origin"], "config", "and the source is not removed meanwhile");
    toolcrib.run_ok(&["trust"]);
    assert!(toolcrib.json(&["sources"])["sources"].as_array().unwrap().is_empty());
}

#[test]
fn a_trusted_project_can_narrow_the_users_own_source() {
    let toolcrib = Toolcrib::new();
    let server = scripted_server();
    toolcrib.write(
        USER_CONFIG,
        &format!("sources: {{ mine: {{ command: {server:?} }}, other: {{ command: {server:?} }} }}\n"),
    );
    toolcrib.write(
        "toolcrib.yaml",
        "sources:\n  mine: { tools: { echo: deny, '*': allow } }\n  other: { enabled: false }\n",
    );
    assert_eq!(source_status(&toolcrib, "other")["enabled"], true, "not before it is trusted");
    let stdout = toolcrib.run_ok(&["trust"]).stdout;
    assert!(stdout.contains("  narrows your own `other`: {\"enabled\":false}\n"), "{stdout}");
    assert_eq!(source_status(&toolcrib, "other")["enabled"], false);
    let called = toolcrib.json(&["call", "mine__echo", "text=hi"]);
    assert_eq!(called["error"]["code"], "FORBIDDEN", "{called}");

    toolcrib.write("toolcrib.yaml", "sources:\n  mine: { tools: { echo: allow } }\n  new: { command: x }\n");
    assert!(asks_for_trust(&toolcrib));
    assert_eq!(
        source_status(&toolcrib, "other")["enabled"],
        false,
        "what was restricted stays so until it is trusted again"
    );
    let called = toolcrib.json(&["call", "mine__echo", "text=hi"]);
    assert_eq!(called["error"]["code"], "FORBIDDEN", "{called}");
}

#[test]
fn a_changed_server_in_a_document_needs_trust() {
    let toolcrib = Toolcrib::new();
    let document = |server: &str, about: &str| {
        json!({
            "openapi": "3.1.0", "info": { "title": "Shop", "version": "1", "description": about },
            "servers": [{ "url": server }],
            "paths": { "/orders": { "get": { "operationId": "orders", "responses": { "200": { "description": "ok" } } } } },
        })
        .to_string()
    };
    toolcrib.write("shop.json", &document("http://127.0.0.1:9/v1", "An API"));
    toolcrib.write("toolcrib.yaml", "sources:\n  shop: { openapi: ./shop.json, auth: { bearer: '${env:HOME}' } }\n");
    let stdout = toolcrib.run_ok(&["trust"]).stdout;
    assert!(stdout.contains("    its document sends requests to http://127.0.0.1:9\n"), "{stdout}");
    toolcrib.run_ok(&["refresh", "shop"]);
    toolcrib.write("shop.json", &document("http://127.0.0.1:9/v2", "An API, explained better"));
    assert!(!asks_for_trust(&toolcrib), "another path and another description need no trust");
    toolcrib.run_ok(&["refresh", "shop"]);

    toolcrib.write("shop.json", &document("http://127.0.0.2:9/v2", "An API"));
    let listed = toolcrib.run_ok(&["tools", "--cached"]);
    assert!(listed.stderr.contains("(sources.shop.servers)"), "{listed:?}");
    let refreshed = toolcrib.json(&["refresh", "shop", "--force"]);
    assert_eq!(refreshed["results"][0]["error"]["code"], "FORBIDDEN", "{refreshed}");
    toolcrib.run_ok(&["trust"]);
    toolcrib.run_ok(&["refresh", "shop"]);
}

#[test]
fn a_changed_api_in_a_workflow_document_needs_trust() {
    let toolcrib = Toolcrib::new();
    let document = |name: &str, about: &str| {
        json!({
            "arazzo": "1.0.1", "info": { "title": "Flows", "version": "1", "description": about },
            "sourceDescriptions": [{ "name": name, "url": "./shop.json", "type": "openapi" }],
            "workflows": [{ "workflowId": "look", "steps": [{ "stepId": "one", "operationId": "orders" }] }],
        })
        .to_string()
    };
    toolcrib.write("flows.json", &document("shop", "Flows"));
    toolcrib.write("toolcrib.yaml", "sources:\n  flows: { workflow: ./flows.json }\n");
    let stdout = toolcrib.run_ok(&["trust"]).stdout;
    assert!(stdout.contains("    its document sends requests to shop (./shop.json)\n"), "{stdout}");
    toolcrib.write("flows.json", &document("shop", "Flows, explained better"));
    assert!(!asks_for_trust(&toolcrib));
    toolcrib.write("flows.json", &document("bank", "Flows"));
    assert!(asks_for_trust(&toolcrib));
}

#[test]
fn trust_shows_commands_quoted_for_a_shell() {
    let toolcrib = Toolcrib::new();
    toolcrib.write(
        "toolcrib.yaml",
        "sources:\n  a: { command: sh, args: [-c, \"echo 'hi'; rm x\", \"\\e[2K\"], env: { TOKEN: hunter2, LD_PRELOAD: ./x.so } }\n  \
         c: { command: node, args: [-e, \"run('0123456789abcdef0123')\", --token, hunter2, 'http://me:hunter2@h/?page=1'],\
         \x20env: { GIT_SSH_COMMAND: 'ssh -v', HTTPS_PROXY: 'http://me:hunter2@127.0.0.1:9', npm_config_registry: 'http://127.0.0.1:9' } }\n  \
         b: { url: 'http://127.0.0.1:9/mcp', tools: { 'delete_*': deny }, essential: ['x*'], lifecycle: per_client, enabled: false }\n",
    );
    let stdout = toolcrib.run_ok(&["trust"]).stdout;
    let expected = "  a: LD_PRELOAD=./x.so TOKEN=*** sh -c 'echo '\\''hi'\\''; rm x' $'\\u001b[2K'\n";
    assert!(stdout.contains(expected), "{stdout}");
    let expected = "  c: GIT_SSH_COMMAND='ssh -v' HTTPS_PROXY=http://***@127.0.0.1:9 npm_config_registry=http://127.0.0.1:9 node \
                    -e 'run('\\''0123456789abcdef0123'\\'')' --token *** 'http://***@h/?page=1'\n";
    assert!(stdout.contains(expected), "{stdout}");
    for line in ["    tools: {\"delete_*\":\"deny\"}\n", "    essential: [\"x*\"]\n", "    lifecycle: \"per_client\"\n"]
    {
        assert!(stdout.contains(line), "{line}{stdout}");
    }
    assert!(stdout.contains("    enabled: false\n") && !stdout.contains("hunter2"), "{stdout}");
}

#[test]
fn trust_recorded_by_an_older_version_is_not_accepted() {
    let toolcrib = Toolcrib::new();
    let file = toolcrib.write("toolcrib.yaml", "sources:\n  a: { command: x }\n");
    let old = json!({ file.canonicalize().unwrap().to_str().unwrap(): "0".repeat(64) });
    toolcrib.write("~/data/toolcrib/trusted.json", &old.to_string());
    assert!(asks_for_trust(&toolcrib));
    toolcrib.run_ok(&["trust"]);
    assert!(!asks_for_trust(&toolcrib));
}

#[test]
fn an_emptied_file_does_not_lift_restrictions() {
    let toolcrib = Toolcrib::new();
    let server = scripted_server();
    toolcrib.write(USER_CONFIG, &format!("sources: {{ mine: {{ command: {server:?} }} }}\n"));
    toolcrib.write("toolcrib.yaml", "sources: { mine: { enabled: false } }\ndefaults: { ttl: 9m }\n");
    toolcrib.run_ok(&["trust"]);
    assert_eq!(source_status(&toolcrib, "mine")["enabled"], false);
    for empty in ["sources: {}\n", "", "# nothing\n"] {
        toolcrib.write("toolcrib.yaml", empty);
        assert!(asks_for_trust(&toolcrib), "{empty:?}");
        assert_eq!(source_status(&toolcrib, "mine")["enabled"], false, "{empty:?}");
    }
    toolcrib.run_ok(&["trust"]);
    assert_eq!(source_status(&toolcrib, "mine")["enabled"], true);
    assert!(!asks_for_trust(&toolcrib));
}

#[test]
fn an_untrusted_file_does_not_affect_sources_added_by_command() {
    let toolcrib = Toolcrib::new();
    let server = scripted_server();
    toolcrib.write("toolcrib.yaml", "sources: { late: { command: x } }\n");
    let added = toolcrib.run_ok(&["add", "late", "--", &server]);
    assert!(added.stdout.contains("late"), "{added:?}");
    toolcrib.run_ok(&["call", "late__echo", "text=hi"]);
    assert_eq!(source_status(&toolcrib, "late")["status"], "success");
    toolcrib.run_ok(&["remove", "late"]);
    let refused = toolcrib.run(&["enable", "late"]);
    assert!(refused.stderr.contains("is not trusted yet"), "{refused:?}");
}

#[test]
fn trust_covers_referenced_files_of_the_project() {
    let mut toolcrib = Toolcrib::new();
    let elsewhere = toolcrib.write("~/secret", "one");
    toolcrib.set_variable("ELSEWHERE", elsewhere.to_str().unwrap());
    toolcrib.write("url.txt", "http://127.0.0.1:9/mcp");
    let file = format!(
        "sources:\n  a: {{ url: '${{file:./url.txt}}', headers: {{ T: '${{file:{}}}' }} }}\n",
        elsewhere.display()
    );
    toolcrib.write("toolcrib.yaml", &file);
    let stdout = toolcrib.run_ok(&["trust"]).stdout;
    assert!(!stdout.contains("its document"), "a server has none: {stdout}");
    toolcrib.write("~/secret", "two");
    assert!(!asks_for_trust(&toolcrib), "a secret elsewhere may change");
    toolcrib.write("url.txt", "http://127.0.0.2:9/mcp");
    assert!(asks_for_trust(&toolcrib));
}

#[test]
fn trust_covers_referenced_documents_and_symlinked_roots() {
    let mut toolcrib = Toolcrib::new();
    let project = toolcrib.project();
    toolcrib.set_variable("PROJECT", project.to_str().unwrap());
    let document = |server: &str| {
        json!({ "openapi": "3.1.0", "info": { "title": "x", "version": "1" }, "servers": [{ "url": server }], "paths": {} })
            .to_string()
    };
    toolcrib.write("api.json", &document("http://127.0.0.1:9"));
    std::fs::create_dir(project.join("one")).unwrap();
    std::os::unix::fs::symlink(project.join("one"), project.join("data")).unwrap();
    toolcrib.write(
        "toolcrib.yaml",
        "sources:\n  api: { openapi: '${env:PROJECT}/api.json' }\n  core: { builtin: all, roots: [./data] }\n",
    );
    let stdout = toolcrib.run_ok(&["trust"]).stdout;
    assert!(stdout.contains("    its document sends requests to http://127.0.0.1:9\n"), "{stdout}");
    assert!(stdout.contains(&format!("    its file tools may access {}\n", project.join("one").display())), "{stdout}");
    assert!(!asks_for_trust(&toolcrib));
    toolcrib.write("api.json", &document("http://127.0.0.2:9"));
    assert!(asks_for_trust(&toolcrib));
    toolcrib.write("api.json", &document("http://127.0.0.1:9"));
    assert!(!asks_for_trust(&toolcrib));
    std::fs::remove_file(project.join("data")).unwrap();
    std::os::unix::fs::symlink("/", project.join("data")).unwrap();
    assert!(asks_for_trust(&toolcrib));
}

#[test]
fn rules_of_a_project_apply_with_those_of_the_user_once_it_is_trusted() {
    let toolcrib = Toolcrib::new();
    toolcrib.write(USER_CONFIG, "groups: { staff: { select: {} } }\npolicies: [{ name: mine, verdict: ask }]\n");
    let project = |rules: &str| format!("sources: {{ core: {{ builtin: all }} }}\n{rules}\n");
    toolcrib.write("toolcrib.yaml", &project("access: [{ name: staff, groups: [staff] }]"));
    let config = toolcrib.json(&["config"]);
    assert_eq!((&config["access"], config["policies"].as_array().map(Vec::len)), (&json!([]), Some(1)), "{config}");

    let stdout = toolcrib.run_ok(&["trust"]).stdout;
    assert!(stdout.contains(r#"  access: [{"name":"staff","groups":["staff"],"active":true}]"#), "{stdout}");
    let config = toolcrib.json(&["config"]);
    assert_eq!(config["access"][0]["name"], "staff");
    assert!(config["groups"]["staff"]["origin"].as_str().unwrap().ends_with("toolcrib/toolcrib.yaml:1"), "{config}");

    toolcrib.write("toolcrib.yaml", &project("access: [{ name: staff, groups: [staff], when: [] }]\npolicies: []"));
    assert!(!asks_for_trust(&toolcrib), "the same rules need no trust");
    toolcrib.write("toolcrib.yaml", &project("access: [{ name: staff, groups: [staff], active: false }]"));
    assert!(asks_for_trust(&toolcrib), "every change of rules does");

    // Names are unique in both files, and nothing is trusted that does not fit.
    toolcrib.write("toolcrib.yaml", &project("policies: [{ name: mine, verdict: allow }]"));
    let refused = toolcrib.run(&["trust"]);
    assert_eq!(refused.code, 2, "{refused:?}");
    assert!(refused.stderr.contains("policies: there is another policy `mine` in `"), "{refused:?}");
    assert!(asks_for_trust(&toolcrib));
}
