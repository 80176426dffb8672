//! Keywords of JSON Schema, by the kind of their values and by their effect on validation.

use serde_json::{Map, Value};

/// Keywords that do not affect which values are valid.
const ANNOTATION_KEYWORDS: [&str; 15] = [
    "title",
    "description",
    "default",
    "examples",
    "example",
    "deprecated",
    "readOnly",
    "writeOnly",
    "$comment",
    "$schema",
    "$id",
    "$anchor",
    "$defs",
    "definitions",
    "externalDocs",
];

/// Kind of the value of a keyword.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeywordKind {
    /// Text for people, or an identifier that nothing refers to.
    Annotation,
    /// Named schemas that apply by reference alone.
    Definitions,
    /// `$ref` and its dynamic forms.
    Reference,
    /// `$anchor`: a name that a reference may use.
    Anchor,
    /// A single schema.
    Schema,
    /// `items`: a schema, or a list of them before draft 2020-12.
    SchemaOrList,
    /// A list of schemas.
    SchemaList,
    /// Schemas by name or pattern; for `dependencies`, some may be lists of names.
    SchemaMap,
    /// Anything else: plain data, compared as it is.
    Value,
}

/// Returns the kind of a keyword. Unknown keywords hold plain data.
pub fn keyword_kind(keyword: &str) -> KeywordKind {
    match keyword {
        "title" | "description" | "$comment" | "examples" | "example" | "$schema" | "$id" => KeywordKind::Annotation,
        "$defs" | "definitions" => KeywordKind::Definitions,
        "$ref" | "$dynamicRef" | "$recursiveRef" => KeywordKind::Reference,
        "$anchor" => KeywordKind::Anchor,
        "additionalProperties"
        | "additionalItems"
        | "unevaluatedProperties"
        | "unevaluatedItems"
        | "propertyNames"
        | "not"
        | "if"
        | "then"
        | "else"
        | "contains"
        | "contentSchema" => KeywordKind::Schema,
        "items" => KeywordKind::SchemaOrList,
        "allOf" | "anyOf" | "oneOf" | "prefixItems" => KeywordKind::SchemaList,
        "properties" | "patternProperties" | "dependentSchemas" | "dependentRequired" | "dependencies" => {
            KeywordKind::SchemaMap
        }
        _ => KeywordKind::Value,
    }
}

/// Returns whether a keyword has no effect on validation: texts, defaults, and extensions (`x-…`).
pub fn is_annotation(keyword: &str) -> bool {
    ANNOTATION_KEYWORDS.contains(&keyword) || keyword.starts_with("x-")
}

/// Returns whether a keyword with this value accepts everything, so that leaving it out means the same.
pub fn is_vacuous(name: &str, value: &Value) -> bool {
    match name {
        "uniqueItems" | "nullable" | "exclusiveMinimum" | "exclusiveMaximum" => value == &Value::Bool(false),
        "minLength" | "minItems" | "minProperties" => value.as_f64() == Some(0.0),
        "items"
        | "additionalItems"
        | "additionalProperties"
        | "unevaluatedProperties"
        | "unevaluatedItems"
        | "propertyNames" => accepts_anything(value),
        "properties" | "patternProperties" | "dependentRequired" | "dependentSchemas" | "dependencies" => {
            value.as_object().is_some_and(Map::is_empty)
        }
        _ => false,
    }
}

/// Returns whether a keyword marks values as evaluated. Even a vacuous one then matters to `unevaluatedProperties` and
/// `unevaluatedItems` around it.
pub(crate) fn affects_evaluation(name: &str) -> bool {
    matches!(name, "items" | "additionalItems" | "additionalProperties" | "unevaluatedProperties" | "unevaluatedItems")
}

/// Returns whether a schema is `true` or `{}`.
pub fn accepts_anything(schema: &Value) -> bool {
    schema == &Value::Bool(true) || schema.as_object().is_some_and(Map::is_empty)
}

/// Returns the array under a keyword; empty if there is none.
pub fn array_keyword<'a>(schema: &'a Map<String, Value>, keyword: &str) -> &'a [Value] {
    schema.get(keyword).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

/// Returns the array under a keyword of a schema, which need not be an object.
pub fn array_at<'a>(schema: &'a Value, keyword: &str) -> &'a [Value] {
    schema.as_object().map(|keywords| array_keyword(keywords, keyword)).unwrap_or_default()
}
