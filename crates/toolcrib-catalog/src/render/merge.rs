//! Merges schemas that apply at once (`allOf`, a reference beside other keywords) into one. Where two values cannot be
//! combined, the first stays and the other is recorded as a loss.
//!
//! The result accepts at most what each part accepts, as far as it can be expressed: types and choices are intersected,
//! bounds tightened, properties united. Nested conflicts become `allOf` again and are merged when that node is read.

use std::collections::HashSet;

use serde_json::{Map, Value, json};
use toolcrib_core::json;
use toolcrib_schema::declared_types;

use super::projection::{ProjectionContext, ProjectionResult, Unsupported, child_pointer, estimate_size};

/// Maximum nesting of `allOf` and of references that are followed. A deeper one counts as recursive.
const MAX_MERGE_DEPTH: usize = 16;

/// Returns the schema with its `allOf` parts merged in.
pub(super) fn merge_all_of(
    mut keywords: Map<String, Value>,
    path: &str,
    context: &mut ProjectionContext<'_>,
    depth: usize,
) -> ProjectionResult<Map<String, Value>> {
    if depth > MAX_MERGE_DEPTH {
        return Err(Unsupported::new(path, "its `allOf` parts are recursive"));
    }
    // Parts are merged in order, so of two conflicting ones the first stays.
    let Some(Value::Array(parts)) = keywords.shift_remove("allOf") else { return Ok(keywords) };
    for (index, part) in parts.into_iter().enumerate() {
        let part_path = format!("{path}/allOf/{index}");
        context.count_merge(&part_path)?;
        let part = match part {
            Value::Object(part) => part,
            // `true` restricts nothing, and `false` leaves no valid value.
            Value::Bool(true) => continue,
            Value::Bool(false) | Value::Null | Value::Number(_) | Value::String(_) | Value::Array(_) => {
                return Err(Unsupported::new(&part_path, "it allows no value"));
            }
        };
        let part = merge_all_of(resolve_reference(part, &part_path, context)?, &part_path, context, depth + 1)?;
        merge_keywords(&mut keywords, &part, &part_path, context)?;
    }
    Ok(keywords)
}

/// Follows `$ref` and merges the target with the keywords beside it.
pub(super) fn resolve_reference(
    mut keywords: Map<String, Value>,
    path: &str,
    context: &mut ProjectionContext<'_>,
) -> ProjectionResult<Map<String, Value>> {
    for _ in 0..MAX_MERGE_DEPTH {
        let Some(reference) = keywords.shift_remove("$ref") else { return Ok(keywords) };
        // Only references within the schema are followed; nothing is fetched.
        let target = reference.as_str().and_then(|reference| context.resolve(reference)).and_then(Value::as_object);
        let Some(target) = target else {
            return Err(Unsupported::new(&child_pointer(path, "$ref"), "the reference cannot be resolved"));
        };
        context.count_merge(path)?;
        merge_keywords(&mut keywords, target, path, context)?;
    }
    Err(Unsupported::new(path, "it refers to itself"))
}

/// Merges `other` into `keywords`, which win where the two conflict. Takes time in proportion to `other` only, however
/// much was merged before: existing keywords are changed in place.
pub(super) fn merge_keywords(
    keywords: &mut Map<String, Value>,
    other: &Map<String, Value>,
    path: &str,
    context: &mut ProjectionContext<'_>,
) -> ProjectionResult<()> {
    // Charged before copying: a reference to a large definition may be merged hundreds of times.
    context.count_copy(estimate_size(other), path)?;
    for (key, theirs) in other {
        let Some(ours) = keywords.get_mut(key) else {
            keywords.insert(key.clone(), theirs.clone());
            continue;
        };
        if ours == theirs {
            continue;
        }
        if !join_values(key, ours, theirs) {
            context.record_loss(&child_pointer(path, key), "it conflicts with another part, dropped");
        }
    }
    Ok(())
}

/// Combines two values of a keyword into `ours`: unions for properties and required names, intersections for types and
/// choices, the tighter of two bounds. Returns false if they conflict; `ours` is unchanged then, and `theirs` is lost.
fn join_values(key: &str, ours: &mut Value, theirs: &Value) -> bool {
    let numbers = json::as_float(ours).zip(json::as_float(theirs));
    match (key, &mut *ours, theirs) {
        ("properties" | "$defs" | "definitions", Value::Object(ours), Value::Object(theirs)) => {
            // The same property in two parts must satisfy both, which `allOf` expresses; definitions are only looked
            // up, so the first stays.
            for (name, theirs) in theirs {
                match ours.get_mut(name) {
                    Some(ours) if ours != theirs && key == "properties" => add_all_of_part(ours, theirs),
                    Some(_) => {}
                    None => drop(ours.insert(name.clone(), theirs.clone())),
                }
            }
        }
        ("required", Value::Array(ours), Value::Array(theirs)) => {
            let known_names: HashSet<&Value> = ours.iter().collect();
            let new_names: Vec<Value> = theirs.iter().filter(|name| !known_names.contains(name)).cloned().collect();
            ours.extend(new_names);
        }
        ("type", _, _) => {
            // The intersection; types that exclude each other are a conflict.
            let their_types = declared_types(Some(theirs)).collect();
            let mut seen = HashSet::new();
            let common = declared_types(Some(ours)).filter_map(|name| narrower_type(name, &their_types));
            let common: Vec<&str> = common.filter(|name| seen.insert(*name)).collect();
            let common = match common[..] {
                [] => return false,
                [only] => json!(only),
                _ => json!(common),
            };
            *ours = common;
        }
        ("enum", Value::Array(ours), Value::Array(theirs)) => {
            let their_values: HashSet<&Value> = theirs.iter().collect();
            // An empty `enum` is invalid, so contradictory choices are a conflict instead.
            if !ours.iter().any(|value| their_values.contains(value)) {
                return false;
            }
            ours.retain(|value| their_values.contains(value));
        }
        ("minimum" | "exclusiveMinimum" | "minLength" | "minItems" | "minProperties", _, _) => {
            let Some((our_number, their_number)) = numbers else { return false };
            if their_number > our_number {
                ours.clone_from(theirs);
            }
        }
        ("maximum" | "exclusiveMaximum" | "maxLength" | "maxItems" | "maxProperties", _, _) => {
            let Some((our_number, their_number)) = numbers else { return false };
            if their_number < our_number {
                ours.clone_from(theirs);
            }
        }
        ("items", _, _) => add_all_of_part(ours, theirs),
        // Annotations do not restrict values; those of the first schema stay.
        ("title" | "description" | "default" | "example" | "examples" | "additionalProperties", _, _) => {}
        // Keywords of the schema itself and extensions do not restrict values either.
        (key, _, _) => return key.starts_with('$') || key.starts_with("x-"),
    }
    true
}

/// Combines two schemas with `allOf`. Parts are appended to one flat list: nested in each other, hundreds of them would
/// be too deep for recursion.
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

/// Returns the narrower of `name` and its counterpart in `other_types`; `integer` is narrower than `number`.
fn narrower_type<'a>(name: &'a str, other_types: &HashSet<&str>) -> Option<&'a str> {
    match name {
        _ if other_types.contains(name) => Some(name),
        "number" if other_types.contains("integer") => Some("integer"),
        "integer" if other_types.contains("number") => Some("integer"),
        _ => None,
    }
}
