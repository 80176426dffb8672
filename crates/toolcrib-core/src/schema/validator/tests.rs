use serde_json::json;
use serde_json::value::to_raw_value;

use super::*;

fn validate(schema: &Value, arguments: &Value) -> Validation {
    Validator::new(to_raw_value(schema).unwrap().into()).validate(arguments)
}

fn faults(schema: Value, arguments: Value) -> Vec<String> {
    match validate(&schema, &arguments) {
        Validation::Valid => Vec::new(),
        Validation::Invalid(faults) => faults.iter().map(|fault| format!("{} {}", fault.path, fault.message)).collect(),
        Validation::Skipped(note) => panic!("{note}"),
    }
}

/// `levels` definitions, each of which applies the next twice by `keyword`.
fn doubling(keyword: &str, levels: usize) -> Value {
    let mut definitions = serde_json::Map::new();
    for level in 0..levels {
        let next = json!({ "$ref": format!("#/$defs/l{}", level + 1) });
        definitions.insert(format!("l{level}"), json!({ keyword: [next, next] }));
    }
    definitions.insert(format!("l{levels}"), json!({ "type": "string" }));
    json!({ "type": "object", "properties": { "x": { "$ref": "#/$defs/l0" } }, "$defs": definitions })
}

#[test]
fn every_fault_has_its_path() {
    let schema = json!({
        "type": "object",
        "properties": { "a": {"type": "integer"}, "b": {"type": "object", "required": ["c"]}, "d": {} },
        "required": ["a", "d"],
        "additionalProperties": false,
    });
    assert_eq!(
        faults(schema.clone(), json!({"a": "x", "b": {}, "e": 1})),
        [
            r#"/a "x" is not of type "integer""#,
            "/b/c is required",
            "/d is required",
            "/e is not an argument of this tool",
        ]
    );
    assert!(faults(schema.clone(), json!({"a": 1, "d": 2})).is_empty());
    assert_eq!(faults(schema, json!([])), ["/ the arguments must be a JSON object"]);
}

#[test]
fn a_schema_that_cannot_be_compiled_leaves_the_check_to_its_server() {
    assert!(faults(json!({"type": "strnig"}), json!({"a": 1})).is_empty());
}

#[test]
fn a_pattern_that_runs_away_ends() {
    let schema = json!({"properties": {"a": {"pattern": "^(a|a?)+(?=$)x$"}}});
    assert_eq!(faults(schema, json!({"a": "a".repeat(64)})).len(), 1);
}

#[test]
fn a_schema_that_expands_exponentially_validates_nothing_and_says_so() {
    for keyword in ["allOf", "anyOf", "oneOf"] {
        for levels in [16, 20, 40, 400] {
            let validator = Validator::new(to_raw_value(&doubling(keyword, levels)).unwrap().into());
            let note = "arguments are not validated: the schema expands to more than 10000 paths";
            assert_eq!(validator.note().as_deref(), Some(note), "{keyword} {levels}");
            for argument in [json!("valid"), json!(1)] {
                let expected = Validation::Skipped(note.into());
                assert_eq!(validator.validate(&json!({ "x": argument })), expected, "{keyword} {levels}");
            }
        }
    }
}

#[test]
fn a_schema_that_expands_a_little_is_validated() {
    for keyword in ["allOf", "anyOf"] {
        assert_eq!(validate(&doubling(keyword, 6), &json!({"x": "valid"})), Validation::Valid, "{keyword}");
        let Validation::Invalid(faults) = validate(&doubling(keyword, 6), &json!({"x": 1})) else {
            panic!("{keyword}")
        };
        assert_eq!(faults[0].path, "/x");
    }
}

#[test]
fn arguments_that_would_take_too_long_are_not_validated() {
    // Some 2,000 paths for each of the items.
    let mut schema = doubling("allOf", 9);
    schema["properties"] = json!({ "x": { "type": "array", "items": { "$ref": "#/$defs/l0" } } });
    assert_eq!(validate(&schema, &json!({"x": ["a", "b"]})), Validation::Valid);
    let Validation::Skipped(note) = validate(&schema, &json!({"x": vec!["a"; 10_000]})) else { panic!() };
    assert!(note.starts_with("arguments were not validated: "), "{note}");
}

#[test]
fn arguments_nested_in_a_recursive_schema_are_validated_while_that_is_cheap() {
    let twice = json!({ "anyOf": [{ "$ref": "#/$defs/tree" }, { "$ref": "#/$defs/tree" }] });
    let tree = json!({ "type": "object", "properties": { "name": { "type": "string" }, "child": twice } });
    let schema =
        json!({ "type": "object", "properties": { "root": { "$ref": "#/$defs/tree" } }, "$defs": { "tree": tree } });
    let nested = |levels: usize| {
        let tree = (0..levels).fold(json!({ "name": "leaf" }), |tree, _| json!({ "name": "node", "child": tree }));
        json!({ "root": tree })
    };
    assert_eq!(validate(&schema, &nested(4)), Validation::Valid);
    assert!(matches!(validate(&schema, &json!({ "root": { "name": 1 } })), Validation::Invalid(_)));
    assert!(matches!(validate(&schema, &nested(60)), Validation::Skipped(_)));
}

#[test]
fn errors_that_would_fill_the_memory_are_not_listed() {
    let schema = json!({ "properties": { "x": { "items": { "allOf": vec![json!({ "type": "string" }); 40] } } } });
    let Validation::Invalid(faults) = validate(&schema, &json!({ "x": vec![1; 5_000] })) else { panic!() };
    let message = "the arguments do not match the schema, which is too large to say where".to_owned();
    assert_eq!(faults, [Fault { path: "/".into(), message }]);
}

#[test]
fn cheap_arguments_are_validated_inline_once_the_schema_is_compiled() {
    let validator = Validator::new(to_raw_value(&doubling("allOf", 6)).unwrap().into());
    assert_eq!(validator.validate_inline(&json!({"x": "a"})), None);
    assert_eq!(validator.validate(&json!({"x": "a"})), Validation::Valid);
    assert_eq!(validator.validate_inline(&json!({"x": "a"})), Some(Validation::Valid));
    assert_eq!(validator.validate_inline(&json!({"x": "a".repeat(1 << 20)})), None);
}
