//! Renders every recorded tool of real servers in every provider's format, and checks that provider's rules.

use std::sync::Arc;

use serde_json::value::RawValue;
use serde_json::{Map, Value};
use toolcrib::SourceId;
use toolcrib::catalog::filter::ListOrder;
use toolcrib::catalog::render::Format;
use toolcrib::catalog::{Catalog, CatalogSource, Segment, SourceOptions, View};
use toolcrib::core::inventory::{Actor, Event, Inventory, Origin, Record};
use toolcrib::core::manifest::{Manifest, PackedManifest, SkippedTool, ToolLimits};
use toolcrib::core::time::Timestamp;
use toolcrib_testkit::programs;

#[test]
fn every_recorded_tool_is_valid_for_every_provider_or_skipped() {
    let Some(view) = recorded_view() else {
        return programs::skip(
            "formats::every_recorded_tool_is_valid_for_every_provider_or_skipped",
            "there are no recorded tool lists",
        );
    };
    let Some(rebuilt) = recorded_view() else { return };
    let offered = view.offered_tools().count();
    for (format, max_skipped, check) in [
        (Format::Mcp, 0, check_mcp as fn(&Value)),
        (Format::Anthropic, 0, check_anthropic),
        (Format::Openai, 0, check_openai),
        (Format::OpenaiStrict, offered / 10, check_strict),
        (Format::Gemini, offered / 50, check_gemini),
    ] {
        let (text, skipped) = render(&view, format);
        let tools: Vec<Value> = serde_json::from_str(&text).unwrap();
        assert_eq!(tools.len() + skipped.len(), offered, "{format:?}");
        assert!(skipped.len() <= max_skipped, "{format:?} excludes {}: {skipped:#?}", skipped.len());
        tools.iter().for_each(check);
        assert!(render(&rebuilt, format).0 == text, "{format:?} is the same when built again");
    }
}

#[test]
fn lines_of_recorded_tools_have_at_most_25_tokens_each() {
    let Some(view) = recorded_view() else {
        return programs::skip(
            "formats::lines_of_recorded_tools_have_at_most_25_tokens_each",
            "there are no recorded tool lists",
        );
    };
    let mut text = String::new();
    view.render_lines(
        |_| true,
        &ListOrder::Name,
        |chunk| {
            text.push_str(chunk);
            Ok(())
        },
    )
    .unwrap();
    let names: Vec<&str> = text.lines().map(|line| line.split(" — ").next().unwrap_or_default()).collect();
    assert_eq!(names, view.offered_tools().map(|tool| tool.name().as_str().to_owned()).collect::<Vec<_>>());
    let tokens = toolcrib::catalog::token_count::count(&text);
    assert!(tokens <= 25 * names.len(), "{tokens} tokens for {} tools", names.len());
    assert!(text.lines().filter(|line| line.contains(" — ")).count() * 10 > names.len() * 9);
}

#[test]
fn the_arguments_of_every_recorded_tool_are_validated() {
    let Some(view) = recorded_view() else {
        return programs::skip(
            "formats::the_arguments_of_every_recorded_tool_are_validated",
            "there are no recorded tool lists",
        );
    };
    for tool in view.offered_tools() {
        assert_eq!(tool.call_spec().unwrap().validator.note(), None, "{}", tool.name());
    }
}

/// Renders a view; returns the text and the skipped tools.
fn render(view: &View, format: Format) -> (String, Vec<SkippedTool>) {
    let mut text = String::new();
    let skipped = view.render_chunks(
        format,
        |_| true,
        &ListOrder::Name,
        |chunk| {
            text.push_str(chunk);
            Ok(())
        },
    );
    let skipped = skipped.unwrap();
    (text, skipped)
}

/// Builds a view of all recorded tools, one source per recorded server.
fn recorded_view() -> Option<View> {
    let raw = |tool: &Value| RawValue::from_string(tool.to_string()).unwrap();
    let lists = programs::recorded_tool_lists()?.into_iter().enumerate();
    let sources = lists.map(|(number, recording)| {
        catalog_source(&format!("s{number}"), &recording.tools.iter().map(raw).collect::<Vec<_>>())
    });
    let catalog = Arc::new(Catalog::build(1, sources.collect()));
    Some(View::full(catalog))
}

/// Builds the catalogue entry of one source.
fn catalog_source(source: &str, tools: &[Box<RawValue>]) -> Arc<CatalogSource> {
    let id = SourceId::parse(source).unwrap();
    let manifest = Manifest::new(&id, tools, Vec::new(), &ToolLimits::default());
    let mut inventory = Inventory::default();
    let definition = manifest.fingerprint;
    let event = Event::SourceDeclared {
        source: id.clone(),
        kind: "mcp".into(),
        origin: Origin::Config,
        definition,
        enabled: None,
        enabled_reference: None,
    };
    inventory.apply(&Record { seq: 1, at: Timestamp(0), actor: Actor::new("test"), event });
    let segment = Segment::with_prefix(Arc::new(PackedManifest::new(&manifest).unwrap()));
    Arc::new(CatalogSource::new(Arc::new(segment), inventory.source(&id).unwrap().clone(), SourceOptions::default()))
}

fn check_name(tool: &Value) {
    let name = tool["name"].as_str().unwrap();
    assert!((1..=64).contains(&name.len()), "{name}");
    assert!(name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte)), "{name}");
    assert!(tool["description"].is_string(), "{name}");
}

fn check_mcp(tool: &Value) {
    check_name(tool);
    assert!(tool["inputSchema"].is_object());
}

fn check_root(schema: &Value, forbidden: &[&str]) {
    assert_eq!(schema["type"], "object");
    for keyword in forbidden.iter().chain(&["$ref"]) {
        assert!(schema.get(keyword).is_none(), "{keyword} in {schema}");
    }
}

fn check_anthropic(tool: &Value) {
    check_name(tool);
    check_root(&tool["input_schema"], &["oneOf", "anyOf", "allOf"]);
    let legal = |name: &String| {
        name.len() <= 64 && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte))
    };
    assert!(tool["input_schema"]["properties"].as_object().is_none_or(|fields| fields.keys().all(legal)));
}

fn check_openai(tool: &Value) {
    assert_eq!(tool["type"], "function");
    let function = &tool["function"];
    check_name(function);
    assert!(function["description"].as_str().unwrap().chars().count() <= 1024);
    assert!(function["parameters"]["properties"].is_object());
    check_root(&function["parameters"], &["oneOf", "anyOf", "allOf", "enum", "not"]);
}

fn check_strict(tool: &Value) {
    check_openai(tool);
    assert_eq!(tool["function"]["strict"], true);
    let schema = &tool["function"]["parameters"];
    let strict = StrictRules { root: schema };
    strict.check_object(schema.as_object().unwrap(), 1);
}

/// Checks the rules of OpenAI's Structured Outputs.
struct StrictRules<'a> {
    root: &'a Value,
}

impl StrictRules<'_> {
    fn check_schema(&self, schema: &Value, depth: usize) {
        let keywords = schema.as_object().unwrap_or_else(|| panic!("{schema} is no object"));
        let allowed = [
            "type",
            "title",
            "description",
            "enum",
            "const",
            "anyOf",
            "$ref",
            "$defs",
            "properties",
            "required",
            "additionalProperties",
            "items",
            "minItems",
            "maxItems",
            "pattern",
            "format",
            "multipleOf",
            "minimum",
            "maximum",
            "exclusiveMinimum",
            "exclusiveMaximum",
        ];
        for keyword in keywords.keys() {
            assert!(allowed.contains(&keyword.as_str()), "{keyword} in {schema}");
        }
        if let Some(reference) = keywords.get("$ref") {
            assert_eq!(keywords.len(), 1, "beside a reference: {schema}");
            let target = reference.as_str().unwrap().strip_prefix('#').unwrap();
            assert!(self.root.pointer(target).is_some(), "{reference} leads nowhere");
            return;
        }
        if let Some(alternatives) = keywords.get("anyOf") {
            let alternatives = alternatives.as_array().unwrap();
            assert!(!alternatives.is_empty());
            alternatives.iter().for_each(|alternative| self.check_schema(alternative, depth));
            return;
        }
        let types: Vec<&str> = match &keywords["type"] {
            Value::String(name) => vec![name],
            Value::Array(names) => names.iter().map(|name| name.as_str().unwrap()).collect(),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => panic!("no type in {schema}"),
        };
        if types.contains(&"object") {
            self.check_object(keywords, depth + 1);
        }
        if types.contains(&"array") {
            let items = keywords.get("items").unwrap_or_else(|| panic!("no items in {schema}"));
            self.check_schema(items, depth);
        }
        if let Some(format) = keywords.get("format") {
            let known = ["date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"];
            assert!(known.contains(&format.as_str().unwrap()), "{format}");
        }
    }

    fn check_object(&self, keywords: &Map<String, Value>, depth: usize) {
        assert!(depth <= 10);
        assert_eq!(keywords["additionalProperties"], false, "{keywords:?}");
        let fields = keywords["properties"].as_object().unwrap();
        let names: Vec<&str> = fields.keys().map(String::as_str).collect();
        let required: Vec<&str> =
            keywords["required"].as_array().unwrap().iter().map(|name| name.as_str().unwrap()).collect();
        assert_eq!(required, names);
        fields.values().for_each(|field| self.check_schema(field, depth));
        let definitions = keywords.get("$defs").and_then(Value::as_object).into_iter().flatten();
        definitions.for_each(|(_, definition)| self.check_schema(definition, 1));
    }
}

fn check_gemini(tool: &Value) {
    check_name(tool);
    assert!(tool["name"].as_str().unwrap().starts_with(|first: char| first.is_ascii_alphabetic() || first == '_'));
    // A tool without arguments has no `parameters`.
    let Some(parameters) = tool.get("parameters") else { return };
    check_root(parameters, &["anyOf", "oneOf", "allOf"]);
    let legal = |name: &String| {
        name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    };
    assert!(parameters["properties"].as_object().unwrap().keys().all(legal));
    check_gemini_schema(parameters);
}

fn check_gemini_schema(schema: &Value) {
    let keywords = schema.as_object().unwrap_or_else(|| panic!("{schema} is no object"));
    if let Some(alternatives) = keywords.get("anyOf") {
        for keyword in keywords.keys() {
            assert!(
                ["anyOf", "title", "description", "nullable"].contains(&keyword.as_str()),
                "{keyword} beside anyOf"
            );
        }
        assert!(alternatives.as_array().unwrap().len() > 1);
        return alternatives.as_array().unwrap().iter().for_each(check_gemini_schema);
    }
    let name = keywords["type"].as_str().unwrap_or_else(|| panic!("no type in {schema}"));
    let common = ["type", "title", "description", "nullable", "default", "example"];
    let own: &[&str] = match name {
        "string" => &["format", "enum", "minLength", "maxLength", "pattern"],
        "number" | "integer" => &["format", "minimum", "maximum"],
        "boolean" => &[],
        "array" => &["items", "minItems", "maxItems"],
        "object" => &["properties", "required", "minProperties", "maxProperties"],
        other => panic!("the type {other}"),
    };
    for keyword in keywords.keys() {
        assert!(common.contains(&keyword.as_str()) || own.contains(&keyword.as_str()), "{keyword} in {schema}");
    }
    if let Some(format) = keywords.get("format") {
        assert!(
            ["enum", "date-time", "float", "double", "int32", "int64"].contains(&format.as_str().unwrap()),
            "{format}"
        );
    }
    if let Some(values) = keywords.get("enum") {
        assert!(values.as_array().unwrap().iter().all(|value| value.as_str().is_some_and(|text| !text.is_empty())));
    }
    if name == "array" {
        check_gemini_schema(&keywords["items"]);
    }
    let fields = keywords.get("properties").and_then(Value::as_object);
    fields.into_iter().flatten().for_each(|(_, field)| check_gemini_schema(field));
    for required in keywords.get("required").and_then(Value::as_array).into_iter().flatten() {
        assert!(fields.unwrap().contains_key(required.as_str().unwrap()));
    }
}
