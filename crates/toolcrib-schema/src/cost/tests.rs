use serde_json::json;

use super::*;

fn validation_cost(schema: &Value, value: &Value) -> Option<u64> {
    CostModel::new(schema).unwrap().validation_steps(value, 100_000)
}

fn unbounded_reason(schema: &Value) -> Option<Unbounded> {
    CostModel::new(schema).err()
}

/// Chain of definitions, each built by `level` from a reference to the next.
fn levels(count: usize, level: impl Fn(Value) -> Value) -> Value {
    let mut definitions = Map::new();
    for index in 0..count {
        let next = json!({ "$ref": format!("#/$defs/l{}", index + 1) });
        definitions.insert(format!("l{index}"), level(next));
    }
    definitions.insert(format!("l{count}"), json!(true));
    json!({ "$ref": "#/$defs/l0", "$defs": definitions })
}

#[test]
fn every_keyword_that_applies_a_subschema_twice_is_counted() {
    for keyword in ["allOf", "anyOf", "oneOf"] {
        assert_eq!(
            unbounded_reason(&levels(40, |next| json!({ keyword: [next, next] }))),
            Some(Unbounded::Paths),
            "{keyword}"
        );
    }
    for level in [
        |next: Value| json!({ "if": next, "then": next }),
        |next| json!({ "not": next, "else": next }),
        |next| json!({ "dependentSchemas": { "a": next, "b": next } }),
        |next| json!({ "dependencies": { "a": next, "b": next } }),
        |next| json!({ "not": next, "allOf": [next] }),
    ] {
        assert_eq!(unbounded_reason(&levels(40, level)), Some(Unbounded::Paths), "{}", level(json!("next")));
    }
}

#[test]
fn subschemas_of_members_and_items_multiply_with_the_depth_of_the_value() {
    let nested = |wrap: fn(Value) -> Value| (0..40).fold(json!(1), |value, _| wrap(value));
    let in_object = |value| json!({ "a": value });
    let in_array = |value| json!([value]);
    for (level, wrap) in [
        (
            (|next| json!({ "properties": { "a": next }, "additionalProperties": next })) as fn(Value) -> Value,
            in_object as fn(Value) -> Value,
        ),
        (|next| json!({ "properties": { "a": next }, "patternProperties": { "a": next } }), in_object),
        (|next| json!({ "additionalProperties": next, "unevaluatedProperties": next }), in_object),
        (|next| json!({ "items": next, "contains": next }), in_array),
        (|next| json!({ "prefixItems": [next], "contains": next }), in_array),
        (|next| json!({ "prefixItems": [next], "items": [next] }), in_array),
        (|next| json!({ "items": next, "unevaluatedItems": next }), in_array),
    ] {
        let schema = levels(40, level);
        assert_eq!(validation_cost(&schema, &nested(wrap)), None, "{}", level(json!("next")));
        assert!(validation_cost(&schema, &wrap(json!(1))).is_some());
    }
}

#[test]
fn nested_unevaluated_keywords_are_counted_repeatedly() {
    let schema = levels(30, |next| json!({ "unevaluatedProperties": true, "anyOf": [next] }));
    assert_eq!(validation_cost(&schema, &json!({ "a": 1 })), None);
    let schema = levels(3, |next| json!({ "unevaluatedProperties": true, "anyOf": [next] }));
    assert!(validation_cost(&schema, &json!({ "a": 1 })).is_some());
}

#[test]
fn long_chains_and_cycles_of_references_are_too_deep() {
    assert_eq!(unbounded_reason(&levels(400, |next| next)), None);
    assert_eq!(unbounded_reason(&levels(20_000, |next| next)), Some(Unbounded::Depth));
    assert_eq!(unbounded_reason(&levels(3_000, |next| json!({ "allOf": [next] }))), Some(Unbounded::Depth));
    let cycle = json!({ "$ref": "#/$defs/a", "$defs": { "a": { "allOf": [{ "$ref": "#/$defs/b" }] }, "b": { "not": { "$ref": "#/$defs/a" } } } });
    assert_eq!(unbounded_reason(&cycle), Some(Unbounded::Depth));
    assert_eq!(unbounded_reason(&json!({ "allOf": [{ "$ref": "#" }] })), Some(Unbounded::Depth));
    // Every cycle consumes a level of the value.
    assert_eq!(unbounded_reason(&json!({ "properties": { "a": { "$ref": "#" } } })), None);
}

#[test]
fn references_are_resolved_in_every_form_or_rejected() {
    let twice = json!({ "allOf": vec![json!(true); 20_000] });
    for (reference, definitions) in [
        ("#/$defs/a", json!({ "a": twice })),
        ("#/$defs/a%20b", json!({ "a b": twice })),
        ("#/$defs/a~1b", json!({ "a/b": twice })),
        ("#named", json!({ "a": { "$anchor": "named", "allOf": twice["allOf"] } })),
        ("#named", json!({ "a": { "$id": "#named", "allOf": twice["allOf"] } })),
    ] {
        for keyword in ["$ref", "$dynamicRef"] {
            let schema = json!({ "not": { keyword: reference }, "$defs": definitions });
            assert_eq!(unbounded_reason(&schema), Some(Unbounded::Paths), "{reference}");
        }
    }
    let ambiguous = json!({ "$ref": "#n", "$defs": { "a": { "$anchor": "n" }, "b": { "$anchor": "n" } } });
    let elsewhere =
        json!({ "$ref": "#/$defs/a", "$defs": { "a": { "$id": "http://a.example/", "$ref": "#/$defs/b" } } });
    let draft_4 = json!({ "$schema": "http://json-schema.org/draft-04/schema#", "not": { "id": "http://a.example/" } });
    let not_there = json!({ "$ref": "#/$defs/a" });
    let remote = json!({ "$ref": "http://a.example/" });
    for schema in [ambiguous, elsewhere, draft_4, not_there, remote] {
        assert_eq!(unbounded_reason(&schema), Some(Unbounded::Reference), "{schema}");
    }
    // `id` is not a keyword after draft 4.
    assert_eq!(unbounded_reason(&json!({ "not": { "id": "a name" } })), None);
}

#[test]
fn work_within_one_subschema_is_counted() {
    let long = "a".repeat(1_000_000);
    let many = vec![json!(1); 100_000];
    for (schema, value) in [
        (json!({ "allOf": vec![json!({ "maxLength": 5 }); 100] }), json!(long)),
        (json!({ "pattern": "^(a{0,100}b?){0,10}$" }), json!(long)),
        (json!({ "items": { "pattern": "(?=a)a" } }), json!(vec!["a"; 100])),
        (json!({ "items": { "enum": vec!["b"; 1_000] } }), json!(vec!["a"; 1_000])),
        (json!({ "items": { "required": vec!["b"; 1_000] } }), json!(vec!["a"; 1_000])),
        (json!({ "uniqueItems": true }), json!(many)),
        (json!({ "allOf": vec![json!({ "items": true }); 10] }), json!(many)),
        (json!({ "propertyNames": { "pattern": "(?=a)a" } }), {
            let members: Map<String, Value> = (0..100).map(|index| (format!("n{index}"), json!(1))).collect();
            json!(members)
        }),
    ] {
        assert_eq!(validation_cost(&schema, &value), None, "{}", toolcrib_core::json::truncated_json(&schema, 80));
    }
}
