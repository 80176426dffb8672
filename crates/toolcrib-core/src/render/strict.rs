//! OpenAI's Structured Outputs: objects are closed and every field is required, so what is optional may be null instead.
//! An object with fields of any name cannot be said in it.

mod definitions;
mod measure;

use std::collections::{BTreeMap, HashMap, HashSet};

use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::limits::strict as limits;
use super::node::{Kind, Node};
use super::projection::{Edits, Fit, Loss, Unfit, below, required};
use super::root;
use definitions::Definition;

/// The schema, and what was lost.
pub(super) fn schema(raw: &RawValue) -> (Fit<Value>, Vec<Loss>) {
    let schema: Value = serde_json::from_str(raw.get()).unwrap_or_default();
    let mut writer = Writer {
        edits: Edits::of(&schema, limits::PARTS),
        definitions: BTreeMap::new(),
        names: HashSet::new(),
        next_numbers: HashMap::new(),
        enum_values: 0,
    };
    let written = writer.root(&schema);
    (written, writer.edits.into_losses())
}

struct Writer<'a> {
    edits: Edits<'a>,
    /// What references lead to, by the reference.
    definitions: BTreeMap<String, Definition>,
    /// The names of definitions that are taken, and the number to try next after a name that is.
    names: HashSet<String>,
    next_numbers: HashMap<String, usize>,
    enum_values: usize,
}

impl Writer<'_> {
    fn root(&mut self, schema: &Value) -> Fit<Value> {
        let keywords = root::object(schema, &mut self.edits)?;
        let open = keywords.get("additionalProperties").is_some_and(|more| *more != Value::Bool(false));
        let empty = keywords.get("properties").and_then(Value::as_object).is_none_or(Map::is_empty);
        if open && empty {
            return Err(Unfit::new("", "it takes arguments of any name"));
        }
        let mut object = self.closed(&keywords, "", 1)?;
        for key in ["description", "title"] {
            if let Some(text) = keywords.get(key).filter(|text| text.is_string()) {
                object.insert(key.to_owned(), text.clone());
            }
        }
        let definitions = self.referred_to(&Value::Object(object.clone()))?;
        if !definitions.is_empty() {
            object.insert("$defs".to_owned(), Value::Object(definitions));
        }
        let whole = Value::Object(object);
        measure::within_limits(&whole)?;
        Ok(whole)
    }

    fn schema(&mut self, schema: &Value, path: &str, depth: usize) -> Fit<Value> {
        self.edits.enter(path)?;
        let written = self.part(schema, path, depth);
        self.edits.leave();
        written
    }

    fn part(&mut self, schema: &Value, path: &str, depth: usize) -> Fit<Value> {
        let Node { path, title, description, nullable, kind } = Node::read(schema, path, &mut self.edits)?;
        let path = path.as_str();
        let written = match kind {
            Kind::Any => {
                self.edits.lose(path, "any value is not supported, narrowed to text, a number, a boolean or null");
                Map::from_iter([("type".to_owned(), json!(["string", "number", "boolean", "null"]))])
            }
            Kind::Null => Map::from_iter([("type".to_owned(), json!("null"))]),
            Kind::Reference(reference) => self.reference(&reference, path)?,
            Kind::Several(alternatives) => self.alternatives(&alternatives, path, depth)?,
            Kind::One(name, keywords) => match name.as_str() {
                "object" => self.object(&keywords, path, depth + 1)?,
                "array" => self.array(&keywords, path, depth)?,
                _ => self.scalar(&name, &keywords, path),
            },
        };
        let written = if nullable { or_null(written) } else { written };
        Ok(described(written, title, description))
    }

    /// An object below the top.
    fn object(&mut self, keywords: &Map<String, Value>, path: &str, depth: usize) -> Fit<Map<String, Value>> {
        if depth > limits::DEPTH {
            return Err(Unfit::new(path, format!("objects nest deeper than {} levels", limits::DEPTH)));
        }
        let empty = keywords.get("properties").and_then(Value::as_object).is_none_or(Map::is_empty);
        if empty && keywords.get("additionalProperties") != Some(&Value::Bool(false)) {
            return Err(Unfit::new(path, "an object with fields of any name is not supported"));
        }
        self.closed(keywords, path, depth)
    }

    fn closed(&mut self, keywords: &Map<String, Value>, path: &str, depth: usize) -> Fit<Map<String, Value>> {
        for (keyword, value) in keywords {
            match keyword.as_str() {
                "type" | "title" | "description" | "properties" | "required" => {}
                "additionalProperties" if *value == Value::Bool(false) => {}
                "additionalProperties" => {
                    self.edits.lose(&below(path, keyword), "other fields are not supported, dropped")
                }
                key if key.starts_with('$') || key == "definitions" => {}
                _ => self.edits.drop_keyword(path, keyword, value),
            }
        }
        let (required, mut fields) = (required(keywords), Map::new());
        for (name, schema) in keywords.get("properties").and_then(Value::as_object).into_iter().flatten() {
            if *schema == Value::Bool(false) {
                continue;
            }
            let at = below(&format!("{path}/properties"), name);
            let required = required.contains(name.as_str());
            match self.schema(schema, &at, depth) {
                Ok(field) if required => drop(fields.insert(name.clone(), field)),
                Ok(field) => drop(fields.insert(name.clone(), optional(field))),
                Err(unfit) if required => return Err(unfit),
                Err(unfit) => self.edits.leave_out(&at, &unfit),
            }
        }
        let names: Vec<&String> = fields.keys().collect();
        let required = json!(names);
        Ok(Map::from_iter([
            ("type".to_owned(), json!("object")),
            ("properties".to_owned(), Value::Object(fields)),
            ("required".to_owned(), required),
            ("additionalProperties".to_owned(), json!(false)),
        ]))
    }

    fn array(&mut self, keywords: &Map<String, Value>, path: &str, depth: usize) -> Fit<Map<String, Value>> {
        let any = Value::Bool(true);
        let items = match (keywords.get("items"), keywords.get("prefixItems")) {
            (Some(Value::Array(several)), _) | (None, Some(Value::Array(several))) => {
                self.edits.lose(path, "items that differ by their place are not supported; each may be any of them");
                self.schema(&json!({ "anyOf": several }), &below(path, "items"), depth)?
            }
            (items, _) => self.schema(items.unwrap_or(&any), &below(path, "items"), depth)?,
        };
        let mut written = Map::from_iter([("type".to_owned(), json!("array")), ("items".to_owned(), items)]);
        for (keyword, value) in keywords {
            match keyword.as_str() {
                "items" | "prefixItems" => {}
                known if limits::keywords("array").contains(&known) => {
                    drop(written.insert(keyword.clone(), value.clone()))
                }
                _ => self.edits.drop_keyword(path, keyword, value),
            }
        }
        Ok(written)
    }

    fn scalar(&mut self, name: &str, keywords: &Map<String, Value>, path: &str) -> Map<String, Value> {
        let mut written = Map::from_iter([("type".to_owned(), json!(name))]);
        for (keyword, value) in keywords {
            let known = limits::keywords(name).contains(&keyword.as_str());
            let taken = known
                && match (keyword.as_str(), value) {
                    ("format", Value::String(format)) => limits::FORMATS.contains(&format.as_str()),
                    ("pattern", Value::String(pattern)) => !pattern.replace("(?:", "").contains("(?"),
                    ("enum", Value::Array(values)) => self.takes_enum(values),
                    ("format" | "pattern" | "enum", _) => false,
                    _ => true,
                };
            match taken {
                true => drop(written.insert(keyword.clone(), value.clone())),
                false => self.edits.drop_keyword(path, keyword, value),
            }
        }
        written
    }

    fn takes_enum(&mut self, values: &[Value]) -> bool {
        let (many, most) = limits::LONG_ENUM;
        let characters: usize = values.iter().filter_map(Value::as_str).map(|value| value.chars().count()).sum();
        // One more, for null where the field is optional.
        let total = self.enum_values + values.len() + 1;
        let taken = !values.is_empty() && total <= limits::ENUM_VALUES && (values.len() <= many || characters <= most);
        if taken {
            self.enum_values = total;
        }
        taken
    }

    fn alternatives(&mut self, alternatives: &[(String, Value)], path: &str, depth: usize) -> Fit<Map<String, Value>> {
        let forms = alternatives.iter().map(|(at, form)| (at.as_str(), self.schema(form, at, depth))).collect();
        self.edits.any_of(forms, path)
    }
}

/// The same or null. What stands around several forms goes around one more.
fn or_null(mut written: Map<String, Value>) -> Map<String, Value> {
    let nothing = json!({ "type": "null" });
    if let Some(Value::Array(alternatives)) = written.get_mut("anyOf") {
        if !alternatives.contains(&nothing) {
            alternatives.push(nothing);
        }
        return written;
    }
    let simple = !["const", "$ref", "properties", "items"].iter().any(|key| written.contains_key(*key));
    match written.get("type").cloned() {
        Some(Value::String(name)) if simple && name != "null" => {
            written.insert("type".to_owned(), json!([name, "null"]));
            if let Some(Value::Array(values)) = written.get_mut("enum") {
                values.push(Value::Null);
            }
            written
        }
        Some(Value::String(name)) if name == "null" => written,
        Some(Value::Array(names)) if names.iter().any(|name| name == "null") => written,
        _ => Map::from_iter([("anyOf".to_owned(), json!([written, nothing]))]),
    }
}

/// A field that need not be given.
fn optional(field: Value) -> Value {
    let Value::Object(mut written) = field else { return field };
    let (title, description) = (written.shift_remove("title"), written.shift_remove("description"));
    described(or_null(written), title, description)
}

fn described(mut written: Map<String, Value>, title: Option<Value>, description: Option<Value>) -> Value {
    // Nothing may stand beside a reference.
    if written.contains_key("$ref") && (title.is_some() || description.is_some()) {
        written = Map::from_iter([("anyOf".to_owned(), json!([written]))]);
    }
    for (key, text) in [("title", title), ("description", description)] {
        if let Some(text) = text {
            written.insert(key.to_owned(), text);
        }
    }
    Value::Object(written)
}
