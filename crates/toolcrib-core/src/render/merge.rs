//! Several schemas that hold at once, as one. What cannot be said of both keeps the first and is told as a loss.

use std::collections::HashSet;

use serde_json::{Map, Value, json};

use super::projection::{Edits, Fit, Unfit, below, weight};

/// References inside of parts are followed so far.
const DEEPEST: usize = 16;

/// A schema without its `allOf`.
pub(super) fn merged_parts(
    mut keywords: Map<String, Value>,
    path: &str,
    edits: &mut Edits<'_>,
    depth: usize,
) -> Fit<Map<String, Value>> {
    if depth > DEEPEST {
        return Err(Unfit::new(path, "its parts refer to each other without end"));
    }
    let Some(Value::Array(parts)) = keywords.shift_remove("allOf") else { return Ok(keywords) };
    for (index, part) in parts.into_iter().enumerate() {
        let at = format!("{path}/allOf/{index}");
        edits.count_merge(&at)?;
        let part = match part {
            Value::Object(part) => part,
            Value::Bool(true) => continue,
            Value::Bool(false) | Value::Null | Value::Number(_) | Value::String(_) | Value::Array(_) => {
                return Err(Unfit::new(&at, "it allows no value"));
            }
        };
        let part = merged_parts(followed(part, &at, edits)?, &at, edits, depth + 1)?;
        merge(&mut keywords, &part, &at, edits)?;
    }
    Ok(keywords)
}

/// What a reference leads to, with what stands beside it.
pub(super) fn followed(mut keywords: Map<String, Value>, path: &str, edits: &mut Edits<'_>) -> Fit<Map<String, Value>> {
    for _ in 0..DEEPEST {
        let Some(reference) = keywords.shift_remove("$ref") else { return Ok(keywords) };
        let target = reference.as_str().and_then(|reference| edits.target(reference)).and_then(Value::as_object);
        let Some(target) = target else { return Err(Unfit::new(&below(path, "$ref"), "it leads nowhere")) };
        edits.count_merge(path)?;
        merge(&mut keywords, target, path, edits)?;
    }
    Err(Unfit::new(path, "it refers to itself"))
}

/// Lays what `other` says over `keywords`, which win where the two cannot be joined. What is there stays in its place, so
/// that the work is in proportion to `other`, however much was merged before.
pub(super) fn merge(
    keywords: &mut Map<String, Value>,
    other: &Map<String, Value>,
    path: &str,
    edits: &mut Edits<'_>,
) -> Fit<()> {
    edits.count_copy(weight(other), path)?;
    for (key, theirs) in other {
        let Some(ours) = keywords.get_mut(key) else {
            keywords.insert(key.clone(), theirs.clone());
            continue;
        };
        if ours == theirs {
            continue;
        }
        match join(key, ours, theirs) {
            Joined::Both => {}
            Joined::Not => edits.lose(&below(path, key), "it contradicts another part, dropped"),
        }
    }
    Ok(())
}

enum Joined {
    /// The first holds what both say, or says it all.
    Both,
    Not,
}

fn join(key: &str, ours: &mut Value, theirs: &Value) -> Joined {
    let numbers = ours.as_f64().zip(theirs.as_f64());
    match (key, &mut *ours, theirs) {
        ("properties" | "$defs" | "definitions", Value::Object(ours), Value::Object(theirs)) => {
            for (name, theirs) in theirs {
                match ours.get_mut(name) {
                    Some(ours) if ours != theirs && key == "properties" => add_part(ours, theirs),
                    Some(_) => {}
                    None => drop(ours.insert(name.clone(), theirs.clone())),
                }
            }
            Joined::Both
        }
        ("required", Value::Array(ours), Value::Array(theirs)) => {
            let known: HashSet<&Value> = ours.iter().collect();
            let more: Vec<Value> = theirs.iter().filter(|name| !known.contains(name)).cloned().collect();
            ours.extend(more);
            Joined::Both
        }
        ("type", _, _) => {
            let (others, mut met) = (names(theirs).into_iter().collect(), HashSet::new());
            let both = names(ours).into_iter().filter_map(|name| narrower(name, &others));
            let both: Vec<&str> = both.filter(|name| met.insert(*name)).collect();
            let both = match both[..] {
                [] => return Joined::Not,
                [only] => json!(only),
                _ => json!(both),
            };
            *ours = both;
            Joined::Both
        }
        ("enum", Value::Array(ours), Value::Array(theirs)) => {
            let known: HashSet<&Value> = theirs.iter().collect();
            if !ours.iter().any(|value| known.contains(value)) {
                return Joined::Not;
            }
            ours.retain(|value| known.contains(value));
            Joined::Both
        }
        ("minimum" | "exclusiveMinimum" | "minLength" | "minItems" | "minProperties", _, _) => match numbers {
            Some((one, other)) => take_if(other > one, ours, theirs),
            None => Joined::Not,
        },
        ("maximum" | "exclusiveMaximum" | "maxLength" | "maxItems" | "maxProperties", _, _) => match numbers {
            Some((one, other)) => take_if(other < one, ours, theirs),
            None => Joined::Not,
        },
        ("items", _, _) => {
            add_part(ours, theirs);
            Joined::Both
        }
        ("title" | "description" | "default" | "example" | "examples" | "additionalProperties", _, _) => Joined::Both,
        (key, _, _) if key.starts_with('$') || key.starts_with("x-") => Joined::Both,
        _ => Joined::Not,
    }
}

fn take_if(is_tighter: bool, ours: &mut Value, theirs: &Value) -> Joined {
    if is_tighter {
        ours.clone_from(theirs);
    }
    Joined::Both
}

/// Makes `ours` a schema of which both hold. Parts stand side by side: nested in each other, hundreds of them would be
/// too deep for a walk that recurses.
fn add_part(ours: &mut Value, theirs: &Value) {
    if let Value::Object(keywords) = &mut *ours
        && keywords.len() == 1
        && let Some(Value::Array(parts)) = keywords.get_mut("allOf")
    {
        return parts.push(theirs.clone());
    }
    let parts = vec![ours.take(), theirs.clone()];
    *ours = Value::Object(Map::from_iter([("allOf".to_owned(), Value::Array(parts))]));
}

fn names(types: &Value) -> Vec<&str> {
    match types {
        Value::Array(names) => names.iter().filter_map(Value::as_str).collect(),
        Value::String(name) => vec![name],
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => Vec::new(),
    }
}

fn narrower<'a>(name: &'a str, others: &HashSet<&str>) -> Option<&'a str> {
    match name {
        _ if others.contains(name) => Some(name),
        "number" if others.contains("integer") => Some("integer"),
        "integer" if others.contains("number") => Some("integer"),
        _ => None,
    }
}
