//! Translates `oneOf` and `anyOf`, with the variant that a `discriminator` assigns to each value of its property.
//!
//! ```text
//! oneOf: [Cat, Dog], discriminator: { propertyName: kind, mapping: { cat: Cat } }
//!   ->  anyOf: [{ properties: { kind: { const: cat } }, allOf: [Cat] }, { properties: { kind: { const: Dog } }, … }]
//! ```
//!
//! The constants make the discriminator visible to agents and to validators that do not know the keyword. `oneOf`
//! becomes `anyOf`: variants of real documents overlap, and such a value must not be rejected.
//!
//! A schema with a `discriminator` and without `oneOf` has those as its variants that extend it. A value that selects
//! none of them is valid if the schema itself accepts it: documents do not name every value.

use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value, json};
use toolcrib_schema::{declared_types, definition_reference, reference_text};

use super::super::super::document_set::NodeRef;
use super::super::discriminator::{Selection, Variant, VariantOrigin, is_union};
use super::super::{DefinitionForm, DefinitionTarget};
use super::{Translation, allow_null, description_entry, is_nullable};

impl<'a> Translation<'_, 'a> {
    /// Translates a non-empty list of variants.
    pub(super) fn translate_variants(&mut self, value: &'a Value, node: NodeRef<'a>, depth: usize) -> Option<Value> {
        let items = value.as_array().filter(|items| !items.is_empty())?;
        let translated: Vec<Value> =
            items.iter().map(|value| self.translate(NodeRef { value, ..node }, depth + 1)).collect();
        let mut variants: Vec<Option<Variant<'a>>> = Vec::with_capacity(items.len());
        for value in items {
            variants.push(self.translator.find_variant(NodeRef { value, ..node }));
        }
        let discriminator = match node.value.get("discriminator") {
            Some(_) => self.translator.read_discriminator(node),
            None => self.translator.inherited_discriminator(&variants),
        };
        let Some(discriminator) = discriminator else { return Some(translated.into()) };
        let is_inherited = node.value.get("discriminator").is_none();
        let origin = if is_inherited { VariantOrigin::InheritingUnion } else { VariantOrigin::Union };
        let mut selections = self.translator.select_variants(&discriminator, &variants, &origin, self.direction);
        let default = self.translator.default_variant(&discriminator, &variants);
        let default_selection = default.map(|index| std::mem::take(&mut selections[index]));
        let selecting: Vec<Value> = match default_selection {
            // Its own enum restricts it already.
            Some(Selection { is_declared: true, .. }) | None => Vec::new(),
            Some(_) => selections.iter().flat_map(|selection| selection.values.iter().cloned()).collect(),
        };
        let restricted = translated.into_iter().zip(selections).enumerate().map(|(index, (translated, selection))| {
            if default == Some(index) && !selecting.is_empty() {
                return other_values(discriminator.property, &selecting, translated);
            }
            match values_schema(selection.values).filter(|_| !selection.is_declared) {
                Some(schema) => with_property(discriminator.property, schema, translated),
                None => translated,
            }
        });
        Some(restricted.collect())
    }

    /// Translates a schema whose variants are the schemas that extend it. Returns `None` if no value selects any of
    /// them.
    pub(super) fn translate_subtypes(&mut self, target: &DefinitionTarget<'a>) -> Option<Value> {
        let base = target.node;
        let discriminator = self.translator.read_discriminator(base)?;
        let subtypes = self.translator.subtypes(base);
        let mut variants = Vec::with_capacity(subtypes.len());
        for subtype in subtypes.iter() {
            variants.push(self.translator.named_variant(subtype));
        }
        let listed = self.translator.listed_values(base, discriminator.property, self.direction);
        let inherited: Option<HashSet<String>> = listed.map(|listed| listed.iter().map(Value::to_string).collect());
        let origin = VariantOrigin::Subtypes { inherited: inherited.clone() };
        let selections = self.translator.select_variants(&discriminator, &variants, &origin, self.direction);
        // A value that several variants list selects none of them.
        let mut uses: HashMap<String, usize> = HashMap::new();
        for value in selections.iter().flat_map(|selection| &selection.values) {
            *uses.entry(value.to_string()).or_default() += 1;
        }
        let mut members = Vec::new();
        let mut selecting: Vec<Value> = Vec::new();
        let default = self.translator.default_variant(&discriminator, &variants);
        let mut default_reference = None;
        for (index, (subtype, mut selection)) in subtypes.iter().zip(selections).enumerate() {
            selection.values.retain(|value| uses.get(&value.to_string()) == Some(&1));
            let is_default = default == Some(index);
            if !is_default {
                selecting.extend(selection.values.iter().cloned());
            }
            let schema = values_schema(selection.values);
            if schema.is_none() && !is_default {
                continue;
            }
            let form = self.base_form(subtype.resolved);
            let node = match form {
                DefinitionForm::Value => subtype.node,
                // An alias has all variants.
                DefinitionForm::Base => subtype.resolved,
            };
            let name = self.add_reference(node, subtype.url.clone(), form);
            let reference = json!({ "$ref": definition_reference(&name) });
            match schema.filter(|_| !is_default) {
                Some(schema) => members.push(with_property(discriminator.property, schema, reference)),
                None => default_reference = Some(reference),
            }
        }
        if members.is_empty() {
            return None;
        }
        let selects = |value: &String| uses.get(value) == Some(&1);
        let is_object = declared_types(base.value.get("type")).all(|kind| kind == "object");
        if let Some(reference) = default_reference {
            members.push(other_values(discriminator.property, &selecting, reference));
        } else if !is_object || !inherited.is_some_and(|listed| listed.iter().all(selects)) {
            let url = format!("{}{}", base.document_url, target.pointer);
            let name = self.add_reference(base, url, DefinitionForm::Base);
            let reference = json!({ "$ref": definition_reference(&name) });
            members.push(other_values(discriminator.property, &selecting, reference));
        }
        let mut output = Map::new();
        output.extend(base.value.get("description").and_then(Value::as_str).map(description_entry));
        output.insert("anyOf".into(), members.into());
        if is_nullable(base.value) {
            allow_null(&mut output);
        }
        Some(output.into())
    }

    /// Translates a member of `allOf` that `schema` extends. Returns `None` for a member without variants.
    pub(super) fn translate_base(&mut self, schema: NodeRef<'a>, member: NodeRef<'a>, depth: usize) -> Option<Value> {
        let mut reference = reference_text(member.value)?;
        let base = self.translator.documents.resolve(member).ok()?;
        let is_base = self.base_form(base) == DefinitionForm::Base
            && self.translator.hierarchy().extends(schema.value, base.value);
        if !is_base {
            return None;
        }
        // An alias of the base has all its variants, of which `schema` is one.
        let mut document_url = member.document_url;
        loop {
            let (target, url) = self.translator.documents.resolve_reference(reference, document_url).ok()?;
            match reference_text(target.value) {
                Some(next) => (reference, document_url) = (next, target.document_url),
                None => {
                    let name = self.add_reference(target, url, DefinitionForm::Base);
                    return Some(self.with_siblings(&name, member, depth));
                }
            }
        }
    }

    /// Returns the form of a schema without its variants: the base form only if it has some.
    fn base_form(&mut self, schema: NodeRef<'a>) -> DefinitionForm {
        let has_discriminator = schema.value.get("discriminator").is_some();
        if has_discriminator && (is_union(schema.value) || !self.translator.subtypes(schema).is_empty()) {
            DefinitionForm::Base
        } else {
            DefinitionForm::Value
        }
    }
}

/// Restricts a property of a schema.
fn with_property(name: &str, property: Value, schema: Value) -> Value {
    json!({ "properties": { name: property }, "allOf": [schema] })
}

/// Returns the schema of some values; `None` if there are none.
fn values_schema(mut values: Vec<Value>) -> Option<Value> {
    match values.len() {
        0 => None,
        1 => values.pop().map(|value| json!({ "const": value })),
        _ => Some(json!({ "enum": values })),
    }
}

/// Returns the variant for values of a property that select no other variant, and for values that are no objects.
fn other_values(property: &str, selecting: &[Value], schema: Value) -> Value {
    let properties = json!({ property: { "enum": selecting } });
    let selected = json!({ "type": "object", "properties": properties, "required": [property] });
    json!({ "title": format!("other {property}"), "allOf": [schema], "not": selected })
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
