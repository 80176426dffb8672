//! Translates `oneOf` and `anyOf`, with the variant that a `discriminator` assigns to each value of its property.
//!
//! ```text
//! oneOf: [Cat, Dog], discriminator: { propertyName: kind, mapping: { cat: Cat } }
//!   ->  anyOf: [{ properties: { kind: { const: cat } }, allOf: [Cat] }, { properties: { kind: { const: Dog } }, … }]
//! ```
//!
//! The constants make the discriminator visible to agents and to validators that do not know the keyword. `oneOf`
//! becomes `anyOf`: variants of real documents overlap, and such a value must not be rejected.

use serde_json::{Map, Value, json};
use toolcrib_schema::reference_text;

use super::super::super::document_set::NodeRef;
use super::super::BYTES_PER_WORK;
use super::Translation;

/// Maximum number of entries of a `mapping` that are read.
const MAX_MAPPING_ENTRIES: usize = 1_000;

/// Discriminator of a list of variants.
struct Discriminator<'a> {
    /// Property whose value selects the variant.
    property: &'a str,
    /// Values of the property by the schema that they select.
    mapping: Vec<(&'a str, *const Value)>,
}

impl<'a> Translation<'_, 'a> {
    /// Translates a non-empty list of variants.
    pub(super) fn translate_variants(
        &mut self,
        value: &'a Value,
        fields: &'a Map<String, Value>,
        node: NodeRef<'a>,
        depth: usize,
    ) -> Option<Value> {
        let items = value.as_array().filter(|items| !items.is_empty())?;
        let discriminator = fields.get("discriminator").and_then(|value| self.read_discriminator(value, node));
        let variants = items.iter().map(|value| {
            let variant = NodeRef { value, ..node };
            let translated = self.translate(variant, depth + 1);
            match &discriminator {
                Some(discriminator) => self.add_discriminator(discriminator, variant, translated),
                None => translated,
            }
        });
        Some(variants.collect())
    }

    /// Reads a Discriminator Object and resolves its mapping. Entries that cannot be resolved are ignored.
    fn read_discriminator(&mut self, value: &'a Value, node: NodeRef<'a>) -> Option<Discriminator<'a>> {
        let property = value.get("propertyName").and_then(Value::as_str)?;
        let entries = value.get("mapping").and_then(Value::as_object).into_iter().flatten().take(MAX_MAPPING_ENTRIES);
        let mut mapping = Vec::new();
        for (value, target) in entries.filter_map(|(value, target)| Some((value.as_str(), target.as_str()?))) {
            self.translator.spend(1);
            let documents = self.translator.documents;
            // A bare name stands for a component, else for a document beside this one.
            let component = (!target.contains(['#', '/'])).then(|| format!("#/components/schemas/{target}"));
            let component = component.and_then(|name| documents.resolve_reference(&name, node.document_url).ok());
            let schema = component.or_else(|| documents.resolve_reference(target, node.document_url).ok());
            mapping.extend(schema.map(|(schema, _)| (value, std::ptr::from_ref(schema.value))));
        }
        Some(Discriminator { property, mapping })
    }

    /// Restricts the discriminating property of a variant to the values that select it.
    fn add_discriminator(
        &mut self,
        discriminator: &Discriminator<'a>,
        variant: NodeRef<'a>,
        translated: Value,
    ) -> Value {
        let Some(reference) = reference_text(variant.value) else { return translated };
        let Ok((target, _)) = self.translator.documents.resolve_reference(reference, variant.document_url) else {
            return translated;
        };
        // The values of the variant's own schema are what the server checks, whatever the mapping says.
        if self.restricts_values(variant, discriminator.property) {
            return translated;
        }
        self.translator.spend((discriminator.mapping.len() / BYTES_PER_WORK) as u64);
        let mapped = discriminator.mapping.iter().filter(|(_, schema)| std::ptr::eq(*schema, target.value));
        let mut values: Vec<&str> = mapped.map(|(value, _)| *value).collect();
        // Without a mapping, the value is the name of the schema.
        if values.is_empty() {
            values.extend(reference.rsplit('/').next().filter(|name| !name.is_empty()));
        }
        let property = match values[..] {
            [] => return translated,
            [value] => json!({ "const": value }),
            _ => json!({ "enum": values }),
        };
        let mut properties = Map::new();
        properties.insert(discriminator.property.to_owned(), property);
        json!({ "properties": properties, "allOf": [translated] })
    }

    /// Returns whether the schema of a property lists its values.
    fn restricts_values(&mut self, variant: NodeRef<'a>, property: &str) -> bool {
        let Some(property) = self.translator.object_schema(variant).properties.get(property).copied() else {
            return false;
        };
        let resolved = self.translator.documents.resolve(property);
        resolved.is_ok_and(|node| node.value.get("const").is_some() || node.value.get("enum").is_some())
    }
}

/// Renames `oneOf` to `anyOf`. Beside an `anyOf`, it becomes a member of `allOf`.
pub(super) fn relax_one_of(output: &mut Map<String, Value>) {
    // Keeps the position of the keyword.
    let Some(position) = output.keys().position(|key| key == "oneOf") else { return };
    let Some(variants) = output.shift_remove("oneOf") else { return };
    if !output.contains_key("anyOf") {
        output.shift_insert(position, "anyOf".into(), variants);
        return;
    }
    let members = output.entry("allOf").or_insert_with(|| json!([]));
    if let Value::Array(members) = members {
        members.push(json!({ "anyOf": variants }));
    }
}
