//! Translates the schemas of a document into JSON Schema 2020-12. Each definition is translated once and shared. The
//! schema of an operation is then assembled from the definitions it needs, with cycles in `$defs`, and pruned if it is
//! too large to be listed.
//!
//! ```text
//! translate      one schema, keyword by keyword (keyword_fixes corrects values)
//! discriminator  values that select each variant of a schema
//! hierarchy      schemas that extend others
//! gather         definitions of an operation: inlined or in `$defs`
//! prune          a shorter schema for lists
//! ```
//!
//! Sharing is what makes large documents affordable: inlining all references of one real document turned 778 KiB into
//! 71 MiB.

mod translate;

mod discriminator;
mod gather;
mod hierarchy;
mod keyword_fixes;
mod prune;

use std::collections::HashMap;
use std::rc::Rc;

use serde_json::Value;
use toolcrib_core::fingerprint::Fingerprint;
use toolcrib_schema::{can_compile_pattern, referenced_definition};

use super::document_set::{DocumentSet, NodeRef};
use super::object_schema::ObjectSchema;
use crate::expression::approximate_size;

pub(super) use gather::AssembledSchema;
use hierarchy::{ComponentSchema, SchemaHierarchy};

/// Direction of a value. `readOnly` properties are no part of a request, `writeOnly` ones no part of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Direction {
    Request,
    Response,
}

/// Dialect of the schemas of a document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SchemaDialect {
    /// Swagger 2.0 and OpenAPI 3.0: `nullable`, boolean bounds, nothing beside a `$ref`.
    OpenApi30,
    /// OpenAPI 3.1 and later: JSON Schema.
    JsonSchema,
}

/// Meaning of a definition, which depends on the reference to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum DefinitionForm {
    /// Any value of the schema. If it has a discriminator, the value is one of the variants.
    Value,
    /// The keywords that a schema shares with those that extend it, without variants.
    Base,
}

/// Translates schemas, with caches and a work limit for one document.
#[derive(Debug)]
pub(super) struct SchemaTranslator<'a> {
    documents: &'a DocumentSet,
    dialect: SchemaDialect,
    /// Names of definitions by the absolute URL of a `$ref`.
    names: HashMap<(String, DefinitionForm), Rc<str>>,
    /// Sources of the definitions, by name.
    targets: HashMap<Rc<str>, DefinitionTarget<'a>>,
    /// Translated definitions.
    definitions: HashMap<(Direction, DefinitionForm, Rc<str>), Rc<TranslatedSchema>>,
    /// Read when the first discriminator is translated.
    hierarchy: Option<SchemaHierarchy<'a>>,
    /// Whether each pattern compiles.
    compilable_patterns: HashMap<String, bool>,
    /// Whether each property is written by the other side only.
    hidden_properties: HashMap<(Direction, *const Value), bool>,
    /// Work of reading each value.
    read_costs: HashMap<*const Value, u64>,
    /// Faults in shared definitions: pointer and reason.
    pub(super) faults: Vec<(String, String)>,
    /// In units of reading one schema; compared with `work_limit`.
    work_done: u64,
    work_limit: u64,
}

/// Source of a definition.
#[derive(Debug, Clone)]
struct DefinitionTarget<'a> {
    node: NodeRef<'a>,
    /// JSON pointer within its document.
    pointer: String,
    form: DefinitionForm,
}

/// Maximum work for one document, in schemas read. Of forty real documents the largest takes 423,000, and none takes
/// more than about a thousand per operation.
const MAX_WORK: u64 = 4_000_000;
/// Additional work allowed per operation.
const WORK_PER_OPERATION: u64 = 1_000;
/// Bytes read or written that count as much as reading one schema.
const BYTES_PER_WORK: usize = 64;
/// Work of compiling a pattern: about as long as reading a thousand schemas.
const WORK_PER_PATTERN: u64 = 1_000;
/// Maximum length of a pattern; longer ones are dropped. Without the pattern, the schema accepts more, and the server
/// decides.
const MAX_PATTERN_LEN: usize = 2_000;
/// Maximum size of a compiled pattern. A few bytes can compile to megabytes, and take a second for it.
const MAX_PATTERN_SIZE: usize = 1024 * 1024;

/// A translated schema. References are `#/$defs/NAME`.
#[derive(Debug, Clone)]
pub(super) struct TranslatedSchema {
    pub(super) value: Value,
    /// Names of the definitions it refers to, with repetitions.
    pub(super) references: Vec<Rc<str>>,
    /// Length and nesting depth of its JSON text.
    size: usize,
    depth: usize,
}

impl TranslatedSchema {
    /// Returns the schema that accepts anything.
    pub(super) fn any() -> TranslatedSchema {
        TranslatedSchema::without_references(serde_json::json!({}))
    }

    /// Returns a schema without references.
    pub(super) fn without_references(value: Value) -> TranslatedSchema {
        TranslatedSchema::with_references(value, Vec::new())
    }

    /// Returns a schema with references to these definitions.
    pub(super) fn with_references(value: Value, references: Vec<Rc<str>>) -> TranslatedSchema {
        let text = value.to_string();
        TranslatedSchema { size: text.len(), depth: toolcrib_core::json::nesting_depth(&text), value, references }
    }
}

impl<'a> SchemaTranslator<'a> {
    /// Creates a translator for a document with this many operations.
    pub(super) fn new(documents: &'a DocumentSet, dialect: SchemaDialect, operations: usize) -> SchemaTranslator<'a> {
        SchemaTranslator {
            documents,
            dialect,
            names: HashMap::new(),
            targets: HashMap::new(),
            definitions: HashMap::new(),
            hierarchy: None,
            compilable_patterns: HashMap::new(),
            hidden_properties: HashMap::new(),
            read_costs: HashMap::new(),
            faults: Vec::new(),
            work_done: 0,
            work_limit: MAX_WORK + operations as u64 * WORK_PER_OPERATION,
        }
    }

    /// Charges one schema and returns whether the limit allows it.
    fn charge_schema(&mut self) -> bool {
        // Counted even when refused, so that `is_exhausted` holds from then on.
        self.work_done += 1;
        self.work_done <= self.work_limit
    }

    /// Charges other work.
    fn spend(&mut self, work: u64) {
        self.work_done = self.work_done.saturating_add(work);
    }

    /// Charges reading a value. Operations share path items, parameters and bodies by reference: a document of a
    /// megabyte can have ten thousand operations that each read half of it.
    pub(super) fn charge_reading(&mut self, value: &Value) {
        let compute = || (approximate_size(value) / BYTES_PER_WORK) as u64;
        let work = *self.read_costs.entry(std::ptr::from_ref(value)).or_insert_with(compute);
        self.spend(work);
    }

    /// Returns the properties of a schema with all that it extends.
    pub(super) fn object_schema(&mut self, node: NodeRef<'a>) -> ObjectSchema<'a> {
        if self.is_exhausted() {
            return ObjectSchema::default();
        }
        let object = ObjectSchema::collect(self.documents, node);
        self.spend(object.steps);
        object
    }

    /// Returns whether the work limit was exceeded.
    pub(super) fn is_exhausted(&self) -> bool {
        self.work_done > self.work_limit
    }

    /// Translates a schema of an operation. Adds its faults to `faults`.
    pub(super) fn translate(
        &mut self,
        node: NodeRef<'a>,
        direction: Direction,
        faults: &mut Vec<String>,
    ) -> TranslatedSchema {
        self.charge_reading(node.value);
        translate::translate_schema(self, node, direction, faults)
    }

    /// Makes a schema a definition of its own, so that it can be used several times, and returns a reference to it. A
    /// short one is inlined again when the schema of the operation is assembled.
    pub(super) fn define(&mut self, prefix: &str, direction: Direction, schema: &TranslatedSchema) -> TranslatedSchema {
        let is_reference = schema.value.as_object().is_some_and(|fields| referenced_definition(fields).is_some());
        if is_reference || schema.value == serde_json::json!({}) {
            return schema.clone();
        }
        let name: Rc<str> = format!("{prefix}_{}", Fingerprint::digest(schema.value.to_string()).short_hex(12)).into();
        let schema = Rc::new(schema.clone());
        for form in [DefinitionForm::Value, DefinitionForm::Base] {
            self.definitions.insert((direction, form, name.clone()), schema.clone());
        }
        TranslatedSchema::with_references(serde_json::json!({ "$ref": format!("#/$defs/{name}") }), vec![name])
    }

    /// Returns a translated definition. Translates it on first use. With the base form, variants that only subtypes
    /// define are left out.
    fn definition(
        &mut self,
        name: &Rc<str>,
        direction: Direction,
        form: DefinitionForm,
    ) -> Option<Rc<TranslatedSchema>> {
        let key = |form| (direction, form, name.clone());
        if let Some(cached) = self.definitions.get(&key(form)) {
            return Some(cached.clone());
        }
        let target = self.targets.get(name)?.clone();
        let has_both_forms = target.form == DefinitionForm::Value && self.is_defined_by_subtypes(target.node);
        let actual_form = if has_both_forms { form } else { target.form };
        let translated = match self.definitions.get(&key(actual_form)) {
            Some(cached) => cached.clone(),
            None => {
                // References to other definitions are only recorded, so a cycle does not recurse here.
                let mut faults = Vec::new();
                let translated = translate::translate_definition(self, &target, actual_form, direction, &mut faults);
                self.faults.extend(faults.into_iter().map(|reason| (target.pointer.clone(), reason)));
                Rc::new(translated)
            }
        };
        self.definitions.insert(key(actual_form), translated.clone());
        self.definitions.insert(key(form), translated.clone());
        Some(translated)
    }

    /// Returns the schemas that extend a schema with a discriminator.
    fn subtypes(&mut self, base: NodeRef<'a>) -> Rc<[ComponentSchema<'a>]> {
        if base.value.get("discriminator").is_none_or(|value| !value.is_string() && !value.is_object()) {
            return Rc::default();
        }
        self.hierarchy().subtypes(base.value)
    }

    /// Returns whether the variants of a schema are those that extend it, because it lists none itself.
    fn is_defined_by_subtypes(&mut self, schema: NodeRef<'a>) -> bool {
        let lists_variants = ["oneOf", "anyOf"].iter().any(|key| schema.value.get(key).is_some());
        !lists_variants && !self.subtypes(schema).is_empty()
    }

    /// Returns the hierarchy of named schemas. Reads it on first use.
    fn hierarchy(&mut self) -> &mut SchemaHierarchy<'a> {
        if self.hierarchy.is_none() {
            let hierarchy = SchemaHierarchy::from_documents(self.documents);
            self.spend(hierarchy.steps);
            self.hierarchy = Some(hierarchy);
        }
        self.hierarchy.get_or_insert_default()
    }

    /// Returns the name of a definition in our schemas: its own, unless that is invalid or ambiguous.
    fn definition_name(&mut self, node: NodeRef<'a>, url: String, form: DefinitionForm) -> Rc<str> {
        let key = (url, form);
        if let Some(name) = self.names.get(&key) {
            return name.clone();
        }
        let (url, _) = &key;
        let pointer = url.split_once('#').map_or("", |(_, pointer)| pointer);
        // The last token of the pointer is usually the name that the author chose.
        let last_token = pointer.rsplit('/').next().unwrap_or_default();
        let sanitized: String = last_token
            .chars()
            .map(|character| if is_name_char(character) { character } else { '_' })
            .take(48)
            .collect();
        let parent = pointer.strip_suffix(last_token).unwrap_or_default();
        let is_component = matches!(parent, "/components/schemas/" | "/definitions/") && sanitized == last_token;
        let is_in_root = node.document_url == self.documents.root_url().as_str();
        // A hash of the URL tells definitions apart that would get the same name.
        let hash = || Fingerprint::digest(url).short_hex(6);
        let name: Rc<str> = match form {
            DefinitionForm::Base => format!("{sanitized}_base_{}", hash()).into(),
            DefinitionForm::Value if is_component && is_in_root && !sanitized.is_empty() => sanitized.into(),
            DefinitionForm::Value => format!("{sanitized}_{}", hash()).into(),
        };
        let pointer = format!("#{pointer}");
        self.names.insert(key, name.clone());
        self.targets.insert(name.clone(), DefinitionTarget { node, pointer, form });
        name
    }

    /// Returns whether only the other side writes a property.
    fn is_hidden(&mut self, property: NodeRef<'a>, direction: Direction) -> bool {
        let key = (direction, std::ptr::from_ref(property.value));
        if let Some(seen) = self.hidden_properties.get(&key) {
            return *seen;
        }
        // Properties that only the server writes are no part of a request, and the reverse.
        let flag = match direction {
            Direction::Request => "readOnly",
            Direction::Response => "writeOnly",
        };
        // The flag may be beside a reference or in its target.
        let has_flag = |value: &Value| value.get(flag) == Some(&Value::Bool(true));
        let hidden =
            has_flag(property.value) || self.documents.resolve(property).is_ok_and(|node| has_flag(node.value));
        self.hidden_properties.insert(key, hidden);
        hidden
    }

    /// Returns whether the validator can compile a pattern. One that it cannot would invalidate the whole schema.
    fn can_compile(&mut self, pattern: &str) -> bool {
        if let Some(cached) = self.compilable_patterns.get(pattern) {
            return *cached;
        }
        self.spend(WORK_PER_PATTERN);
        let compiles =
            pattern.len() <= MAX_PATTERN_LEN && !self.is_exhausted() && can_compile_pattern(pattern, MAX_PATTERN_SIZE);
        self.compilable_patterns.insert(pattern.to_owned(), compiles);
        compiles
    }
}

/// Returns whether a character needs no escaping in a `$ref`.
fn is_name_char(character: char) -> bool {
    character.is_ascii_alphanumeric() || matches!(character, '_' | '-' | '.')
}

#[cfg(test)]
mod tests;
