//! Splits a schema into alternatives: one for each type and each member of `anyOf` or `oneOf`, however that is written.
//! `{"type": ["string", "null"]}`, `{"type": "string", "nullable": true}` and `{"anyOf": [..]}` yield the same ones.
//!
//! A comparison by alternatives finds the same difference in all of these spellings. Each alternative keeps its
//! [`SchemaLayers`]: all keyword maps that apply to it at once.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::budget::WorkBudget;
use crate::keywords::array_at;
use crate::layers::SchemaLayers;
use crate::reference::{follow_references, reference_text};
use crate::types::{is_integral, is_of_type, narrow_type_name, type_name};

/// Maximum number of alternatives of one schema. Further ones are compared by normal form only. Matching is quadratic
/// in the number of alternatives.
pub const MAX_ALTERNATIVES: usize = 64;
/// Maximum nesting of `anyOf` and `oneOf` that is flattened.
const MAX_ALTERNATIVE_DEPTH: usize = 4;
/// Maximum number of fields that are searched for a constant to label an alternative with.
const MAX_LABEL_FIELDS: usize = 32;
/// Maximum number of alternatives that [`non_null_alternatives`] reads.
const MAX_READ_ALTERNATIVES: usize = 12;

/// One of the alternatives that a value may match.
#[derive(Debug, Clone)]
pub struct Alternative<'a> {
    /// The only type it accepts; `None` if it does not restrict the type.
    pub type_name: Option<&'a str>,
    /// The values it accepts, by their text, if `enum` or `const` lists them.
    pub values: Option<BTreeMap<String, &'a Value>>,
    /// All schemas that apply to a value of this alternative.
    pub layers: SchemaLayers<'a>,
    /// Name for notes, to tell it from others.
    pub label: Option<String>,
    /// A member of `anyOf` or `oneOf`, with annotations of its own; false for the schema itself.
    pub has_own_schema: bool,
}

impl<'a> Alternative<'a> {
    /// Returns whether it accepts every value of its type.
    pub fn is_unconstrained(&self) -> bool {
        self.values.is_none() && self.layers.unresolved_reference.is_none() && !self.layers.has_constraints
    }

    /// Returns whether it accepts everything that `other` accepts, as far as types tell.
    pub fn covers(&self, other: &Alternative<'_>) -> bool {
        self.is_unconstrained()
            && (self.type_name.is_none()
                || self.type_name == other.type_name
                || (self.is_type("number") && other.is_type("integer")))
    }

    /// Returns whether it accepts this type alone.
    pub fn is_type(&self, type_name: &str) -> bool {
        self.type_name == Some(type_name)
    }

    /// Returns whether it is a list of values alone, which can be merged with another such list.
    fn is_enum(&self) -> bool {
        self.values.is_some() && self.layers.unresolved_reference.is_none() && !self.layers.has_other_constraints
    }

    /// Returns its text, to match it with an equal alternative. No longer than the budget allows.
    pub fn to_text(&self, budget: &mut WorkBudget) -> String {
        let mut text = String::new();
        for keywords in &self.layers.maps {
            let json = toolcrib_core::json::truncated_json(keywords, budget.remaining_text_bytes());
            budget.spend_text(&json);
            text.push_str(&json);
        }
        text
    }
}

/// Returns the alternatives of a schema; none if it accepts nothing.
pub fn alternatives<'a>(root: &'a Value, schema: &'a Value, budget: &mut WorkBudget) -> Vec<Alternative<'a>> {
    collect_alternatives(root, schema, 0, budget)
}

/// Returns the alternatives of several schemas of which one must match.
pub fn alternatives_of_any<'a>(root: &'a Value, schemas: &'a [Value], budget: &mut WorkBudget) -> Vec<Alternative<'a>> {
    collect_any_of(root, schemas, 0, budget)
}

/// Collects alternatives through nested `anyOf` and `oneOf`, down to [`MAX_ALTERNATIVE_DEPTH`].
fn collect_alternatives<'a>(
    root: &'a Value,
    schema: &'a Value,
    depth: usize,
    budget: &mut WorkBudget,
) -> Vec<Alternative<'a>> {
    let Some(layers) = SchemaLayers::collect(root, schema, budget) else { return Vec::new() };
    let nullable = layers.maps.iter().any(|keywords| keywords.get("nullable") == Some(&Value::Bool(true)));
    let mut alternatives = match layers.alternative_schemas() {
        Some(schemas) if depth < MAX_ALTERNATIVE_DEPTH => collect_any_of(root, schemas, depth + 1, budget),
        Some(_) | None => split_by_type(layers, budget),
    };
    // `nullable` of OpenAPI 3.0 applies to all alternatives together, so it adds one for null.
    if nullable
        && !alternatives.iter().any(|alternative| alternative.type_name.is_none() || alternative.is_type("null"))
    {
        let layers = SchemaLayers::default();
        alternatives.push(Alternative {
            type_name: Some("null"),
            values: None,
            layers,
            label: None,
            has_own_schema: true,
        });
    }
    alternatives
}

/// Collects the alternatives of several schemas. Lists of values of the same type are merged into one.
fn collect_any_of<'a>(
    root: &'a Value,
    schemas: &'a [Value],
    depth: usize,
    budget: &mut WorkBudget,
) -> Vec<Alternative<'a>> {
    let mut alternatives: Vec<Alternative<'a>> = Vec::new();
    for schema in schemas {
        if alternatives.len() >= MAX_ALTERNATIVES || !budget.spend(1) {
            break;
        }
        // Nested alternatives without a label of their own inherit the one of the member around them.
        let label = alternative_label(schema);
        for alternative in collect_alternatives(root, schema, depth, budget) {
            let is_same_enum = |other: &&mut Alternative<'a>| {
                other.type_name == alternative.type_name && other.is_enum() && alternative.is_enum()
            };
            match alternatives.iter_mut().find(is_same_enum) {
                Some(other) => other.values.get_or_insert_default().extend(alternative.values.unwrap_or_default()),
                None => alternatives.push(Alternative {
                    label: alternative.label.or_else(|| label.clone()),
                    has_own_schema: true,
                    ..alternative
                }),
            }
        }
    }
    alternatives.truncate(MAX_ALTERNATIVES);
    alternatives
}

/// Returns one alternative for each type, with those of the listed values that are of that type.
fn split_by_type<'a>(layers: SchemaLayers<'a>, budget: &mut WorkBudget) -> Vec<Alternative<'a>> {
    // Four cases: neither types nor values, values alone, types alone, both.
    let values = layers.enum_values(budget);
    let types = layers.types(budget);
    let alternative = |type_name: Option<&'a str>, values: Option<BTreeMap<String, &'a Value>>| {
        // `null` has a single value, so listing it adds nothing.
        let values = values.filter(|_| type_name != Some("null"));
        Alternative { type_name, values, layers: layers.clone(), label: None, has_own_schema: false }
    };
    let Some(types) = types else {
        let Some(values) = values else { return vec![alternative(None, None)] };
        // Without `type`, the listed values imply it. Numbers count as integers only if all of them are.
        let are_integers = values.values().all(|value| !value.is_number() || is_integral(value));
        let name_of = if are_integers { narrow_type_name } else { type_name };
        let mut by_type: BTreeMap<&'static str, BTreeMap<String, &'a Value>> = BTreeMap::new();
        for (text, value) in values {
            by_type.entry(name_of(value)).or_default().insert(text, value);
        }
        return by_type.into_iter().map(|(type_name, values)| alternative(Some(type_name), Some(values))).collect();
    };
    let Some(values) = values else {
        return types.into_iter().map(|type_name| alternative(Some(type_name), None)).collect();
    };
    let values_of_type = |type_name: &str| -> BTreeMap<String, &'a Value> {
        values
            .iter()
            .filter(|(_, value)| is_of_type(value, type_name))
            .map(|(text, value)| (text.clone(), *value))
            .collect()
    };
    let split: Vec<Alternative<'a>> = types
        .iter()
        .map(|type_name| (*type_name, values_of_type(type_name)))
        .filter(|(_, values)| !values.is_empty())
        .map(|(type_name, values)| alternative(Some(type_name), Some(values)))
        .collect();
    // No listed value is of the listed types: the author most likely meant the values.
    if split.is_empty() { vec![alternative(types.first().copied(), Some(values))] } else { split }
}

/// Returns a label for an alternative: the name of its definition, its title, or its first constant field.
fn alternative_label(schema: &Value) -> Option<String> {
    let text = |keyword: &str| schema.get(keyword).and_then(Value::as_str);
    // The name of a definition identifies an alternative even if its content changed.
    if let Some(reference) = reference_text(schema) {
        return reference.rsplit('/').next().map(str::to_owned);
    }
    if let Some(title) = text("title") {
        return Some(title.to_owned());
    }
    let properties = schema.get("properties").and_then(Value::as_object)?;
    let mut constants =
        properties.iter().take(MAX_LABEL_FIELDS).filter_map(|(name, field)| Some((name, field.get("const")?)));
    constants.next().map(|(name, value)| format!("{name} {}", toolcrib_core::json::truncated_json(value, 60)))
}

/// Returns the members of `anyOf` and `oneOf` that are not null, without splitting them further.
pub fn non_null_alternatives<'a>(root: &'a Value, schema: &'a Value) -> Vec<&'a Value> {
    let all = array_at(schema, "anyOf").iter().chain(array_at(schema, "oneOf")).take(MAX_READ_ALTERNATIVES);
    let is_null = |alternative: &Value| alternative.get("type").and_then(Value::as_str) == Some("null");
    all.map(|alternative| follow_references(root, alternative)).filter(|alternative| !is_null(alternative)).collect()
}

/// Unwraps an optional value, which many generators write as an alternative of a value and null: returns the only
/// non-null alternative, or the schema itself.
pub fn sole_alternative<'a>(root: &'a Value, schema: &'a Value) -> &'a Value {
    match non_null_alternatives(root, schema)[..] {
        [only] => only,
        _ => schema,
    }
}
