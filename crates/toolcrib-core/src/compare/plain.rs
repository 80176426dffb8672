//! A schema by its meaning: without words, with references followed, and written in one of the ways that come to the
//! same. Two schemas with one plain form take the same values; the reverse does not hold.

use serde_json::{Map, Number, Value, json};

use super::Allowance;
use super::keywords::{Holds, asks_nothing, evaluates, holds};
use super::simplest::{as_set, simplest};
use super::ways::{KEYWORDS_OF_A_NODE, TEXT_OF_A_NODE};
use crate::json::follow_reference;

/// How much may come of one schema; past that, references stay as they are.
const MOST: usize = 40_000;
const DEEPEST: usize = 128;

pub(crate) struct Plain {
    pub(crate) schema: Value,
    /// Whether the form holds all that the schema means. Of one that does not, nobody can say that it is like another.
    pub(crate) is_whole: bool,
    /// How much work it was.
    pub(super) work: usize,
    follows: bool,
}

impl Plain {
    pub(crate) fn of(schema: &Value) -> Plain {
        match Writer::new(schema, true).write(schema) {
            (Some(written), work) => Plain { schema: written, is_whole: true, work, follows: true },
            // Its references lead too far, or elsewhere.
            (None, wasted) => {
                let (written, work) = Writer::new(schema, false).write(schema);
                let is_whole = written.is_some() && refers_to_definitions_alone(schema);
                Plain { schema: written.unwrap_or_default(), is_whole, work: wasted + work, follows: false }
            }
        }
    }

    /// Of one of many, paid for with what is left for all.
    pub(crate) fn of_list(schema: &Value, allowance: &mut Allowance) -> Plain {
        let plain = Plain::of(schema);
        allowance.spend(plain.work);
        plain
    }

    /// Of parts of a schema that hold at once, whose references are looked up in the whole.
    pub(super) fn within<'a>(root: &'a Value, what: Holds, parts: &[&'a Value]) -> Plain {
        let mut writer = Writer::new(root, true);
        // What stands around it is not known.
        writer.is_evaluated = true;
        let written: Option<Vec<Value>> = parts.iter().map(|part| writer.held(what, part, 0)).collect();
        let is_whole = written.is_some();
        let mut written = written.unwrap_or_default();
        as_set(&mut written);
        Plain { schema: Value::Array(written), is_whole, work: writer.work, follows: true }
    }

    /// Whether both are known to take the same values.
    pub(super) fn is_like(&self, other: &Plain) -> bool {
        self.is_whole && other.is_whole && self.follows == other.follows && self.schema == other.schema
    }
}

/// What a reference within a schema leads to.
pub(super) fn target<'a>(root: &'a Value, reference: &Value) -> Option<&'a Value> {
    follow_reference(root, reference.as_str()?)
}

/// Whether what is referred to stays where it is when a schema is written otherwise: elsewhere, or under a name of its own.
fn refers_to_definitions_alone(schema: &Value) -> bool {
    match schema {
        Value::Object(fields) => fields.iter().all(|(name, value)| match (holds(name), value) {
            (Holds::Reference, Value::String(reference)) => reference.strip_prefix("#/").is_none_or(|path| {
                let name = path.strip_prefix("$defs/").or_else(|| path.strip_prefix("definitions/"));
                name.is_some_and(|name| !name.contains('/'))
            }),
            _ => refers_to_definitions_alone(value),
        }),
        Value::Array(items) => items.iter().all(refers_to_definitions_alone),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => true,
    }
}

struct Writer<'a> {
    root: &'a Value,
    follows: bool,
    left: usize,
    written: usize,
    work: usize,
    /// The definitions that are being written, outermost first.
    within: Vec<Begun>,
    /// Whether something around asks what is left over, so that it counts what takes anything.
    is_evaluated: bool,
}

/// A definition that is being written, and what it is called where it leads to itself.
struct Begun {
    definition: *const Value,
    called: Option<usize>,
}

impl<'a> Writer<'a> {
    fn new(root: &'a Value, follows: bool) -> Writer<'a> {
        // Without following references it is no more than was there.
        let left = if follows { MOST } else { usize::MAX };
        Writer { root, follows, left, written: 0, work: 0, within: Vec::new(), is_evaluated: false }
    }

    fn write(mut self, schema: &'a Value) -> (Option<Value>, usize) {
        let written = self.schema(schema, 0);
        (written, self.work)
    }

    /// Whatever is written is paid for first: a few words may refer to much, many times.
    fn spend(&mut self, work: usize) -> Option<()> {
        self.work += work;
        self.written += work;
        self.left = self.left.checked_sub(work)?;
        Some(())
    }

    fn spend_text(&mut self, text: &str) -> Option<()> {
        self.spend(1 + text.len() / TEXT_OF_A_NODE)
    }

    /// Nothing when there is too much of it.
    fn schema(&mut self, schema: &'a Value, depth: usize) -> Option<Value> {
        let Value::Object(keywords) = schema else {
            return if schema == &Value::Bool(true) { self.value(&json!({})) } else { self.value(schema) };
        };
        self.spend(1)?;
        if depth > DEEPEST {
            return None;
        }
        let was_evaluated = self.is_evaluated;
        self.is_evaluated |= keywords.keys().any(|name| name.starts_with("unevaluated"));
        let written = self.keywords(keywords, depth);
        self.is_evaluated = was_evaluated;
        written
    }

    fn keywords(&mut self, keywords: &'a Map<String, Value>, depth: usize) -> Option<Value> {
        let mut written = Map::new();
        let mut referred = Vec::new();
        let mut names: Vec<&String> = keywords.keys().collect();
        names.sort_unstable();
        for name in names {
            self.spend_text(name)?;
            let value = &keywords[name];
            let what = holds(name);
            // Once references are followed, names are of no use; and where a definition begins is called that way.
            let is_a_name = matches!(what, Holds::Definitions | Holds::Anchor);
            if what == Holds::Words || (is_a_name && self.follows) {
                continue;
            }
            let value = self.held(what, value, depth)?;
            if what == Holds::Reference && self.follows {
                referred.push(value);
            } else if (self.is_evaluated && evaluates(name)) || !asks_nothing(name, &value) {
                written.insert(name.clone(), value);
            }
        }
        Some(simplest(written, referred))
    }

    fn held(&mut self, what: Holds, value: &'a Value, depth: usize) -> Option<Value> {
        match what {
            // What it refers to is not known, so nothing that it could be may be left out.
            Holds::Reference if self.follows => self.definition(target(self.root, value)?, depth),
            Holds::Schema => self.schema(value, depth + 1),
            Holds::SchemaOrRow if !value.is_array() => self.schema(value, depth + 1),
            Holds::Row | Holds::SchemaOrRow => self.row(value, depth),
            Holds::Named | Holds::Definitions => self.named(value, depth),
            Holds::Value | Holds::Reference | Holds::Anchor | Holds::Words => self.value(value),
        }
    }

    /// A definition that leads to itself is marked where it begins, by a number that none around it has.
    fn definition(&mut self, target: &'a Value, depth: usize) -> Option<Value> {
        self.spend(1)?;
        let taken: Vec<usize> = self.within.iter().filter_map(|begun| begun.called).collect();
        if let Some(begun) = self.within.iter_mut().find(|begun| std::ptr::eq(begun.definition, target)) {
            let free = (0..).find(|number| !taken.contains(number))?;
            let number = begun.called.get_or_insert(free);
            return Some(json!({ "$ref": format!("#{number}") }));
        }
        self.within.push(Begun { definition: std::ptr::from_ref(target), called: None });
        let written = self.schema(target, depth + 1);
        let called = self.within.pop()?.called;
        match (written?, called) {
            (written, None) => Some(written),
            (written, Some(number)) => Some(json!({ "$anchor": number.to_string(), "allOf": [written] })),
        }
    }

    fn row(&mut self, value: &'a Value, depth: usize) -> Option<Value> {
        match value {
            Value::Array(schemas) => {
                let before = self.written;
                let written: Option<Vec<Value>> = schemas.iter().map(|schema| self.schema(schema, depth + 1)).collect();
                // A row is sorted by its text, so what lies deep is written once more for every row around it. That is
                // no part of what comes of the schema, but work that a list of many such schemas has to pay for.
                self.work += (self.written - before) / KEYWORDS_OF_A_NODE;
                written.map(Value::Array)
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_) => self.value(value),
        }
    }

    fn named(&mut self, value: &'a Value, depth: usize) -> Option<Value> {
        let Value::Object(schemas) = value else { return self.value(value) };
        let mut names: Vec<&String> = schemas.keys().collect();
        names.sort_unstable();
        let mut written = Map::new();
        for name in names {
            self.spend_text(name)?;
            // What a field depends on may be a list of names.
            let schema = &schemas[name];
            let value = if schema.is_array() { self.value(schema)? } else { self.schema(schema, depth + 1)? };
            written.insert(name.clone(), value);
        }
        Some(Value::Object(written))
    }

    /// Keys in their order, and 1.0 as 1.
    fn value(&mut self, value: &Value) -> Option<Value> {
        self.spend_text(value.as_str().unwrap_or_default())?;
        Some(match value {
            Value::Object(fields) => {
                let mut names: Vec<&String> = fields.keys().collect();
                names.sort_unstable();
                let mut written = Map::new();
                for name in names {
                    self.spend_text(name)?;
                    written.insert(name.clone(), self.value(&fields[name])?);
                }
                Value::Object(written)
            }
            Value::Array(items) => items.iter().map(|item| self.value(item)).collect::<Option<Vec<_>>>()?.into(),
            Value::Number(number) => whole(number).map_or_else(|| value.clone(), Value::from),
            Value::Null | Value::Bool(_) | Value::String(_) => value.clone(),
        })
    }
}

fn whole(number: &Number) -> Option<i64> {
    let float = number.as_f64().filter(|float| number.is_f64() && float.fract() == 0.0 && float.abs() < 1e15)?;
    Some(float as i64)
}
