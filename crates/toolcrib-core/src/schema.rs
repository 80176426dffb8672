//! Arguments against a tool's schema: every fault with its path, and text from a command line turned into typed values.

use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::text::shown_short;

/// A schema made ready for checking. One that cannot be compiled checks nothing: its server decides.
#[derive(Debug)]
pub struct Validator(Option<jsonschema::Validator>);

/// What is wrong with an argument, and where: `/repo/name`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Fault {
    pub path: String,
    pub message: String,
}

/// Choices that are told to whoever chose another.
const MOST_CHOICES: usize = 24;
/// A fault list longer than this helps nobody.
const MOST_FAULTS: usize = 50;
/// Patterns come from sources: matching them must end.
const BACKTRACK_LIMIT: usize = 100_000;

impl Validator {
    pub fn compile(schema: &RawValue) -> Validator {
        let Ok(schema) = serde_json::from_str::<Value>(schema.get()) else { return Validator(None) };
        let patterns = jsonschema::PatternOptions::fancy_regex().backtrack_limit(BACKTRACK_LIMIT);
        Validator(jsonschema::options().with_pattern_options(patterns).build(&schema).ok())
    }

    pub fn faults(&self, arguments: &Value) -> Vec<Fault> {
        if !arguments.is_object() {
            return vec![Fault { path: "/".into(), message: "the arguments must be a JSON object".into() }];
        }
        let Some(validator) = &self.0 else { return Vec::new() };
        let mut faults: Vec<Fault> =
            validator.iter_errors(arguments).take(MOST_FAULTS).flat_map(|error| describe(&error)).collect();
        faults.sort_by(|one, other| one.path.cmp(&other.path));
        faults
    }
}

fn describe(error: &jsonschema::ValidationError<'_>) -> Vec<Fault> {
    use jsonschema::error::ValidationErrorKind as Kind;

    let at = error.instance_path().as_str();
    let fault = |path: String, message: String| Fault { path, message };
    #[expect(clippy::wildcard_enum_match_arm, reason = "a foreign enum; its own words do for all other kinds")]
    match error.kind() {
        Kind::Enum { options } => {
            let listed = options.as_array().map(Vec::as_slice).unwrap_or_default();
            let shown: Vec<String> =
                listed.iter().take(MOST_CHOICES).map(|choice| shown_short(&choice.to_string(), 60)).collect();
            let more = listed.len().saturating_sub(MOST_CHOICES);
            let more = if more > 0 { format!(" or {more} more") } else { String::new() };
            let path = if at.is_empty() { "/" } else { at };
            let given = shown_short(&error.instance().to_string(), 80);
            vec![fault(path.to_owned(), format!("{given} is not one of {}{more}", shown.join(", ")))]
        }
        Kind::Required { property } => {
            vec![fault(format!("{at}/{}", property.as_str().unwrap_or_default()), "is required".into())]
        }
        Kind::AdditionalProperties { unexpected } | Kind::UnevaluatedProperties { unexpected } => unexpected
            .iter()
            .map(|name| fault(format!("{at}/{}", shown_short(name, 80)), "is not an argument of this tool".into()))
            .collect(),
        _ => {
            let path = if at.is_empty() { "/" } else { at };
            vec![fault(path.to_owned(), shown_short(&error.to_string(), 300))]
        }
    }
}

/// Turns `text` into what the schema's property `key` asks for. Where it asks for nothing in particular, text stays text.
pub fn typed(schema: &Value, key: &str, text: &str) -> Value {
    let property = schema.get("properties").and_then(|properties| properties.get(key));
    let types = types(schema, key);
    let allows = |name: &str| types.iter().any(|known| known == name);
    let parsed: Option<Value> = serde_json::from_str(text).ok();
    match parsed {
        Some(Value::Number(number)) if allows("integer") && (number.is_i64() || number.is_u64()) => number.into(),
        Some(Value::Number(number)) if allows("number") => number.into(),
        Some(Value::Bool(value)) if allows("boolean") => value.into(),
        Some(Value::Null) if allows("null") => Value::Null,
        Some(Value::Array(items)) if allows("array") => items.into(),
        Some(Value::Object(fields)) if allows("object") => fields.into(),
        _ if allows("array") && !allows("string") => {
            let items = property.and_then(|property| property.get("items")).cloned().unwrap_or_default();
            let wrapper = serde_json::json!({ "properties": { "item": items }, "$defs": schema.get("$defs") });
            text.split(',').map(|item| typed(&wrapper, "item", item)).collect()
        }
        _ => text.into(),
    }
}

/// The types that the schema's property `key` may have; none where it says nothing about them.
pub fn types(schema: &Value, key: &str) -> Vec<String> {
    let property = schema.get("properties").and_then(|properties| properties.get(key));
    property.map(|property| types_of(schema, property, 0)).unwrap_or_default()
}

/// The types a property may have, through local references and alternatives.
fn types_of(root: &Value, property: &Value, depth: usize) -> Vec<String> {
    if depth > 8 {
        return Vec::new();
    }
    if let Some(reference) = property.get("$ref").and_then(Value::as_str) {
        let target = reference.strip_prefix('#').and_then(|pointer| root.pointer(pointer));
        return target.map(|target| types_of(root, target, depth + 1)).unwrap_or_default();
    }
    let mut types: Vec<String> = match property.get("type") {
        Some(Value::String(name)) => vec![name.clone()],
        Some(Value::Array(names)) => names.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
        _ => Vec::new(),
    };
    let constants = property.get("enum").and_then(Value::as_array).into_iter().flatten().chain(property.get("const"));
    types.extend(constants.map(|constant| type_name(constant).to_owned()));
    for key in ["anyOf", "oneOf", "allOf"] {
        let alternatives = property.get(key).and_then(Value::as_array).into_iter().flatten();
        types.extend(alternatives.flat_map(|alternative| types_of(root, alternative, depth + 1)));
    }
    types
}

/// The JSON type of a value, as schemas name it.
pub fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn faults(schema: Value, arguments: Value) -> Vec<String> {
        let raw = serde_json::value::to_raw_value(&schema).unwrap();
        let faults = Validator::compile(&raw).faults(&arguments);
        faults.into_iter().map(|fault| format!("{} {}", fault.path, fault.message)).collect()
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
    fn text_is_typed_by_the_schema() {
        let schema = json!({
            "properties": {
                "n": {"type": "integer"}, "f": {"type": ["number", "null"]}, "s": {"type": "string"},
                "b": {"anyOf": [{"type": "boolean"}, {"type": "null"}]}, "r": {"$ref": "#/$defs/n"},
                "l": {"type": "array", "items": {"type": "integer"}}, "e": {"enum": ["a", 1]}, "o": {"type": "object"},
            },
            "$defs": {"n": {"type": "number"}},
        });
        for (key, text, value) in [
            ("n", "7", json!(7)),
            ("n", "7.5", json!("7.5")),
            ("f", "7.5", json!(7.5)),
            ("f", "null", json!(null)),
            ("s", "7", json!("7")),
            ("b", "true", json!(true)),
            ("r", "1", json!(1)),
            ("l", "[1,2]", json!([1, 2])),
            ("l", "1,2", json!([1, 2])),
            ("e", "1", json!(1)),
            ("e", "a", json!("a")),
            ("o", "{\"x\":1}", json!({"x": 1})),
            ("unknown", "7", json!("7")),
        ] {
            assert_eq!(typed(&schema, key, text), value, "{key}={text}");
        }
    }
}
