//! The keywords of one schema that speak of the value itself: types, choices, limits, and those nobody here interprets.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::Class;
use super::limits::{is_limit, limits};
use super::words::{Became, Place, Side};
use crate::text::shown_short;

pub(super) type Keywords<'a> = BTreeMap<&'a str, &'a Value>;
type Values<'a> = BTreeMap<String, &'a Value>;

/// Any of these takes less than none of it; which of two takes less cannot be told.
const CONDITIONS: [&str; 20] = [
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
const ELSEWHERE: [&str; 15] = [
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
const ASIDE: [&str; 15] = [
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
const UNSAID: [&str; 7] = ["title", "description", "$comment", "$schema", "$id", "$defs", "definitions"];
const MOST_VALUES: usize = 5;

/// What stands under a keyword.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Holds {
    Words,
    Definitions,
    Reference,
    Anchor,
    Schema,
    SchemaOrRow,
    Row,
    Named,
    Value,
}

pub(super) fn holds(keyword: &str) -> Holds {
    match keyword {
        "title" | "description" | "$comment" | "examples" | "example" | "$schema" | "$id" => Holds::Words,
        "$defs" | "definitions" => Holds::Definitions,
        "$ref" | "$dynamicRef" | "$recursiveRef" => Holds::Reference,
        "$anchor" => Holds::Anchor,
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
        | "contentSchema" => Holds::Schema,
        "items" => Holds::SchemaOrRow,
        "allOf" | "anyOf" | "oneOf" | "prefixItems" => Holds::Row,
        "properties" | "patternProperties" | "dependentSchemas" | "dependentRequired" | "dependencies" => Holds::Named,
        _ => Holds::Value,
    }
}

/// Whether a keyword leaves open what is taken: words, defaults, and what others have invented.
pub(super) fn says_nothing_of_values(keyword: &str) -> bool {
    ASIDE.contains(&keyword) || keyword.starts_with("x-")
}

/// Whether a keyword is looked at here.
pub(super) fn is_compared(keyword: &str) -> bool {
    !ELSEWHERE.contains(&keyword) && !says_nothing_of_values(keyword)
}

/// What two ways say of the value itself, without a word about where.
pub(super) fn compare(
    side: Side,
    (old, old_values): (&Keywords<'_>, Option<&Values<'_>>),
    (new, new_values): (&Keywords<'_>, Option<&Values<'_>>),
    tell: &mut impl FnMut(Class, Note),
) {
    choices(side, old_values, new_values, tell);
    limits(side, old, new, tell);
    for (name, before, after) in differing(old, new, |name| !is_limit(name)) {
        // To say that nothing is asked for is to say nothing.
        let meant = |value: Option<&&Value>| value.is_some_and(|value| !asks_nothing(name, value));
        let shown = shown_short(name, 40);
        match (CONDITIONS.contains(&name), meant(before), meant(after)) {
            (true, false, false) => {}
            (true, false, true) => tell(side.less(), Note::Remark(format!("`{shown}` was added"))),
            (true, true, false) => tell(side.more(), Note::Remark(format!("`{shown}` was dropped"))),
            (true, true, true) => tell(Class::Narrowed, Note::Remark(format!("`{shown}` changed"))),
            (false, ..) => tell(Class::Other, Note::Remark(format!("`{shown}` changed"))),
        }
    }
}

/// What two schemas say beside what they take; titles and descriptions are told by others.
pub(super) fn compare_aside(old: &Keywords<'_>, new: &Keywords<'_>, tell: &mut impl FnMut(Class, Note)) {
    for (name, before, after) in differing(old, new, |name| !UNSAID.contains(&name)) {
        match name {
            "examples" | "example" => tell(Class::Text, Note::Remark("its examples changed".to_owned())),
            "default" => {
                let value = |value: Option<&&Value>| value.map_or("none".to_owned(), |value| short(value));
                tell(Class::Other, Note::Remark(format!("default {} became {}", value(before), value(after))));
            }
            _ => tell(Class::Other, Note::Remark(format!("`{}` changed", shown_short(name, 40)))),
        }
    }
}

/// The keywords among those wanted that only one has, or that differ.
fn differing<'a, 'b>(
    old: &'b Keywords<'a>,
    new: &'b Keywords<'a>,
    wanted: impl Fn(&str) -> bool,
) -> Vec<(&'a str, Option<&'b &'a Value>, Option<&'b &'a Value>)> {
    let names: BTreeSet<&'a str> = old.keys().chain(new.keys()).copied().filter(|name| wanted(name)).collect();
    let both = names.into_iter().map(|name| (name, old.get(name), new.get(name)));
    both.filter(|(_, old, new)| old != new).collect()
}

/// Whether a keyword with this value may as well be left out.
pub(super) fn asks_nothing(name: &str, value: &Value) -> bool {
    match name {
        "uniqueItems" | "nullable" | "exclusiveMinimum" | "exclusiveMaximum" => value == &Value::Bool(false),
        "minLength" | "minItems" | "minProperties" => value.as_f64() == Some(0.0),
        "items"
        | "additionalItems"
        | "additionalProperties"
        | "unevaluatedProperties"
        | "unevaluatedItems"
        | "propertyNames" => takes_anything(value),
        "properties" | "patternProperties" | "dependentRequired" | "dependentSchemas" | "dependencies" => {
            value.as_object().is_some_and(Map::is_empty)
        }
        _ => false,
    }
}

/// Whether a keyword, by taking a value, keeps it from those that are left over for `unevaluatedProperties` and its like.
pub(super) fn evaluates(name: &str) -> bool {
    matches!(name, "items" | "additionalItems" | "additionalProperties" | "unevaluatedProperties" | "unevaluatedItems")
}

pub(super) fn takes_anything(schema: &Value) -> bool {
    schema == &Value::Bool(true) || schema.as_object().is_some_and(Map::is_empty)
}

/// What differs, and whether it reads on after the place (`` `state` no longer takes `all` ``) or stands by itself.
pub(super) enum Note {
    Predicate(Became),
    Remark(String),
}

impl Note {
    /// With its place before it.
    pub(super) fn placed(&self, side: Side, place: &Place) -> String {
        match self {
            Note::Predicate(became) => side.predicate(place, became),
            Note::Remark(text) => side.remark(place, text),
        }
    }
}

fn choices(side: Side, old: Option<&Values<'_>>, new: Option<&Values<'_>>, tell: &mut impl FnMut(Class, Note)) {
    let (before, after) = match (old, new) {
        (None, None) => return,
        (None, Some(after)) => return tell(side.less(), Note::Predicate(Became::Only(some(after)))),
        (Some(_), None) => return tell(side.more(), Note::Predicate(Became::OtherValuesToo)),
        (Some(before), Some(after)) => (before, after),
    };
    let (lost, gained) = (only_in(before, after), only_in(after, before));
    if !lost.is_empty() {
        let class = if lost.len() == before.len() { Class::Breaking } else { side.less() };
        tell(class, Note::Predicate(Became::NoLonger(some(&lost))));
    }
    if !gained.is_empty() {
        tell(side.more(), Note::Predicate(Became::Also(some(&gained))));
    }
}

fn only_in<'a>(one: &Values<'a>, other: &Values<'a>) -> Values<'a> {
    one.iter().filter(|(text, _)| !other.contains_key(*text)).map(|(text, value)| (text.clone(), *value)).collect()
}

pub(super) fn some(values: &Values<'_>) -> String {
    let mut shown: Vec<String> = values.values().take(MOST_VALUES).map(|value| format!("`{}`", plain(value))).collect();
    if values.len() > MOST_VALUES {
        shown.push(format!("{} more", values.len() - MOST_VALUES));
    }
    shown.join(", ")
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| short(value), |text| shown_short(text, 40))
}

pub(super) fn short(value: &Value) -> String {
    shown_short(&crate::json::beginning(value, 200), 40)
}
