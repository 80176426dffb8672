//! A schema too large to be listed, cut at depth: what is left out is marked, names of what is required stay, and the
//! whole can be asked for.

use std::rc::Rc;

use serde_json::{Map, Value, json};

use super::super::wording;
use super::Translated;

const MARK: &str = "pruned";
const NOTE: &str = "pruned; ask for the full schema to see the rest";
const MOST_CHOICES: usize = 24;

/// How much is kept, from much to little: how deep, and how much of each text.
const TRIES: [(usize, usize); 9] =
    [(8, 300), (6, 300), (5, 200), (4, 160), (3, 120), (2, 120), (2, 40), (2, 0), (1, 40)];

type LookUp<'l> = dyn FnMut(&str) -> Option<Rc<Translated>> + 'l;

/// The schema in at most `limit` bytes, if anything less deep than all of it can be.
pub(super) fn pruned(root: &Value, limit: usize, look_up: &mut LookUp<'_>) -> Value {
    for (depth, text) in TRIES {
        let mut pruner = Pruner { depth, text, room: limit as isize - 64, marked: false, look_up, inside: Vec::new() };
        if let Some(value) = pruner.schema(root, 0).filter(|value| value.to_string().len() <= limit) {
            return noted(value, pruner.marked);
        }
    }
    let mut pruner = Pruner { depth: 1, text: 0, room: isize::MAX, marked: false, look_up, inside: Vec::new() };
    let least = pruner.schema(root, 0).unwrap_or_else(|| json!({ "type": "object" }));
    noted(least, true)
}

fn noted(mut value: Value, marked: bool) -> Value {
    if let (Value::Object(fields), true) = (&mut value, marked) {
        fields.insert("$comment".into(), NOTE.into());
    }
    value
}

struct Pruner<'p, 'l> {
    depth: usize,
    text: usize,
    /// Bytes that may still be written, roughly.
    room: isize,
    marked: bool,
    look_up: &'p mut LookUp<'l>,
    /// The definitions that are being written, the innermost last.
    inside: Vec<String>,
}

impl Pruner<'_, '_> {
    /// Nothing where there is no more room.
    fn schema(&mut self, value: &Value, depth: usize) -> Option<Value> {
        let Value::Object(fields) = value else { return Some(value.clone()) };
        let named = fields.get("$ref").and_then(Value::as_str).and_then(|text| text.strip_prefix("#/$defs/"));
        let Some(name) = named else { return self.fields(fields, depth).map(Value::Object) };
        let Some(definition) = (self.look_up)(name) else { return Some(json!({})) };
        if self.inside.iter().any(|open| open == name) {
            self.marked = true;
            let kind = definition.value.get("type").cloned();
            let mut out: Map<String, Value> = kind.map(|kind| ("type".to_owned(), kind)).into_iter().collect();
            out.insert("$comment".into(), MARK.into());
            return Some(out.into());
        }
        self.inside.push(name.to_owned());
        let out = self.schema(&definition.value, depth);
        self.inside.pop();
        let mut out = out?;
        if let (Value::Object(out), Some(Value::String(text))) = (&mut out, fields.get("description")) {
            self.describe(text, out);
        }
        Some(out)
    }

    fn fields(&mut self, fields: &Map<String, Value>, depth: usize) -> Option<Map<String, Value>> {
        let mut out = Map::new();
        let mut cut = false;
        for (key, value) in fields {
            self.room -= key.len() as isize + 4;
            if self.room < 0 {
                return None;
            }
            match key.as_str() {
                "properties" | "patternProperties" | "dependentSchemas" => match value.as_object() {
                    Some(named) if depth < self.depth => {
                        let mut kept = Map::new();
                        for (name, value) in named {
                            self.room -= name.len() as isize + 6;
                            kept.insert(name.clone(), self.schema(value, depth + 1)?);
                        }
                        out.insert(key.clone(), kept.into());
                    }
                    _ => cut = true,
                },
                "anyOf" | "oneOf" | "allOf" | "prefixItems" => match value.as_array() {
                    Some(items) if depth < self.depth => {
                        let kept: Option<Vec<Value>> = items.iter().map(|item| self.schema(item, depth + 1)).collect();
                        out.insert(key.clone(), kept?.into());
                    }
                    _ => cut = true,
                },
                "items"
                | "additionalProperties"
                | "not"
                | "if"
                | "then"
                | "else"
                | "contains"
                | "propertyNames"
                | "unevaluatedItems"
                | "unevaluatedProperties" => {
                    if depth < self.depth || !value.is_object() {
                        out.insert(key.clone(), self.schema(value, depth + 1)?);
                    } else {
                        cut = true;
                    }
                }
                "description" => {
                    if let Some(text) = value.as_str() {
                        self.describe(text, &mut out);
                    }
                }
                "enum" => {
                    let choices = value.as_array().map(Vec::as_slice).unwrap_or_default();
                    if choices.len() <= MOST_CHOICES {
                        self.room -= value.to_string().len() as isize;
                        out.insert(key.clone(), value.clone());
                    } else {
                        cut = true;
                    }
                }
                _ => {
                    self.room -= value.to_string().len() as isize;
                    out.insert(key.clone(), value.clone());
                }
            }
        }
        if cut {
            self.marked = true;
            out.insert("$comment".into(), MARK.into());
        }
        Some(out)
    }

    fn describe(&mut self, text: &str, out: &mut Map<String, Value>) {
        if self.text > 0 {
            let text = wording::cut(text.to_owned(), self.text);
            self.room -= text.len() as isize;
            out.insert("description".into(), text.into());
        }
    }
}
