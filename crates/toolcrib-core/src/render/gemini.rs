//! Gemini's function declarations: a subset of OpenAPI 3.0's schemas. There are no references in it, so they are written
//! out, and one that leads back to itself is cut.

use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::limits::{self, gemini};
use super::passthrough::drop_illegal_arguments;
use super::projection::{
    Loss, ProjectedTool, ProjectionContext, ProjectionResult, Unsupported, child_pointer, required_names,
    to_bounded_string,
};
use super::root;
use super::schema::{SchemaKind, SchemaNode};
use crate::json;
use crate::tool::Tool;

pub(super) fn project(name: &str, tool: &Tool) -> ProjectedTool {
    if !limits::is_gemini_name(name) {
        let reason = "a name must begin with a letter or an underscore".to_owned();
        return ProjectedTool { text: None, losses: Vec::new(), unsupported_reason: Some(reason) };
    }
    let (schema, losses) = project_schema(&tool.listing.input_schema);
    let schema = match schema {
        Ok(schema) => schema,
        Err(unfit) => return ProjectedTool { text: None, losses, unsupported_reason: Some(unfit.to_string()) },
    };
    let mut text = String::from("{\"name\":");
    json::push_json_string(name, &mut text);
    text.push_str(",\"description\":");
    json::push_json_string(&tool.listing.description, &mut text);
    // An object without fields is refused here and there; a tool that takes nothing needs no schema.
    if schema.get("properties").and_then(Value::as_object).is_some_and(|fields| !fields.is_empty()) {
        text.push_str(",\"parameters\":");
        match to_bounded_string(&schema) {
            Ok(schema) => text.push_str(&schema),
            Err(unfit) => return ProjectedTool { text: None, losses, unsupported_reason: Some(unfit.to_string()) },
        }
    }
    text.push('}');
    ProjectedTool { text: Some(text), losses, unsupported_reason: None }
}

/// The schema, and what was lost.
fn project_schema(raw: &RawValue) -> (ProjectionResult<Value>, Vec<Loss>) {
    let schema: Value = serde_json::from_str(raw.get()).unwrap_or_default();
    let mut last = (Err(Unsupported::new("", "it has no schema")), Vec::new());
    for deepest in gemini::REFERENCE_DEPTHS {
        let mut writer = GeminiProjector {
            edits: ProjectionContext::new(&schema, gemini::MAX_PARTS),
            open_references: Vec::new(),
            max_open_references: deepest,
        };
        let written = writer.project_root(&schema);
        let fits = !writer.edits.is_too_large();
        last = (written, writer.edits.into_losses());
        if fits {
            break;
        }
    }
    last
}

struct GeminiProjector<'a> {
    edits: ProjectionContext<'a>,
    /// The references that are being written out.
    open_references: Vec<String>,
    /// How many of them may be open at once.
    max_open_references: usize,
}

impl GeminiProjector<'_> {
    fn project_root(&mut self, schema: &Value) -> ProjectionResult<Value> {
        let mut keywords = root::to_object_schema(schema, &mut self.edits)?;
        drop_illegal_arguments(&mut keywords, limits::is_gemini_argument_name, &mut self.edits)?;
        let described = ["title", "description"].map(|key| keywords.shift_remove(key).filter(Value::is_string));
        keywords.retain(|key, _| key != "type" && !key.starts_with('$') && key != "definitions");
        let [title, description] = described;
        // A top with no fields is a tool without arguments: there is nothing to describe.
        let empty = keywords.get("properties").and_then(Value::as_object).is_none_or(Map::is_empty);
        if empty && keywords.get("additionalProperties").is_none() {
            keywords.insert("additionalProperties".to_owned(), json!(false));
        }
        let mut written = self.project_object(&keywords, "")?;
        written.entry("properties").or_insert_with(|| json!({}));
        Ok(with_annotations(written, title, description, false))
    }

    fn project_nested(&mut self, schema: &Value, path: &str) -> ProjectionResult<Value> {
        self.edits.enter_part(path)?;
        let written = self.project_part(schema, path);
        self.edits.leave_part();
        written
    }

    fn project_part(&mut self, schema: &Value, path: &str) -> ProjectionResult<Value> {
        let SchemaNode { path, title, description, nullable, kind } = SchemaNode::parse(schema, path, &mut self.edits)?;
        let path = path.as_str();
        let written = match kind {
            SchemaKind::Any => {
                self.edits.record_loss(path, "any value is not supported, narrowed to text, a number or a boolean");
                let forms = ["string", "number", "boolean"].map(|name| json!({ "type": name }));
                Map::from_iter([("anyOf".to_owned(), json!(forms))])
            }
            SchemaKind::Null => return Err(Unsupported::new(path, "a value that is always null is not supported")),
            SchemaKind::Reference(reference) => self.inline_reference(&reference, path)?,
            SchemaKind::Alternatives(alternatives) => self.project_alternatives(&alternatives, path)?,
            SchemaKind::Typed(name, keywords) => match name.as_str() {
                "object" => self.project_object(&keywords, path)?,
                "array" => self.project_array(&keywords, path)?,
                _ => self.project_scalar(&name, keywords, path),
            },
        };
        Ok(with_annotations(written, title, description, nullable))
    }

    fn project_object(&mut self, keywords: &Map<String, Value>, path: &str) -> ProjectionResult<Map<String, Value>> {
        let mut written =
            self.supported_keywords("object", keywords, path, &["properties", "required", "additionalProperties"]);
        let (required, mut fields) = (required_names(keywords), Map::new());
        for (name, schema) in keywords.get("properties").and_then(Value::as_object).into_iter().flatten() {
            if *schema == Value::Bool(false) {
                continue;
            }
            let at = child_pointer(&format!("{path}/properties"), name);
            match self.project_nested(schema, &at) {
                Ok(field) => drop(fields.insert(name.clone(), field)),
                Err(unfit) if required.contains(name.as_str()) => return Err(unfit),
                Err(unfit) => self.edits.record_dropped_field(&at, &unfit),
            }
        }
        match keywords.get("additionalProperties") {
            Some(Value::Bool(false)) => {}
            None if !fields.is_empty() => {}
            None | Some(_) => self.edits.record_loss(
                &child_pointer(path, "additionalProperties"),
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

    fn project_array(&mut self, keywords: &Map<String, Value>, path: &str) -> ProjectionResult<Map<String, Value>> {
        let any = Value::Bool(true);
        let items = match (keywords.get("items"), keywords.get("prefixItems")) {
            (Some(Value::Array(several)), _) | (None, Some(Value::Array(several))) => {
                self.edits
                    .record_loss(path, "items that differ by their place are not supported; each may be any of them");
                self.project_nested(&json!({ "anyOf": several }), &child_pointer(path, "items"))?
            }
            (items, _) => self.project_nested(items.unwrap_or(&any), &child_pointer(path, "items"))?,
        };
        let mut written = self.supported_keywords("array", keywords, path, &["items", "prefixItems"]);
        written.insert("items".to_owned(), items);
        Ok(written)
    }

    fn project_scalar(&mut self, name: &str, mut keywords: Map<String, Value>, path: &str) -> Map<String, Value> {
        if name == "string"
            && let Some(constant) = keywords.shift_remove("const")
        {
            keywords.insert("enum".to_owned(), json!([constant]));
        }
        if name == "integer" {
            to_inclusive_bounds(&mut keywords);
        }
        if name == "string" {
            self.keep_text_choices(&mut keywords, path);
        }
        let format = keywords.get("format").and_then(Value::as_str);
        if let Some(format) = format.filter(|format| !gemini::supported_formats(name).contains(format)) {
            self.edits
                .record_loss(&child_pointer(path, "format"), format!("{} is not supported, dropped", json!(format)));
            keywords.shift_remove("format");
        }
        self.supported_keywords(name, &keywords, path, &[])
    }

    /// Only texts that say something may be chosen from.
    fn keep_text_choices(&mut self, keywords: &mut Map<String, Value>, path: &str) {
        let Some(Value::Array(values)) = keywords.get_mut("enum") else { return };
        let all = values.len();
        values.retain(|value| value.as_str().is_some_and(|text| !text.is_empty()));
        let (left, at) = (values.len(), child_pointer(path, "enum"));
        if left < all {
            self.edits.record_loss(&at, "choices that are empty or no text are not supported, dropped");
        }
        if left == 0 {
            keywords.shift_remove("enum");
        }
    }

    /// The keywords that may stay; the others are told as lost, but for those that are written by other means.
    fn supported_keywords(
        &mut self,
        name: &str,
        keywords: &Map<String, Value>,
        path: &str,
        others: &[&str],
    ) -> Map<String, Value> {
        let mut written = Map::from_iter([("type".to_owned(), json!(name))]);
        for (keyword, value) in keywords {
            match keyword.as_str() {
                keyword if others.contains(&keyword) => {}
                known if gemini::supported_keywords(name).contains(&known) => {
                    drop(written.insert(keyword.clone(), value.clone()))
                }
                _ => self.edits.record_dropped_keyword(path, keyword, value),
            }
        }
        written
    }

    fn project_alternatives(
        &mut self,
        alternatives: &[(String, Value)],
        path: &str,
    ) -> ProjectionResult<Map<String, Value>> {
        let forms = alternatives.iter().map(|(at, form)| (at.as_str(), self.project_nested(form, at))).collect();
        self.edits.join_alternatives(forms, path)
    }

    fn inline_reference(&mut self, reference: &str, path: &str) -> ProjectionResult<Map<String, Value>> {
        let Some(target) = self.edits.resolve(reference) else {
            return Err(Unsupported::new(&child_pointer(path, "$ref"), "it leads nowhere"));
        };
        if self.open_references.iter().any(|open| open == reference)
            || reference == "#"
            || self.open_references.len() >= self.max_open_references
        {
            let is_object =
                target.get("properties").is_some() || target.get("type").is_some_and(|name| *name == "object");
            if !is_object {
                return Err(Unsupported::new(path, "its references have no end"));
            }
            self.edits
                .record_loss(path, "references are written out, but not without end; cut here, the object stays open");
            return Ok(Map::from_iter([("type".to_owned(), json!("object"))]));
        }
        self.open_references.push(reference.to_owned());
        let written = self.project_nested(target, reference.trim_start_matches('#'));
        self.open_references.pop();
        Ok(written?.as_object().cloned().unwrap_or_default())
    }
}

/// Bounds that are not reached themselves: an integer has a next one.
fn to_inclusive_bounds(keywords: &mut Map<String, Value>) {
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
fn with_annotations(
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
