use serde_json::json;
use serde_json::value::to_raw_value;

use super::*;

fn validator(schema: &Value) -> Validator {
    Validator::new(to_raw_value(schema).unwrap().into())
}

fn validate(schema: &Value, arguments: &Value) -> Result<ValidationOutcome, Vec<ArgumentError>> {
    validator(schema).validate(arguments)
}

fn error_lines(schema: Value, arguments: Value) -> Vec<String> {
    match validate(&schema, &arguments) {
        Ok(ValidationOutcome::Valid) => Vec::new(),
        Ok(ValidationOutcome::Unvalidated(note)) => panic!("{note}"),
        Err(errors) => errors.iter().map(|fault| format!("{} {}", fault.path, fault.message)).collect(),
    }
}

#[track_caller]
fn expect_unvalidated(schema: &Value, arguments: &Value) -> String {
    match validate(schema, arguments) {
        Ok(ValidationOutcome::Unvalidated(note)) => note,
        other => panic!("{other:?}"),
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
fn every_error_has_its_path() {
    let schema = json!({
        "type": "object",
        "properties": { "a": {"type": "integer"}, "b": {"type": "object", "required": ["c"]}, "d": {} },
        "required": ["a", "d"],
        "additionalProperties": false,
    });
    assert_eq!(
        error_lines(schema.clone(), json!({"a": "x", "b": {}, "e": 1})),
        [
            r#"/a "x" is not of type "integer""#,
            "/b/c is required",
            "/d is required",
            "/e is not an argument of this tool",
        ]
    );
    assert!(error_lines(schema.clone(), json!({"a": 1, "d": 2})).is_empty());
    assert_eq!(error_lines(schema, json!([])), ["/ the arguments must be a JSON object"]);
}

#[test]
fn errors_of_alternatives_are_those_of_the_variant_that_was_meant() {
    let cat = json!({ "type": "object", "required": ["kind", "lives"],
        "properties": { "kind": { "const": "cat" }, "lives": { "type": "integer" }, "colour": { "enum": ["red", "white"] } } });
    let dog = json!({ "type": "object", "required": ["kind", "barks"],
        "properties": { "kind": { "const": "dog" }, "barks": { "type": "boolean" } } });
    for keyword in ["oneOf", "anyOf"] {
        let pets = json!({ keyword: [cat, dog, { "type": "null" }] });
        let schema = json!({ "properties": { "pet": pets } });
        let check = |pet: Value, expected: &[&str]| {
            assert_eq!(error_lines(schema.clone(), json!({ "pet": pet })), expected, "{pet}");
        };
        check(json!({ "kind": "cat", "lives": 9 }), &[]);
        check(json!({ "kind": "cat", "lives": "9" }), &[r#"/pet/lives "9" is not of type "integer""#]);
        check(
            json!({ "kind": "cat", "colour": "blue" }),
            &[r#"/pet/colour "blue" is not one of "red", "white""#, "/pet/lives is required"],
        );
        check(json!({ "kind": "dog", "lives": 9 }), &["/pet/barks is required"]);
        check(json!({ "kind": "bird" }), &[r#"/pet/kind "bird" is not one of "cat", "dog""#]);
        check(json!({}), &["/pet/kind is required"]);
        assert!(error_lines(schema.clone(), json!({ "pet": 5 }))[0].contains("not valid under any of"));
    }
}

#[test]
fn arguments_are_not_validated_against_an_invalid_schema() {
    let note = expect_unvalidated(&json!({"type": "strnig"}), &json!({"a": 1}));
    assert_eq!(note, "arguments are not validated: the schema is not a valid JSON Schema");
}

/// Whether the text matches is unknown, so it does not count as an error.
#[test]
fn an_unfinished_match_ends_and_is_no_error() {
    let schema = json!({"properties": {"a": {"pattern": "^(a|a?)+(?!b)x$"}, "b": {"type": "string"}}});
    let unfinished = json!({"a": "a".repeat(64)});
    assert_eq!(
        expect_unvalidated(&schema, &unfinished),
        "these arguments were not validated: a pattern takes too long"
    );
    assert_eq!(error_lines(schema.clone(), json!({"a": "a".repeat(64), "b": 1})), [r#"/b 1 is not of type "string""#]);
    assert!(error_lines(schema.clone(), json!({"a": "x"})).is_empty());
    assert_eq!(error_lines(schema, json!({"a": "b"})).len(), 1);
}

#[test]
fn an_exponential_schema_is_not_validated_against() {
    for keyword in ["allOf", "anyOf", "oneOf"] {
        for levels in [16, 20, 40, 400] {
            let validator = validator(&doubling(keyword, levels));
            let note = "arguments are not validated: the schema expands to more than 10000 paths";
            assert_eq!(validator.note().as_deref(), Some(note), "{keyword} {levels}");
            for argument in [json!("valid"), json!(1)] {
                let expected = Ok(ValidationOutcome::Unvalidated(note.into()));
                assert_eq!(validator.validate(&json!({ "x": argument })), expected, "{keyword} {levels}");
            }
        }
    }
}

#[test]
fn a_schema_that_expands_a_little_is_validated() {
    for keyword in ["allOf", "anyOf"] {
        assert_eq!(validate(&doubling(keyword, 6), &json!({"x": "valid"})), Ok(ValidationOutcome::Valid), "{keyword}");
        let errors = validate(&doubling(keyword, 6), &json!({"x": 1})).unwrap_err();
        assert_eq!(errors[0].path, "/x");
    }
}

#[test]
fn arguments_that_would_take_too_long_are_not_validated() {
    // Some 2,000 paths for each of the items.
    let mut schema = doubling("allOf", 9);
    schema["properties"] = json!({ "x": { "type": "array", "items": { "$ref": "#/$defs/l0" } } });
    assert_eq!(validate(&schema, &json!({"x": ["a", "b"]})), Ok(ValidationOutcome::Valid));
    let note = expect_unvalidated(&schema, &json!({"x": vec!["a"; 10_000]}));
    assert!(note.starts_with("these arguments were not validated: "), "{note}");
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
    assert_eq!(validate(&schema, &nested(4)), Ok(ValidationOutcome::Valid));
    assert!(validate(&schema, &json!({ "root": { "name": 1 } })).is_err());
    expect_unvalidated(&schema, &nested(60));
}

/// Each of these took seconds or gigabytes for one call, or did not end.
#[test]
fn validation_ends_in_every_draft() {
    const DRAFT_7: &str = "http://json-schema.org/draft-07/schema#";
    let levels = |level: &dyn Fn(Value) -> Value| {
        let mut definitions = doubling("allOf", 0)["$defs"].as_object().unwrap().clone();
        for index in 0..40 {
            let next = json!({ "$ref": format!("#/$defs/n{}", index + 1) });
            definitions.insert(format!("n{index}"), level(next));
        }
        definitions.insert("n40".into(), json!(true));
        definitions
    };
    let properties = |schema: &Value, count: usize| {
        let property = |index: usize| (format!("p{index}"), schema.clone());
        json!({ "properties": (0..count).map(property).collect::<serde_json::Map<_, _>>() })
    };
    // Draft 7 evaluates `items` as an array and ignores `prefixItems`.
    let draft_7_items = json!({
        "$schema": DRAFT_7, "properties": { "x": { "$ref": "#/$defs/n0" } },
        "$defs": levels(&|next| json!({ "items": [{ "allOf": [next, next] }], "prefixItems": [true] })),
    });
    let arrays = (0..40).fold(json!("a"), |value, _| json!([value]));
    // References within `outer` are relative to its `$id`, although a JSON pointer leads past it.
    let inner = doubling("allOf", 40)["$defs"].clone();
    let mut outer = json!({ "$id": "http://a.example/", "$defs": inner });
    outer["$defs"]["entry"] = json!({ "$ref": "#/$defs/l0" });
    let with_id = json!({
        "properties": { "x": { "$ref": "#/$defs/outer/$defs/entry" } }, "$defs": { "outer": outer, "l0": true },
    });
    let mut evaluated = properties(&json!({ "unevaluatedProperties": false, "$ref": "#/$defs/l0" }), 500);
    evaluated["$defs"] = doubling("allOf", 10)["$defs"].clone();
    let discriminated = properties(&json!({ "anyOf": vec![json!({ "$ref": "#/$defs/l0" }); 3] }), 1_000);
    let discriminated = json!({ "properties": discriminated["properties"], "$defs": doubling("allOf", 11)["$defs"] });
    for (name, schema, arguments) in [
        ("items of draft 7", draft_7_items, json!({ "x": arrays })),
        ("an address on the way", with_id, json!({ "x": "a" })),
        (
            "look-ahead",
            json!({ "properties": { "x": { "pattern": "(?!x)a*b" } } }),
            json!({ "x": "a".repeat(100_000) }),
        ),
        ("Unicode classes", properties(&json!({ "pattern": r"^\p{L}{110}N" }), 500), json!({})),
        ("unevaluated properties", evaluated, json!({})),
        ("discriminated alternatives", discriminated, json!({})),
    ] {
        let note = expect_unvalidated(&schema, &arguments);
        assert!(note.contains("not validated: "), "{name}: {note}");
    }
}

#[test]
fn errors_that_would_fill_the_memory_are_not_listed() {
    let too_many = "/ the arguments do not match the schema; there are too many errors to list";
    let alternatives = |schema: Value| json!({ "properties": { "x": { "anyOf": vec![schema; 2_000] } } });
    let names: Vec<String> = (0..4_000).map(|index| format!("n{index}")).collect();
    for (name, schema, arguments) in [
        (
            "an error for each item",
            json!({ "properties": { "x": { "items": { "allOf": vec![json!({ "type": "string" }); 40] } } } }),
            json!({ "x": vec![1; 5_000] }),
        ),
        ("copies of the value", alternatives(json!({ "maxItems": 0 })), json!({ "x": vec![1; 20_000] })),
        ("missing names", alternatives(json!({ "required": names[..40] })), json!({ "x": {} })),
        (
            "copies of the schema",
            json!({ "properties": { "x": { "items": { "not": { "description": "d".repeat(100_000) } } } } }),
            json!({ "x": vec![1; 4_000] }),
        ),
        (
            "unexpected names",
            json!({ "allOf": vec![json!({ "additionalProperties": false }); 100] }),
            json!(names.iter().map(|name| (name.clone(), json!(1))).collect::<serde_json::Map<_, _>>()),
        ),
    ] {
        assert_eq!(error_lines(schema, arguments), [too_many], "{name}");
    }
}

#[test]
fn ordinary_errors_are_listed_beside_long_texts_and_patterns() {
    let name = json!({ "type": "string", "pattern": "^(?!-)[a-z-]+$" });
    let schema = json!({ "properties": { "a": name, "b": name, "c": name, "n": { "type": "integer" } } });
    let arguments = json!({ "a": "some-name", "b": "another-name", "c": "third", "n": "x" });
    assert_eq!(error_lines(schema, arguments), [r#"/n "x" is not of type "integer""#]);
    let schema = json!({ "properties": { "content": { "type": "string" }, "encoding": { "enum": ["utf8"] } } });
    let arguments = json!({ "content": "a".repeat(2_000_000), "encoding": null });
    assert_eq!(error_lines(schema, arguments), [r#"/encoding null is not one of "utf8""#]);
    let unexpected: serde_json::Map<String, Value> = (0..500).map(|index| (format!("n{index}"), json!(1))).collect();
    let schema = json!({ "properties": { "a": true }, "additionalProperties": false });
    assert_eq!(error_lines(schema, json!(unexpected)).len(), MAX_LISTED_ERRORS);
}

#[test]
fn cheap_arguments_are_accepted_inline_once_the_schema_is_compiled() {
    let validator = validator(&doubling("allOf", 6));
    assert_eq!(validator.accept_inline(&json!({"x": "a"})), None);
    assert_eq!(validator.validate(&json!({"x": "a"})), Ok(ValidationOutcome::Valid));
    assert_eq!(validator.accept_inline(&json!({"x": "a"})), Some(ValidationOutcome::Valid));
    assert_eq!(validator.accept_inline(&json!({"x": "a".repeat(1 << 20)})), None);
    assert_eq!(validator.accept_inline(&json!({"x": 1})), None, "its faults are listed elsewhere");
}

#[test]
fn an_integer_of_more_than_64_bits_is_an_integer() {
    let long: Value = parse_exact("123456789012345678901234567890").unwrap();
    let properties = json!({
        "i": { "type": "integer" }, "n": { "type": "number", "minimum": 5 }, "e": { "enum": [long] }, "c": { "const": long },
        "s": { "type": "string" }, "small": { "type": "integer", "maximum": 9 }, "l": { "items": { "type": "integer" } },
        "huge": { "maximum": parse_exact::<Value>(&"9".repeat(400)).unwrap() },
    });
    let schema = toolcrib_core::json::to_exact_raw(&json!({ "properties": properties })).unwrap();
    let validator = Validator::new(schema.into());
    for name in ["i", "n", "e", "c", "huge"] {
        let arguments = json!({ name: long });
        assert_eq!(validator.validate(&arguments), Ok(ValidationOutcome::Valid), "{name}");
        assert_eq!(validator.accept_inline(&arguments), Some(ValidationOutcome::Valid), "{name}");
    }
    assert_eq!(validator.validate(&json!({ "l": [long] })), Ok(ValidationOutcome::Valid));
    for name in ["s", "small"] {
        assert!(validator.validate(&json!({ name: long })).is_err(), "{name}");
    }
    // Messages have all digits.
    let message = |arguments: Value| validator.validate(&arguments).unwrap_err()[0].message.clone();
    let digits = "123456789012345678901234567890";
    assert_eq!(message(json!({ "e": 7 })), format!("7 is not one of {digits}"));
    assert_eq!(message(json!({ "small": long })), format!("{digits} is greater than the maximum of 9"));
    let other: Value = parse_exact("18446744073709551616").unwrap();
    assert_eq!(message(json!({ "e": other })), format!("18446744073709551616 is not one of {digits}"));
    assert_eq!(message(json!({ "small": 1.5e300 })), "1.5e+300 is greater than the maximum of 9");
}

#[test]
fn a_variant_for_all_other_values_does_not_hide_the_errors_of_the_one_that_was_meant() {
    let base = json!({ "type": "object", "required": ["kind", "name"] });
    let cat = json!({ "properties": { "kind": { "const": "cat" } }, "allOf": [base, { "required": ["lives"] }] });
    let dog = json!({ "properties": { "kind": { "const": "dog" } }, "allOf": [base, { "required": ["barks"] }] });
    let known = json!({ "properties": { "kind": { "enum": ["cat", "dog"] } }, "required": ["kind"] });
    let schema = json!({ "anyOf": [cat, dog, { "allOf": [base], "not": known }] });
    let check = |arguments: Value, expected: &[&str]| {
        assert_eq!(error_lines(schema.clone(), arguments.clone()), expected, "{arguments}");
    };
    check(json!({ "kind": "cat", "name": "Tom" }), &["/lives is required"]);
    check(json!({ "kind": "bird" }), &["/name is required"]);
    check(json!({ "name": "Tom" }), &["/kind is required"]);
    check(json!({ "kind": "bird", "name": "Tom" }), &[]);
}

#[test]
fn errors_of_nested_variants_are_those_of_the_innermost_one() {
    let pet = |kind: &str, field: &str| json!({ "properties": { "kind": { "const": kind } }, "allOf": [{ "required": ["kind", field] }] });
    let cats = json!({ "anyOf": [pet("lion", "mane"), pet("tiger", "stripes")] });
    let cats = json!({ "properties": { "kind": { "enum": ["lion", "tiger"] } }, "allOf": [cats] });
    let schema = json!({ "anyOf": [cats, pet("wolf", "howl")] });
    let check = |arguments: Value, expected: &[&str]| {
        assert_eq!(error_lines(schema.clone(), arguments.clone()), expected, "{arguments}");
    };
    check(json!({ "kind": "tiger" }), &["/stripes is required"]);
    check(json!({ "kind": "wolf" }), &["/howl is required"]);
    check(json!({ "kind": "bear" }), &[r#"/kind "bear" is not one of "lion", "tiger", "wolf""#]);
    check(json!({}), &["/kind is required"]);
}

/// An error beside nested variants was described once for each of them, at every level again.
#[test]
fn describing_errors_beside_nested_variants_is_bounded() {
    let variants: Vec<Value> = (0..10).map(|n| json!({ "required": [format!("a{n}")] })).collect();
    let (mut schema, mut arguments) = (json!({ "type": "string" }), json!(1));
    for _ in 0..12 {
        schema = json!({ "anyOf": [{ "allOf": [{ "anyOf": variants }, { "properties": { "child": schema } }] }] });
        arguments = json!({ "child": arguments });
    }
    let errors = validate(&schema, &arguments).unwrap_err();
    let paths: Vec<&str> = errors.iter().map(|error| error.path.as_str()).collect();
    assert_eq!(paths, ["/child".repeat(12)]);
    // More errors than are copied to the variants beside them.
    let properties: serde_json::Map<String, Value> =
        (0..1_000).map(|n| (format!("p{n}"), json!({ "type": "string" }))).collect();
    let arguments: serde_json::Map<String, Value> = properties.keys().map(|name| (name.clone(), json!(1))).collect();
    let schema = json!({ "anyOf": [{ "allOf": [{ "anyOf": variants }, { "properties": properties }] }] });
    assert_eq!(error_lines(schema, arguments.into()).len(), MAX_LISTED_ERRORS);
}
