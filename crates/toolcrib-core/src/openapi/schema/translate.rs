//! One schema, keyword by keyword, from a document's words into JSON Schema 2020-12. Only what is known and well formed
//! comes out, so that the result can always be compiled; what only decorates (`x-`, examples, titles) is left behind.

use std::rc::Rc;

use serde_json::{Map, Number, Value, json};

use super::super::library::{At, reference};
use super::super::wording;
use super::{Dialect, Direction, Schemas, Translated};

/// Deeper than any schema that somebody reads.
const DEEPEST: usize = 40;
const LONGEST_DESCRIPTION: usize = 160;
const LONGEST_DEFAULT: usize = 200;

pub(super) fn schema<'a>(
    schemas: &mut Schemas<'a>,
    at: At<'a>,
    direction: Direction,
    broken: &mut Vec<String>,
) -> Translated {
    let mut translation = Translation { schemas, direction, references: Vec::new(), broken };
    let value = translation.schema(at, 0);
    Translated::referring(value, translation.references)
}

struct Translation<'s, 'a> {
    schemas: &'s mut Schemas<'a>,
    direction: Direction,
    references: Vec<Rc<str>>,
    broken: &'s mut Vec<String>,
}

impl<'a> Translation<'_, 'a> {
    fn schema(&mut self, at: At<'a>, depth: usize) -> Value {
        let fields = match at.value {
            Value::Object(fields) if depth < DEEPEST => fields,
            Value::Bool(false) => return json!({ "not": {} }),
            Value::Object(_) | Value::Bool(true) => return json!({}),
            Value::Null | Value::Number(_) | Value::String(_) | Value::Array(_) => {
                self.broken.push("a schema is neither an object nor true or false; anything is accepted there".into());
                return json!({});
            }
        };
        if let Some(reference) = reference(at.value) {
            return self.referring(reference, fields, at, depth);
        }
        let mut out = self.keywords(fields, at, depth);
        let nullable = |key: &str| fields.get(key) == Some(&Value::Bool(true));
        if nullable("nullable") || nullable("x-nullable") {
            admit_null(&mut out);
        }
        settle(&mut out);
        unwrapped(out).into()
    }

    fn referring(&mut self, reference: &str, fields: &'a Map<String, Value>, at: At<'a>, depth: usize) -> Value {
        let (target, address) = match self.schemas.library.target(reference, at.place) {
            Ok(found) => found,
            Err(reason) => {
                self.broken.push(format!("{reason}; anything is accepted in its place"));
                return json!({});
            }
        };
        let name = self.schemas.name(target, address);
        self.references.push(name.clone());
        let mut out = match self.schemas.dialect {
            Dialect::New => self.keywords(fields, at, depth),
            Dialect::Old => {
                let description = fields.get("description").and_then(Value::as_str);
                description.map(described).into_iter().collect()
            }
        };
        out.shift_insert(0, "$ref".into(), format!("#/$defs/{name}").into());
        if fields.get("nullable") == Some(&Value::Bool(true)) {
            admit_null(&mut out);
        }
        out.into()
    }

    fn keywords(&mut self, fields: &'a Map<String, Value>, at: At<'a>, depth: usize) -> Map<String, Value> {
        let mut out = Map::new();
        for (key, value) in fields {
            let below = At { value, ..at };
            let translated = match key.as_str() {
                "type" => types(value),
                "properties" => Some(self.properties(value, at, depth)),
                "patternProperties" => self.patterned(value, at, depth),
                "dependentSchemas" => self.named(value, at, depth),
                "required" => self.required(value, fields, at),
                "items" if value.is_array() => {
                    out.insert("prefixItems".into(), self.list(value, at, depth).unwrap_or_else(|| json!([{}])));
                    None
                }
                "prefixItems" | "anyOf" | "oneOf" | "allOf" => self.list(value, at, depth),
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
                    Value::Object(_) => Some(self.schema(below, depth + 1)),
                    Value::Null | Value::Number(_) | Value::String(_) | Value::Array(_) => None,
                },
                "enum" => choices(value, fields.get("type")),
                "const" => Some(value.clone()),
                "default" => (value.to_string().len() <= LONGEST_DEFAULT).then(|| value.clone()),
                "description" => value.as_str().map(|text| described(text).1).filter(|text| *text != ""),
                "format" => value.as_str().filter(|format| tells(format)).map(Into::into),
                "pattern" => value.as_str().filter(|pattern| self.schemas.compiles(pattern)).map(Into::into),
                "minimum" | "maximum" => number(value).map(Value::Number),
                "exclusiveMinimum" | "exclusiveMaximum" => match value {
                    Value::Bool(_) => None,
                    Value::Null | Value::Number(_) | Value::String(_) | Value::Array(_) | Value::Object(_) => {
                        number(value).map(Value::Number)
                    }
                },
                "multipleOf" => {
                    number(value).filter(|step| step.as_f64().is_some_and(|step| step > 0.0)).map(Value::Number)
                }
                "minLength" | "maxLength" | "minItems" | "maxItems" | "minProperties" | "maxProperties"
                | "minContains" | "maxContains" => count(value),
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
        if fields.get("type").and_then(Value::as_str) == Some("file") {
            out.insert("format".into(), "binary".into());
        }
        out
    }

    fn properties(&mut self, value: &'a Value, at: At<'a>, depth: usize) -> Value {
        let mut out = Map::new();
        for (name, value) in value.as_object().into_iter().flatten() {
            let property = At { value, ..at };
            if !self.is_hidden(property) {
                out.insert(name.clone(), self.schema(property, depth + 1));
            }
        }
        out.into()
    }

    /// Whether this is the other side's to write.
    fn is_hidden(&self, property: At<'a>) -> bool {
        let flag = match self.direction {
            Direction::Request => "readOnly",
            Direction::Answer => "writeOnly",
        };
        let says = |value: &Value| value.get(flag) == Some(&Value::Bool(true));
        says(property.value) || self.schemas.library.follow(property).is_ok_and(|at| says(at.value))
    }

    fn required(&self, value: &Value, fields: &'a Map<String, Value>, at: At<'a>) -> Option<Value> {
        let properties = fields.get("properties").and_then(Value::as_object);
        let hidden = |name: &str| {
            let property = properties.and_then(|properties| properties.get(name));
            property.is_some_and(|value| self.is_hidden(At { value, ..at }))
        };
        let mut names: Vec<&str> = Vec::new();
        for name in value.as_array()?.iter().filter_map(Value::as_str) {
            if !names.contains(&name) && !hidden(name) {
                names.push(name);
            }
        }
        (!names.is_empty()).then(|| json!(names))
    }

    fn patterned(&mut self, value: &'a Value, at: At<'a>, depth: usize) -> Option<Value> {
        let mut out = Map::new();
        for (pattern, value) in value.as_object()? {
            if self.schemas.compiles(pattern) {
                out.insert(pattern.clone(), self.schema(At { value, ..at }, depth + 1));
            }
        }
        Some(out.into())
    }

    fn named(&mut self, value: &'a Value, at: At<'a>, depth: usize) -> Option<Value> {
        let fields = value.as_object()?.iter();
        Some(fields.map(|(name, value)| (name.clone(), self.schema(At { value, ..at }, depth + 1))).collect())
    }

    fn list(&mut self, value: &'a Value, at: At<'a>, depth: usize) -> Option<Value> {
        let items = value.as_array().filter(|items| !items.is_empty())?;
        Some(items.iter().map(|value| self.schema(At { value, ..at }, depth + 1)).collect())
    }
}

const TYPES: [&str; 7] = ["string", "number", "integer", "boolean", "array", "object", "null"];

fn types(value: &Value) -> Option<Value> {
    match value {
        Value::String(name) => type_name(name).map(Into::into),
        Value::Array(names) => {
            let mut known: Vec<&str> = Vec::new();
            for name in names.iter().filter_map(Value::as_str).filter_map(type_name) {
                if !known.contains(&name) {
                    known.push(name);
                }
            }
            match known.as_slice() {
                [] => None,
                [only] => Some((*only).into()),
                several => Some(json!(several)),
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => None,
    }
}

/// The type that a word means, where people write more than the seven there are.
fn type_name(name: &str) -> Option<&'static str> {
    let lower = name.to_ascii_lowercase();
    let known = TYPES.into_iter().find(|known| *known == lower);
    known.or(match lower.as_str() {
        "file" | "date" | "datetime" | "date-time" | "uuid" | "uri" | "str" | "text" => Some("string"),
        "int" | "int32" | "int64" | "long" => Some("integer"),
        "float" | "double" | "decimal" => Some("number"),
        "bool" => Some("boolean"),
        "list" => Some("array"),
        "map" | "dict" | "hash" => Some("object"),
        _ => None,
    })
}

/// The values there are to choose from, each once, and of the type that is asked for where a document is careless.
fn choices(value: &Value, asked: Option<&Value>) -> Option<Value> {
    let asked = asked.and_then(Value::as_str);
    let mut known: Vec<Value> = Vec::new();
    for value in value.as_array()? {
        let value = match (asked, value) {
            (Some("string"), Value::Number(_) | Value::Bool(_)) => value.to_string().into(),
            (Some("integer" | "number"), Value::String(text)) => {
                serde_json::from_str::<Number>(text).map_or_else(|_| value.clone(), Value::Number)
            }
            _ => value.clone(),
        };
        if !known.contains(&value) {
            known.push(value);
        }
    }
    (!known.is_empty()).then(|| known.into())
}

fn number(value: &Value) -> Option<Number> {
    match value {
        Value::Number(number) => Some(number.clone()),
        Value::String(text) => serde_json::from_str(text).ok(),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    }
}

fn count(value: &Value) -> Option<Value> {
    let number = number(value)?;
    let whole = number.as_u64().or_else(|| {
        let float = number.as_f64().filter(|float| float.fract() == 0.0 && (0.0..9e15).contains(float))?;
        Some(float as u64)
    });
    whole.map(Into::into)
}

fn described(text: &str) -> (String, Value) {
    ("description".into(), wording::shortened(text, LONGEST_DESCRIPTION).into())
}

/// Formats that only say how a number is stored tell an agent nothing.
fn tells(format: &str) -> bool {
    !matches!(format, "int32" | "int64" | "float" | "double" | "string" | "" | "integer" | "number" | "boolean")
}

/// Accepts `null` besides what is accepted already.
fn admit_null(out: &mut Map<String, Value>) {
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
fn settle(out: &mut Map<String, Value>) {
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
fn unwrapped(mut out: Map<String, Value>) -> Map<String, Value> {
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
