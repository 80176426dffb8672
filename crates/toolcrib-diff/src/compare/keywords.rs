//! Compares the keywords of one schema that constrain the value itself: `enum` and `const`, limits, and constraints
//! that are not interpreted here. Types, fields and items are compared by `schema` and `fields`.
//!
//! There are four kinds of keywords: structural ones (compared elsewhere), limits (`LIMITS`), constraints (of which
//! only presence can be judged), and annotations (no effect on validity). A keyword in none of them belongs to an
//! unknown vocabulary, and its change counts as `other`.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use toolcrib_core::text::sanitize_truncated;
use toolcrib_schema::{KeywordKind, LIMITS, Limit, is_annotation, is_limit, is_vacuous, keyword_kind};

use super::ChangeClass;
use super::notes::{self, SchemaPath};
use super::schema::SchemaComparer;

/// Keywords of all layers of a schema; of several layers with the same keyword, the first counts.
type MergedKeywords<'a> = BTreeMap<&'a str, &'a Value>;
/// Listed values by their JSON text, so that two lists compare independently of their order.
type ValuesByText<'a> = BTreeMap<String, &'a Value>;

/// Annotation keywords whose changes are not reported here. `schema` reports titles and descriptions; the others are
/// invisible to callers.
const UNREPORTED_ANNOTATIONS: [&str; 7] =
    ["title", "description", "$comment", "$schema", "$id", "$defs", "definitions"];
/// Maximum number of values that a note lists.
const MAX_LISTED_VALUES: usize = 5;

/// Returns whether a keyword constrains the value itself. `schema`, `fields` and `alternatives` compare the structural
/// ones.
pub(super) fn is_compared(keyword: &str) -> bool {
    // Keywords that have rules of their own: those about objects and arrays, and those about single values.
    let has_rule = matches!(keyword, "properties" | "required" | "additionalItems" | "additionalProperties")
        || matches!(keyword, "type" | "enum" | "const" | "$ref" | "nullable" | "discriminator");
    let has_schemas = matches!(keyword_kind(keyword), KeywordKind::SchemaList | KeywordKind::SchemaOrList);
    !has_rule && !has_schemas && !is_annotation(keyword)
}

/// Returns whether a keyword rejects values when present. Which of two different ones rejects more is not decidable
/// here.
fn is_constraint(keyword: &str) -> bool {
    let applies_schemas = matches!(keyword_kind(keyword), KeywordKind::Schema | KeywordKind::SchemaMap);
    // Validators do not decode content, so `contentSchema` rejects nothing.
    (applies_schemas && keyword != "contentSchema")
        || matches!(keyword, "pattern" | "format" | "multipleOf" | "uniqueItems" | "minContains" | "maxContains")
        || matches!(keyword, "contentEncoding" | "contentMediaType")
}

impl SchemaComparer<'_, '_> {
    /// Compares constraints other than listed values and limits. Any other keyword is of an unknown vocabulary.
    pub(super) fn compare_keywords(&mut self, old: &MergedKeywords<'_>, new: &MergedKeywords<'_>, path: &SchemaPath) {
        for (name, before, after) in changed_keywords(old, new, |name| !is_limit(name)) {
            // A vacuous constraint such as `uniqueItems: false` counts as absent.
            let is_effective = |value: Option<&&Value>| value.is_some_and(|value| !is_vacuous(name, value));
            let (class, change) = match (is_constraint(name), is_effective(before), is_effective(after)) {
                (true, false, false) => continue,
                (true, false, true) => (self.role.narrowing_class(), "was added"),
                (true, true, false) => (self.role.widening_class(), "was dropped"),
                // Two different patterns, say: which accepts more is unknown, so assume the worse.
                (true, true, true) => (ChangeClass::Narrowed, "changed"),
                // Keywords of newer drafts or other vocabularies.
                (false, ..) => (ChangeClass::Other, "changed"),
            };
            self.report_remark(class, path, &format!("`{}` {change}", sanitize_truncated(name, 40)));
        }
    }

    /// Compares annotation keywords other than titles and descriptions.
    pub(super) fn compare_other_annotations(
        &mut self,
        old: &MergedKeywords<'_>,
        new: &MergedKeywords<'_>,
        path: &SchemaPath,
    ) {
        for (name, before, after) in changed_keywords(old, new, |name| !UNREPORTED_ANNOTATIONS.contains(&name)) {
            match name {
                "examples" | "example" => self.report_remark(ChangeClass::Text, path, "its examples changed"),
                // A default changes what a call without the argument does.
                "default" => {
                    let value = |value: Option<&&Value>| value.map_or("none".to_owned(), |value| display_json(value));
                    let text = format!("default {} became {}", value(before), value(after));
                    self.report_remark(ChangeClass::Other, path, &text);
                }
                _ => {
                    let text = format!("`{}` changed", sanitize_truncated(name, 40));
                    self.report_remark(ChangeClass::Other, path, &text);
                }
            }
        }
    }

    /// Compares the listed values. A list of which no old value is left is breaking.
    pub(super) fn compare_enums(
        &mut self,
        old: Option<&ValuesByText<'_>>,
        new: Option<&ValuesByText<'_>>,
        path: &SchemaPath,
    ) {
        let narrowing = self.role.narrowing_class();
        let widening = self.role.widening_class();
        let (before, after) = match (old, new) {
            (None, None) => return,
            (None, Some(after)) => return self.report_values(narrowing, path, notes::ONLY, &list_values(after)),
            // Values are no longer listed.
            (Some(_), None) => return self.report(widening, path, notes::OTHER_VALUES_TOO),
            (Some(before), Some(after)) => (before, after),
        };
        let removed = values_missing_from(before, after);
        let added = values_missing_from(after, before);
        if !removed.is_empty() {
            let class = if removed.len() == before.len() { ChangeClass::Breaking } else { narrowing };
            self.report_values(class, path, notes::NO_LONGER, &list_values(&removed));
        }
        if !added.is_empty() {
            self.report_values(widening, path, notes::ALSO, &list_values(&added));
        }
    }

    /// Compares numeric limits. `{"minimum": 5}` became `{"exclusiveMinimum": 5}` is a tighter limit, although neither
    /// keyword has a counterpart on the other side; so both are reduced to one effective limit first.
    pub(super) fn compare_limits(&mut self, old: &MergedKeywords<'_>, new: &MergedKeywords<'_>, path: &SchemaPath) {
        // A tighter limit accepts fewer values.
        for keywords in &LIMITS {
            let before = Limit::tightest(keywords, |keyword| old.get(keyword).copied());
            let after = Limit::tightest(keywords, |keyword| new.get(keyword).copied());
            let (is_tighter, text) = match (before, after) {
                (None, None) => continue,
                (None, Some(limit)) => (true, format!("{} was set", display_limit(&limit))),
                (Some(limit), None) => (false, format!("{} was dropped", limit.keyword)),
                // The same limit written differently: 1 and 1.0.
                (Some(before), Some(after)) if after.cmp_tightness(&before).is_eq() => continue,
                (Some(before), Some(after)) => {
                    // `maximum 10 became 5`, but `maximum 10 became exclusiveMaximum 5`.
                    let is_same_keyword = before.keyword == after.keyword;
                    let text = if is_same_keyword { display_json(after.value) } else { display_limit(&after) };
                    (after.cmp_tightness(&before).is_gt(), format!("{} became {text}", display_limit(&before)))
                }
            };
            let class = if is_tighter { self.role.narrowing_class() } else { self.role.widening_class() };
            self.report_remark(class, path, &text);
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
fn display_json(value: &Value) -> String {
    sanitize_truncated(&toolcrib_core::json::truncated_json(value, 200), 40)
}

/// Renders keyword and value: `maximum 10`.
fn display_limit(limit: &Limit<'_>) -> String {
    format!("{} {}", limit.keyword, display_json(limit.value))
}
