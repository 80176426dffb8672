//! Assembles the schema of one operation from shared definitions: inlines them where that is shorter and keeps the
//! rest, including cycles, as `$defs`.
//!
//! Two sizes are produced: the listed schema, which agents read with every tool, and the full one for `describe` and
//! validation. Most schemas are short enough that both are the same.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::rc::Rc;

use serde_json::{Map, Value, json};
use toolcrib_schema::referenced_definition;

use super::{BYTES_PER_WORK, DefinitionForm, Direction, SchemaTranslator, TranslatedSchema, prune};

/// Maximum size of a schema in a list of tools. Above it, the listed schema is pruned.
const MAX_LISTED_BYTES: usize = 8 * 1024;
/// Maximum size of a full schema, returned on demand. Below the 256 KiB that a manifest accepts.
const MAX_FULL_BYTES: usize = 192 * 1024;
/// Maximum number of definitions of a full schema.
const MAX_DEFINITIONS: usize = 4_000;
/// Maximum nesting depth of the JSON text after inlining. A manifest accepts 64 levels, and a tool has two around its
/// schema.
const MAX_INLINE_DEPTH: usize = 56;

/// A schema without external references.
#[derive(Debug)]
pub(in super::super) struct AssembledSchema {
    /// For lists of tools; pruned if necessary.
    pub(in super::super) listed: Value,
    /// The full schema, if the listed one was pruned.
    pub(in super::super) full: Option<Value>,
}

/// Translated definitions by name.
pub(super) type Definitions = HashMap<Rc<str>, Rc<TranslatedSchema>>;

impl SchemaTranslator<'_> {
    /// Assembles a schema for agents, with a pruned version for lists if it is long.
    pub(in super::super) fn assemble(&mut self, root: &TranslatedSchema, direction: Direction) -> AssembledSchema {
        match self.assemble_whole(root, direction, MAX_FULL_BYTES) {
            Some(full) if fits(&full, MAX_LISTED_BYTES) => AssembledSchema { listed: full, full: None },
            Some(full) => AssembledSchema { listed: self.prune(root, direction, MAX_LISTED_BYTES), full: Some(full) },
            // Too large even as a full schema: prune both, to different sizes.
            None => {
                let full = self.prune(root, direction, MAX_FULL_BYTES);
                AssembledSchema { listed: self.prune(root, direction, MAX_LISTED_BYTES), full: Some(full) }
            }
        }
    }

    /// Assembles a schema that is at most as long as one in a list.
    pub(in super::super) fn assemble_short(&mut self, root: &TranslatedSchema, direction: Direction) -> Value {
        self.assemble_whole(root, direction, MAX_LISTED_BYTES)
            .unwrap_or_else(|| self.prune(root, direction, MAX_LISTED_BYTES))
    }

    /// Assembles a schema of at most `limit` bytes. If it is longer with the variants that only subtypes define, they
    /// are left out.
    fn assemble_whole(&mut self, root: &TranslatedSchema, direction: Direction, limit: usize) -> Option<Value> {
        [DefinitionForm::Value, DefinitionForm::Base].into_iter().find_map(|form| {
            // Sizes are compared before anything is inlined, since inlining copies.
            let definitions = self.collect_definitions(root, direction, form, limit)?;
            Some(inline_definitions(root, &definitions)).filter(|whole| fits(whole, limit))
        })
    }

    /// Prunes a schema to `limit` bytes.
    fn prune(&mut self, root: &TranslatedSchema, direction: Direction, limit: usize) -> Value {
        if self.is_exhausted() {
            return json!({ "type": "object" });
        }
        let (value, written) = prune::prune(&root.value, limit, &mut |name| {
            if self.charge_schema() { self.definition(&name.into(), direction, DefinitionForm::Value) } else { None }
        });
        self.spend((written / BYTES_PER_WORK) as u64);
        value
    }

    /// Returns all definitions that a schema needs, or `None` if they exceed `limit` together.
    fn collect_definitions(
        &mut self,
        root: &TranslatedSchema,
        direction: Direction,
        form: DefinitionForm,
        limit: usize,
    ) -> Option<Definitions> {
        let mut definitions = Definitions::new();
        let mut pending = root.references.clone();
        let mut size = root.size;
        // Reachable definitions are written for every operation, so each time is charged.
        self.spend((root.size / BYTES_PER_WORK) as u64);
        while let Some(name) = pending.pop() {
            if definitions.contains_key(&name) {
                continue;
            }
            let definition = self.definition(&name, direction, form)?;
            size += definition.size;
            self.spend(1 + (definition.size.min(limit) / BYTES_PER_WORK) as u64);
            if size > limit || definitions.len() >= MAX_DEFINITIONS {
                return None;
            }
            pending.extend(definition.references.iter().cloned());
            definitions.insert(name, definition);
        }
        Some(definitions)
    }
}

/// Returns whether the JSON text is within the limit.
fn fits(value: &Value, limit: usize) -> bool {
    value.to_string().len() <= limit
}

/// Inlines definitions that are used once or are short, and adds the others as `$defs`.
fn inline_definitions(root: &TranslatedSchema, definitions: &Definitions) -> Value {
    // Count uses first: a definition that is used once is inlined, whatever its size.
    let mut uses: HashMap<&str, usize> = HashMap::new();
    let references = definitions.values().flat_map(|definition| &definition.references).chain(&root.references);
    for name in references {
        *uses.entry(name).or_default() += 1;
    }
    let should_inline = |name: &str| {
        let Some(definition) = definitions.get(name) else { return false };
        let count = uses.get(name).copied().unwrap_or_default();
        // A definition with a single use is not in a cycle, since its user was reached without it.
        // Bytes of `{"$ref":"#/$defs/…"}`.
        let reference = name.len() + 20;
        count == 1
            || (definition.references.is_empty() && count * definition.size <= count * reference + definition.size)
    };
    let mut inliner = Inliner { definitions, should_inline: &should_inline, kept_references: BTreeSet::new() };
    let mut value = inliner.inline_value(&root.value, 0);
    // Definitions that are not inlined, and those that would be nested too deep.
    inliner.kept_references.extend(definitions.keys().filter(|name| !should_inline(name)).cloned());
    let mut kept = BTreeMap::new();
    while let Some(name) = inliner.kept_references.pop_first() {
        if let (false, Some(definition)) = (kept.contains_key(&*name), definitions.get(&name)) {
            // Definitions are nested two levels deep, in `$defs`.
            let value = inliner.inline_value(&definition.value, 2);
            kept.insert(name.to_string(), value);
        }
    }
    if let (Value::Object(fields), false) = (&mut value, kept.is_empty()) {
        fields.insert("$defs".into(), kept.into_iter().collect::<Map<_, _>>().into());
    }
    value
}

/// Replaces references by definitions.
struct Inliner<'d, F> {
    definitions: &'d Definitions,
    should_inline: &'d F,
    /// Definitions that a reference still points to.
    kept_references: BTreeSet<Rc<str>>,
}

impl<F: Fn(&str) -> bool> Inliner<'_, F> {
    /// Copies a value and inlines the references in it.
    fn inline_value(&mut self, value: &Value, depth: usize) -> Value {
        match value {
            Value::Object(fields) => {
                let name = referenced_definition(fields);
                if let Some((name, definition)) = name.and_then(|name| self.definitions.get_key_value(name))
                    && (self.should_inline)(name)
                {
                    if depth + definition.depth <= MAX_INLINE_DEPTH {
                        let definition = self.inline_value(&definition.value, depth);
                        return self.merge_siblings(definition, fields, depth);
                    }
                    self.kept_references.insert(name.clone());
                }
                fields.iter().map(|(key, value)| (key.clone(), self.inline_value(value, depth + 1))).collect()
            }
            Value::Array(items) => items.iter().map(|item| self.inline_value(item, depth + 1)).collect(),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.clone(),
        }
    }

    /// Merges a definition with the keywords beside the reference to it.
    fn merge_siblings(&mut self, definition: Value, siblings: &Map<String, Value>, depth: usize) -> Value {
        let siblings = siblings.iter().filter(|(key, _)| *key != "$ref");
        let siblings: Map<String, Value> =
            siblings.map(|(key, value)| (key.clone(), self.inline_value(value, depth + 1))).collect();
        // Keywords beside the reference override annotations; a conflicting constraint needs `allOf`.
        let is_annotation = |key: &String| matches!(key.as_str(), "description" | "default" | "deprecated");
        let is_compatible = |key: &String| is_annotation(key) || definition.get(key.as_str()).is_none();
        if definition.is_object() && siblings.keys().all(is_compatible) {
            let mut merged = definition.as_object().cloned().unwrap_or_default();
            merged.extend(siblings);
            return merged.into();
        }
        let mut merged = Map::from_iter([("allOf".to_owned(), Value::from(vec![definition]))]);
        merged.extend(siblings);
        merged.into()
    }
}
