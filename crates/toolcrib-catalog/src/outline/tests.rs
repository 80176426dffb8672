use serde_json::json;

use super::reader::{MAX_ARGUMENTS, MAX_OUTLINE_DEPTH};
use super::*;

fn check(schema: &Value, expected: &[&str]) {
    fn push_lines(arguments: &ArgumentList, indent: usize, into: &mut Vec<String>) {
        for argument in &arguments.items {
            let ArgumentOutline { name, kind, required, default, choices, .. } = argument;
            let mark = if *required { "*" } else { "" };
            let default = default.as_ref().map(|default| format!(" = {default}")).unwrap_or_default();
            let choices = if choices.is_empty() { String::new() } else { format!(" [{}]", choices.join(", ")) };
            into.push(format!("{}{name}{mark}: {kind}{default}{choices}", " ".repeat(indent)));
            push_lines(&argument.nested, indent + 1, into);
        }
        into.extend(arguments.omitted_note().map(|ending| format!("{}{ending}", " ".repeat(indent))));
    }
    let mut found = Vec::new();
    push_lines(&list_arguments(schema), 0, &mut found);
    assert_eq!(found, expected, "{schema}");
}

#[test]
fn arguments_are_listed_with_their_types() {
    check(
        &json!({
            "type": "object",
            "required": ["a", 7, "gone"],
            "properties": {
                "a": {"type": "string", "format": "date"},
                "b": {"type": ["integer", "null"], "default": 5},
                "c": {"type": "array", "items": {"enum": ["x", "y"]}},
                "d": {"anyOf": [{"type": "string"}, {"type": "number"}, {"type": "string"}]},
                "e": {"const": 1}, "f": true, "g": false, "h": {}, "i": {"enum": [1, "x"]}
            }
        }),
        &[
            "a*: string (date)",
            "b: integer or null = 5",
            "c: array of string [x, y]",
            "d: string or number",
            "e: always 1",
            "f: any",
            "h: any",
            "i: number or string [1, x]",
        ],
    );
}

#[test]
fn a_percent_encoded_reference_is_followed() {
    let schema =
        json!({"properties": {"to": {"$ref": "#/$defs/a%20place"}}, "$defs": {"a place": {"type": "integer"}}});
    check(&schema, &["to: integer"]);
    assert_eq!(call_signature("t", &schema), "t(to: integer)");
}

#[test]
fn objects_and_references_are_followed() {
    check(
        &json!({
            "allOf": [{"properties": {"late": {"type": "string"}}}],
            "required": ["late"],
            "properties": {
                "to": {"$ref": "#/$defs/place"},
                "stops": {"type": "array", "items": {"$ref": "#/$defs/place"}},
                "broken": {"$ref": "#/$defs/none"}
            },
            "$defs": {"place": {"type": "object", "required": ["city"], "properties": {"city": {"type": "string"}}}}
        }),
        &["to: object", " city*: string", "stops: array of object", " city*: string", "broken: any", "late*: string"],
    );
}

#[test]
fn optional_values_show_their_choices_and_limits() {
    let optional = |schema: Value| json!({ "anyOf": [schema, { "type": "null" }], "default": null });
    let schema = json!({ "properties": {
        "level": optional(json!({ "type": "string", "enum": ["low", "high"] })),
        "count": optional(json!({ "type": "integer", "minimum": 1 })),
        "sizes": { "type": "object", "additionalProperties": { "type": "integer" } },
        "country": { "enum": (0..40).collect::<Vec<_>>() },
    } });
    let items = |choices: usize| list_arguments_with(&schema, choices).items;
    assert_eq!(items(20)[0].choices, ["low", "high"]);
    assert_eq!(
        (&*items(20)[1].limits, &*items(20)[2].limits),
        (&["at least 1".into()][..], &["any names, each integer".into()][..])
    );
    assert_eq!((items(20)[3].choices.len(), items(40)[3].choices.len()), (21, 40));
    assert_eq!(items(20)[3].choices[20], "and 20 more");
}

#[test]
fn all_variants_of_an_object_are_listed() {
    let constant =
        |name: &str| json!({ "properties": { "kind": { "const": name } }, "allOf": [{ "properties": { name: {} } }] });
    let list = list_arguments(&json!({
        "properties": {
            "pet": { "properties": { "id": {} }, "oneOf": [constant("cat"), constant("dog"), { "$ref": "#/$defs/fish" }] },
            "pets": { "type": "array", "items": { "anyOf": [constant("cat"), constant("dog")] } },
            "either": { "anyOf": [{ "type": "string" }, { "type": "object", "properties": { "a": {} } }] },
        },
        "anyOf": [{ "properties": { "x": {} } }, { "properties": { "y": {} } }],
        "$defs": { "fish": { "properties": { "fins": { "$ref": "#/$defs/fish" } } } },
    }));
    let describe = |list: &ArgumentList| -> Vec<String> {
        let names =
            |list: &ArgumentList| list.items.iter().map(|field| field.name.clone()).collect::<Vec<_>>().join(" ");
        let variants = list.variants.iter().map(|variant| format!("{}: {}", variant.label, names(&variant.fields)));
        std::iter::once(names(list)).chain(variants).collect()
    };
    assert_eq!(describe(&list), ["pet pets either", "1: x", "2: y"]);
    let nested: Vec<_> = list.items.iter().map(|argument| describe(&argument.nested)).collect();
    assert_eq!(nested[0], ["id", "kind cat: kind cat", "kind dog: kind dog", "fish: fins"]);
    assert_eq!(nested[1], ["", "kind cat: kind cat", "kind dog: kind dog"]);
    assert_eq!(nested[2], ["a"]);
    let part = json!({ "properties": { "kind": { "type": "string", "description": "Which." } }, "required": ["kind"] });
    let list = list_arguments(&json!({ "properties": { "kind": { "const": "cat" } }, "allOf": [part] }));
    let [kind] = &list.items[..] else { panic!("{list:?}") };
    assert_eq!((kind.kind.as_str(), kind.required, kind.description.as_str()), ("always cat", true, "Which."));
    // Parts whose fields are pruned: required names still count, and so do variants without any field left.
    let pruned = json!({ "required": ["kind"], "$comment": "pruned" });
    let variant = json!({ "properties": { "kind": { "const": "cat" } }, "allOf": [pruned], "$comment": "pruned" });
    let list = list_arguments(&json!({ "anyOf": [variant, { "$comment": "pruned" }, { "type": "null" }] }));
    let [cat] = &list.variants[..] else { panic!("{list:?}") };
    assert!(cat.fields.items[0].required, "{cat:?}");
    assert_eq!(list.omitted_variants_note().as_deref(), Some("… (+1 more variants)"));
    let many: Vec<Value> = (0..120).map(|number| json!({ "properties": { format!("p{number}"): {} } })).collect();
    let list = list_arguments(&json!({ "oneOf": many }));
    assert_eq!((list.variants.len(), list.omitted_variants_note().as_deref()), (100, Some("… (+20 more variants)")));
}

#[test]
fn a_recursive_schema_terminates() {
    let schema = json!({
        "properties": {"node": {"$ref": "#"}, "loop": {"$ref": "#/properties/loop"}, "list": {"$ref": "#/$defs/l"}},
        "$defs": {"l": {"type": "array", "items": {"$ref": "#/$defs/l"}}, "u": {"anyOf": [{"$ref": "#/$defs/u"}]}}
    });
    check(&schema, &["node: object, as above", "loop: any", "list: array of array of array of array of array of …"]);
    for odd in [json!(null), json!(true), json!([]), json!({"properties": [1], "required": "a", "allOf": 3})] {
        check(&odd, &[]);
    }
}

#[test]
fn signature_and_first_sentence_describe_a_tool() {
    let schema = json!({"properties": {"a": {"type": "string"}, "n": {"type": "integer"}}, "required": ["a"]});
    assert_eq!(call_signature("git__push", &schema), "git__push(a*: string, n: integer)");
    assert_eq!(first_sentence("Pushes. Then rests.\nMore."), "Pushes");
    for (text, sentence) in [
        ("🎯 Purpose:\n  1. Reads a deal. And more.", "Reads a deal"),
        ("3 ways to say it. Or 4.", "3 ways to say it"),
        ("🎯 Purpose:\n  Reads a deal\n  by its id. And more.", "Reads a deal by its id"),
        ("# Usage\n\nSets widths, heights,\nhidden lines.\nNext.", "Sets widths, heights, hidden lines"),
        ("Finds files (e.g. by name). Quickly.", "Finds files (e.g. by name)"),
        ("Does it\n\nArgs: none", "Does it"),
        ("Takes:\n- one\n- two", "one"),
        ("Parameters:", "Parameters:"),
        ("Version 1.5 of it", "Version 1.5 of it"),
        ("Ends here.", "Ends here"),
        ("", ""),
    ] {
        assert_eq!(first_sentence(text), sentence, "{text}");
    }
}

/// Schema of four definitions; each refers to the next in each of its `wide` branches.
fn fan_out_schema(wide: usize, branches: impl Fn(Vec<Value>) -> Value) -> Value {
    let level = |next: usize| branches(vec![json!({"$ref": format!("#/$defs/d{next}")}); wide]);
    let mut root = json!({"properties": {"first": level(0)}});
    root["$defs"] = json!({"d0": level(1), "d1": level(2), "d2": level(3), "d3": level(4), "d4": {}});
    root
}

#[test]
fn the_outline_of_an_exponential_schema_is_bounded() {
    fn count_arguments(arguments: &ArgumentList) -> usize {
        arguments.items.iter().map(|argument| 1 + count_arguments(&argument.nested)).sum()
    }
    let properties = |all: Vec<Value>| {
        let named = all.into_iter().enumerate().map(|(index, schema)| (format!("p{index}"), schema));
        json!({"properties": named.collect::<serde_json::Map<_, _>>()})
    };
    assert_eq!(count_arguments(&list_arguments(&fan_out_schema(40, properties))), MAX_ARGUMENTS);
    for key in ["anyOf", "oneOf", "allOf"] {
        let schema = fan_out_schema(200, |all| json!({ key: all }));
        assert_eq!(count_arguments(&list_arguments(&schema)), 1, "{key}");
        assert_eq!(call_signature("t", &schema), "t(first: any)", "{key}");
    }
}

#[test]
fn the_time_for_a_signature_is_linear_in_its_arguments() {
    let names: Vec<String> = (0..100_000).map(|index| format!("p{index}")).collect();
    let properties: serde_json::Map<_, _> = names.iter().map(|name| (name.clone(), json!({}))).collect();
    let schema = json!({"properties": properties, "required": names});
    let started = std::time::Instant::now();
    assert!(call_signature("t", &schema).starts_with("t(p0*: any, p1*: any, "));
    let ArgumentList { items, omitted, .. } = list_arguments(&schema);
    assert_eq!((items.len(), omitted), (MAX_ARGUMENTS, 100_000 - MAX_ARGUMENTS));
    assert!(started.elapsed().as_secs() < 60, "{:?}", started.elapsed());
}

#[test]
fn a_duplicate_long_name_is_one_argument() {
    let long = "n".repeat(100);
    let part = json!({"properties": {&long: {"type": "string"}}});
    let line = call_signature("t", &json!({"properties": {&long: {"type": "string"}}, "allOf": [part]}));
    assert!(line.ends_with("…: string)"), "{line}");
}

#[test]
fn omitted_arguments_are_counted_and_required_ones_come_first() {
    let many: serde_json::Map<_, _> = (0..MAX_ARGUMENTS).map(|index| (format!("p{index}"), json!({}))).collect();
    let mut schema = json!({"properties": many, "required": ["last"]});
    schema["properties"]["last"] = json!({"properties": {"a": {}, "b": {}}});
    let ArgumentList { items, omitted, .. } = list_arguments(&schema);
    assert_eq!((items.len(), omitted), (MAX_ARGUMENTS, 1));
    assert_eq!((items[0].name.as_str(), items[0].required), ("last", true));
    assert_eq!(items[0].nested.omitted_note().as_deref(), Some("… (+2 more)"));
    let deep = (0..MAX_OUTLINE_DEPTH + 2).fold(json!({}), |inner, _| json!({"properties": {"a": inner}}));
    check(&deep, &["a: object", " a: object", "  a: object", "   a: object", "    a: object", "     … (+1 more)"]);
}

#[test]
fn required_names_are_compared_in_full() {
    let long = format!("{}1", "n".repeat(90));
    let other = format!("{}2", "n".repeat(90));
    let part = json!({"properties": {&other: {}}});
    let schema = json!({"properties": {&long: {}}, "required": [&long], "allOf": [part]});
    let shown = "n".repeat(79);
    check(&schema, &[&format!("{shown}…*: any"), &format!("{shown}…: any")]);
}

#[test]
fn a_huge_value_behind_many_references_is_read_partially() {
    let huge = vec!["x"; 200_000];
    let properties: serde_json::Map<_, _> =
        (0..MAX_ARGUMENTS).map(|index| (format!("p{index}"), json!({"$ref": "#/$defs/huge"}))).collect();
    let mut schema = json!({"properties": properties});
    schema["$defs"]["huge"] = json!({"default": huge, "const": huge, "enum": [huge]});
    let started = std::time::Instant::now();
    let told = list_arguments(&schema).items;
    assert_eq!(told.len(), MAX_ARGUMENTS);
    let default = told[0].default.as_deref().unwrap_or_default();
    assert!(default.starts_with(r#"["x","x","#) && default.ends_with('…'), "{default}");
    assert!(started.elapsed().as_secs() < 60, "{:?}", started.elapsed());
}

#[test]
fn a_short_signature_has_required_arguments_only() {
    let schema =
        json!({"properties": {"a": {"type": "string"}, "n": {"type": "integer"}, "o": {}}, "required": ["a", "n"]});
    assert_eq!(short_signature("t", &schema), "t(a*, n*)");
    assert_eq!(short_signature("t", &json!({"properties": {"o": {}}})), "t()");
}

#[test]
fn many_headings_before_white_space_take_linear_time() {
    let text = format!("{}Reads a file. And more.{}", "#\n".repeat(200_000), " ".repeat(400_000));
    assert_eq!(first_sentence(&text), "Reads a file");
}
