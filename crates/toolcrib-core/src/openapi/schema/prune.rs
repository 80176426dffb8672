//! A schema too large to be listed, cut at depth: what is left out is marked, names of what is required stay, and the
//! whole can be asked for.

use std::rc::Rc;

use serde_json::{Map, Value, json};

use super::super::description;
use super::TranslatedSchema;
use crate::json;

/// What a list may have of one tool in any case.
const MAX_PRUNED_BYTES: usize = 128 * 1024;
const PRUNED_COMMENT: &str = "pruned";
const PRUNED_ROOT_COMMENT: &str = "pruned; ask for the full schema to see the rest";
const MAX_ENUM_VALUES: usize = 24;
/// Definitions that name nothing but one another.
const MAX_DEFINITION_NESTING: usize = 32;

/// How much is kept, from much to little: how deep, and how much of each text.
const PRUNE_LEVELS: [(usize, usize); 9] =
    [(8, 300), (6, 300), (5, 200), (4, 160), (3, 120), (2, 120), (2, 40), (2, 0), (1, 40)];

type DefinitionLookup<'l> = dyn FnMut(&str) -> Option<Rc<TranslatedSchema>> + 'l;

/// The schema in at most `limit` bytes, if anything less deep than all of it can be; and how many bytes were written
/// to find that out.
pub(super) fn prune(root: &Value, limit: usize, look_up: &mut DefinitionLookup<'_>) -> (Value, usize) {
    let mut written = 0;
    for (depth, text) in PRUNE_LEVELS {
        let mut pruner = Pruner {
            max_depth: depth,
            max_text_len: text,
            remaining_bytes: limit as isize - 64,
            is_pruned: false,
            find_definition: look_up,
            open_definitions: Vec::new(),
        };
        let value = pruner.prune_schema(root, 0).filter(|value| value.to_string().len() <= limit);
        let marked = pruner.is_pruned;
        written += limit.saturating_sub(pruner.remaining_bytes.max(0) as usize);
        if let Some(value) = value {
            return (add_root_comment(value, marked), written);
        }
    }
    // All arguments of the tool, if those are not too many either.
    let mut pruner = Pruner {
        max_depth: 1,
        max_text_len: 0,
        remaining_bytes: MAX_PRUNED_BYTES as isize,
        is_pruned: false,
        find_definition: look_up,
        open_definitions: Vec::new(),
    };
    let least = pruner.prune_schema(root, 0).unwrap_or_else(|| json!({ "type": "object" }));
    (add_root_comment(least, true), written + MAX_PRUNED_BYTES)
}

fn add_root_comment(mut value: Value, marked: bool) -> Value {
    if let (Value::Object(fields), true) = (&mut value, marked) {
        fields.insert("$comment".into(), PRUNED_ROOT_COMMENT.into());
    }
    value
}

struct Pruner<'p, 'l> {
    max_depth: usize,
    max_text_len: usize,
    /// Bytes that may still be written, roughly.
    remaining_bytes: isize,
    is_pruned: bool,
    find_definition: &'p mut DefinitionLookup<'l>,
    /// The definitions that are being written, the innermost last.
    open_definitions: Vec<String>,
}

/// What of one schema was left out.
#[derive(Default)]
struct Omissions {
    /// Properties, or members that may name some.
    properties: bool,
    conditions: bool,
    other: bool,
}

impl Omissions {
    /// Marks the schema, and takes away what would refuse what was cut: less must never be stricter.
    fn apply_to(self, out: &mut Map<String, Value>) -> bool {
        let refuses: &[&str] = match (self.properties, self.conditions) {
            (true, _) => {
                &["additionalProperties", "unevaluatedProperties", "items", "unevaluatedItems", "if", "then", "else"]
            }
            (false, true) => &["if", "then", "else"],
            (false, false) => &[],
        };
        for key in refuses {
            out.shift_remove(*key);
        }
        let any = self.properties || self.conditions || self.other;
        if any {
            out.insert("$comment".into(), PRUNED_COMMENT.into());
        }
        any
    }
}

impl Pruner<'_, '_> {
    /// Nothing where there is no more room.
    fn prune_schema(&mut self, value: &Value, depth: usize) -> Option<Value> {
        let Value::Object(fields) = value else { return Some(value.clone()) };
        let named = fields.get("$ref").and_then(Value::as_str).and_then(|text| text.strip_prefix("#/$defs/"));
        let Some(name) = named else { return self.prune_keywords(fields, depth).map(Value::Object) };
        let Some(definition) = (self.find_definition)(name) else { return Some(json!({})) };
        if self.open_definitions.len() >= MAX_DEFINITION_NESTING
            || self.open_definitions.iter().any(|open| open == name)
        {
            self.is_pruned = true;
            let kind = definition.value.get("type").cloned();
            let mut out: Map<String, Value> = kind.map(|kind| ("type".to_owned(), kind)).into_iter().collect();
            out.insert("$comment".into(), PRUNED_COMMENT.into());
            return Some(out.into());
        }
        self.open_definitions.push(name.to_owned());
        let out = self.prune_schema(&definition.value, depth);
        self.open_definitions.pop();
        let mut out = out?;
        if let (Value::Object(out), Some(Value::String(text))) = (&mut out, fields.get("description")) {
            self.insert_description(text, out);
        }
        Some(out)
    }

    fn prune_keywords(&mut self, fields: &Map<String, Value>, depth: usize) -> Option<Map<String, Value>> {
        let mut out = Map::new();
        let mut cut = Omissions::default();
        for (key, value) in fields {
            self.spend(key.len() + 4)?;
            match key.as_str() {
                "properties" | "patternProperties" | "dependentSchemas" => match value.as_object() {
                    Some(named) if depth < self.max_depth => {
                        let mut kept = Map::new();
                        for (name, value) in named {
                            self.spend(name.len() + 6)?;
                            kept.insert(name.clone(), self.prune_schema(value, depth + 1)?);
                        }
                        out.insert(key.clone(), kept.into());
                    }
                    _ => cut.properties = true,
                },
                "anyOf" | "oneOf" | "allOf" | "prefixItems" => match value.as_array() {
                    Some(items) if depth < self.max_depth => {
                        let (kept, marked) = self.track_pruning(|pruner| {
                            let each = items.iter().map(|item| {
                                pruner.spend(3)?;
                                pruner.prune_schema(item, depth + 1)
                            });
                            each.collect::<Option<Vec<Value>>>()
                        })?;
                        // What told one of them from the others may be gone.
                        let key = if key == "oneOf" && marked { "anyOf" } else { key };
                        match out.contains_key(key) {
                            true => cut.other = true,
                            false => drop(out.insert(key.to_owned(), kept.into())),
                        }
                    }
                    _ => cut.properties = true,
                },
                "not" | "if" | "then" | "else" => {
                    let (kept, marked) = self.track_pruning(|pruner| pruner.prune_schema(value, depth + 1))?;
                    // Less inside of these would demand more.
                    match marked || depth >= self.max_depth {
                        true => cut.conditions = true,
                        false => drop(out.insert(key.clone(), kept)),
                    }
                }
                "items"
                | "additionalProperties"
                | "contains"
                | "propertyNames"
                | "unevaluatedItems"
                | "unevaluatedProperties" => match depth < self.max_depth || !value.is_object() {
                    true => drop(out.insert(key.clone(), self.prune_schema(value, depth + 1)?)),
                    false => cut.other = true,
                },
                "description" => value.as_str().map_or((), |text| self.insert_description(text, &mut out)),
                "enum" if value.as_array().is_some_and(|choices| choices.len() > MAX_ENUM_VALUES) => cut.other = true,
                _ => {
                    // No more of it is written than there is room for: it may be a constant of megabytes.
                    let room = usize::try_from(self.remaining_bytes).unwrap_or(0);
                    self.spend(json::truncated_json(value, room + 4).len())?;
                    out.insert(key.clone(), value.clone());
                }
            }
        }
        if cut.apply_to(&mut out) {
            self.is_pruned = true;
        }
        Some(out)
    }

    /// What something comes to, and whether anything in it was cut.
    fn track_pruning<T>(&mut self, work: impl FnOnce(&mut Self) -> Option<T>) -> Option<(T, bool)> {
        let before = std::mem::take(&mut self.is_pruned);
        let done = work(self)?;
        let marked = self.is_pruned;
        self.is_pruned |= before;
        Some((done, marked))
    }

    /// Nothing where there is no more room.
    fn spend(&mut self, bytes: usize) -> Option<()> {
        self.remaining_bytes -= bytes as isize;
        (self.remaining_bytes >= 0).then_some(())
    }

    fn insert_description(&mut self, text: &str, out: &mut Map<String, Value>) {
        if self.max_text_len > 0 {
            let text = description::truncate_at_sentence(text.to_owned(), self.max_text_len);
            self.remaining_bytes -= text.len() as isize;
            out.insert("description".into(), text.into());
        }
    }
}
