//! Changes of texts, hints, task support, execution and output.

use serde_json::{Value, json};

use super::*;

#[test]
fn changes_of_texts_hints_and_outputs_are_classified() {
    let tool_with = |fields: Value| {
        let mut tool = json!({"name": "t", "inputSchema": {}});
        tool.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        tool
    };
    for (old, new, class, note) in [
        (json!({"description": "a"}), json!({"description": "b"}), ChangeClass::Text, "its description changed"),
        (json!({"title": "a"}), json!({}), ChangeClass::Text, "its title changed"),
        (
            json!({}),
            json!({"annotations": {"readOnlyHint": true}}),
            ChangeClass::HintFlipped,
            "is now declared read-only",
        ),
        (
            json!({"annotations": {"destructiveHint": false}}),
            json!({"annotations": {"destructiveHint": true}}),
            ChangeClass::HintFlipped,
            "now says it is destructive",
        ),
        (
            json!({"annotations": {"openWorldHint": true}}),
            json!({"annotations": {"openWorldHint": false}}),
            ChangeClass::HintFlipped,
            "now says it stays within its source",
        ),
        (json!({}), json!({"annotations": {"idempotentHint": false}}), ChangeClass::Other, "its annotations changed"),
        (
            json!({"annotations": {"title": "a"}}),
            json!({"annotations": {"title": "b"}}),
            ChangeClass::Text,
            "its title changed",
        ),
        (json!({}), json!({"outputSchema": {"type": "object"}}), ChangeClass::Widened, "gained an output schema"),
        (json!({"outputSchema": {"type": "object"}}), json!({}), ChangeClass::Narrowed, "lost its output schema"),
        (
            json!({"outputSchema": {"properties": {"a": {}}}}),
            json!({"outputSchema": {"properties": {"a": {}, "b": {}}, "required": ["b"]}}),
            ChangeClass::Widened,
            "its output gained `b`",
        ),
        (
            json!({"outputSchema": {"properties": {"a": {}, "b": {}}}}),
            json!({"outputSchema": {"properties": {"a": {}}}}),
            ChangeClass::Narrowed,
            "its output lost `b`",
        ),
        (
            json!({"outputSchema": {"properties": {"a": {"type": "string"}}}}),
            json!({"outputSchema": {"properties": {"a": {"type": "null"}}}}),
            ChangeClass::Breaking,
            "its output: `a`: string became null",
        ),
        (json!({"icons": []}), json!({}), ChangeClass::Other, "its `icons` changed"),
        (
            json!({"description": "a", "icons": []}),
            json!({"description": "b"}),
            ChangeClass::Other,
            "its `icons` changed",
        ),
    ] {
        let comparison = compare_json(&tool_with(old), &tool_with(new));
        assert_eq!((comparison.class, comparison.notes[0].as_str()), (class, note), "{:?}", comparison.notes);
    }
}

#[test]
fn changes_of_task_support_are_classified() {
    let tool_with = |support: Option<&str>| match support {
        Some(support) => json!({"name": "t", "inputSchema": {}, "execution": {"taskSupport": support}}),
        None => json!({"name": "t", "inputSchema": {}}),
    };
    for (old, new, class, note) in [
        (None, Some("required"), ChangeClass::Breaking, "must be called as a task now"),
        (Some("optional"), Some("required"), ChangeClass::Breaking, "must be called as a task now"),
        (Some("required"), None, ChangeClass::Breaking, "can no longer be called as a task"),
        (Some("optional"), Some("forbidden"), ChangeClass::Narrowed, "can no longer be called as a task"),
        (None, Some("optional"), ChangeClass::Widened, "may be called as a task now"),
        (Some("required"), Some("optional"), ChangeClass::Widened, "need not be called as a task any more"),
        (None, Some("forbidden"), ChangeClass::Other, "its `execution` changed"),
    ] {
        let comparison = compare_json(&tool_with(old), &tool_with(new));
        assert_eq!((comparison.class, comparison.notes), (class, vec![note.to_owned()]), "{old:?} {new:?}");
    }
}

#[test]
fn hints_that_equal_their_default_are_not_flipped() {
    let tool_with = |annotations: Value| json!({"name": "t", "inputSchema": {}, "annotations": annotations});
    for (old, new, class, notes) in [
        (json!({}), json!({"readOnlyHint": true}), ChangeClass::HintFlipped, vec!["is now declared read-only"]),
        (
            json!({"readOnlyHint": true}),
            json!({"readOnlyHint": false}),
            ChangeClass::HintFlipped,
            vec!["is no longer declared read-only"],
        ),
        (
            json!({"readOnlyHint": true}),
            json!({"readOnlyHint": true, "destructiveHint": false, "idempotentHint": true}),
            ChangeClass::Other,
            vec!["its annotations changed"],
        ),
        (
            json!({"readOnlyHint": true, "destructiveHint": false}),
            json!({"readOnlyHint": true, "destructiveHint": true}),
            ChangeClass::HintFlipped,
            vec!["now says it is destructive"],
        ),
        (
            json!({}),
            json!({"destructiveHint": true, "openWorldHint": true}),
            ChangeClass::Other,
            vec!["its annotations changed"],
        ),
        (
            json!({}),
            json!({"destructiveHint": false}),
            ChangeClass::HintFlipped,
            vec!["now says it is not destructive"],
        ),
        (json!({}), json!({"readOnlyHint": "yes"}), ChangeClass::Other, vec!["its annotations changed"]),
    ] {
        let comparison = compare_json(&tool_with(old), &tool_with(new));
        assert_eq!(
            (comparison.class, comparison.notes),
            (class, notes.iter().map(|note| (*note).to_owned()).collect())
        );
    }
}

#[test]
fn changes_of_the_request_are_execution_changes() {
    let tool_with = |server: &str, path: &str, limit: u32| {
        let operation = json!({"mode": "sync_http", "method": "GET", "server": server, "path": path});
        let full = json!({"properties": {"n": {"maximum": limit}}});
        json!({"name": "t", "inputSchema": {}, "x-toolcrib-backing": {"execution": operation, "input_schema": full}})
    };
    let first = tool_with("https://a", "/x", 1);
    let compare_first = |new: &Value| compare_json(&first, new);
    assert_eq!(compare_first(&tool_with("https://b", "/x", 1)).notes, ["its server changed"]);
    assert_eq!(compare_first(&tool_with("https://a", "/y", 1)).notes, ["its request: `GET /x` became `GET /y`"]);
    assert_eq!(compare_first(&tool_with("https://a", "/y", 1)).class, ChangeClass::Execution);
    // A pruned schema is compared by its full version.
    assert_eq!(compare_first(&tool_with("https://a", "/x", 2)).class, ChangeClass::Widened);
}

/// For an output the reader counts: more possible values than declared may break it.
#[test]
fn output_changes_are_classified_for_readers() {
    let with_output = |field: Value, required: Value| {
        let output = json!({"type": "object", "properties": {"x": field}, "required": required});
        json!({"name": "t", "inputSchema": {}, "outputSchema": output})
    };
    let string = json!({"type": "string"});
    let integer = json!({"type": "integer"});
    let number = json!({"type": "number"});
    for (old, new, class, note) in [
        (&string, &json!({"type": ["string", "null"]}), ChangeClass::Narrowed, "its output: `x` may also be null"),
        (&json!({"type": ["string", "null"]}), &string, ChangeClass::Widened, "its output: `x` is no longer null"),
        (&integer, &number, ChangeClass::Narrowed, "its output: `x` may also be number"),
        (&number, &integer, ChangeClass::Widened, "its output: `x` is no longer number"),
        (&string, &integer, ChangeClass::Breaking, "its output: `x`: string became integer"),
        (&string, &json!({}), ChangeClass::Narrowed, "its output: `x` may be of any type now"),
        (&json!({}), &string, ChangeClass::Widened, "its output: `x` is only string now"),
        (
            &json!({"enum": ["a"]}),
            &json!({"enum": ["a", "b"]}),
            ChangeClass::Narrowed,
            "its output: `x` may also be `b`",
        ),
        (
            &json!({"enum": ["a", "b"]}),
            &json!({"enum": ["a"]}),
            ChangeClass::Widened,
            "its output: `x` is no longer `b`",
        ),
        (&json!({"enum": ["a"]}), &string, ChangeClass::Narrowed, "its output: `x` may have other values too"),
        (&json!({"enum": ["a"]}), &json!({"enum": ["b"]}), ChangeClass::Breaking, "its output: `x` is no longer `a`"),
        (&json!({"maximum": 5}), &json!({"maximum": 9}), ChangeClass::Narrowed, "its output: `x`: maximum 5 became 9"),
        (&json!({"maximum": 9}), &json!({"maximum": 5}), ChangeClass::Widened, "its output: `x`: maximum 9 became 5"),
        (&json!({}), &json!({"format": "date"}), ChangeClass::Widened, "its output: `x`: `format` was added"),
        (
            &json!({"pattern": "a"}),
            &json!({"pattern": "b"}),
            ChangeClass::Narrowed,
            "its output: `x`: `pattern` changed",
        ),
        (
            &json!({"items": {"type": "string"}}),
            &json!({"items": {"type": ["string", "null"]}}),
            ChangeClass::Narrowed,
            "its output: `x[]` may also be null",
        ),
        (
            &json!({"description": "a"}),
            &json!({"description": "b"}),
            ChangeClass::Text,
            "the description of `x` in its output changed",
        ),
    ] {
        let comparison = compare_json(&with_output(old.clone(), json!([])), &with_output(new.clone(), json!([])));
        assert_eq!((comparison.class, comparison.notes[0].as_str()), (class, note), "{:?}", comparison.notes);
    }
    let required = with_output(string.clone(), json!(["x"]));
    let optional = with_output(string.clone(), json!([]));
    let without = json!({"name": "t", "inputSchema": {}, "outputSchema": {"type": "object"}});
    for (old, new, class, note) in [
        (&required, &optional, ChangeClass::Narrowed, "its output may lack `x` now"),
        (&optional, &required, ChangeClass::Widened, "its output always has `x` now"),
        (&required, &without, ChangeClass::Breaking, "its output lost `x`"),
        (&optional, &without, ChangeClass::Narrowed, "its output lost `x`"),
        (&without, &required, ChangeClass::Widened, "its output gained `x`"),
    ] {
        let comparison = compare_json(old, new);
        assert_eq!((comparison.class, comparison.notes[0].as_str()), (class, note), "{:?}", comparison.notes);
    }
}
