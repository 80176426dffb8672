//! A schema too large to be listed, cut at depth: what is left out is marked, names of what is required stay, and the
//! whole can be asked for.

use std::rc::Rc;

use serde_json::{Map, Value, json};

use super::super::wording;
use super::Translated;
use crate::json;

/// What a list may have of one tool in any case.
const LARGEST: usize = 128 * 1024;
const MARK: &str = "pruned";
const NOTE: &str = "pruned; ask for the full schema to see the rest";
const MOST_CHOICES: usize = 24;
/// Definitions that name nothing but one another.
const MOST_INSIDE: usize = 32;

/// How much is kept, from much to little: how deep, and how much of each text.
const TRIES: [(usize, usize); 9] =
    [(8, 300), (6, 300), (5, 200), (4, 160), (3, 120), (2, 120), (2, 40), (2, 0), (1, 40)];

type LookUp<'l> = dyn FnMut(&str) -> Option<Rc<Translated>> + 'l;

/// The schema in at most `limit` bytes, if anything less deep than all of it can be; and how many bytes were written
/// to find that out.
pub(super) fn pruned(root: &Value, limit: usize, look_up: &mut LookUp<'_>) -> (Value, usize) {
    let mut written = 0;
    for (depth, text) in TRIES {
        let mut pruner = Pruner { depth, text, room: limit as isize - 64, marked: false, look_up, inside: Vec::new() };
        let value = pruner.schema(root, 0).filter(|value| value.to_string().len() <= limit);
        let marked = pruner.marked;
        written += limit.saturating_sub(pruner.room.max(0) as usize);
        if let Some(value) = value {
            return (noted(value, marked), written);
        }
    }
    // All arguments of the tool, if those are not too many either.
    let mut pruner = Pruner { depth: 1, text: 0, room: LARGEST as isize, marked: false, look_up, inside: Vec::new() };
    let least = pruner.schema(root, 0).unwrap_or_else(|| json!({ "type": "object" }));
    (noted(least, true), written + LARGEST)
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

/// What of one schema was left out.
#[derive(Default)]
struct Cut {
    /// Properties, or members that may name some.
    named: bool,
    condition: bool,
    more: bool,
}

impl Cut {
    /// Marks the schema, and takes away what would refuse what was cut: less must never be stricter.
    fn told_in(self, out: &mut Map<String, Value>) -> bool {
        let refuses: &[&str] = match (self.named, self.condition) {
            (true, _) => {
                &["additionalProperties", "unevaluatedProperties", "items", "unevaluatedItems", "if", "then", "else"]
            }
            (false, true) => &["if", "then", "else"],
            (false, false) => &[],
        };
        for key in refuses {
            out.shift_remove(*key);
        }
        let any = self.named || self.condition || self.more;
        if any {
            out.insert("$comment".into(), MARK.into());
        }
        any
    }
}

impl Pruner<'_, '_> {
    /// Nothing where there is no more room.
    fn schema(&mut self, value: &Value, depth: usize) -> Option<Value> {
        let Value::Object(fields) = value else { return Some(value.clone()) };
        let named = fields.get("$ref").and_then(Value::as_str).and_then(|text| text.strip_prefix("#/$defs/"));
        let Some(name) = named else { return self.fields(fields, depth).map(Value::Object) };
        let Some(definition) = (self.look_up)(name) else { return Some(json!({})) };
        if self.inside.len() >= MOST_INSIDE || self.inside.iter().any(|open| open == name) {
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
        let (mut out, mut cut) = (Map::new(), Cut::default());
        for (key, value) in fields {
            self.spend(key.len() + 4)?;
            match key.as_str() {
                "properties" | "patternProperties" | "dependentSchemas" => match value.as_object() {
                    Some(named) if depth < self.depth => {
                        let mut kept = Map::new();
                        for (name, value) in named {
                            self.spend(name.len() + 6)?;
                            kept.insert(name.clone(), self.schema(value, depth + 1)?);
                        }
                        out.insert(key.clone(), kept.into());
                    }
                    _ => cut.named = true,
                },
                "anyOf" | "oneOf" | "allOf" | "prefixItems" => match value.as_array() {
                    Some(items) if depth < self.depth => {
                        let (kept, marked) = self.apart(|pruner| {
                            let each = items.iter().map(|item| {
                                pruner.spend(3)?;
                                pruner.schema(item, depth + 1)
                            });
                            each.collect::<Option<Vec<Value>>>()
                        })?;
                        // What told one of them from the others may be gone.
                        let key = if key == "oneOf" && marked { "anyOf" } else { key };
                        match out.contains_key(key) {
                            true => cut.more = true,
                            false => drop(out.insert(key.to_owned(), kept.into())),
                        }
                    }
                    _ => cut.named = true,
                },
                "not" | "if" | "then" | "else" => {
                    let (kept, marked) = self.apart(|pruner| pruner.schema(value, depth + 1))?;
                    // Less inside of these would demand more.
                    match marked || depth >= self.depth {
                        true => cut.condition = true,
                        false => drop(out.insert(key.clone(), kept)),
                    }
                }
                "items"
                | "additionalProperties"
                | "contains"
                | "propertyNames"
                | "unevaluatedItems"
                | "unevaluatedProperties" => match depth < self.depth || !value.is_object() {
                    true => drop(out.insert(key.clone(), self.schema(value, depth + 1)?)),
                    false => cut.more = true,
                },
                "description" => value.as_str().map_or((), |text| self.describe(text, &mut out)),
                "enum" if value.as_array().is_some_and(|choices| choices.len() > MOST_CHOICES) => cut.more = true,
                _ => {
                    // No more of it is written than there is room for: it may be a constant of megabytes.
                    let room = usize::try_from(self.room).unwrap_or(0);
                    self.spend(json::beginning(value, room + 4).len())?;
                    out.insert(key.clone(), value.clone());
                }
            }
        }
        if cut.told_in(&mut out) {
            self.marked = true;
        }
        Some(out)
    }

    /// What something comes to, and whether anything in it was cut.
    fn apart<T>(&mut self, work: impl FnOnce(&mut Self) -> Option<T>) -> Option<(T, bool)> {
        let before = std::mem::take(&mut self.marked);
        let done = work(self)?;
        let marked = self.marked;
        self.marked |= before;
        Some((done, marked))
    }

    /// Nothing where there is no more room.
    fn spend(&mut self, bytes: usize) -> Option<()> {
        self.room -= bytes as isize;
        (self.room >= 0).then_some(())
    }

    fn describe(&mut self, text: &str, out: &mut Map<String, Value>) {
        if self.text > 0 {
            let text = wording::cut(text.to_owned(), self.text);
            self.room -= text.len() as isize;
            out.insert("description".into(), text.into());
        }
    }
}
