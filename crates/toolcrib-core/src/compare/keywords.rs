//! The keywords of one schema that speak of the value itself: types, choices, limits, and those nobody here interprets.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::Class;
use super::schema::Side;
use crate::text::shown_short;

type Keywords = Map<String, Value>;

/// Lower bounds: more of them takes less.
const LEAST: [&str; 5] = ["minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties"];
const MOST: [&str; 5] = ["maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties"];
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
/// Looked at elsewhere, or of no meaning for what is taken.
const ELSEWHERE: [&str; 20] = [
    "type",
    "enum",
    "const",
    "title",
    "description",
    "properties",
    "required",
    "items",
    "additionalProperties",
    "prefixItems",
    "allOf",
    "anyOf",
    "oneOf",
    "$ref",
    "$defs",
    "definitions",
    "$schema",
    "$id",
    "$comment",
    "nullable",
];
const MOST_VALUES: usize = 5;

/// Tells what differs, without a word about where.
pub(super) fn compare(old: &Keywords, new: &Keywords, tell: &mut impl FnMut(Class, Note)) {
    compare_types(old, new, tell);
    choices(old, new, tell);
    limits(old, new, tell);
    let meant = |name: &String| !ELSEWHERE.contains(&name.as_str());
    let names: BTreeSet<&String> = old.keys().chain(new.keys()).filter(|name| meant(name)).collect();
    for name in names {
        let (before, after) = (old.get(name), new.get(name));
        if before == after || LEAST.contains(&name.as_str()) || MOST.contains(&name.as_str()) {
            continue;
        }
        let shown = shown_short(name, 40);
        match (CONDITIONS.contains(&name.as_str()), before, after) {
            (true, None, _) => tell(Class::Narrowed, Note::of(format!("`{shown}` was added"))),
            (true, Some(_), None) => tell(Class::Widened, Note::of(format!("`{shown}` was dropped"))),
            (true, Some(_), Some(_)) => tell(Class::Narrowed, Note::of(format!("`{shown}` changed"))),
            (false, ..) if name == "examples" || name == "example" => {
                tell(Class::Text, Note::of("its examples changed".to_owned()));
            }
            (false, ..) if name == "default" => {
                let value = |value: Option<&Value>| value.map_or("none".to_owned(), short);
                tell(Class::Other, Note::of(format!("default {} became {}", value(before), value(after))));
            }
            (false, ..) => tell(Class::Other, Note::of(format!("`{shown}` changed"))),
        }
    }
}

/// What differs, and whether it reads on after the place (`` `state` no longer takes `all` ``) or stands by itself.
pub(super) enum Note {
    Predicate(String),
    Remark(String),
}

impl Note {
    fn of(text: String) -> Note {
        Note::Remark(text)
    }
}

/// A note with its place before it.
pub(super) fn placed(side: Side, place: &str, note: &Note) -> String {
    let output = match side {
        Side::Input => "",
        Side::Output => "its output: ",
    };
    match (note, place.is_empty()) {
        (Note::Predicate(text) | Note::Remark(text), true) => match side {
            Side::Input => format!("its arguments: {text}"),
            Side::Output => format!("{output}{text}"),
        },
        (Note::Predicate(text), false) => format!("{output}`{place}` {text}"),
        (Note::Remark(text), false) => format!("{output}`{place}`: {text}"),
    }
}

/// The types a schema allows; nothing where it allows any.
pub(super) fn types(schema: &Value) -> Option<BTreeSet<&str>> {
    schema.as_object().and_then(types_of)
}

fn types_of(schema: &Keywords) -> Option<BTreeSet<&str>> {
    let mut types: BTreeSet<&str> = match schema.get("type")? {
        Value::String(name) => BTreeSet::from([name.as_str()]),
        Value::Array(names) => names.iter().filter_map(Value::as_str).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => return None,
    };
    if schema.get("nullable") == Some(&Value::Bool(true)) {
        types.insert("null");
    }
    Some(types)
}

fn compare_types(old: &Keywords, new: &Keywords, tell: &mut impl FnMut(Class, Note)) {
    let listed = |types: &BTreeSet<&str>| shown_short(&types.iter().copied().collect::<Vec<_>>().join(" or "), 80);
    let (before, after) = match (types_of(old), types_of(new)) {
        (None, None) => return,
        (None, Some(after)) => {
            return tell(Class::Narrowed, Note::Predicate(format!("takes {} alone now", listed(&after))));
        }
        (Some(_), None) => return tell(Class::Widened, Note::Predicate("takes any type now".to_owned())),
        (Some(before), Some(after)) => (before, after),
    };
    // Every integer is a number.
    let takes =
        |types: &BTreeSet<&str>, name: &str| types.contains(name) || (name == "integer" && types.contains("number"));
    let lost: BTreeSet<&str> = before.iter().copied().filter(|name| !takes(&after, name)).collect();
    let gained: BTreeSet<&str> = after.iter().copied().filter(|name| !takes(&before, name)).collect();
    let common = before.iter().any(|name| takes(&after, name)) || after.iter().any(|name| takes(&before, name));
    match (common, lost.is_empty(), gained.is_empty()) {
        (_, true, true) => {}
        (false, ..) => {
            tell(Class::Breaking, Note::Remark(format!("{} became {}", listed(&before), listed(&after))));
        }
        (true, lost_nothing, gained_nothing) => {
            if !lost_nothing {
                tell(Class::Narrowed, Note::Predicate(format!("no longer takes {}", listed(&lost))));
            }
            if !gained_nothing {
                tell(Class::Widened, Note::Predicate(format!("also takes {}", listed(&gained))));
            }
        }
    }
}

fn choices(old: &Keywords, new: &Keywords, tell: &mut impl FnMut(Class, Note)) {
    let (before, after) = match (values(old), values(new)) {
        (None, None) => return,
        (None, Some(after)) => {
            let all: Vec<&Value> = after.into_values().collect();
            return tell(Class::Narrowed, Note::Predicate(format!("takes only {} now", some(&all))));
        }
        (Some(_), None) => return tell(Class::Widened, Note::Predicate("takes other values too".to_owned())),
        (Some(before), Some(after)) => (before, after),
    };
    let only_in = |one: &BTreeMap<String, &'_ Value>, other: &BTreeMap<String, &'_ Value>| -> Vec<Value> {
        one.iter().filter(|(text, _)| !other.contains_key(*text)).map(|(_, value)| (*value).clone()).collect()
    };
    let (lost, gained) = (only_in(&before, &after), only_in(&after, &before));
    let named = |values: &[Value]| some(&values.iter().collect::<Vec<_>>());
    if !lost.is_empty() {
        let class = if lost.len() == before.len() { Class::Breaking } else { Class::Narrowed };
        tell(class, Note::Predicate(format!("no longer takes {}", named(&lost))));
    }
    if !gained.is_empty() {
        tell(Class::Widened, Note::Predicate(format!("also takes {}", named(&gained))));
    }
}

/// The values that may be chosen, by their text.
fn values(schema: &Keywords) -> Option<BTreeMap<String, &Value>> {
    let one = schema.get("const").map(std::slice::from_ref);
    let values = one.or_else(|| schema.get("enum").and_then(Value::as_array).map(Vec::as_slice))?;
    Some(values.iter().map(|value| (value.to_string(), value)).collect())
}

fn limits(old: &Keywords, new: &Keywords, tell: &mut impl FnMut(Class, Note)) {
    let all = LEAST.iter().map(|name| (*name, 1.0)).chain(MOST.iter().map(|name| (*name, -1.0)));
    for (name, sign) in all {
        match (old.get(name), new.get(name)) {
            (before, after) if before == after => {}
            (None, Some(limit)) => tell(Class::Narrowed, Note::Remark(format!("{name} {} was set", short(limit)))),
            (Some(_), None) => tell(Class::Widened, Note::Remark(format!("{name} was dropped"))),
            (Some(before), Some(after)) => {
                let number = |value: &Value| value.as_f64().unwrap_or_default() * sign;
                let class = if number(after) < number(before) { Class::Widened } else { Class::Narrowed };
                tell(class, Note::Remark(format!("{name} {} became {}", short(before), short(after))));
            }
            (None, None) => {}
        }
    }
}

fn some(values: &[&Value]) -> String {
    let mut shown: Vec<String> = values.iter().take(MOST_VALUES).map(|value| format!("`{}`", plain(value))).collect();
    if values.len() > MOST_VALUES {
        shown.push(format!("{} more", values.len() - MOST_VALUES));
    }
    shown.join(", ")
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| short(value), |text| shown_short(text, 40))
}

fn short(value: &Value) -> String {
    shown_short(&crate::json::beginning(value, 200), 40)
}
