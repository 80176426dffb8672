use std::sync::Arc;

use serde_json::value::to_raw_value;
use serde_json::{Value, json};
use toolcrib_core::delta::ChangeClass;
use toolcrib_core::manifest::{Manifest, PackedManifest, ToolLimits};

use super::sarif::{Artifact, to_sarif};
use super::*;
use crate::lockfile::{Lockfile, LockfileLines};

fn segment(tools: &[Value]) -> Segment {
    let with_fields: Vec<_> = tools.iter().map(|tool| to_raw_value(tool).unwrap()).collect();
    let manifest = Manifest::new(&SourceId::parse("git").unwrap(), &with_fields, Vec::new(), &ToolLimits::default());
    Segment::with_prefix(Arc::new(PackedManifest::new(&manifest).unwrap()))
}

fn tool(name: &str, description: &str, fields: Value) -> Value {
    json!({"name": name, "description": description, "inputSchema": {"type": "object", "properties": fields}})
}

fn old_segment() -> Segment {
    let path = json!({"path": {"type": "string", "description": "where"}});
    segment(&[
        tool("add", "Adds", path.clone()),
        tool("log", "Shows the log", json!({"limit": {"maximum": 10}})),
        tool("push", "Pushes", json!({"force": {"type": "boolean"}})),
        tool("rm", "Removes", json!({})),
        tool("same", "Stays", json!({})),
    ])
}

fn new_segment() -> Segment {
    segment(&[
        tool("add", "Adds", json!({"path": {"type": "string", "description": "which file"}})),
        tool("log", "Shows the log", json!({"limit": {"maximum": 5}})),
        tool("new", "New", json!({})),
        tool("same", "Stays", json!({})),
        tool("upload", "Pushes", json!({"force": {"type": "boolean"}})),
    ])
}

fn lock_segment(segment: &Segment) -> Lockfile {
    Lockfile::from_segments([segment].into_iter()).unwrap()
}

#[test]
fn a_lockfile_is_deterministic_and_parses_back() {
    let text = lock_segment(&old_segment()).to_text().unwrap();
    assert_eq!(text, lock_segment(&old_segment()).to_text().unwrap());
    assert_eq!(Lockfile::parse(&text).unwrap(), lock_segment(&old_segment()));
    assert_eq!(
        serde_json::from_str::<Value>(&text).unwrap(),
        serde_json::to_value(lock_segment(&old_segment())).unwrap()
    );
    let empty = Lockfile { version: 1, sources: BTreeMap::new() };
    assert_eq!(Lockfile::parse(&empty.to_text().unwrap()).unwrap(), empty);
    assert!(Lockfile::parse("{\"version\":9,\"sources\":7}").unwrap_err().message.contains("version 9"));
    for invalid in ["", "[]", "{\"version\":1}", "{\"version\":2,\"sources\":{}}"] {
        assert_eq!(Lockfile::parse(invalid).unwrap_err().code, Code::BadRequest, "{invalid}");
    }
}

#[test]
fn a_diff_of_two_lists_describes_changes_in_full() {
    let diff = CatalogDiff::from_sources([SourceDiff::between(&old_segment(), &new_segment()).unwrap()]);
    let expected = "git:
  changed: `git__add`: the description of `path` changed (text)
  changed: `git__log`: `limit`: maximum 10 became 5 (narrowed)
  most likely renamed: `git__push` to `git__upload`
  removed: `git__rm`
  added: `git__new`";
    assert_eq!(diff.to_text(), expected);
    assert!(diff.differs);
    let nothing = CatalogDiff::from_sources([SourceDiff::between(&old_segment(), &old_segment()).unwrap()]);
    assert_eq!(nothing, CatalogDiff::default());
}

#[test]
fn a_diff_with_a_lockfile_tells_text_changes_from_others() {
    let locked = &lock_segment(&old_segment()).sources[&SourceId::parse("git").unwrap()];
    let diff = SourceDiff::from_lockfile(locked, &new_segment()).unwrap();
    let classes: Vec<_> = diff.changed.iter().map(|change| (change.name.as_str(), change.class.unwrap())).collect();
    assert_eq!(classes, [("git__add", ChangeClass::Text), ("git__log", ChangeClass::Narrowed)]);
    assert_eq!(diff.renamed, [ToolRename { from: "git__push".into(), to: "git__upload".into() }]);
    assert_eq!((diff.removed.len(), diff.added.len(), diff.unchanged), (2, 2, 1));
}

/// Other tools may reformat a lockfile.
#[test]
fn lines_are_found_in_any_formatting_of_a_lockfile() {
    let id = |name: &str| SourceId::parse(name).unwrap();
    let text = lock_segment(&old_segment()).to_text().unwrap();
    let lines_of = |text: &str| {
        let lines = LockfileLines::parse(text);
        ["git__add", "git__same", "git__nothing"].map(|name| lines.find_line(&id("git"), name))
    };
    assert_eq!(lines_of(&text), [7, 11, 4], "{text}");
    assert_eq!(lines_of(&text.replace('\n', "\r\n")), [7, 11, 4]);
    let value: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(lines_of(&value.to_string()), [1, 1, 1]);
    let pretty = serde_json::to_string_pretty(&value).unwrap();
    let line = |name: &str| 1 + pretty.lines().position(|line| line.contains(&format!("\"{name}\""))).unwrap();
    assert_eq!(lines_of(&pretty), [line("git__add"), line("git__same"), line("git")], "{pretty}");
    // A name of both a source and a tool, and a value on a line below its name.
    let unusual = "{\"sources\":{\n\"a\"\n:\n{\"tools\":{\n\"web\"\n:\n{}}},\"web\":{\"tools\":{}}}}";
    let lines = LockfileLines::parse(unusual);
    assert_eq!(
        (lines.find_line(&id("a"), "web"), lines.find_line(&id("web"), "x"), lines.find_line(&id("b"), "x")),
        (5, 7, 1)
    );
    assert_eq!(LockfileLines::parse("nonsense").find_line(&id("a"), "web"), 1);
}

#[test]
fn a_lockfile_detects_flipped_hints_and_changed_servers() {
    let with_fields = |read_only: bool, server: &str| {
        let operation = json!({"mode": "sync_http", "method": "GET", "server": server, "path": "/"});
        json!({"name": "t", "annotations": {"readOnlyHint": read_only}, "x-toolcrib-backing": {"execution": operation}})
    };
    let class = |new: Value| {
        let locked =
            &lock_segment(&segment(&[with_fields(true, "https://a")])).sources[&SourceId::parse("git").unwrap()];
        SourceDiff::from_lockfile(locked, &segment(&[new])).unwrap().changed[0].class.unwrap()
    };
    assert_eq!(class(with_fields(false, "https://a")), ChangeClass::HintFlipped);
    assert_eq!(class(with_fields(true, "https://b")), ChangeClass::Execution);
}

/// Changes without a part of their own are detected, and older lockfiles still parse.
#[test]
fn fields_stored_as_fingerprints_only_are_compared() {
    let id = SourceId::parse("git").unwrap();
    let with_fields = |fields: Value| {
        let mut tool = json!({"name": "t", "description": "Old", "icons": [1], "annotations": {"x": 1}, "execution": {"taskSupport": "optional"}});
        fields.as_object().unwrap().iter().for_each(|(name, value)| tool[name] = value.clone());
        segment(&[tool])
    };
    let text = lock_segment(&with_fields(json!({}))).to_text().unwrap();
    let compare_with = |text: &str, fields: Value| {
        let mut tool = fields;
        tool["description"] = json!("New");
        let diff = SourceDiff::from_lockfile(&Lockfile::parse(text).unwrap().sources[&id], &with_fields(tool)).unwrap();
        diff.changed[0].class.unwrap()
    };
    for (fields, class) in [
        (json!({}), ChangeClass::Text),
        (json!({"icons": [2]}), ChangeClass::Other),
        (json!({"of_the_future": true}), ChangeClass::Other),
        (json!({"annotations": {"x": 2}}), ChangeClass::Other),
        (json!({"annotations": {"x": 1, "title": "T", "openWorldHint": true}}), ChangeClass::Text),
        (
            json!({"x-toolcrib-backing": {"execution": {"mode": "sync_http", "method": "GET", "server": "https://a", "path": "/"}, "tags": ["a"]}}),
            ChangeClass::Execution,
        ),
        (json!({"execution": {"taskSupport": "required"}}), ChangeClass::Breaking),
        (json!({"execution": {}}), ChangeClass::Narrowed),
        (json!({"execution": {"taskSupport": "optional", "x": 1}}), ChangeClass::Other),
    ] {
        assert_eq!(compare_with(&text, fields.clone()), class, "{fields}");
    }
    let backed = |tags: Value, deprecated: bool| {
        let operation = json!({"mode": "sync_http", "method": "GET", "server": "https://a", "path": "/"});
        with_fields(json!({"x-toolcrib-backing": {"execution": operation, "tags": tags, "deprecated": deprecated}}))
    };
    let before = lock_segment(&backed(json!(["a"]), false));
    for after in [backed(json!(["b"]), false), backed(json!(["a"]), true)] {
        let diff = SourceDiff::from_lockfile(&before.sources[&id], &after).unwrap();
        assert_eq!(diff.changed[0].class, Some(ChangeClass::Other));
        assert!(diff.changed[0].notes[0].contains("only their fingerprint"), "{diff:?}");
    }
    let mut older: Value = serde_json::from_str(&text).unwrap();
    let parts = older["sources"]["git"]["tools"]["git__t"].as_object_mut().unwrap();
    assert!(parts.shift_remove("rest").is_some() && parts.shift_remove("tasks").is_some());
    assert_eq!(compare_with(&older.to_string(), json!({"icons": [2]})), ChangeClass::Text);
}

/// All tools of a list share a budget. Beyond it, schemas have verbatim fingerprints, which tell only that they
/// changed.
#[test]
fn schemas_beyond_the_budget_are_compared_verbatim() {
    let id = SourceId::parse("git").unwrap();
    let many = |description: &str, kind: &str| {
        let tools = ["a", "b", "c"].map(|name| tool(name, "Costs", json!({"x": {"type": "string"}})));
        let last = tool("z", description, json!({"x": {"type": kind}}));
        segment(&tools.into_iter().chain([last]).collect::<Vec<_>>())
    };
    let lock = || Lockfile::with_budget([&many("Old", "string")].into_iter(), &mut WorkBudget::new(20)).unwrap();
    let before = lock();
    let second = lock();
    assert_eq!(before, second);
    let locked = &before.sources[&id];
    let is_verbatim = |name: &str| {
        let parts = &locked.tools[name].parts;
        parts.input.starts_with('=') && parts.input_schema.is_none()
    };
    assert_eq!(["git__a", "git__b", "git__c", "git__z"].map(is_verbatim), [false, false, false, true]);
    let class = |now: Segment| SourceDiff::from_lockfile(locked, &now).unwrap().changed[0].class.unwrap();
    assert_eq!(class(many("New", "string")), ChangeClass::Text);
    assert_eq!(class(many("New", "integer")), ChangeClass::Other);
}

#[test]
fn sarif_has_the_fields_that_viewers_require() {
    let mut diff = CatalogDiff::from_sources([SourceDiff::between(&old_segment(), &new_segment()).unwrap()]);
    let id = SourceId::parse("mail").unwrap();
    let error = SourceDiffError { code: Code::ToolUnavailable, message: "it is down".into(), retryable: true };
    diff.sources.push(SourceDiff::from_error(&id, None, error));
    let artifact = Artifact {
        uri: "toolcrib.lock".into(),
        lines: LockfileLines::parse(&lock_segment(&old_segment()).to_text().unwrap()),
    };
    let log = to_sarif(&diff, &artifact, "1.2.3");
    assert_eq!((&log["version"], log["runs"].as_array().unwrap().len()), (&json!("2.1.0"), 1));
    assert!(log["$schema"].as_str().unwrap().contains("sarif-2.1.0"));
    let rules = log["runs"][0]["tool"]["driver"]["rules"].as_array().unwrap();
    let ids: BTreeSet<&str> = rules.iter().map(|rule| rule["id"].as_str().unwrap()).collect();
    assert_eq!(ids.len(), rules.len(), "every rule once");
    assert!(ChangeClass::ALL.iter().all(|class| ids.contains(class.as_str())));
    let results = log["runs"][0]["results"].as_array().unwrap();
    for result in results {
        assert_eq!(rules[result["ruleIndex"].as_u64().unwrap() as usize]["id"], result["ruleId"]);
        assert!(["error", "warning", "note"].contains(&result["level"].as_str().unwrap()));
        assert!(!result["message"]["text"].as_str().unwrap().is_empty());
        let location = &result["locations"][0]["physicalLocation"];
        assert_eq!(location["artifactLocation"]["uri"], json!("toolcrib.lock"));
        assert!(location["region"]["startLine"].as_u64().unwrap() >= 1);
        assert_eq!(result["partialFingerprints"]["toolcribDifference/v1"].as_str().unwrap().len(), 64);
    }
    let summary: Vec<(&str, &str, u64)> = results
        .iter()
        .map(|result| {
            let line = &result["locations"][0]["physicalLocation"]["region"]["startLine"];
            (result["ruleId"].as_str().unwrap(), result["level"].as_str().unwrap(), line.as_u64().unwrap())
        })
        .collect();
    let expected = [
        ("text", "note", 7),
        ("narrowed", "warning", 8),
        ("renamed", "error", 9),
        ("removed", "error", 10),
        ("added", "note", 4),
        ("unreadable", "error", 1),
    ];
    assert_eq!(summary, expected);
    assert_eq!(to_sarif(&CatalogDiff::default(), &artifact, "1.2.3")["runs"][0]["results"], json!([]));
}

#[test]
fn a_result_keeps_its_fingerprint_and_its_message_is_escaped() {
    let with = |description: &str, other: &str| {
        segment(&[tool("a", description, json!({})), tool("b", "B", json!({other: {"maximum": 1}}))])
    };
    let results = |new: &Segment| {
        let diff = CatalogDiff::from_sources([SourceDiff::between(&with("A", "x"), new).unwrap()]);
        to_sarif(&diff, &Artifact::default(), "1")["runs"][0]["results"].as_array().unwrap().clone()
    };
    let alone = results(&with("B", "x"));
    let both = results(&with("B", "[y](https://evil) {0}"));
    assert_eq!((alone.len(), both.len()), (1, 2));
    assert_eq!(alone[0]["partialFingerprints"], both[0]["partialFingerprints"]);
    let summary = both[1]["message"]["text"].as_str().unwrap();
    assert!(summary.contains(r"\[y\](https://evil) {{0}}"), "{summary}");
}

#[test]
fn two_removed_tools_are_not_one_added_tool() {
    let locked = lock_segment(&segment(&[tool("a", "Same", json!({"x": {}})), tool("b", "Same", json!({"x": {}}))]));
    let locked = &locked.sources[&SourceId::parse("git").unwrap()];
    let diff = SourceDiff::from_lockfile(locked, &segment(&[tool("c", "Same", json!({"x": {}}))])).unwrap();
    assert_eq!((diff.renamed.len(), diff.removed.len(), diff.added.len()), (0, 2, 1));
}
