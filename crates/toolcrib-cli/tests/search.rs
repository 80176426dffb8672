//! `search` and `eval` as somebody at a terminal meets them.

mod support;

use serde_json::{Value, json};
use support::bench::{Bench, each};

const MAIL: &str = r#"[
    {"name": "send_email", "description": "Send an email to one or more people. It is sent at once.",
     "inputSchema": {"type": "object", "required": ["to"], "properties": {
        "to": {"type": "array", "items": {"type": "string"}}, "subject": {"type": "string"}}}},
    {"name": "search_messages", "description": "Search the mailbox.", "inputSchema": {"type": "object"}}
]"#;
const FILES: &str = r#"[
    {"name": "read_file", "description": "Read a file from disk.", "inputSchema": {"type": "object",
     "required": ["path"], "properties": {"path": {"type": "string"}}}}
]"#;

fn workshop() -> Bench {
    let bench = Bench::new(
        "mail: { command: SERVER, args: [--tools-file, mail.json], cwd: ., tags: [office] }
         files: { command: SERVER, args: [--tools-file, files.json], cwd: . }",
    );
    bench.write("mail.json", MAIL);
    bench.write("files.json", FILES);
    bench
}

#[test]
fn a_search_discovers_what_is_missing_and_prints_a_line_each() {
    let bench = workshop();
    let ran = bench.run(&["search", "send", "a", "mail", "to", "Ann", "-k", "1"]);
    let line = "mail__send_email(to*: string[], subject: string) — Send an email to one or more people\n";
    assert_eq!(ran.ended(0).stdout, line);
    let found = bench.json(0, &["search", "read_file", "--cached"]);
    assert_eq!(each(&found["hits"], "name").first(), Some(&"files__read_file"));
    let hit = &found["hits"][0];
    assert_eq!(hit["signature"], "files__read_file(path*: string)");
    assert_eq!(hit["summary"], "Read a file from disk");
    assert!(hit["score"].as_f64().unwrap() > 0.0);
    assert_eq!(found["hint"], Value::Null);
    let lines = bench.run(&["search", "read_file", "--cached"]).ended(0).stdout.clone();
    assert_eq!(found["tokens"], toolcrib::core::tokens::count(lines.trim_end()));
}

#[test]
fn a_search_keeps_to_a_source_or_a_tag() {
    let bench = workshop();
    let search = |arguments: &[&str]| {
        let found = bench.json(0, &[&["search", "search read send file mail", "-k", "0"], arguments].concat());
        each(&found["hits"], "name").iter().map(|name| (*name).to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(search(&[]).len(), 3);
    assert_eq!(search(&["--source", "Files"]), ["files__read_file"]);
    assert_eq!(search(&["--tag", "office"]).len(), 2);
    bench.run(&["search", "x", "--source", "nowhere"]).ended(2).complains("nowhere");
    bench.run(&["search"]).ended(2);
}

#[test]
fn nothing_found_is_no_failure_and_says_what_to_try() {
    let bench = workshop();
    let ran = bench.run(&["search", "qwxyzzy"]);
    assert_eq!(ran.ended(0).stdout, "");
    ran.complains("hint: no tool matches");
    let found = bench.json(0, &["search", ""]);
    assert_eq!(found["hits"], json!([]));
    assert!(found["hint"].as_str().unwrap().contains("no tool matches"));
    bench.run(&["search", "\u{1b}[31m\u{202e}日本語"]).ended(0);
}

#[test]
fn a_disabled_tool_is_not_found() {
    let bench = workshop();
    bench.run(&["refresh"]).ended(0);
    bench.run(&["disable", "mail__send_email"]).ended(0);
    let found = bench.json(0, &["search", "send_email", "-k", "0"]);
    assert!(!each(&found["hits"], "name").contains(&"mail__send_email"));
}

#[test]
fn a_labelled_set_is_measured_without_store_or_configuration() {
    let bench = workshop();
    let tools = [
        r#"{"id":"1","server":"mail","name":"send","description":"Send a mail"}"#,
        r#"{"id":"2","server":"Mail","name":"send","description":"Deliver post"}"#,
        r#"{"id":"3","server":"","name":"rain","description":"Will it rain?"}"#,
    ];
    bench.write("tools.jsonl", &tools.join("\n"));
    bench.write(
        "queries.jsonl",
        "{\"query\":\"rain\",\"relevant\":[\"3\"]}\n{\"query\":\"send\",\"groups\":[[\"1\",\"2\"]]}\n",
    );
    let eval = ["eval", "--tools", "tools.jsonl", "--queries", "queries.jsonl"];
    let ran = bench.run_with(&[&eval[..], &["--json"]].concat(), &[]);
    let measured: Value = serde_json::from_str(&ran.ended(0).stdout).unwrap();
    for key in ["recall@1", "recall@3", "recall@5", "recall@10", "ndcg@10", "mrr"] {
        assert_eq!(measured[key], json!(1.0), "{key}");
    }
    assert_eq!(measured["queries"], 2);
    assert!(measured["p50_us"].is_u64() && measured["p99_us"].is_u64());
    assert!(!bench.path("home/data").exists());
    bench.run_with(&eval, &[]).ended(0).says("ndcg@10").says("1.0000");
    let first = bench.run_with(&[&eval[..], &["-k", "3"]].concat(), &[]).ended(0).says("ndcg@3").stdout.clone();
    assert!(first.contains("recall@3") && !first.contains("@5") && !first.contains("@10"), "{first}");
    bench.run_with(&[&eval[..], &["-k", "0"]].concat(), &[]).ended(2);
}

#[test]
fn a_faulty_set_is_refused_by_file_and_line() {
    let bench = workshop();
    bench.write("tools.jsonl", "{\"id\":\"1\",\"name\":\"x\"}\n");
    bench.write("queries.jsonl", "{\"query\":\"x\",\"relevant\":[\"1\"]}\nnonsense\n");
    let eval = ["eval", "--tools", "tools.jsonl", "--queries"];
    bench.run(&[&eval[..], &["queries.jsonl"]].concat()).ended(2).complains("queries.jsonl:2: expected");
    bench.run(&[&eval[..], &["gone.jsonl"]].concat()).ended(2).complains("cannot read `gone.jsonl`");
}
