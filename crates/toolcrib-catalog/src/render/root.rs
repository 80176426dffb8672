//! Top level of a schema: every provider requires a plain object there. Alternatives of whole argument sets, which MCP
//! allows, are merged into one set.

use std::collections::HashSet;

use serde_json::{Map, Value, json};

use super::merge::{merge_all_of, merge_keywords, resolve_reference};
use super::projection::{ProjectionContext, ProjectionResult, required_names};

/// Converts the input schema to one object: follows references, merges `allOf`, combines alternatives.
pub(super) fn to_object_schema(
    schema: &Value,
    context: &mut ProjectionContext<'_>,
) -> ProjectionResult<Map<String, Value>> {
    // Bring references and `allOf` of the top level into one set of keywords.
    let keywords = resolve_reference(schema.as_object().cloned().unwrap_or_default(), "", context)?;
    let mut keywords = merge_all_of(keywords, "", context, 0)?;
    for choice in ["anyOf", "oneOf"] {
        let Some(Value::Array(alternatives)) = keywords.shift_remove(choice) else { continue };
        let path = format!("/{choice}");
        let mut merged = Vec::new();
        for (index, alternative) in alternatives.into_iter().enumerate() {
            let alternative_path = format!("{path}/{index}");
            // `true` and `false` describe no arguments.
            let Value::Object(alternative) = alternative else { continue };
            merged.push(merge_all_of(
                resolve_reference(alternative, &alternative_path, context)?,
                &alternative_path,
                context,
                0,
            )?);
        }
        // Alternatives without properties only express which arguments go together.
        if merged.iter().any(|schema| schema.contains_key("properties")) {
            context.record_loss(&path, "alternatives are not supported at the top level; their arguments are merged");
            merge_alternatives(&mut keywords, &merged, &path, context)?;
        } else {
            context.record_loss(&path, "conditions between arguments are not supported, dropped");
        }
    }
    // Every provider requires an object here, even for a tool without arguments.
    keywords.insert("type".to_owned(), json!("object"));
    keywords.entry("properties").or_insert_with(|| json!({}));
    Ok(keywords)
}

/// Adds the arguments of all alternatives; required are those that every alternative requires.
fn merge_alternatives(
    keywords: &mut Map<String, Value>,
    alternatives: &[Map<String, Value>],
    path: &str,
    context: &mut ProjectionContext<'_>,
) -> ProjectionResult<()> {
    // Collect the schemas per name first instead of nesting a choice per alternative: there may be thousands.
    let mut arguments: Map<String, Value> = Map::new();
    let mut seen: HashSet<(&str, &Value)> = HashSet::new();
    for (name, schema) in alternatives
        .iter()
        .filter_map(|alternative| alternative.get("properties"))
        .filter_map(Value::as_object)
        .flatten()
    {
        let schemas = arguments.entry(name).or_insert_with(|| json!([]));
        if let Value::Array(schemas) = schemas
            && seen.insert((name, schema))
        {
            schemas.push(schema.clone());
        }
    }
    // A single schema stays as it is, several become alternatives of the argument.
    for schemas in arguments.values_mut() {
        let only = schemas.as_array_mut().filter(|schemas| schemas.len() == 1).and_then(Vec::pop);
        *schemas = only.unwrap_or_else(|| json!({ "anyOf": schemas.take() }));
    }
    let required: Vec<HashSet<&str>> = alternatives.iter().map(required_names).collect();
    let required_by_all: Vec<&String> =
        arguments.keys().filter(|name| required.iter().all(|required| required.contains(name.as_str()))).collect();
    let required_by_all = json!(required_by_all);
    let merged =
        Map::from_iter([("properties".to_owned(), Value::Object(arguments)), ("required".to_owned(), required_by_all)]);
    merge_keywords(keywords, &merged, path, context)
}
