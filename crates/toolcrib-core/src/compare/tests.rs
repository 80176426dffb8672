mod bounds;
mod effects;
mod renames;

use serde_json::value::to_raw_value;
use serde_json::{Value, json};

use super::*;
use crate::manifest::{Manifest, PackedManifest, ToolLimits};
use crate::source::SourceId;

fn tool(offered: &Value) -> Tool {
    let id = SourceId::parse("git").unwrap();
    let manifest = Manifest::new(&id, &[to_raw_value(offered).unwrap()], Vec::new(), &ToolLimits::default());
    manifest.tools.into_iter().next().unwrap_or_else(|| panic!("{:?}", manifest.set_aside)).0
}

fn compare_json(old: &Value, new: &Value) -> ToolComparison {
    compare(&tool(old), &tool(new), &mut WorkBudget::default())
}

/// Of two input schemas: the class, and the first note.
fn check(old: Value, new: Value, class: ChangeClass, note: &str) {
    let comparison = compare_json(&json!({"name": "t", "inputSchema": old}), &json!({"name": "t", "inputSchema": new}));
    assert_eq!((comparison.class, comparison.notes[0].as_str()), (class, note), "{:?}", comparison.notes);
}

/// Of two schemas for the argument `x`.
fn check_argument(old: Value, new: Value, class: ChangeClass, note: &str) {
    let schema = |argument: Value| json!({"type": "object", "properties": {"x": argument}});
    check(schema(old), schema(new), class, note);
}

#[test]
fn what_becomes_of_arguments_is_classed() {
    let object = |properties: Value, required: Value| json!({"properties": properties, "required": required});
    let a = json!({"type": "string"});
    let b = json!({"type": "integer"});
    check(
        object(json!({"a": a}), json!([])),
        object(json!({"a": a, "owner": b}), json!(["owner"])),
        ChangeClass::Breaking,
        "gained a required `owner`",
    );
    check(
        object(json!({"a": a}), json!([])),
        object(json!({"a": a, "b": b}), json!([])),
        ChangeClass::Widened,
        "gained an optional `b`",
    );
    check(
        object(json!({"a": a, "b": b}), json!([])),
        object(json!({"a": a}), json!([])),
        ChangeClass::Breaking,
        "lost `b`",
    );
    check(
        object(json!({"a": a}), json!([])),
        object(json!({"a": a}), json!(["a"])),
        ChangeClass::Breaking,
        "`a` became required",
    );
    check(
        object(json!({"a": a}), json!(["a"])),
        object(json!({"a": a}), json!([])),
        ChangeClass::Widened,
        "`a` became optional",
    );
    check(
        object(json!({"repo": a}), json!([])),
        object(json!({"repository": a}), json!([])),
        ChangeClass::Breaking,
        "`repo` became `repository`",
    );
    check(
        json!({}),
        json!({"type": "object"}),
        ChangeClass::Text,
        "its input schema is written differently and means the same",
    );
    check(json!({}), json!({"additionalProperties": false}), ChangeClass::Narrowed, "no longer takes unknown fields");
    check(json!({"additionalProperties": false}), json!({}), ChangeClass::Widened, "also takes unknown fields");
    check(
        object(json!({"a": a}), json!(["a", "b"])),
        object(json!({"a": a}), json!(["b", "a"])),
        ChangeClass::Text,
        "its input schema is written differently and means the same",
    );
    let nested = |required: Value| json!({"properties": {"f": {"type": "object", "properties": {"s": {}}, "required": required}}});
    check(nested(json!([])), nested(json!(["s"])), ChangeClass::Breaking, "`f.s` became required");
}

#[test]
fn what_an_argument_takes_is_classed() {
    for (old, new, class, note) in [
        (json!({"type": "integer"}), json!({"type": "string"}), ChangeClass::Breaking, "`x`: integer became string"),
        (json!({"type": "integer"}), json!({"type": "number"}), ChangeClass::Widened, "`x` also takes number"),
        (json!({"type": "number"}), json!({"type": "integer"}), ChangeClass::Narrowed, "`x` no longer takes number"),
        (json!({"type": "string"}), json!({"type": ["string", "null"]}), ChangeClass::Widened, "`x` also takes null"),
        (
            json!({"type": ["string", "null"]}),
            json!({"type": "string"}),
            ChangeClass::Narrowed,
            "`x` no longer takes null",
        ),
        (json!({"type": "string"}), json!({}), ChangeClass::Widened, "`x` takes any type now"),
        (json!(true), json!({"type": "string"}), ChangeClass::Narrowed, "`x` takes only string now"),
        (
            json!({"type": "string"}),
            json!({"anyOf": [{"type": "string"}, {"type": "null"}]}),
            ChangeClass::Widened,
            "`x` also takes null",
        ),
        (
            json!({"anyOf": [{"type": "string"}, {"type": "null"}]}),
            json!({"type": "string"}),
            ChangeClass::Narrowed,
            "`x` no longer takes null",
        ),
        (
            json!({"anyOf": [{"type": "string"}, {"type": "null"}]}),
            json!({"anyOf": [{"type": "null"}, {"type": "string", "maxLength": 3}]}),
            ChangeClass::Narrowed,
            "`x`: maxLength 3 was set",
        ),
        (
            json!({"oneOf": [{"type": "string"}, {"type": "null"}]}),
            json!({"type": "array"}),
            ChangeClass::Breaking,
            "`x`: null, string became array",
        ),
        (
            json!({"anyOf": [{"type": "string"}, {"type": "null"}], "description": "a"}),
            json!({"anyOf": [{"type": "string"}, {"type": "null"}], "description": "b"}),
            ChangeClass::Text,
            "the description of `x` changed",
        ),
        (
            json!({"type": "object", "anyOf": [{"required": ["a"]}]}),
            json!({"type": "object", "anyOf": [{"required": ["a", "b"]}]}),
            ChangeClass::Breaking,
            "gained a required `x.b`",
        ),
        (
            json!({"type": "object"}),
            json!({"type": "object", "oneOf": [{"required": ["a"]}]}),
            ChangeClass::Narrowed,
            "`x`: `oneOf` was added",
        ),
        (json!({"enum": ["a", "all"]}), json!({"enum": ["a"]}), ChangeClass::Narrowed, "`x` no longer takes `all`"),
        (json!({"enum": ["a"]}), json!({"enum": ["a", "b"]}), ChangeClass::Widened, "`x` also takes `b`"),
        (json!({"enum": ["a"]}), json!({"const": "b"}), ChangeClass::Breaking, "`x` no longer takes `a`"),
        (json!({}), json!({"enum": [1, "a"]}), ChangeClass::Narrowed, "`x` takes only `a`, `1` now"),
        (json!({"maximum": 100}), json!({"maximum": 50}), ChangeClass::Narrowed, "`x`: maximum 100 became 50"),
        (json!({"minimum": 5}), json!({"minimum": 1}), ChangeClass::Widened, "`x`: minimum 5 became 1"),
        (json!({}), json!({"pattern": "a"}), ChangeClass::Narrowed, "`x`: `pattern` was added"),
        (json!({"pattern": "a"}), json!({}), ChangeClass::Widened, "`x`: `pattern` was dropped"),
        (json!({"default": 10}), json!({"default": 20}), ChangeClass::Other, "`x`: default 10 became 20"),
        (json!({"description": "a"}), json!({"description": "b"}), ChangeClass::Text, "the description of `x` changed"),
        (
            json!({"items": {"type": "string"}}),
            json!({"items": {"type": "integer"}}),
            ChangeClass::Breaking,
            "`x[]`: string became integer",
        ),
        (json!({"items": {"type": "string"}}), json!({}), ChangeClass::Widened, "`x[]` takes anything now"),
        (
            json!({"items": [{"type": "string"}]}),
            json!({"prefixItems": [{"type": "integer"}]}),
            ChangeClass::Breaking,
            "`x[]`: string became integer",
        ),
        (
            json!({"anyOf": [{"type": "string"}, {"type": "null"}], "default": "a", "description": "a"}),
            json!({"anyOf": [{"type": "string"}, {"type": "null"}], "default": "b", "description": "b"}),
            ChangeClass::Other,
            "`x`: default \"a\" became \"b\"",
        ),
        (
            json!({"anyOf": [{"type": "string"}], "maxLength": 9}),
            json!({"anyOf": [{"type": "string"}], "maxLength": 5}),
            ChangeClass::Narrowed,
            "`x`: maxLength 9 became 5",
        ),
        (
            json!({"description": "a", "$ref": "#/$defs/gone_a"}),
            json!({"description": "b", "$ref": "#/$defs/gone_b"}),
            ChangeClass::Other,
            "`x`: `$ref` changed",
        ),
        (
            json!({"allOf": [{"properties": {"a": {}}, "required": ["a"]}, {"properties": {"b": {}}}]}),
            json!({"properties": {"a": {}, "b": {}}, "required": ["a", "b"]}),
            ChangeClass::Breaking,
            "`x.b` became required",
        ),
        (json!({}), json!(false), ChangeClass::Breaking, "`x` takes nothing any more"),
        (json!({"x-unit": "s"}), json!({"x-unit": "ms"}), ChangeClass::Other, "`x`: `x-unit` changed"),
        (
            json!({"allOf": [{"type": "string"}]}),
            json!({"allOf": [{"type": "integer"}]}),
            ChangeClass::Breaking,
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
    let comparison = compare_json(&offered("string"), &offered("integer"));
    assert_eq!(
        (comparison.class, comparison.notes),
        (ChangeClass::Breaking, vec!["`a.value`: string became integer".to_owned()])
    );
    // What is referred to by other means is not known, and does not pass for the same.
    let anchored = |kind: &str| json!({"name": "t", "inputSchema": {"properties": {"a": {"$ref": "#here"}}, "$defs": {"A": {"$anchor": "here", "type": kind}}}});
    assert_eq!(compare_json(&anchored("string"), &anchored("integer")).class, ChangeClass::Other);
    // Inlined or referred to, it is the same.
    let inlined = json!({"name": "t", "inputSchema": {"properties": {"a": {"type": "string"}}}});
    let referred = json!({"name": "t", "inputSchema": {"properties": {"a": {"$ref": "#/$defs/A"}}, "$defs": {"A": {"type": "string"}}}});
    let comparison = compare_json(&inlined, &referred);
    assert_eq!(
        (comparison.class, comparison.notes),
        (ChangeClass::Text, vec!["its input schema is written differently and means the same".to_owned()])
    );
}

/// What people will try first, each change alone.
#[test]
fn everyday_changes_have_the_class_one_expects() {
    let deep = |leaf: Value| json!({"type": "object", "properties": {"f": {"type": "array", "items": {"type": "object", "properties": {"s": leaf}}}}});
    let cases = [
        (json!({"maxLength": 5}), json!({"maxLength": 9}), ChangeClass::Widened),
        (json!({"maxLength": 9}), json!({"maxLength": 5}), ChangeClass::Narrowed),
        (json!({"minimum": 1}), json!({"minimum": 5}), ChangeClass::Narrowed),
        (json!({"maximum": 50}), json!({"maximum": 100}), ChangeClass::Widened),
        (json!({"exclusiveMinimum": 0}), json!({"minimum": 0}), ChangeClass::Widened),
        (json!({"minimum": 0}), json!({"exclusiveMinimum": 0}), ChangeClass::Narrowed),
        (json!({"minimum": 0, "exclusiveMinimum": true}), json!({"minimum": 0}), ChangeClass::Widened),
        (json!({"maximum": 9}), json!({"exclusiveMaximum": 12}), ChangeClass::Widened),
        (json!({}), json!({"format": "uri"}), ChangeClass::Narrowed),
        (json!({"format": "uri"}), json!({}), ChangeClass::Widened),
        (json!({"type": "string"}), json!({"type": "array", "items": {"type": "string"}}), ChangeClass::Breaking),
        (
            json!({"anyOf": [{"type": "string"}, {"type": "integer"}]}),
            json!({"anyOf": [{"type": "string"}]}),
            ChangeClass::Narrowed,
        ),
        (
            json!({"anyOf": [{"type": "string"}]}),
            json!({"anyOf": [{"type": "string"}, {"type": "integer"}]}),
            ChangeClass::Widened,
        ),
        (json!({"title": "a"}), json!({"title": "b"}), ChangeClass::Text),
        (json!({"description": "a"}), json!({"description": "b"}), ChangeClass::Text),
        (json!({"description": "a", "maximum": 2}), json!({"description": "b", "maximum": 3}), ChangeClass::Widened),
        (json!({"default": 1}), json!({}), ChangeClass::Other),
        (json!({"default": 1, "maximum": 2}), json!({"default": 2, "maximum": 3}), ChangeClass::Other),
        (json!({"default": 1, "maximum": 3}), json!({"default": 2, "maximum": 2}), ChangeClass::Narrowed),
        (
            json!({"type": "object", "properties": {"a": {}}, "additionalProperties": true}),
            json!({"type": "object", "properties": {"a": {}}, "additionalProperties": false}),
            ChangeClass::Narrowed,
        ),
        (
            json!({"type": "object", "properties": {"a": {}}}),
            json!({"type": "object", "properties": {"a": {}, "b": {}}, "required": ["b"]}),
            ChangeClass::Breaking,
        ),
        (json!({"type": "object", "properties": {"a": {}}}), json!({"type": "object"}), ChangeClass::Breaking),
    ];
    for (old, new, class) in cases {
        for schema in [|leaf: Value| json!({"type": "object", "properties": {"s": leaf}}), deep] {
            let offered = |leaf: &Value| json!({"name": "t", "inputSchema": schema(leaf.clone())});
            let comparison = compare_json(&offered(&old), &offered(&new));
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
    let comparison = compare_json(&offered("string"), &offered("integer"));
    assert_eq!(comparison.notes, ["its arguments: `not` changed", "gained an optional `b`"]);
    assert_eq!(comparison.class, ChangeClass::Narrowed);
}

/// Also where a condition is a list of names, not of keywords.
#[test]
fn what_named_conditions_refer_to_is_looked_at() {
    for keyword in ["patternProperties", "dependentSchemas", "dependencies"] {
        let offered = |kind: &str, fields: Value| json!({"name": "t", "inputSchema": {"properties": fields, keyword: {"title": {"$ref": "#/$defs/A"}}, "$defs": {"A": {"type": kind}}}});
        let comparison = compare_json(&offered("string", json!({})), &offered("integer", json!({"b": {}})));
        assert_eq!(comparison.notes[0], format!("its arguments: `{keyword}` changed"));
        assert_eq!(comparison.class, ChangeClass::Narrowed);
    }
    let dynamic = |kind: &str, fields: Value| json!({"name": "t", "inputSchema": {"properties": fields, "$dynamicRef": "#/$defs/A", "$defs": {"A": {"required": [kind]}}}});
    assert_eq!(compare_json(&dynamic("a", json!({})), &dynamic("b", json!({"b": {}}))).class, ChangeClass::Narrowed);
}

/// A change that is harmless must not hide one beside it that nobody looked at.
#[test]
fn what_is_not_looked_at_does_not_pass_for_harmless() {
    let stacked = |length: u32, properties: Value| {
        let a = |schema: Value| json!({"properties": {"a": schema}});
        json!({"properties": properties, "allOf": [a(json!({"type": "string"})), a(json!({"maxLength": length}))]})
    };
    let limited = |length: u32, properties: Value| json!({"properties": properties, "allOf": [{"minProperties": 1}, {"minProperties": length}]});
    let ways = |length: usize, properties: Value| {
        let mut ways: Vec<Value> = (0..100).map(|n| json!({"type": "object", "minProperties": n})).collect();
        ways[90]["maxProperties"] = json!(length + 200);
        json!({"properties": properties, "type": "object", "anyOf": ways})
    };
    let layers = |length: usize, properties: Value| {
        let mut layers = vec![json!({}); 50];
        layers[45] = json!({"minProperties": length});
        json!({"properties": properties, "allOf": layers})
    };
    let switched = |length: usize, mut properties: Value| {
        let keyword = if length == 5 { "anyOf" } else { "oneOf" };
        properties["x"] = json!({keyword: [{"type": "string", "maxLength": 5}, {"type": "string", "pattern": "a"}]});
        json!({"properties": properties})
    };
    let anchored = |length: usize, properties: Value| json!({"properties": properties, "$ref": "#a", "$defs": {"A": {"$anchor": "a", "minProperties": length}}});
    type SchemaBuilder<'a> = &'a dyn Fn(usize, Value) -> Value;
    let schemas: [(SchemaBuilder<'_>, &str); 6] = [
        (&|length, properties| stacked(length as u32, properties), "`a` changed in a way that cannot be classified"),
        (&|length, properties| limited(length as u32, properties), "changed in a way that cannot be classified"),
        (&ways, "changed in a way that cannot be classified"),
        (&layers, "changed in a way that cannot be classified"),
        (&switched, "`x` changed in a way that cannot be classified"),
        (&anchored, "changed in a way that cannot be classified"),
    ];
    for (schema, note) in schemas {
        let offered =
            |length: usize, properties: Value| json!({"name": "t", "inputSchema": schema(length, properties)});
        let comparison = compare_json(&offered(100, json!({})), &offered(5, json!({"page": {}})));
        assert_eq!((comparison.class, comparison.notes[0].as_str()), (ChangeClass::Other, note), "{comparison:?}");
    }
    // What is stacked and stays is no reason to doubt the rest.
    let page = json!({"page": {}});
    check(stacked(5, json!({})), stacked(5, page.clone()), ChangeClass::Widened, "gained an optional `page`");
    check(limited(5, json!({})), limited(5, page), ChangeClass::Widened, "gained an optional `page`");
}

/// Each pair differs in what it takes, or not, whatever a glance says.
#[test]
fn plain_forms_are_the_same_for_what_means_the_same_alone() {
    let like = |old: &Value, new: &Value| NormalForm::new(old).is_equivalent(&NormalForm::new(new));
    let at = |inner: Value| json!({"properties": {"r": {"$ref": "#/$defs/O"}}, "$defs": inner});
    let to = |name: &str| json!({"$ref": format!("#/$defs/{name}")});
    let object = |field: &str, schema: Value| json!({"type": "object", "properties": {field: schema}});
    // Which of those around it a definition leads back to.
    let outer = at(json!({"O": object("s", to("P")), "P": object("x", object("y", to("O")))}));
    let inner = json!({"properties": {"r": object("s", to("P"))}, "$defs": {"P": object("x", to("Q")), "Q": object("y", to("P"))}});
    assert!(!like(&outer, &inner));
    // Not through how many others.
    let through = at(json!({"O": object("s", to("P")), "P": object("x", to("Q")), "Q": object("y", to("O"))}));
    assert!(like(&outer, &through));
    let both = at(json!({"O": to("P"), "P": object("x", json!({"anyOf": [to("O"), to("P")]}))}));
    assert!(like(&both, &both) && !like(&both, &outer));

    let small = json!({"maximum": 3});
    let none = json!({"type": "null"});
    assert!(!like(&json!({"oneOf": [small, small, none]}), &json!({"oneOf": [small, none]})));
    assert!(like(&json!({"anyOf": [small, small, none]}), &json!({"anyOf": [none, small]})));

    let open = json!({"additionalProperties": true, "items": {}});
    let closed = |inner: &Value| json!({"unevaluatedProperties": false, "allOf": [inner], "properties": {"a": {}}});
    assert!(like(&open, &json!({})));
    assert!(!like(&closed(&open), &closed(&json!({}))));
    let said = json!({"minimum": 1, "type": "number", "nullable": false, "exclusiveMinimum": false, "exclusiveMaximum": false});
    assert!(like(&said, &json!({"minimum": 1, "type": "number"})));
}

#[test]
fn every_class_is_written_as_it_is_called() {
    for class in ChangeClass::ALL {
        assert_eq!(serde_json::to_value(class).unwrap(), json!(class.as_str()));
    }
    assert_eq!(serde_json::from_value::<ChangeClass>(json!("of_the_future")).unwrap(), ChangeClass::Other);
}

/// What is written otherwise and means the same must not frighten anybody, and what means more must not pass for less.
#[test]
fn ways_of_writing_the_same_are_told_from_changes() {
    const SAME: &str = "its input schema is written differently and means the same";
    const UNTOLD: &str = "its input schema changed in a way that cannot be classified";
    let titled = |title: &str, field: &str| json!({"type": "object", "title": title, "properties": {field: {}}});
    let string = json!({"type": "string"});
    let number = json!({"type": "number"});
    let nothing = json!({"type": "null"});
    for (old, new, class, note) in [
        (json!({"type": ["string", "null"]}), json!({"anyOf": [string, nothing]}), ChangeClass::Text, SAME),
        (json!({"type": "string", "nullable": true}), json!({"type": ["null", "string"]}), ChangeClass::Text, SAME),
        (
            json!({"oneOf": [{"anyOf": [string, number]}, nothing]}),
            json!({"anyOf": [nothing, number, string]}),
            ChangeClass::Text,
            SAME,
        ),
        (json!({"allOf": [string]}), string.clone(), ChangeClass::Text, SAME),
        (json!({"enum": ["a", "b"]}), json!({"oneOf": [{"const": "b"}, {"const": "a"}]}), ChangeClass::Text, SAME),
        (
            json!({"enum": ["a", null], "type": ["string", "null"]}),
            json!({"anyOf": [{"const": "a"}, nothing]}),
            ChangeClass::Text,
            SAME,
        ),
        (
            json!({"type": "integer"}),
            json!({"anyOf": [number, nothing]}),
            ChangeClass::Widened,
            "`x` also takes number",
        ),
        (
            json!({"anyOf": [number, nothing]}),
            json!({"type": ["integer", "null"]}),
            ChangeClass::Narrowed,
            "`x` no longer takes number",
        ),
        (json!({}), json!({"anyOf": [string, number]}), ChangeClass::Narrowed, "`x` takes only number, string now"),
        (json!({"anyOf": [string, number]}), json!({}), ChangeClass::Widened, "`x` takes any type now"),
        (
            json!({"type": "integer"}),
            json!({"type": ["string", "null"]}),
            ChangeClass::Breaking,
            "`x`: integer became null, string",
        ),
        (
            json!({"anyOf": [{"const": "a"}, {"const": "b"}]}),
            json!({"anyOf": [{"const": "a"}, {"const": "c"}]}),
            ChangeClass::Narrowed,
            "`x` no longer takes `b`",
        ),
        (json!({"anyOf": [{"enum": ["a"]}, string]}), string.clone(), ChangeClass::Other, UNTOLD),
        (
            json!({"anyOf": [titled("A", "a"), titled("B", "b")]}),
            json!({"anyOf": [titled("B", "b"), titled("A", "a"), titled("C", "c")]}),
            ChangeClass::Widened,
            "`x` also takes object `C`",
        ),
        (
            json!({"anyOf": [titled("A", "a"), titled("B", "b")]}),
            json!({"anyOf": [titled("B", "x"), titled("A", "a")]}),
            ChangeClass::Breaking,
            "`x.b` became `x.x`",
        ),
        (json!({"minLength": 1}), json!({"minLength": 1.0, "uniqueItems": false}), ChangeClass::Text, SAME),
        (json!({"examples": ["a"]}), json!({"examples": ["b"]}), ChangeClass::Text, "`x`: its examples changed"),
    ] {
        check_argument(old, new, class, note);
    }
    // A definition that takes nothing too, whoever refers to it.
    let union = |nullable: bool| {
        let mut ways = vec![json!({"$ref": "#/$defs/A"}), json!({"$ref": "#/$defs/B"})];
        ways.extend(nullable.then(|| nothing.clone()));
        json!({"properties": {"x": {"$ref": "#/$defs/U"}}, "$defs": {"U": {"anyOf": ways}, "A": titled("A", "a"), "B": titled("B", "b")}})
    };
    check(union(false), union(true), ChangeClass::Widened, "`x` also takes null");
    check(union(true), union(false), ChangeClass::Narrowed, "`x` no longer takes null");
    let beside =
        |length: u32| json!({"properties": {"x": {"$ref": "#/$defs/S", "maxLength": length}}, "$defs": {"S": string}});
    check(beside(5), beside(6), ChangeClass::Widened, "`x`: maxLength 5 became 6");
}
