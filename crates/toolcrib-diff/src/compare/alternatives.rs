//! Splits a schema into alternatives: one for each type and each member of `anyOf` or `oneOf`, however that is written.
//! `{"type": ["string", "null"]}`, `{"type": "string", "nullable": true}` and `{"anyOf": [..]}` yield the same ones.
//!
//! A comparison by alternatives finds the same difference in all of these spellings. Each alternative keeps its
//! [`SchemaLayers`]: all keyword maps that apply to it at once. Keywords are not merged into one map here, because
//! `allOf` may repeat a keyword, and only `unclassified` compares repeated ones.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::WorkBudget;
use super::keywords::is_annotation;
use super::normal_form::resolve_reference;

/// The keywords of one schema as JSON.
pub(super) type KeywordMap = Map<String, Value>;

/// Maximum number of alternatives of one schema. Further ones are compared by normal form only. Matching is quadratic
/// in the number of alternatives.
pub(super) const MAX_ALTERNATIVES: usize = 64;
/// Maximum number of layers of one schema. Further ones are compared by normal form only.
const MAX_LAYERS: usize = 32;
/// Maximum nesting of `anyOf` and `oneOf` that is flattened.
const MAX_ALTERNATIVE_DEPTH: usize = 4;
/// Maximum number of fields that are searched for a constant to label an alternative with.
const MAX_LABEL_FIELDS: usize = 32;
/// Number of keywords that cost as much of the budget as a node. Most schemas have fewer, which are free.
pub(super) const KEYWORDS_PER_NODE: usize = 8;
/// Bytes of text that cost as much of the budget as a node.
pub(super) const TEXT_BYTES_PER_NODE: usize = 16;

/// All schemas that apply to a value at once: a schema itself, the targets of its references, and the members of
/// `allOf`.
#[derive(Debug, Clone, Default)]
pub(super) struct SchemaLayers<'a> {
    /// In the order of precedence: of several layers with a keyword, the first counts.
    pub(super) maps: Vec<&'a KeywordMap>,
    /// A reference that cannot be resolved within the schema.
    pub(super) unresolved_reference: Option<&'a Value>,
    /// [`MAX_LAYERS`] was exceeded.
    pub(super) is_truncated: bool,
    /// A layer has constraints other than `type`.
    has_constraints: bool,
    /// A layer has constraints other than `type`, `enum` and `const`.
    has_other_constraints: bool,
}

/// One of the alternatives that a value may match.
#[derive(Debug, Clone)]
pub(super) struct Alternative<'a> {
    /// The only type it accepts; `None` if it does not restrict the type.
    pub(super) type_name: Option<&'a str>,
    /// The values it accepts, by their text, if `enum` or `const` lists them.
    pub(super) values: Option<BTreeMap<String, &'a Value>>,
    /// All schemas that apply to a value of this alternative.
    pub(super) layers: SchemaLayers<'a>,
    /// Name for notes, to tell it from others.
    pub(super) label: Option<String>,
    /// A member of `anyOf` or `oneOf`, with annotations of its own; false for the schema itself.
    pub(super) has_own_schema: bool,
}

impl<'a> SchemaLayers<'a> {
    /// Collects the layers of a schema. Returns `None` for the schema `false`, which accepts no value.
    ///
    /// Charges the keywords read, since thousands of references may lead to one large definition. Also finds out once
    /// what all comparisons with other alternatives need.
    pub(super) fn collect(root: &'a Value, schema: &'a Value, budget: &mut WorkBudget) -> Option<SchemaLayers<'a>> {
        let mut layers = SchemaLayers::default();
        let mut pending = vec![schema];
        let mut work = 0;
        while let Some(schema) = pending.pop() {
            work += 1;
            let Value::Object(keywords) = schema else {
                if schema == &Value::Bool(false) {
                    budget.spend(work / KEYWORDS_PER_NODE);
                    return None;
                }
                continue;
            };
            // A definition that refers to itself.
            // Compared by address: equal maps at different places are different layers.
            if layers.maps.iter().any(|other| std::ptr::eq(*other, keywords)) {
                continue;
            }
            if layers.maps.len() >= MAX_LAYERS {
                layers.is_truncated = true;
                break;
            }
            layers.maps.push(keywords);
            work += keywords.len();
            for keyword in keywords.keys().filter(|keyword| !is_annotation(keyword)) {
                layers.has_constraints |= keyword != "type";
                layers.has_other_constraints |= !["type", "enum", "const"].contains(&keyword.as_str());
            }
            let members = array_keyword(keywords, "allOf");
            layers.is_truncated |= members.len() > MAX_LAYERS;
            // In reverse, so that members are visited in their order; the target of a reference comes first.
            pending.extend(members.iter().take(MAX_LAYERS).rev());
            if let Some(reference) = keywords.get("$ref") {
                match resolve_reference(root, reference) {
                    Some(target) => pending.push(target),
                    None => layers.unresolved_reference = layers.unresolved_reference.or(Some(reference)),
                }
            }
        }
        budget.spend(work / KEYWORDS_PER_NODE);
        Some(layers)
    }

    /// Returns the number of keywords of all layers.
    pub(super) fn keyword_count(&self) -> usize {
        self.maps.iter().map(|keywords| keywords.len()).sum()
    }

    /// Returns a keyword of the first layer that has it.
    pub(super) fn get(&self, keyword: &str) -> Option<&'a Value> {
        self.maps.iter().find_map(|keywords| keywords.get(keyword))
    }

    /// Merges the keywords selected by `filter`. Of several layers with a keyword, the first counts.
    pub(super) fn merge(&self, filter: impl Fn(&str) -> bool) -> BTreeMap<&'a str, &'a Value> {
        let mut merged = BTreeMap::new();
        for (keyword, value) in self.maps.iter().flat_map(|keywords| keywords.iter()) {
            if filter(keyword) {
                merged.entry(keyword.as_str()).or_insert(value);
            }
        }
        merged
    }

    /// Returns the only layer with constraints, or `None` if several have some.
    pub(super) fn only_constraining_layer(&self) -> Option<*const KeywordMap> {
        let is_constraining = |keywords: &&&KeywordMap| {
            keywords
                .keys()
                .any(|keyword| !["$ref", "allOf"].contains(&keyword.as_str()) && !is_neutral_keyword(keyword))
        };
        // Wrappers that only add a description to a reference do not constrain.
        let mut constraining = self.maps.iter().filter(is_constraining);
        match (constraining.next(), constraining.next()) {
            (Some(only), None) => Some(std::ptr::from_ref(*only)),
            (None, _) | (Some(_), Some(_)) => None,
        }
    }

    /// Returns the members of `anyOf` or `oneOf` of a schema without other constraints.
    fn alternative_schemas(&self) -> Option<&'a [Value]> {
        let mut schemas = None;
        if self.unresolved_reference.is_some() {
            return None;
        }
        for (keyword, value) in self.maps.iter().flat_map(|keywords| keywords.iter()) {
            match (keyword.as_str(), value) {
                ("anyOf" | "oneOf", Value::Array(members)) if !members.is_empty() => {
                    // Two sets of alternatives that apply at once are not alternatives of the schema.
                    if schemas.replace(members.as_slice()).is_some() {
                        return None;
                    }
                }
                ("$ref" | "allOf" | "nullable", _) => {}
                _ if is_neutral_keyword(keyword) => {}
                _ => return None,
            }
        }
        schemas
    }

    /// Returns the types in `type`, each once.
    fn types(&self, budget: &mut WorkBudget) -> Option<Vec<&'a str>> {
        match self.get("type")? {
            Value::String(name) => Some(vec![name]),
            Value::Array(names) => {
                budget.spend(names.len() / KEYWORDS_PER_NODE);
                let mut types: Vec<&str> = names.iter().filter_map(Value::as_str).collect();
                types.sort_unstable();
                types.dedup();
                types.truncate(MAX_ALTERNATIVES);
                Some(types)
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => None,
        }
    }

    /// Returns the values of `const` or `enum` by their text, or `None` if there are none or the budget is spent.
    fn enum_values(&self, budget: &mut WorkBudget) -> Option<BTreeMap<String, &'a Value>> {
        let constant = self.get("const").map(std::slice::from_ref);
        let listed_values = constant.or_else(|| self.get("enum").and_then(Value::as_array).map(Vec::as_slice))?;
        let mut values = BTreeMap::new();
        for value in listed_values {
            let text = value_text(value);
            if !budget.spend(1 + text.len() / TEXT_BYTES_PER_NODE) {
                return None;
            }
            values.insert(text, value);
        }
        Some(values)
    }
}

impl<'a> Alternative<'a> {
    /// Returns whether it accepts every value of its type.
    pub(super) fn is_unconstrained(&self) -> bool {
        self.values.is_none() && self.layers.unresolved_reference.is_none() && !self.layers.has_constraints
    }

    /// Returns whether it accepts everything that `other` accepts, as far as types tell.
    pub(super) fn covers(&self, other: &Alternative<'_>) -> bool {
        self.is_unconstrained()
            && (self.type_name.is_none()
                || self.type_name == other.type_name
                || (self.is_type("number") && other.is_type("integer")))
    }

    /// Returns whether it accepts this type alone.
    pub(super) fn is_type(&self, type_name: &str) -> bool {
        self.type_name == Some(type_name)
    }

    /// Returns whether it is a list of values alone, which can be merged with another such list.
    fn is_enum(&self) -> bool {
        self.values.is_some() && self.layers.unresolved_reference.is_none() && !self.layers.has_other_constraints
    }

    /// Returns its text, to match it with an equal alternative. No longer than the budget allows.
    pub(super) fn to_text(&self, budget: &mut WorkBudget) -> String {
        let mut text = String::new();
        for keywords in &self.layers.maps {
            let json = toolcrib_core::json::truncated_json(keywords, budget.0 * TEXT_BYTES_PER_NODE);
            budget.spend(json.len() / TEXT_BYTES_PER_NODE);
            text.push_str(&json);
        }
        text
    }
}

/// Returns the alternatives of a schema; none if it accepts nothing.
pub(super) fn alternatives<'a>(root: &'a Value, schema: &'a Value, budget: &mut WorkBudget) -> Vec<Alternative<'a>> {
    collect_alternatives(root, schema, 0, budget)
}

/// Returns the alternatives of several schemas of which one must match.
pub(super) fn alternatives_of_any<'a>(
    root: &'a Value,
    schemas: &'a [Value],
    budget: &mut WorkBudget,
) -> Vec<Alternative<'a>> {
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
        let is_integer = values.values().all(|value| !value.is_number() || is_integral(value));
        let mut by_type: BTreeMap<&'static str, BTreeMap<String, &'a Value>> = BTreeMap::new();
        for (text, value) in values {
            by_type.entry(json_type_name(value, is_integer)).or_default().insert(text, value);
        }
        return by_type.into_iter().map(|(type_name, values)| alternative(Some(type_name), Some(values))).collect();
    };
    let Some(values) = values else {
        return types.into_iter().map(|type_name| alternative(Some(type_name), None)).collect();
    };
    let values_of_type = |type_name: &str| -> BTreeMap<String, &'a Value> {
        let is_of_type = |value: &Value| {
            type_name == json_type_name(value, is_integral(value)) || (type_name == "number" && value.is_number())
        };
        values.iter().filter(|(_, value)| is_of_type(value)).map(|(text, value)| (text.clone(), *value)).collect()
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
    if let Some(reference) = text("$ref") {
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

/// Returns the JSON Schema type of a value. Numbers are integers if `is_integer`.
pub(super) fn json_type_name(value: &Value, is_integer: bool) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) if is_integer => "integer",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// Returns whether a value is a number without a fraction.
pub(super) fn is_integral(value: &Value) -> bool {
    value.is_i64() || value.is_u64() || value.as_f64().is_some_and(|number| number.fract() == 0.0)
}

/// Returns the JSON text of a value, with 1.0 as 1.
fn value_text(value: &Value) -> String {
    match value.as_f64() {
        // Below 10^15 a float represents every integer exactly, so the digits are right.
        Some(number) if value.is_f64() && number.fract() == 0.0 && number.abs() < 1e15 => format!("{number:.0}"),
        Some(_) | None => value.to_string(),
    }
}

/// Returns whether a keyword may accompany alternatives without constraining them.
fn is_neutral_keyword(keyword: &str) -> bool {
    is_annotation(keyword) || keyword == "discriminator"
}

/// Returns the array under a keyword; empty if there is none.
pub(super) fn array_keyword<'a>(schema: &'a KeywordMap, keyword: &str) -> &'a [Value] {
    schema.get(keyword).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}
