//! Unifies equivalent notations of the keywords of one schema, for its normal form. Each rewriting keeps the set of
//! accepted values; where that is not certain, the notation stays. Called for every schema from the innermost to the
//! outermost, so members of lists are simplified already.

use serde_json::{Map, Value, json};

use crate::types::{declared_types, is_of_type};

/// Rewrites the keywords of one schema into one of the notations that mean the same. `referenced` are the inlined
/// targets of its references, which apply like members of `allOf`.
pub(super) fn simplify_keywords(mut keywords: Map<String, Value>, referenced: Vec<Value>) -> Value {
    // `const` is an `enum` with one value.
    if let Some(value) = keywords.shift_remove("const") {
        keywords.insert("enum".to_owned(), Value::Array(vec![value]));
    }
    // The order and repetition of names and values have no meaning.
    for name in ["required", "enum"] {
        if let Some(Value::Array(values)) = keywords.get_mut(name) {
            sort_and_dedup(values);
        }
    }
    if keywords.get("required").and_then(Value::as_array).is_some_and(Vec::is_empty) {
        keywords.shift_remove("required");
    }
    // OpenAPI's `nullable` beside a type means a further type.
    if keywords.get("nullable") == Some(&Value::Bool(true)) && keywords.contains_key("type") {
        keywords.shift_remove("nullable");
        add_values(&mut keywords, "type", vec![json!("null")]);
        if keywords.contains_key("enum") {
            add_values(&mut keywords, "enum", vec![Value::Null]);
        }
    }
    // `anyOf` of types alone is a list of types, and so on.
    for name in ["anyOf", "oneOf"] {
        merge_alternatives(&mut keywords, name);
    }
    // `allOf` with one member and nothing beside it is that member.
    // The targets of references apply like members of `allOf`.
    let mut members = referenced;
    if let Some(Value::Array(all)) = keywords.shift_remove("allOf") {
        members.extend(all);
    }
    members.retain(|member| member != &json!({}));
    if members.len() == 1 && keywords.is_empty() {
        return members.swap_remove(0);
    }
    sort_and_dedup(&mut members);
    if !members.is_empty() {
        keywords.insert("allOf".to_owned(), Value::Array(members));
    }
    // Writes a list with one type as that type, and drops types that the values imply.
    add_values(&mut keywords, "type", Vec::new());
    if are_types_redundant(&keywords) {
        keywords.shift_remove("type");
    }
    // The text of a form is compared and hashed, so the order of keys must not depend on the source.
    keywords.sort_keys();
    Value::Object(keywords)
}

/// Merges alternatives that are types alone into a list of types, and those that are values alone into an `enum`.
fn merge_alternatives(keywords: &mut Map<String, Value>, name: &str) {
    let Some(Value::Array(mut alternatives)) = keywords.shift_remove(name) else { return };
    if !keywords.contains_key("type") && !keywords.contains_key("enum") {
        let only_keyword = |alternative: &Value, keyword: &str| -> Option<Vec<Value>> {
            let alternative = alternative.as_object().filter(|alternative| alternative.len() == 1)?;
            let value = alternative.get(keyword)?;
            Some(value.as_array().cloned().unwrap_or_else(|| vec![value.clone()]))
        };
        // All alternatives must be of the same kind to be merged. A `null` type counts as the value `null`.
        let types: Option<Vec<Vec<Value>>> =
            alternatives.iter().map(|alternative| only_keyword(alternative, "type")).collect();
        let null_as_enum = |alternative: &Value| (alternative == &json!({ "type": "null" })).then(|| vec![Value::Null]);
        let values: Option<Vec<Vec<Value>>> = alternatives
            .iter()
            .map(|alternative| null_as_enum(alternative).or_else(|| only_keyword(alternative, "enum")))
            .collect();
        let merged = types.map(|types| ("type", types)).or_else(|| values.map(|values| ("enum", values)));
        if let Some((keyword, merged)) = merged {
            let all: Vec<Value> = merged.concat();
            // Duplicates tell whether members of `oneOf` overlap.
            let mut distinct = all.clone();
            sort_and_dedup(&mut distinct);
            // Every integer is a number, so these two types overlap.
            let overlapping = distinct.contains(&json!("integer")) && distinct.contains(&json!("number"));
            // A value that matches two members of `oneOf` is invalid, so members that overlap cannot be merged.
            if name == "anyOf" || (distinct.len() == all.len() && (keyword == "enum" || !overlapping)) {
                return add_values(keywords, keyword, all);
            }
        }
    }
    match name {
        // Equal members of `oneOf` exclude each other, so duplicates stay.
        "oneOf" => alternatives.sort_by_cached_key(Value::to_string),
        _ => sort_and_dedup(&mut alternatives),
    }
    keywords.insert(name.to_owned(), Value::Array(alternatives));
}

/// Adds values to a keyword that holds one value or a list of them. A single type is written without a list.
fn add_values(keywords: &mut Map<String, Value>, name: &str, added: Vec<Value>) {
    let mut values = match keywords.shift_remove(name) {
        Some(Value::Array(values)) => values,
        Some(value) => vec![value],
        None if added.is_empty() => return,
        None => Vec::new(),
    };
    values.extend(added);
    sort_and_dedup(&mut values);
    let value = if let ("type", [only]) = (name, &values[..]) { only.clone() } else { Value::Array(values) };
    keywords.insert(name.to_owned(), value);
}

/// Returns whether all values of `enum` are of the types in `type`, which then adds nothing.
fn are_types_redundant(keywords: &Map<String, Value>) -> bool {
    let Some(Value::Array(values)) = keywords.get("enum") else { return false };
    // A malformed `type` is kept.
    let Some(keyword @ (Value::String(_) | Value::Array(_))) = keywords.get("type") else { return false };
    let types: Vec<&str> = declared_types(Some(keyword)).collect();
    values.iter().all(|value| types.iter().any(|name| is_of_type(value, name)))
}

/// Sorts values by their JSON text and removes duplicates.
pub(super) fn sort_and_dedup(values: &mut Vec<Value>) {
    values.sort_by_cached_key(Value::to_string);
    values.dedup();
}
