//! Compares the keywords of one schema that constrain the value itself: `enum` and `const`, limits, and constraints
//! that are not interpreted here. Types, fields and items are compared by `schema` and `fields`.
//!
//! Four tables divide the keywords: structural ones (compared elsewhere), limits (`limits`), constraints (of which only
//! presence can be judged), and annotations (no effect on validity). A keyword in none of them belongs to an unknown
//! vocabulary, and its change counts as `other`.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use toolcrib_core::text::sanitize_truncated;
use toolcrib_schema::{is_annotation, is_limit, is_vacuous};

use super::ChangeClass;
use super::limits::compare_limits;
use super::notes::{SchemaPath, SchemaRole, ValueChange};

/// Keywords of all layers of a schema; of several layers with the same keyword, the first counts.
pub(super) type MergedKeywords<'a> = BTreeMap<&'a str, &'a Value>;
/// Listed values by their JSON text, so that two lists compare independently of their order.
type ValuesByText<'a> = BTreeMap<String, &'a Value>;

/// Keywords that reject values when present. Which of two different ones rejects more is not decidable here.
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
/// Keywords that `schema`, `fields` and `alternatives` compare.
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
/// Annotation keywords whose changes are not reported here. `schema` reports titles and descriptions; the others are
/// invisible to callers.
const UNREPORTED_ANNOTATIONS: [&str; 7] =
    ["title", "description", "$comment", "$schema", "$id", "$defs", "definitions"];
/// Maximum number of values that a note lists.
const MAX_LISTED_VALUES: usize = 5;

/// Returns whether [`compare_keywords`] compares a keyword.
pub(super) fn is_compared(keyword: &str) -> bool {
    !STRUCTURAL_KEYWORDS.contains(&keyword) && !is_annotation(keyword)
}

/// Compares the keywords and listed values of two alternatives. Passes each change to `report` without its path, which
/// the caller adds.
pub(super) fn compare_keywords(
    role: SchemaRole,
    (old, old_values): (&MergedKeywords<'_>, Option<&ValuesByText<'_>>),
    (new, new_values): (&MergedKeywords<'_>, Option<&ValuesByText<'_>>),
    report: &mut impl FnMut(ChangeClass, KeywordNote),
) {
    // Values and limits can be ordered, so they are judged exactly; other constraints only by presence.
    compare_enums(role, old_values, new_values, report);
    compare_limits(role, old, new, report);
    for (name, before, after) in changed_keywords(old, new, |name| !is_limit(name)) {
        // A vacuous constraint such as `uniqueItems: false` counts as absent.
        let is_effective = |value: Option<&&Value>| value.is_some_and(|value| !is_vacuous(name, value));
        let name_text = sanitize_truncated(name, 40);
        match (CONSTRAINT_KEYWORDS.contains(&name), is_effective(before), is_effective(after)) {
            (true, false, false) => {}
            (true, false, true) => {
                report(role.narrowing_class(), KeywordNote::Remark(format!("`{name_text}` was added")))
            }
            (true, true, false) => {
                report(role.widening_class(), KeywordNote::Remark(format!("`{name_text}` was dropped")))
            }
            // Two different patterns, say: which accepts more is unknown, so assume the worse.
            (true, true, true) => report(ChangeClass::Narrowed, KeywordNote::Remark(format!("`{name_text}` changed"))),
            // Keywords of newer drafts or other vocabularies.
            (false, ..) => report(ChangeClass::Other, KeywordNote::Remark(format!("`{name_text}` changed"))),
        }
    }
}

/// Compares annotation keywords other than titles and descriptions.
pub(super) fn compare_annotations(
    old: &MergedKeywords<'_>,
    new: &MergedKeywords<'_>,
    report: &mut impl FnMut(ChangeClass, KeywordNote),
) {
    for (name, before, after) in changed_keywords(old, new, |name| !UNREPORTED_ANNOTATIONS.contains(&name)) {
        match name {
            "examples" | "example" => report(ChangeClass::Text, KeywordNote::Remark("its examples changed".to_owned())),
            // A default changes what a call without the argument does.
            "default" => {
                let value = |value: Option<&&Value>| value.map_or("none".to_owned(), |value| display_json(value));
                report(
                    ChangeClass::Other,
                    KeywordNote::Remark(format!("default {} became {}", value(before), value(after))),
                );
            }
            _ => report(ChangeClass::Other, KeywordNote::Remark(format!("`{}` changed", sanitize_truncated(name, 40)))),
        }
    }
}

/// Returns the keywords selected by `filter` that only one side has, or whose values differ.
fn changed_keywords<'a, 'b>(
    old: &'b MergedKeywords<'a>,
    new: &'b MergedKeywords<'a>,
    filter: impl Fn(&str) -> bool,
) -> Vec<(&'a str, Option<&'b &'a Value>, Option<&'b &'a Value>)> {
    let names: BTreeSet<&'a str> = old.keys().chain(new.keys()).copied().filter(|name| filter(name)).collect();
    let both = names.into_iter().map(|name| (name, old.get(name), new.get(name)));
    both.filter(|(_, old, new)| old != new).collect()
}

/// A change of a keyword, without its path.
pub(super) enum KeywordNote {
    /// Continues the path: `` `state` no longer takes `all` ``.
    Predicate(ValueChange),
    /// Has a subject of its own: `` `state`: maximum 10 became 5 ``.
    Remark(String),
}

impl KeywordNote {
    /// Renders the note with its path.
    pub(super) fn render(&self, role: SchemaRole, path: &SchemaPath) -> String {
        match self {
            KeywordNote::Predicate(change) => role.render_predicate(path, change),
            KeywordNote::Remark(text) => role.render_remark(path, text),
        }
    }
}

/// Compares the listed values. A list of which no old value is left is breaking.
fn compare_enums(
    role: SchemaRole,
    old: Option<&ValuesByText<'_>>,
    new: Option<&ValuesByText<'_>>,
    report: &mut impl FnMut(ChangeClass, KeywordNote),
) {
    // Returns early unless both sides list values.
    let (before, after) = match (old, new) {
        (None, None) => return,
        (None, Some(after)) => {
            return report(role.narrowing_class(), KeywordNote::Predicate(ValueChange::Only(list_values(after))));
        }
        // Values are no longer listed.
        (Some(_), None) => return report(role.widening_class(), KeywordNote::Predicate(ValueChange::OtherValuesToo)),
        (Some(before), Some(after)) => (before, after),
    };
    let removed = values_missing_from(before, after);
    let added = values_missing_from(after, before);
    if !removed.is_empty() {
        let class = if removed.len() == before.len() { ChangeClass::Breaking } else { role.narrowing_class() };
        report(class, KeywordNote::Predicate(ValueChange::NoLonger(list_values(&removed))));
    }
    if !added.is_empty() {
        report(role.widening_class(), KeywordNote::Predicate(ValueChange::Also(list_values(&added))));
    }
}

/// Returns the values of `values` that `other` does not have.
fn values_missing_from<'a>(values: &ValuesByText<'a>, other: &ValuesByText<'a>) -> ValuesByText<'a> {
    values.iter().filter(|(text, _)| !other.contains_key(*text)).map(|(text, value)| (text.clone(), *value)).collect()
}

/// Renders the first [`MAX_LISTED_VALUES`] values, and the number of the others.
pub(super) fn list_values(values: &ValuesByText<'_>) -> String {
    let mut listed: Vec<String> =
        values.values().take(MAX_LISTED_VALUES).map(|value| format!("`{}`", display_value(value))).collect();
    if values.len() > MAX_LISTED_VALUES {
        listed.push(format!("{} more", values.len() - MAX_LISTED_VALUES));
    }
    listed.join(", ")
}

/// Renders a string without quotes, and any other value as JSON.
fn display_value(value: &Value) -> String {
    value.as_str().map_or_else(|| display_json(value), |text| sanitize_truncated(text, 40))
}

/// Renders a value as JSON of at most 40 characters. Reads no more than the first 200 bytes of a large one.
pub(super) fn display_json(value: &Value) -> String {
    sanitize_truncated(&toolcrib_core::json::truncated_json(value, 200), 40)
}
