//! Provider-independent form of a schema node: `allOf` merged, one type per node, nullability separated. The
//! projections to Gemini and Structured Outputs are written from it.
//!
//! ```text
//! {"type": ["string", "null"]}                        -> Typed("string"), nullable
//! {"anyOf": [{"type": "integer"}, {"type": "null"}]}  -> Typed("integer"), nullable
//! {"type": ["string", "integer"]}                     -> Alternatives of two
//! {"enum": [1, 2]}                                    -> Typed("integer")
//! {}                                                  -> Any
//! ```

use std::borrow::Cow;

use serde_json::{Map, Value, json};
use toolcrib_schema::{JSON_TYPES, array_keyword, declared_types, type_name};

use super::merge::{merge_all_of, merge_keywords};
use super::projection::{ProjectionContext, ProjectionResult, Unsupported, child_pointer, estimate_size};

/// One node of a schema.
#[derive(Debug)]
pub(super) struct SchemaNode {
    /// JSON pointer of the node. A single remaining alternative replaces the choice, so it may be longer than asked
    /// for.
    pub(super) path: String,
    pub(super) title: Option<Value>,
    pub(super) description: Option<Value>,
    /// Whether null is allowed besides `kind`.
    pub(super) nullable: bool,
    pub(super) kind: SchemaKind,
}

/// Values that a node accepts, apart from null.
#[derive(Debug)]
pub(super) enum SchemaKind {
    /// Any value.
    Any,
    /// Only null.
    Null,
    /// Local reference, such as `#/$defs/place`.
    Reference(String),
    /// Alternatives, each with its path.
    Alternatives(Vec<(String, Value)>),
    /// One type, and the keywords for it.
    Typed(String, Map<String, Value>),
}

/// Keywords that do not restrict values.
const METADATA_KEYWORDS: [&str; 7] = ["$schema", "$id", "$anchor", "$comment", "$defs", "definitions", "nullable"];
/// Keywords that only express conditions: an alternative of nothing else describes no value of its own.
const CONDITION_KEYWORDS: [&str; 6] = ["required", "not", "if", "then", "else", "description"];

/// Keywords that apply to a choice as a whole and not to its alternatives.
const WHOLE_VALUE_KEYWORDS: [&str; 3] = ["default", "example", "examples"];

impl SchemaNode {
    /// Reads a node. Fails for schemas that accept no value and for malformed ones.
    pub(super) fn parse(
        schema: &Value,
        path: &str,
        context: &mut ProjectionContext<'_>,
    ) -> ProjectionResult<SchemaNode> {
        let mut keywords = match schema {
            Value::Bool(true) => Map::new(),
            Value::Object(keywords) => {
                context.count_copy(estimate_size(keywords), path)?;
                keywords.clone()
            }
            Value::Bool(false) => return Err(Unsupported::new(path, "it allows no value")),
            Value::Null | Value::Number(_) | Value::String(_) | Value::Array(_) => {
                return Err(Unsupported::new(path, "it is not a schema"));
            }
        };
        // References stay references here; each projection decides whether to inline or define them.
        if let Some(reference) = sole_reference(&keywords) {
            keywords.insert("$ref".to_owned(), reference);
            keywords.shift_remove("allOf");
        }
        if keywords.contains_key("allOf") {
            keywords = merge_all_of(keywords, path, context, 0)?;
        }
        // Null can be allowed in four ways: `nullable`, a type, an alternative, a choice.
        let mut nullable = keywords.get("nullable") == Some(&Value::Bool(true));
        keywords.retain(|key, _| !METADATA_KEYWORDS.contains(&key.as_str()));
        let title = keywords.shift_remove("title").filter(Value::is_string);
        let description = keywords.shift_remove("description").filter(Value::is_string);
        let kind = match keywords.shift_remove("$ref") {
            Some(Value::String(reference)) => {
                record_dropped_keywords(&keywords, path, context);
                SchemaKind::Reference(reference)
            }
            Some(_) => return Err(Unsupported::new(path, "its `$ref` is not a string")),
            None => classify(keywords, path, context, &mut nullable)?,
        };
        let node = SchemaNode { path: path.to_owned(), title, description, nullable, kind };
        Ok(match node.kind {
            // A single alternative needs no choice around it; its parent's texts take precedence.
            SchemaKind::Alternatives(ref alternatives) if alternatives.len() == 1 => {
                let (path, only) = &alternatives[0];
                let only = SchemaNode::parse(only, path, context)?;
                SchemaNode {
                    path: only.path,
                    title: node.title.or(only.title),
                    description: node.description.or(only.description),
                    nullable: node.nullable || only.nullable,
                    kind: only.kind,
                }
            }
            // Only null was among the alternatives.
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

/// Returns the reference of `allOf: [{$ref}]`, a common way to describe the use of a reference. It stays a reference
/// instead of being merged, because it may be recursive.
fn sole_reference(keywords: &Map<String, Value>) -> Option<Value> {
    let [Value::Object(only)] = &keywords.get("allOf")?.as_array()?[..] else { return None };
    // Any other keyword beside it restricts the value and has to be merged.
    let is_annotation = |key: &String| ["allOf", "title", "description", "default", "nullable"].contains(&key.as_str());
    if only.len() > 1 || !keywords.keys().all(is_annotation) {
        return None;
    }
    only.get("$ref").cloned()
}

/// Returns the schema of the items of an array; that of any value if there is none. Positional schemas become
/// alternatives.
pub(super) fn item_schema<'k>(
    keywords: &'k Map<String, Value>,
    path: &str,
    context: &mut ProjectionContext<'_>,
) -> Cow<'k, Value> {
    match (keywords.get("items"), keywords.get("prefixItems")) {
        (Some(Value::Array(schemas)), _) | (None, Some(Value::Array(schemas))) => {
            context.record_loss(path, "positional item schemas are not supported; each item may match any of them");
            Cow::Owned(json!({ "anyOf": schemas }))
        }
        (items, _) => Cow::Borrowed(items.unwrap_or(&Value::Bool(true))),
    }
}

/// Determines the kind of a node, and whether null is allowed too.
fn classify(
    mut keywords: Map<String, Value>,
    path: &str,
    context: &mut ProjectionContext<'_>,
    nullable: &mut bool,
) -> ProjectionResult<SchemaKind> {
    // Alternatives come first: the remaining keywords apply to each of them.
    for choice in ["anyOf", "oneOf"] {
        let Some(Value::Array(alternatives)) = keywords.shift_remove(choice) else { continue };
        let choice_path = child_pointer(path, choice);
        if alternatives.iter().all(is_condition) {
            context.record_loss(&choice_path, "conditions between fields are not supported, dropped");
            continue;
        }
        // Neither Gemini nor Structured Outputs support `oneOf`; `anyOf` accepts more values.
        if choice == "oneOf" {
            context.record_loss(&choice_path, "`oneOf` was replaced by `anyOf`");
        }
        // A default of the whole choice need not fit a single alternative.
        for keyword in WHOLE_VALUE_KEYWORDS {
            if let Some(value) = keywords.shift_remove(keyword) {
                context.record_dropped_keyword(path, keyword, &value);
            }
        }
        let mut kept = Vec::new();
        for (index, alternative) in alternatives.into_iter().enumerate() {
            let alternative_path = format!("{choice_path}/{index}");
            if is_null_schema(&alternative) {
                *nullable = true;
                continue;
            }
            kept.push((
                alternative_path.clone(),
                merge_shared_keywords(alternative, &keywords, &alternative_path, context)?,
            ));
        }
        return Ok(SchemaKind::Alternatives(kept));
    }
    // A null among the choices makes the value nullable.
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
        // Keywords that imply no type, such as a bare `not`, cannot be expressed.
        0 => {
            record_dropped_keywords(&keywords, path, context);
            Ok(SchemaKind::Any)
        }
        1 => Ok(SchemaKind::Typed(types.swap_remove(0), keywords)),
        _ => Ok(SchemaKind::Alternatives(
            types.into_iter().map(|name| (path.to_owned(), restrict_to_type(&name, &keywords))).collect(),
        )),
    }
}

/// Returns the declared types or, without any, those that the other keywords imply.
fn allowed_types(keywords: &Map<String, Value>, path: &str) -> ProjectionResult<Vec<String>> {
    let keyword = keywords.get("type");
    if keyword.is_some_and(|keyword| !keyword.is_string() && !keyword.is_array()) {
        return Err(Unsupported::new(&child_pointer(path, "type"), "it is not a type"));
    }
    let declared: Vec<&str> = declared_types(keyword).collect();
    // Any other type makes the part unsupported.
    if let Some(unknown) = declared.iter().find(|name| !JSON_TYPES.contains(name)) {
        let reason = format!("unknown type `{}`", toolcrib_core::text::sanitize_truncated(unknown, 40));
        return Err(Unsupported::new(&child_pointer(path, "type"), reason));
    }
    let mut types: Vec<String> = Vec::new();
    let mut add = |name: &str| {
        if !types.iter().any(|known| known == name) {
            types.push(name.to_owned());
        }
    };
    declared.iter().for_each(|name| add(name));
    // Infer types from constants first, as these determine the value, then from type-specific keywords.
    if declared.is_empty() {
        let values = array_keyword(keywords, "enum").iter().chain(keywords.get("const"));
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
            .filter(|(_, is_implied)| *is_implied)
            .for_each(|(name, _)| types.push((*name).to_owned()));
        }
    }
    // `number` includes `integer`.
    if types.iter().any(|name| name == "number") {
        types.retain(|name| name != "integer");
    }
    Ok(types)
}

/// Builds the schema for one of several types: the keywords and `enum` values that apply to it.
fn restrict_to_type(name: &str, keywords: &Map<String, Value>) -> Value {
    let type_keywords: &[&str] = match name {
        "object" => {
            &["properties", "required", "additionalProperties", "patternProperties", "minProperties", "maxProperties"]
        }
        "array" => &["items", "prefixItems", "minItems", "maxItems", "uniqueItems"],
        "string" => &["pattern", "format", "minLength", "maxLength"],
        "number" | "integer" => &["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"],
        _ => &[],
    };
    let mut restricted = Map::from_iter([("type".to_owned(), json!(name))]);
    for (key, value) in keywords {
        if type_keywords.contains(&key.as_str()) {
            restricted.insert(key.clone(), value.clone());
        }
    }
    if let Some(values) = keywords.get("enum").and_then(Value::as_array) {
        // Values of other types belong to the other alternatives.
        let own_values: Vec<&Value> = values
            .iter()
            .filter(|value| type_name(value) == name || (value.is_number() && matches!(name, "number" | "integer")))
            .collect();
        if !own_values.is_empty() {
            restricted.insert("enum".to_owned(), json!(own_values));
        }
    }
    Value::Object(restricted)
}

/// Merges the keywords around alternatives into one of them. References stay as they are.
fn merge_shared_keywords(
    mut alternative: Value,
    shared: &Map<String, Value>,
    path: &str,
    context: &mut ProjectionContext<'_>,
) -> ProjectionResult<Value> {
    if let Value::Object(keywords) = &mut alternative
        && !keywords.contains_key("$ref")
    {
        merge_keywords(keywords, shared, path, context)?;
    }
    Ok(alternative)
}

/// Whether a schema accepts only null.
fn is_null_schema(schema: &Value) -> bool {
    let only_null = |key: &str| schema.get(key).is_some_and(|value| *value == json!([null]));
    schema.get("type").is_some_and(|name| *name == "null")
        || schema.get("const").is_some_and(Value::is_null)
        || only_null("enum")
}

/// Whether a schema consists of conditions only.
fn is_condition(schema: &Value) -> bool {
    schema.as_object().is_some_and(|keywords| keywords.keys().all(|key| CONDITION_KEYWORDS.contains(&key.as_str())))
}

/// Records all keywords as losses.
fn record_dropped_keywords(keywords: &Map<String, Value>, path: &str, context: &mut ProjectionContext<'_>) {
    for (keyword, value) in keywords {
        context.record_dropped_keyword(path, keyword, value);
    }
}
