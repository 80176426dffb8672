//! One of the ways to write the keywords of a schema, of those that come to the same.

use serde_json::{Map, Value, json};

use super::alternatives::{is_integral, json_type_name};

/// Of the ways to write it, one.
pub(super) fn simplify_keywords(mut keywords: Map<String, Value>, referred: Vec<Value>) -> Value {
    if let Some(value) = keywords.shift_remove("const") {
        keywords.insert("enum".to_owned(), Value::Array(vec![value]));
    }
    for name in ["required", "enum"] {
        if let Some(Value::Array(values)) = keywords.get_mut(name) {
            sort_and_dedup(values);
        }
    }
    if keywords.get("required").and_then(Value::as_array).is_some_and(Vec::is_empty) {
        keywords.shift_remove("required");
    }
    if keywords.get("nullable") == Some(&Value::Bool(true)) && keywords.contains_key("type") {
        keywords.shift_remove("nullable");
        add_values(&mut keywords, "type", vec![json!("null")]);
        if keywords.contains_key("enum") {
            add_values(&mut keywords, "enum", vec![Value::Null]);
        }
    }
    for name in ["anyOf", "oneOf"] {
        merge_alternatives(&mut keywords, name);
    }
    let mut parts = referred;
    if let Some(Value::Array(all)) = keywords.shift_remove("allOf") {
        parts.extend(all);
    }
    parts.retain(|part| part != &json!({}));
    if parts.len() == 1 && keywords.is_empty() {
        return parts.swap_remove(0);
    }
    sort_and_dedup(&mut parts);
    if !parts.is_empty() {
        keywords.insert("allOf".to_owned(), Value::Array(parts));
    }
    add_values(&mut keywords, "type", Vec::new());
    if are_types_redundant(&keywords) {
        keywords.shift_remove("type");
    }
    keywords.sort_keys();
    Value::Object(keywords)
}

/// Alternatives that are types alone are a list of types, those that are values alone a list of values.
fn merge_alternatives(keywords: &mut Map<String, Value>, name: &str) {
    let Some(Value::Array(mut ways)) = keywords.shift_remove(name) else { return };
    if !keywords.contains_key("type") && !keywords.contains_key("enum") {
        let alone = |way: &Value, keyword: &str| -> Option<Vec<Value>> {
            let way = way.as_object().filter(|way| way.len() == 1)?;
            let value = way.get(keyword)?;
            Some(value.as_array().cloned().unwrap_or_else(|| vec![value.clone()]))
        };
        let types: Option<Vec<Vec<Value>>> = ways.iter().map(|way| alone(way, "type")).collect();
        let null = |way: &Value| (way == &json!({ "type": "null" })).then(|| vec![Value::Null]);
        let values: Option<Vec<Vec<Value>>> = ways.iter().map(|way| null(way).or_else(|| alone(way, "enum"))).collect();
        let united = types.map(|types| ("type", types)).or_else(|| values.map(|values| ("enum", values)));
        if let Some((keyword, united)) = united {
            let all: Vec<Value> = united.concat();
            let mut each = all.clone();
            sort_and_dedup(&mut each);
            let overlapping = each.contains(&json!("integer")) && each.contains(&json!("number"));
            // What fits two of `oneOf` fits none.
            if name == "anyOf" || (each.len() == all.len() && (keyword == "enum" || !overlapping)) {
                return add_values(keywords, keyword, all);
            }
        }
    }
    match name {
        // What fits one of them twice fits two.
        "oneOf" => ways.sort_by_cached_key(Value::to_string),
        _ => sort_and_dedup(&mut ways),
    }
    keywords.insert(name.to_owned(), Value::Array(ways));
}

/// Adds to what is one value, or a list of them; one that is alone stands for itself where it is a type.
fn add_values(keywords: &mut Map<String, Value>, name: &str, more: Vec<Value>) {
    let mut values = match keywords.shift_remove(name) {
        Some(Value::Array(values)) => values,
        Some(value) => vec![value],
        None if more.is_empty() => return,
        None => Vec::new(),
    };
    values.extend(more);
    sort_and_dedup(&mut values);
    let value = if let ("type", [only]) = (name, &values[..]) { only.clone() } else { Value::Array(values) };
    keywords.insert(name.to_owned(), value);
}

/// Whether values are listed, all of them of the types that are named.
fn are_types_redundant(keywords: &Map<String, Value>) -> bool {
    let Some(Value::Array(values)) = keywords.get("enum") else { return false };
    let types: Vec<&str> = match keywords.get("type") {
        Some(Value::String(only)) => vec![only],
        Some(Value::Array(types)) => types.iter().filter_map(Value::as_str).collect(),
        Some(Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_)) | None => return false,
    };
    let fits = |value: &Value| {
        types.contains(&json_type_name(value, is_integral(value))) || (value.is_number() && types.contains(&"number"))
    };
    values.iter().all(fits)
}

pub(super) fn sort_and_dedup(values: &mut Vec<Value>) {
    values.sort_by_cached_key(Value::to_string);
    values.dedup();
}
