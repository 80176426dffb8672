//! What one operation needs of the shared definitions: those it reaches, inlined where that is shorter, and the rest as
//! `$defs`, cycles included.

use std::collections::HashMap;
use std::rc::Rc;

use serde_json::{Map, Value};

use super::{Direction, Schemas, Translated, prune};

/// How large a schema may be when it is listed.
const LISTED: usize = 8 * 1024;
/// And when it is asked for.
const WHOLE: usize = 192 * 1024;
const MOST_DEFINITIONS: usize = 4_000;

/// A schema that stands for itself.
#[derive(Debug)]
pub(in super::super) struct Gathered {
    pub(in super::super) listed: Value,
    /// Where the listed one was pruned: with everything that it says.
    pub(in super::super) whole: Option<Value>,
}

pub(super) type Definitions = HashMap<Rc<str>, Rc<Translated>>;

impl Schemas<'_> {
    /// For agents: short enough to be listed.
    pub(in super::super) fn gather(&mut self, root: &Translated, direction: Direction) -> Gathered {
        let reached = self.reach(root, direction, WHOLE);
        let whole = reached.as_ref().map(|definitions| joined(root, definitions)).filter(|whole| fits(whole, WHOLE));
        match whole {
            Some(whole) if fits(&whole, LISTED) => Gathered { listed: whole, whole: None },
            Some(whole) => Gathered { listed: self.pruned(root, direction, LISTED), whole: Some(whole) },
            None => {
                let whole = self.pruned(root, direction, WHOLE);
                Gathered { listed: self.pruned(root, direction, LISTED), whole: Some(whole) }
            }
        }
    }

    /// For whoever asks: as much as is listed.
    pub(in super::super) fn gather_short(&mut self, root: &Translated, direction: Direction) -> Value {
        let reached = self.reach(root, direction, LISTED);
        let whole = reached.as_ref().map(|definitions| joined(root, definitions));
        whole.filter(|whole| fits(whole, LISTED)).unwrap_or_else(|| self.pruned(root, direction, LISTED))
    }

    fn pruned(&mut self, root: &Translated, direction: Direction, limit: usize) -> Value {
        prune::pruned(&root.value, limit, &mut |name| {
            let (name, _) = self.targets.get_key_value(name)?;
            let name = name.clone();
            self.definition(&name, direction)
        })
    }

    /// Every definition that is reached from here; nothing when they are certainly larger than `limit` together.
    fn reach(&mut self, root: &Translated, direction: Direction, limit: usize) -> Option<Definitions> {
        let mut reached = Definitions::new();
        let (mut waiting, mut size) = (root.references.clone(), root.size);
        while let Some(name) = waiting.pop() {
            if reached.contains_key(&name) {
                continue;
            }
            let definition = self.definition(&name, direction)?;
            size += definition.size;
            if size > limit || reached.len() >= MOST_DEFINITIONS {
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

fn joined(root: &Translated, definitions: &Definitions) -> Value {
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
    let mut value = inline(&root.value, definitions, &inlined);
    let mut shared: Vec<&Rc<str>> = definitions.keys().filter(|name| !inlined(name)).collect();
    shared.sort();
    let shared: Map<String, Value> = shared
        .into_iter()
        .filter_map(|name| {
            let definition = definitions.get(name)?;
            Some((name.to_string(), inline(&definition.value, definitions, &inlined)))
        })
        .collect();
    if let (Value::Object(fields), false) = (&mut value, shared.is_empty()) {
        fields.insert("$defs".into(), shared.into());
    }
    value
}

fn inline(value: &Value, definitions: &Definitions, inlined: &impl Fn(&str) -> bool) -> Value {
    match value {
        Value::Object(fields) => {
            let named = fields.get("$ref").and_then(Value::as_str).and_then(|text| text.strip_prefix("#/$defs/"));
            if let Some(definition) = named.filter(|name| inlined(name)).and_then(|name| definitions.get(name)) {
                return overlaid(inline(&definition.value, definitions, inlined), fields, definitions, inlined);
            }
            fields.iter().map(|(key, value)| (key.clone(), inline(value, definitions, inlined))).collect()
        }
        Value::Array(items) => items.iter().map(|item| inline(item, definitions, inlined)).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.clone(),
    }
}

/// A definition with what stood beside the reference to it.
fn overlaid(
    definition: Value,
    beside: &Map<String, Value>,
    definitions: &Definitions,
    inlined: &impl Fn(&str) -> bool,
) -> Value {
    let beside: Map<String, Value> = beside
        .iter()
        .filter(|(key, _)| *key != "$ref")
        .map(|(key, value)| (key.clone(), inline(value, definitions, inlined)))
        .collect();
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
