//! The schema of a workflow's inputs, made to stand alone: what it refers to elsewhere in the document is kept once,
//! under `$defs`, so that cycles stay cycles and nothing is copied without bound.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::text::sanitize_truncated;

/// `given` is what a workflow has as `inputs`; about `room` bytes may come of it.
pub(super) fn resolve_inputs(document: &Value, given: &Value, room: usize) -> Result<Value, String> {
    let mut top = given;
    for _ in 0..MAX_REFERENCE_HOPS {
        let Some(reference) = root_reference(top) else { break };
        top = resolve_reference(document, given, &reference)?.0;
    }
    let mut gathering = DefinitionCollector {
        document,
        root: top,
        definition_names: BTreeMap::new(),
        pending: Vec::new(),
        bytes_left: room,
    };
    let mut schema = gathering.copy_schema(top, 0)?;
    let mut definitions = Map::new();
    while let Some((name, value)) = gathering.pending.pop() {
        let definition = gathering.copy_schema(value, 0)?;
        definitions.insert(name, definition);
    }
    if let (Value::Object(schema), false) = (&mut schema, definitions.is_empty()) {
        schema.insert("$defs".into(), Value::Object(definitions));
    }
    Ok(schema)
}

const MAX_REFERENCE_HOPS: usize = 8;
const MAX_INPUTS_DEPTH: usize = 48;
const MAX_INPUT_DEFINITIONS: usize = 500;

struct DefinitionCollector<'a> {
    document: &'a Value,
    root: &'a Value,
    /// By pointer.
    definition_names: BTreeMap<String, String>,
    pending: Vec<(String, &'a Value)>,
    /// References may lead to every level of the same tree, which is then copied for each.
    bytes_left: usize,
}

impl<'a> DefinitionCollector<'a> {
    fn copy_schema(&mut self, value: &'a Value, depth: usize) -> Result<Value, String> {
        if depth > MAX_INPUTS_DEPTH {
            return Err(format!("the schema of the inputs is nested deeper than {MAX_INPUTS_DEPTH} levels"));
        }
        let text = value.as_str().map_or(0, str::len);
        let room = self
            .bytes_left
            .checked_sub(8 + text)
            .ok_or("the schema of the inputs is too large with what it refers to")?;
        self.bytes_left = room;
        match value {
            Value::Object(object) => {
                let mut copy = Map::new();
                for (key, value) in object {
                    self.bytes_left = self.bytes_left.saturating_sub(key.len());
                    let walked = match (key.as_str(), value) {
                        ("$defs" | "definitions", _) if depth == 0 => continue,
                        ("$ref", Value::String(reference)) => {
                            json!(format!("#/$defs/{}", self.definition_name(reference)?))
                        }
                        (_, value) => self.copy_schema(value, depth + 1)?,
                    };
                    copy.insert(key.clone(), walked);
                }
                Ok(Value::Object(copy))
            }
            Value::Array(items) => items.iter().map(|item| self.copy_schema(item, depth + 1)).collect(),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Ok(value.clone()),
        }
    }

    /// The name in `$defs` of what a reference leads to.
    fn definition_name(&mut self, reference: &str) -> Result<String, String> {
        if let Some(name) = self.definition_names.get(reference) {
            return Ok(name.clone());
        }
        if self.definition_names.len() >= MAX_INPUT_DEFINITIONS {
            return Err(format!("the inputs refer to more than {MAX_INPUT_DEFINITIONS} schemas"));
        }
        let (value, last) = resolve_reference(self.document, self.root, reference)?;
        let legal =
            |character: char| if character.is_ascii_alphanumeric() || character == '_' { character } else { '_' };
        let plain: String = last.chars().take(64).map(legal).collect();
        let taken = self.definition_names.values().any(|name| *name == plain);
        let name = if taken { format!("{plain}_{}", self.definition_names.len()) } else { plain };
        self.definition_names.insert(reference.to_owned(), name.clone());
        self.pending.push((name.clone(), value));
        Ok(name)
    }
}

/// `$ref`, or the `reference` that documents also write for inputs, as a pointer.
fn root_reference(schema: &Value) -> Option<String> {
    if let Some(reference) = schema.get("$ref").and_then(Value::as_str) {
        // Beside other keywords it is one of them.
        return (schema.as_object()?.len() == 1).then(|| reference.to_owned());
    }
    let name = schema.get("reference")?.as_str()?.strip_prefix("$components.inputs.")?;
    Some(format!("#/components/inputs/{name}"))
}

/// What a reference leads to, in the document or in the schema itself, and its last name.
fn resolve_reference<'a>(document: &'a Value, root: &'a Value, reference: &str) -> Result<(&'a Value, String), String> {
    let Some(pointer) = reference.strip_prefix('#') else {
        return Err(format!(
            "`{}` leads to another document, which is not followed",
            sanitize_truncated(reference, 100)
        ));
    };
    let found = document.pointer(pointer).filter(|_| !pointer.is_empty()).or_else(|| root.pointer(pointer));
    let last = pointer.rsplit('/').next().filter(|last| !last.is_empty()).unwrap_or("root").to_owned();
    found.map(|value| (value, last)).ok_or_else(|| format!("`{}` leads nowhere", sanitize_truncated(reference, 100)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schema_stands_alone_and_cycles_stay_cycles() {
        let document = json!({"components": {"inputs": {
            "page": {"type": "object", "properties": {"size": {"type": "integer"}}},
            "tree": {"type": "object", "properties": {"left": {"$ref": "#/components/inputs/tree"}}},
            "loop": {"$ref": "#/components/inputs/loop"},
        }}});
        let page = json!({"type": "object", "properties": {"size": {"type": "integer"}}});
        let left = json!({"type": "object", "properties": {"left": {"$ref": "#/$defs/tree"}}});
        for (given, expected) in [
            (json!({"$ref": "#/components/inputs/page"}), Ok(page.clone())),
            (json!({"reference": "$components.inputs.page"}), Ok(page.clone())),
            (
                json!({"type": "object", "properties": {"p": {"$ref": "#/components/inputs/page"}}}),
                Ok(json!({"type": "object", "properties": {"p": {"$ref": "#/$defs/page"}}, "$defs": {"page": page}})),
            ),
            (
                json!({"$ref": "#/components/inputs/tree"}),
                Ok(
                    json!({"type": "object", "properties": {"left": {"$ref": "#/$defs/tree"}}, "$defs": {"tree": left}}),
                ),
            ),
            (
                json!({"properties": {"a": {"$ref": "#/$defs/x y"}}, "$defs": {"x y": {"type": "string"}, "other": {}}}),
                Ok(json!({"properties": {"a": {"$ref": "#/$defs/x_y"}}, "$defs": {"x_y": {"type": "string"}}})),
            ),
            (
                json!({"$ref": "#/components/inputs/loop"}),
                Ok(json!({"$ref": "#/$defs/loop", "$defs": {"loop": {"$ref": "#/$defs/loop"}}})),
            ),
            (json!({"$ref": "#/components/inputs/nope"}), Err("`#/components/inputs/nope` leads nowhere")),
            (json!({"$ref": "other.json#/x"}), Err("`other.json#/x` leads to another document, which is not followed")),
            (
                (0..60).fold(json!({}), |inner, _| json!({"items": inner})),
                Err("the schema of the inputs is nested deeper than 48 levels"),
            ),
        ] {
            assert_eq!(resolve_inputs(&document, &given, usize::MAX), expected.map_err(str::to_owned), "{given}");
        }
    }
}
