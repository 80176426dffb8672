//! The top of a schema. Every provider wants a plain object there, whatever the source wrote.

use serde_json::{Map, Value, json};

use super::merge::{followed, merge, merged_parts};
use super::projection::{Edits, Fit, is_required};

/// The arguments as one object: references followed, parts merged, alternatives laid together.
pub(super) fn object(schema: &Value, edits: &mut Edits<'_>) -> Fit<Map<String, Value>> {
    let keywords = followed(schema.as_object().cloned().unwrap_or_default(), "", edits)?;
    let mut keywords = merged_parts(keywords, "", edits, 0)?;
    for choice in ["anyOf", "oneOf"] {
        let Some(Value::Array(alternatives)) = keywords.shift_remove(choice) else { continue };
        let path = format!("/{choice}");
        let mut forms = Vec::new();
        for (index, alternative) in alternatives.into_iter().enumerate() {
            let at = format!("{path}/{index}");
            let Value::Object(alternative) = alternative else { continue };
            forms.push(merged_parts(followed(alternative, &at, edits)?, &at, edits, 0)?);
        }
        if forms.iter().any(|form| form.contains_key("properties")) {
            edits.lose(&path, "alternatives are not supported here; their arguments stand side by side");
            lay_together(&mut keywords, &forms, &path, edits);
        } else {
            edits.lose(&path, "conditions on which arguments come together are not supported, dropped");
        }
    }
    keywords.insert("type".to_owned(), json!("object"));
    keywords.entry("properties").or_insert_with(|| json!({}));
    Ok(keywords)
}

/// The arguments of all forms; required is what every form requires.
fn lay_together(keywords: &mut Map<String, Value>, forms: &[Map<String, Value>], path: &str, edits: &mut Edits<'_>) {
    // First a list for each name, not a choice inside of a choice: there may be thousands of forms.
    let mut arguments: Map<String, Value> = Map::new();
    for (name, schema) in forms.iter().filter_map(|form| form.get("properties")).filter_map(Value::as_object).flatten()
    {
        let known = arguments.entry(name).or_insert_with(|| json!([]));
        if let Value::Array(known) = known
            && !known.contains(schema)
        {
            known.push(schema.clone());
        }
    }
    for several in arguments.values_mut() {
        let only = several.as_array_mut().filter(|schemas| schemas.len() == 1).and_then(Vec::pop);
        *several = only.unwrap_or_else(|| json!({ "anyOf": several.take() }));
    }
    let always: Vec<&String> =
        arguments.keys().filter(|name| forms.iter().all(|form| is_required(form, name))).collect();
    let laid = json!({ "properties": arguments, "required": always });
    if let Value::Object(laid) = laid {
        merge(keywords, &laid, path, edits);
    }
}
