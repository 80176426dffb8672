//! A schema as the ways in which a value may fit it: one for each type and each alternative, however that is written.
//! `{"type": ["string", "null"]}`, `{"type": "string", "nullable": true}` and `{"anyOf": [..]}` come to the same ways.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::WorkBudget;
use super::keywords::is_annotation;
use super::normal_form::resolve_reference;

pub(super) type KeywordMap = Map<String, Value>;

/// Alternatives beyond these are not looked at one by one.
pub(super) const MAX_ALTERNATIVES: usize = 64;
const MAX_LAYERS: usize = 32;
const MAX_ALTERNATIVE_DEPTH: usize = 4;
/// So many fields of an alternative are looked through for the one that tells it from others.
const MAX_LABEL_FIELDS: usize = 32;
/// How many keywords are worth as much as a node. Most schemas have fewer, and cost nothing beyond themselves.
pub(super) const KEYWORDS_PER_NODE: usize = 8;
/// How much text of values is worth as much as a node.
pub(super) const TEXT_BYTES_PER_NODE: usize = 16;

/// The schemas that hold at once: one itself, what it refers to, and what it is made of by `allOf`.
#[derive(Debug, Clone, Default)]
pub(super) struct SchemaLayers<'a> {
    pub(super) maps: Vec<&'a KeywordMap>,
    /// A reference that leads nowhere here.
    pub(super) unresolved_reference: Option<&'a Value>,
    /// There are more.
    pub(super) is_truncated: bool,
    /// Says something of values beyond their type.
    has_constraints: bool,
    /// Says something of values beyond their type and which they are.
    has_other_constraints: bool,
}

#[derive(Debug, Clone)]
pub(super) struct Alternative<'a> {
    /// The one type it takes; nothing where it says none.
    pub(super) type_name: Option<&'a str>,
    /// The values it takes, by their text, where they are listed.
    pub(super) values: Option<BTreeMap<String, &'a Value>>,
    pub(super) layers: SchemaLayers<'a>,
    /// What it is called among several.
    pub(super) label: Option<String>,
    /// One of several, with words of its own; else the schema itself.
    pub(super) has_own_schema: bool,
}

impl<'a> SchemaLayers<'a> {
    /// Nothing for `false`, which takes nothing.
    ///
    /// Paid for by the keywords read: the same large definition may be led to thousands of times. Of those keywords it
    /// is found out here, once, what all comparisons with other ways ask.
    pub(super) fn collect(root: &'a Value, schema: &'a Value, allowance: &mut WorkBudget) -> Option<SchemaLayers<'a>> {
        let mut layers = SchemaLayers::default();
        let (mut due, mut work) = (vec![schema], 0);
        while let Some(schema) = due.pop() {
            work += 1;
            let Value::Object(keywords) = schema else {
                if schema == &Value::Bool(false) {
                    allowance.spend(work / KEYWORDS_PER_NODE);
                    return None;
                }
                continue;
            };
            if layers.maps.iter().any(|known| std::ptr::eq(*known, keywords)) {
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
            let parts = array_keyword(keywords, "allOf");
            layers.is_truncated |= parts.len() > MAX_LAYERS;
            due.extend(parts.iter().take(MAX_LAYERS).rev());
            if let Some(reference) = keywords.get("$ref") {
                match resolve_reference(root, reference) {
                    Some(target) => due.push(target),
                    None => layers.unresolved_reference = layers.unresolved_reference.or(Some(reference)),
                }
            }
        }
        allowance.spend(work / KEYWORDS_PER_NODE);
        Some(layers)
    }

    /// How many keywords there are.
    pub(super) fn keyword_count(&self) -> usize {
        self.maps.iter().map(|keywords| keywords.len()).sum()
    }

    pub(super) fn get(&self, keyword: &str) -> Option<&'a Value> {
        self.maps.iter().find_map(|keywords| keywords.get(keyword))
    }

    /// The first that says it counts.
    pub(super) fn merge(&self, wanted: impl Fn(&str) -> bool) -> BTreeMap<&'a str, &'a Value> {
        let mut merged = BTreeMap::new();
        for (keyword, value) in self.maps.iter().flat_map(|keywords| keywords.iter()) {
            if wanted(keyword) {
                merged.entry(keyword.as_str()).or_insert(value);
            }
        }
        merged
    }

    /// The one layer that says something of values; nothing where several do.
    pub(super) fn only_constraining_layer(&self) -> Option<*const KeywordMap> {
        let says = |keywords: &&&KeywordMap| {
            keywords
                .keys()
                .any(|keyword| !["$ref", "allOf"].contains(&keyword.as_str()) && !is_neutral_keyword(keyword))
        };
        let mut saying = self.maps.iter().filter(says);
        match (saying.next(), saying.next()) {
            (Some(only), None) => Some(std::ptr::from_ref(*only)),
            (None, _) | (Some(_), Some(_)) => None,
        }
    }

    /// The alternatives of a schema that is nothing but alternatives.
    fn alternative_schemas(&self) -> Option<&'a [Value]> {
        let mut found = None;
        if self.unresolved_reference.is_some() {
            return None;
        }
        for (keyword, value) in self.maps.iter().flat_map(|keywords| keywords.iter()) {
            match (keyword.as_str(), value) {
                ("anyOf" | "oneOf", Value::Array(ways)) if !ways.is_empty() => {
                    if found.replace(ways.as_slice()).is_some() {
                        return None;
                    }
                }
                ("$ref" | "allOf" | "nullable", _) => {}
                _ if is_neutral_keyword(keyword) => {}
                _ => return None,
            }
        }
        found
    }

    fn types(&self, allowance: &mut WorkBudget) -> Option<Vec<&'a str>> {
        match self.get("type")? {
            Value::String(name) => Some(vec![name]),
            Value::Array(names) => {
                allowance.spend(names.len() / KEYWORDS_PER_NODE);
                let mut types: Vec<&str> = names.iter().filter_map(Value::as_str).collect();
                types.sort_unstable();
                types.dedup();
                types.truncate(MAX_ALTERNATIVES);
                Some(types)
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => None,
        }
    }

    /// The values that may be chosen, by their text; none where there are too many to be read.
    fn enum_values(&self, allowance: &mut WorkBudget) -> Option<BTreeMap<String, &'a Value>> {
        let one = self.get("const").map(std::slice::from_ref);
        let listed = one.or_else(|| self.get("enum").and_then(Value::as_array).map(Vec::as_slice))?;
        let mut values = BTreeMap::new();
        for value in listed {
            let text = value_text(value);
            if !allowance.spend(1 + text.len() / TEXT_BYTES_PER_NODE) {
                return None;
            }
            values.insert(text, value);
        }
        Some(values)
    }
}

impl<'a> Alternative<'a> {
    /// Takes whatever is of its type.
    pub(super) fn is_unconstrained(&self) -> bool {
        self.values.is_none() && self.layers.unresolved_reference.is_none() && !self.layers.has_constraints
    }

    /// Takes whatever the other takes, as far as types tell.
    pub(super) fn covers(&self, other: &Alternative<'_>) -> bool {
        self.is_unconstrained()
            && (self.type_name.is_none()
                || self.type_name == other.type_name
                || (self.is_type("number") && other.is_type("integer")))
    }

    pub(super) fn is_type(&self, kind: &str) -> bool {
        self.type_name == Some(kind)
    }

    /// Nothing but a list of values, which adds to another such list.
    fn is_enum(&self) -> bool {
        self.values.is_some() && self.layers.unresolved_reference.is_none() && !self.layers.has_other_constraints
    }

    /// All that it says, to find it again; no more than can be paid for.
    pub(super) fn to_text(&self, allowance: &mut WorkBudget) -> String {
        let mut text = String::new();
        for keywords in &self.layers.maps {
            let written = crate::json::truncated_json(keywords, allowance.0 * TEXT_BYTES_PER_NODE);
            allowance.spend(written.len() / TEXT_BYTES_PER_NODE);
            text.push_str(&written);
        }
        text
    }
}

/// No way at all where a schema takes nothing.
pub(super) fn alternatives<'a>(root: &'a Value, schema: &'a Value, allowance: &mut WorkBudget) -> Vec<Alternative<'a>> {
    collect_alternatives(root, schema, 0, allowance)
}

/// The ways of several schemas of which one must fit.
pub(super) fn alternatives_of_any<'a>(
    root: &'a Value,
    schemas: &'a [Value],
    allowance: &mut WorkBudget,
) -> Vec<Alternative<'a>> {
    collect_any_of(root, schemas, 0, allowance)
}

fn collect_alternatives<'a>(
    root: &'a Value,
    schema: &'a Value,
    depth: usize,
    allowance: &mut WorkBudget,
) -> Vec<Alternative<'a>> {
    let Some(layers) = SchemaLayers::collect(root, schema, allowance) else { return Vec::new() };
    let nullable = layers.maps.iter().any(|keywords| keywords.get("nullable") == Some(&Value::Bool(true)));
    let mut ways = match layers.alternative_schemas() {
        Some(schemas) if depth < MAX_ALTERNATIVE_DEPTH => collect_any_of(root, schemas, depth + 1, allowance),
        Some(_) | None => split_by_type(layers, allowance),
    };
    if nullable && !ways.iter().any(|way| way.type_name.is_none() || way.is_type("null")) {
        let layers = SchemaLayers::default();
        ways.push(Alternative { type_name: Some("null"), values: None, layers, label: None, has_own_schema: true });
    }
    ways
}

fn collect_any_of<'a>(
    root: &'a Value,
    schemas: &'a [Value],
    depth: usize,
    allowance: &mut WorkBudget,
) -> Vec<Alternative<'a>> {
    let mut ways: Vec<Alternative<'a>> = Vec::new();
    for schema in schemas {
        if ways.len() >= MAX_ALTERNATIVES || !allowance.spend(1) {
            break;
        }
        let label = alternative_label(schema);
        for way in collect_alternatives(root, schema, depth, allowance) {
            let is_same_choice =
                |known: &&mut Alternative<'a>| known.type_name == way.type_name && known.is_enum() && way.is_enum();
            match ways.iter_mut().find(is_same_choice) {
                Some(known) => known.values.get_or_insert_default().extend(way.values.unwrap_or_default()),
                None => {
                    ways.push(Alternative { label: way.label.or_else(|| label.clone()), has_own_schema: true, ..way })
                }
            }
        }
    }
    ways.truncate(MAX_ALTERNATIVES);
    ways
}

fn split_by_type<'a>(layers: SchemaLayers<'a>, allowance: &mut WorkBudget) -> Vec<Alternative<'a>> {
    let (values, types) = (layers.enum_values(allowance), layers.types(allowance));
    let way = |kind: Option<&'a str>, values: Option<BTreeMap<String, &'a Value>>| {
        // Of `null` there is but one.
        let values = values.filter(|_| kind != Some("null"));
        Alternative { type_name: kind, values, layers: layers.clone(), label: None, has_own_schema: false }
    };
    let Some(types) = types else {
        let Some(values) = values else { return vec![way(None, None)] };
        let whole = values.values().all(|value| !value.is_number() || is_integral(value));
        let mut by_kind: BTreeMap<&'static str, BTreeMap<String, &'a Value>> = BTreeMap::new();
        for (text, value) in values {
            by_kind.entry(json_type_name(value, whole)).or_default().insert(text, value);
        }
        return by_kind.into_iter().map(|(kind, values)| way(Some(kind), Some(values))).collect();
    };
    let Some(values) = values else { return types.into_iter().map(|kind| way(Some(kind), None)).collect() };
    let fitting = |kind: &str| -> BTreeMap<String, &'a Value> {
        let fits = |value: &Value| {
            kind == json_type_name(value, is_integral(value)) || (kind == "number" && value.is_number())
        };
        values.iter().filter(|(_, value)| fits(value)).map(|(text, value)| (text.clone(), *value)).collect()
    };
    let split: Vec<Alternative<'a>> = types
        .iter()
        .map(|kind| (*kind, fitting(kind)))
        .filter(|(_, values)| !values.is_empty())
        .map(|(kind, values)| way(Some(kind), Some(values)))
        .collect();
    // Values that fit none of the types: whoever wrote that meant the values.
    if split.is_empty() { vec![way(types.first().copied(), Some(values))] } else { split }
}

/// What an alternative is known by: what it refers to, its title, or the field that tells it from others.
fn alternative_label(schema: &Value) -> Option<String> {
    let text = |keyword: &str| schema.get(keyword).and_then(Value::as_str);
    if let Some(reference) = text("$ref") {
        return reference.rsplit('/').next().map(str::to_owned);
    }
    if let Some(title) = text("title") {
        return Some(title.to_owned());
    }
    let properties = schema.get("properties").and_then(Value::as_object)?;
    let mut telling =
        properties.iter().take(MAX_LABEL_FIELDS).filter_map(|(name, field)| Some((name, field.get("const")?)));
    telling.next().map(|(name, value)| format!("{name} {}", crate::json::truncated_json(value, 60)))
}

pub(super) fn json_type_name(value: &Value, whole: bool) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) if whole => "integer",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

pub(super) fn is_integral(value: &Value) -> bool {
    value.is_i64() || value.is_u64() || value.as_f64().is_some_and(|number| number.fract() == 0.0)
}

/// 1 and 1.0 are one value.
fn value_text(value: &Value) -> String {
    match value.as_f64() {
        Some(number) if value.is_f64() && number.fract() == 0.0 && number.abs() < 1e15 => format!("{number:.0}"),
        Some(_) | None => value.to_string(),
    }
}

/// What may stand beside alternatives without a say in what is taken.
fn is_neutral_keyword(keyword: &str) -> bool {
    is_annotation(keyword) || keyword == "discriminator"
}

pub(super) fn array_keyword<'a>(schema: &'a KeywordMap, keyword: &str) -> &'a [Value] {
    schema.get(keyword).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}
