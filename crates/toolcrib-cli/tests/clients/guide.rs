//! The snippets of docs/clients.md are valid configurations of their clients.

use std::path::Path;

use serde_json::Value;

use crate::support::Toolcrib;

const CLIENTS: [&str; 6] = ["claude-desktop", "claude-code", "cursor", "vscode", "codex", "zed"];

#[test]
fn import_reads_every_snippet_of_the_guide() {
    let guide = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/clients.md")).unwrap();
    for client in CLIENTS {
        let toolcrib = Toolcrib::new();
        let (kind, text) = snippet(&guide, client);
        toolcrib.write(&format!("snippet.{kind}"), text);
        let report = toolcrib.json(&["import", &format!("snippet.{kind}"), "--from", client, "--dry-run"]);
        let results: Vec<(&Value, &Value)> =
            report["results"].as_array().unwrap().iter().map(|line| (&line["source"], &line["status"])).collect();
        assert_eq!(results, [(&"toolcrib".into(), &"imported".into())], "{client}: {report}");
        assert_eq!(report["warnings"], Value::Array(Vec::new()), "{client}: {report}");
    }
}

/// Returns language and content of the code block that is labelled with the client's name.
#[track_caller]
fn snippet<'a>(guide: &'a str, client: &str) -> (&'a str, &'a str) {
    let end = format!(" {client}\n");
    let blocks = guide.split("\n```").find_map(|block| block.split_once(&end));
    blocks.unwrap_or_else(|| panic!("there is no snippet for `{client}`"))
}
