//! What is called a likely rename, and what is not.

use serde_json::{Value, json};

use super::*;

#[test]
fn a_tool_that_went_and_one_that_came_may_be_one() {
    let pack = |tools: &[Value]| {
        let offered: Vec<_> = tools.iter().map(|tool| to_raw_value(tool).unwrap()).collect();
        let id = SourceId::parse("git").unwrap();
        PackedManifest::new(&Manifest::new(&id, &offered, Vec::new(), &ToolLimits::default())).unwrap()
    };
    let offered = |name: &str, description: &str, field: &str| {
        let properties = if field.is_empty() { json!({}) } else { json!({field: {"type": "string"}}) };
        json!({"name": name, "description": description, "inputSchema": {"type": "object", "properties": properties}})
    };
    let renames = |old: &[Value], new: &[Value]| -> Vec<(String, String)> {
        let before = pack(old);
        let after = pack(new);
        let delta = crate::manifest::Delta::between(Some(&before), &after).unwrap();
        delta.renamed.into_iter().map(|renamed| (renamed.from, renamed.to)).collect()
    };
    let pair = |from: &str, to: &str| (from.to_owned(), to.to_owned());
    // The same in all but the name; the same schema and a name alike; the same description and a name alike.
    assert_eq!(renames(&[offered("push", "Sends", "a")], &[offered("upload", "Sends", "a")]), [pair("push", "upload")]);
    assert_eq!(
        renames(&[offered("get_user", "A", "a")], &[offered("user.get", "B", "a")]),
        [pair("get_user", "user.get")]
    );
    assert_eq!(
        renames(&[offered("createIssue", "A", "")], &[offered("create-issue", "A", "b")]),
        [pair("createIssue", "create-issue")]
    );
    // Nothing in common, or only what any tool has.
    assert_eq!(renames(&[offered("push", "A", "a")], &[offered("pull", "B", "b")]), []);
    assert_eq!(renames(&[offered("push", "A", "")], &[offered("pusher", "B", "")]), []);
    // Each in one pair, the surest first.
    let old = [offered("a_x", "A", "a"), offered("b_x", "A", "a")];
    let new = [offered("a_y", "A", "a")];
    assert_eq!(renames(&old, &new), [pair("a_x", "a_y")]);
    // Those that nothing tells apart are paired by their names or not at all.
    let old = [offered("a_x", "A", "a"), offered("b_x", "A", "a")];
    let new = [offered("zebra", "A", "a")];
    assert_eq!(renames(&old, &new), []);
    // What many tools have is no mark, also of those that stayed.
    let crowd: Vec<Value> =
        (0..5).map(|index| offered(&format!("read_{index}"), &format!("Reads {index}"), "id")).collect();
    let with = |tool: Value| crowd.iter().cloned().chain([tool]).collect::<Vec<_>>();
    let old = with(offered("get_user", "A user", "id"));
    let new = with(offered("get_users", "All users", "id"));
    assert_eq!(renames(&old, &new), []);
    let old = with(offered("get_user", "A user", "id"));
    let new = with(offered("fetch_user", "A user", "id"));
    assert_eq!(renames(&old, &new), [pair("get_user", "fetch_user")]);
    let undescribed =
        |names: &[&str]| names.iter().map(|name| json!({"name": name, "inputSchema": {}})).collect::<Vec<_>>();
    assert_eq!(renames(&undescribed(&["run_a", "run_b", "run_c"]), &undescribed(&["run_x", "run_y", "run_z"])), []);
    let many =
        |prefix: &str| (0..1_000).map(|index| offered(&format!("{prefix}{index}"), "A", "a")).collect::<Vec<_>>();
    assert_eq!(renames(&many("a"), &many("b")), []);
    assert!(renames(&many("a")[..300], &many("b")[..300]).len() <= 300);
}
