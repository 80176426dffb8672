//! Schemas of a document as JSON Schema 2020-12: each definition is translated once and shared, and what one operation
//! needs is gathered from them, with cycles as `$defs`, pruned where it would be too large to be listed.

mod gather;
mod prune;
mod translate;
mod words;

use std::collections::HashMap;
use std::rc::Rc;

use jsonschema::PatternOptions;
use serde_json::{Value, json};

use super::library::{At, Library};
use super::object::Object;
use crate::expression::weight;
use crate::fingerprint::Fingerprint;

pub(super) use gather::Gathered;

/// Who writes the value: what is read only is no part of a request, what is written only none of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Direction {
    Request,
    Answer,
}

/// Which words a document's schemas use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Dialect {
    /// Swagger 2.0 and OpenAPI 3.0: `nullable`, boolean bounds, nothing beside a `$ref`.
    Old,
    /// OpenAPI 3.1 and later: JSON Schema.
    New,
}

/// Everything there is to know about a document's schemas while it is converted.
#[derive(Debug)]
pub(super) struct Schemas<'a> {
    library: &'a Library,
    dialect: Dialect,
    /// By the whole address of what a `$ref` names.
    names: HashMap<String, Rc<str>>,
    targets: HashMap<Rc<str>, Target<'a>>,
    definitions: HashMap<(Direction, Rc<str>), Rc<Translated>>,
    /// Whether a pattern can be compiled.
    patterns: HashMap<String, bool>,
    /// Whether a property is the other side's to write.
    hidden: HashMap<(Direction, *const Value), bool>,
    /// What reading a value costs.
    weights: HashMap<*const Value, u64>,
    /// What is broken in shared definitions: pointer and reason.
    pub(super) broken: Vec<(String, String)>,
    worked: u64,
    allowed: u64,
}

#[derive(Debug, Clone)]
struct Target<'a> {
    at: At<'a>,
    /// Where in its document it stands.
    pointer: String,
}

/// How many schemas are looked at for one document, whatever it asks for: of forty real ones the largest takes 423,000,
/// and none more than about a thousand for each operation.
const MOST_WORK: u64 = 4_000_000;
const WORK_OF_OPERATION: u64 = 1_000;
/// Reading or writing that many bytes counts as looking at one more schema.
const BYTES_OF_WORK: usize = 64;
/// Compiling a pattern takes about as long as looking at so many schemas.
const WORK_OF_PATTERN: u64 = 1_000;
const MAX_PATTERN_LEN: usize = 2_000;
/// Of what a pattern is compiled to: a few bytes can ask for megabytes, and for a second to make them.
const MAX_PATTERN_SIZE: usize = 1024 * 1024;

/// A schema in our words. References are `#/$defs/NAME`.
#[derive(Debug, Clone)]
pub(super) struct Translated {
    pub(super) value: Value,
    /// The definitions it names, as often as it does.
    pub(super) references: Vec<Rc<str>>,
    /// How many bytes it takes as text, and how deep that is.
    size: usize,
    depth: usize,
}

impl Translated {
    /// A schema that names no definition.
    pub(super) fn of(value: Value) -> Translated {
        Translated::referring(value, Vec::new())
    }

    pub(super) fn referring(value: Value, references: Vec<Rc<str>>) -> Translated {
        let text = value.to_string();
        Translated { size: text.len(), depth: crate::json::depth(&text), value, references }
    }
}

impl<'a> Schemas<'a> {
    pub(super) fn new(library: &'a Library, dialect: Dialect, operations: usize) -> Schemas<'a> {
        let allowed = MOST_WORK + operations as u64 * WORK_OF_OPERATION;
        let (names, targets, definitions, patterns, broken) = Default::default();
        let (hidden, weights) = Default::default();
        Schemas { library, dialect, names, targets, definitions, patterns, hidden, weights, broken, worked: 0, allowed }
    }

    /// One more schema is looked at, if that is not too many.
    fn work(&mut self) -> bool {
        self.worked += 1;
        self.worked <= self.allowed
    }

    /// Counts work of another kind than looking at one schema.
    fn spend(&mut self, work: u64) {
        self.worked = self.worked.saturating_add(work);
    }

    /// Counts what reading a value costs. Operations share path items, parameters and bodies by reference: a document of
    /// a megabyte can have ten thousand operations of which each reads half of it.
    pub(super) fn spend_on(&mut self, value: &Value) {
        let weigh = || (weight(value) / BYTES_OF_WORK) as u64;
        let work = *self.weights.entry(std::ptr::from_ref(value)).or_insert_with(weigh);
        self.spend(work);
    }

    /// The properties of a schema with what it extends.
    pub(super) fn object(&mut self, at: At<'a>) -> Object<'a> {
        if self.exhausted() {
            return Object::default();
        }
        let object = Object::of(self.library, at);
        self.spend(object.steps);
        object
    }

    /// Whether the document asked for more than is done for one.
    pub(super) fn exhausted(&self) -> bool {
        self.worked > self.allowed
    }

    /// One schema of an operation; what is broken in it is added to `broken`.
    pub(super) fn translate(&mut self, at: At<'a>, direction: Direction, broken: &mut Vec<String>) -> Translated {
        self.spend_on(at.value);
        translate::schema(self, at, direction, broken)
    }

    /// A definition that something referred to.
    fn definition(&mut self, name: &Rc<str>, direction: Direction) -> Option<Rc<Translated>> {
        let key = (direction, name.clone());
        if let Some(known) = self.definitions.get(&key) {
            return Some(known.clone());
        }
        let at = self.targets.get(name)?.at;
        let mut broken = Vec::new();
        let translated = Rc::new(translate::schema(self, at, direction, &mut broken));
        self.definitions.insert(key, translated.clone());
        if !broken.is_empty() {
            let pointer = self.targets.get(name).map(|target| target.pointer.clone()).unwrap_or_default();
            self.broken.extend(broken.into_iter().map(|reason| (pointer.clone(), reason)));
        }
        Some(translated)
    }

    /// The name that a definition goes by in our schemas: its own, unless it has none or another may have it.
    fn name(&mut self, at: At<'a>, address: String) -> Rc<str> {
        if let Some(name) = self.names.get(&address) {
            return name.clone();
        }
        let pointer = address.split_once('#').map_or("", |(_, pointer)| pointer);
        let own = pointer.rsplit('/').next().unwrap_or_default();
        let kept: String = own.chars().map(|letter| if is_plain(letter) { letter } else { '_' }).take(48).collect();
        let parent = pointer.strip_suffix(own).unwrap_or_default();
        let usual = matches!(parent, "/components/schemas/" | "/definitions/") && kept == own;
        let here = at.place == self.library.root_url().as_str();
        let name: Rc<str> = match usual && here && !kept.is_empty() {
            true => kept.into(),
            false => format!("{kept}_{}", Fingerprint::of(&address).short(6)).into(),
        };
        let pointer = format!("#{pointer}");
        self.names.insert(address, name.clone());
        self.targets.insert(name.clone(), Target { at, pointer });
        name
    }

    /// Whether our checker can read a pattern: one that it cannot would cost the whole schema.
    fn compiles(&mut self, pattern: &str) -> bool {
        if let Some(known) = self.patterns.get(pattern) {
            return *known;
        }
        self.spend(WORK_OF_PATTERN);
        let options = PatternOptions::fancy_regex().size_limit(MAX_PATTERN_SIZE);
        let compiles = pattern.len() <= MAX_PATTERN_LEN
            && !self.exhausted()
            && jsonschema::options().with_pattern_options(options).build(&json!({ "pattern": pattern })).is_ok();
        self.patterns.insert(pattern.to_owned(), compiles);
        compiles
    }
}

fn is_plain(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || matches!(letter, '_' | '-' | '.')
}

#[cfg(test)]
mod tests;
