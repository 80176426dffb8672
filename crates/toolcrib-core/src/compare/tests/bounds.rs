//! A schema comes from outside: work and words stay within bounds.

use serde_json::{Value, json};

use super::*;

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
