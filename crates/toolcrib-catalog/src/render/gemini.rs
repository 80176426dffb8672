//! Gemini's function declarations: a subset of OpenAPI 3.0 schemas. It has no references, so these are inlined, and
//! recursive ones are cut off.
//!
//! Differences to JSON Schema that cost something: no `$ref`, no `additionalProperties`, one type per node (`nullable`
//! instead of a type `null`), `enum` for strings only, and few formats. Whatever is lost is recorded with its path.

use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use toolcrib_core::json;
use toolcrib_core::tool::Tool;
use toolcrib_schema::type_name;

use super::limits::{self, gemini};
use super::passthrough::drop_illegal_arguments;
use super::projection::{
    Loss, ProjectedTool, ProjectionContext, ProjectionResult, Unsupported, child_pointer, object_fields,
    to_bounded_string,
};
use super::root;
use super::schema::{SchemaKind, SchemaNode, item_schema};

/// Projects a tool to Gemini's format.
pub(super) fn project(name: &str, tool: &Tool) -> ProjectedTool {
    // A name cannot be changed here: calls come back under the name that the model was given.
    if !limits::is_gemini_name(name) {
        return ProjectedTool::unsupported(Vec::new(), "a name must begin with a letter or an underscore");
    }
    let (schema, losses) = project_schema(&tool.listing.input_schema);
    let schema = match schema {
        Ok(schema) => schema,
        Err(unsupported) => return ProjectedTool::unsupported(losses, unsupported),
    };
    let mut text = String::from("{\"name\":");
    json::push_json_string(name, &mut text);
    text.push_str(",\"description\":");
    json::push_json_string(&tool.listing.description, &mut text);
    // Some endpoints reject an object without properties, so a tool without arguments gets no schema.
    if schema.get("properties").and_then(Value::as_object).is_some_and(|fields| !fields.is_empty()) {
        text.push_str(",\"parameters\":");
        match to_bounded_string(&schema) {
            Ok(schema) => text.push_str(&schema),
            Err(unsupported) => return ProjectedTool::unsupported(losses, unsupported),
        }
    }
    text.push('}');
    ProjectedTool { text: Some(text), losses, unsupported_reason: None }
}

/// Projects the input schema and returns the losses. If inlining makes it too large, tries again with fewer levels of
/// references.
fn project_schema(raw: &RawValue) -> (ProjectionResult<Value>, Vec<Loss>) {
    // Each attempt starts from the original schema, with its own counters and losses.
    let schema: Value = json::parse_exact(raw.get()).unwrap_or_default();
    let mut result = (Err(Unsupported::new("", "it has no schema")), Vec::new());
    for max_open_references in gemini::REFERENCE_DEPTHS {
        let mut projector = GeminiProjector {
            context: ProjectionContext::new(&schema, gemini::MAX_PARTS),
            open_references: Vec::new(),
            max_open_references,
        };
        let projected = projector.project_root(&schema);
        let fits = !projector.context.is_too_large();
        result = (projected, projector.context.into_losses());
        if fits {
            break;
        }
    }
    result
}

/// Walks one schema.
struct GeminiProjector<'a> {
    context: ProjectionContext<'a>,
    /// References that are being inlined, outermost first.
    open_references: Vec<String>,
    /// Maximum number of references that may be open at once.
    max_open_references: usize,
}

impl GeminiProjector<'_> {
    /// Projects the top level, which must be an object.
    fn project_root(&mut self, schema: &Value) -> ProjectionResult<Value> {
        let mut keywords = root::to_object_schema(schema, &mut self.context)?;
        drop_illegal_arguments(&mut keywords, limits::is_gemini_argument_name, &mut self.context)?;
        // Taken out first and added last, so that `project_object` does not record them as unsupported.
        let annotations = ["title", "description"].map(|key| keywords.shift_remove(key).filter(Value::is_string));
        // References are inlined from the original schema, so definitions are not written.
        keywords.retain(|key, _| key != "type" && !key.starts_with('$') && key != "definitions");
        let [title, description] = annotations;
        // No properties means a tool without arguments, not an object with arbitrary fields.
        let is_empty = keywords.get("properties").and_then(Value::as_object).is_none_or(Map::is_empty);
        if is_empty && keywords.get("additionalProperties").is_none() {
            keywords.insert("additionalProperties".to_owned(), json!(false));
        }
        let mut projected = self.project_object(&keywords, "")?;
        projected.entry("properties").or_insert_with(|| json!({}));
        Ok(with_annotations(projected, title, description, false))
    }

    /// Projects a part of the schema, counting it against the limits.
    fn project_nested(&mut self, schema: &Value, path: &str) -> ProjectionResult<Value> {
        self.context.enter_part(path)?;
        let projected = self.project_part(schema, path);
        self.context.leave_part();
        projected
    }

    /// Projects a part by its kind.
    fn project_part(&mut self, schema: &Value, path: &str) -> ProjectionResult<Value> {
        let SchemaNode { path, title, description, nullable, kind } =
            SchemaNode::parse(schema, path, &mut self.context)?;
        let path = path.as_str();
        let projected = match kind {
            // Objects and arrays are left out: they would need a description of their contents.
            SchemaKind::Any => {
                self.context.record_loss(path, "any value is not supported, narrowed to string, number or boolean");
                let alternatives = ["string", "number", "boolean"].map(|name| json!({ "type": name }));
                Map::from_iter([("anyOf".to_owned(), json!(alternatives))])
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
        Ok(with_annotations(projected, title, description, nullable))
    }

    /// Drops optional fields that are not supported; fails for required ones.
    fn project_object(&mut self, keywords: &Map<String, Value>, path: &str) -> ProjectionResult<Map<String, Value>> {
        // Keywords beside the fields first; the fields, and what is required of them, follow.
        let mut projected =
            self.supported_keywords("object", keywords, path, &["properties", "required", "additionalProperties"]);
        let mut fields = Map::new();
        let mut required = Vec::new();
        for field in object_fields(keywords, path) {
            let schema = self.project_nested(field.schema, &field.path);
            let Some(schema) = self.context.keep_supported(&field, schema)? else { continue };
            fields.insert(field.name.clone(), schema);
            required.extend(field.is_required.then_some(field.name));
        }
        // Gemini's objects are open and cannot describe other fields. A closed object loses nothing that matters to a
        // caller; an open one with declared fields is not reported, since most schemas are written like that.
        match keywords.get("additionalProperties") {
            Some(Value::Bool(false)) => {}
            None if !fields.is_empty() => {}
            None | Some(_) => self.context.record_loss(
                &child_pointer(path, "additionalProperties"),
                "additional properties cannot be described; the object accepts any fields",
            ),
        }
        if !fields.is_empty() {
            projected.insert("properties".to_owned(), Value::Object(fields));
        }
        if !required.is_empty() {
            projected.insert("required".to_owned(), json!(required));
        }
        Ok(projected)
    }

    /// Arrays must describe their items. Positional schemas become alternatives.
    fn project_array(&mut self, keywords: &Map<String, Value>, path: &str) -> ProjectionResult<Map<String, Value>> {
        // Gemini rejects arrays without `items`.
        let items = item_schema(keywords, path, &mut self.context);
        let items = self.project_nested(&items, &child_pointer(path, "items"))?;
        let mut projected = self.supported_keywords("array", keywords, path, &["items", "prefixItems"]);
        projected.insert("items".to_owned(), items);
        Ok(projected)
    }

    /// Strings, numbers and booleans.
    fn project_scalar(&mut self, name: &str, mut keywords: Map<String, Value>, path: &str) -> Map<String, Value> {
        // Gemini has no `const`; for strings, an `enum` of one value is the same.
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
        // Formats only inform, so an unsupported one is dropped and its argument stays.
        let format = keywords.get("format").and_then(Value::as_str);
        if let Some(format) = format.filter(|format| !gemini::supported_formats(name).contains(format)) {
            self.context
                .record_loss(&child_pointer(path, "format"), format!("{} is not supported, dropped", json!(format)));
            keywords.shift_remove("format");
        }
        self.supported_keywords(name, &keywords, path, &[])
    }

    /// Removes `enum` values that Gemini rejects: empty strings and other types.
    fn keep_text_choices(&mut self, keywords: &mut Map<String, Value>, path: &str) {
        let Some(Value::Array(values)) = keywords.get_mut("enum") else { return };
        let count_before = values.len();
        values.retain(|value| type_name(value) == "string" && value != "");
        let count = values.len();
        let path = child_pointer(path, "enum");
        if count < count_before {
            self.context.record_loss(&path, "`enum` values that are empty or not strings are not supported, dropped");
        }
        if count == 0 {
            keywords.shift_remove("enum");
        }
    }

    /// Copies the keywords that Gemini supports for the type and records the others as losses, except those in
    /// `handled`, which the caller projects itself.
    fn supported_keywords(
        &mut self,
        name: &str,
        keywords: &Map<String, Value>,
        path: &str,
        handled: &[&str],
    ) -> Map<String, Value> {
        let mut projected = Map::from_iter([("type".to_owned(), json!(name))]);
        for (keyword, value) in keywords {
            match keyword.as_str() {
                keyword if handled.contains(&keyword) => {}
                known if gemini::supported_keywords(name).contains(&known) => {
                    drop(projected.insert(keyword.clone(), value.clone()))
                }
                _ => self.context.record_dropped_keyword(path, keyword, value),
            }
        }
        projected
    }

    /// Projects alternatives to `anyOf`.
    fn project_alternatives(
        &mut self,
        alternatives: &[(String, Value)],
        path: &str,
    ) -> ProjectionResult<Map<String, Value>> {
        // A failed alternative is dropped by `join_alternatives`, unless none is left.
        let projected = alternatives
            .iter()
            .map(|(path, alternative)| (path.as_str(), self.project_nested(alternative, path)))
            .collect();
        self.context.join_alternatives(projected, path)
    }

    /// Replaces a reference by its target. A recursive or too deep reference to an object becomes an open object.
    fn inline_reference(&mut self, reference: &str, path: &str) -> ProjectionResult<Map<String, Value>> {
        // The schema itself (`#`) counts as recursive at once: it is always open.
        let Some(target) = self.context.resolve(reference) else {
            return Err(Unsupported::new(&child_pointer(path, "$ref"), "the reference cannot be resolved"));
        };
        if self.open_references.iter().any(|open| open == reference)
            || reference == "#"
            || self.open_references.len() >= self.max_open_references
        {
            // Cutting off is possible for objects only: an open object accepts whatever the target does.
            let is_object =
                target.get("properties").is_some() || target.get("type").is_some_and(|name| *name == "object");
            if !is_object {
                return Err(Unsupported::new(path, "recursive references are not supported here"));
            }
            self.context.record_loss(path, "the recursive reference is cut off here; the object accepts any fields");
            return Ok(Map::from_iter([("type".to_owned(), json!("object"))]));
        }
        // The path of losses continues at the target, because the same target is used in several places.
        self.open_references.push(reference.to_owned());
        let projected = self.project_nested(target, reference.trim_start_matches('#'));
        self.open_references.pop();
        Ok(projected?.as_object().cloned().unwrap_or_default())
    }
}

/// Replaces exclusive bounds of integers, which Gemini does not support, by inclusive ones.
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

/// Adds title, description and nullability. Texts beside a reference override those of its target.
fn with_annotations(
    mut projected: Map<String, Value>,
    title: Option<Value>,
    description: Option<Value>,
    nullable: bool,
) -> Value {
    for (key, text) in [("title", title), ("description", description)] {
        if let Some(text) = text {
            projected.insert(key.to_owned(), text);
        }
    }
    if nullable {
        projected.insert("nullable".to_owned(), json!(true));
    }
    Value::Object(projected)
}
