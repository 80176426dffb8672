//! Published OpenAPI documents: every operation becomes a tool with a valid name and a schema that compiles, no
//! required parameter is lost, and the largest list stays within its token budget.

use std::collections::BTreeSet;

use serde_json::Value;
use serde_json::value::to_raw_value;
use toolcrib::catalog::render::mcp;
use toolcrib::catalog::{outline, token_count};
use toolcrib::core::manifest::{Manifest, ToolLimits};
use toolcrib::core::source::OpenApiSource;
use toolcrib::core::{SourceId, Tool};
use toolcrib::schema::Validator;
use toolcrib_openapi::{ConversionOptions, ConvertedDocument, DocumentSet, convert, parse};
use toolcrib_testkit::programs;
use url::Url;

struct RecordedDocument {
    file: String,
    operations: usize,
    document: Value,
}

fn load_recorded() -> Option<Vec<RecordedDocument>> {
    let folder = programs::data_dir()?.join("openapi");
    let index: Value = serde_json::from_str(&std::fs::read_to_string(folder.join("index.json")).ok()?).unwrap();
    let read = |entry: &Value| {
        let file = entry["file"].as_str().unwrap().to_owned();
        let text = std::fs::read_to_string(folder.join(&file)).unwrap();
        let document = parse(&text).unwrap();
        RecordedDocument { file, operations: entry["ops"].as_u64().unwrap() as usize, document }
    };
    Some(index.as_array().unwrap().iter().map(read).collect())
}

fn github_source() -> SourceId {
    SourceId::parse("github").unwrap()
}

fn convert_document(document: Value) -> (Vec<Tool>, ConvertedDocument) {
    let document_set = DocumentSet::new(Url::parse("https://api.example/openapi.json").unwrap(), document);
    let source = github_source();
    let openapi = OpenApiSource::default();
    let converted = convert(&document_set, ConversionOptions { source: &source, openapi: &openapi }).unwrap();
    let manifest = Manifest::new(&source, &converted.tools, Vec::new(), &ToolLimits::default());
    assert_eq!(manifest.skipped, []);
    (manifest.tools.into_iter().map(|(tool, _)| tool).collect(), converted)
}

#[test]
fn every_document_converts_and_its_operations_become_tools() {
    let Some(recorded) = load_recorded() else {
        return programs::skip("openapi documents", "there is no recorded material");
    };
    let mut operations = 0;
    let mut converted = 0;
    for RecordedDocument { file, operations: operation_count, document } in recorded {
        let (tools, _) = convert_document(document);
        let names: BTreeSet<&str> = tools.iter().map(|tool| tool.name.as_str()).collect();
        assert_eq!(names.len(), tools.len(), "{file}: names are unique");
        for tool in &tools {
            let name = format!("github__{}", tool.name);
            let is_valid = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '_' | '-');
            assert!(name.len() <= 64 && name.chars().all(is_valid), "{file}: `{name}`");
            let spec = tool.parse_execution_spec().unwrap();
            let schemas = [Some(&tool.listing.input_schema), spec.input_schema.as_ref(), spec.output_schema.as_ref()];
            for schema in schemas.into_iter().flatten() {
                let schema: Value = serde_json::from_str(schema.get()).unwrap();
                let meta_valid = jsonschema::draft202012::meta::validate(&schema).map_err(|error| error.to_string());
                assert_eq!(meta_valid, Ok(()), "{file}: `{name}`");
                assert!(jsonschema::options().build(&schema).is_ok(), "{file}: `{name}`");
                let validator = Validator::new(to_raw_value(&schema).unwrap().into());
                assert_eq!(validator.note(), None, "{file}: `{name}`");
            }
            let listed: Value = serde_json::from_str(tool.listing.input_schema.get()).unwrap();
            assert_eq!(listed["type"], "object");
            assert!(["anyOf", "oneOf", "allOf"].iter().all(|key| listed.get(*key).is_none()));
            assert!(
                tool.listing.input_schema.get().len() <= 8 * 1024 + 64,
                "{file}: `{name}` is listed with a pruned schema"
            );
        }
        (operations, converted) = (operations + operation_count, converted + tools.len());
    }
    assert!(converted as f64 >= 0.999 * operations as f64, "{converted} of {operations} operations became tools");
}

#[test]
fn the_largest_list_is_complete_and_within_its_token_budget() {
    let Some(recorded) = load_recorded() else {
        return programs::skip("openapi tokens", "there is no recorded material");
    };
    let github = recorded.into_iter().find(|recorded| recorded.file.starts_with("github")).unwrap();
    let document = github.document.clone();
    let (tools, _) = convert_document(github.document);
    let mut list = 0;
    let mut cards = 0;
    for tool in &tools {
        let name = format!("github__{}", tool.name);
        let mut text = String::new();
        mcp::push_tool(&name, tool, &mut text);
        list += token_count::count(&text);
        let schema: Value = serde_json::from_str(tool.listing.input_schema.get()).unwrap();
        let card = format!(
            "{} — {}",
            outline::short_signature(&name, &schema),
            outline::first_sentence(&tool.listing.description)
        );
        cards += token_count::count(&card);
        assert_schema_complete(tool, &schema, &document);
    }
    assert_eq!(tools.len(), 1_223);
    assert!(list <= 245_000, "the list costs {list} tokens");
    assert!(cards <= 22 * tools.len(), "a card costs {:.1} tokens", cards as f64 / tools.len() as f64);
}

/// Checks that the schema has every parameter of the operation and every required property of its body.
fn assert_schema_complete(tool: &Tool, schema: &Value, document: &Value) {
    fn resolve_ref<'a>(document: &'a Value, value: &'a Value) -> &'a Value {
        match value["$ref"].as_str() {
            Some(reference) => resolve_ref(document, document.pointer(&reference[1..]).unwrap()),
            None => value,
        }
    }
    let spec = tool.parse_execution_spec().unwrap();
    let operation = spec.execution.operation().unwrap();
    let item = &document["paths"][&operation.path];
    let operation_json = &item[operation.method.to_lowercase()];
    for parameter in [item, operation_json].into_iter().filter_map(|holder| holder["parameters"].as_array()).flatten() {
        let name = resolve_ref(document, parameter)["name"].as_str().unwrap();
        assert!(schema["properties"].get(name).is_some(), "`{}` lacks `{name}`", tool.name);
    }
    let content = resolve_ref(document, &operation_json["requestBody"])["content"].as_object();
    let Some(media) = content.and_then(|content| content.get("application/json")) else { return };
    let required = resolve_ref(document, &media["schema"])["required"].as_array();
    let full_schema = spec.input_schema.map(|full_schema| serde_json::from_str::<Value>(full_schema.get()).unwrap());
    for schema in [Some(schema), full_schema.as_ref()].into_iter().flatten() {
        let body = resolve_ref(schema, &schema["properties"]["body"]);
        for name in required.into_iter().flatten().filter_map(Value::as_str) {
            assert!(body["properties"].get(name).is_some(), "the body of `{}` lacks `{name}`", tool.name);
        }
    }
}
