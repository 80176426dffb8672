mod variants;

use serde_json::json;
use url::Url;

use super::*;

/// Returns the listed schema of a request, and its faults.
fn translate_request(dialect: SchemaDialect, schema: Value, definitions: Value) -> (Value, Vec<String>) {
    let root = json!({ "schema": schema, "components": { "schemas": definitions } });
    let documents = DocumentSet::new(Url::parse("http://h/").unwrap(), root);
    let root = documents.root().unwrap();
    let mut translator = SchemaTranslator::new(&documents, dialect, 1);
    let mut faults = Vec::new();
    let node = NodeRef { value: &root.value["schema"], ..root };
    let translated = translator.translate(node, Direction::Request, &mut faults);
    let assembled = translator.assemble(&translated, Direction::Request);
    faults.extend(translator.faults.iter().map(|(pointer, reason)| format!("{pointer}: {reason}")));
    assert!(jsonschema::options().build(&assembled.listed).is_ok(), "{}", assembled.listed);
    (assembled.listed, faults)
}

fn check(dialect: SchemaDialect, schema: Value, expected: Value) {
    let (listed, faults) = translate_request(dialect, schema.clone(), json!({}));
    assert_eq!(listed, expected, "{schema}");
    assert_eq!(faults, [""; 0], "{schema}");
}

#[test]
fn openapi_3_0_keywords_are_translated() {
    for (schema, expected) in [
        (json!({"type": "string", "nullable": true}), json!({"type": ["string", "null"]})),
        (
            json!({"type": "string", "enum": ["a"], "nullable": true}),
            json!({"type": ["string", "null"], "enum": ["a", null]}),
        ),
        (
            json!({"type": "integer", "minimum": 1, "exclusiveMinimum": true, "maximum": 9, "exclusiveMaximum": false}),
            json!({"type": "integer", "maximum": 9, "exclusiveMinimum": 1}),
        ),
        (json!({"type": "file"}), json!({"type": "string", "format": "binary"})),
        (
            json!({"properties": {"a": {"type": "int"}}, "required": ["a", "a"], "x-foo": 1, "example": {"a": 1}}),
            json!({"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}),
        ),
        (json!({"type": "string", "enum": [1, true, "x"]}), json!({"type": "string", "enum": ["1", "true", "x"]})),
        (
            json!({"type": "array", "items": [{"type": "string"}]}),
            json!({"type": "array", "prefixItems": [{"type": "string"}]}),
        ),
        (
            json!({"type": "string", "pattern": "(", "minLength": "2", "maxLength": -1}),
            json!({"type": "string", "minLength": 2}),
        ),
        (json!({"allOf": [{"type": "string"}], "description": "A."}), json!({"type": "string", "description": "A."})),
        (json!({"type": "any", "format": "int64", "title": "T"}), json!({})),
        (json!({"type": "integer", "default": 20}), json!({"type": "integer", "default": 20})),
        (json!({"required": true, "type": "boolean"}), json!({"type": "boolean"})),
    ] {
        check(SchemaDialect::OpenApi30, schema, expected);
    }
}

#[test]
fn json_schema_keywords_are_kept() {
    for schema in [
        json!({"type": ["string", "null"]}),
        json!({"exclusiveMinimum": 1}),
        json!({"const": 1}),
        json!({"type": "object", "patternProperties": {"^a": {"type": "string"}}, "unevaluatedProperties": false}),
        json!({"if": {"type": "string"}, "then": {"minLength": 1}, "else": {"not": {}}}),
    ] {
        check(SchemaDialect::JsonSchema, schema.clone(), schema);
    }
    check(
        SchemaDialect::JsonSchema,
        json!({"type": ["string", "nonsense"], "not": false}),
        json!({"type": "string", "not": false}),
    );
    check(SchemaDialect::JsonSchema, json!(true), json!({}));
    check(SchemaDialect::JsonSchema, json!(false), json!({"not": {}}));
}

#[test]
fn read_only_properties_are_neither_listed_nor_required() {
    let definitions = json!({"Id": {"type": "integer", "readOnly": true}});
    let schema = json!({
        "type": "object",
        "properties": {"id": {"$ref": "#/components/schemas/Id"}, "at": {"readOnly": true}, "name": {"type": "string"}},
        "required": ["id", "at", "name"],
    });
    let expected = json!({"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]});
    assert_eq!(translate_request(SchemaDialect::OpenApi30, schema, definitions), (expected, vec![]));
}

#[test]
fn cycles_become_definitions_and_single_uses_are_inlined() {
    let reference = |name: &str| json!({"$ref": format!("#/components/schemas/{name}")});
    let definitions = json!({
        "Node": {"type": "object", "properties": {"kids": {"type": "array", "items": reference("Node")}, "once": reference("Once")}},
        "Once": {"type": "object", "properties": {"x": {"type": "string"}}},
    });
    let (listed, faults) = translate_request(
        SchemaDialect::OpenApi30,
        json!({"type": "object", "properties": {"n": reference("Node")}}),
        definitions,
    );
    let expected = json!({
        "type": "object",
        "properties": {"n": {"$ref": "#/$defs/Node"}},
        "$defs": {"Node": {"type": "object", "properties": {
            "kids": {"type": "array", "items": {"$ref": "#/$defs/Node"}},
            "once": {"type": "object", "properties": {"x": {"type": "string"}}},
        }}},
    });
    assert_eq!((listed, faults), (expected, vec![]));
}

#[test]
fn faults_are_reported_and_the_rest_is_kept() {
    let definitions =
        json!({"Pet": {"type": "object", "properties": {"tag": {"$ref": "#/components/schemas/Gone"}, "a": 7}}});
    let (listed, faults) =
        translate_request(SchemaDialect::OpenApi30, json!({"$ref": "#/components/schemas/Pet"}), definitions);
    assert_eq!(listed, json!({"type": "object", "properties": {"tag": {}, "a": {}}}));
    assert_eq!(
        faults,
        [
            "#/components/schemas/Pet: `$ref` to `#/components/schemas/Gone`, which does not exist; anything is accepted in its place",
            "#/components/schemas/Pet: a schema is neither an object nor true or false; anything is accepted there",
        ]
    );
}

#[test]
fn large_schemas_are_pruned_and_kept_in_full() {
    let leaf = json!({"type": "string", "description": "x".repeat(100), "enum": (0..80).map(|n| format!("value {n}")).collect::<Vec<_>>()});
    let mut deep = json!({"type": "object", "properties": {"end": leaf}, "required": ["end"]});
    for level in 0..8 {
        deep = json!({"type": "object", "properties": {format!("level{level}"): deep, "beside": leaf}, "required": [format!("level{level}")]});
    }
    let root = json!({ "schema": deep });
    let documents = DocumentSet::new(Url::parse("http://h/").unwrap(), root);
    let root = documents.root().unwrap();
    let mut translator = SchemaTranslator::new(&documents, SchemaDialect::JsonSchema, 1);
    let node = NodeRef { value: &root.value["schema"], ..root };
    let translated = translator.translate(node, Direction::Request, &mut Vec::new());
    let AssembledSchema { listed, full } = translator.assemble(&translated, Direction::Request);
    assert!(listed.to_string().len() <= 8 * 1024);
    assert_eq!(listed["$comment"], "pruned; ask for the full schema to see the rest");
    assert!(listed.to_string().contains(r#""required":["level7"]"#));
    let full = full.unwrap();
    assert!(full.to_string().contains(r#""required":["end"]"#) && full.get("$comment").is_none());
}

#[test]
fn pruning_keeps_the_values_of_required_arguments() {
    let values = |prefix: &str| (0..80).map(|n| format!("{prefix} {n}")).collect::<Vec<_>>();
    let filler: serde_json::Map<String, Value> =
        (0..400).map(|n| (format!("filler_{n}"), json!({"type": "string", "description": "x".repeat(100)}))).collect();
    let schema = json!({
        "type": "object", "required": ["currency", "list", "body"],
        "properties": {
            "currency": {"$ref": "#/components/schemas/Currency"},
            "list": {"type": "array", "items": {"type": "string", "enum": values("item")}},
            "optional": {"type": "string", "enum": values("optional")},
            "body": {"type": "object", "required": ["kind"], "properties": {
                "kind": {"type": "string", "enum": values("kind")}, "filler": {"properties": filler} } },
        },
    });
    let definitions = json!({"Currency": {"type": "string", "enum": values("currency")}});
    let (listed, _) = translate_request(SchemaDialect::JsonSchema, schema, definitions);
    let properties = &listed["properties"];
    assert_eq!(listed["$comment"], "pruned; ask for the full schema to see the rest");
    assert_eq!(properties["currency"]["enum"], json!(values("currency")));
    assert_eq!(properties["list"]["items"]["enum"], json!(values("item")));
    assert_eq!(properties["body"]["properties"]["kind"]["enum"], json!(values("kind")));
    assert_eq!(properties["optional"]["enum"], Value::Null);
}

/// Values of required arguments, of required properties of a body with too many properties to list, and of a list that
/// is too long even so.
#[test]
fn pruning_keeps_long_lists_of_required_values() {
    let values = |prefix: &str, count: usize| (0..count).map(|n| format!("{prefix} {n:06}")).collect::<Vec<_>>();
    let filler: serde_json::Map<String, Value> =
        (0..900).map(|n| (format!("filler_{n}"), json!({"type": "string", "description": "x".repeat(100)}))).collect();
    let mut body_properties = filler;
    body_properties.insert("kind".into(), reference("Kind"));
    body_properties.insert(
        "inner".into(),
        json!({"type": "object", "required": ["state"], "properties": {
        "state": {"type": "string", "enum": ["on", "off"]}, "other": {"type": "string", "enum": ["x"]} }}),
    );
    let schema = json!({
        "type": "object", "required": ["zone", "code", "body"],
        "properties": {
            "zone": {"type": "string", "enum": values("zone", 600)},
            "code": {"type": "string", "description": "A code.", "enum": values("code", 9_000)},
            "body": {"allOf": [
                {"type": "object", "properties": body_properties, "additionalProperties": false},
                {"required": ["kind", "inner"]},
            ]},
        },
    });
    let definitions = json!({"Kind": {"type": "string", "enum": values("kind", 60)}});
    let (listed, _) = translate_request(SchemaDialect::JsonSchema, schema, definitions);
    let properties = &listed["properties"];
    assert!(listed.to_string().len() <= 3 * 8 * 1024);
    assert_eq!(properties["zone"]["enum"], json!(values("zone", 600)));
    let body = &properties["body"];
    assert_eq!(body["properties"]["kind"]["enum"], json!(values("kind", 60)), "{body}");
    assert_eq!(body["properties"]["inner"]["properties"], json!({"state": {"type": "string", "enum": ["on", "off"]}}));
    let code = &properties["code"];
    assert_eq!(code["enum"], Value::Null);
    let description = code["description"].as_str().unwrap();
    assert!(description.starts_with(r#"A code. One of "code 000000", "code 000001", "#), "{description}");
    let count = description.matches("\"code ").count();
    let note = format!(r#", or {} more (ask for the full schema to see all)."#, 9_000 - count);
    assert!(count > 50 && description.ends_with(&note), "{description}");
    let validator = jsonschema::options().build(&listed).unwrap();
    let body = json!({"kind": "kind 000001", "inner": {"state": "on", "other": "x"}, "filler_1": "y"});
    assert!(validator.is_valid(&json!({"zone": "zone 000599", "code": "code 008999", "body": body})), "{listed}");
}

/// The description beside a reference replaced the one with the values.
#[test]
fn a_description_beside_a_reference_keeps_the_shown_values() {
    let values: Vec<String> = (0..9_000).map(|n| format!("code {n:06}")).collect();
    let code = json!({"$ref": "#/components/schemas/Code", "description": "The code to use."});
    let schema = json!({"type": "object", "required": ["code"], "properties": {"code": code}});
    let definitions = json!({"Code": {"type": "string", "description": "A code.", "enum": values}});
    let (listed, _) = translate_request(SchemaDialect::OpenApi30, schema, definitions);
    let description = listed["properties"]["code"]["description"].as_str().unwrap();
    assert!(description.starts_with(r#"The code to use. One of "code 000000", "code 000001", "#), "{description}");
}

/// Returns a schema whose argument `body` is pruned, with optional properties that take more than `bytes`.
fn body_schema(members: Value, bytes: usize) -> Value {
    let filler: serde_json::Map<String, Value> =
        (0..bytes / 16).map(|n| (format!("filler_{n:06}"), json!({}))).collect();
    let mut members = members;
    members.as_array_mut().unwrap().push(json!({"properties": filler}));
    json!({"type": "object", "required": ["body"], "properties": {"body": {"allOf": members}}})
}

/// Each member of `allOf` required other names, of which each was looked up in every member.
#[test]
fn the_required_names_of_an_object_are_limited_in_total() {
    let names = |prefix: &str| (0..400).map(|n| format!("{prefix}{n:03}")).collect::<Vec<_>>();
    let properties: serde_json::Map<String, Value> =
        names("b").into_iter().map(|name| (name, json!({"enum": ["x"]}))).collect();
    let required = |prefix: &str| json!({"required": names(prefix)});
    let members = json!([required("a"), required("a"), required("b"), {"properties": properties}]);
    let (pruned, _) = prune::prune(&body_schema(members, 100_000), 50_000, &mut |_| None);
    assert_eq!(pruned["properties"]["body"]["properties"].as_object().map(serde_json::Map::len), Some(100));
}

/// A value of exactly the maximum length after truncation was written whole.
#[test]
fn a_huge_value_is_not_shown_in_a_description() {
    let schema = json!({"type": "object", "required": ["code"], "properties": {
        "code": {"type": "string", "enum": (0..30).map(|n| format!("{n}{}", "x".repeat(100_000))).collect::<Vec<_>>()} }});
    let (pruned, _) = prune::prune(&schema, 8 * 1024, &mut |_| None);
    let description = &pruned["properties"]["code"]["description"];
    assert_eq!(description, "One of 30 values (ask for the full schema to see them).");
}

/// Discriminators with one value are constants.
#[test]
fn pruning_keeps_required_constants() {
    let kind = json!({"type": "string", "const": "cat"});
    let properties = json!({"kind": kind, "note": {"const": "x".repeat(90_000)}});
    let schema = body_schema(json!([{"required": ["kind", "note"]}, {"properties": properties}]), 20_000);
    let (pruned, _) = prune::prune(&schema, 8 * 1024, &mut |_| None);
    let properties = &pruned["properties"]["body"]["properties"];
    assert_eq!(properties["kind"], kind);
    assert_eq!(properties["note"]["description"], "A fixed value (ask for the full schema to see it).");
}

#[test]
fn pruning_keeps_the_values_that_select_variants() {
    let pruned_body = |count: usize, is_open: bool| {
        let variant = |index: usize| {
            let base =
                json!({ "type": "object", "required": ["kind"], "properties": { "text": { "type": "string" } } });
            json!({ "properties": { "kind": { "const": format!("v{index}") } }, "allOf": [base] })
        };
        let mut variants: Vec<Value> = (0..count).map(variant).collect();
        if is_open {
            variants.push(json!({ "title": "other kind", "not": { "required": ["kind"] } }));
        }
        let schema = json!({ "type": "object", "required": ["body"], "properties": { "body": { "anyOf": variants } } });
        let (pruned, _) = prune::prune(&schema, 8 * 1024, &mut |_| None);
        assert!(pruned.to_string().len() < 24 * 1024);
        pruned["properties"]["body"].clone()
    };
    for count in [60, 100, 300] {
        let body = pruned_body(count, false);
        let variants = body["anyOf"].as_array().into_iter().flatten();
        let constants = variants.filter(|variant| variant["properties"]["kind"]["const"].is_string()).count();
        assert_eq!(constants, count, "{body}");
    }
    assert_eq!(pruned_body(600, false)["properties"]["kind"]["enum"].as_array().map(Vec::len), Some(600));
    // A longer list, or one with other values, must not restrict the property.
    for (count, is_open) in [(3_000, false), (600, true)] {
        let body = pruned_body(count, is_open);
        let kind = &body["properties"]["kind"];
        assert!(kind["description"].as_str().unwrap().starts_with("One of \"v0\", \"v1\", "), "{kind}");
        assert_eq!(kind.get("enum"), None);
    }
}

/// Values were restored in each schema after the first one that was pruned.
#[test]
fn a_schema_that_is_not_pruned_stays_as_it_is() {
    let filler: serde_json::Map<String, Value> = (0..800).map(|n| (format!("filler_{n:06}"), json!({}))).collect();
    let kind = json!({"type": "object", "required": ["kind"], "properties": {"kind": {"enum": ["cat"]}}});
    let whole = json!({"allOf": [{"allOf": [kind]}]});
    let deep = json!({"properties": {"a": {"properties": {"a": {"properties": {"a": {"properties": {"a": {"properties": filler}}}}}}}}});
    let schema = json!({"type": "object", "required": ["body"], "properties": {"large": deep, "body": whole}});
    let (pruned, _) = prune::prune(&schema, 8 * 1024, &mut |_| None);
    assert_eq!(pruned["$comment"], "pruned; ask for the full schema to see the rest");
    assert_eq!(pruned["properties"]["body"], whole);
}

/// Thousands of required arguments had a note each, whatever the limit.
#[test]
fn notes_about_values_end_with_the_available_bytes() {
    let values: Vec<String> = (0..2_000).map(|n| format!("value {n:06}")).collect();
    let names: Vec<String> = (0..1_000).map(|n| format!("argument_{n}")).collect();
    let properties: serde_json::Map<String, Value> =
        names.iter().map(|name| (name.clone(), json!({"enum": values}))).collect();
    let schema = json!({"type": "object", "required": names, "properties": properties});
    let (pruned, _) = prune::prune(&schema, 8 * 1024, &mut |_| None);
    let notes = pruned["properties"].as_object().unwrap().values().filter_map(|value| value.get("description"));
    let notes: Vec<&str> = notes.filter_map(Value::as_str).collect();
    assert!((5..200).contains(&notes.len()), "{}", notes.len());
    assert!(notes.iter().map(|note| note.len()).sum::<usize>() <= 16 * 1024);
}

#[test]
fn a_fully_connected_graph_is_cheap() {
    // Every definition refers to all others, so inlining would never end.
    let names: Vec<String> = (0..60).map(|number| format!("D{number}")).collect();
    let all: serde_json::Map<String, Value> =
        names.iter().map(|name| (name.clone(), json!({"$ref": format!("#/components/schemas/{name}")}))).collect();
    let text = "y".repeat(2_000);
    let definition = json!({"type": "object", "properties": all, "description": text});
    let definitions: serde_json::Map<String, Value> =
        names.iter().map(|name| (name.clone(), definition.clone())).collect();
    let (listed, faults) =
        translate_request(SchemaDialect::OpenApi30, json!({"$ref": "#/components/schemas/D0"}), definitions.into());
    assert!(listed.to_string().len() <= 8 * 1024 && faults.is_empty());
}

#[test]
fn enum_values_are_corrected() {
    for (schema, expected) in [
        (json!({"type": "boolean", "enum": ["true", "False"]}), json!({"type": "boolean", "enum": [true, false]})),
        (
            json!({"type": "array", "items": {"type": "string"}, "enum": ["a", "b"]}),
            json!({"type": "array", "items": {"type": "string", "enum": ["a", "b"]}}),
        ),
        (json!({"type": "array", "enum": [["a"], []]}), json!({"type": "array", "enum": [["a"], []]})),
    ] {
        check(SchemaDialect::OpenApi30, schema, expected);
    }
}

#[test]
fn no_member_requires_what_another_hides() {
    let definitions =
        json!({"Base": {"type": "object", "properties": {"id": {"readOnly": true}, "name": {"type": "string"}}}});
    let schema = json!({"allOf": [{"$ref": "#/components/schemas/Base"}, {"required": ["id", "name"]}]});
    let base = json!({"type": "object", "properties": {"name": {"type": "string"}}});
    let expected = json!({"allOf": [base, {"required": ["name"]}]});
    assert_eq!(translate_request(SchemaDialect::OpenApi30, schema, definitions), (expected, vec![]));
}

/// Small documents that overflowed the stack or took too long.
#[test]
fn chains_and_cycles_end() {
    let chain = |length: usize, link: fn(String) -> Value| -> Value {
        let links = (0..length).map(|n| (format!("D{n}"), link(format!("#/components/schemas/D{}", n + 1))));
        links.chain([(format!("D{length}"), json!({"type": "string"}))]).collect::<serde_json::Map<_, _>>().into()
    };
    let start = || json!({"type": "object", "properties": {"a": {"$ref": "#/components/schemas/D0"}}});
    let nested = chain(3_000, |next| json!({"type": "object", "properties": {"x": {"$ref": next}}}));
    let (listed, _) = translate_request(SchemaDialect::OpenApi30, start(), nested);
    assert!(toolcrib_core::json::nesting_depth(&listed.to_string()) <= 60);
    let aliases = chain(20_000, |next| json!({"$ref": next}));
    translate_request(SchemaDialect::OpenApi30, start(), aliases);
    let cycle = json!({"A": {"allOf": vec![json!({"$ref": "#/components/schemas/A"}); 20]}});
    translate_request(SchemaDialect::OpenApi30, json!({"$ref": "#/components/schemas/A"}), cycle);
    let choices: Vec<usize> = (0..100_000).collect();
    translate_request(SchemaDialect::OpenApi30, json!({"enum": choices}), json!({}));
}

#[test]
fn a_pruned_schema_is_never_stricter() {
    let text = "z".repeat(150);
    let many: serde_json::Map<String, Value> = (0..60)
        .map(|n| {
            (
                format!("p{n}"),
                json!({"type": "object", "properties": {"q": {"description": text}}, "additionalProperties": false}),
            )
        })
        .collect();
    let schema = json!({"type": "object", "properties": {"body": {
        "type": "object", "properties": many, "additionalProperties": false,
        "not": {"anyOf": [{"properties": {"a": {"properties": {"b": {"properties": {"c": {"const": 1}}}}}}, "required": ["a"]}]},
        "oneOf": [{"properties": {"k": {"properties": {"v": {"properties": {"w": {"const": 1}}}}}}}, {"required": ["p0"]}],
    }}});
    let root = json!({ "schema": schema });
    let documents = DocumentSet::new(Url::parse("http://h/").unwrap(), root);
    let root = documents.root().unwrap();
    let mut translator = SchemaTranslator::new(&documents, SchemaDialect::JsonSchema, 1);
    let node = NodeRef { value: &root.value["schema"], ..root };
    let translated = translator.translate(node, Direction::Request, &mut Vec::new());
    let listed = translator.assemble(&translated, Direction::Request).listed;
    assert!(listed.get("$comment").is_some());
    let validator = jsonschema::options().build(&listed).unwrap();
    assert!(validator.is_valid(&json!({"body": {"p0": {"q": 1}, "p1": {}}})), "{listed}");
}

/// Two thousand operations that share a schema with many properties took too long.
#[test]
fn a_huge_shared_definition_is_bounded() {
    let properties: serde_json::Map<String, Value> =
        (0..20_000).map(|n| (format!("property_{n}"), json!({}))).collect();
    let root = json!({ "components": { "schemas": { "A": { "type": "object", "properties": properties } } } });
    let documents = DocumentSet::new(Url::parse("http://h/").unwrap(), root);
    let reference = json!({ "$ref": "#/components/schemas/A" });
    let mut translator = SchemaTranslator::new(&documents, SchemaDialect::JsonSchema, 1);
    let node = NodeRef { value: &reference, ..documents.root().unwrap() };
    let translated = translator.translate(node, Direction::Request, &mut Vec::new());
    let AssembledSchema { listed, full } = translator.assemble(&translated, Direction::Request);
    assert!(listed.to_string().len() < 200_000 && full.unwrap().to_string().len() < 200_000);
    assert!(translator.work_done > 1_000, "written bytes are charged");
}

fn reference(name: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{name}")})
}

/// Twenty thousand schemas that extend one another took quadratic time.
#[test]
fn schemas_that_extend_one_another_are_charged_each_time() {
    const LENGTH: usize = 20_000;
    let extend = |n: usize| json!({"allOf": [reference(&format!("D{}", n + 1)), {"properties": {"y": {}}}]});
    let mut definitions: serde_json::Map<String, Value> = (0..LENGTH).map(|n| (format!("D{n}"), extend(n))).collect();
    definitions.insert(format!("D{LENGTH}"), json!({"type": "object"}));
    let root = json!({ "components": { "schemas": definitions } });
    let documents = DocumentSet::new(Url::parse("http://h/").unwrap(), root);
    let mut translator = SchemaTranslator::new(&documents, SchemaDialect::JsonSchema, 1);
    translator.work_limit = 400_000;
    let start = reference("D0");
    let node = NodeRef { value: &start, ..documents.root().unwrap() };
    let translated = translator.translate(node, Direction::Request, &mut Vec::new());
    translator.assemble(&translated, Direction::Request);
    assert!(translator.is_exhausted());
    assert!(translator.work_done < 2_000_000, "{}", translator.work_done);
}

/// The names of hidden properties were copied for each `allOf`.
#[test]
fn hidden_names_are_not_copied_for_each_member() {
    let hidden: serde_json::Map<String, Value> =
        (0..20_000).map(|n| (format!("property_{n}"), json!({"readOnly": true}))).collect();
    let inner = json!({"allOf": [{"required": ["property_7", "own"]}]});
    let schema = json!({"properties": hidden, "allOf": vec![inner; 20_000]});
    let root = json!({ "schema": schema });
    let documents = DocumentSet::new(Url::parse("http://h/").unwrap(), root);
    let root = documents.root().unwrap();
    let mut translator = SchemaTranslator::new(&documents, SchemaDialect::JsonSchema, 1);
    let node = NodeRef { value: &root.value["schema"], ..root };
    let translated = translator.translate(node, Direction::Request, &mut Vec::new());
    assert_eq!(translated.value["allOf"][19_999], json!({"required": ["own"]}));
}

#[test]
fn shared_parts_are_charged_for_each_operation() {
    let shared = json!({"schema": {"enum": (0..10_000).collect::<Vec<_>>()}, "components": {"schemas": {}}});
    let documents = DocumentSet::new(Url::parse("http://h/").unwrap(), shared);
    let root = documents.root().unwrap();
    let mut translator = SchemaTranslator::new(&documents, SchemaDialect::JsonSchema, 1);
    let node = NodeRef { value: &root.value["schema"], ..root };
    let mut work = [0, 1, 2].map(|_| {
        let translated = translator.translate(node, Direction::Request, &mut Vec::new());
        translator.assemble(&translated, Direction::Request);
        translator.work_done
    });
    assert!(work[0] > 1_000, "read and written bytes are charged");
    work.iter_mut().zip(1..).for_each(|(work, count)| *work /= count);
    assert_eq!(work, [work[0]; 3]);
}

/// Each attempt to prune serialised the whole constant to find that it does not fit.
#[test]
fn a_huge_constant_is_not_serialized_to_be_dropped() {
    let definitions = json!({"C": {"const": "x".repeat(2_000_000)}});
    let properties: serde_json::Map<String, Value> = (0..200).map(|n| (format!("p{n}"), reference("C"))).collect();
    let (listed, _) =
        translate_request(SchemaDialect::JsonSchema, json!({"type": "object", "properties": properties}), definitions);
    assert!(listed.to_string().len() <= 128 * 1024);
}

#[test]
fn a_pattern_that_compiles_to_megabytes_is_dropped() {
    let properties: serde_json::Map<String, Value> =
        (0..30).map(|n| (format!("p{n}"), json!({"pattern": format!(r"(\pL{{500}}){{{}}}", 500 + n)}))).collect();
    let (listed, _) =
        translate_request(SchemaDialect::JsonSchema, json!({"type": "object", "properties": properties}), json!({}));
    assert_eq!(listed["properties"]["p0"], json!({}));
    check(SchemaDialect::JsonSchema, json!({"pattern": r"^[\w.-]{1,255}$"}), json!({"pattern": r"^[\w.-]{1,255}$"}));
}

/// Each level refers to the next one twice, which makes 2^40 paths.
#[test]
fn doubling_levels_are_read_once_each() {
    let shapes: [fn(Value) -> Value; 6] = [
        |next| json!({"allOf": [next, next]}),
        |next| json!({"anyOf": [next, next]}),
        |next| json!({"oneOf": [next, next]}),
        |next| json!({"properties": {"a": next, "b": next}}),
        |next| json!({"items": next, "contains": next, "additionalProperties": next}),
        |next| json!({"not": next, "if": next, "then": next, "else": next}),
    ];
    for shape in shapes {
        let levels = (0..40).map(|n| (format!("D{n}"), shape(reference(&format!("D{}", n + 1)))));
        let definitions: serde_json::Map<String, Value> = levels.chain([("D40".into(), json!({}))]).collect();
        let (listed, faults) = translate_request(SchemaDialect::JsonSchema, reference("D0"), definitions.into());
        assert!(listed.to_string().len() <= 8 * 1024 && faults.is_empty());
    }
}
