//! Collects the properties and required names of an object schema through references and `allOf`. Each schema is read
//! once, however often and circularly others refer to it. Used where the converter needs single properties: form
//! fields, and properties that one direction hides.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use serde_json::Value;
use toolcrib_schema::{array_at, reference_text};

use super::convert::object_members;
use super::document_set::{DocumentSet, NodeRef};

/// Properties of an object schema with all that it extends.
#[derive(Debug, Default)]
pub(super) struct ObjectSchema<'a> {
    pub(super) properties: BTreeMap<String, NodeRef<'a>>,
    /// Names that any of the schemas requires.
    pub(super) required: BTreeSet<String>,
    /// Number of schemas and properties read. Schemas that extend one another by the thousand are each gathered again,
    /// so that callers that gather many charge it to their budget.
    pub(super) steps: u64,
}

/// Steps charged for a reference: following one takes about as long as reading eight properties.
pub(super) const STEPS_PER_REFERENCE: u64 = 8;

impl<'a> ObjectSchema<'a> {
    /// Collects the properties of a schema. Of several schemas with a property, the first counts.
    pub(super) fn collect(documents: &'a DocumentSet, schema: NodeRef<'a>) -> ObjectSchema<'a> {
        let mut object = ObjectSchema::default();
        let steps = visit_layers(documents, schema, |node| {
            for (name, value) in object_members(node.value, "properties") {
                object.steps += 1;
                object.properties.entry(name.clone()).or_insert(NodeRef { value, ..node });
            }
            let required = array_at(node.value, "required");
            object.steps += required.len() as u64;
            let required = required.iter();
            object.required.extend(required.filter_map(Value::as_str).map(str::to_owned));
        });
        object.steps += steps;
        object
    }
}

/// Visits a schema and all that it extends, each once, and returns the number of steps.
pub(super) fn visit_layers<'a>(
    documents: &'a DocumentSet,
    schema: NodeRef<'a>,
    mut visit: impl FnMut(NodeRef<'a>),
) -> u64 {
    let mut steps = 0;
    let mut visited: HashSet<*const Value> = HashSet::new();
    let mut pending = vec![schema];
    while let Some(node) = pending.pop() {
        steps += if reference_text(node.value).is_some() { STEPS_PER_REFERENCE } else { 1 };
        // An unresolvable part is reported where the schema is translated.
        let Ok(node) = documents.resolve(node) else { continue };
        if !visited.insert(std::ptr::from_ref(node.value)) {
            continue;
        }
        visit(node);
        // Reversed, because the last one pushed is read first.
        let members = array_at(node.value, "allOf").iter().rev();
        pending.extend(members.map(|value| NodeRef { value, ..node }));
    }
    steps
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use url::Url;

    use super::*;

    #[test]
    fn a_schema_that_refers_to_itself_is_read_once() {
        let self_reference = json!({ "$ref": "#/a" });
        let root =
            json!({ "a": { "allOf": vec![self_reference; 30], "properties": { "x": {} }, "required": ["x", "y"] } });
        let documents = DocumentSet::new(Url::parse("http://h/").unwrap(), root);
        let root = documents.root().unwrap();
        let object = ObjectSchema::collect(&documents, NodeRef { value: &root.value["a"], ..root });
        assert_eq!(object.properties.keys().collect::<Vec<_>>(), ["x"]);
        assert_eq!(object.required.len(), 2);
    }
}
