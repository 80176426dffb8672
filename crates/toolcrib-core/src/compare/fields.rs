//! What a value is made of, side by side: the fields of an object, the items of an array, and all others of both.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::ChangeClass;
use super::alternatives::{SchemaLayers, array_keyword};
use super::keywords::accepts_anything;
use super::notes::{SchemaPath, SchemaRole, ValueChange};
use super::schema::{SchemaComparer, array_keyword_in_layers};

impl<'a> SchemaComparer<'a, '_> {
    /// The fields of an object: which there are, which must be there, and each of those that stayed.
    pub(super) fn compare_fields(
        &mut self,
        old: &SchemaLayers<'a>,
        new: &SchemaLayers<'a>,
        at: &SchemaPath,
        depth: usize,
    ) {
        let (before, after) = (field_schemas(old), field_schemas(new));
        let (must_before, must_after) = (required_names(old), required_names(new));
        let names = |fields: &BTreeMap<&'a str, &'a Value>, must: &BTreeSet<&'a str>| -> BTreeSet<&'a str> {
            fields.keys().copied().chain(must.iter().copied()).collect()
        };
        let (known, wanted) = (names(&before, &must_before), names(&after, &must_after));
        let lost: Vec<&str> = known.difference(&wanted).copied().collect();
        let gained: Vec<&str> = wanted.difference(&known).copied().collect();
        let renamed = match (&lost[..], &gained[..]) {
            ([from], [to]) => before.get(from).zip(after.get(to)),
            _ => None,
        };
        let is_renamed = renamed.is_some_and(|(old, new)| self.are_equal(old, new));
        let (side, findings) = (self.role, &mut *self.findings);
        // Who reads an answer may have counted on what was always there.
        let losing = |name: &str| match (side, must_before.contains(name)) {
            (SchemaRole::Input, _) | (SchemaRole::Output, true) => ChangeClass::Breaking,
            (SchemaRole::Output, false) => ChangeClass::Narrowed,
        };
        if let ([from], [to]) = (&lost[..], &gained[..])
            && is_renamed
            && must_before.contains(from) == must_after.contains(to)
        {
            let (from, to, class) = (at.field(from), at.field(to), losing(from));
            let renamed = || format!("`{}` became `{}`", from.as_str(), to.as_str());
            findings.add(class, || match side {
                SchemaRole::Input => renamed(),
                SchemaRole::Output => format!("its output: {}", renamed()),
            });
        } else {
            for name in lost {
                let lost = || side.render_field_change(&format!("lost `{}`", at.field(name).as_str()));
                findings.add(losing(name), lost);
            }
            for name in gained {
                let (class, how) = match (side, must_after.contains(name)) {
                    (SchemaRole::Input, true) => (ChangeClass::Breaking, "a required "),
                    (SchemaRole::Input, false) => (ChangeClass::Widened, "an optional "),
                    (SchemaRole::Output, _) => (ChangeClass::Widened, ""),
                };
                findings.add(class, || side.render_field_change(&format!("gained {how}`{}`", at.field(name).as_str())));
            }
        }
        for name in known.intersection(&wanted) {
            let place = at.field(name);
            let (must, class) = match (side, must_before.contains(name), must_after.contains(name)) {
                (SchemaRole::Input, false, true) => (true, Some(ChangeClass::Breaking)),
                (SchemaRole::Input, true, false) => (false, Some(ChangeClass::Widened)),
                (SchemaRole::Output, false, true) => (true, Some(ChangeClass::Widened)),
                (SchemaRole::Output, true, false) => (false, Some(ChangeClass::Narrowed)),
                (SchemaRole::Input | SchemaRole::Output, true, true)
                | (SchemaRole::Input | SchemaRole::Output, false, false) => (false, None),
            };
            if let Some(class) = class {
                self.findings.add(class, || side.render_required_change(&place, must));
            }
            if let (Some(old), Some(new)) = (before.get(name), after.get(name)) {
                self.compare_nodes(old, new, &place, depth + 1);
            }
        }
    }

    /// A schema that takes anything where it is missing.
    fn compare_optional_schemas(
        &mut self,
        old: Option<&'a Value>,
        new: Option<&'a Value>,
        at: &SchemaPath,
        depth: usize,
    ) {
        match (old, new) {
            (None, None) => {}
            (Some(old), Some(new)) => self.compare_nodes(old, new, at, depth + 1),
            (None, Some(new)) if accepts_anything(new) => {}
            (Some(old), None) if accepts_anything(old) => {}
            (None, Some(_)) => self.report(self.role.narrowing_class(), at, ValueChange::NoLongerAnything),
            (Some(_), None) => self.report(self.role.widening_class(), at, ValueChange::AcceptsAnything),
        }
    }

    /// First those that stand in a row, each against its counterpart, then all others.
    pub(super) fn compare_items(
        &mut self,
        old: &SchemaLayers<'a>,
        new: &SchemaLayers<'a>,
        at: &SchemaPath,
        depth: usize,
    ) {
        let ((before, old_rest), (after, new_rest)) = (item_schemas(old), item_schemas(new));
        for (old, new) in before.iter().zip(after) {
            self.compare_nodes(old, new, &at.items(), depth + 1);
        }
        if before.len() != after.len() {
            let class =
                if before.len() < after.len() { self.role.narrowing_class() } else { self.role.widening_class() };
            self.report_remark(
                class,
                at,
                &format!("{} items are described one by one, {} before", after.len(), before.len()),
            );
        }
        self.compare_optional_schemas(old_rest, new_rest, &at.items(), depth);
    }

    pub(super) fn compare_additional_properties(
        &mut self,
        old: &SchemaLayers<'a>,
        new: &SchemaLayers<'a>,
        at: &SchemaPath,
        depth: usize,
    ) {
        let keyword = "additionalProperties";
        let closed =
            |layers: &SchemaLayers<'a>| layers.maps.iter().any(|map| map.get(keyword) == Some(&Value::Bool(false)));
        match (closed(old), closed(new)) {
            (true, true) => {}
            (false, true) => self.report(ChangeClass::Narrowed, at, ValueChange::WithoutUnknownFields),
            (true, false) => self.report(ChangeClass::Widened, at, ValueChange::WithUnknownFields),
            (false, false) => self.compare_optional_schemas(old.get(keyword), new.get(keyword), &at.field("*"), depth),
        }
    }
}

/// Those that stand in a row, as this draft of JSON Schema or an older one has it, and what holds for the rest.
fn item_schemas<'a>(layers: &SchemaLayers<'a>) -> (&'a [Value], Option<&'a Value>) {
    match layers.get("items") {
        Some(Value::Array(in_a_row)) => (in_a_row, layers.get("additionalItems")),
        rest => (array_keyword_in_layers(layers, "prefixItems"), rest),
    }
}

fn field_schemas<'a>(layers: &SchemaLayers<'a>) -> BTreeMap<&'a str, &'a Value> {
    let mut fields = BTreeMap::new();
    for properties in layers.maps.iter().filter_map(|layer| layer.get("properties").and_then(Value::as_object)) {
        for (name, schema) in properties {
            fields.entry(name.as_str()).or_insert(schema);
        }
    }
    fields
}

fn required_names<'a>(layers: &SchemaLayers<'a>) -> BTreeSet<&'a str> {
    layers.maps.iter().flat_map(|layer| array_keyword(layer, "required")).filter_map(Value::as_str).collect()
}
