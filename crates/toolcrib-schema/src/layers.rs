//! Schemas that apply to a value at once: a schema itself, the targets of its references, and the members of `allOf`.
//! Their keywords are not merged into one map, because `allOf` may repeat a keyword with another value.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::alternatives::MAX_ALTERNATIVES;
use crate::budget::{KEYWORDS_PER_NODE, TEXT_BYTES_PER_NODE, WorkBudget};
use crate::keywords::{array_keyword, is_annotation};
use crate::reference::resolve_reference;
use crate::types::declared_types;

/// Maximum number of layers of one schema.
const MAX_LAYERS: usize = 32;

/// All schemas that apply to a value at once: a schema itself, the targets of its references, and the members of
/// `allOf`.
#[derive(Debug, Clone, Default)]
pub struct SchemaLayers<'a> {
    /// In the order of precedence: of several layers with a keyword, the first counts.
    pub maps: Vec<&'a Map<String, Value>>,
    /// A reference that cannot be resolved within the schema.
    pub unresolved_reference: Option<&'a Value>,
    /// The schema has more layers than are read.
    pub is_truncated: bool,
    /// A layer has constraints other than `type`.
    pub(crate) has_constraints: bool,
    /// A layer has constraints other than `type`, `enum` and `const`.
    pub(crate) has_other_constraints: bool,
}

impl<'a> SchemaLayers<'a> {
    /// Collects the layers of a schema. Returns `None` for the schema `false`, which accepts no value.
    ///
    /// Charges the keywords read, since thousands of references may lead to one large definition.
    pub fn collect(root: &'a Value, schema: &'a Value, budget: &mut WorkBudget) -> Option<SchemaLayers<'a>> {
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
                match reference.as_str().and_then(|reference| resolve_reference(root, reference)) {
                    Some(target) => pending.push(target),
                    None => layers.unresolved_reference = layers.unresolved_reference.or(Some(reference)),
                }
            }
        }
        budget.spend(work / KEYWORDS_PER_NODE);
        Some(layers)
    }

    /// Returns the number of keywords of all layers.
    pub fn keyword_count(&self) -> usize {
        self.maps.iter().map(|keywords| keywords.len()).sum()
    }

    /// Returns a keyword of the first layer that has it.
    pub fn get(&self, keyword: &str) -> Option<&'a Value> {
        self.maps.iter().find_map(|keywords| keywords.get(keyword))
    }

    /// Merges the keywords selected by `filter`. Of several layers with a keyword, the first counts.
    pub fn merge(&self, filter: impl Fn(&str) -> bool) -> BTreeMap<&'a str, &'a Value> {
        let mut merged = BTreeMap::new();
        for (keyword, value) in self.maps.iter().flat_map(|keywords| keywords.iter()) {
            if filter(keyword) {
                merged.entry(keyword.as_str()).or_insert(value);
            }
        }
        merged
    }

    /// Returns the only layer with constraints, or `None` if several have some.
    pub fn only_constraining_layer(&self) -> Option<*const Map<String, Value>> {
        let is_constraining = |keywords: &&&Map<String, Value>| {
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
    pub(crate) fn alternative_schemas(&self) -> Option<&'a [Value]> {
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
    pub(crate) fn types(&self, budget: &mut WorkBudget) -> Option<Vec<&'a str>> {
        let keyword = self.get("type").filter(|keyword| keyword.is_string() || keyword.is_array())?;
        budget.spend(keyword.as_array().map_or(0, Vec::len) / KEYWORDS_PER_NODE);
        let mut types: Vec<&str> = declared_types(Some(keyword)).collect();
        types.sort_unstable();
        types.dedup();
        types.truncate(MAX_ALTERNATIVES);
        Some(types)
    }

    /// Returns the values of `const` or `enum` by their text, or `None` if there are none or the budget is spent.
    pub(crate) fn enum_values(&self, budget: &mut WorkBudget) -> Option<BTreeMap<String, &'a Value>> {
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
