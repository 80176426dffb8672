//! Gemini's function declarations: a subset of OpenAPI 3.0's schemas. There are no references in it, so they are written
//! out, and one that leads back to itself is cut.

use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::limits::{self, gemini};
use super::node::{Kind, Node};
use super::plain::only_legal_arguments;
use super::projection::{Edits, Fit, Loss, Projected, Unfit, below, required, written};
use super::root;
use crate::json;
use crate::tool::Tool;

pub(super) fn project(name: &str, tool: &Tool) -> Projected {
    if !limits::gemini_takes_name(name) {
        let reason = "a name must begin with a letter or an underscore".to_owned();
        return Projected { text: None, losses: Vec::new(), set_aside: Some(reason) };
    }
    let (schema, losses) = schema(&tool.face.input_schema);
    let schema = match schema {
        Ok(schema) => schema,
        Err(unfit) => return Projected { text: None, losses, set_aside: Some(unfit.to_string()) },
    };
    let mut text = String::from("{\"name\":");
    json::push_string(name, &mut text);
    text.push_str(",\"description\":");
    json::push_string(&tool.face.description, &mut text);
    // An object without fields is refused here and there; a tool that takes nothing needs no schema.
    if schema.get("properties").and_then(Value::as_object).is_some_and(|fields| !fields.is_empty()) {
        text.push_str(",\"parameters\":");
        match written(&schema) {
            Ok(schema) => text.push_str(&schema),
            Err(unfit) => return Projected { text: None, losses, set_aside: Some(unfit.to_string()) },
        }
    }
    text.push('}');
    Projected { text: Some(text), losses, set_aside: None }
}

/// The schema, and what was lost.
fn schema(raw: &RawValue) -> (Fit<Value>, Vec<Loss>) {
    let schema: Value = serde_json::from_str(raw.get()).unwrap_or_default();
    let mut last = (Err(Unfit::new("", "it has no schema")), Vec::new());
    for deepest in gemini::REFERENCES {
        let mut writer = Writer { edits: Edits::of(&schema, gemini::PARTS), trail: Vec::new(), deepest };
        let written = writer.root(&schema);
        let fits = !writer.edits.is_too_large();
        last = (written, writer.edits.into_losses());
        if fits {
            break;
        }
    }
    last
}

struct Writer<'a> {
    edits: Edits<'a>,
    /// The references that are being written out.
    trail: Vec<String>,
    /// How many of them may be open at once.
    deepest: usize,
}

impl Writer<'_> {
    fn root(&mut self, schema: &Value) -> Fit<Value> {
        let mut keywords = root::object(schema, &mut self.edits)?;
        only_legal_arguments(&mut keywords, limits::gemini_takes_argument, &mut self.edits)?;
        let described = ["title", "description"].map(|key| keywords.shift_remove(key).filter(Value::is_string));
        keywords.retain(|key, _| key != "type" && !key.starts_with('$') && key != "definitions");
        let [title, description] = described;
        // A top with no fields is a tool without arguments: there is nothing to describe.
        let empty = keywords.get("properties").and_then(Value::as_object).is_none_or(Map::is_empty);
        if empty && keywords.get("additionalProperties").is_none() {
            keywords.insert("additionalProperties".to_owned(), json!(false));
        }
        let mut written = self.object(&keywords, "")?;
        written.entry("properties").or_insert_with(|| json!({}));
        Ok(described_as(written, title, description, false))
    }

    fn schema(&mut self, schema: &Value, path: &str) -> Fit<Value> {
        self.edits.enter(path)?;
        let written = self.part(schema, path);
        self.edits.leave();
        written
    }

    fn part(&mut self, schema: &Value, path: &str) -> Fit<Value> {
        let Node { path, title, description, nullable, kind } = Node::read(schema, path, &mut self.edits)?;
        let path = path.as_str();
        let written = match kind {
            Kind::Any => {
                self.edits.lose(path, "any value is not supported, narrowed to text, a number or a boolean");
                let forms = ["string", "number", "boolean"].map(|name| json!({ "type": name }));
                Map::from_iter([("anyOf".to_owned(), json!(forms))])
            }
            Kind::Null => return Err(Unfit::new(path, "a value that is always null is not supported")),
            Kind::Reference(reference) => self.reference(&reference, path)?,
            Kind::Several(alternatives) => self.alternatives(&alternatives, path)?,
            Kind::One(name, keywords) => match name.as_str() {
                "object" => self.object(&keywords, path)?,
                "array" => self.array(&keywords, path)?,
                _ => self.scalar(&name, keywords, path),
            },
        };
        Ok(described_as(written, title, description, nullable))
    }

    fn object(&mut self, keywords: &Map<String, Value>, path: &str) -> Fit<Map<String, Value>> {
        let mut written = self.kept("object", keywords, path, &["properties", "required", "additionalProperties"]);
        let (required, mut fields) = (required(keywords), Map::new());
        for (name, schema) in keywords.get("properties").and_then(Value::as_object).into_iter().flatten() {
            if *schema == Value::Bool(false) {
                continue;
            }
            let at = below(&format!("{path}/properties"), name);
            match self.schema(schema, &at) {
                Ok(field) => drop(fields.insert(name.clone(), field)),
                Err(unfit) if required.contains(name.as_str()) => return Err(unfit),
                Err(unfit) => self.edits.leave_out(&at, &unfit),
            }
        }
        match keywords.get("additionalProperties") {
            Some(Value::Bool(false)) => {}
            None if !fields.is_empty() => {}
            None | Some(_) => self.edits.lose(
                &below(path, "additionalProperties"),
                "fields of any name cannot be described; the object stays open",
            ),
        }
        let required: Vec<&String> = fields.keys().filter(|name| required.contains(name.as_str())).collect();
        let required = json!(required);
        if !fields.is_empty() {
            written.insert("properties".to_owned(), Value::Object(fields));
        }
        if required != json!([]) {
            written.insert("required".to_owned(), required);
        }
        Ok(written)
    }

    fn array(&mut self, keywords: &Map<String, Value>, path: &str) -> Fit<Map<String, Value>> {
        let any = Value::Bool(true);
        let items = match (keywords.get("items"), keywords.get("prefixItems")) {
            (Some(Value::Array(several)), _) | (None, Some(Value::Array(several))) => {
                self.edits.lose(path, "items that differ by their place are not supported; each may be any of them");
                self.schema(&json!({ "anyOf": several }), &below(path, "items"))?
            }
            (items, _) => self.schema(items.unwrap_or(&any), &below(path, "items"))?,
        };
        let mut written = self.kept("array", keywords, path, &["items", "prefixItems"]);
        written.insert("items".to_owned(), items);
        Ok(written)
    }

    fn scalar(&mut self, name: &str, mut keywords: Map<String, Value>, path: &str) -> Map<String, Value> {
        if name == "string"
            && let Some(constant) = keywords.shift_remove("const")
        {
            keywords.insert("enum".to_owned(), json!([constant]));
        }
        if name == "integer" {
            inclusive(&mut keywords);
        }
        if name == "string" {
            self.only_texts(&mut keywords, path);
        }
        let format = keywords.get("format").and_then(Value::as_str);
        if let Some(format) = format.filter(|format| !gemini::formats(name).contains(format)) {
            self.edits.lose(&below(path, "format"), format!("{} is not supported, dropped", json!(format)));
            keywords.shift_remove("format");
        }
        self.kept(name, &keywords, path, &[])
    }

    /// Only texts that say something may be chosen from.
    fn only_texts(&mut self, keywords: &mut Map<String, Value>, path: &str) {
        let Some(Value::Array(values)) = keywords.get_mut("enum") else { return };
        let all = values.len();
        values.retain(|value| value.as_str().is_some_and(|text| !text.is_empty()));
        let (left, at) = (values.len(), below(path, "enum"));
        if left < all {
            self.edits.lose(&at, "choices that are empty or no text are not supported, dropped");
        }
        if left == 0 {
            keywords.shift_remove("enum");
        }
    }

    /// The keywords that may stay; the others are told as lost, but for those that are written by other means.
    fn kept(&mut self, name: &str, keywords: &Map<String, Value>, path: &str, others: &[&str]) -> Map<String, Value> {
        let mut written = Map::from_iter([("type".to_owned(), json!(name))]);
        for (keyword, value) in keywords {
            match keyword.as_str() {
                keyword if others.contains(&keyword) => {}
                known if gemini::keywords(name).contains(&known) => {
                    drop(written.insert(keyword.clone(), value.clone()))
                }
                _ => self.edits.drop_keyword(path, keyword, value),
            }
        }
        written
    }

    fn alternatives(&mut self, alternatives: &[(String, Value)], path: &str) -> Fit<Map<String, Value>> {
        let forms = alternatives.iter().map(|(at, form)| (at.as_str(), self.schema(form, at))).collect();
        self.edits.any_of(forms, path)
    }

    fn reference(&mut self, reference: &str, path: &str) -> Fit<Map<String, Value>> {
        let Some(target) = self.edits.target(reference) else {
            return Err(Unfit::new(&below(path, "$ref"), "it leads nowhere"));
        };
        if self.trail.iter().any(|open| open == reference) || reference == "#" || self.trail.len() >= self.deepest {
            let is_object =
                target.get("properties").is_some() || target.get("type").is_some_and(|name| *name == "object");
            if !is_object {
                return Err(Unfit::new(path, "its references have no end"));
            }
            self.edits.lose(path, "references are written out, but not without end; cut here, the object stays open");
            return Ok(Map::from_iter([("type".to_owned(), json!("object"))]));
        }
        self.trail.push(reference.to_owned());
        let written = self.schema(target, reference.trim_start_matches('#'));
        self.trail.pop();
        Ok(written?.as_object().cloned().unwrap_or_default())
    }
}

/// Bounds that are not reached themselves: an integer has a next one.
fn inclusive(keywords: &mut Map<String, Value>) {
    for (from, to, step) in [("exclusiveMinimum", "minimum", 1), ("exclusiveMaximum", "maximum", -1)] {
        let bound = keywords.get(from).and_then(Value::as_i64).and_then(|bound| bound.checked_add(step));
        if let Some(bound) = bound
            && !keywords.contains_key(to)
        {
            keywords.shift_remove(from);
            keywords.insert(to.to_owned(), json!(bound));
        }
    }
}

/// What stands around a schema wins over what it says of itself.
fn described_as(
    mut written: Map<String, Value>,
    title: Option<Value>,
    description: Option<Value>,
    nullable: bool,
) -> Value {
    for (key, text) in [("title", title), ("description", description)] {
        if let Some(text) = text {
            written.insert(key.to_owned(), text);
        }
    }
    if nullable {
        written.insert("nullable".to_owned(), json!(true));
    }
    Value::Object(written)
}
