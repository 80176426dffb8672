//! Handles what the keyword comparison does not interpret: keywords and fields repeated in several layers, truncated
//! alternatives, and schemas behind references in uninterpreted keywords. Their normal forms tell only whether they
//! changed.
//!
//! The result is a note that counts only if nothing worse was found: it raises `text` and `widened` to `other`, since
//! the part that was not understood could be a restriction.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use toolcrib_schema::{KeywordKind, NormalForm, SchemaLayers, is_annotation, keyword_kind};

use super::ChangeClass;
use super::notes::{self, SchemaPath};
use super::schema::SchemaComparer;

/// Keywords that the walk compares in all layers, or that are compared field by field here.
const COMPARED_IN_ALL_LAYERS: [&str; 4] = ["$ref", "allOf", "required", "properties"];

/// The values of each name, one per layer that has it.
type ValuesByName<'a> = BTreeMap<&'a str, Vec<&'a Value>>;

impl<'a> SchemaComparer<'a, '_> {
    /// Compares constraints with equal text whose references lead to changed definitions.
    pub(super) fn compare_referenced_schemas(
        &mut self,
        old: &BTreeMap<&'a str, &'a Value>,
        new: &BTreeMap<&'a str, &'a Value>,
        path: &SchemaPath,
    ) {
        for (name, before) in old {
            // A text search is enough: a false hit only costs a comparison.
            let has_reference = || {
                let text = before.to_string();
                text.contains("\"$ref\"") || text.contains("Ref\"")
            };
            if new.get(name) != Some(before) || !(keyword_kind(name) == KeywordKind::Reference || has_reference()) {
                continue;
            }
            let Some((before, after)) = self.normal_forms(keyword_kind(name), &[before], &[before]) else {
                return self.mark_unclassified(path);
            };
            if before.is_complete && after.is_complete && !before.is_equivalent(&after) {
                self.report_remark(ChangeClass::Narrowed, path, &format!("`{name}` changed"));
            } else if !before.is_equivalent(&after) {
                self.mark_unclassified(path);
            }
        }
    }

    /// Compares keywords and fields that several layers have. The walk only sees the first of each.
    pub(super) fn compare_repeated(&mut self, old: &SchemaLayers<'a>, new: &SchemaLayers<'a>, path: &SchemaPath) {
        // The common case: a single layer cannot repeat a keyword.
        if old.maps.len() < 2 && new.maps.len() < 2 {
            return;
        }
        for (name, before, after) in repeated_names(&keyword_values(old), &keyword_values(new)) {
            self.compare_by_normal_form(keyword_kind(name), &before, &after, path);
        }
        for (name, before, after) in repeated_names(&field_values(old), &field_values(new)) {
            self.compare_by_normal_form(KeywordKind::Schema, &before, &after, &path.field(name));
        }
    }

    /// Checks a reference that both sides have and that cannot be resolved, such as an anchor. Its meaning may have
    /// changed if the definitions did.
    pub(super) fn check_unresolved_reference(&mut self, reference: &Value, path: &SchemaPath) {
        let is_local = reference.as_str().is_some_and(|reference| reference.starts_with('#'));
        if self.unclassified.is_some() || !is_local {
            return;
        }
        // Computed once for the whole comparison, since it reads all definitions.
        let differ = |name: &str| self.old_root.get(name) != self.new_root.get(name);
        let differ = || ["$defs", "definitions"].into_iter().any(differ);
        if *self.definitions_differ.get_or_insert_with(differ) {
            self.mark_unclassified(path);
        }
    }

    /// Compares normal forms, and keeps a note unless they are equivalent.
    pub(super) fn compare_by_normal_form(
        &mut self,
        kind: KeywordKind,
        old: &[&'a Value],
        new: &[&'a Value],
        path: &SchemaPath,
    ) {
        // One note is enough.
        if self.unclassified.is_some() {
            return;
        }
        let forms = self.normal_forms(kind, old, new);
        let is_equivalent = forms.is_some_and(|(before, after)| before.is_equivalent(&after));
        if !is_equivalent {
            self.mark_unclassified(path);
        }
    }

    /// Returns the normal forms of both sides, or `None` once the budget is spent: each pair may cost as much as a
    /// whole schema.
    fn normal_forms(
        &mut self,
        kind: KeywordKind,
        old: &[&'a Value],
        new: &[&'a Value],
    ) -> Option<(NormalForm, NormalForm)> {
        if self.budget.is_exhausted() {
            return None;
        }
        let before = NormalForm::from_subschemas(self.old_root, kind, old);
        let after = NormalForm::from_subschemas(self.new_root, kind, new);
        self.budget.spend(before.work + after.work);
        Some((before, after))
    }

    /// Keeps a note about the first such difference.
    fn mark_unclassified(&mut self, path: &SchemaPath) {
        let role = self.role;
        self.unclassified.get_or_insert_with(|| role.render_predicate(path, notes::UNCLASSIFIED, ""));
    }
}

/// Returns the names that occur more than once on either side, with their values.
fn repeated_names<'a>(
    old: &ValuesByName<'a>,
    new: &ValuesByName<'a>,
) -> Vec<(&'a str, Vec<&'a Value>, Vec<&'a Value>)> {
    let names: BTreeSet<&'a str> = old.keys().chain(new.keys()).copied().collect();
    let values_of = |values: &ValuesByName<'a>, name: &str| values.get(name).cloned().unwrap_or_default();
    let both = names.into_iter().map(|name| (name, values_of(old, name), values_of(new, name)));
    both.filter(|(_, before, after)| before.len() > 1 || after.len() > 1).collect()
}

/// Returns the keywords of all layers, other than annotations.
fn keyword_values<'a>(layers: &SchemaLayers<'a>) -> ValuesByName<'a> {
    let entries = layers.maps.iter().flat_map(|layer| layer.iter());
    group_by_name(entries.filter(|(name, _)| !COMPARED_IN_ALL_LAYERS.contains(&name.as_str()) && !is_annotation(name)))
}

/// Returns the schemas of all fields.
fn field_values<'a>(layers: &SchemaLayers<'a>) -> ValuesByName<'a> {
    let properties = layers.maps.iter().filter_map(|layer| layer.get("properties").and_then(Value::as_object));
    group_by_name(properties.flatten())
}

fn group_by_name<'a>(entries: impl Iterator<Item = (&'a String, &'a Value)>) -> ValuesByName<'a> {
    let mut values = ValuesByName::new();
    for (name, value) in entries {
        values.entry(name.as_str()).or_default().push(value);
    }
    values
}
