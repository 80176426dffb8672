use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};
use toolcrib_core::tool::{Tool, ToolListing};

use super::*;

mod cases;

fn tool_with_schema(schema: &Value) -> Tool {
    let face = ToolListing {
        title: None,
        description: "Does it.".into(),
        input_schema: to_raw_value(schema).unwrap(),
        annotations: None,
    };
    Tool {
        name: "t".into(),
        output_schema: None,
        execution_spec: None,
        extra: Default::default(),
        original: Default::default(),
        notes: vec![],
        listing: face,
    }
}

fn project_with(format: Format, schema: &Value) -> ProjectedTool {
    let tool = tool_with_schema(schema);
    match format {
        Format::Anthropic => anthropic::project("s__t", &tool, Loading::Now),
        Format::Openai => openai::project("s__t", &tool),
        Format::OpenaiStrict => openai::project_strict("s__t", &tool),
        Format::Gemini => gemini::project("s__t", &tool),
        Format::Json | Format::Mcp | Format::AnthropicDeferred => panic!("{format:?} edits nothing"),
    }
}

/// Checks the projected schema and the losses, formatted as `path: edit`.
#[track_caller]
fn check(format: Format, schema: Value, expected: Value, losses: &[&str]) {
    let projected = project_with(format, &schema);
    let messages: Vec<String> = projected.losses.iter().map(|Loss { path, edit }| format!("{path}: {edit}")).collect();
    assert_eq!(messages, losses, "{schema}");
    let text = projected.text.unwrap_or_else(|| panic!("{:?} sets {schema} aside", projected.unsupported_reason));
    let tool: Value = serde_json::from_str(&text).unwrap();
    let pointers = ["/input_schema", "/function/parameters", "/parameters"];
    let schema_found = pointers.iter().find_map(|pointer| tool.pointer(pointer)).unwrap();
    // Compared as text, because the order of keys matters.
    assert_eq!(schema_found.to_string(), expected.to_string(), "{schema}");
}

#[track_caller]
fn check_unsupported(format: Format, schema: Value, reason: &str) {
    let projected = project_with(format, &schema);
    assert_eq!((projected.text, projected.unsupported_reason.as_deref()), (None, Some(reason)), "{schema}");
}

#[test]
fn every_format_can_be_parsed_by_name() {
    for format in Format::ALL {
        assert_eq!(Format::parse(format.as_str()).unwrap(), format);
    }
    let error = Format::parse("claude").unwrap_err();
    assert_eq!(
        error.message,
        "no format named `claude`; there are json, mcp, anthropic, openai, openai-strict, gemini"
    );
    assert_eq!(Format::Anthropic.deferred().unwrap(), Format::AnthropicDeferred);
    assert_eq!(Format::Gemini.deferred().unwrap_err().code, Code::BadRequest);
}

#[test]
fn a_supported_schema_passes_through_unchanged() {
    let text =
        r#"{ "type":"object", "properties": {"n": {"maximum":1e2,"type":"number"}},"x-own":12345678901234567890123 }"#;
    let raw = RawValue::from_string(text.to_owned()).unwrap();
    for rules in [passthrough::ANTHROPIC_RULES, passthrough::OPENAI_RULES] {
        let (schema, losses) = passthrough::project_schema(&raw, &rules);
        assert_eq!((schema.unwrap().as_str(), losses.len()), (text, 0));
    }
}

#[test]
fn a_long_description_is_cut_for_openai() {
    let mut tool = tool_with_schema(&json!({"type": "object", "properties": {}}));
    tool.listing.description = "é".repeat(1_030);
    let projected = openai::project("s__t", &tool);
    let function: Value = serde_json::from_str(&projected.text.unwrap()).unwrap();
    let description = function["function"]["description"].as_str().unwrap();
    assert_eq!((description.chars().count(), description.ends_with("é…")), (1_024, true));
    assert_eq!(projected.losses[0].path, "description");
    assert_eq!(projected.losses[0].edit, "1030 characters are too many, cut to 1024");
}

#[test]
fn gemini_restricts_the_first_character_of_a_name() {
    let tool = tool_with_schema(&json!({"type": "object"}));
    assert!(gemini::project("_1__t", &tool).text.is_some());
    assert_eq!(
        gemini::project("1__t", &tool).unsupported_reason.unwrap(),
        "a name must begin with a letter or an underscore"
    );
}

#[test]
fn projection_of_any_schema_terminates() {
    let mut deep = json!({"type": "string"});
    for _ in 0..60 {
        deep = json!({"type": "object", "properties": {"a": deep}, "required": ["a"]});
    }
    let doubling: Value = (0..40)
        .map(|level| {
            let next = json!({"$ref": format!("#/$defs/d{}", level + 1)});
            (
                format!("d{level}"),
                json!({"allOf": [next, {"required": ["x"]}, next], "properties": {"a": next, "b": next}}),
            )
        })
        .chain([("d40".to_owned(), json!({"type": "object", "properties": {"x": {"type": "string"}}}))])
        .collect::<serde_json::Map<_, _>>()
        .into();
    let own = json!({"$ref": "#/$defs/own"});
    for schema in [
        json!({}),
        json!({"type": "object", "properties": [], "required": "x", "$defs": 3}),
        json!({"type": "object", "properties": {"a": null, "b": 3, "c": {"type": {}}, "d": {"$ref": 4}, "e": {"enum": 1}}}),
        json!({"type": ["object", "null"], "properties": {"a": {"type": []}, "b": {"anyOf": []}, "c": {"enum": []}}}),
        json!({"$ref": "#"}),
        json!({"$ref": "#/$defs/own", "$defs": {"own": own}}),
        json!({"allOf": [{"$ref": "#"}]}),
        json!({"anyOf": [{"$ref": "#"}, {"$ref": "#/anyOf/0"}]}),
        json!({"type": "object", "properties": {"a": own}, "$defs": {"own": own}}),
        json!({"type": "object", "properties": {"a": own}, "$defs": {"own": {"allOf": [own, own]}}}),
        json!({"type": "object", "properties": {"a": own}, "$defs": {"own": {"anyOf": [own, own]}}}),
        json!({"type": "object", "properties": {"a": own}, "$defs": {"own": {"items": {"allOf": [own, {"minItems": 1}]}}}}),
        json!({"type": "object", "properties": {"a": {"$ref": "#/properties/b"}, "b": {"$ref": "#/properties/a"}}}),
        json!({"type": "object", "properties": {"a": {"$ref": "#/$defs/d0"}}, "$defs": doubling}),
        deep,
    ] {
        for format in [Format::Anthropic, Format::Openai, Format::OpenaiStrict, Format::Gemini] {
            let projected = project_with(format, &schema);
            assert_ne!(projected.text.is_some(), projected.unsupported_reason.is_some(), "{format:?} {schema}");
        }
    }
}

#[test]
fn projecting_a_huge_value_behind_many_references_is_bounded() {
    let fields = |count: usize| -> serde_json::Map<String, Value> {
        (0..count).map(|index| (format!("p{index}"), json!({"$ref": "#/$defs/huge"}))).collect()
    };
    let huge = json!({"type": "string", "default": "x".repeat(80_000)});
    let many = json!({"type": "object", "properties": fields(500), "$defs": {"huge": huge}});
    let shared = json!({"type": "object", "properties": {"p": {
        "anyOf": vec![json!({"minProperties": 1}); 8_000], "properties": {"q": {"const": "x".repeat(100_000)}}
    }}});
    let started = std::time::Instant::now();
    for schema in [many, shared] {
        for format in [Format::Anthropic, Format::Openai, Format::OpenaiStrict, Format::Gemini] {
            let projected = project_with(format, &schema);
            assert!(projected.text.is_none_or(|text| text.len() < 16 * 1024 * 1024), "{format:?}");
            assert!(projected.losses.iter().all(|loss| loss.edit.len() < 500), "{format:?}");
        }
    }
    assert!(started.elapsed().as_secs() < 60, "{:?}", started.elapsed());
}

#[test]
fn many_alternatives_of_an_argument_become_one_any_of() {
    let forms: Vec<Value> = (0..3_000).map(|bound| json!({"properties": {"a": {"minimum": bound}}})).collect();
    let projected = project_with(Format::Anthropic, &json!({"type": "object", "anyOf": forms}));
    let tool: Value = serde_json::from_str(&projected.text.unwrap()).unwrap();
    let forms = tool.pointer("/input_schema/properties/a/anyOf").and_then(Value::as_array).unwrap();
    assert_eq!((forms.len(), &forms[2_999]), (3_000, &json!({"minimum": 2_999})));
}
