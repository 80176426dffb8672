//! Component schemas that extend others by `allOf`. A `discriminator` in the extended schema selects one of them:
//!
//! ```text
//! Pet: { discriminator: { propertyName: kind } }     Cat: { allOf: [Pet, …] }     Dog: { allOf: [Pet, …] }
//! ```
//!
//! A reference to `Pet` as a value means any of the three; in `allOf` of `Cat` it means the fields of `Pet` alone.

use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use serde_json::Value;
use toolcrib_core::json::escape_pointer_token;
use toolcrib_schema::{array_at, reference_text};

use super::super::convert::object_members;
use super::super::document_set::{DocumentSet, NodeRef};
use super::super::object_schema::STEPS_PER_REFERENCE;

/// Maximum number of schemas that extend one schema, directly or not. A schema with more of them, such as the common
/// base of a whole API, would make each schema that refers to it too large.
const MAX_SUBTYPES: usize = 32;
/// Maximum number of schemas and references that are read. In a document with more of them, no schema has subtypes.
const MAX_STEPS: u64 = 1_000_000;

/// A schema of a document that has a name.
#[derive(Debug, Clone)]
pub(super) struct ComponentSchema<'a> {
    pub(super) name: &'a str,
    pub(super) node: NodeRef<'a>,
    /// Absolute URL with a JSON pointer.
    pub(super) url: String,
}

/// Named schemas by the schemas that they extend.
#[derive(Debug, Default)]
pub(super) struct SchemaHierarchy<'a> {
    /// Direct subtypes by the address of the extended schema.
    subtypes: HashMap<*const Value, Vec<ComponentSchema<'a>>>,
    /// Addresses of a named schema and of one that it extends directly.
    extensions: HashSet<(*const Value, *const Value)>,
    /// All subtypes, direct or not, by the address of the extended schema. Collected on first use.
    all_subtypes: HashMap<*const Value, Rc<[ComponentSchema<'a>]>>,
    /// Number of schemas and references read.
    pub(super) steps: u64,
}

impl<'a> SchemaHierarchy<'a> {
    /// Reads the named schemas of all documents.
    pub(super) fn from_documents(documents: &'a DocumentSet) -> SchemaHierarchy<'a> {
        let mut hierarchy = SchemaHierarchy::default();
        let null = &Value::Null;
        for root in documents.roots() {
            let components = root.value.get("components").unwrap_or(null);
            let current = object_members(components, "schemas").map(|entry| ("/components/schemas/", entry));
            let swagger = object_members(root.value, "definitions").map(|entry| ("/definitions/", entry));
            for (parent, (name, value)) in current.chain(swagger) {
                hierarchy.steps += 1;
                if hierarchy.steps > MAX_STEPS {
                    return SchemaHierarchy { steps: hierarchy.steps, ..SchemaHierarchy::default() };
                }
                for member in array_at(value, "allOf") {
                    let Some(reference) = reference_text(member) else { continue };
                    hierarchy.steps += STEPS_PER_REFERENCE;
                    let target = documents.resolve_reference(reference, root.document_url);
                    let Ok(target) = target.and_then(|(target, _)| documents.resolve(target)) else { continue };
                    hierarchy.extensions.insert((std::ptr::from_ref(value), std::ptr::from_ref(target.value)));
                    let url = format!("{}#{parent}{}", root.document_url, escape_pointer_token(name));
                    let subtypes = hierarchy.subtypes.entry(std::ptr::from_ref(target.value)).or_default();
                    subtypes.push(ComponentSchema { name, node: NodeRef { value, ..root }, url });
                }
            }
        }
        hierarchy
    }

    /// Returns whether a named schema extends another directly.
    pub(super) fn extends(&self, schema: &Value, base: &Value) -> bool {
        self.extensions.contains(&(std::ptr::from_ref(schema), std::ptr::from_ref(base)))
    }

    /// Returns all schemas that extend a schema, directly or not; none if they are too many.
    pub(super) fn subtypes(&mut self, base: &Value) -> Rc<[ComponentSchema<'a>]> {
        let base = std::ptr::from_ref(base);
        if let Some(cached) = self.all_subtypes.get(&base) {
            return cached.clone();
        }
        let all: Rc<[ComponentSchema<'a>]> = self.collect_subtypes(base).unwrap_or_default().into();
        self.all_subtypes.insert(base, all.clone());
        all
    }

    /// Collects the schemas that extend a schema. Returns `None` if they are too many.
    fn collect_subtypes(&self, base: *const Value) -> Option<Vec<ComponentSchema<'a>>> {
        let mut visited = HashSet::from([base]);
        let mut all: Vec<ComponentSchema<'a>> = Vec::new();
        let mut pending = vec![base];
        while let Some(base) = pending.pop() {
            for subtype in self.subtypes.get(&base).into_iter().flatten() {
                let address = std::ptr::from_ref(subtype.node.value);
                if !visited.insert(address) {
                    continue;
                }
                if all.len() >= MAX_SUBTYPES {
                    return None;
                }
                all.push(subtype.clone());
                pending.push(address);
            }
        }
        Some(all)
    }
}
