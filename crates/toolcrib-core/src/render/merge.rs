//! Several schemas that hold at once, as one. What cannot be said of both keeps the first and is told as a loss.

use std::collections::HashSet;

use serde_json::{Map, Value, json};

use super::projection::{ProjectionContext, ProjectionResult, Unsupported, child_pointer, estimate_size};

/// References inside of parts are followed so far.
const MAX_MERGE_DEPTH: usize = 16;

/// A schema without its `allOf`.
pub(super) fn merge_all_of(
    mut keywords: Map<String, Value>,
    path: &str,
    edits: &mut ProjectionContext<'_>,
    depth: usize,
) -> ProjectionResult<Map<String, Value>> {
    if depth > MAX_MERGE_DEPTH {
        return Err(Unsupported::new(path, "its parts refer to each other without end"));
    }
    let Some(Value::Array(parts)) = keywords.shift_remove("allOf") else { return Ok(keywords) };
    for (index, part) in parts.into_iter().enumerate() {
        let at = format!("{path}/allOf/{index}");
        edits.count_merge(&at)?;
        let part = match part {
            Value::Object(part) => part,
            Value::Bool(true) => continue,
            Value::Bool(false) | Value::Null | Value::Number(_) | Value::String(_) | Value::Array(_) => {
                return Err(Unsupported::new(&at, "it allows no value"));
            }
        };
        let part = merge_all_of(resolve_reference(part, &at, edits)?, &at, edits, depth + 1)?;
        merge_keywords(&mut keywords, &part, &at, edits)?;
    }
    Ok(keywords)
}

/// What a reference leads to, with what stands beside it.
pub(super) fn resolve_reference(
    mut keywords: Map<String, Value>,
    path: &str,
    edits: &mut ProjectionContext<'_>,
) -> ProjectionResult<Map<String, Value>> {
    for _ in 0..MAX_MERGE_DEPTH {
        let Some(reference) = keywords.shift_remove("$ref") else { return Ok(keywords) };
        let target = reference.as_str().and_then(|reference| edits.resolve(reference)).and_then(Value::as_object);
        let Some(target) = target else {
            return Err(Unsupported::new(&child_pointer(path, "$ref"), "it leads nowhere"));
        };
        edits.count_merge(path)?;
        merge_keywords(&mut keywords, target, path, edits)?;
    }
    Err(Unsupported::new(path, "it refers to itself"))
}

/// Lays what `other` says over `keywords`, which win where the two cannot be joined. What is there stays in its place, so
/// that the work is in proportion to `other`, however much was merged before.
pub(super) fn merge_keywords(
    keywords: &mut Map<String, Value>,
    other: &Map<String, Value>,
    path: &str,
    edits: &mut ProjectionContext<'_>,
) -> ProjectionResult<()> {
    edits.count_copy(estimate_size(other), path)?;
    for (key, theirs) in other {
        let Some(ours) = keywords.get_mut(key) else {
            keywords.insert(key.clone(), theirs.clone());
            continue;
        };
        if ours == theirs {
            continue;
        }
        match join_values(key, ours, theirs) {
            JoinResult::Joined => {}
            JoinResult::Conflict => {
                edits.record_loss(&child_pointer(path, key), "it contradicts another part, dropped")
            }
        }
    }
    Ok(())
}

enum JoinResult {
    /// The first holds what both say, or says it all.
    Joined,
    Conflict,
}

fn join_values(key: &str, ours: &mut Value, theirs: &Value) -> JoinResult {
    let numbers = ours.as_f64().zip(theirs.as_f64());
    match (key, &mut *ours, theirs) {
        ("properties" | "$defs" | "definitions", Value::Object(ours), Value::Object(theirs)) => {
            for (name, theirs) in theirs {
                match ours.get_mut(name) {
                    Some(ours) if ours != theirs && key == "properties" => add_all_of_part(ours, theirs),
                    Some(_) => {}
                    None => drop(ours.insert(name.clone(), theirs.clone())),
                }
            }
            JoinResult::Joined
        }
        ("required", Value::Array(ours), Value::Array(theirs)) => {
            let known: HashSet<&Value> = ours.iter().collect();
            let more: Vec<Value> = theirs.iter().filter(|name| !known.contains(name)).cloned().collect();
            ours.extend(more);
            JoinResult::Joined
        }
        ("type", _, _) => {
            let (others, mut met) = (type_names(theirs).into_iter().collect(), HashSet::new());
            let both = type_names(ours).into_iter().filter_map(|name| narrower_type(name, &others));
            let both: Vec<&str> = both.filter(|name| met.insert(*name)).collect();
            let both = match both[..] {
                [] => return JoinResult::Conflict,
                [only] => json!(only),
                _ => json!(both),
            };
            *ours = both;
            JoinResult::Joined
        }
        ("enum", Value::Array(ours), Value::Array(theirs)) => {
            let known: HashSet<&Value> = theirs.iter().collect();
            if !ours.iter().any(|value| known.contains(value)) {
                return JoinResult::Conflict;
            }
            ours.retain(|value| known.contains(value));
            JoinResult::Joined
        }
        ("minimum" | "exclusiveMinimum" | "minLength" | "minItems" | "minProperties", _, _) => match numbers {
            Some((one, other)) => keep_tighter(other > one, ours, theirs),
            None => JoinResult::Conflict,
        },
        ("maximum" | "exclusiveMaximum" | "maxLength" | "maxItems" | "maxProperties", _, _) => match numbers {
            Some((one, other)) => keep_tighter(other < one, ours, theirs),
            None => JoinResult::Conflict,
        },
        ("items", _, _) => {
            add_all_of_part(ours, theirs);
            JoinResult::Joined
        }
        ("title" | "description" | "default" | "example" | "examples" | "additionalProperties", _, _) => {
            JoinResult::Joined
        }
        (key, _, _) if key.starts_with('$') || key.starts_with("x-") => JoinResult::Joined,
        _ => JoinResult::Conflict,
    }
}

fn keep_tighter(is_tighter: bool, ours: &mut Value, theirs: &Value) -> JoinResult {
    if is_tighter {
        ours.clone_from(theirs);
    }
    JoinResult::Joined
}

/// Makes `ours` a schema of which both hold. Parts stand side by side: nested in each other, hundreds of them would be
/// too deep for a walk that recurses.
fn add_all_of_part(ours: &mut Value, theirs: &Value) {
    if let Value::Object(keywords) = &mut *ours
        && keywords.len() == 1
        && let Some(Value::Array(parts)) = keywords.get_mut("allOf")
    {
        return parts.push(theirs.clone());
    }
    let parts = vec![ours.take(), theirs.clone()];
    *ours = Value::Object(Map::from_iter([("allOf".to_owned(), Value::Array(parts))]));
}

fn type_names(types: &Value) -> Vec<&str> {
    match types {
        Value::Array(names) => names.iter().filter_map(Value::as_str).collect(),
        Value::String(name) => vec![name],
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => Vec::new(),
    }
}

fn narrower_type<'a>(name: &'a str, others: &HashSet<&str>) -> Option<&'a str> {
    match name {
        _ if others.contains(name) => Some(name),
        "number" if others.contains("integer") => Some("integer"),
        "integer" if others.contains("number") => Some("integer"),
        _ => None,
    }
}
