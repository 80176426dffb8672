use serde_json::json;
use url::Url;

use super::*;

/// The schema of a request, as it is listed, and what is broken in it.
fn translate_request(dialect: SchemaDialect, schema: Value, definitions: Value) -> (Value, Vec<String>) {
    let root = json!({ "schema": schema, "components": { "schemas": definitions } });
    let library = DocumentSet::new(Url::parse("http://h/").unwrap(), root);
    let root = library.root().unwrap();
    let mut schemas = SchemaTranslator::new(&library, dialect, 1);
    let mut broken = Vec::new();
    let at = NodeRef { value: &root.value["schema"], ..root };
    let translated = schemas.translate(at, Direction::Request, &mut broken);
    let gathered = schemas.assemble(&translated, Direction::Request);
    broken.extend(schemas.faults.iter().map(|(pointer, reason)| format!("{pointer}: {reason}")));
    assert!(jsonschema::options().build(&gathered.listed).is_ok(), "{}", gathered.listed);
    (gathered.listed, broken)
}

fn check(dialect: SchemaDialect, schema: Value, expected: Value) {
    let (found, broken) = translate_request(dialect, schema.clone(), json!({}));
    assert_eq!(found, expected, "{schema}");
    assert_eq!(broken, [""; 0], "{schema}");
}

#[test]
fn old_words_become_new_ones() {
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
fn new_words_stay() {
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
fn what_the_server_writes_is_neither_shown_nor_demanded() {
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
fn a_cycle_is_shared_and_what_is_named_once_stands_where_it_is_used() {
    let reference = |name: &str| json!({"$ref": format!("#/components/schemas/{name}")});
    let definitions = json!({
        "Node": {"type": "object", "properties": {"kids": {"type": "array", "items": reference("Node")}, "once": reference("Once")}},
        "Once": {"type": "object", "properties": {"x": {"type": "string"}}},
    });
    let (found, broken) = translate_request(
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
    assert_eq!((found, broken), (expected, vec![]));
}

#[test]
fn what_is_broken_is_told_and_the_rest_holds() {
    let definitions =
        json!({"Pet": {"type": "object", "properties": {"tag": {"$ref": "#/components/schemas/Gone"}, "a": 7}}});
    let (found, broken) =
        translate_request(SchemaDialect::OpenApi30, json!({"$ref": "#/components/schemas/Pet"}), definitions);
    assert_eq!(found, json!({"type": "object", "properties": {"tag": {}, "a": {}}}));
    assert_eq!(
        broken,
        [
            "#/components/schemas/Pet: `$ref` to `#/components/schemas/Gone`, which does not exist; anything is accepted in its place",
            "#/components/schemas/Pet: a schema is neither an object nor true or false; anything is accepted there",
        ]
    );
}

#[test]
fn what_is_too_large_is_pruned_at_depth_and_kept_whole_beside() {
    let leaf = json!({"type": "string", "description": "x".repeat(100), "enum": (0..80).map(|n| format!("value {n}")).collect::<Vec<_>>()});
    let mut deep = json!({"type": "object", "properties": {"end": leaf}, "required": ["end"]});
    for level in 0..8 {
        deep = json!({"type": "object", "properties": {format!("level{level}"): deep, "beside": leaf}, "required": [format!("level{level}")]});
    }
    let root = json!({ "schema": deep });
    let library = DocumentSet::new(Url::parse("http://h/").unwrap(), root);
    let root = library.root().unwrap();
    let mut schemas = SchemaTranslator::new(&library, SchemaDialect::JsonSchema, 1);
    let at = NodeRef { value: &root.value["schema"], ..root };
    let translated = schemas.translate(at, Direction::Request, &mut Vec::new());
    let AssembledSchema { listed, full: whole } = schemas.assemble(&translated, Direction::Request);
    assert!(listed.to_string().len() <= 8 * 1024);
    assert_eq!(listed["$comment"], "pruned; ask for the full schema to see the rest");
    assert!(listed.to_string().contains(r#""required":["level7"]"#));
    let whole = whole.unwrap();
    assert!(whole.to_string().contains(r#""required":["end"]"#) && whole.get("$comment").is_none());
}

#[test]
fn a_graph_without_end_costs_little() {
    // Every definition names all others: inlined it would never end.
    let names: Vec<String> = (0..60).map(|number| format!("D{number}")).collect();
    let all: serde_json::Map<String, Value> =
        names.iter().map(|name| (name.clone(), json!({"$ref": format!("#/components/schemas/{name}")}))).collect();
    let text = "y".repeat(2_000);
    let definition = json!({"type": "object", "properties": all, "description": text});
    let definitions: serde_json::Map<String, Value> =
        names.iter().map(|name| (name.clone(), definition.clone())).collect();
    let (listed, broken) =
        translate_request(SchemaDialect::OpenApi30, json!({"$ref": "#/components/schemas/D0"}), definitions.into());
    assert!(listed.to_string().len() <= 8 * 1024 && broken.is_empty());
}

#[test]
fn choices_are_put_right() {
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
fn what_one_member_hides_no_other_demands() {
    let definitions =
        json!({"Base": {"type": "object", "properties": {"id": {"readOnly": true}, "name": {"type": "string"}}}});
    let schema = json!({"allOf": [{"$ref": "#/components/schemas/Base"}, {"required": ["id", "name"]}]});
    let base = json!({"type": "object", "properties": {"name": {"type": "string"}}});
    let expected = json!({"allOf": [base, {"required": ["name"]}]});
    assert_eq!(translate_request(SchemaDialect::OpenApi30, schema, definitions), (expected, vec![]));
}

/// A tiny document must not take long or end the program.
#[test]
fn chains_and_circles_end() {
    let chain = |length: usize, link: fn(String) -> Value| -> Value {
        let each = (0..length).map(|n| (format!("D{n}"), link(format!("#/components/schemas/D{}", n + 1))));
        each.chain([(format!("D{length}"), json!({"type": "string"}))]).collect::<serde_json::Map<_, _>>().into()
    };
    let start = || json!({"type": "object", "properties": {"a": {"$ref": "#/components/schemas/D0"}}});
    let nested = chain(3_000, |next| json!({"type": "object", "properties": {"x": {"$ref": next}}}));
    let (listed, _) = translate_request(SchemaDialect::OpenApi30, start(), nested);
    assert!(crate::json::nesting_depth(&listed.to_string()) <= 60);
    let aliases = chain(20_000, |next| json!({"$ref": next}));
    translate_request(SchemaDialect::OpenApi30, start(), aliases);
    let circle = json!({"A": {"allOf": vec![json!({"$ref": "#/components/schemas/A"}); 20]}});
    translate_request(SchemaDialect::OpenApi30, json!({"$ref": "#/components/schemas/A"}), circle);
    let choices: Vec<usize> = (0..100_000).collect();
    translate_request(SchemaDialect::OpenApi30, json!({"enum": choices}), json!({}));
}

#[test]
fn what_is_pruned_is_never_stricter() {
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
    let library = DocumentSet::new(Url::parse("http://h/").unwrap(), root);
    let root = library.root().unwrap();
    let mut schemas = SchemaTranslator::new(&library, SchemaDialect::JsonSchema, 1);
    let at = NodeRef { value: &root.value["schema"], ..root };
    let translated = schemas.translate(at, Direction::Request, &mut Vec::new());
    let listed = schemas.assemble(&translated, Direction::Request).listed;
    assert!(listed.get("$comment").is_some());
    let validator = jsonschema::options().build(&listed).unwrap();
    assert!(validator.is_valid(&json!({"body": {"p0": {"q": 1}, "p1": {}}})), "{listed}");
}

/// Two thousand operations on one schema with very many properties took for ever.
#[test]
fn one_huge_definition_is_not_written_for_ever() {
    let properties: serde_json::Map<String, Value> =
        (0..20_000).map(|n| (format!("property_{n}"), json!({}))).collect();
    let root = json!({ "components": { "schemas": { "A": { "type": "object", "properties": properties } } } });
    let library = DocumentSet::new(Url::parse("http://h/").unwrap(), root);
    let reference = json!({ "$ref": "#/components/schemas/A" });
    let mut schemas = SchemaTranslator::new(&library, SchemaDialect::JsonSchema, 1);
    let at = NodeRef { value: &reference, ..library.root().unwrap() };
    let translated = schemas.translate(at, Direction::Request, &mut Vec::new());
    let AssembledSchema { listed, full: whole } = schemas.assemble(&translated, Direction::Request);
    assert!(listed.to_string().len() < 200_000 && whole.unwrap().to_string().len() < 200_000);
    assert!(schemas.work_done > 1_000, "what is written counts");
}

fn reference(name: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{name}")})
}

/// Twenty thousand schemas that extend one another took the square of that.
#[test]
fn schemas_that_extend_one_another_are_counted_each_time() {
    const LENGTH: usize = 20_000;
    let extends = |n: usize| json!({"allOf": [reference(&format!("D{}", n + 1)), {"properties": {"y": {}}}]});
    let mut definitions: serde_json::Map<String, Value> = (0..LENGTH).map(|n| (format!("D{n}"), extends(n))).collect();
    definitions.insert(format!("D{LENGTH}"), json!({"type": "object"}));
    let root = json!({ "components": { "schemas": definitions } });
    let library = DocumentSet::new(Url::parse("http://h/").unwrap(), root);
    let mut schemas = SchemaTranslator::new(&library, SchemaDialect::JsonSchema, 1);
    schemas.work_limit = 400_000;
    let start = reference("D0");
    let at = NodeRef { value: &start, ..library.root().unwrap() };
    let translated = schemas.translate(at, Direction::Request, &mut Vec::new());
    schemas.assemble(&translated, Direction::Request);
    assert!(schemas.is_exhausted());
    assert!(schemas.work_done < 2_000_000, "{}", schemas.work_done);
}

/// The names of what a schema hides were copied for each `allOf` within it.
#[test]
fn what_is_hidden_is_not_copied_for_each_member() {
    let hidden: serde_json::Map<String, Value> =
        (0..20_000).map(|n| (format!("property_{n}"), json!({"readOnly": true}))).collect();
    let inner = json!({"allOf": [{"required": ["property_7", "own"]}]});
    let schema = json!({"properties": hidden, "allOf": vec![inner; 20_000]});
    let root = json!({ "schema": schema });
    let library = DocumentSet::new(Url::parse("http://h/").unwrap(), root);
    let root = library.root().unwrap();
    let mut schemas = SchemaTranslator::new(&library, SchemaDialect::JsonSchema, 1);
    let at = NodeRef { value: &root.value["schema"], ..root };
    let translated = schemas.translate(at, Direction::Request, &mut Vec::new());
    assert_eq!(translated.value["allOf"][19_999], json!({"required": ["own"]}));
}

#[test]
fn what_operations_share_is_counted_for_each_of_them() {
    let shared = json!({"schema": {"enum": (0..10_000).collect::<Vec<_>>()}, "components": {"schemas": {}}});
    let library = DocumentSet::new(Url::parse("http://h/").unwrap(), shared);
    let root = library.root().unwrap();
    let mut schemas = SchemaTranslator::new(&library, SchemaDialect::JsonSchema, 1);
    let at = NodeRef { value: &root.value["schema"], ..root };
    let mut worked = [0, 1, 2].map(|_| {
        let translated = schemas.translate(at, Direction::Request, &mut Vec::new());
        schemas.assemble(&translated, Direction::Request);
        schemas.work_done
    });
    assert!(worked[0] > 1_000, "what is read and written counts");
    worked.iter_mut().zip(1..).for_each(|(worked, times)| *worked /= times);
    assert_eq!(worked, [worked[0]; 3]);
}

/// Each try at a pruned schema wrote all of a constant to learn that it has no room.
#[test]
fn a_huge_constant_is_not_written_to_be_left_out() {
    let definitions = json!({"C": {"const": "x".repeat(2_000_000)}});
    let properties: serde_json::Map<String, Value> = (0..200).map(|n| (format!("p{n}"), reference("C"))).collect();
    let (listed, _) =
        translate_request(SchemaDialect::JsonSchema, json!({"type": "object", "properties": properties}), definitions);
    assert!(listed.to_string().len() <= 128 * 1024);
}

#[test]
fn a_pattern_that_compiles_to_megabytes_is_left_out() {
    let properties: serde_json::Map<String, Value> =
        (0..30).map(|n| (format!("p{n}"), json!({"pattern": format!(r"(\pL{{500}}){{{}}}", 500 + n)}))).collect();
    let (listed, _) =
        translate_request(SchemaDialect::JsonSchema, json!({"type": "object", "properties": properties}), json!({}));
    assert_eq!(listed["properties"]["p0"], json!({}));
    check(SchemaDialect::JsonSchema, json!({"pattern": r"^[\w.-]{1,255}$"}), json!({"pattern": r"^[\w.-]{1,255}$"}));
}

/// Each level names the next twice: all ways together are 2^40.
#[test]
fn levels_that_double_cost_one_look_each() {
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
        let (listed, broken) = translate_request(SchemaDialect::JsonSchema, reference("D0"), definitions.into());
        assert!(listed.to_string().len() <= 8 * 1024 && broken.is_empty());
    }
}
