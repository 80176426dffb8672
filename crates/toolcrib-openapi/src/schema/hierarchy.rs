//! Component schemas that extend others by `allOf`. A `discriminator` in the extended schema selects one of them:
//!
//! ```text
//! Pet: { discriminator: { propertyName: kind } }     Cat: { allOf: [Pet, …] }     Dog: { allOf: [Pet, …] }
//! ```
//!
//! A reference to `Pet` as a value means any of the three; in `allOf` of `Cat` it means the fields of `Pet` alone. A named
//! schema may be a reference to the schema that extends another, as in documents that are split over files.

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
    /// The schema at the end of all references.
    pub(super) resolved: NodeRef<'a>,
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
        // A schema is known by its own name rather than by that of an alias, so aliases are read last.
        for is_alias in [false, true] {
            for schema in documents.roots().flat_map(named_schemas) {
                if reference_text(schema.node.value).is_some() == is_alias {
                    hierarchy.add(schema, documents);
                }
                if hierarchy.steps > MAX_STEPS {
                    return SchemaHierarchy { steps: hierarchy.steps, ..SchemaHierarchy::default() };
                }
            }
        }
        hierarchy
    }

    /// Adds a named schema to the subtypes of those that it extends.
    fn add(&mut self, schema: SchemaEntry<'a>, documents: &'a DocumentSet) {
        let SchemaEntry { parent, name, node } = schema;
        self.steps += if reference_text(node.value).is_some() { STEPS_PER_REFERENCE } else { 1 };
        let Ok(resolved) = documents.resolve(node) else { return };
        for value in array_at(resolved.value, "allOf").iter().filter(|member| reference_text(member).is_some()) {
            self.steps += STEPS_PER_REFERENCE;
            if self.steps > MAX_STEPS {
                return;
            }
            let Ok(target) = documents.resolve(NodeRef { value, ..resolved }) else { continue };
            let target = std::ptr::from_ref(target.value);
            if self.extensions.insert((std::ptr::from_ref(resolved.value), target)) {
                let url = format!("{}#{parent}{}", node.document_url, escape_pointer_token(name));
                self.subtypes.entry(target).or_default().push(ComponentSchema { name, node, resolved, url });
            }
        }
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
                let address = std::ptr::from_ref(subtype.resolved.value);
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

/// A schema with a name, in the part of a document for such schemas.
struct SchemaEntry<'a> {
    /// JSON pointer of the part, with a slash at the end.
    parent: &'static str,
    name: &'a str,
    node: NodeRef<'a>,
}

/// Returns the named schemas of a document.
fn named_schemas(root: NodeRef<'_>) -> impl Iterator<Item = SchemaEntry<'_>> {
    let components = root.value.get("components").unwrap_or(&Value::Null);
    let current = object_members(components, "schemas").map(|entry| ("/components/schemas/", entry));
    let swagger = object_members(root.value, "definitions").map(|entry| ("/definitions/", entry));
    let all = current.chain(swagger);
    all.map(move |(parent, (name, value))| SchemaEntry { parent, name, node: NodeRef { value, ..root } })
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use url::Url;

    use super::*;

    /// The limit was not checked within a schema, and each equal reference added a subtype.
    #[test]
    fn equal_references_of_a_schema_are_limited_and_count_once() {
        let read = |count: usize| {
            let base = json!({ "$ref": "#/components/schemas/Base" });
            let schemas = json!({ "Base": {}, "Sub": { "allOf": vec![base; count] } });
            let documents =
                DocumentSet::new(Url::parse("http://h/").unwrap(), json!({ "components": { "schemas": schemas } }));
            let hierarchy = SchemaHierarchy::from_documents(&documents);
            (hierarchy.subtypes.values().map(Vec::len).sum::<usize>(), hierarchy.steps)
        };
        assert_eq!(read(3), (1, 2 + 3 * STEPS_PER_REFERENCE));
        let (subtypes, steps) = read(300_000);
        assert_eq!(subtypes, 0);
        assert!(steps <= MAX_STEPS + STEPS_PER_REFERENCE, "{steps}");
    }
}
