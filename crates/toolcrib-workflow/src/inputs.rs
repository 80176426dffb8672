//! Makes the schema of a workflow's inputs self-contained: schemas that it refers to elsewhere in the document are
//! copied once to `$defs`, so that recursion stays recursion and the size stays bounded.
//!
//! ```text
//! {"properties": {"p": {"$ref": "#/components/inputs/page"}}}
//! becomes
//! {"properties": {"p": {"$ref": "#/$defs/page"}}, "$defs": {"page": {…}}}
//! ```

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use toolcrib_core::text::sanitize_truncated;
use toolcrib_schema::{LocalReference, definition_reference, reference_text};

/// Resolves the `inputs` of a workflow to a schema of about `max_bytes` at most.
pub(super) fn resolve_inputs(document: &Value, inputs: &Value, max_bytes: usize) -> Result<Value, String> {
    // A schema that is nothing but a reference is replaced by its target, so that the tool shows the properties at the
    // top. A chain that is too long or a cycle stays a reference, which the collector below moves to `$defs`.
    let mut root = inputs;
    for _ in 0..MAX_REFERENCE_HOPS {
        let Some(reference) = root_reference(root) else { break };
        root = resolve_reference(document, inputs, &reference)?.0;
    }
    let mut collector = DefinitionCollector {
        document,
        root,
        definition_names: BTreeMap::new(),
        pending: Vec::new(),
        bytes_left: max_bytes,
    };
    // Copying a schema may queue further definitions.
    let mut schema = collector.copy_schema(root, 0)?;
    let mut definitions = Map::new();
    while let Some((name, value)) = collector.pending.pop() {
        let definition = collector.copy_schema(value, 0)?;
        definitions.insert(name, definition);
    }
    if let (Value::Object(schema), false) = (&mut schema, definitions.is_empty()) {
        schema.insert("$defs".into(), Value::Object(definitions));
    }
    Ok(schema)
}

/// Maximum length of a chain of references at the top level. A longer chain is kept as a reference.
const MAX_REFERENCE_HOPS: usize = 8;
/// Maximum nesting of the schema. Bounds the recursion of the copy; a workflow with a deeper schema is skipped.
const MAX_INPUTS_DEPTH: usize = 48;
/// Maximum number of definitions. Taken names are searched linearly; a workflow with more is skipped.
const MAX_INPUT_DEFINITIONS: usize = 500;

/// Copies schemas and collects the definitions that they refer to.
struct DefinitionCollector<'a> {
    document: &'a Value,
    /// Schema of the inputs, which references may point into too.
    root: &'a Value,
    /// Name in `$defs` by reference.
    definition_names: BTreeMap<String, String>,
    /// Definitions that are not copied yet.
    pending: Vec<(String, &'a Value)>,
    /// Remaining size. References may point to every level of the same tree, which is then copied for each.
    bytes_left: usize,
}

impl<'a> DefinitionCollector<'a> {
    /// Copies a schema, rewriting its references to `$defs`.
    fn copy_schema(&mut self, value: &'a Value, depth: usize) -> Result<Value, String> {
        if depth > MAX_INPUTS_DEPTH {
            return Err(format!("the schema of the inputs is nested deeper than {MAX_INPUTS_DEPTH} levels"));
        }
        // An estimate: a few bytes for each node, and the texts.
        let text_len = value.as_str().map_or(0, str::len);
        let bytes_left = self
            .bytes_left
            .checked_sub(8 + text_len)
            .ok_or("the schema of the inputs is too large with the schemas it refers to")?;
        self.bytes_left = bytes_left;
        match value {
            Value::Object(object) => {
                let mut copy = Map::new();
                for (key, value) in object {
                    self.bytes_left = self.bytes_left.saturating_sub(key.len());
                    let copied = match (key.as_str(), value) {
                        // Definitions of the schema are copied when a reference needs them, under the name that is
                        // assigned then.
                        ("$defs" | "definitions", _) if depth == 0 => continue,
                        ("$ref", Value::String(reference)) => {
                            json!(definition_reference(&self.definition_name(reference)?))
                        }
                        (_, value) => self.copy_schema(value, depth + 1)?,
                    };
                    copy.insert(key.clone(), copied);
                }
                Ok(Value::Object(copy))
            }
            Value::Array(items) => items.iter().map(|item| self.copy_schema(item, depth + 1)).collect(),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Ok(value.clone()),
        }
    }

    /// Returns the name in `$defs` for the target of a reference, queueing the target if it is new.
    fn definition_name(&mut self, reference: &str) -> Result<String, String> {
        if let Some(name) = self.definition_names.get(reference) {
            return Ok(name.clone());
        }
        if self.definition_names.len() >= MAX_INPUT_DEFINITIONS {
            return Err(format!("the inputs refer to more than {MAX_INPUT_DEFINITIONS} schemas"));
        }
        // Name the definition like its target, with a number if another target has the same name.
        let (value, last) = resolve_reference(self.document, self.root, reference)?;
        let to_legal =
            |character: char| if character.is_ascii_alphanumeric() || character == '_' { character } else { '_' };
        let sanitized: String = last.chars().take(64).map(to_legal).collect();
        let is_taken = self.definition_names.values().any(|name| *name == sanitized);
        let name = if is_taken { format!("{sanitized}_{}", self.definition_names.len()) } else { sanitized };
        self.definition_names.insert(reference.to_owned(), name.clone());
        self.pending.push((name.clone(), value));
        Ok(name)
    }
}

/// Reference that the whole schema consists of: `$ref`, or Arazzo's `reference`, converted to a JSON pointer.
fn root_reference(schema: &Value) -> Option<String> {
    if let Some(reference) = reference_text(schema) {
        // Beside other keywords, a reference is only a part of the schema.
        return (schema.as_object()?.len() == 1).then(|| reference.to_owned());
    }
    let name = schema.get("reference")?.as_str()?.strip_prefix("$components.inputs.")?;
    Some(format!("#/components/inputs/{name}"))
}

/// Resolves a reference in the document or in the schema itself. Returns the target and the last name of the pointer.
fn resolve_reference<'a>(document: &'a Value, root: &'a Value, reference: &str) -> Result<(&'a Value, String), String> {
    let unresolved = || format!("`{}` cannot be resolved", sanitize_truncated(reference, 100));
    let Some(fragment) = reference.strip_prefix('#') else {
        return Err(format!(
            "`{}` refers to another document, which is not supported",
            sanitize_truncated(reference, 100)
        ));
    };
    let pointer = match LocalReference::parse_fragment(fragment) {
        Some(LocalReference::Pointer(pointer)) => pointer,
        // Anchors are unknown targets, like all other text without a slash.
        Some(LocalReference::Anchor(_)) | None => return Err(unresolved()),
    };
    // `#` means the schema itself. Other pointers are tried on the document first, where `#/components/…` is.
    let value = document.pointer(&pointer).filter(|_| !pointer.is_empty()).or_else(|| root.pointer(&pointer));
    let last_name = pointer.rsplit('/').next().filter(|name| !name.is_empty()).unwrap_or("root").to_owned();
    value.map(|value| (value, last_name)).ok_or_else(unresolved)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schemas_become_self_contained_and_recursion_is_kept() {
        let document = json!({"components": {"inputs": {
            "page": {"type": "object", "properties": {"size": {"type": "integer"}}},
            "tree": {"type": "object", "properties": {"left": {"$ref": "#/components/inputs/tree"}}},
            "loop": {"$ref": "#/components/inputs/loop"},
        }}});
        let page = json!({"type": "object", "properties": {"size": {"type": "integer"}}});
        let left = json!({"type": "object", "properties": {"left": {"$ref": "#/$defs/tree"}}});
        for (inputs, expected) in [
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
                json!({"properties": {"a": {"$ref": "#/$defs/x%20y"}}, "$defs": {"x y": {"type": "string"}}}),
                Ok(json!({"properties": {"a": {"$ref": "#/$defs/x_y"}}, "$defs": {"x_y": {"type": "string"}}})),
            ),
            (
                json!({"$ref": "#/components/inputs/loop"}),
                Ok(json!({"$ref": "#/$defs/loop", "$defs": {"loop": {"$ref": "#/$defs/loop"}}})),
            ),
            (json!({"$ref": "#/components/inputs/nope"}), Err("`#/components/inputs/nope` cannot be resolved")),
            (
                json!({"$ref": "other.json#/x"}),
                Err("`other.json#/x` refers to another document, which is not supported"),
            ),
            (
                (0..60).fold(json!({}), |inner, _| json!({"items": inner})),
                Err("the schema of the inputs is nested deeper than 48 levels"),
            ),
        ] {
            assert_eq!(resolve_inputs(&document, &inputs, usize::MAX), expected.map_err(str::to_owned), "{inputs}");
        }
    }
}
