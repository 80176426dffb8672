//! Compares the parts of a value: the fields of an object, the items of an array, and the schemas for all other fields
//! and items. The class of each difference depends on the [`SchemaRole`]: arguments are judged for the caller that
//! sends them, outputs for the reader that receives them.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use toolcrib_schema::{SchemaLayers, accepts_anything, array_keyword};

use super::ChangeClass;
use super::notes::{self, SchemaPath, SchemaRole};
use super::schema::{SchemaComparer, array_keyword_in_layers};

impl<'a> SchemaComparer<'a, '_> {
    /// Compares the fields of an object: which exist, which are required, and the schema of each that both have.
    pub(super) fn compare_fields(&mut self, old: &SchemaLayers<'a>, new: &SchemaLayers<'a>, path: &SchemaPath) {
        // Collect both sides first: a rename can only be seen when exactly one name left and one came.
        let before = field_schemas(old);
        let after = field_schemas(new);
        let required_before = required_names(old);
        let required_after = required_names(new);
        // A name may be required without being described.
        let names = |fields: &BTreeMap<&'a str, &'a Value>, required: &BTreeSet<&'a str>| -> BTreeSet<&'a str> {
            fields.keys().copied().chain(required.iter().copied()).collect()
        };
        let old_names = names(&before, &required_before);
        let new_names = names(&after, &required_after);
        let removed: Vec<&str> = old_names.difference(&new_names).copied().collect();
        let added: Vec<&str> = new_names.difference(&old_names).copied().collect();
        // One field with the same schema under another name is a rename.
        let renamed = match (&removed[..], &added[..]) {
            ([from], [to]) if required_before.contains(from) == required_after.contains(to) => {
                let schemas = before.get(from).zip(after.get(to));
                schemas.filter(|(old, new)| self.are_equal(old, new)).map(|_| (*from, *to))
            }
            _ => None,
        };
        let role = self.role;
        let findings = &mut *self.findings;
        // An argument that vanished breaks callers that send it.
        // Readers of an output may rely on a field that was always present.
        let loss_class = |name: &str| match (role, required_before.contains(name)) {
            (SchemaRole::Input, _) | (SchemaRole::Output, true) => ChangeClass::Breaking,
            (SchemaRole::Output, false) => ChangeClass::Narrowed,
        };
        if let Some((from, to)) = renamed {
            // A rename counts like the loss of the old name.
            findings.add(loss_class(from), || {
                let subject = if role == SchemaRole::Output { "its output: " } else { "" };
                format!("{subject}`{}` became `{}`", path.field(from).as_str(), path.field(to).as_str())
            });
        } else {
            for name in removed {
                findings.add(loss_class(name), || role.render_field_change("lost ", &path.field(name)));
            }
            for name in added {
                // A new required argument breaks every caller; in an output, a new field harms no reader.
                let (class, verb) = match (role, required_after.contains(name)) {
                    (SchemaRole::Input, true) => (ChangeClass::Breaking, "gained a required "),
                    (SchemaRole::Input, false) => (ChangeClass::Widened, "gained an optional "),
                    (SchemaRole::Output, _) => (ChangeClass::Widened, "gained "),
                };
                findings.add(class, || role.render_field_change(verb, &path.field(name)));
            }
        }
        // Fields that both versions have.
        for name in old_names.intersection(&new_names) {
            let field_path = path.field(name);
            let is_required = required_after.contains(name);
            if is_required != required_before.contains(name) {
                // For an input, a new obligation is breaking; for an output, a new guarantee is welcome.
                let class = match (role, is_required) {
                    (SchemaRole::Input, true) => ChangeClass::Breaking,
                    (SchemaRole::Input, false) | (SchemaRole::Output, true) => ChangeClass::Widened,
                    (SchemaRole::Output, false) => ChangeClass::Narrowed,
                };
                self.findings.add(class, || role.render_required_change(&field_path, is_required));
            }
            // Names that are only required have no schema.
            if let (Some(old), Some(new)) = (before.get(name), after.get(name)) {
                self.compare_nodes(old, new, &field_path);
            }
        }
    }

    /// Compares two schemas of which a missing one accepts anything.
    fn compare_optional_schemas(&mut self, old: Option<&'a Value>, new: Option<&'a Value>, path: &SchemaPath) {
        match (old, new) {
            (None, None) => {}
            (Some(old), Some(new)) => self.compare_nodes(old, new, path),
            // `additionalProperties: true` or `items: {}` means the same as leaving it out.
            (None, Some(new)) if accepts_anything(new) => {}
            (Some(old), None) if accepts_anything(old) => {}
            (None, Some(_)) => self.report(self.role.narrowing_class(), path, notes::NO_LONGER_ANYTHING),
            (Some(_), None) => self.report(self.role.widening_class(), path, notes::ACCEPTS_ANYTHING),
        }
    }

    /// Compares the items of an array: first those with a schema for their position, then the schema for all others.
    pub(super) fn compare_items(&mut self, old: &SchemaLayers<'a>, new: &SchemaLayers<'a>, path: &SchemaPath) {
        // Positions that only one side describes are not compared with the other's rest; the count is reported instead.
        let (before, old_rest) = item_schemas(old);
        let (after, new_rest) = item_schemas(new);
        // Position by position.
        for (old, new) in before.iter().zip(after) {
            self.compare_nodes(old, new, &path.items());
        }
        if before.len() != after.len() {
            // More positions with a schema constrain more items.
            let class =
                if before.len() < after.len() { self.role.narrowing_class() } else { self.role.widening_class() };
            let text = format!("{} items are described one by one, {} before", after.len(), before.len());
            self.report_remark(class, path, &text);
        }
        self.compare_optional_schemas(old_rest, new_rest, &path.items());
    }

    /// Compares `additionalProperties`. `false` in any layer closes the object.
    pub(super) fn compare_additional_properties(
        &mut self,
        old: &SchemaLayers<'a>,
        new: &SchemaLayers<'a>,
        path: &SchemaPath,
    ) {
        // An object is closed if any of the schemas that apply at once closes it.
        let keyword = "additionalProperties";
        let closed =
            |layers: &SchemaLayers<'a>| layers.maps.iter().any(|map| map.get(keyword) == Some(&Value::Bool(false)));
        match (closed(old), closed(new)) {
            (true, true) => {}
            // The classes are the same for inputs and outputs.
            (false, true) => self.report(ChangeClass::Narrowed, path, notes::NO_UNKNOWN_FIELDS),
            (true, false) => self.report(ChangeClass::Widened, path, notes::UNKNOWN_FIELDS),
            (false, false) => self.compare_optional_schemas(old.get(keyword), new.get(keyword), &path.field("*")),
        }
    }
}

/// Returns the schemas by position and the schema of the remaining items. Before draft 2020-12, `items` was an array
/// and `additionalItems` held the rest.
fn item_schemas<'a>(layers: &SchemaLayers<'a>) -> (&'a [Value], Option<&'a Value>) {
    match layers.get("items") {
        Some(Value::Array(by_position)) => (by_position, layers.get("additionalItems")),
        rest => (array_keyword_in_layers(layers, "prefixItems"), rest),
    }
}

/// Returns the schema of each field. Of several layers that describe a field, the first counts; `unclassified` compares
/// the others.
fn field_schemas<'a>(layers: &SchemaLayers<'a>) -> BTreeMap<&'a str, &'a Value> {
    let mut fields = BTreeMap::new();
    for properties in layers.maps.iter().filter_map(|layer| layer.get("properties").and_then(Value::as_object)) {
        for (name, schema) in properties {
            fields.entry(name.as_str()).or_insert(schema);
        }
    }
    fields
}

/// Returns the names that any layer requires.
fn required_names<'a>(layers: &SchemaLayers<'a>) -> BTreeSet<&'a str> {
    layers.maps.iter().flat_map(|layer| array_keyword(layer, "required")).filter_map(Value::as_str).collect()
}
