use serde_json::value::to_raw_value;
use serde_json::{Value, json};

use super::*;
use crate::manifest::{Bounds, Manifest, Packed};
use crate::source::SourceId;

fn tool(offered: &Value) -> Tool {
    let id = SourceId::parse("git").unwrap();
    let manifest = Manifest::new(&id, &[to_raw_value(offered).unwrap()], Vec::new(), &Bounds::default());
    manifest.tools.into_iter().next().unwrap_or_else(|| panic!("{:?}", manifest.set_aside)).0
}

fn compared(old: &Value, new: &Value) -> Comparison {
    compare(&tool(old), &tool(new), &mut Allowance::default())
}

/// Of two input schemas: the class, and the first note.
fn check(old: Value, new: Value, class: Class, note: &str) {
    let comparison = compared(&json!({"name": "t", "inputSchema": old}), &json!({"name": "t", "inputSchema": new}));
    assert_eq!((comparison.class, comparison.notes[0].as_str()), (class, note), "{:?}", comparison.notes);
}

/// Of two schemas for the argument `x`.
fn check_argument(old: Value, new: Value, class: Class, note: &str) {
    let schema = |argument: Value| json!({"type": "object", "properties": {"x": argument}});
    check(schema(old), schema(new), class, note);
}

#[test]
fn what_becomes_of_arguments_is_classed() {
    let object = |properties: Value, required: Value| json!({"properties": properties, "required": required});
    let (a, b) = (json!({"type": "string"}), json!({"type": "integer"}));
    check(
        object(json!({"a": a}), json!([])),
        object(json!({"a": a, "owner": b}), json!(["owner"])),
        Class::Breaking,
        "gained a required `owner`",
    );
    check(
        object(json!({"a": a}), json!([])),
        object(json!({"a": a, "b": b}), json!([])),
        Class::Widened,
        "gained an optional `b`",
    );
    check(object(json!({"a": a, "b": b}), json!([])), object(json!({"a": a}), json!([])), Class::Breaking, "lost `b`");
    check(
        object(json!({"a": a}), json!([])),
        object(json!({"a": a}), json!(["a"])),
        Class::Breaking,
        "`a` became required",
    );
    check(
        object(json!({"a": a}), json!(["a"])),
        object(json!({"a": a}), json!([])),
        Class::Widened,
        "`a` became optional",
    );
    check(
        object(json!({"repo": a}), json!([])),
        object(json!({"repository": a}), json!([])),
        Class::Breaking,
        "`repo` became `repository`",
    );
    check(
        json!({}),
        json!({"type": "object"}),
        Class::Text,
        "its input schema is written otherwise, and means the same",
    );
    check(json!({}), json!({"additionalProperties": false}), Class::Narrowed, "no longer takes unknown fields");
    check(json!({"additionalProperties": false}), json!({}), Class::Widened, "also takes unknown fields");
    check(
        object(json!({"a": a}), json!(["a", "b"])),
        object(json!({"a": a}), json!(["b", "a"])),
        Class::Text,
        "its input schema is written otherwise, and means the same",
    );
    let nested = |required: Value| json!({"properties": {"f": {"type": "object", "properties": {"s": {}}, "required": required}}});
    check(nested(json!([])), nested(json!(["s"])), Class::Breaking, "`f.s` became required");
}

#[test]
fn what_an_argument_takes_is_classed() {
    for (old, new, class, note) in [
        (json!({"type": "integer"}), json!({"type": "string"}), Class::Breaking, "`x`: integer became string"),
        (json!({"type": "integer"}), json!({"type": "number"}), Class::Widened, "`x` also takes number"),
        (json!({"type": "number"}), json!({"type": "integer"}), Class::Narrowed, "`x` no longer takes number"),
        (json!({"type": "string"}), json!({"type": ["string", "null"]}), Class::Widened, "`x` also takes null"),
        (json!({"type": ["string", "null"]}), json!({"type": "string"}), Class::Narrowed, "`x` no longer takes null"),
        (json!({"type": "string"}), json!({}), Class::Widened, "`x` takes any type now"),
        (json!(true), json!({"type": "string"}), Class::Narrowed, "`x` takes only string now"),
        (
            json!({"type": "string"}),
            json!({"anyOf": [{"type": "string"}, {"type": "null"}]}),
            Class::Widened,
            "`x` also takes null",
        ),
        (
            json!({"anyOf": [{"type": "string"}, {"type": "null"}]}),
            json!({"type": "string"}),
            Class::Narrowed,
            "`x` no longer takes null",
        ),
        (
            json!({"anyOf": [{"type": "string"}, {"type": "null"}]}),
            json!({"anyOf": [{"type": "null"}, {"type": "string", "maxLength": 3}]}),
            Class::Narrowed,
            "`x`: maxLength 3 was set",
        ),
        (
            json!({"oneOf": [{"type": "string"}, {"type": "null"}]}),
            json!({"type": "array"}),
            Class::Breaking,
            "`x`: null, string became array",
        ),
        (
            json!({"anyOf": [{"type": "string"}, {"type": "null"}], "description": "a"}),
            json!({"anyOf": [{"type": "string"}, {"type": "null"}], "description": "b"}),
            Class::Text,
            "the description of `x` changed",
        ),
        (
            json!({"type": "object", "anyOf": [{"required": ["a"]}]}),
            json!({"type": "object", "anyOf": [{"required": ["a", "b"]}]}),
            Class::Breaking,
            "gained a required `x.b`",
        ),
        (
            json!({"type": "object"}),
            json!({"type": "object", "oneOf": [{"required": ["a"]}]}),
            Class::Narrowed,
            "`x`: `oneOf` was added",
        ),
        (json!({"enum": ["a", "all"]}), json!({"enum": ["a"]}), Class::Narrowed, "`x` no longer takes `all`"),
        (json!({"enum": ["a"]}), json!({"enum": ["a", "b"]}), Class::Widened, "`x` also takes `b`"),
        (json!({"enum": ["a"]}), json!({"const": "b"}), Class::Breaking, "`x` no longer takes `a`"),
        (json!({}), json!({"enum": [1, "a"]}), Class::Narrowed, "`x` takes only `a`, `1` now"),
        (json!({"maximum": 100}), json!({"maximum": 50}), Class::Narrowed, "`x`: maximum 100 became 50"),
        (json!({"minimum": 5}), json!({"minimum": 1}), Class::Widened, "`x`: minimum 5 became 1"),
        (json!({}), json!({"pattern": "a"}), Class::Narrowed, "`x`: `pattern` was added"),
        (json!({"pattern": "a"}), json!({}), Class::Widened, "`x`: `pattern` was dropped"),
        (json!({"default": 10}), json!({"default": 20}), Class::Other, "`x`: default 10 became 20"),
        (json!({"description": "a"}), json!({"description": "b"}), Class::Text, "the description of `x` changed"),
        (
            json!({"items": {"type": "string"}}),
            json!({"items": {"type": "integer"}}),
            Class::Breaking,
            "`x[]`: string became integer",
        ),
        (json!({"items": {"type": "string"}}), json!({}), Class::Widened, "`x[]` takes anything now"),
        (
            json!({"items": [{"type": "string"}]}),
            json!({"prefixItems": [{"type": "integer"}]}),
            Class::Breaking,
            "`x[]`: string became integer",
        ),
        (
            json!({"anyOf": [{"type": "string"}, {"type": "null"}], "default": "a", "description": "a"}),
            json!({"anyOf": [{"type": "string"}, {"type": "null"}], "default": "b", "description": "b"}),
            Class::Other,
            "`x`: default \"a\" became \"b\"",
        ),
        (
            json!({"anyOf": [{"type": "string"}], "maxLength": 9}),
            json!({"anyOf": [{"type": "string"}], "maxLength": 5}),
            Class::Narrowed,
            "`x`: maxLength 9 became 5",
        ),
        (
            json!({"description": "a", "$ref": "#/$defs/gone_a"}),
            json!({"description": "b", "$ref": "#/$defs/gone_b"}),
            Class::Other,
            "`x`: `$ref` changed",
        ),
        (
            json!({"allOf": [{"properties": {"a": {}}, "required": ["a"]}, {"properties": {"b": {}}}]}),
            json!({"properties": {"a": {}, "b": {}}, "required": ["a", "b"]}),
            Class::Breaking,
            "`x.b` became required",
        ),
        (json!({}), json!(false), Class::Breaking, "`x` takes nothing any more"),
        (json!({"x-unit": "s"}), json!({"x-unit": "ms"}), Class::Other, "`x`: `x-unit` changed"),
        (
            json!({"allOf": [{"type": "string"}]}),
            json!({"allOf": [{"type": "integer"}]}),
            Class::Breaking,
            "`x`: string became integer",
        ),
    ] {
        check_argument(old, new, class, note);
    }
}

#[test]
fn a_change_behind_a_reference_is_found_once_and_cycles_end() {
    let schema = |kind: &str| {
        json!({
            "properties": {"a": {"$ref": "#/$defs/Node"}, "b": {"$ref": "#/$defs/Node"}},
            "$defs": {"Node": {"properties": {"value": {"type": kind}, "next": {"$ref": "#/$defs/Node"}, "me": {"$ref": "#/$defs/Me"}}}, "Me": {"$ref": "#/$defs/Me"}},
        })
    };
    let offered = |kind: &str| json!({"name": "t", "inputSchema": schema(kind)});
    let comparison = compared(&offered("string"), &offered("integer"));
    assert_eq!(
        (comparison.class, comparison.notes),
        (Class::Breaking, vec!["`a.value`: string became integer".to_owned()])
    );
    // Inlined or referred to, it is the same.
    let inlined = json!({"name": "t", "inputSchema": {"properties": {"a": {"type": "string"}}}});
    let referred = json!({"name": "t", "inputSchema": {"properties": {"a": {"$ref": "#/$defs/A"}}, "$defs": {"A": {"type": "string"}}}});
    let comparison = compared(&inlined, &referred);
    assert_eq!(
        (comparison.class, comparison.notes),
        (Class::Text, vec!["its input schema is written otherwise, and means the same".to_owned()])
    );
}

#[test]
fn what_a_tool_says_about_itself_is_classed() {
    let offered = |fields: Value| {
        let mut tool = json!({"name": "t", "inputSchema": {}});
        tool.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        tool
    };
    for (old, new, class, note) in [
        (json!({"description": "a"}), json!({"description": "b"}), Class::Text, "its description changed"),
        (json!({"title": "a"}), json!({}), Class::Text, "its title changed"),
        (json!({}), json!({"annotations": {"readOnlyHint": true}}), Class::HintFlipped, "now says it only reads"),
        (
            json!({"annotations": {"destructiveHint": false}}),
            json!({"annotations": {"destructiveHint": true}}),
            Class::HintFlipped,
            "now says it is destructive",
        ),
        (
            json!({"annotations": {"openWorldHint": true}}),
            json!({"annotations": {"openWorldHint": false}}),
            Class::HintFlipped,
            "now says it stays within its source",
        ),
        (json!({}), json!({"annotations": {"idempotentHint": false}}), Class::Other, "its annotations changed"),
        (
            json!({"annotations": {"title": "a"}}),
            json!({"annotations": {"title": "b"}}),
            Class::Text,
            "its title changed",
        ),
        (json!({}), json!({"outputSchema": {"type": "object"}}), Class::Widened, "gained an output schema"),
        (json!({"outputSchema": {"type": "object"}}), json!({}), Class::Narrowed, "lost its output schema"),
        (
            json!({"outputSchema": {"properties": {"a": {}}}}),
            json!({"outputSchema": {"properties": {"a": {}, "b": {}}, "required": ["b"]}}),
            Class::Widened,
            "its output gained `b`",
        ),
        (
            json!({"outputSchema": {"properties": {"a": {}, "b": {}}}}),
            json!({"outputSchema": {"properties": {"a": {}}}}),
            Class::Narrowed,
            "its output lost `b`",
        ),
        (
            json!({"outputSchema": {"properties": {"a": {"type": "string"}}}}),
            json!({"outputSchema": {"properties": {"a": {"type": "null"}}}}),
            Class::Breaking,
            "its output: `a`: string became null",
        ),
        (json!({"icons": []}), json!({}), Class::Other, "its `icons` changed"),
        (json!({"description": "a", "icons": []}), json!({"description": "b"}), Class::Other, "its `icons` changed"),
    ] {
        let comparison = compared(&offered(old), &offered(new));
        assert_eq!((comparison.class, comparison.notes[0].as_str()), (class, note), "{:?}", comparison.notes);
    }
}

/// Of an answer it is the reader who counts: what may be more than was told is what may break.
#[test]
fn what_an_answer_may_be_is_classed_for_who_reads_it() {
    let answer = |field: Value, required: Value| {
        let output = json!({"type": "object", "properties": {"x": field}, "required": required});
        json!({"name": "t", "inputSchema": {}, "outputSchema": output})
    };
    let (string, integer, number) = (json!({"type": "string"}), json!({"type": "integer"}), json!({"type": "number"}));
    for (old, new, class, note) in [
        (&string, &json!({"type": ["string", "null"]}), Class::Narrowed, "its output: `x` may also be null"),
        (&json!({"type": ["string", "null"]}), &string, Class::Widened, "its output: `x` is no longer null"),
        (&integer, &number, Class::Narrowed, "its output: `x` may also be number"),
        (&number, &integer, Class::Widened, "its output: `x` is no longer number"),
        (&string, &integer, Class::Breaking, "its output: `x`: string became integer"),
        (&string, &json!({}), Class::Narrowed, "its output: `x` may be of any type now"),
        (&json!({}), &string, Class::Widened, "its output: `x` is only string now"),
        (&json!({"enum": ["a"]}), &json!({"enum": ["a", "b"]}), Class::Narrowed, "its output: `x` may also be `b`"),
        (&json!({"enum": ["a", "b"]}), &json!({"enum": ["a"]}), Class::Widened, "its output: `x` is no longer `b`"),
        (&json!({"enum": ["a"]}), &string, Class::Narrowed, "its output: `x` may have other values too"),
        (&json!({"enum": ["a"]}), &json!({"enum": ["b"]}), Class::Breaking, "its output: `x` is no longer `a`"),
        (&json!({"maximum": 5}), &json!({"maximum": 9}), Class::Narrowed, "its output: `x`: maximum 5 became 9"),
        (&json!({"maximum": 9}), &json!({"maximum": 5}), Class::Widened, "its output: `x`: maximum 9 became 5"),
        (&json!({}), &json!({"format": "date"}), Class::Widened, "its output: `x`: `format` was added"),
        (&json!({"pattern": "a"}), &json!({"pattern": "b"}), Class::Narrowed, "its output: `x`: `pattern` changed"),
        (
            &json!({"items": {"type": "string"}}),
            &json!({"items": {"type": ["string", "null"]}}),
            Class::Narrowed,
            "its output: `x[]` may also be null",
        ),
        (
            &json!({"description": "a"}),
            &json!({"description": "b"}),
            Class::Text,
            "the description of `x` in its output changed",
        ),
    ] {
        let comparison = compared(&answer(old.clone(), json!([])), &answer(new.clone(), json!([])));
        assert_eq!((comparison.class, comparison.notes[0].as_str()), (class, note), "{:?}", comparison.notes);
    }
    let (there, perhaps) = (answer(string.clone(), json!(["x"])), answer(string.clone(), json!([])));
    let without = json!({"name": "t", "inputSchema": {}, "outputSchema": {"type": "object"}});
    for (old, new, class, note) in [
        (&there, &perhaps, Class::Narrowed, "its output may come without `x` now"),
        (&perhaps, &there, Class::Widened, "its output always has `x` now"),
        (&there, &without, Class::Breaking, "its output lost `x`"),
        (&perhaps, &without, Class::Narrowed, "its output lost `x`"),
        (&without, &there, Class::Widened, "its output gained `x`"),
    ] {
        let comparison = compared(old, new);
        assert_eq!((comparison.class, comparison.notes[0].as_str()), (class, note), "{:?}", comparison.notes);
    }
}

/// What people will try first, each change alone.
#[test]
fn everyday_changes_have_the_class_one_expects() {
    let deep = |leaf: Value| json!({"type": "object", "properties": {"f": {"type": "array", "items": {"type": "object", "properties": {"s": leaf}}}}});
    let cases = [
        (json!({"maxLength": 5}), json!({"maxLength": 9}), Class::Widened),
        (json!({"maxLength": 9}), json!({"maxLength": 5}), Class::Narrowed),
        (json!({"minimum": 1}), json!({"minimum": 5}), Class::Narrowed),
        (json!({"maximum": 50}), json!({"maximum": 100}), Class::Widened),
        (json!({}), json!({"format": "uri"}), Class::Narrowed),
        (json!({"format": "uri"}), json!({}), Class::Widened),
        (json!({"type": "string"}), json!({"type": "array", "items": {"type": "string"}}), Class::Breaking),
        (
            json!({"anyOf": [{"type": "string"}, {"type": "integer"}]}),
            json!({"anyOf": [{"type": "string"}]}),
            Class::Narrowed,
        ),
        (
            json!({"anyOf": [{"type": "string"}]}),
            json!({"anyOf": [{"type": "string"}, {"type": "integer"}]}),
            Class::Widened,
        ),
        (json!({"title": "a"}), json!({"title": "b"}), Class::Text),
        (json!({"description": "a"}), json!({"description": "b"}), Class::Text),
        (json!({"description": "a", "maximum": 2}), json!({"description": "b", "maximum": 3}), Class::Widened),
        (json!({"default": 1}), json!({}), Class::Other),
        (json!({"default": 1, "maximum": 2}), json!({"default": 2, "maximum": 3}), Class::Other),
        (json!({"default": 1, "maximum": 3}), json!({"default": 2, "maximum": 2}), Class::Narrowed),
        (
            json!({"type": "object", "properties": {"a": {}}, "additionalProperties": true}),
            json!({"type": "object", "properties": {"a": {}}, "additionalProperties": false}),
            Class::Narrowed,
        ),
        (
            json!({"type": "object", "properties": {"a": {}}}),
            json!({"type": "object", "properties": {"a": {}, "b": {}}, "required": ["b"]}),
            Class::Breaking,
        ),
        (json!({"type": "object", "properties": {"a": {}}}), json!({"type": "object"}), Class::Breaking),
    ];
    for (old, new, class) in cases {
        for schema in [|leaf: Value| json!({"type": "object", "properties": {"s": leaf}}), deep] {
            let offered = |leaf: &Value| json!({"name": "t", "inputSchema": schema(leaf.clone())});
            let comparison = compared(&offered(&old), &offered(&new));
            assert_eq!(comparison.class, class, "{old} to {new}: {:?}", comparison.notes);
        }
    }
}

/// A condition that reads the same may refer to something else now.
#[test]
fn what_conditions_refer_to_is_looked_at() {
    let schema = |kind: &str| {
        let gained: Value = if kind == "string" { json!({}) } else { json!({"b": {}}) };
        json!({"properties": gained, "not": {"properties": {"a": {"$ref": "#/$defs/A"}}}, "$defs": {"A": {"type": kind}}})
    };
    let offered = |kind: &str| json!({"name": "t", "inputSchema": schema(kind)});
    let comparison = compared(&offered("string"), &offered("integer"));
    assert_eq!(comparison.notes, ["its arguments: `not` changed", "gained an optional `b`"]);
    assert_eq!(comparison.class, Class::Narrowed);
}

#[test]
fn whether_a_call_is_a_task_is_classed() {
    let offered = |support: Option<&str>| match support {
        Some(support) => json!({"name": "t", "inputSchema": {}, "execution": {"taskSupport": support}}),
        None => json!({"name": "t", "inputSchema": {}}),
    };
    for (old, new, class, note) in [
        (None, Some("required"), Class::Breaking, "must be called as a task now"),
        (Some("optional"), Some("required"), Class::Breaking, "must be called as a task now"),
        (Some("required"), None, Class::Breaking, "can no longer be called as a task"),
        (Some("optional"), Some("forbidden"), Class::Narrowed, "can no longer be called as a task"),
        (None, Some("optional"), Class::Widened, "may be called as a task now"),
        (Some("required"), Some("optional"), Class::Widened, "need not be called as a task any more"),
        (None, Some("forbidden"), Class::Other, "its `execution` changed"),
    ] {
        let comparison = compared(&offered(old), &offered(new));
        assert_eq!((comparison.class, comparison.notes), (class, vec![note.to_owned()]), "{old:?} {new:?}");
    }
}

#[test]
fn hints_that_go_without_saying_are_not_flipped() {
    let offered = |annotations: Value| json!({"name": "t", "inputSchema": {}, "annotations": annotations});
    for (old, new, class, notes) in [
        (json!({}), json!({"readOnlyHint": true}), Class::HintFlipped, vec!["now says it only reads"]),
        (
            json!({"readOnlyHint": true}),
            json!({"readOnlyHint": false}),
            Class::HintFlipped,
            vec!["no longer says it only reads"],
        ),
        (
            json!({"readOnlyHint": true}),
            json!({"readOnlyHint": true, "destructiveHint": false, "idempotentHint": true}),
            Class::Other,
            vec!["its annotations changed"],
        ),
        (
            json!({"readOnlyHint": true, "destructiveHint": false}),
            json!({"readOnlyHint": true, "destructiveHint": true}),
            Class::HintFlipped,
            vec!["now says it is destructive"],
        ),
        (
            json!({}),
            json!({"destructiveHint": true, "openWorldHint": true}),
            Class::Other,
            vec!["its annotations changed"],
        ),
        (json!({}), json!({"destructiveHint": false}), Class::HintFlipped, vec!["now says it is not destructive"]),
        (json!({}), json!({"readOnlyHint": "yes"}), Class::Other, vec!["its annotations changed"]),
    ] {
        let comparison = compared(&offered(old), &offered(new));
        assert_eq!(
            (comparison.class, comparison.notes),
            (class, notes.iter().map(|note| (*note).to_owned()).collect())
        );
    }
}

#[test]
fn where_an_operation_leads_is_a_class_of_its_own() {
    let offered = |server: &str, path: &str, limit: u32| {
        let operation = json!({"mode": "sync_http", "method": "GET", "server": server, "path": path});
        let whole = json!({"properties": {"n": {"maximum": limit}}});
        json!({"name": "t", "inputSchema": {}, "x-toolcrib-backing": {"execution": operation, "input_schema": whole}})
    };
    let first = offered("https://a", "/x", 1);
    let told = |new: &Value| compared(&first, new);
    assert_eq!(told(&offered("https://b", "/x", 1)).notes, ["its server changed"]);
    assert_eq!(told(&offered("https://a", "/y", 1)).notes, ["its request: `GET /x` became `GET /y`"]);
    assert_eq!(told(&offered("https://a", "/y", 1)).class, Class::Execution);
    // What lists have pruned is compared whole.
    assert_eq!(told(&offered("https://a", "/x", 2)).class, Class::Widened);
}

/// A schema from outside must not take time or memory out of proportion.
#[test]
fn hostile_schemas_are_compared_in_bounds() {
    let definition = |index: usize| json!({"properties": {"a": {"$ref": format!("#/$defs/d{}", index + 1)}, "b": {"$ref": format!("#/$defs/d{}", index + 1)}}});
    let bomb = |leaf: &str| {
        let mut definitions: serde_json::Map<String, Value> =
            (0..200).map(|index| (format!("d{index}"), definition(index))).collect();
        definitions.insert("d200".to_owned(), json!({"type": leaf}));
        json!({"name": "t", "inputSchema": {"properties": {"x": {"$ref": "#/$defs/d0"}}, "$defs": definitions}})
    };
    assert_eq!(compared(&bomb("string"), &bomb("integer")).class, Class::Other, "too deep to be seen to its end");
    let wide = |kind: &str| {
        let ways: Vec<Value> = (0..2_000).map(|index| json!({"type": kind, "maxLength": index})).collect();
        let fields: serde_json::Map<String, Value> =
            (0..200).map(|index| (format!("{}{index}", "x".repeat(200)), json!({"anyOf": ways[..20]}))).collect();
        json!({"name": "t", "inputSchema": {"anyOf": ways, "properties": fields}})
    };
    let comparison = compared(&wide("string"), &wide("integer"));
    assert_eq!(comparison.class, Class::Breaking);
    assert!(comparison.notes.len() <= 13 && comparison.notes.iter().all(|note| note.len() < 600), "{comparison:?}");
    let mut spent = Allowance(3);
    let comparison = compare(&tool(&wide("string")), &tool(&wide("integer")), &mut spent);
    assert!(comparison.notes.concat().contains("too large to be compared in full"), "{comparison:?}");
}

#[test]
fn a_tool_that_went_and_one_that_came_may_be_one() {
    let pack = |tools: &[Value]| {
        let offered: Vec<_> = tools.iter().map(|tool| to_raw_value(tool).unwrap()).collect();
        let id = SourceId::parse("git").unwrap();
        Packed::new(&Manifest::new(&id, &offered, Vec::new(), &Bounds::default())).unwrap()
    };
    let offered = |name: &str, description: &str, field: &str| {
        let properties = if field.is_empty() { json!({}) } else { json!({field: {"type": "string"}}) };
        json!({"name": name, "description": description, "inputSchema": {"type": "object", "properties": properties}})
    };
    let renames = |old: &[Value], new: &[Value]| -> Vec<(String, String)> {
        let (before, after) = (pack(old), pack(new));
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
    let (old, new) = ([offered("a_x", "A", "a"), offered("b_x", "A", "a")], [offered("a_y", "A", "a")]);
    assert_eq!(renames(&old, &new), [pair("a_x", "a_y")]);
    // Those that nothing tells apart are paired by their names or not at all.
    let (old, new) = ([offered("a_x", "A", "a"), offered("b_x", "A", "a")], [offered("zebra", "A", "a")]);
    assert_eq!(renames(&old, &new), []);
    // What many tools have is no mark, also of those that stayed.
    let crowd: Vec<Value> =
        (0..5).map(|index| offered(&format!("read_{index}"), &format!("Reads {index}"), "id")).collect();
    let with = |tool: Value| crowd.iter().cloned().chain([tool]).collect::<Vec<_>>();
    let (old, new) = (with(offered("get_user", "A user", "id")), with(offered("get_users", "All users", "id")));
    assert_eq!(renames(&old, &new), []);
    let (old, new) = (with(offered("get_user", "A user", "id")), with(offered("fetch_user", "A user", "id")));
    assert_eq!(renames(&old, &new), [pair("get_user", "fetch_user")]);
    let undescribed =
        |names: &[&str]| names.iter().map(|name| json!({"name": name, "inputSchema": {}})).collect::<Vec<_>>();
    assert_eq!(renames(&undescribed(&["run_a", "run_b", "run_c"]), &undescribed(&["run_x", "run_y", "run_z"])), []);
    let many =
        |prefix: &str| (0..1_000).map(|index| offered(&format!("{prefix}{index}"), "A", "a")).collect::<Vec<_>>();
    assert_eq!(renames(&many("a"), &many("b")), []);
    assert!(renames(&many("a")[..300], &many("b")[..300]).len() <= 300);
}

#[test]
fn every_class_is_written_as_it_is_called() {
    for class in Class::ALL {
        assert_eq!(serde_json::to_value(class).unwrap(), json!(class.as_str()));
    }
    assert_eq!(serde_json::from_value::<Class>(json!("of_the_future")).unwrap(), Class::Other);
}

/// What is written otherwise and means the same must not frighten anybody, and what means more must not pass for less.
#[test]
fn ways_of_writing_the_same_are_told_from_changes() {
    const SAME: &str = "its input schema is written otherwise, and means the same";
    const UNTOLD: &str = "its input schema changed in a way that is not told apart";
    let titled = |title: &str, field: &str| json!({"type": "object", "title": title, "properties": {field: {}}});
    let (string, number, nothing) = (json!({"type": "string"}), json!({"type": "number"}), json!({"type": "null"}));
    for (old, new, class, note) in [
        (json!({"type": ["string", "null"]}), json!({"anyOf": [string, nothing]}), Class::Text, SAME),
        (json!({"type": "string", "nullable": true}), json!({"type": ["null", "string"]}), Class::Text, SAME),
        (
            json!({"oneOf": [{"anyOf": [string, number]}, nothing]}),
            json!({"anyOf": [nothing, number, string]}),
            Class::Text,
            SAME,
        ),
        (json!({"allOf": [string]}), string.clone(), Class::Text, SAME),
        (json!({"enum": ["a", "b"]}), json!({"oneOf": [{"const": "b"}, {"const": "a"}]}), Class::Text, SAME),
        (
            json!({"enum": ["a", null], "type": ["string", "null"]}),
            json!({"anyOf": [{"const": "a"}, nothing]}),
            Class::Text,
            SAME,
        ),
        (json!({"type": "integer"}), json!({"anyOf": [number, nothing]}), Class::Widened, "`x` also takes number"),
        (
            json!({"anyOf": [number, nothing]}),
            json!({"type": ["integer", "null"]}),
            Class::Narrowed,
            "`x` no longer takes number",
        ),
        (json!({}), json!({"anyOf": [string, number]}), Class::Narrowed, "`x` takes only number, string now"),
        (json!({"anyOf": [string, number]}), json!({}), Class::Widened, "`x` takes any type now"),
        (
            json!({"type": "integer"}),
            json!({"type": ["string", "null"]}),
            Class::Breaking,
            "`x`: integer became null, string",
        ),
        (
            json!({"anyOf": [{"const": "a"}, {"const": "b"}]}),
            json!({"anyOf": [{"const": "a"}, {"const": "c"}]}),
            Class::Narrowed,
            "`x` no longer takes `b`",
        ),
        (json!({"anyOf": [{"enum": ["a"]}, string]}), string.clone(), Class::Other, UNTOLD),
        (
            json!({"anyOf": [titled("A", "a"), titled("B", "b")]}),
            json!({"anyOf": [titled("B", "b"), titled("A", "a"), titled("C", "c")]}),
            Class::Widened,
            "`x` also takes object `C`",
        ),
        (
            json!({"anyOf": [titled("A", "a"), titled("B", "b")]}),
            json!({"anyOf": [titled("B", "x"), titled("A", "a")]}),
            Class::Breaking,
            "`x.b` became `x.x`",
        ),
        (json!({"minLength": 1}), json!({"minLength": 1.0, "uniqueItems": false}), Class::Text, SAME),
        (json!({"examples": ["a"]}), json!({"examples": ["b"]}), Class::Text, "`x`: its examples changed"),
    ] {
        check_argument(old, new, class, note);
    }
    // A definition that takes nothing too, whoever refers to it.
    let union = |nullable: bool| {
        let mut ways = vec![json!({"$ref": "#/$defs/A"}), json!({"$ref": "#/$defs/B"})];
        ways.extend(nullable.then(|| nothing.clone()));
        json!({"properties": {"x": {"$ref": "#/$defs/U"}}, "$defs": {"U": {"anyOf": ways}, "A": titled("A", "a"), "B": titled("B", "b")}})
    };
    check(union(false), union(true), Class::Widened, "`x` also takes null");
    check(union(true), union(false), Class::Narrowed, "`x` no longer takes null");
    let beside =
        |length: u32| json!({"properties": {"x": {"$ref": "#/$defs/S", "maxLength": length}}, "$defs": {"S": string}});
    check(beside(5), beside(6), Class::Widened, "`x`: maxLength 5 became 6");
}

/// One definition that many arguments lead to is looked at once, or until there is no more allowance.
#[test]
fn work_is_bounded_whatever_refers_to_it() {
    let hostile = |suffix: &str| {
        let fields: serde_json::Map<String, Value> = (0..3_000).map(|n| (format!("f{n}"), json!({}))).collect();
        let values: Vec<String> = (0..3_000).map(|n| format!("v{n}{suffix}")).collect();
        let ways = [
            json!({"anyOf": [{"$ref": "#/$defs/D"}]}),
            json!({"anyOf": [{"$ref": "#/$defs/D"}, {"type": "null"}]}),
            json!({"$ref": "#/$defs/D", "minProperties": 1}),
            json!({"$ref": "#/$defs/E"}),
            json!({"anyOf": [{"$ref": "#/$defs/E"}, {"type": "null"}]}),
        ];
        let arguments: serde_json::Map<String, Value> =
            (0..2_000).map(|n| (format!("a{n}"), ways[n % 5].clone())).collect();
        let definitions = json!({"D": {"properties": fields, "title": suffix}, "E": {"enum": values}});
        json!({"name": "t", "inputSchema": {"properties": arguments, "$defs": definitions}})
    };
    let (old, new) = (tool(&hostile("a")), tool(&hostile("b")));
    let began = std::time::Instant::now();
    let comparison = compare(&old, &new, &mut Allowance::default());
    assert!(began.elapsed() < std::time::Duration::from_secs(20), "{:?}", began.elapsed());
    assert_eq!(comparison.class, Class::Breaking, "{:?}", comparison.notes);
    assert!(comparison.notes.len() <= 13 && comparison.notes.iter().all(|note| note.len() < 600));
}

#[test]
fn names_of_types_are_cleaned_and_short() {
    let schema = |name: &str| json!({"name": "t", "inputSchema": {"properties": {"x": {"anyOf": [{"type": name}, {"type": "null"}]}}}});
    let long = format!("evil\u{1b}[31m\n{}", "y".repeat(100_000));
    let comparison = compared(&schema("string"), &schema(&long));
    assert!(comparison.notes.iter().all(|note| note.len() < 400 && !note.contains(char::is_control)), "{comparison:?}");
}

#[test]
fn a_hundred_thousand_unknown_fields_are_compared_in_passing() {
    let offered = |suffix: &str| {
        let mut fields: serde_json::Map<String, Value> =
            (0..50_000).map(|n| (format!("u{n}"), json!(suffix))).collect();
        fields.insert("name".to_owned(), json!("t"));
        Value::Object(fields)
    };
    let (old, new) = (tool(&offered("a")), tool(&offered("b")));
    let change = crate::manifest::Change::between(&old, &new, &mut Allowance::default());
    assert!(change.fields.len() <= 60 && change.notes.len() <= 13, "{}", change.fields.len());
}
