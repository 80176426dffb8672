//! The top of a schema. Every provider wants a plain object there, whatever the source wrote.

use std::collections::HashSet;

use serde_json::{Map, Value, json};

use super::merge::{merge_all_of, merge_keywords, resolve_reference};
use super::projection::{ProjectionContext, ProjectionResult, required_names};

/// The arguments as one object: references followed, parts merged, alternatives laid together.
pub(super) fn to_object_schema(
    schema: &Value,
    edits: &mut ProjectionContext<'_>,
) -> ProjectionResult<Map<String, Value>> {
    let keywords = resolve_reference(schema.as_object().cloned().unwrap_or_default(), "", edits)?;
    let mut keywords = merge_all_of(keywords, "", edits, 0)?;
    for choice in ["anyOf", "oneOf"] {
        let Some(Value::Array(alternatives)) = keywords.shift_remove(choice) else { continue };
        let path = format!("/{choice}");
        let mut forms = Vec::new();
        for (index, alternative) in alternatives.into_iter().enumerate() {
            let at = format!("{path}/{index}");
            let Value::Object(alternative) = alternative else { continue };
            forms.push(merge_all_of(resolve_reference(alternative, &at, edits)?, &at, edits, 0)?);
        }
        if forms.iter().any(|form| form.contains_key("properties")) {
            edits.record_loss(&path, "alternatives are not supported here; their arguments stand side by side");
            merge_alternatives(&mut keywords, &forms, &path, edits)?;
        } else {
            edits.record_loss(&path, "conditions on which arguments come together are not supported, dropped");
        }
    }
    keywords.insert("type".to_owned(), json!("object"));
    keywords.entry("properties").or_insert_with(|| json!({}));
    Ok(keywords)
}

/// The arguments of all forms; required is what every form requires.
fn merge_alternatives(
    keywords: &mut Map<String, Value>,
    forms: &[Map<String, Value>],
    path: &str,
    edits: &mut ProjectionContext<'_>,
) -> ProjectionResult<()> {
    // First a list for each name, not a choice inside of a choice: there may be thousands of forms.
    let mut arguments: Map<String, Value> = Map::new();
    let mut met: HashSet<(&str, &Value)> = HashSet::new();
    for (name, schema) in forms.iter().filter_map(|form| form.get("properties")).filter_map(Value::as_object).flatten()
    {
        let known = arguments.entry(name).or_insert_with(|| json!([]));
        if let Value::Array(known) = known
            && met.insert((name, schema))
        {
            known.push(schema.clone());
        }
    }
    for several in arguments.values_mut() {
        let only = several.as_array_mut().filter(|schemas| schemas.len() == 1).and_then(Vec::pop);
        *several = only.unwrap_or_else(|| json!({ "anyOf": several.take() }));
    }
    let required: Vec<HashSet<&str>> = forms.iter().map(required_names).collect();
    let always: Vec<&String> =
        arguments.keys().filter(|name| required.iter().all(|required| required.contains(name.as_str()))).collect();
    let always = json!(always);
    let laid = Map::from_iter([("properties".to_owned(), Value::Object(arguments)), ("required".to_owned(), always)]);
    merge_keywords(keywords, &laid, path, edits)
}
