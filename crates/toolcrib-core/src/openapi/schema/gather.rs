//! What one operation needs of the shared definitions: those it reaches, inlined where that is shorter, and the rest as
//! `$defs`, cycles included.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::rc::Rc;

use serde_json::{Map, Value, json};

use super::{BYTES_PER_WORK, Direction, SchemaTranslator, TranslatedSchema, prune};

/// How large a schema may be when it is listed.
const MAX_LISTED_BYTES: usize = 8 * 1024;
/// And when it is asked for.
const MAX_FULL_BYTES: usize = 192 * 1024;
const MAX_DEFINITIONS: usize = 4_000;
/// As text. A manifest takes 64 levels, and a tool has two around its schema.
const MAX_INLINE_DEPTH: usize = 56;

/// A schema that stands for itself.
#[derive(Debug)]
pub(in super::super) struct AssembledSchema {
    pub(in super::super) listed: Value,
    /// Where the listed one was pruned: with everything that it says.
    pub(in super::super) full: Option<Value>,
}

pub(super) type Definitions = HashMap<Rc<str>, Rc<TranslatedSchema>>;

impl SchemaTranslator<'_> {
    /// For agents: short enough to be listed.
    pub(in super::super) fn assemble(&mut self, root: &TranslatedSchema, direction: Direction) -> AssembledSchema {
        let reached = self.collect_definitions(root, direction, MAX_FULL_BYTES);
        let whole = reached
            .as_ref()
            .map(|definitions| inline_definitions(root, definitions))
            .filter(|whole| fits(whole, MAX_FULL_BYTES));
        match whole {
            Some(whole) if fits(&whole, MAX_LISTED_BYTES) => AssembledSchema { listed: whole, full: None },
            Some(whole) => AssembledSchema { listed: self.prune(root, direction, MAX_LISTED_BYTES), full: Some(whole) },
            None => {
                let whole = self.prune(root, direction, MAX_FULL_BYTES);
                AssembledSchema { listed: self.prune(root, direction, MAX_LISTED_BYTES), full: Some(whole) }
            }
        }
    }

    /// For whoever asks: as much as is listed.
    pub(in super::super) fn assemble_short(&mut self, root: &TranslatedSchema, direction: Direction) -> Value {
        let reached = self.collect_definitions(root, direction, MAX_LISTED_BYTES);
        let whole = reached.as_ref().map(|definitions| inline_definitions(root, definitions));
        whole
            .filter(|whole| fits(whole, MAX_LISTED_BYTES))
            .unwrap_or_else(|| self.prune(root, direction, MAX_LISTED_BYTES))
    }

    fn prune(&mut self, root: &TranslatedSchema, direction: Direction, limit: usize) -> Value {
        if self.is_exhausted() {
            return json!({ "type": "object" });
        }
        let (value, written) = prune::prune(&root.value, limit, &mut |name| {
            let name = self.targets.get_key_value(name)?.0.clone();
            if self.charge_schema() { self.definition(&name, direction) } else { None }
        });
        self.spend((written / BYTES_PER_WORK) as u64);
        value
    }

    /// Every definition that is reached from here; nothing when they are certainly larger than `limit` together.
    fn collect_definitions(
        &mut self,
        root: &TranslatedSchema,
        direction: Direction,
        limit: usize,
    ) -> Option<Definitions> {
        let mut reached = Definitions::new();
        let mut waiting = root.references.clone();
        let mut size = root.size;
        // What is reached is also written, each time.
        self.spend((root.size / BYTES_PER_WORK) as u64);
        while let Some(name) = waiting.pop() {
            if reached.contains_key(&name) {
                continue;
            }
            let definition = self.definition(&name, direction)?;
            size += definition.size;
            self.spend(1 + (definition.size.min(limit) / BYTES_PER_WORK) as u64);
            if size > limit || reached.len() >= MAX_DEFINITIONS {
                return None;
            }
            waiting.extend(definition.references.iter().cloned());
            reached.insert(name, definition);
        }
        Some(reached)
    }
}

fn fits(value: &Value, limit: usize) -> bool {
    value.to_string().len() <= limit
}

fn inline_definitions(root: &TranslatedSchema, definitions: &Definitions) -> Value {
    let mut uses: HashMap<&str, usize> = HashMap::new();
    let all = definitions.values().flat_map(|definition| &definition.references).chain(&root.references);
    for name in all {
        *uses.entry(name).or_default() += 1;
    }
    let inlined = |name: &str| {
        let Some(definition) = definitions.get(name) else { return false };
        let times = uses.get(name).copied().unwrap_or_default();
        // One that is named once is in no cycle: what named it was reached without it.
        let reference = name.len() + 20;
        times == 1
            || (definition.references.is_empty() && times * definition.size <= times * reference + definition.size)
    };
    let mut inliner = Inliner { definitions, should_inline: &inlined, kept_references: BTreeSet::new() };
    let mut value = inliner.inline_value(&root.value, 0);
    // Definitions that stay, and those that are left because they would stand too deep.
    inliner.kept_references.extend(definitions.keys().filter(|name| !inlined(name)).cloned());
    let mut shared = BTreeMap::new();
    while let Some(name) = inliner.kept_references.pop_first() {
        if let (false, Some(definition)) = (shared.contains_key(&*name), definitions.get(&name)) {
            let value = inliner.inline_value(&definition.value, 2);
            shared.insert(name.to_string(), value);
        }
    }
    if let (Value::Object(fields), false) = (&mut value, shared.is_empty()) {
        fields.insert("$defs".into(), shared.into_iter().collect::<Map<_, _>>().into());
    }
    value
}

struct Inliner<'d, F> {
    definitions: &'d Definitions,
    should_inline: &'d F,
    /// What a reference was left to.
    kept_references: BTreeSet<Rc<str>>,
}

impl<F: Fn(&str) -> bool> Inliner<'_, F> {
    fn inline_value(&mut self, value: &Value, depth: usize) -> Value {
        match value {
            Value::Object(fields) => {
                let named = fields.get("$ref").and_then(Value::as_str).and_then(|text| text.strip_prefix("#/$defs/"));
                if let Some((name, definition)) = named.and_then(|name| self.definitions.get_key_value(name))
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

    /// A definition with what stood beside the reference to it.
    fn merge_siblings(&mut self, definition: Value, beside: &Map<String, Value>, depth: usize) -> Value {
        let beside = beside.iter().filter(|(key, _)| *key != "$ref");
        let beside: Map<String, Value> =
            beside.map(|(key, value)| (key.clone(), self.inline_value(value, depth + 1))).collect();
        let decorates = |key: &String| matches!(key.as_str(), "description" | "default" | "deprecated");
        let free = |key: &String| decorates(key) || definition.get(key.as_str()).is_none();
        if definition.is_object() && beside.keys().all(free) {
            let mut both = definition.as_object().cloned().unwrap_or_default();
            both.extend(beside);
            return both.into();
        }
        let mut both = Map::from_iter([("allOf".to_owned(), Value::from(vec![definition]))]);
        both.extend(beside);
        both.into()
    }
}
