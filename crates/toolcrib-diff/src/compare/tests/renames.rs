//! Differences of tool lists, and which removed and added tools count as likely renames.

use serde_json::{Value, json};
use toolcrib_core::delta::{Delta, ToolChange};

use super::*;

fn pack(tools: &[Value]) -> PackedManifest {
    let tools: Vec<_> = tools.iter().map(|tool| to_raw_value(tool).unwrap()).collect();
    let id = SourceId::parse("git").unwrap();
    PackedManifest::new(&Manifest::new(&id, &tools, Vec::new(), &ToolLimits::default())).unwrap()
}

#[test]
fn a_delta_lists_added_changed_and_removed_tools() {
    let before = pack(&[
        json!({"name": "a", "description": "x", "inputSchema": {}}),
        json!({"name": "b", "description": "x", "inputSchema": {}, "icons": []}),
        json!({"name": "c"}),
    ]);
    let after = pack(&[
        json!({"name": "b", "description": "y", "inputSchema": {"type": "object"}}),
        json!({"name": "c"}),
        json!({"name": "d"}),
    ]);
    let fields = ["description", "inputSchema", "icons"].map(String::from).to_vec();
    let same = "its input schema is written differently and means the same";
    let notes = ["its `icons` changed", "its description changed", same].map(String::from).to_vec();
    let delta = Delta {
        added: vec!["d".into()],
        changed: vec![ToolChange { name: "b".into(), fields, class: Some(ChangeClass::Other), notes }],
        removed: vec!["a".into()],
        renamed: Vec::new(),
        unchanged: 1,
    };
    assert_eq!(compare_manifests(Some(&before), &after).unwrap(), delta);
    assert_eq!(compare_manifests(None, &before).unwrap().added, ["a", "b", "c"]);
    assert!(compare_manifests(Some(&after), &after).unwrap().is_empty());
}

#[test]
fn a_removed_and_an_added_tool_may_be_a_rename() {
    let tool = |name: &str, description: &str, field: &str| {
        let properties = if field.is_empty() { json!({}) } else { json!({field: {"type": "string"}}) };
        json!({"name": name, "description": description, "inputSchema": {"type": "object", "properties": properties}})
    };
    let renames = |old: &[Value], new: &[Value]| -> Vec<(String, String)> {
        let before = pack(old);
        let after = pack(new);
        let delta = compare_manifests(Some(&before), &after).unwrap();
        delta.renamed.into_iter().map(|renamed| (renamed.from, renamed.to)).collect()
    };
    let pair = |from: &str, to: &str| (from.to_owned(), to.to_owned());
    // The same in all but the name; the same schema and similar names; the same description and similar names.
    assert_eq!(renames(&[tool("push", "Sends", "a")], &[tool("upload", "Sends", "a")]), [pair("push", "upload")]);
    assert_eq!(renames(&[tool("get_user", "A", "a")], &[tool("user.get", "B", "a")]), [pair("get_user", "user.get")]);
    assert_eq!(
        renames(&[tool("createIssue", "A", "")], &[tool("create-issue", "A", "b")]),
        [pair("createIssue", "create-issue")]
    );
    // Nothing in common, or only a schema without properties.
    assert_eq!(renames(&[tool("push", "A", "a")], &[tool("pull", "B", "b")]), []);
    assert_eq!(renames(&[tool("push", "A", "")], &[tool("pusher", "B", "")]), []);
    // Each tool is in one pair, the most certain first.
    let old = [tool("a_x", "A", "a"), tool("b_x", "A", "a")];
    let new = [tool("a_y", "A", "a")];
    assert_eq!(renames(&old, &new), [pair("a_x", "a_y")]);
    // Tools with the same schema and description are paired by similar names or not at all.
    let old = [tool("a_x", "A", "a"), tool("b_x", "A", "a")];
    let new = [tool("zebra", "A", "a")];
    assert_eq!(renames(&old, &new), []);
    // Traits that many tools share do not count, including tools that stayed.
    let others: Vec<Value> =
        (0..5).map(|index| tool(&format!("read_{index}"), &format!("Reads {index}"), "id")).collect();
    let with_others = |tool: Value| others.iter().cloned().chain([tool]).collect::<Vec<_>>();
    let old = with_others(tool("get_user", "A user", "id"));
    let new = with_others(tool("get_users", "All users", "id"));
    assert_eq!(renames(&old, &new), []);
    let old = with_others(tool("get_user", "A user", "id"));
    let new = with_others(tool("fetch_user", "A user", "id"));
    assert_eq!(renames(&old, &new), [pair("get_user", "fetch_user")]);
    let undescribed =
        |names: &[&str]| names.iter().map(|name| json!({"name": name, "inputSchema": {}})).collect::<Vec<_>>();
    assert_eq!(renames(&undescribed(&["run_a", "run_b", "run_c"]), &undescribed(&["run_x", "run_y", "run_z"])), []);
    let many = |prefix: &str| (0..1_000).map(|index| tool(&format!("{prefix}{index}"), "A", "a")).collect::<Vec<_>>();
    assert_eq!(renames(&many("a"), &many("b")), []);
    assert!(renames(&many("a")[..300], &many("b")[..300]).len() <= 300);
}
