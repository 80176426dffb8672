//! Work, memory and notes are bounded for hostile schemas.

use serde_json::{Value, json};

use super::*;
use crate::lockfile::ToolParts;

/// Exponential references, many alternatives and an exhausted budget.
#[test]
fn hostile_schemas_are_compared_within_bounds() {
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
        "too deep to compare to the end"
    );
    let wide = |kind: &str| {
        let alternatives: Vec<Value> = (0..2_000).map(|index| json!({"type": kind, "maxLength": index})).collect();
        let fields: serde_json::Map<String, Value> = (0..200)
            .map(|index| (format!("{}{index}", "x".repeat(200)), json!({"anyOf": alternatives[..20]})))
            .collect();
        json!({"name": "t", "inputSchema": {"anyOf": alternatives, "properties": fields}})
    };
    let comparison = compare_json(&wide("string"), &wide("integer"));
    assert_eq!(comparison.class, ChangeClass::Breaking);
    assert!(comparison.notes.len() <= 13 && comparison.notes.iter().all(|note| note.len() < 600), "{comparison:?}");
    let mut budget = WorkBudget::new(3);
    let comparison = compare(&tool(&wide("string")), &tool(&wide("integer")), &mut budget);
    assert!(comparison.notes.concat().contains("too large to be compared in full"), "{comparison:?}");
}

/// A definition that thousands of arguments refer to is compared once, or until the budget is spent.
#[test]
fn work_on_a_shared_definition_is_bounded() {
    let hostile = |suffix: &str| {
        let fields: serde_json::Map<String, Value> = (0..3_000).map(|n| (format!("f{n}"), json!({}))).collect();
        let values: Vec<String> = (0..3_000).map(|n| format!("v{n}{suffix}")).collect();
        let alternatives = [
            json!({"anyOf": [{"$ref": "#/$defs/D"}]}),
            json!({"anyOf": [{"$ref": "#/$defs/D"}, {"type": "null"}]}),
            json!({"$ref": "#/$defs/D", "minProperties": 1}),
            json!({"$ref": "#/$defs/E"}),
            json!({"anyOf": [{"$ref": "#/$defs/E"}, {"type": "null"}]}),
        ];
        let arguments: serde_json::Map<String, Value> =
            (0..2_000).map(|n| (format!("a{n}"), alternatives[n % 5].clone())).collect();
        let definitions = json!({"D": {"properties": fields, "title": suffix}, "E": {"enum": values}});
        json!({"name": "t", "inputSchema": {"properties": arguments, "$defs": definitions}})
    };
    let old = tool(&hostile("a"));
    let new = tool(&hostile("b"));
    let mut budget = WorkBudget::default();
    let comparison = compare(&old, &new, &mut budget);
    assert!(budget.is_exhausted(), "the work exceeds the budget");
    assert_eq!(comparison.class, ChangeClass::Breaking, "{:?}", comparison.notes);
    assert!(comparison.notes.len() <= 13 && comparison.notes.iter().all(|note| note.len() < 600));
    let comparison = compare(&old, &new, &mut budget);
    assert_eq!(comparison.notes[0], "is too large to be compared in full", "the next tool of a list is not compared");
}

/// Inlining writes a target once per reference, so each time is charged, whatever kind of value it is.
#[test]
fn normal_forms_are_bounded_for_every_kind_of_target() {
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
        let schema = |end: &str, title: &str| {
            let arguments: serde_json::Map<String, Value> =
                (0..2_500).map(|n| (format!("p{n}"), json!({"$ref": "#/$defs/X"}))).collect();
            let definitions = json!({"X": target(end), long(end): {"type": "string", "title": title}});
            json!({"properties": arguments, "$defs": definitions})
        };
        let form = NormalForm::new(&schema("a", ""));
        assert!(form.schema.to_string().len() < 2 * schema("a", "").to_string().len(), "no larger than the schema");
        assert!(form.is_equivalent(&NormalForm::new(&schema("a", "other words"))), "annotations do not matter");
        assert!(!form.is_equivalent(&NormalForm::new(&schema("b", ""))));
        assert!(form.work < 200_000, "{}", form.work);

        let tool_with = |end: &str| tool(&json!({"name": "t", "inputSchema": schema(end, "")}));
        let old = tool_with("a");
        let new = tool_with("b");
        let parts = |tool: &Tool| ToolParts::from_tool(tool, None, &mut WorkBudget::default());
        let before = parts(&old);
        let after = parts(&new);
        assert!(before.input_schema.is_none() && before.input != after.input && before.input == parts(&old).input);
        let comparison = compare(&old, &new, &mut WorkBudget::default());
        assert!(comparison.class.severity() >= ChangeClass::Other.severity(), "{comparison:?}");
    }
}

/// Every list is sorted by its text: a schema within a hundred lists is serialised a hundred times.
#[test]
fn sorting_nested_lists_is_charged() {
    let level = |index: usize| json!({"anyOf": [{"$ref": format!("#/$defs/d{}", index + 1)}, {"type": "null"}]});
    let mut definitions: serde_json::Map<String, Value> = (0..60).map(|n| (format!("d{n}"), level(n))).collect();
    let values: Vec<String> = (0..5_000).map(|n| format!("v{n}")).collect();
    definitions.insert("d60".to_owned(), json!({"enum": values, "minLength": 1}));
    let form = NormalForm::new(&json!({"properties": {"x": {"$ref": "#/$defs/d0"}}, "$defs": definitions}));
    assert!(form.is_complete && form.work > 30_000, "{}", form.work);
}

/// Such alternatives refer to themselves without passing a property or an item.
#[test]
fn alternatives_that_refer_to_themselves_end() {
    let schema = |title: &str| {
        let cyclic = json!({"$ref": "#/$defs/d", "minProperties": 2});
        json!({"name": "t", "inputSchema": {
            "properties": {"x": {"$ref": "#/$defs/d"}}, "$defs": {"d": {"type": "object", "title": title, "anyOf": [cyclic]}},
        }})
    };
    assert!(compare_json(&schema("a"), &schema("b")).notes.contains(&"the title of `x` changed".to_owned()));
}

/// A schema that is too large to inline and refers to places that move when it is normalised has no complete form.
#[test]
fn incomplete_normal_forms_are_never_equivalent() {
    let schema = |first: &str, second: &str| {
        let arguments: serde_json::Map<String, Value> =
            (0..4_500).map(|n| (format!("p{n}"), json!({"$ref": "#/anyOf/0"}))).collect();
        json!({"properties": arguments, "anyOf": [{"required": [first]}, {"required": [second]}], "enum": vec![0; 20_000]})
    };
    let form = NormalForm::new(&schema("p0", "p1"));
    assert!(!form.is_equivalent(&NormalForm::new(&schema("p1", "p0"))) && !form.is_equivalent(&form));
}

#[test]
fn type_names_are_sanitized_and_truncated() {
    let schema = |name: &str| json!({"name": "t", "inputSchema": {"properties": {"x": {"anyOf": [{"type": name}, {"type": "null"}]}}}});
    let long = format!("evil\u{1b}[31m\n{}", "y".repeat(100_000));
    let comparison = compare_json(&schema("string"), &schema(&long));
    assert!(comparison.notes.iter().all(|note| note.len() < 400 && !note.contains(char::is_control)), "{comparison:?}");
}

#[test]
fn a_hundred_thousand_unknown_fields_are_compared_quickly() {
    let tool_with = |suffix: &str| {
        let mut fields: serde_json::Map<String, Value> =
            (0..50_000).map(|n| (format!("u{n}"), json!(suffix))).collect();
        fields.insert("name".to_owned(), json!("t"));
        Value::Object(fields)
    };
    let old = tool(&tool_with("a"));
    let new = tool(&tool_with("b"));
    let change = crate::compare::compare_versions(&old, &new, &mut WorkBudget::default());
    assert!(change.fields.len() <= 60 && change.notes.len() <= 13, "{}", change.fields.len());
}
