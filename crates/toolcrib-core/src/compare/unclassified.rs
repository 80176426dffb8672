//! What the walk does not look at by itself: what is said several times over, what was cut off, and what is referred to
//! where nobody interprets it. Of these it is only known whether they are the same by their meaning.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::ChangeClass;
use super::alternatives::SchemaLayers;
use super::keywords::{KeywordKind, is_annotation, keyword_kind};
use super::normal_form::NormalForm;
use super::notes::{SchemaPath, ValueChange};
use super::schema::SchemaComparer;

/// Looked at in all layers by the walk, or field by field here.
const COMPARED_IN_ALL_LAYERS: [&str; 4] = ["$ref", "allOf", "required", "properties"];

/// What stands under one name, layer by layer.
type ValuesByName<'a> = BTreeMap<&'a str, Vec<&'a Value>>;

impl<'a> SchemaComparer<'a, '_> {
    /// Conditions that read the same and refer to what changed.
    pub(super) fn compare_referenced_schemas(
        &mut self,
        old: &BTreeMap<&'a str, &'a Value>,
        new: &BTreeMap<&'a str, &'a Value>,
        at: &SchemaPath,
    ) {
        for (name, before) in old {
            let refers = || {
                let text = before.to_string();
                text.contains("\"$ref\"") || text.contains("Ref\"")
            };
            if new.get(name) != Some(before) || !(keyword_kind(name) == KeywordKind::Reference || refers()) {
                continue;
            }
            let Some((before, after)) = self.normal_forms(keyword_kind(name), (&[before], &[before])) else {
                return self.mark_unclassified(at);
            };
            if before.is_complete && after.is_complete && !before.is_equivalent(&after) {
                self.report_remark(ChangeClass::Narrowed, at, &format!("`{name}` changed"));
            } else if !before.is_equivalent(&after) {
                self.mark_unclassified(at);
            }
        }
    }

    /// Of what is said in several layers, the walk looks at the first.
    pub(super) fn compare_repeated(&mut self, old: &SchemaLayers<'a>, new: &SchemaLayers<'a>, at: &SchemaPath) {
        if old.maps.len() < 2 && new.maps.len() < 2 {
            return;
        }
        for (name, before, after) in repeated_names(&keyword_values(old), &keyword_values(new)) {
            self.compare_by_normal_form(keyword_kind(name), (&before, &after), at);
        }
        for (name, before, after) in repeated_names(&field_values(old), &field_values(new)) {
            self.compare_by_normal_form(KeywordKind::Schema, (&before, &after), &at.field(name));
        }
    }

    /// Schemas of which not all was looked at.
    pub(super) fn compare_truncated(&mut self, old: &[&'a Value], new: &[&'a Value], at: &SchemaPath) {
        self.compare_by_normal_form(KeywordKind::Schema, (old, new), at);
    }

    /// The same reference on both sides, which is not followed; what it means may stand among the definitions.
    pub(super) fn check_unresolved_reference(&mut self, reference: &Value, at: &SchemaPath) {
        let is_within = reference.as_str().is_some_and(|reference| reference.starts_with('#'));
        if self.unclassified.is_some() || !is_within {
            return;
        }
        let differ = |name: &str| self.old_root.get(name) != self.new_root.get(name);
        let differ = || ["$defs", "definitions"].into_iter().any(differ);
        if *self.definitions_differ.get_or_insert_with(differ) {
            self.mark_unclassified(at);
        }
    }

    fn compare_by_normal_form(&mut self, what: KeywordKind, sides: (&[&'a Value], &[&'a Value]), at: &SchemaPath) {
        // One is enough to know that there is more.
        if self.unclassified.is_some() {
            return;
        }
        let is_like = self.normal_forms(what, sides).is_some_and(|(before, after)| before.is_equivalent(&after));
        if !is_like {
            self.mark_unclassified(at);
        }
    }

    /// Nothing once the allowance is spent: each pair may take as much work as a whole schema.
    fn normal_forms(
        &mut self,
        what: KeywordKind,
        (old, new): (&[&'a Value], &[&'a Value]),
    ) -> Option<(NormalForm, NormalForm)> {
        if self.budget.is_exhausted() {
            return None;
        }
        let before = NormalForm::from_subschemas(self.old_root, what, old);
        let after = NormalForm::from_subschemas(self.new_root, what, new);
        self.budget.spend(before.work + after.work);
        Some((before, after))
    }

    fn mark_unclassified(&mut self, at: &SchemaPath) {
        let side = self.role;
        self.unclassified.get_or_insert_with(|| side.render_predicate(at, &ValueChange::Unclassified));
    }
}

/// The names under which one of both has more than one.
fn repeated_names<'a>(
    old: &ValuesByName<'a>,
    new: &ValuesByName<'a>,
) -> Vec<(&'a str, Vec<&'a Value>, Vec<&'a Value>)> {
    let names: BTreeSet<&'a str> = old.keys().chain(new.keys()).copied().collect();
    let under = |stack: &ValuesByName<'a>, name: &str| stack.get(name).cloned().unwrap_or_default();
    let both = names.into_iter().map(|name| (name, under(old, name), under(new, name)));
    both.filter(|(_, before, after)| before.len() > 1 || after.len() > 1).collect()
}

fn keyword_values<'a>(layers: &SchemaLayers<'a>) -> ValuesByName<'a> {
    let all = layers.maps.iter().flat_map(|layer| layer.iter());
    group_by_name(all.filter(|(name, _)| !COMPARED_IN_ALL_LAYERS.contains(&name.as_str()) && !is_annotation(name)))
}

fn field_values<'a>(layers: &SchemaLayers<'a>) -> ValuesByName<'a> {
    let properties = layers.maps.iter().filter_map(|layer| layer.get("properties").and_then(Value::as_object));
    group_by_name(properties.flatten())
}

fn group_by_name<'a>(all: impl Iterator<Item = (&'a String, &'a Value)>) -> ValuesByName<'a> {
    let mut stack = ValuesByName::new();
    for (name, value) in all {
        stack.entry(name.as_str()).or_default().push(value);
    }
    stack
}
