//! A schema read so that every dialect can be written from it: compositions resolved, one type at a time, null apart.

use serde_json::{Map, Value, json};

use super::merge::{merge_all_of, merge_keywords};
use super::projection::{ProjectionContext, ProjectionResult, Unsupported, child_pointer, estimate_size};
use crate::schema::type_name;

#[derive(Debug)]
pub(super) struct SchemaNode {
    /// Where it stands: a form that is left alone stands in the place of the choice around it.
    pub(super) path: String,
    pub(super) title: Option<Value>,
    pub(super) description: Option<Value>,
    pub(super) nullable: bool,
    pub(super) kind: SchemaKind,
}

#[derive(Debug)]
pub(super) enum SchemaKind {
    /// Says nothing about the value.
    Any,
    Null,
    /// A local reference, such as `#/$defs/place`.
    Reference(String),
    /// Several forms, each with its path.
    Alternatives(Vec<(String, Value)>),
    /// One type, and what is said of it.
    Typed(String, Map<String, Value>),
}

const JSON_TYPES: [&str; 7] = ["string", "number", "integer", "boolean", "array", "object", "null"];
/// Housekeeping that says nothing about values.
const METADATA_KEYWORDS: [&str; 7] = ["$schema", "$id", "$anchor", "$comment", "$defs", "definitions", "nullable"];
/// Keywords that alone do not make a form of their own.
const CONDITION_KEYWORDS: [&str; 6] = ["required", "not", "if", "then", "else", "description"];

/// Keywords that speak of a choice as a whole, and of none of its forms.
const WHOLE_VALUE_KEYWORDS: [&str; 3] = ["default", "example", "examples"];

impl SchemaNode {
    pub(super) fn parse(schema: &Value, path: &str, edits: &mut ProjectionContext<'_>) -> ProjectionResult<SchemaNode> {
        let mut keywords = match schema {
            Value::Bool(true) => Map::new(),
            Value::Object(keywords) => {
                edits.count_copy(estimate_size(keywords), path)?;
                keywords.clone()
            }
            Value::Bool(false) => return Err(Unsupported::new(path, "it allows no value")),
            Value::Null | Value::Number(_) | Value::String(_) | Value::Array(_) => {
                return Err(Unsupported::new(path, "it is not a schema"));
            }
        };
        if let Some(alone) = sole_reference(&keywords) {
            keywords.insert("$ref".to_owned(), alone);
            keywords.shift_remove("allOf");
        }
        if keywords.contains_key("allOf") {
            keywords = merge_all_of(keywords, path, edits, 0)?;
        }
        let mut nullable = keywords.get("nullable") == Some(&Value::Bool(true));
        keywords.retain(|key, _| !METADATA_KEYWORDS.contains(&key.as_str()));
        let (title, description) = (keywords.shift_remove("title"), keywords.shift_remove("description"));
        let title = title.filter(Value::is_string);
        let description = description.filter(Value::is_string);
        let kind = match keywords.shift_remove("$ref") {
            Some(Value::String(reference)) => {
                record_dropped_keywords(&keywords, path, edits);
                SchemaKind::Reference(reference)
            }
            Some(_) => return Err(Unsupported::new(path, "its reference is no text")),
            None => classify(keywords, path, edits, &mut nullable)?,
        };
        let node = SchemaNode { path: path.to_owned(), title, description, nullable, kind };
        Ok(match node.kind {
            // A form that is left alone needs no choice around it.
            SchemaKind::Alternatives(ref alternatives) if alternatives.len() == 1 => {
                let (path, only) = &alternatives[0];
                let only = SchemaNode::parse(only, path, edits)?;
                SchemaNode {
                    path: only.path,
                    title: node.title.or(only.title),
                    description: node.description.or(only.description),
                    nullable: node.nullable || only.nullable,
                    kind: only.kind,
                }
            }
            SchemaKind::Alternatives(ref alternatives) if alternatives.is_empty() => {
                SchemaNode { kind: SchemaKind::Null, ..node }
            }
            SchemaKind::Any
            | SchemaKind::Null
            | SchemaKind::Reference(_)
            | SchemaKind::Alternatives(_)
            | SchemaKind::Typed(..) => node,
        })
    }
}

/// A reference that is wrapped, as many do to describe its use: it stays a reference, for it may lead back here.
fn sole_reference(keywords: &Map<String, Value>) -> Option<Value> {
    let [Value::Object(only)] = &keywords.get("allOf")?.as_array()?[..] else { return None };
    let described = |key: &String| ["allOf", "title", "description", "default", "nullable"].contains(&key.as_str());
    if only.len() > 1 || !keywords.keys().all(described) {
        return None;
    }
    only.get("$ref").cloned()
}

/// What the keywords allow, null apart.
fn classify(
    mut keywords: Map<String, Value>,
    path: &str,
    edits: &mut ProjectionContext<'_>,
    nullable: &mut bool,
) -> ProjectionResult<SchemaKind> {
    for choice in ["anyOf", "oneOf"] {
        let Some(Value::Array(alternatives)) = keywords.shift_remove(choice) else { continue };
        let at = child_pointer(path, choice);
        if alternatives.iter().all(is_condition) {
            edits.record_loss(&at, "conditions on which fields come together are not supported, dropped");
            continue;
        }
        if choice == "oneOf" {
            edits.record_loss(&at, "exactly one of several became any of them");
        }
        for keyword in WHOLE_VALUE_KEYWORDS {
            if let Some(value) = keywords.shift_remove(keyword) {
                edits.record_dropped_keyword(path, keyword, &value);
            }
        }
        let mut several = Vec::new();
        for (index, alternative) in alternatives.into_iter().enumerate() {
            let at = format!("{at}/{index}");
            if is_null_schema(&alternative) {
                *nullable = true;
                continue;
            }
            several.push((at.clone(), merge_shared_keywords(alternative, &keywords, &at, edits)?));
        }
        return Ok(SchemaKind::Alternatives(several));
    }
    if let Some(Value::Array(values)) = keywords.get_mut("enum")
        && values.contains(&Value::Null)
    {
        values.retain(|value| !value.is_null());
        *nullable = true;
    }
    let mut types = allowed_types(&keywords, path)?;
    keywords.shift_remove("type");
    if types.contains(&"null".to_owned()) {
        types.retain(|name| name != "null");
        if types.is_empty() {
            return Ok(SchemaKind::Null);
        }
        *nullable = true;
    }
    match types.len() {
        0 if keywords.is_empty() => Ok(SchemaKind::Any),
        0 => {
            record_dropped_keywords(&keywords, path, edits);
            Ok(SchemaKind::Any)
        }
        1 => Ok(SchemaKind::Typed(types.swap_remove(0), keywords)),
        _ => Ok(SchemaKind::Alternatives(
            types.into_iter().map(|name| (path.to_owned(), restrict_to_type(&name, &keywords))).collect(),
        )),
    }
}

/// The types that are named or, where none is, those that the other keywords speak of.
fn allowed_types(keywords: &Map<String, Value>, path: &str) -> ProjectionResult<Vec<String>> {
    let named: Vec<&str> = match keywords.get("type") {
        Some(Value::String(name)) => vec![name],
        Some(Value::Array(names)) => names.iter().filter_map(Value::as_str).collect(),
        Some(_) => return Err(Unsupported::new(&child_pointer(path, "type"), "it is not a type")),
        None => Vec::new(),
    };
    if let Some(unknown) = named.iter().find(|name| !JSON_TYPES.contains(name)) {
        return Err(Unsupported::new(
            &child_pointer(path, "type"),
            format!("there is no type `{}`", crate::text::sanitize_truncated(unknown, 40)),
        ));
    }
    let mut types: Vec<String> = Vec::new();
    let mut add = |name: &str| {
        if !types.iter().any(|known| known == name) {
            types.push(name.to_owned());
        }
    };
    named.iter().for_each(|name| add(name));
    if named.is_empty() {
        let values = keywords.get("enum").and_then(Value::as_array).into_iter().flatten().chain(keywords.get("const"));
        values.for_each(|value| add(if value.is_i64() || value.is_u64() { "integer" } else { type_name(value) }));
        let has = |keys: &[&str]| keys.iter().any(|key| keywords.contains_key(*key));
        if types.is_empty() {
            [
                ("object", has(&["properties", "required", "additionalProperties", "patternProperties"])),
                ("array", has(&["items", "prefixItems", "minItems", "maxItems", "uniqueItems"])),
                ("string", has(&["pattern", "format", "minLength", "maxLength"])),
                ("number", has(&["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"])),
            ]
            .iter()
            .filter(|(_, spoken_of)| *spoken_of)
            .for_each(|(name, _)| types.push((*name).to_owned()));
        }
    }
    // A number of any kind may be an integer.
    if types.iter().any(|name| name == "number") {
        types.retain(|name| name != "integer");
    }
    Ok(types)
}

/// What is said of one type, where several are allowed.
fn restrict_to_type(name: &str, keywords: &Map<String, Value>) -> Value {
    let concerns: &[&str] = match name {
        "object" => {
            &["properties", "required", "additionalProperties", "patternProperties", "minProperties", "maxProperties"]
        }
        "array" => &["items", "prefixItems", "minItems", "maxItems", "uniqueItems"],
        "string" => &["pattern", "format", "minLength", "maxLength"],
        "number" | "integer" => &["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"],
        _ => &[],
    };
    let mut one = Map::from_iter([("type".to_owned(), json!(name))]);
    for (key, value) in keywords {
        if concerns.contains(&key.as_str()) {
            one.insert(key.clone(), value.clone());
        }
    }
    if let Some(values) = keywords.get("enum").and_then(Value::as_array) {
        let own: Vec<&Value> = values
            .iter()
            .filter(|value| type_name(value) == name || (value.is_number() && matches!(name, "number" | "integer")))
            .collect();
        if !own.is_empty() {
            one.insert("enum".to_owned(), json!(own));
        }
    }
    Value::Object(one)
}

/// An alternative, with what the schema around it says of all of them.
fn merge_shared_keywords(
    mut alternative: Value,
    shared: &Map<String, Value>,
    path: &str,
    edits: &mut ProjectionContext<'_>,
) -> ProjectionResult<Value> {
    if let Value::Object(own) = &mut alternative
        && !own.contains_key("$ref")
    {
        merge_keywords(own, shared, path, edits)?;
    }
    Ok(alternative)
}

fn is_null_schema(schema: &Value) -> bool {
    let only_null = |key: &str| schema.get(key).is_some_and(|value| *value == json!([null]));
    schema.get("type").is_some_and(|name| *name == "null")
        || schema.get("const").is_some_and(Value::is_null)
        || only_null("enum")
}

fn is_condition(schema: &Value) -> bool {
    schema.as_object().is_some_and(|keywords| keywords.keys().all(|key| CONDITION_KEYWORDS.contains(&key.as_str())))
}

fn record_dropped_keywords(keywords: &Map<String, Value>, path: &str, edits: &mut ProjectionContext<'_>) {
    for (keyword, value) in keywords {
        edits.record_dropped_keyword(path, keyword, value);
    }
}
