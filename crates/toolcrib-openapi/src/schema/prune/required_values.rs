//! The values of required arguments, which pruning keeps: a call without one of them fails.
//!
//! They may take more bytes than the limit of the schema. Of a list that is too long even so, the description shows the
//! first values and how many there are; a shorter `enum` would reject the others.

use std::collections::{BTreeSet, HashSet};
use std::rc::Rc;

use serde_json::{Map, Value};
use toolcrib_core::json;
use toolcrib_schema::{array_keyword, referenced_definition};

use super::{PRUNED_COMMENT, Pruner, TranslatedSchema};

/// Maximum size of a schema with the values of required arguments. Below the 256 KiB that a manifest accepts.
const MAX_TOTAL_BYTES: usize = 240 * 1024;
/// Maximum size of the values that a description shows.
const MAX_SHOWN_BYTES: usize = 2 * 1024;
/// Maximum nesting of required objects below the depth at which a schema is pruned.
const MAX_NESTING: usize = 4;
/// Maximum number of schemas that are read for the values below that depth.
const MAX_READ_SCHEMAS: usize = 500;
/// Maximum number of required names of one object that are read.
const MAX_REQUIRED_NAMES: usize = 500;
/// Bytes of a note in a description without the values that it shows.
const NOTE_BYTES: usize = 120;

/// Limits of the values of required arguments in one schema.
#[derive(Debug)]
pub(super) struct RequiredValues {
    available_bytes: usize,
    /// Bytes written beyond the limit of the schema.
    pub(super) written_bytes: usize,
    readable_schemas: usize,
}

impl RequiredValues {
    /// Returns the limits for a schema of `limit` bytes: twice as much again for these values.
    pub(super) fn within(limit: usize) -> RequiredValues {
        let available_bytes = (2 * limit).min(MAX_TOTAL_BYTES.saturating_sub(limit));
        RequiredValues { available_bytes, written_bytes: 0, readable_schemas: MAX_READ_SCHEMAS }
    }

    /// Reserves the bytes of a value. Returns whether they were available.
    pub(super) fn reserve(&mut self, value: &Value) -> bool {
        // Write no more than fits: the list may have megabytes.
        self.reserve_bytes(json::truncated_json(value, self.available_bytes + 4).len())
    }

    fn reserve_bytes(&mut self, bytes: usize) -> bool {
        let fits = bytes <= self.available_bytes;
        if fits {
            self.available_bytes -= bytes;
            self.written_bytes += bytes;
        }
        fits
    }
}

/// A schema at the end of references.
enum ReadSchema<'v> {
    Inline(&'v Map<String, Value>),
    Definition(Rc<TranslatedSchema>),
}

impl ReadSchema<'_> {
    fn fields(&self) -> Option<&Map<String, Value>> {
        match self {
            ReadSchema::Inline(fields) => Some(fields),
            ReadSchema::Definition(definition) => definition.value.as_object(),
        }
    }
}

impl Pruner<'_, '_> {
    /// Adds the values of required arguments that pruning removed from a schema: those of its own `enum`, those that
    /// select its variants, and those of required properties below the depth.
    pub(super) fn restore_required_values(&mut self, fields: &Map<String, Value>, output: &mut Map<String, Value>) {
        if let (Some(Value::Array(choices)), false) = (fields.get("enum"), output.contains_key("enum")) {
            self.describe_choices(choices, output);
        }
        if output.contains_key("properties") {
            return;
        }
        let variants = ["anyOf", "oneOf"].iter().flat_map(|key| array_keyword(fields, key));
        let are_pruned = ["anyOf", "oneOf"].iter().all(|key| !output.contains_key(*key));
        let variants: Vec<&Value> = variants.filter(|_| are_pruned).collect();
        self.restore_variant_values(&variants, output);
        let is_object = ["properties", "allOf"].iter().any(|key| fields.contains_key(*key));
        if !is_object {
            return;
        }
        let members = array_keyword(output, "allOf").iter().filter_map(|member| member.get("properties")?.as_object());
        let shown: HashSet<String> = members.flat_map(|properties| properties.keys().cloned()).collect();
        let mut properties = self.variant_constants(fields);
        properties.extend(self.required_properties(fields, &shown, 0));
        if !properties.is_empty() {
            let restored = output.entry("properties").or_insert_with(|| Map::new().into());
            if let Value::Object(restored) = restored {
                restored.extend(properties);
            }
        }
    }

    /// Returns the constants that a discriminator adds to a variant, beside the `allOf` with its schema. They need no
    /// definition, so they are kept even when no more definitions are read.
    fn variant_constants(&mut self, fields: &Map<String, Value>) -> Map<String, Value> {
        let mut output = Map::new();
        let properties = fields.get("properties").and_then(Value::as_object);
        for (name, property) in properties.filter(|_| fields.contains_key("allOf")).into_iter().flatten() {
            if let Some(constant) = property.get("const")
                && self.required.reserve_bytes(name.len() + 24)
                && self.required.reserve(constant)
            {
                output.insert(name.clone(), Value::Object(Map::from_iter([("const".to_owned(), constant.clone())])));
            }
        }
        output
    }

    /// Adds the values of the property that selects a variant, in place of the variants.
    fn restore_variant_values(&mut self, variants: &[&Value], output: &mut Map<String, Value>) {
        let mut name: Option<String> = None;
        let mut values: Vec<Value> = Vec::new();
        let mut is_complete = true;
        for variant in variants {
            match self.selecting_values(variant, name.as_deref()) {
                Some((property, selecting)) => {
                    name.get_or_insert(property);
                    values.extend(selecting);
                }
                // Accepts other values, or none that are known.
                None => is_complete = false,
            }
        }
        let Some(name) = name.filter(|name| self.required.reserve_bytes(name.len() + 40)) else { return };
        let mut property = Map::new();
        let listed = Value::Array(values);
        if is_complete && self.required.reserve(&listed) {
            property.insert("enum".into(), listed);
        } else if let Value::Array(values) = &listed {
            self.describe_choices(values, &mut property);
        }
        output.insert("properties".into(), Value::Object(Map::from_iter([(name, property.into())])));
    }

    /// Returns the values of a property that select a variant: of the named one, or of the first with a constant.
    fn selecting_values(&mut self, variant: &Value, name: Option<&str>) -> Option<(String, Vec<Value>)> {
        // Variants that are no reference are not charged, because there may be thousands.
        let is_reference = referenced_definition(variant.as_object()?).is_some();
        let variant = if is_reference { self.read_schema(variant)? } else { ReadSchema::Inline(variant.as_object()?) };
        let properties = variant.fields()?.get("properties")?.as_object()?;
        let is_selecting = |property: &Value| property.get("const").is_some() || property.get("enum").is_some();
        let (name, property) = match name {
            Some(name) => properties.get_key_value(name).filter(|(_, property)| is_selecting(property))?,
            None => properties.iter().find(|(_, property)| is_selecting(property))?,
        };
        let values = match property.get("const") {
            Some(constant) => vec![constant.clone()],
            None => property.get("enum")?.as_array()?.clone(),
        };
        Some((name.clone(), values))
    }

    /// Returns the required properties of an object whose values are listed, without anything else and without those in
    /// `shown`.
    fn required_properties(
        &mut self,
        fields: &Map<String, Value>,
        shown: &HashSet<String>,
        nesting: usize,
    ) -> Map<String, Value> {
        // A member of `allOf` may require a property of another.
        let mut required: BTreeSet<String> = BTreeSet::new();
        self.visit_all_of(fields, 0, &mut |_, layer| {
            let names = array_keyword(layer, "required").iter().filter_map(Value::as_str).take(MAX_REQUIRED_NAMES);
            for name in names.filter(|name| !shown.contains(*name)) {
                // Each name is looked up in every member.
                if required.len() < MAX_REQUIRED_NAMES {
                    required.insert(name.to_owned());
                }
            }
        });
        let mut output = Map::new();
        self.visit_all_of(fields, 0, &mut |pruner, layer| {
            let Some(properties) = layer.get("properties").and_then(Value::as_object) else { return };
            for name in &required {
                let property = properties.get(name).filter(|_| !output.contains_key(name));
                let property = property.and_then(|property| pruner.required_property(property, nesting + 1));
                if let Some(property) = property.filter(|_| pruner.required.reserve_bytes(name.len() + 8)) {
                    output.insert(name.clone(), property);
                }
            }
        });
        output
    }

    /// Calls `visit` with a schema and the members of its `allOf`.
    fn visit_all_of(
        &mut self,
        fields: &Map<String, Value>,
        nesting: usize,
        visit: &mut dyn FnMut(&mut Self, &Map<String, Value>),
    ) {
        visit(self, fields);
        for member in array_keyword(fields, "allOf").iter().filter(|_| nesting < MAX_NESTING) {
            let member = self.read_schema(member);
            if let Some(fields) = member.as_ref().and_then(ReadSchema::fields) {
                self.visit_all_of(fields, nesting + 1, visit);
            }
        }
    }

    /// Returns the values of a required property, or of the properties that it requires itself.
    fn required_property(&mut self, property: &Value, nesting: usize) -> Option<Value> {
        let schema = self.read_schema(property)?;
        let fields = schema.fields()?;
        let mut output: Map<String, Value> = Map::new();
        output.extend(fields.get("type").map(|kind| ("type".to_owned(), kind.clone())));
        let listed = ["const", "enum"].into_iter().find_map(|key| fields.get_key_value(key));
        if let Some((key, choices)) = listed {
            if self.required.reserve(choices) {
                output.insert(key.clone(), choices.clone());
            } else if key == "const" {
                self.describe_choices(std::slice::from_ref(choices), &mut output);
            } else {
                self.describe_choices(choices.as_array()?, &mut output);
            }
            return Some(output.into());
        }
        if nesting >= MAX_NESTING {
            return None;
        }
        let properties = self.required_properties(fields, &HashSet::new(), nesting);
        if properties.is_empty() {
            return None;
        }
        output.insert("properties".into(), properties.into());
        output.insert("$comment".into(), PRUNED_COMMENT.into());
        Some(output.into())
    }

    /// Reads a schema through references. Returns `None` once enough schemas were read.
    fn read_schema<'v>(&mut self, schema: &'v Value) -> Option<ReadSchema<'v>> {
        let mut read = ReadSchema::Inline(schema.as_object()?);
        loop {
            self.required.readable_schemas = self.required.readable_schemas.checked_sub(1)?;
            let Some(name) = referenced_definition(read.fields()?) else { return Some(read) };
            let definition = (self.find_definition)(name)?;
            read = ReadSchema::Definition(definition);
        }
    }

    /// Shows the first values and the number of all in the description of a schema that lists too many of them, while
    /// bytes are available.
    fn describe_choices(&mut self, choices: &[Value], output: &mut Map<String, Value>) {
        let max_bytes = MAX_SHOWN_BYTES.min(self.required.available_bytes.saturating_sub(NOTE_BYTES));
        let mut shown = String::new();
        let mut count = 0;
        for choice in choices {
            // Four bytes more than fit, as the cut may be within a character.
            let size = json::truncated_json(choice, MAX_SHOWN_BYTES + 4).len();
            if shown.len() + size > max_bytes {
                break;
            }
            let Ok(text) = json::to_exact_string(choice) else { break };
            shown.push_str(if count == 0 { "" } else { ", " });
            shown.push_str(&text);
            count += 1;
        }
        let missing = choices.len() - count;
        let note = match count {
            0 if choices.len() == 1 => "A fixed value (ask for the full schema to see it).".to_owned(),
            0 => format!("One of {missing} values (ask for the full schema to see them)."),
            _ => format!("One of {shown}, or {missing} more (ask for the full schema to see all)."),
        };
        // With the keyword itself. There may be thousands of such arguments.
        if !self.required.reserve_bytes(note.len() + 20) {
            return;
        }
        let description = output.get("description").and_then(Value::as_str);
        let description = description.map_or_else(|| note.clone(), |text| format!("{text} {note}"));
        output.insert("description".into(), description.into());
    }
}
