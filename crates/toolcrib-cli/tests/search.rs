//! `search` and `eval`, through the real binary.

use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;

use serde_json::{Value, json};
use toolcrib_testkit::programs;

use crate::support::http::request;
use crate::support::test_project::{TestProject, field_values};
use crate::support::test_server::{TestWorkspace, wait_until};

const MAIL_TOOLS: &str = r#"[
    {"name": "send_email", "description": "Send an email to one or more people. It is sent at once.",
     "inputSchema": {"type": "object", "required": ["to"], "properties": {
        "to": {"type": "array", "items": {"type": "string"}}, "subject": {"type": "string"}}}},
    {"name": "search_messages", "description": "Search the mailbox.", "inputSchema": {"type": "object"}}
]"#;
const FILE_TOOLS: &str = r#"[
    {"name": "read_file", "description": "Read a file from disk.", "inputSchema": {"type": "object",
     "required": ["path"], "properties": {"path": {"type": "string"}}}}
]"#;

fn mail_and_files_project() -> TestProject {
    let project = TestProject::new(
        "mail: { command: SERVER, args: [--tools-file, mail.json], cwd: ., tags: [office] }
         files: { command: SERVER, args: [--tools-file, files.json], cwd: . }",
    );
    project.write("mail.json", MAIL_TOOLS);
    project.write("files.json", FILE_TOOLS);
    project
}

#[test]
fn search_discovers_sources_and_prints_one_line_per_hit() {
    let project = mail_and_files_project();
    let output = project.run(&["search", "send", "a", "mail", "to", "Ann", "-k", "1"]);
    let line = "mail__send_email(to*: string[], subject: string) — Send an email to one or more people\n";
    assert_eq!(output.assert_code(0).stdout, line);
    let found = project.json(0, &["search", "read_file", "--cached"]);
    assert_eq!(field_values(&found["hits"], "name").first(), Some(&"files__read_file"));
    let hit = &found["hits"][0];
    assert_eq!(hit["signature"], "files__read_file(path*: string)");
    assert_eq!(hit["summary"], "Read a file from disk");
    assert!(hit["score"].as_f64().unwrap() > 0.0);
    assert_eq!(found["hint"], Value::Null);
    let lines = project.run(&["search", "read_file", "--cached"]).assert_code(0).stdout.clone();
    assert_eq!(found["tokens"], toolcrib::catalog::token_count::count(lines.trim_end()));
}

#[test]
fn search_filters_by_source_and_tag() {
    let project = mail_and_files_project();
    let search = |arguments: &[&str]| {
        let found = project.json(0, &[&["search", "search read send file mail", "-k", "0"], arguments].concat());
        field_values(&found["hits"], "name").iter().map(|name| (*name).to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(search(&[]).len(), 3);
    assert_eq!(search(&["--source", "Files"]), ["files__read_file"]);
    assert_eq!(search(&["--tag", "office"]).len(), 2);
    project.run(&["search", "x", "--source", "nowhere"]).assert_code(2).assert_stderr("nowhere");
    project.run(&["search"]).assert_code(2);
}

#[test]
fn search_without_hits_succeeds_with_a_hint() {
    let project = mail_and_files_project();
    let output = project.run(&["search", "qwxyzzy"]);
    assert_eq!(output.assert_code(0).stdout, "");
    output.assert_stderr("hint: no tool matches");
    let found = project.json(0, &["search", ""]);
    assert_eq!(found["hits"], json!([]));
    assert!(found["hint"].as_str().unwrap().contains("no tool matches"));
    project.run(&["search", "\u{1b}[31m\u{202e}日本語"]).assert_code(0);
}

#[test]
fn search_skips_disabled_tools() {
    let project = mail_and_files_project();
    project.run(&["refresh"]).assert_code(0);
    project.run(&["disable", "mail__send_email"]).assert_code(0);
    let found = project.json(0, &["search", "send_email", "-k", "0"]);
    assert!(!field_values(&found["hits"], "name").contains(&"mail__send_email"));
}

#[test]
fn eval_measures_a_labelled_set_without_store_or_configuration() {
    let project = mail_and_files_project();
    let tools = [
        r#"{"id":"1","server":"mail","name":"send","description":"Send a mail"}"#,
        r#"{"id":"2","server":"Mail","name":"send","description":"Deliver post"}"#,
        r#"{"id":"3","server":"","name":"rain","description":"Will it rain?"}"#,
    ];
    project.write("tools.jsonl", &tools.join("\n"));
    project.write(
        "queries.jsonl",
        "{\"query\":\"rain\",\"relevant\":[\"3\"]}\n{\"query\":\"send\",\"groups\":[[\"1\",\"2\"]]}\n",
    );
    let eval = ["eval", "--tools", "tools.jsonl", "--queries", "queries.jsonl"];
    let output = project.run_with(&[&eval[..], &["--json"]].concat(), &[]);
    let measured: Value = serde_json::from_str(&output.assert_code(0).stdout).unwrap();
    for key in ["recall@1", "recall@3", "recall@5", "recall@10", "ndcg@10", "mrr"] {
        assert_eq!(measured[key], json!(1.0), "{key}");
    }
    assert_eq!(measured["queries"], 2);
    assert!(measured["p50_us"].is_u64() && measured["p99_us"].is_u64());
    assert!(!project.path("home/data").exists());
    project.run_with(&eval, &[]).assert_code(0).assert_stdout("ndcg@10").assert_stdout("1.0000");
    project
        .run_with(&[&eval[..], &["-k", "3"]].concat(), &[])
        .assert_code(0)
        .assert_stdout("ndcg@3")
        .assert_stdout("ndcg@10");
    project.run_with(&[&eval[..], &["-k", "0"]].concat(), &[]).assert_code(2);
}

/// Writes a static embedding to the directory `model` of a project.
fn write_model(project: &TestProject) {
    for (name, bytes) in model_files() {
        project.write(&format!("model/{name}"), &bytes);
    }
}

/// Files of a static embedding of six words, in which `umbrella` and `rain` are similar and `post` is not.
fn model_files() -> [(&'static str, Vec<u8>); 2] {
    let vocabulary = json!({"[UNK]": 0, "umbrella": 1, "rain": 2, "post": 3, "deliver": 4, "send": 5});
    let values: [f32; 12] = [0.0, 0.0, 1.0, 0.0, 1.0, 0.1, 0.0, 1.0, 0.1, 1.0, 0.1, 1.0];
    let tensor = json!({"dtype": "F32", "shape": [6, 2], "data_offsets": [0, 48]});
    let header = json!({ "embeddings": tensor }).to_string();
    let bytes = [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &values.map(f32::to_le_bytes).concat()];
    let tokenizer = json!({"model": {"type": "WordPiece", "vocab": vocabulary}}).to_string();
    [("model.safetensors", bytes.concat()), ("tokenizer.json", tokenizer.into_bytes())]
}

#[test]
fn semantic_search_finds_tools_without_common_words() {
    let others = (0..20).map(|number| json!({"name": format!("post{number}"), "description": "Deliver post"}));
    let rain = json!({"name": "tomorrow", "description": "Rain"});
    let tools: Vec<Value> = others.chain([rain]).collect();
    let project = TestProject::new("sky: { command: SERVER, args: [--tools-file, sky.json], cwd: . }");
    project.write("sky.json", &json!(tools).to_string());
    write_model(&project);
    let search = ["search", "parasol umbrella", "-k", "1"];
    assert_eq!(project.json(0, &search)["hits"], json!([]), "the words alone");
    let found = project.json(0, &[&search[..], &["--model", "model"]].concat());
    assert_eq!(field_values(&found["hits"], "name"), ["sky__tomorrow"]);

    let lines = tools.iter().enumerate().map(|(id, tool)| {
        json!({"id": id.to_string(), "name": tool["name"], "description": tool["description"]}).to_string()
    });
    project.write("tools.jsonl", &lines.collect::<Vec<_>>().join("\n"));
    project.write("queries.jsonl", r#"{"query":"parasol umbrella","relevant":["20"]}"#);
    let eval = ["eval", "--tools", "tools.jsonl", "--queries", "queries.jsonl"];
    assert_eq!(project.json(0, &eval)["mrr"], 0.0);
    assert_eq!(project.json(0, &[&eval[..], &["--model", "model"]].concat())["mrr"], 1.0);
}

#[test]
fn semantic_search_reports_an_invalid_model() {
    let project = mail_and_files_project();
    let search = |complaint: &str| {
        project.run(&["search", "mail", "--model", "model"]).assert_code(2).assert_stderr(complaint);
    };
    search("error: cannot read `model/model.safetensors`: ");
    write_model(&project);
    project.write("model/tokenizer.json", "{}");
    search("error: `model`: the embedding model cannot be used: `tokenizer.json` is malformed: missing field `model`");
    project.write("model/tokenizer.json", r#"{"model":{"type":"WordLevel","vocab":{}}}"#);
    search("error: `model`: the embedding model cannot be used: its tokenizer is `WordLevel`; ");
    project.write("model/tokenizer.json", r#"{"model":{"vocab":{"rain":0}}}"#);
    project.write("model/model.safetensors", "damaged");
    search("error: `model`: the embedding model cannot be used: `model.safetensors` is truncated");
    project.write("model/model.safetensors", "\u{2}\0\0\0\0\0\0\0{x");
    search("error: `model`: the embedding model cannot be used: the header of `model.safetensors` is malformed: ");
    std::fs::remove_file(project.path("project/model/model.safetensors")).unwrap();
    std::fs::create_dir(project.path("project/model/model.safetensors")).unwrap();
    search("error: cannot read `model/model.safetensors`: it is not a file");
    assert!(!project.path("home/data").exists(), "nothing else is done");
}

#[test]
fn a_model_of_the_configuration_is_used_and_a_broken_one_is_not() {
    let others = (0..20).map(|number| json!({"name": format!("post{number}"), "description": "Deliver post"}));
    let tools: Vec<Value> = others.chain([json!({"name": "tomorrow", "description": "Rain"})]).collect();
    let project = TestProject::new("sky: { command: SERVER, args: [--tools-file, sky.json], cwd: . }");
    project.write("sky.json", &json!(tools).to_string());
    let config = std::fs::read_to_string(project.path("project").join("toolcrib.yaml")).unwrap();
    project.write("toolcrib.yaml", &format!("{config}search: {{ model: ./model }}\n"));
    let warning = "cannot use the model in `search.model`, search uses words alone: cannot read `";
    let words_only = project.run(&["search", "deliver", "-k", "1"]);
    words_only.assert_code(0).assert_stdout("Deliver post").assert_stderr(warning);
    write_model(&project);
    let found = project.json(0, &["search", "parasol umbrella", "-k", "1"]);
    assert_eq!(field_values(&found["hits"], "name"), ["sky__tomorrow"]);
    let shown = project.json(0, &["config"]);
    assert!(shown["search"]["model"]["value"].as_str().unwrap().ends_with("/model"), "{shown}");
    project.write("toolcrib.yaml", &format!("{config}search: {{ modle: x }}\n"));
    project.run(&["search", "deliver"]).assert_code(2).assert_stderr("did you mean `model`?");
}

#[test]
fn serve_and_mcp_use_the_model_of_the_configuration() {
    let workspace = TestWorkspace::new(&json!({}), &json!({}));
    let others = (0..20).map(|number| json!({"name": format!("post{number}"), "description": "Deliver post"}));
    let tools: Vec<Value> = others.chain([json!({"name": "tomorrow", "description": "Rain"})]).collect();
    std::fs::write(workspace.path("sky.json"), json!(tools).to_string()).unwrap();
    std::fs::create_dir(workspace.path("model")).unwrap();
    for (name, bytes) in model_files() {
        std::fs::write(workspace.path("model").join(name), bytes).unwrap();
    }
    let source = json!({"command": programs::scripted_server(), "args": ["--tools-file", workspace.path("sky.json")]});
    let config = json!({"sources": {"sky": source}, "expose": {"mode": "search"}, "search": {"model": "./model"}});
    std::fs::write(workspace.path("toolcrib.json"), config.to_string()).unwrap();
    workspace.discover();

    let server = workspace.serve();
    let found = request(&server.url, "GET", "/api/search?q=parasol+umbrella&limit=1", "", "").json();
    assert_eq!(field_values(&found["hits"], "name"), ["sky__tomorrow"], "{found}");
    // A change of the model is applied by a reload.
    let set_model = |model: Value| {
        let config = json!({"sources": config["sources"], "expose": config["expose"], "search": model});
        std::fs::write(workspace.path("toolcrib.json"), config.to_string()).unwrap();
    };
    let finds_by_meaning = || {
        let found = request(&server.url, "GET", "/api/search?q=parasol+umbrella&limit=1", "", "").json();
        field_values(&found["hits"], "name") == ["sky__tomorrow"]
    };
    set_model(json!({}));
    wait_until("the search without a model", || !finds_by_meaning());
    set_model(json!({"model": "./model"}));
    wait_until("the search with the model", finds_by_meaning);
    drop(server);

    let mut child = workspace
        .toolcrib(&["mcp"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    let search = json!({"name": "search_tools", "arguments": {"query": "parasol umbrella"}});
    for (id, method, params) in
        [(1, "initialize", json!({"protocolVersion": "2025-11-25", "capabilities": {}})), (2, "tools/call", search)]
    {
        writeln!(input, "{}", json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})).unwrap();
    }
    let lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let mut messages = lines.map(|line| serde_json::from_str::<Value>(&line).unwrap());
    let response = messages.find(|message| message["id"] == 2).unwrap();
    drop(input);
    assert!(response["result"].to_string().contains("sky__tomorrow"), "{response}");
    assert!(child.wait().unwrap().success());
}

#[test]
fn weak_matches_are_hinted_at() {
    let tools = json!([
        {"name": "run_command", "description": "Allows execution of commands.\n\nAvailable commands: ls, cat, pwd. Flags: -l"},
        {"name": "show_rules", "description": "Show what is allowed."},
    ]);
    let project = TestProject::new("cli: { command: SERVER, args: [--tools-file, cli.json], cwd: . }");
    project.write("cli.json", &tools.to_string());
    let output = project.run(&["search", "my cat is sick"]);
    output.assert_code(0).assert_stdout("cli__run_command").assert_stderr("hint: weak matches only");
    assert_eq!(project.json(0, &["search", "my cat is sick"])["hint"], "weak matches only");
    assert_eq!(project.json(0, &["search", "run a command"])["hint"], Value::Null);
    let long = format!("run a command {}", "and nothing else ".repeat(2_000));
    assert_eq!(project.json(0, &["search", &long])["hits"][0]["name"], "cli__run_command");
}

#[test]
fn eval_rejects_an_invalid_set_by_file_and_line() {
    let project = mail_and_files_project();
    project.write("tools.jsonl", "{\"id\":\"1\",\"name\":\"x\"}\n");
    project.write("queries.jsonl", "{\"query\":\"x\",\"relevant\":[\"1\"]}\nnonsense\n");
    let eval = ["eval", "--tools", "tools.jsonl", "--queries"];
    project.run(&[&eval[..], &["queries.jsonl"]].concat()).assert_code(2).assert_stderr("queries.jsonl:2: expected");
    project.run(&[&eval[..], &["gone.jsonl"]].concat()).assert_code(2).assert_stderr("cannot read `gone.jsonl`");
}
