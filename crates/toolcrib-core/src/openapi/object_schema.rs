//! The properties of an object and what it requires, through references and `allOf`: each schema is looked at once,
//! however often and however circularly it is named.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use serde_json::Value;

use super::convert::object_members;
use super::document_set::{DocumentSet, NodeRef, reference_target};

#[derive(Debug, Default)]
pub(super) struct ObjectSchema<'a> {
    pub(super) properties: BTreeMap<String, NodeRef<'a>>,
    pub(super) required: BTreeSet<String>,
    /// Number of schemas and properties read. Schemas that extend one another by the thousand are each gathered again,
    /// so that callers that gather many charge it to their budget.
    pub(super) steps: u64,
    visited: HashSet<*const Value>,
}

/// Following a reference takes about as long as looking at so many properties.
const STEPS_PER_REFERENCE: u64 = 8;

impl<'a> ObjectSchema<'a> {
    pub(super) fn collect(library: &'a DocumentSet, schema: NodeRef<'a>) -> ObjectSchema<'a> {
        let mut object = ObjectSchema::default();
        let mut waiting = vec![schema];
        while let Some(at) = waiting.pop() {
            object.steps += if reference_target(at.value).is_some() { STEPS_PER_REFERENCE } else { 1 };
            let Ok(at) = library.resolve(at) else { continue };
            if !object.visited.insert(std::ptr::from_ref(at.value)) {
                continue;
            }
            for (name, value) in object_members(at.value, "properties") {
                object.steps += 1;
                object.properties.entry(name.clone()).or_insert(NodeRef { value, ..at });
            }
            let required = at.value.get("required").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
            object.steps += required.len() as u64;
            let required = required.iter();
            object.required.extend(required.filter_map(Value::as_str).map(str::to_owned));
            let all = at.value.get("allOf").and_then(Value::as_array).into_iter().flatten().rev();
            waiting.extend(all.map(|value| NodeRef { value, ..at }));
        }
        object
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use url::Url;

    use super::*;

    #[test]
    fn a_schema_that_names_itself_is_looked_at_once() {
        let own = json!({ "$ref": "#/a" });
        let root = json!({ "a": { "allOf": vec![own; 30], "properties": { "x": {} }, "required": ["x", "y"] } });
        let library = DocumentSet::new(Url::parse("http://h/").unwrap(), root);
        let root = library.root().unwrap();
        let object = ObjectSchema::collect(&library, NodeRef { value: &root.value["a"], ..root });
        assert_eq!(object.properties.keys().collect::<Vec<_>>(), ["x"]);
        assert_eq!(object.required.len(), 2);
    }
}
