//! Several schemas that hold at once, as one. What cannot be said of both keeps the first and is told as a loss.

use serde_json::{Map, Value, json};

use super::projection::{Edits, Fit, Unfit, below};

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
        merge(&mut keywords, &part, &at, edits);
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
        merge(&mut keywords, target, path, edits);
    }
    Err(Unfit::new(path, "it refers to itself"))
}

/// Lays what `other` says over `keywords`, which win where the two cannot be joined.
pub(super) fn merge(keywords: &mut Map<String, Value>, other: &Map<String, Value>, path: &str, edits: &mut Edits<'_>) {
    for (key, theirs) in other {
        let Some(ours) = keywords.get(key) else {
            keywords.insert(key.clone(), theirs.clone());
            continue;
        };
        if ours == theirs {
            continue;
        }
        match joined(key, ours, theirs) {
            Joined::As(value) => drop(keywords.insert(key.clone(), value)),
            Joined::First => {}
            Joined::Not => edits.lose(&below(path, key), "it contradicts another part, dropped"),
        }
    }
}

enum Joined {
    As(Value),
    /// The first says it all.
    First,
    Not,
}

fn joined(key: &str, ours: &Value, theirs: &Value) -> Joined {
    let numbers = || Some((ours.as_f64()?, theirs.as_f64()?));
    match (key, ours, theirs) {
        ("properties" | "$defs" | "definitions", Value::Object(ours), Value::Object(theirs)) => {
            let mut fields = ours.clone();
            for (name, theirs) in theirs {
                let both = match ours.get(name) {
                    Some(ours) if ours != theirs && key == "properties" => json!({ "allOf": [ours, theirs] }),
                    Some(ours) => ours.clone(),
                    None => theirs.clone(),
                };
                fields.insert(name.clone(), both);
            }
            Joined::As(Value::Object(fields))
        }
        ("required", Value::Array(ours), Value::Array(theirs)) => {
            let more = theirs.iter().filter(|name| !ours.contains(name));
            Joined::As(ours.iter().chain(more).cloned().collect())
        }
        ("type", _, _) => {
            let both: Vec<&str> = names(ours).into_iter().filter_map(|name| narrower(name, &names(theirs))).collect();
            match both[..] {
                [] => Joined::Not,
                [only] => Joined::As(json!(only)),
                _ => Joined::As(json!(both)),
            }
        }
        ("enum", Value::Array(ours), Value::Array(theirs)) => {
            let both: Vec<&Value> = ours.iter().filter(|value| theirs.contains(value)).collect();
            if both.is_empty() { Joined::Not } else { Joined::As(json!(both)) }
        }
        ("minimum" | "exclusiveMinimum" | "minLength" | "minItems" | "minProperties", _, _) => match numbers() {
            Some((one, other)) => Joined::As(if one >= other { ours.clone() } else { theirs.clone() }),
            None => Joined::Not,
        },
        ("maximum" | "exclusiveMaximum" | "maxLength" | "maxItems" | "maxProperties", _, _) => match numbers() {
            Some((one, other)) => Joined::As(if one <= other { ours.clone() } else { theirs.clone() }),
            None => Joined::Not,
        },
        ("items", _, _) => Joined::As(json!({ "allOf": [ours, theirs] })),
        ("title" | "description" | "default" | "example" | "examples" | "additionalProperties", _, _) => Joined::First,
        (key, _, _) if key.starts_with('$') || key.starts_with("x-") => Joined::First,
        _ => Joined::Not,
    }
}

fn names(types: &Value) -> Vec<&str> {
    match types {
        Value::Array(names) => names.iter().filter_map(Value::as_str).collect(),
        Value::String(name) => vec![name],
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => Vec::new(),
    }
}

fn narrower<'a>(name: &'a str, others: &[&'a str]) -> Option<&'a str> {
    match name {
        _ if others.contains(&name) => Some(name),
        "number" if others.contains(&"integer") => Some("integer"),
        "integer" if others.contains(&"number") => Some("integer"),
        _ => None,
    }
}
