//! Schemas of a document as JSON Schema 2020-12: each definition is translated once and shared, and what one operation
//! needs is gathered from them, with cycles as `$defs`, pruned where it would be too large to be listed.

mod gather;
mod keyword_fixes;
mod prune;
mod translate;

use std::collections::HashMap;
use std::rc::Rc;

use jsonschema::PatternOptions;
use serde_json::{Value, json};

use super::document_set::{DocumentSet, NodeRef};
use super::object_schema::ObjectSchema;
use crate::expression::approximate_size;
use crate::fingerprint::Fingerprint;

pub(super) use gather::AssembledSchema;

/// Who writes the value: what is read only is no part of a request, what is written only none of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Direction {
    Request,
    Response,
}

/// Which words a document's schemas use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SchemaDialect {
    /// Swagger 2.0 and OpenAPI 3.0: `nullable`, boolean bounds, nothing beside a `$ref`.
    OpenApi30,
    /// OpenAPI 3.1 and later: JSON Schema.
    JsonSchema,
}

/// Everything there is to know about a document's schemas while it is converted.
#[derive(Debug)]
pub(super) struct SchemaTranslator<'a> {
    documents: &'a DocumentSet,
    dialect: SchemaDialect,
    /// By the whole address of what a `$ref` names.
    names: HashMap<String, Rc<str>>,
    targets: HashMap<Rc<str>, DefinitionTarget<'a>>,
    definitions: HashMap<(Direction, Rc<str>), Rc<TranslatedSchema>>,
    /// Whether a pattern can be compiled.
    compilable_patterns: HashMap<String, bool>,
    /// Whether a property is the other side's to write.
    hidden_properties: HashMap<(Direction, *const Value), bool>,
    /// What reading a value costs.
    read_costs: HashMap<*const Value, u64>,
    /// What is broken in shared definitions: pointer and reason.
    pub(super) faults: Vec<(String, String)>,
    work_done: u64,
    work_limit: u64,
}

#[derive(Debug, Clone)]
struct DefinitionTarget<'a> {
    node: NodeRef<'a>,
    /// Where in its document it stands.
    pointer: String,
}

/// How many schemas are looked at for one document, whatever it asks for: of forty real ones the largest takes 423,000,
/// and none more than about a thousand for each operation.
const MAX_WORK: u64 = 4_000_000;
const WORK_PER_OPERATION: u64 = 1_000;
/// Reading or writing that many bytes counts as looking at one more schema.
const BYTES_PER_WORK: usize = 64;
/// Compiling a pattern takes about as long as looking at so many schemas.
const WORK_PER_PATTERN: u64 = 1_000;
const MAX_PATTERN_LEN: usize = 2_000;
/// Of what a pattern is compiled to: a few bytes can ask for megabytes, and for a second to make them.
const MAX_PATTERN_SIZE: usize = 1024 * 1024;

/// A schema in our words. References are `#/$defs/NAME`.
#[derive(Debug, Clone)]
pub(super) struct TranslatedSchema {
    pub(super) value: Value,
    /// The definitions it names, as often as it does.
    pub(super) references: Vec<Rc<str>>,
    /// How many bytes it takes as text, and how deep that is.
    size: usize,
    depth: usize,
}

impl TranslatedSchema {
    /// A schema that names no definition.
    pub(super) fn without_references(value: Value) -> TranslatedSchema {
        TranslatedSchema::with_references(value, Vec::new())
    }

    pub(super) fn with_references(value: Value, references: Vec<Rc<str>>) -> TranslatedSchema {
        let text = value.to_string();
        TranslatedSchema { size: text.len(), depth: crate::json::nesting_depth(&text), value, references }
    }
}

impl<'a> SchemaTranslator<'a> {
    pub(super) fn new(library: &'a DocumentSet, dialect: SchemaDialect, operations: usize) -> SchemaTranslator<'a> {
        let allowed = MAX_WORK + operations as u64 * WORK_PER_OPERATION;
        let (names, targets, definitions, patterns, broken) = Default::default();
        let (hidden, weights) = Default::default();
        SchemaTranslator {
            documents: library,
            dialect,
            names,
            targets,
            definitions,
            compilable_patterns: patterns,
            hidden_properties: hidden,
            read_costs: weights,
            faults: broken,
            work_done: 0,
            work_limit: allowed,
        }
    }

    /// One more schema is looked at, if that is not too many.
    fn charge_schema(&mut self) -> bool {
        self.work_done += 1;
        self.work_done <= self.work_limit
    }

    /// Counts work of another kind than looking at one schema.
    fn spend(&mut self, work: u64) {
        self.work_done = self.work_done.saturating_add(work);
    }

    /// Counts what reading a value costs. Operations share path items, parameters and bodies by reference: a document of
    /// a megabyte can have ten thousand operations of which each reads half of it.
    pub(super) fn charge_reading(&mut self, value: &Value) {
        let weigh = || (approximate_size(value) / BYTES_PER_WORK) as u64;
        let work = *self.read_costs.entry(std::ptr::from_ref(value)).or_insert_with(weigh);
        self.spend(work);
    }

    /// The properties of a schema with what it extends.
    pub(super) fn object_schema(&mut self, at: NodeRef<'a>) -> ObjectSchema<'a> {
        if self.is_exhausted() {
            return ObjectSchema::default();
        }
        let object = ObjectSchema::collect(self.documents, at);
        self.spend(object.steps);
        object
    }

    /// Whether the document asked for more than is done for one.
    pub(super) fn is_exhausted(&self) -> bool {
        self.work_done > self.work_limit
    }

    /// One schema of an operation; what is broken in it is added to `broken`.
    pub(super) fn translate(
        &mut self,
        at: NodeRef<'a>,
        direction: Direction,
        broken: &mut Vec<String>,
    ) -> TranslatedSchema {
        self.charge_reading(at.value);
        translate::translate_schema(self, at, direction, broken)
    }

    /// A definition that something referred to.
    fn definition(&mut self, name: &Rc<str>, direction: Direction) -> Option<Rc<TranslatedSchema>> {
        let key = (direction, name.clone());
        if let Some(known) = self.definitions.get(&key) {
            return Some(known.clone());
        }
        let at = self.targets.get(name)?.node;
        let mut broken = Vec::new();
        let translated = Rc::new(translate::translate_schema(self, at, direction, &mut broken));
        self.definitions.insert(key, translated.clone());
        if !broken.is_empty() {
            let pointer = self.targets.get(name).map(|target| target.pointer.clone()).unwrap_or_default();
            self.faults.extend(broken.into_iter().map(|reason| (pointer.clone(), reason)));
        }
        Some(translated)
    }

    /// The name that a definition goes by in our schemas: its own, unless it has none or another may have it.
    fn definition_name(&mut self, at: NodeRef<'a>, address: String) -> Rc<str> {
        if let Some(name) = self.names.get(&address) {
            return name.clone();
        }
        let pointer = address.split_once('#').map_or("", |(_, pointer)| pointer);
        let own = pointer.rsplit('/').next().unwrap_or_default();
        let kept: String = own.chars().map(|letter| if is_name_char(letter) { letter } else { '_' }).take(48).collect();
        let parent = pointer.strip_suffix(own).unwrap_or_default();
        let usual = matches!(parent, "/components/schemas/" | "/definitions/") && kept == own;
        let here = at.document_url == self.documents.root_url().as_str();
        let name: Rc<str> = match usual && here && !kept.is_empty() {
            true => kept.into(),
            false => format!("{kept}_{}", Fingerprint::digest(&address).short_hex(6)).into(),
        };
        let pointer = format!("#{pointer}");
        self.names.insert(address, name.clone());
        self.targets.insert(name.clone(), DefinitionTarget { node: at, pointer });
        name
    }

    /// Whether our checker can read a pattern: one that it cannot would cost the whole schema.
    fn can_compile(&mut self, pattern: &str) -> bool {
        if let Some(known) = self.compilable_patterns.get(pattern) {
            return *known;
        }
        self.spend(WORK_PER_PATTERN);
        let options = PatternOptions::fancy_regex().size_limit(MAX_PATTERN_SIZE);
        let compiles = pattern.len() <= MAX_PATTERN_LEN
            && !self.is_exhausted()
            && jsonschema::options().with_pattern_options(options).build(&json!({ "pattern": pattern })).is_ok();
        self.compilable_patterns.insert(pattern.to_owned(), compiles);
        compiles
    }
}

fn is_name_char(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || matches!(letter, '_' | '-' | '.')
}

#[cfg(test)]
mod tests;
