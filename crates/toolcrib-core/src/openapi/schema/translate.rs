//! One schema, keyword by keyword, from a document's words into JSON Schema 2020-12. Only what is known and well formed
//! comes out, so that the result can always be compiled; what only decorates (`x-`, examples, titles) is left behind.

use std::collections::HashSet;
use std::rc::Rc;

use serde_json::{Map, Value, json};

use super::super::description;
use super::super::document_set::{NodeRef, reference_target};
use super::keyword_fixes::{fix_count, fix_enum, fix_number, fix_types};
use super::{Direction, SchemaDialect, SchemaTranslator, TranslatedSchema};

/// Deeper than any schema that somebody reads; as text it is about twice as deep.
const MAX_TRANSLATE_DEPTH: usize = 24;
const MAX_DESCRIPTION_LEN: usize = 160;
const MAX_DEFAULT_LEN: usize = 200;

pub(super) fn translate_schema<'a>(
    schemas: &mut SchemaTranslator<'a>,
    at: NodeRef<'a>,
    direction: Direction,
    broken: &mut Vec<String>,
) -> TranslatedSchema {
    let mut translation =
        Translation { schemas, direction, references: Vec::new(), faults: broken, hidden_properties: Vec::new() };
    let value = translation.translate(at, 0);
    TranslatedSchema::with_references(value, translation.references)
}

struct Translation<'s, 'a> {
    schemas: &'s mut SchemaTranslator<'a>,
    direction: Direction,
    references: Vec<Rc<str>>,
    faults: &'s mut Vec<String>,
    /// Properties that the schemas around this one's `allOf` have and that are not ours to write, the innermost last.
    hidden_properties: Vec<HashSet<String>>,
}

impl<'a> Translation<'_, 'a> {
    fn translate(&mut self, at: NodeRef<'a>, depth: usize) -> Value {
        let outer = std::mem::take(&mut self.hidden_properties);
        let value = self.translate_all_of_member(at, depth);
        self.hidden_properties = outer;
        value
    }

    /// A schema, or one of another's `allOf`: that one's properties are this one's, too.
    fn translate_all_of_member(&mut self, at: NodeRef<'a>, depth: usize) -> Value {
        let fields = match at.value {
            Value::Object(fields) if depth < MAX_TRANSLATE_DEPTH && self.schemas.charge_schema() => fields,
            Value::Bool(false) => return json!({ "not": {} }),
            Value::Object(_) | Value::Bool(true) => return json!({}),
            Value::Null | Value::Number(_) | Value::String(_) | Value::Array(_) => {
                self.faults.push("a schema is neither an object nor true or false; anything is accepted there".into());
                return json!({});
            }
        };
        if let Some(reference) = reference_target(at.value) {
            return self.translate_reference(reference, fields, at, depth);
        }
        let mut out = self.translate_keywords(fields, at, depth);
        let nullable = |key: &str| fields.get(key) == Some(&Value::Bool(true));
        if nullable("nullable") || nullable("x-nullable") {
            allow_null(&mut out);
        }
        remove_contradictions(&mut out);
        unwrap_single_all_of(out).into()
    }

    fn translate_reference(
        &mut self,
        reference: &str,
        fields: &'a Map<String, Value>,
        at: NodeRef<'a>,
        depth: usize,
    ) -> Value {
        let (target, address) = match self.schemas.documents.resolve_reference(reference, at.document_url) {
            Ok(found) => found,
            Err(reason) => {
                self.faults.push(format!("{reason}; anything is accepted in its place"));
                return json!({});
            }
        };
        let name = self.schemas.definition_name(target, address);
        self.references.push(name.clone());
        let mut out = match self.schemas.dialect {
            SchemaDialect::JsonSchema => self.translate_keywords(fields, at, depth),
            SchemaDialect::OpenApi30 => {
                let description = fields.get("description").and_then(Value::as_str);
                description.map(description_entry).into_iter().collect()
            }
        };
        out.shift_insert(0, "$ref".into(), format!("#/$defs/{name}").into());
        if fields.get("nullable") == Some(&Value::Bool(true)) {
            allow_null(&mut out);
        }
        out.into()
    }

    fn translate_keywords(
        &mut self,
        fields: &'a Map<String, Value>,
        at: NodeRef<'a>,
        depth: usize,
    ) -> Map<String, Value> {
        let mut out = Map::new();
        for (key, value) in fields {
            let below = NodeRef { value, ..at };
            let translated = match key.as_str() {
                "type" => fix_types(value),
                "properties" => Some(self.translate_properties(value, at, depth)),
                "patternProperties" => self.translate_pattern_properties(value, at, depth),
                "dependentSchemas" => self.translate_map(value, at, depth),
                "required" => self.translate_required(value, fields, at),
                "items" if value.is_array() => {
                    out.insert(
                        "prefixItems".into(),
                        self.translate_list(value, at, depth).unwrap_or_else(|| json!([{}])),
                    );
                    None
                }
                "prefixItems" | "anyOf" | "oneOf" => self.translate_list(value, at, depth),
                "allOf" => self.translate_all_of(value, at, depth),
                "items"
                | "additionalProperties"
                | "not"
                | "if"
                | "then"
                | "else"
                | "contains"
                | "propertyNames"
                | "unevaluatedItems"
                | "unevaluatedProperties" => match value {
                    Value::Bool(_) => Some(value.clone()),
                    Value::Object(_) => Some(self.translate(below, depth + 1)),
                    Value::Null | Value::Number(_) | Value::String(_) | Value::Array(_) => None,
                },
                "enum"
                    if is_array_schema(fields)
                        && !value.as_array().is_some_and(|choices| choices.iter().all(Value::is_array)) =>
                {
                    None
                }
                "enum" => fix_enum(value, fields.get("type")),
                "const" => Some(value.clone()),
                "default" => (value.to_string().len() <= MAX_DEFAULT_LEN).then(|| value.clone()),
                "description" => value.as_str().map(|text| description_entry(text).1).filter(|text| *text != ""),
                "format" => value.as_str().filter(|format| is_informative_format(format)).map(Into::into),
                "pattern" => value.as_str().filter(|pattern| self.schemas.can_compile(pattern)).map(Into::into),
                "minimum" | "maximum" => fix_number(value).map(Value::Number),
                "exclusiveMinimum" | "exclusiveMaximum" => match value {
                    Value::Bool(_) => None,
                    Value::Null | Value::Number(_) | Value::String(_) | Value::Array(_) | Value::Object(_) => {
                        fix_number(value).map(Value::Number)
                    }
                },
                "multipleOf" => {
                    fix_number(value).filter(|step| step.as_f64().is_some_and(|step| step > 0.0)).map(Value::Number)
                }
                "minLength" | "maxLength" | "minItems" | "maxItems" | "minProperties" | "maxProperties"
                | "minContains" | "maxContains" => fix_count(value),
                "uniqueItems" | "deprecated" => (value == &Value::Bool(true)).then(|| value.clone()),
                "contentEncoding" | "contentMediaType" => value.as_str().map(Into::into),
                _ => None,
            };
            if let Some(translated) = translated {
                out.insert(key.clone(), translated);
            }
        }
        for (flag, bound) in [("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")] {
            if fields.get(flag) == Some(&Value::Bool(true))
                && let Some(value) = out.shift_remove(bound)
            {
                out.insert(flag.into(), value);
            }
        }
        // People write the choices of a list's items beside them.
        if let (true, Some(choices), Some(Value::Object(items))) =
            (is_array_schema(fields), fields.get("enum").filter(|_| !out.contains_key("enum")), out.get_mut("items"))
            && let Some(choices) = item_enum(choices, items)
        {
            items.entry("enum").or_insert(choices);
        }
        if fields.get("type").and_then(Value::as_str) == Some("file") {
            out.insert("format".into(), "binary".into());
        }
        out
    }

    fn translate_properties(&mut self, value: &'a Value, at: NodeRef<'a>, depth: usize) -> Value {
        let mut out = Map::new();
        for (name, value) in value.as_object().into_iter().flatten() {
            let property = NodeRef { value, ..at };
            if !self.is_hidden(property) {
                out.insert(name.clone(), self.translate(property, depth + 1));
            }
        }
        out.into()
    }

    /// Whether this is the other side's to write.
    fn is_hidden(&mut self, property: NodeRef<'a>) -> bool {
        let key = (self.direction, std::ptr::from_ref(property.value));
        if let Some(known) = self.schemas.hidden_properties.get(&key) {
            return *known;
        }
        let flag = match self.direction {
            Direction::Request => "readOnly",
            Direction::Response => "writeOnly",
        };
        let says = |value: &Value| value.get(flag) == Some(&Value::Bool(true));
        let hidden = says(property.value) || self.schemas.documents.resolve(property).is_ok_and(|at| says(at.value));
        self.schemas.hidden_properties.insert(key, hidden);
        hidden
    }

    fn translate_required(&mut self, value: &Value, fields: &'a Map<String, Value>, at: NodeRef<'a>) -> Option<Value> {
        let properties = fields.get("properties").and_then(Value::as_object);
        let mut names: Vec<&str> = Vec::new();
        let mut known = HashSet::new();
        for name in value.as_array()?.iter().filter_map(Value::as_str) {
            let property = properties.and_then(|properties| properties.get(name));
            let hidden = property.is_some_and(|value| self.is_hidden(NodeRef { value, ..at }));
            if known.insert(name) && !hidden && !self.hidden_properties.iter().any(|hidden| hidden.contains(name)) {
                names.push(name);
            }
        }
        (!names.is_empty()).then(|| json!(names))
    }

    fn translate_pattern_properties(&mut self, value: &'a Value, at: NodeRef<'a>, depth: usize) -> Option<Value> {
        let mut out = Map::new();
        for (pattern, value) in value.as_object()? {
            if self.schemas.can_compile(pattern) {
                out.insert(pattern.clone(), self.translate(NodeRef { value, ..at }, depth + 1));
            }
        }
        Some(out.into())
    }

    fn translate_map(&mut self, value: &'a Value, at: NodeRef<'a>, depth: usize) -> Option<Value> {
        let fields = value.as_object()?.iter();
        Some(fields.map(|(name, value)| (name.clone(), self.translate(NodeRef { value, ..at }, depth + 1))).collect())
    }

    /// The members of `allOf` describe one object: what one of them hides, no other demands.
    fn translate_all_of(&mut self, value: &'a Value, at: NodeRef<'a>, depth: usize) -> Option<Value> {
        let items = value.as_array().filter(|items| !items.is_empty())?;
        let mut hidden = HashSet::new();
        for (name, property) in self.schemas.object_schema(at).properties {
            if self.is_hidden(property) {
                hidden.insert(name);
            }
        }
        self.hidden_properties.push(hidden);
        let all = items.iter().map(|value| self.translate_all_of_member(NodeRef { value, ..at }, depth + 1)).collect();
        self.hidden_properties.pop();
        Some(all)
    }

    fn translate_list(&mut self, value: &'a Value, at: NodeRef<'a>, depth: usize) -> Option<Value> {
        let items = value.as_array().filter(|items| !items.is_empty())?;
        Some(items.iter().map(|value| self.translate(NodeRef { value, ..at }, depth + 1)).collect())
    }
}

fn is_array_schema(fields: &Map<String, Value>) -> bool {
    fields.get("type").and_then(Value::as_str) == Some("array")
}

fn item_enum(choices_of_list: &Value, items: &Map<String, Value>) -> Option<Value> {
    fix_enum(choices_of_list, items.get("type"))
}

fn description_entry(text: &str) -> (String, Value) {
    ("description".into(), description::shorten(text, MAX_DESCRIPTION_LEN).into())
}

/// Formats that only say how a number is stored tell an agent nothing.
fn is_informative_format(format: &str) -> bool {
    !matches!(format, "int32" | "int64" | "float" | "double" | "string" | "" | "integer" | "number" | "boolean")
}

/// Accepts `null` besides what is accepted already.
fn allow_null(out: &mut Map<String, Value>) {
    if let Some(Value::Array(choices)) = out.get_mut("enum")
        && !choices.contains(&Value::Null)
    {
        choices.push(Value::Null);
    }
    match out.get("type").cloned() {
        Some(Value::String(name)) if name != "null" => {
            out.insert("type".into(), json!([name, "null"]));
        }
        Some(Value::Array(mut names)) if !names.contains(&json!("null")) => {
            names.push("null".into());
            out.insert("type".into(), names.into());
        }
        Some(_) => {}
        None if ["$ref", "allOf", "anyOf", "oneOf", "const"].iter().any(|key| out.contains_key(*key)) => {
            let description = out.shift_remove("description");
            let inner = std::mem::take(out);
            out.insert("anyOf".into(), json!([inner, { "type": "null" }]));
            if let Some(description) = description {
                out.insert("description".into(), description);
            }
        }
        None => {}
    }
}

/// Puts right what would contradict itself.
fn remove_contradictions(out: &mut Map<String, Value>) {
    if out.get("properties").and_then(Value::as_object).is_some_and(Map::is_empty) {
        out.shift_remove("properties");
    }
    for (least, most) in [("minLength", "maxLength"), ("minItems", "maxItems"), ("minProperties", "maxProperties")] {
        let bound = |key| out.get(key).and_then(Value::as_u64);
        if let (Some(low), Some(high)) = (bound(least), bound(most))
            && low > high
        {
            out.shift_remove(least);
        }
    }
    // What people write for "an object with properties" without saying that it is an object.
    if out.contains_key("properties") && !["type", "allOf", "anyOf", "oneOf"].iter().any(|key| out.contains_key(*key)) {
        out.shift_insert(0, "type".into(), "object".into());
    }
}

/// `allOf` with one member says what that member says.
fn unwrap_single_all_of(mut out: Map<String, Value>) -> Map<String, Value> {
    let alone = out.get("allOf").and_then(Value::as_array).is_some_and(|members| members.len() == 1);
    let others = out.keys().all(|key| matches!(key.as_str(), "allOf" | "description" | "default" | "deprecated"));
    if !alone || !others {
        return out;
    }
    let member = out.shift_remove("allOf").and_then(|members| members.get(0).cloned());
    let Some(Value::Object(mut member)) = member else { return out };
    for (key, value) in out {
        member.insert(key, value);
    }
    member
}
