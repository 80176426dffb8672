//! References in Structured Outputs: each target is projected once under `$defs`, where it may be recursive. References
//! are kept instead of inlined, because Structured Outputs support them and the limits count the whole schema.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use toolcrib_schema::{definition_reference, reference_text};

use super::StrictProjector;
use crate::render::projection::{ProjectionResult, Unsupported, child_pointer};

/// Definition under `$defs`.
pub(super) struct StrictDefinition {
    name: String,
    /// `None` while it is being projected, so that recursive references find it.
    schema: Option<ProjectionResult<Value>>,
}

impl StrictProjector<'_> {
    /// Projects a reference, defining its target if necessary.
    pub(super) fn project_reference(&mut self, reference: &str, path: &str) -> ProjectionResult<Map<String, Value>> {
        // A definition that is only a reference to another would be a definition without a type.
        let reference = self.resolve_chain(reference, path)?;
        if reference != "#" {
            self.define(&reference, path)?;
        }
        let name = match self.definitions.get(&reference) {
            Some(definition) => definition_reference(&definition.name),
            None => reference,
        };
        Ok(Map::from_iter([("$ref".to_owned(), json!(name))]))
    }

    /// Follows a chain of references to the last one.
    fn resolve_chain(&self, reference: &str, path: &str) -> ProjectionResult<String> {
        const MAX_REFERENCE_HOPS: usize = 16;
        let mut reference = reference.to_owned();
        for _ in 0..MAX_REFERENCE_HOPS {
            let target = self.context.resolve(&reference);
            let Some(target) = target else {
                return Err(Unsupported::new(&child_pointer(path, "$ref"), "the reference cannot be resolved"));
            };
            match reference_text(target) {
                // `#` is the whole schema, which is written at the top and not under `$defs`.
                Some(next) if reference != "#" => next.clone_into(&mut reference),
                _ => return Ok(reference),
            }
        }
        Err(Unsupported::new(path, "it refers to itself"))
    }

    /// Projects the target of a reference to a definition, once.
    fn define(&mut self, reference: &str, path: &str) -> ProjectionResult<()> {
        match self.definitions.get(reference).map(|definition| &definition.schema) {
            // A target that failed once fails for each reference to it, without being projected again.
            Some(Some(Err(unsupported))) => return Err(unsupported.clone()),
            Some(Some(Ok(_)) | None) => return Ok(()),
            None => {}
        }
        let Some(target) = self.context.resolve(reference) else {
            return Err(Unsupported::new(&child_pointer(path, "$ref"), "the reference cannot be resolved"));
        };
        let name = self.free_name(reference);
        // Inserted before its content is projected: a recursive reference then finds the name and does not recurse.
        self.definitions.insert(reference.to_owned(), StrictDefinition { name, schema: None });
        let path = reference.trim_start_matches('#').to_owned();
        // Nesting is counted from the definition, since it may be used at several depths.
        let projected = self.project_nested(target, &path, 1);
        // The failure is stored as well, see above.
        let outcome = projected.as_ref().map(|_| ()).map_err(Clone::clone);
        if let Some(definition) = self.definitions.get_mut(reference) {
            definition.schema = Some(projected);
        }
        outcome
    }

    /// Returns an unused name derived from the reference. Remembers the next number per word, because thousands of
    /// references may end in the same word.
    fn free_name(&mut self, reference: &str) -> String {
        let last = reference.rsplit('/').next().unwrap_or_default();
        let to_legal = |character: char| {
            if character.is_ascii_alphanumeric() || "_-.".contains(character) { character } else { '_' }
        };
        let word: String = last.chars().map(to_legal).collect();
        let mut name = word.clone();
        while !self.taken_names.insert(name.clone()) {
            let number = self.next_numbers.entry(word.clone()).or_insert(2);
            name = format!("{word}_{number}");
            *number += 1;
        }
        name
    }

    /// Returns the definitions that a schema uses, directly or indirectly. Others are dropped.
    pub(super) fn referenced_definitions(&self, schema: &Value) -> ProjectionResult<Map<String, Value>> {
        let by_name: BTreeMap<String, &StrictDefinition> =
            self.definitions.values().map(|definition| (definition_reference(&definition.name), definition)).collect();
        let mut needed: BTreeMap<String, Value> = BTreeMap::new();
        let mut pending = collect_references(schema);
        while let Some(reference) = pending.pop() {
            let Some(definition) = by_name.get(&reference).filter(|definition| !needed.contains_key(&definition.name))
            else {
                continue;
            };
            match &definition.schema {
                Some(Ok(schema)) => {
                    pending.extend(collect_references(schema));
                    needed.insert(definition.name.clone(), schema.clone());
                }
                Some(Err(unsupported)) => return Err(unsupported.clone()),
                // Not expected: every definition is finished before the top level is.
                None => return Err(Unsupported::new("", "a definition is not complete")),
            }
        }
        Ok(needed.into_iter().collect())
    }
}

/// All references in a schema.
fn collect_references(schema: &Value) -> Vec<String> {
    match schema {
        Value::Object(keywords) => {
            let own = reference_text(schema).map(str::to_owned);
            keywords.values().flat_map(collect_references).chain(own).collect()
        }
        Value::Array(parts) => parts.iter().flat_map(collect_references).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Vec::new(),
    }
}
