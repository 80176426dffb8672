//! What a value is made of, side by side: the fields of an object, the items of an array, and all others of both.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::Class;
use super::keywords::takes_anything;
use super::schema::{Walk, rows};
use super::ways::{Layers, row};
use super::words::{Became, Place, Side};

impl<'a> Walk<'a, '_> {
    /// The fields of an object: which there are, which must be there, and each of those that stayed.
    pub(super) fn fields(&mut self, old: &Layers<'a>, new: &Layers<'a>, at: &Place, depth: usize) {
        let (before, after) = (fields(old), fields(new));
        let (must_before, must_after) = (required(old), required(new));
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
        let is_renamed = renamed.is_some_and(|(old, new)| self.are_same(old, new));
        let (side, findings) = (self.side, &mut *self.findings);
        // Who reads an answer may have counted on what was always there.
        let losing = |name: &str| match (side, must_before.contains(name)) {
            (Side::Input, _) | (Side::Output, true) => Class::Breaking,
            (Side::Output, false) => Class::Narrowed,
        };
        if let ([from], [to]) = (&lost[..], &gained[..])
            && is_renamed
            && must_before.contains(from) == must_after.contains(to)
        {
            let (from, to, class) = (at.field(from), at.field(to), losing(from));
            let renamed = || format!("`{}` became `{}`", from.as_str(), to.as_str());
            findings.add(class, || match side {
                Side::Input => renamed(),
                Side::Output => format!("its output: {}", renamed()),
            });
        } else {
            for name in lost {
                let lost = || side.of_fields(&format!("lost `{}`", at.field(name).as_str()));
                findings.add(losing(name), lost);
            }
            for name in gained {
                let (class, how) = match (side, must_after.contains(name)) {
                    (Side::Input, true) => (Class::Breaking, "a required "),
                    (Side::Input, false) => (Class::Widened, "an optional "),
                    (Side::Output, _) => (Class::Widened, ""),
                };
                findings.add(class, || side.of_fields(&format!("gained {how}`{}`", at.field(name).as_str())));
            }
        }
        for name in known.intersection(&wanted) {
            let place = at.field(name);
            let (must, class) = match (side, must_before.contains(name), must_after.contains(name)) {
                (Side::Input, false, true) => (true, Some(Class::Breaking)),
                (Side::Input, true, false) => (false, Some(Class::Widened)),
                (Side::Output, false, true) => (true, Some(Class::Widened)),
                (Side::Output, true, false) => (false, Some(Class::Narrowed)),
                (Side::Input | Side::Output, true, true) | (Side::Input | Side::Output, false, false) => (false, None),
            };
            if let Some(class) = class {
                self.findings.add(class, || side.required(&place, must));
            }
            if let (Some(old), Some(new)) = (before.get(name), after.get(name)) {
                self.node(old, new, &place, depth + 1);
            }
        }
    }

    /// A schema that takes anything where it is missing.
    fn below(&mut self, old: Option<&'a Value>, new: Option<&'a Value>, at: &Place, depth: usize) {
        match (old, new) {
            (None, None) => {}
            (Some(old), Some(new)) => self.node(old, new, at, depth + 1),
            (None, Some(new)) if takes_anything(new) => {}
            (Some(old), None) if takes_anything(old) => {}
            (None, Some(_)) => self.tell(self.side.less(), at, Became::NotAnything),
            (Some(_), None) => self.tell(self.side.more(), at, Became::Anything),
        }
    }

    /// First those that stand in a row, each against its counterpart, then all others.
    pub(super) fn items(&mut self, old: &Layers<'a>, new: &Layers<'a>, at: &Place, depth: usize) {
        let ((before, old_rest), (after, new_rest)) = (items(old), items(new));
        for (old, new) in before.iter().zip(after) {
            self.node(old, new, &at.items(), depth + 1);
        }
        if before.len() != after.len() {
            let class = if before.len() < after.len() { self.side.less() } else { self.side.more() };
            self.tell_of(
                class,
                at,
                &format!("{} items are described one by one, {} before", after.len(), before.len()),
            );
        }
        self.below(old_rest, new_rest, &at.items(), depth);
    }

    pub(super) fn additional(&mut self, old: &Layers<'a>, new: &Layers<'a>, at: &Place, depth: usize) {
        let keyword = "additionalProperties";
        let closed = |layers: &Layers<'a>| layers.maps.iter().any(|map| map.get(keyword) == Some(&Value::Bool(false)));
        match (closed(old), closed(new)) {
            (true, true) => {}
            (false, true) => self.tell(Class::Narrowed, at, Became::WithoutUnknownFields),
            (true, false) => self.tell(Class::Widened, at, Became::WithUnknownFields),
            (false, false) => self.below(old.get(keyword), new.get(keyword), &at.field("*"), depth),
        }
    }
}

/// Those that stand in a row, as this draft of JSON Schema or an older one has it, and what holds for the rest.
fn items<'a>(layers: &Layers<'a>) -> (&'a [Value], Option<&'a Value>) {
    match layers.get("items") {
        Some(Value::Array(in_a_row)) => (in_a_row, layers.get("additionalItems")),
        rest => (rows(layers, "prefixItems"), rest),
    }
}

fn fields<'a>(layers: &Layers<'a>) -> BTreeMap<&'a str, &'a Value> {
    let mut fields = BTreeMap::new();
    for properties in layers.maps.iter().filter_map(|layer| layer.get("properties").and_then(Value::as_object)) {
        for (name, schema) in properties {
            fields.entry(name.as_str()).or_insert(schema);
        }
    }
    fields
}

fn required<'a>(layers: &Layers<'a>) -> BTreeSet<&'a str> {
    layers.maps.iter().flat_map(|layer| row(layer, "required")).filter_map(Value::as_str).collect()
}
