mod bounds;
mod effects;
mod renames;

use serde_json::value::to_raw_value;
use serde_json::{Value, json};
use toolcrib_core::manifest::{Manifest, PackedManifest, ToolLimits};
use toolcrib_core::source::SourceId;

use super::*;

fn tool(tool_with: &Value) -> Tool {
    let id = SourceId::parse("git").unwrap();
    let manifest = Manifest::new(&id, &[to_raw_value(tool_with).unwrap()], Vec::new(), &ToolLimits::default());
    manifest.tools.into_iter().next().unwrap_or_else(|| panic!("{:?}", manifest.skipped)).0
}

fn compare_json(old: &Value, new: &Value) -> ToolComparison {
    compare(&tool(old), &tool(new), &mut WorkBudget::default())
}

/// Compares two input schemas, and checks the class and the first note.
fn check(old: Value, new: Value, class: ChangeClass, note: &str) {
    let comparison = compare_json(&json!({"name": "t", "inputSchema": old}), &json!({"name": "t", "inputSchema": new}));
    assert_eq!((comparison.class, comparison.notes[0].as_str()), (class, note), "{:?}", comparison.notes);
}

/// Compares two schemas of the argument `x`.
fn check_argument(old: Value, new: Value, class: ChangeClass, note: &str) {
    let schema = |argument: Value| json!({"type": "object", "properties": {"x": argument}});
    check(schema(old), schema(new), class, note);
}

#[test]
fn a_percent_encoded_reference_is_followed() {
    let schema = |reference: &str, name: &str| json!({"properties": {"x": {"$ref": reference}}, "$defs": {"a place": {"type": name}}});
    check(
        schema("#/$defs/a%20place", "string"),
        schema("#/$defs/a%20place", "integer"),
        ChangeClass::Breaking,
        "`x`: string became integer",
    );
    check(
        schema("#/$defs/a%20place", "string"),
        schema("#/$defs/a place", "string"),
        ChangeClass::Text,
        "its input schema is written differently and means the same",
    );
}

#[test]
fn changes_of_arguments_are_classified() {
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
    check(json!({}), json!({"additionalProperties": false}), ChangeClass::Narrowed, "no longer accepts unknown fields");
    check(json!({"additionalProperties": false}), json!({}), ChangeClass::Widened, "also accepts unknown fields");
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
fn changes_of_accepted_values_are_classified() {
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
        (json!({"type": "string"}), json!({}), ChangeClass::Widened, "`x` accepts any type now"),
        (json!(true), json!({"type": "string"}), ChangeClass::Narrowed, "`x` accepts only string now"),
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
        (json!({}), json!({"enum": [1, "a"]}), ChangeClass::Narrowed, "`x` accepts only `a`, `1` now"),
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
        (json!({"items": {"type": "string"}}), json!({}), ChangeClass::Widened, "`x[]` accepts anything now"),
        (json!({}), json!({"items": {"type": "string"}}), ChangeClass::Narrowed, "`x[]` no longer accepts every value"),
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
        (json!({}), json!(false), ChangeClass::Breaking, "`x` accepts no value any more"),
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
fn a_change_behind_a_reference_is_reported_once_and_cycles_end() {
    let schema = |kind: &str| {
        json!({
            "properties": {"a": {"$ref": "#/$defs/Node"}, "b": {"$ref": "#/$defs/Node"}},
            "$defs": {"Node": {"properties": {"value": {"type": kind}, "next": {"$ref": "#/$defs/Node"}, "me": {"$ref": "#/$defs/Me"}}}, "Me": {"$ref": "#/$defs/Me"}},
        })
    };
    let tool_with = |kind: &str| json!({"name": "t", "inputSchema": schema(kind)});
    let comparison = compare_json(&tool_with("string"), &tool_with("integer"));
    assert_eq!(
        (comparison.class, comparison.notes),
        (ChangeClass::Breaking, vec!["`a.value`: string became integer".to_owned()])
    );
    // A reference to an anchor is not resolved, and does not count as unchanged.
    let anchored = |kind: &str| json!({"name": "t", "inputSchema": {"properties": {"a": {"$ref": "#here"}}, "$defs": {"A": {"$anchor": "here", "type": kind}}}});
    assert_eq!(compare_json(&anchored("string"), &anchored("integer")).class, ChangeClass::Other);
    // A reference and its inlined target mean the same.
    let inlined = json!({"name": "t", "inputSchema": {"properties": {"a": {"type": "string"}}}});
    let referred = json!({"name": "t", "inputSchema": {"properties": {"a": {"$ref": "#/$defs/A"}}, "$defs": {"A": {"type": "string"}}}});
    let comparison = compare_json(&inlined, &referred);
    assert_eq!(
        (comparison.class, comparison.notes),
        (ChangeClass::Text, vec!["its input schema is written differently and means the same".to_owned()])
    );
}

/// Single changes that are common in practice.
#[test]
fn common_changes_have_the_expected_class() {
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
            let tool_with = |leaf: &Value| json!({"name": "t", "inputSchema": schema(leaf.clone())});
            let comparison = compare_json(&tool_with(&old), &tool_with(&new));
            assert_eq!(comparison.class, class, "{old} to {new}: {:?}", comparison.notes);
        }
    }
}

/// An unchanged constraint may refer to a changed definition.
#[test]
fn definitions_behind_constraints_are_compared() {
    let schema = |kind: &str| {
        let gained: Value = if kind == "string" { json!({}) } else { json!({"b": {}}) };
        json!({"properties": gained, "not": {"properties": {"a": {"$ref": "#/$defs/A"}}}, "$defs": {"A": {"type": kind}}})
    };
    let tool_with = |kind: &str| json!({"name": "t", "inputSchema": schema(kind)});
    let comparison = compare_json(&tool_with("string"), &tool_with("integer"));
    assert_eq!(comparison.notes, ["its arguments: `not` changed", "gained an optional `b`"]);
    assert_eq!(comparison.class, ChangeClass::Narrowed);
}

/// The same for keywords that map names to schemas.
#[test]
fn definitions_behind_constraint_maps_are_compared() {
    for keyword in ["patternProperties", "dependentSchemas", "dependencies"] {
        let tool_with = |kind: &str, fields: Value| json!({"name": "t", "inputSchema": {"properties": fields, keyword: {"title": {"$ref": "#/$defs/A"}}, "$defs": {"A": {"type": kind}}}});
        let comparison = compare_json(&tool_with("string", json!({})), &tool_with("integer", json!({"b": {}})));
        assert_eq!(comparison.notes[0], format!("its arguments: `{keyword}` changed"));
        assert_eq!(comparison.class, ChangeClass::Narrowed);
    }
    let dynamic = |kind: &str, fields: Value| json!({"name": "t", "inputSchema": {"properties": fields, "$dynamicRef": "#/$defs/A", "$defs": {"A": {"required": [kind]}}}});
    assert_eq!(compare_json(&dynamic("a", json!({})), &dynamic("b", json!({"b": {}}))).class, ChangeClass::Narrowed);
}

/// A harmless change must not hide one that the comparison does not interpret.
#[test]
fn uninterpreted_changes_are_never_harmless() {
    let repeated = |length: u32, properties: Value| {
        let a = |schema: Value| json!({"properties": {"a": schema}});
        json!({"properties": properties, "allOf": [a(json!({"type": "string"})), a(json!({"maxLength": length}))]})
    };
    let repeated_limit = |length: u32, properties: Value| json!({"properties": properties, "allOf": [{"minProperties": 1}, {"minProperties": length}]});
    let alternatives = |length: usize, properties: Value| {
        let mut alternatives: Vec<Value> = (0..100).map(|n| json!({"type": "object", "minProperties": n})).collect();
        alternatives[90]["maxProperties"] = json!(length + 200);
        json!({"properties": properties, "type": "object", "anyOf": alternatives})
    };
    let many_layers = |length: usize, properties: Value| {
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
        (&|length, properties| repeated(length as u32, properties), "`a` changed in a way that cannot be classified"),
        (&|length, properties| repeated_limit(length as u32, properties), "changed in a way that cannot be classified"),
        (&alternatives, "changed in a way that cannot be classified"),
        (&many_layers, "changed in a way that cannot be classified"),
        (&switched, "`x` changed in a way that cannot be classified"),
        (&anchored, "changed in a way that cannot be classified"),
    ];
    for (schema, note) in schemas {
        let tool_with =
            |length: usize, properties: Value| json!({"name": "t", "inputSchema": schema(length, properties)});
        let comparison = compare_json(&tool_with(100, json!({})), &tool_with(5, json!({"page": {}})));
        assert_eq!((comparison.class, comparison.notes[0].as_str()), (ChangeClass::Other, note), "{comparison:?}");
    }
    // Repeated keywords that did not change do not make the result uncertain.
    let page = json!({"page": {}});
    check(repeated(5, json!({})), repeated(5, page.clone()), ChangeClass::Widened, "gained an optional `page`");
    check(repeated_limit(5, json!({})), repeated_limit(5, page), ChangeClass::Widened, "gained an optional `page`");
}

/// Pairs of schemas that are equivalent, or look so and are not.
#[test]
fn normal_forms_are_equal_for_equivalent_schemas_only() {
    let is_equivalent = |old: &Value, new: &Value| NormalForm::new(old).is_equivalent(&NormalForm::new(new));
    let with_definitions = |inner: Value| json!({"properties": {"r": {"$ref": "#/$defs/O"}}, "$defs": inner});
    let reference = |name: &str| json!({"$ref": format!("#/$defs/{name}")});
    let object = |field: &str, schema: Value| json!({"type": "object", "properties": {field: schema}});
    // Cycles that lead back to different definitions differ.
    let outer =
        with_definitions(json!({"O": object("s", reference("P")), "P": object("x", object("y", reference("O")))}));
    let inner = json!({"properties": {"r": object("s", reference("P"))}, "$defs": {"P": object("x", reference("Q")), "Q": object("y", reference("P"))}});
    assert!(!is_equivalent(&outer, &inner));
    // The number of definitions on the way does not matter.
    let indirect = with_definitions(
        json!({"O": object("s", reference("P")), "P": object("x", reference("Q")), "Q": object("y", reference("O"))}),
    );
    assert!(is_equivalent(&outer, &indirect));
    let two_cycles = with_definitions(
        json!({"O": reference("P"), "P": object("x", json!({"anyOf": [reference("O"), reference("P")]}))}),
    );
    assert!(is_equivalent(&two_cycles, &two_cycles) && !is_equivalent(&two_cycles, &outer));

    let limited = json!({"maximum": 3});
    let null_type = json!({"type": "null"});
    assert!(!is_equivalent(&json!({"oneOf": [limited, limited, null_type]}), &json!({"oneOf": [limited, null_type]})));
    assert!(is_equivalent(&json!({"anyOf": [limited, limited, null_type]}), &json!({"anyOf": [null_type, limited]})));

    let open = json!({"additionalProperties": true, "items": {}});
    let closed = |inner: &Value| json!({"unevaluatedProperties": false, "allOf": [inner], "properties": {"a": {}}});
    assert!(is_equivalent(&open, &json!({})));
    assert!(!is_equivalent(&closed(&open), &closed(&json!({}))));
    let with_defaults = json!({"minimum": 1, "type": "number", "nullable": false, "exclusiveMinimum": false, "exclusiveMaximum": false});
    assert!(is_equivalent(&with_defaults, &json!({"minimum": 1, "type": "number"})));
}

#[test]
fn every_class_serializes_as_its_name() {
    for class in ChangeClass::ALL {
        assert_eq!(serde_json::to_value(class).unwrap(), json!(class.as_str()));
    }
    assert_eq!(serde_json::from_value::<ChangeClass>(json!("of_the_future")).unwrap(), ChangeClass::Other);
}

/// Equivalent notations count as `Text`, and real changes among them keep their class.
#[test]
fn equivalent_notations_are_no_change() {
    const SAME: &str = "its input schema is written differently and means the same";
    const UNCLASSIFIED: &str = "its input schema changed in a way that cannot be classified";
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
        (json!({}), json!({"anyOf": [string, number]}), ChangeClass::Narrowed, "`x` accepts only number, string now"),
        (json!({"anyOf": [string, number]}), json!({}), ChangeClass::Widened, "`x` accepts any type now"),
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
        (json!({"anyOf": [{"enum": ["a"]}, string]}), string.clone(), ChangeClass::Other, UNCLASSIFIED),
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
    // The same behind a reference.
    let union = |nullable: bool| {
        let mut alternatives = vec![json!({"$ref": "#/$defs/A"}), json!({"$ref": "#/$defs/B"})];
        alternatives.extend(nullable.then(|| nothing.clone()));
        json!({"properties": {"x": {"$ref": "#/$defs/U"}}, "$defs": {"U": {"anyOf": alternatives}, "A": titled("A", "a"), "B": titled("B", "b")}})
    };
    check(union(false), union(true), ChangeClass::Widened, "`x` also takes null");
    check(union(true), union(false), ChangeClass::Narrowed, "`x` no longer takes null");
    let with_sibling =
        |length: u32| json!({"properties": {"x": {"$ref": "#/$defs/S", "maxLength": length}}, "$defs": {"S": string}});
    check(with_sibling(5), with_sibling(6), ChangeClass::Widened, "`x`: maxLength 5 became 6");
}
