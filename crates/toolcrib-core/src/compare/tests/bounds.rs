//! A schema comes from outside: work and words stay within bounds.

use serde_json::{Value, json};

use super::*;
use crate::lockfile::ToolParts;

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
    assert_eq!(
        compare_json(&bomb("string"), &bomb("integer")).class,
        ChangeClass::Other,
        "too deep to be seen to its end"
    );
    let wide = |kind: &str| {
        let ways: Vec<Value> = (0..2_000).map(|index| json!({"type": kind, "maxLength": index})).collect();
        let fields: serde_json::Map<String, Value> =
            (0..200).map(|index| (format!("{}{index}", "x".repeat(200)), json!({"anyOf": ways[..20]}))).collect();
        json!({"name": "t", "inputSchema": {"anyOf": ways, "properties": fields}})
    };
    let comparison = compare_json(&wide("string"), &wide("integer"));
    assert_eq!(comparison.class, ChangeClass::Breaking);
    assert!(comparison.notes.len() <= 13 && comparison.notes.iter().all(|note| note.len() < 600), "{comparison:?}");
    let mut spent = WorkBudget(3);
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
    let old = tool(&hostile("a"));
    let new = tool(&hostile("b"));
    let mut allowance = WorkBudget::default();
    let comparison = compare(&old, &new, &mut allowance);
    assert_eq!(allowance.0, 0, "there was more to look at than is allowed");
    assert_eq!(comparison.class, ChangeClass::Breaking, "{:?}", comparison.notes);
    assert!(comparison.notes.len() <= 13 && comparison.notes.iter().all(|note| note.len() < 600));
    let comparison = compare(&old, &new, &mut allowance);
    assert_eq!(comparison.notes[0], "is too large to be compared in full", "of a list, the next is not begun");
}

/// What many arguments refer to is written for each of them, so it is paid for each time, whatever it is.
#[test]
fn what_is_written_of_a_schema_is_bounded_whatever_is_referred_to() {
    let long = |end: &str| format!("{}{end}", "x".repeat(50_000));
    let targets: [&dyn Fn(&str) -> Value; 6] = [
        &|end| json!([vec![0; 40_000], end]),
        &|end| json!(long(end)),
        &|end| json!({ long(end): {} }),
        &|end| json!({"properties": {long(end): {}}}),
        &|end| json!({"enum": [{long(end): 0}]}),
        &|end| json!({"$ref": format!("#/$defs/{}", long(end))}),
    ];
    for target in targets {
        let schema = |end: &str, words: &str| {
            let arguments: serde_json::Map<String, Value> =
                (0..2_500).map(|n| (format!("p{n}"), json!({"$ref": "#/$defs/X"}))).collect();
            let definitions = json!({"X": target(end), long(end): {"type": "string", "title": words}});
            json!({"properties": arguments, "$defs": definitions})
        };
        let plain = NormalForm::new(&schema("a", ""));
        assert!(plain.schema.to_string().len() < 2 * schema("a", "").to_string().len(), "no more than was there");
        assert!(
            plain.is_equivalent(&NormalForm::new(&schema("a", "other words"))),
            "it is seen to be the same all the same"
        );
        assert!(!plain.is_equivalent(&NormalForm::new(&schema("b", ""))));
        assert!(plain.work < 200_000, "{}", plain.work);

        let offered = |end: &str| tool(&json!({"name": "t", "inputSchema": schema(end, "")}));
        let old = offered("a");
        let new = offered("b");
        let parts = |tool: &Tool| ToolParts::from_tool(tool, &mut WorkBudget::default());
        let before = parts(&old);
        let after = parts(&new);
        assert!(before.input_schema.is_none() && before.input != after.input && before.input == parts(&old).input);
        let comparison = compare(&old, &new, &mut WorkBudget::default());
        assert!(comparison.class.severity() >= ChangeClass::Other.severity(), "{comparison:?}");
    }
}

/// Every row is sorted by its text: what lies under a hundred rows is written a hundred times.
#[test]
fn rows_around_a_large_schema_are_paid_for() {
    let level = |index: usize| json!({"anyOf": [{"$ref": format!("#/$defs/d{}", index + 1)}, {"type": "null"}]});
    let mut definitions: serde_json::Map<String, Value> = (0..60).map(|n| (format!("d{n}"), level(n))).collect();
    let values: Vec<String> = (0..5_000).map(|n| format!("v{n}")).collect();
    definitions.insert("d60".to_owned(), json!({"enum": values, "minLength": 1}));
    let plain = NormalForm::new(&json!({"properties": {"x": {"$ref": "#/$defs/d0"}}, "$defs": definitions}));
    assert!(plain.is_complete && plain.work > 30_000, "{}", plain.work);
}

/// Alternatives beside other keywords lead to themselves without passing a property or an item.
#[test]
fn alternatives_that_lead_to_themselves_end() {
    let schema = |title: &str| {
        let again = json!({"$ref": "#/$defs/d", "minProperties": 2});
        json!({"name": "t", "inputSchema": {
            "properties": {"x": {"$ref": "#/$defs/d"}}, "$defs": {"d": {"type": "object", "title": title, "anyOf": [again]}},
        }})
    };
    assert!(compare_json(&schema("a"), &schema("b")).notes.contains(&"the title of `x` changed".to_owned()));
}

/// Of what is too much to be written, and refers to places that move when it is written otherwise, nothing is known.
#[test]
fn what_cannot_be_written_out_is_never_like_another() {
    let schema = |first: &str, second: &str| {
        let arguments: serde_json::Map<String, Value> =
            (0..4_500).map(|n| (format!("p{n}"), json!({"$ref": "#/anyOf/0"}))).collect();
        json!({"properties": arguments, "anyOf": [{"required": [first]}, {"required": [second]}], "enum": vec![0; 20_000]})
    };
    let one = NormalForm::new(&schema("p0", "p1"));
    assert!(!one.is_equivalent(&NormalForm::new(&schema("p1", "p0"))) && !one.is_equivalent(&one));
}

#[test]
fn names_of_types_are_cleaned_and_short() {
    let schema = |name: &str| json!({"name": "t", "inputSchema": {"properties": {"x": {"anyOf": [{"type": name}, {"type": "null"}]}}}});
    let long = format!("evil\u{1b}[31m\n{}", "y".repeat(100_000));
    let comparison = compare_json(&schema("string"), &schema(&long));
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
    let old = tool(&offered("a"));
    let new = tool(&offered("b"));
    let change = crate::manifest::ToolChange::between(&old, &new, &mut WorkBudget::default());
    assert!(change.fields.len() <= 60 && change.notes.len() <= 13, "{}", change.fields.len());
}
