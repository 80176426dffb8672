//! The keywords of one schema that speak of the value itself: types, choices, limits, and those nobody here interprets.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::ChangeClass;
use super::limits::{compare_limits, is_limit};
use super::notes::{SchemaPath, SchemaRole, ValueChange};
use crate::text::sanitize_truncated;

pub(super) type MergedKeywords<'a> = BTreeMap<&'a str, &'a Value>;
type ValuesByText<'a> = BTreeMap<String, &'a Value>;

/// Any of these takes less than none of it; which of two takes less cannot be told.
const CONSTRAINT_KEYWORDS: [&str; 20] = [
    "pattern",
    "format",
    "multipleOf",
    "uniqueItems",
    "not",
    "if",
    "then",
    "else",
    "contains",
    "minContains",
    "maxContains",
    "dependentRequired",
    "dependentSchemas",
    "dependencies",
    "patternProperties",
    "propertyNames",
    "unevaluatedProperties",
    "unevaluatedItems",
    "contentEncoding",
    "contentMediaType",
];
/// Looked at elsewhere.
const STRUCTURAL_KEYWORDS: [&str; 15] = [
    "type",
    "enum",
    "const",
    "properties",
    "required",
    "items",
    "additionalItems",
    "additionalProperties",
    "prefixItems",
    "allOf",
    "anyOf",
    "oneOf",
    "$ref",
    "nullable",
    "discriminator",
];
/// Of no meaning for what is taken.
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
/// Of those, what nobody need hear of.
const UNREPORTED_ANNOTATIONS: [&str; 7] =
    ["title", "description", "$comment", "$schema", "$id", "$defs", "definitions"];
const MAX_LISTED_VALUES: usize = 5;

/// What stands under a keyword.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KeywordKind {
    Annotation,
    Definitions,
    Reference,
    Anchor,
    Schema,
    SchemaOrList,
    SchemaList,
    SchemaMap,
    Value,
}

pub(super) fn keyword_kind(keyword: &str) -> KeywordKind {
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

/// Whether a keyword leaves open what is taken: words, defaults, and what others have invented.
pub(super) fn is_annotation(keyword: &str) -> bool {
    ANNOTATION_KEYWORDS.contains(&keyword) || keyword.starts_with("x-")
}

/// Whether a keyword is looked at here.
pub(super) fn is_compared(keyword: &str) -> bool {
    !STRUCTURAL_KEYWORDS.contains(&keyword) && !is_annotation(keyword)
}

/// What two ways say of the value itself, without a word about where.
pub(super) fn compare_keywords(
    side: SchemaRole,
    (old, old_values): (&MergedKeywords<'_>, Option<&ValuesByText<'_>>),
    (new, new_values): (&MergedKeywords<'_>, Option<&ValuesByText<'_>>),
    tell: &mut impl FnMut(ChangeClass, KeywordNote),
) {
    compare_enums(side, old_values, new_values, tell);
    compare_limits(side, old, new, tell);
    for (name, before, after) in changed_keywords(old, new, |name| !is_limit(name)) {
        // To say that nothing is asked for is to say nothing.
        let meant = |value: Option<&&Value>| value.is_some_and(|value| !is_vacuous(name, value));
        let shown = sanitize_truncated(name, 40);
        match (CONSTRAINT_KEYWORDS.contains(&name), meant(before), meant(after)) {
            (true, false, false) => {}
            (true, false, true) => tell(side.narrowing_class(), KeywordNote::Remark(format!("`{shown}` was added"))),
            (true, true, false) => tell(side.widening_class(), KeywordNote::Remark(format!("`{shown}` was dropped"))),
            (true, true, true) => tell(ChangeClass::Narrowed, KeywordNote::Remark(format!("`{shown}` changed"))),
            (false, ..) => tell(ChangeClass::Other, KeywordNote::Remark(format!("`{shown}` changed"))),
        }
    }
}

/// What two schemas say beside what they take; titles and descriptions are told by others.
pub(super) fn compare_annotations(
    old: &MergedKeywords<'_>,
    new: &MergedKeywords<'_>,
    tell: &mut impl FnMut(ChangeClass, KeywordNote),
) {
    for (name, before, after) in changed_keywords(old, new, |name| !UNREPORTED_ANNOTATIONS.contains(&name)) {
        match name {
            "examples" | "example" => tell(ChangeClass::Text, KeywordNote::Remark("its examples changed".to_owned())),
            "default" => {
                let value = |value: Option<&&Value>| value.map_or("none".to_owned(), |value| display_json(value));
                tell(
                    ChangeClass::Other,
                    KeywordNote::Remark(format!("default {} became {}", value(before), value(after))),
                );
            }
            _ => tell(ChangeClass::Other, KeywordNote::Remark(format!("`{}` changed", sanitize_truncated(name, 40)))),
        }
    }
}

/// The keywords among those wanted that only one has, or that differ.
fn changed_keywords<'a, 'b>(
    old: &'b MergedKeywords<'a>,
    new: &'b MergedKeywords<'a>,
    wanted: impl Fn(&str) -> bool,
) -> Vec<(&'a str, Option<&'b &'a Value>, Option<&'b &'a Value>)> {
    let names: BTreeSet<&'a str> = old.keys().chain(new.keys()).copied().filter(|name| wanted(name)).collect();
    let both = names.into_iter().map(|name| (name, old.get(name), new.get(name)));
    both.filter(|(_, old, new)| old != new).collect()
}

/// Whether a keyword with this value may as well be left out.
pub(super) fn is_vacuous(name: &str, value: &Value) -> bool {
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

/// Whether a keyword, by taking a value, keeps it from those that are left over for `unevaluatedProperties` and its like.
pub(super) fn affects_evaluation(name: &str) -> bool {
    matches!(name, "items" | "additionalItems" | "additionalProperties" | "unevaluatedProperties" | "unevaluatedItems")
}

pub(super) fn accepts_anything(schema: &Value) -> bool {
    schema == &Value::Bool(true) || schema.as_object().is_some_and(Map::is_empty)
}

/// What differs, and whether it reads on after the place (`` `state` no longer takes `all` ``) or stands by itself.
pub(super) enum KeywordNote {
    Predicate(ValueChange),
    Remark(String),
}

impl KeywordNote {
    /// With its place before it.
    pub(super) fn render(&self, side: SchemaRole, place: &SchemaPath) -> String {
        match self {
            KeywordNote::Predicate(became) => side.render_predicate(place, became),
            KeywordNote::Remark(text) => side.render_remark(place, text),
        }
    }
}

fn compare_enums(
    side: SchemaRole,
    old: Option<&ValuesByText<'_>>,
    new: Option<&ValuesByText<'_>>,
    tell: &mut impl FnMut(ChangeClass, KeywordNote),
) {
    let (before, after) = match (old, new) {
        (None, None) => return,
        (None, Some(after)) => {
            return tell(side.narrowing_class(), KeywordNote::Predicate(ValueChange::Only(list_values(after))));
        }
        (Some(_), None) => return tell(side.widening_class(), KeywordNote::Predicate(ValueChange::OtherValuesToo)),
        (Some(before), Some(after)) => (before, after),
    };
    let (lost, gained) = (values_missing_from(before, after), values_missing_from(after, before));
    if !lost.is_empty() {
        let class = if lost.len() == before.len() { ChangeClass::Breaking } else { side.narrowing_class() };
        tell(class, KeywordNote::Predicate(ValueChange::NoLonger(list_values(&lost))));
    }
    if !gained.is_empty() {
        tell(side.widening_class(), KeywordNote::Predicate(ValueChange::Also(list_values(&gained))));
    }
}

fn values_missing_from<'a>(one: &ValuesByText<'a>, other: &ValuesByText<'a>) -> ValuesByText<'a> {
    one.iter().filter(|(text, _)| !other.contains_key(*text)).map(|(text, value)| (text.clone(), *value)).collect()
}

pub(super) fn list_values(values: &ValuesByText<'_>) -> String {
    let mut shown: Vec<String> =
        values.values().take(MAX_LISTED_VALUES).map(|value| format!("`{}`", display_value(value))).collect();
    if values.len() > MAX_LISTED_VALUES {
        shown.push(format!("{} more", values.len() - MAX_LISTED_VALUES));
    }
    shown.join(", ")
}

fn display_value(value: &Value) -> String {
    value.as_str().map_or_else(|| display_json(value), |text| sanitize_truncated(text, 40))
}

pub(super) fn display_json(value: &Value) -> String {
    sanitize_truncated(&crate::json::truncated_json(value, 200), 40)
}
