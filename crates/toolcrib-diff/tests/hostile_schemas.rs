//! Every computation on a tool ends, in bounded memory and on a stack of 2 MB, whatever schema its source sent. Most of
//! these schemas are a few kilobytes that expand to 2^40 paths: a computation without a budget hangs or overflows here.

#![expect(clippy::unwrap_used, reason = "what the tests share is a test too")]

use std::sync::Arc;

use serde_json::value::to_raw_value;
use serde_json::{Map, Value, json};
use toolcrib_catalog::outline;
use toolcrib_catalog::render::Format;
use toolcrib_catalog::search::Query;
use toolcrib_catalog::summary::SummaryBudget;
use toolcrib_catalog::{Catalog, CatalogSource, Segment, SourceOptions, View};
use toolcrib_core::delta::ChangeClass;
use toolcrib_core::fingerprint::Fingerprint;
use toolcrib_core::inventory::{Origin, SourceState};
use toolcrib_core::manifest::{Manifest, PackedManifest, ToolLimits};
use toolcrib_core::{SourceId, Tool};
use toolcrib_diff::compare::{WorkBudget, compare};
use toolcrib_diff::lockfile::Lockfile;
use toolcrib_diff::report::SourceDiff;

/// A name, and a schema within the bounds of a manifest.
type NamedSchema = (String, Value);

/// All hostile schemas. `kind` is the type of their leaves, so that two lists differ there.
fn hostile_schemas(kind: &str) -> Vec<NamedSchema> {
    let lists = [
        doubling_schemas(kind),
        wide_schemas(kind),
        cyclic_schemas(kind),
        chained_schemas(kind),
        large_schemas(kind),
        shared_definition_schemas(kind),
        merged_schemas(kind),
    ];
    lists.into_iter().flatten().collect()
}

/// Each of 40 levels refers twice to the next.
fn doubling_schemas(kind: &str) -> Vec<NamedSchema> {
    type Level = (&'static str, fn(Value) -> Value);
    let levels: [Level; 13] = [
        ("allOf", |next| json!({"allOf": [next, next]})),
        ("anyOf", |next| json!({"anyOf": [next, next]})),
        ("oneOf", |next| json!({"oneOf": [next, next]})),
        ("anyOf beside others", |next| json!({"type": "object", "minProperties": 1, "anyOf": [next, next]})),
        ("allOf beside words", |next| json!({"anyOf": [{"allOf": [next, {"title": "a"}]}, next]})),
        ("properties", |next| json!({"properties": {"a": next, "b": next}})),
        ("required properties", |next| json!({"properties": {"a": next, "b": next}, "required": ["a", "b"]})),
        ("items", |next| json!({"type": "array", "prefixItems": [next, next], "items": next})),
        ("additionalProperties", |next| json!({"properties": {"a": next}, "additionalProperties": next})),
        ("if", |next| json!({"if": next, "then": next, "else": next})),
        ("not", |next| json!({"not": {"anyOf": [next, next]}})),
        ("dependentSchemas", |next| json!({"dependentSchemas": {"a": next, "b": next}})),
        ("patternProperties", |next| json!({"patternProperties": {"a": next, "b": next}})),
    ];
    let mut schemas = Vec::new();
    for (name, level) in levels {
        let definitions = chain(40, &json!({"type": kind}), level);
        let mut schema_at_root = level(reference("d0"));
        schema_at_root["$defs"] = Value::Object(definitions.clone());
        schemas.push((format!("doubling {name}"), argument(definitions)));
        schemas.push((format!("doubling {name} at the root"), schema_at_root));
    }
    schemas
}

/// Hundreds of alternatives on each of a few levels.
fn wide_schemas(kind: &str) -> Vec<NamedSchema> {
    let mut schemas = Vec::new();
    for keyword in ["allOf", "anyOf", "oneOf"] {
        for (leaf, name) in [(json!({"type": kind}), "a type"), (json!(false), "nothing")] {
            let definitions = chain(5, &leaf, |next| json!({keyword: vec![next; 1_000]}));
            let mut schema = argument(definitions);
            schema["properties"]["y"] = json!({"type": kind});
            schemas.push((format!("wide {keyword} of {name}"), schema));
        }
        let mut keywords = numbered(2_500, "x-", &json!(kind));
        keywords.insert("enum".into(), json!([1]));
        let definitions = chain(2, &json!(keywords), |next| json!({keyword: vec![next; 1_000]}));
        schemas.push((format!("wide {keyword} of many keywords"), argument(definitions)));
    }
    schemas
}

fn cyclic_schemas(kind: &str) -> Vec<NamedSchema> {
    let leaf = json!({"type": kind});
    let mut schemas = Vec::new();
    for keyword in ["allOf", "anyOf", "oneOf"] {
        let first = json!({keyword: [reference("d1"), leaf]});
        let second = json!({keyword: [reference("d0"), {"type": "null"}]});
        schemas
            .push((format!("cycle of {keyword}"), json!({"$defs": {"d0": first, "d1": second}, "$ref": "#/$defs/d0"})));
        let self_reference = json!({"$ref": "#/$defs/d0", "minProperties": 2});
        let cycle = json!({"type": "object", "title": kind, keyword: [self_reference]});
        schemas.push((format!("cycle of {keyword} beside others"), argument(chain(0, &cycle, |next| next))));
    }
    let tree = json!({
        "type": "object",
        "properties": {"left": reference("d0"), "right": reference("d0"), "value": leaf},
        "additionalProperties": {"type": "array", "items": reference("d0")},
    });
    let root = json!({"$ref": "#"});
    schemas.extend([
        ("tree".into(), argument(chain(0, &tree, |next| next))),
        (
            "reference to itself".into(),
            json!({"properties": {"x": reference("d0"), "y": leaf}, "$defs": {"d0": reference("d0")}}),
        ),
        ("references to the root".into(), json!({"properties": {"a": root, "b": {"allOf": [root]}, "c": leaf}})),
        ("root that refers to itself".into(), json!({"$ref": "#", "properties": {"a": leaf}})),
        ("root made of itself".into(), json!({"allOf": [root, root], "properties": {"a": leaf}})),
    ]);
    schemas
}

fn chained_schemas(kind: &str) -> Vec<NamedSchema> {
    let leaf = json!({"type": kind});
    let chained = |level: fn(Value) -> Value| argument(chain(3_000, &leaf, level));
    let nested =
        |level: fn(Value) -> Value| json!({"properties": {"x": (0..29).fold(leaf.clone(), |inner, _| level(inner))}});
    vec![
        ("chain of references".into(), chained(|next| next)),
        ("chain of allOf".into(), chained(|next| json!({"allOf": [next]}))),
        ("chain of anyOf".into(), chained(|next| json!({"anyOf": [next]}))),
        ("chain of items".into(), chained(|next| json!({"type": "array", "items": next}))),
        ("chain of properties".into(), chained(|next| json!({"properties": {"a": next}}))),
        ("nested allOf".into(), nested(|inner| json!({"allOf": [inner, {}]}))),
        ("nested anyOf".into(), nested(|inner| json!({"anyOf": [inner]}))),
        ("nested items".into(), nested(|inner| json!({"type": "array", "items": {"items": inner}}))),
        ("nested properties".into(), nested(|inner| json!({"type": "object", "properties": {"a": inner}}))),
    ]
}

/// Many fields, values, types and alternatives, without references.
fn large_schemas(kind: &str) -> Vec<NamedSchema> {
    let leaf = json!({"type": kind});
    let forms = |form: &dyn Fn(usize) -> Value| -> Value { (0..3_000).map(form).collect() };
    let long = "n".repeat(3_000);
    let longest = "n".repeat(60_000);
    let with_losses = json!({"type": "object", "title": kind, "properties": numbered(4_000, "p", &json!({"not": {}}))});
    let mut shared = numbered(4_000, "", &json!(0));
    shared.insert("anyOf".into(), forms(&|number| json!({"type": kind, "maxLength": number})));
    vec![
        ("long enum".into(), json!({"properties": {"x": {"enum": names(18_000, kind)}}})),
        ("many arguments".into(), json!({"properties": numbered(13_000, "p", &json!(true)), "title": kind})),
        (
            "many required arguments".into(),
            json!({"properties": numbered(6_000, "p", &json!({"not": leaf})), "required": names(6_000, "p")}),
        ),
        ("many arguments with odd names".into(), json!({"properties": numbered(6_000, "p ?", &leaf)})),
        (
            "many types".into(),
            json!({"properties": {"x": {"title": kind, "allOf": [
                {"type": vec!["string"; 10_000]}, {"type": vec!["object"; 10_000]},
            ]}}}),
        ),
        (
            "many forms".into(),
            json!({"properties": {"x": {"anyOf": forms(&|number| json!({"type": kind, "maxLength": number}))}}}),
        ),
        (
            "many forms at the root".into(),
            json!({"title": kind, "anyOf": forms(&|number| json!({"properties": {"a": {"const": number}}}))}),
        ),
        (
            "many choices as forms".into(),
            json!({"properties": {"x": {"oneOf": forms(&|number| json!({"enum": [number], "title": kind}))}}}),
        ),
        ("many forms that share many keywords".into(), json!({"properties": {"x": shared}})),
        (
            "long names".into(),
            json!({
                "properties": {&longest: leaf, "y": reference(&longest)}, "required": [&longest], "$defs": {&longest: leaf},
            }),
        ),
        (
            "losses under a long path".into(),
            (0..25).fold(with_losses, |inner, _| json!({"type": "object", "properties": {&long: inner}})),
        ),
    ]
}

/// Thousands of references to the same large definition.
fn shared_definition_schemas(kind: &str) -> Vec<NamedSchema> {
    let leaf = json!({"type": kind});
    let referring = |reference: Value, definitions: Value| json!({"properties": numbered(3_000, "p", &reference), "minProperties": kind.len(), "$defs": definitions});
    let with_sibling = json!({"$ref": "#/$defs/d0", "minProperties": 1});
    let value = json!({"default": numbered(9_000, "", &json!(0))});
    let mut keywords = numbered(3_000, "x-", &json!(kind));
    keywords.extend(numbered(3_000, "", &json!(0)));
    let expensive = chain(9, &json!({"minimum": 0}), |next| json!({"anyOf": [next, {"not": next}]}));
    let twice = json!({"properties": numbered(2_500, "p", &reference("d0"))});
    let apart: Map<String, Value> =
        (0..3_000).map(|number| (format!("p{number}"), reference(format!("{number}/x")))).collect();
    vec![
        ("references to many keywords".into(), referring(reference("d0"), json!({"d0": keywords}))),
        ("references beside others to many keywords".into(), referring(with_sibling.clone(), json!({"d0": keywords}))),
        (
            "references to a renamed argument".into(),
            referring(with_sibling, json!({"d0": {"properties": {kind: value}}})),
        ),
        ("references that lead nowhere".into(), referring(json!({"$ref": "#/nowhere"}), json!({"d0": value}))),
        (
            "a long reference with escapes".into(),
            referring(
                reference("d0"),
                json!({
                    "d0": reference("~1~0".repeat(20_000)), "/~".repeat(20_000): leaf,
                }),
            ),
        ),
        ("arguments described twice".into(), json!({"title": kind, "allOf": [twice, twice], "$defs": expensive})),
        (
            "definitions of one name".into(),
            json!({"properties": apart, "$defs": numbered(3_000, "", &json!({"x": leaf}))}),
        ),
    ]
}

/// Members of `allOf` that are merged repeatedly and contradict each other.
fn merged_schemas(kind: &str) -> Vec<NamedSchema> {
    let members: Vec<Value> = (0..240).map(|number| reference(format!("d{}", number % 2))).collect();
    let fields =
        |note: &str| json!({"properties": {"x": {"properties": numbered(2_000, note, &json!({"type": kind}))}}});
    let both = json!({"required": names(6_000, "a"), "properties": numbered(6_000, "a", &json!(true))});
    vec![
        ("parts that disagree".into(), json!({"allOf": members, "$defs": {"d0": fields("a"), "d1": fields("b")}})),
        (
            "parts that require much".into(),
            json!({"title": kind, "allOf": members, "$defs": {
                "d0": {"required": names(10_000, "a"), "enum": names(4_000, "a")},
                "d1": {"required": names(10_000, "b"), "enum": names(4_000, "a")[1..]},
            }}),
        ),
        (
            "forms that require much".into(),
            json!({"title": kind, "anyOf": members, "$defs": {"d0": both, "d1": reference("d0")}}),
        ),
    ]
}

fn reference(name: impl std::fmt::Display) -> Value {
    json!({"$ref": format!("#/$defs/{name}")})
}

/// Definitions `d0` to `d{levels}`: each is made of a reference to the next, and the last is `leaf`.
fn chain(levels: usize, leaf: &Value, level: impl Fn(Value) -> Value) -> Map<String, Value> {
    let inner = (0..levels).map(|index| (format!("d{index}"), level(reference(format!("d{}", index + 1)))));
    inner.chain([(format!("d{levels}"), leaf.clone())]).collect()
}

/// A schema with the argument `x`, which is the definition `d0`.
fn argument(definitions: Map<String, Value>) -> Value {
    json!({"type": "object", "properties": {"x": reference("d0")}, "$defs": definitions})
}

fn names(count: usize, prefix: &str) -> Vec<String> {
    (0..count).map(|number| format!("{prefix}{number}")).collect()
}

fn numbered(count: usize, prefix: &str, value: &Value) -> Map<String, Value> {
    names(count, prefix).into_iter().map(|name| (name, value.clone())).collect()
}

fn pack(schemas: &[NamedSchema]) -> PackedManifest {
    let id = SourceId::parse("hostile").unwrap();
    let raw_tool = |(name, schema): &NamedSchema| to_raw_value(&json!({"name": name, "inputSchema": schema})).unwrap();
    let raw_tool: Vec<_> = schemas.iter().map(raw_tool).collect();
    let manifest = Manifest::new(&id, &raw_tool, Vec::new(), &ToolLimits::default());
    assert_eq!(manifest.skipped, [], "every schema is within the bounds");
    PackedManifest::new(&manifest).unwrap()
}

fn tool(schema: &NamedSchema) -> Tool {
    let manifest = pack(std::slice::from_ref(schema));
    manifest.tool(&manifest.tools[0]).unwrap()
}

fn build_view(schemas: &[NamedSchema]) -> View {
    let manifest = pack(schemas);
    let state = SourceState {
        manifest: Some(manifest.fingerprint),
        ..SourceState::new("mcp", Origin::Config, Fingerprint::digest("x"), None)
    };
    let segment = Arc::new(Segment::with_prefix(Arc::new(manifest)));
    let part =
        CatalogSource::new(segment, Arc::new(state), SourceOptions { kind: "mcp".into(), ..SourceOptions::default() });
    View::full(Arc::new(Catalog::build(1, vec![Arc::new(part)])))
}

#[test]
fn hostile_schemas_are_rendered_in_every_format() {
    for schema in hostile_schemas("string") {
        let view = build_view(std::slice::from_ref(&schema));
        let tool = view.offered_tools().next().unwrap();
        for format in Format::ALL {
            let projected = view.project(&tool, format).unwrap();
            let name = &schema.0;
            let format = format.as_str();
            assert!(projected.text.as_ref().is_none_or(|text| text.len() < 1_100_000), "{name} as {format}");
            let loss_bytes: usize = projected.losses.iter().map(|loss| loss.path.len() + loss.edit.len()).sum();
            assert!(loss_bytes < 4_000_000, "{name} as {format}: {loss_bytes}");
        }
    }
}

#[test]
fn arguments_are_validated_against_hostile_schemas() {
    let objects = (0..40).fold(json!(1), |value, _| json!({ "a": value }));
    let arrays = (0..40).fold(json!(1), |value, _| json!([value]));
    for (name, schema) in hostile_schemas("string") {
        let validator = toolcrib_schema::Validator::new(to_raw_value(&schema).unwrap().into());
        for value in [json!("a"), json!(1), json!({}), json!({ "a": { "b": ["c"] } }), objects.clone(), arrays.clone()]
        {
            for arguments in [json!({ "x": value }), json!({ "a": value, "b": value }), json!({})] {
                let faults = validator.validate(&arguments).err().unwrap_or_default();
                assert!(faults.len() <= 50 && faults.iter().all(|fault| fault.message.len() < 2_000), "{name}");
            }
        }
    }
}

#[test]
fn hostile_schemas_are_outlined() {
    for (name, schema) in hostile_schemas("string") {
        assert!(outline::list_arguments(&schema).items.len() <= 500, "{name}");
        assert!(outline::call_signature("t", &schema).chars().count() < 1_000, "{name}");
        assert!(outline::short_signature("t", &schema).chars().count() < 1_000, "{name}");
    }
}

#[test]
fn text_is_typed_by_hostile_schemas() {
    let text = "1,".repeat(5_000);
    for (name, schema) in hostile_schemas("string") {
        assert!(toolcrib_schema::property_types(&schema, "x").len() <= 7, "{name}");
        let typed = toolcrib_schema::parse_typed(&schema, "x", &text);
        assert!(typed.is_string() || typed.is_array(), "{name}");
    }
}

/// Every leaf differs, and with it a type or a title.
#[test]
fn hostile_schemas_are_compared() {
    for (old, new) in hostile_schemas("string").iter().zip(&hostile_schemas("integer")) {
        let comparison = compare(&tool(old), &tool(new), &mut WorkBudget::default());
        assert!(comparison.notes.iter().all(|note| note.len() < 1_000), "{}: {comparison:?}", old.0);
        let is_text = !old.1.to_string().contains("\"type\":\"string\"");
        assert!(is_text || comparison.class != ChangeClass::Text, "{}: {comparison:?}", old.0);
    }
}

#[test]
fn hostile_schemas_are_locked_and_compared_with_the_lockfile() {
    for (old, new) in hostile_schemas("string").iter().zip(&hostile_schemas("integer")) {
        let segment = |schema: &NamedSchema| Segment::with_prefix(Arc::new(pack(std::slice::from_ref(schema))));
        let lock = Lockfile::from_segments([&segment(old)].into_iter()).unwrap();
        assert!(lock.to_text().unwrap().len() < 10_000, "{}", old.0);
        let difference = SourceDiff::from_lockfile(&lock.sources[&SourceId::parse("hostile").unwrap()], &segment(new));
        assert_eq!(difference.unwrap().changed.len(), 1, "{}", old.0);
    }
}

#[test]
fn hostile_schemas_are_searched_and_summarised() {
    let view = build_view(&hostile_schemas("string"));
    let identifiers = "create_issue createIssue x-1 ".repeat(1_000);
    for query in ["anyOf", "doubling properties", "n", "p17", &"n".repeat(60_000), &identifiers] {
        let response = view.search(&Query::new(query).with_limit(0));
        assert!(response.hits.iter().all(|hit| hit.to_line().chars().count() < 1_500), "{}", query.len());
    }
    assert!(view.summary(SummaryBudget::default()).tokens <= SummaryBudget::DEFAULT_TOKENS);
}
