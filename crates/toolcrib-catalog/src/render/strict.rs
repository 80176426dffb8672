//! OpenAI's Structured Outputs: objects are closed and all fields are required, so optional fields become nullable.
//! Objects with arbitrary fields cannot be expressed.
//!
//! ```text
//! {"properties": {"a": {"type": "string"}, "b": {"type": "integer"}}, "required": ["a"]}
//! becomes
//! {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": ["integer", "null"]}},
//!  "required": ["a", "b"], "additionalProperties": false}
//! ```
//!
//! A model then sends null for an argument that it leaves out.

mod definitions;
mod measure;

use std::collections::{BTreeMap, HashMap, HashSet};

use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use toolcrib_core::json;

use super::limits::strict as limits;
use super::projection::{Loss, ProjectionContext, ProjectionResult, Unsupported, child_pointer, object_fields};
use super::root;
use super::schema::{SchemaKind, SchemaNode, item_schema};
use definitions::StrictDefinition;

/// Projects the input schema, and returns the losses.
pub(super) fn project_schema(raw: &RawValue) -> (ProjectionResult<Value>, Vec<Loss>) {
    let schema: Value = json::parse_exact(raw.get()).unwrap_or_default();
    let mut projector = StrictProjector {
        context: ProjectionContext::new(&schema, limits::MAX_PARTS),
        definitions: BTreeMap::new(),
        taken_names: HashSet::new(),
        next_numbers: HashMap::new(),
        enum_values: 0,
    };
    let projected = projector.project_root(&schema);
    (projected, projector.context.into_losses())
}

/// Walks one schema.
struct StrictProjector<'a> {
    context: ProjectionContext<'a>,
    /// Definitions by the reference in the original schema.
    definitions: BTreeMap<String, StrictDefinition>,
    /// Names of the definitions.
    taken_names: HashSet<String>,
    /// Next number to append to a name that is taken.
    next_numbers: HashMap<String, usize>,
    /// Number of `enum` values so far, see [`limits::MAX_ENUM_VALUES`].
    enum_values: usize,
}

impl StrictProjector<'_> {
    /// Projects the top level and adds the definitions that it uses.
    fn project_root(&mut self, schema: &Value) -> ProjectionResult<Value> {
        // Arguments of any name cannot be expressed, declared ones beside them can.
        let keywords = root::to_object_schema(schema, &mut self.context)?;
        let is_open = keywords.get("additionalProperties").is_some_and(|more| *more != Value::Bool(false));
        let is_empty = keywords.get("properties").and_then(Value::as_object).is_none_or(Map::is_empty);
        // Closing such an object would leave a tool without arguments.
        if is_open && is_empty {
            return Err(Unsupported::new("", "it accepts arguments of any name"));
        }
        // The top level counts as the first level of objects.
        let mut object = self.project_closed_object(&keywords, "", 1)?;
        for key in ["description", "title"] {
            if let Some(text) = keywords.get(key).filter(|text| text.is_string()) {
                object.insert(key.to_owned(), text.clone());
            }
        }
        // Only definitions that the result still uses are written, as dropped parts may have used others.
        let definitions = self.referenced_definitions(&Value::Object(object.clone()))?;
        if !definitions.is_empty() {
            object.insert("$defs".to_owned(), Value::Object(definitions));
        }
        let schema = Value::Object(object);
        measure::check_limits(&schema)?;
        Ok(schema)
    }

    /// Projects a part of the schema, counting it against the limits. `depth` counts objects only.
    fn project_nested(&mut self, schema: &Value, path: &str, depth: usize) -> ProjectionResult<Value> {
        self.context.enter_part(path)?;
        let projected = self.project_part(schema, path, depth);
        self.context.leave_part();
        projected
    }

    /// Projects a part by its kind.
    fn project_part(&mut self, schema: &Value, path: &str, depth: usize) -> ProjectionResult<Value> {
        let SchemaNode { path, title, description, nullable, kind } =
            SchemaNode::parse(schema, path, &mut self.context)?;
        let path = path.as_str();
        let projected = match kind {
            // Objects and arrays are left out: they would have to describe their fields and items.
            SchemaKind::Any => {
                self.context
                    .record_loss(path, "any value is not supported, narrowed to string, number, boolean or null");
                Map::from_iter([("type".to_owned(), json!(["string", "number", "boolean", "null"]))])
            }
            SchemaKind::Null => Map::from_iter([("type".to_owned(), json!("null"))]),
            SchemaKind::Reference(reference) => self.project_reference(&reference, path)?,
            SchemaKind::Alternatives(alternatives) => self.project_alternatives(&alternatives, path, depth)?,
            SchemaKind::Typed(name, keywords) => match name.as_str() {
                "object" => self.project_object(&keywords, path, depth + 1)?,
                "array" => self.project_array(&keywords, path, depth)?,
                _ => self.project_scalar(&name, &keywords, path),
            },
        };
        let projected = if nullable { make_nullable(projected) } else { projected };
        Ok(with_annotations(projected, title, description))
    }

    /// Projects an object below the top level; fails if it has arbitrary fields.
    fn project_object(
        &mut self,
        keywords: &Map<String, Value>,
        path: &str,
        depth: usize,
    ) -> ProjectionResult<Map<String, Value>> {
        if depth > limits::MAX_OBJECT_DEPTH {
            let reason = format!("objects nest deeper than {} levels", limits::MAX_OBJECT_DEPTH);
            return Err(Unsupported::new(path, reason));
        }
        // An object without declared fields is a map of arbitrary ones, unless it is closed.
        let is_empty = keywords.get("properties").and_then(Value::as_object).is_none_or(Map::is_empty);
        if is_empty && keywords.get("additionalProperties") != Some(&Value::Bool(false)) {
            return Err(Unsupported::new(path, "an object with arbitrary fields is not supported"));
        }
        self.project_closed_object(keywords, path, depth)
    }

    /// Projects an object as closed: all fields required, optional ones nullable, no others allowed.
    fn project_closed_object(
        &mut self,
        keywords: &Map<String, Value>,
        path: &str,
        depth: usize,
    ) -> ProjectionResult<Map<String, Value>> {
        for (keyword, value) in keywords {
            match keyword.as_str() {
                "type" | "title" | "description" | "properties" | "required" => {}
                "additionalProperties" if *value == Value::Bool(false) => {}
                "additionalProperties" => {
                    self.context.record_loss(&child_pointer(path, keyword), "other fields are not supported, dropped")
                }
                key if key.starts_with('$') || key == "definitions" => {}
                _ => self.context.record_dropped_keyword(path, keyword, value),
            }
        }
        let mut fields = Map::new();
        for field in object_fields(keywords, path) {
            let schema = self.project_nested(field.schema, &field.path, depth);
            let Some(schema) = self.context.keep_supported(&field, schema)? else { continue };
            fields.insert(field.name.clone(), if field.is_required { schema } else { make_optional(schema) });
        }
        // All fields that are left, in the order of the schema.
        let names: Vec<&String> = fields.keys().collect();
        let required = json!(names);
        Ok(Map::from_iter([
            ("type".to_owned(), json!("object")),
            ("properties".to_owned(), Value::Object(fields)),
            ("required".to_owned(), required),
            ("additionalProperties".to_owned(), json!(false)),
        ]))
    }

    /// Projects an array. Positional schemas become alternatives.
    fn project_array(
        &mut self,
        keywords: &Map<String, Value>,
        path: &str,
        depth: usize,
    ) -> ProjectionResult<Map<String, Value>> {
        let items = item_schema(keywords, path, &mut self.context);
        let items = self.project_nested(&items, &child_pointer(path, "items"), depth)?;
        let mut projected = Map::from_iter([("type".to_owned(), json!("array")), ("items".to_owned(), items)]);
        for (keyword, value) in keywords {
            match keyword.as_str() {
                "items" | "prefixItems" => {}
                known if limits::supported_keywords("array").contains(&known) => {
                    drop(projected.insert(keyword.clone(), value.clone()))
                }
                _ => self.context.record_dropped_keyword(path, keyword, value),
            }
        }
        Ok(projected)
    }

    /// Strings, numbers and booleans.
    fn project_scalar(&mut self, name: &str, keywords: &Map<String, Value>, path: &str) -> Map<String, Value> {
        let mut projected = Map::from_iter([("type".to_owned(), json!(name))]);
        for (keyword, value) in keywords {
            // A supported keyword can still have an unsupported value.
            let is_known = limits::supported_keywords(name).contains(&keyword.as_str());
            let is_supported = is_known
                && match (keyword.as_str(), value) {
                    ("format", Value::String(format)) => limits::SUPPORTED_FORMATS.contains(&format.as_str()),
                    // Lookaround and other groups with `(?` are rejected, except non-capturing ones.
                    ("pattern", Value::String(pattern)) => !pattern.replace("(?:", "").contains("(?"),
                    ("enum", Value::Array(values)) => self.accept_enum(values),
                    ("format" | "pattern" | "enum", _) => false,
                    _ => true,
                };
            if is_supported {
                projected.insert(keyword.clone(), value.clone());
            } else {
                self.context.record_dropped_keyword(path, keyword, value);
            }
        }
        projected
    }

    /// Whether an `enum` is within the limits; if so, counts its values.
    fn accept_enum(&mut self, values: &[Value]) -> bool {
        let (long_enum_values, max_characters) = limits::LONG_ENUM_LIMIT;
        let characters: usize = values.iter().filter_map(Value::as_str).map(|value| value.chars().count()).sum();
        // One more for null, in case the field is optional.
        let total = self.enum_values + values.len() + 1;
        let is_accepted = !values.is_empty()
            && total <= limits::MAX_ENUM_VALUES
            && (values.len() <= long_enum_values || characters <= max_characters);
        if is_accepted {
            self.enum_values = total;
        }
        is_accepted
    }

    /// Projects alternatives to `anyOf`.
    fn project_alternatives(
        &mut self,
        alternatives: &[(String, Value)],
        path: &str,
        depth: usize,
    ) -> ProjectionResult<Map<String, Value>> {
        let projected = alternatives
            .iter()
            .map(|(path, alternative)| (path.as_str(), self.project_nested(alternative, path, depth)))
            .collect();
        self.context.join_alternatives(projected, path)
    }
}

/// Allows null besides the schema. An existing `anyOf` gets one more alternative.
fn make_nullable(mut schema: Map<String, Value>) -> Map<String, Value> {
    // OpenAI has no `nullable`.
    let null_schema = json!({ "type": "null" });
    if let Some(Value::Array(alternatives)) = schema.get_mut("anyOf") {
        if !alternatives.contains(&null_schema) {
            alternatives.push(null_schema);
        }
        return schema;
    }
    // A schema of a plain type can list `null` among its types; others need an alternative.
    let simple = !["const", "$ref", "properties", "items"].iter().any(|key| schema.contains_key(*key));
    match schema.get("type").cloned() {
        Some(Value::String(name)) if simple && name != "null" => {
            schema.insert("type".to_owned(), json!([name, "null"]));
            if let Some(Value::Array(values)) = schema.get_mut("enum") {
                values.push(Value::Null);
            }
            schema
        }
        Some(Value::String(name)) if name == "null" => schema,
        Some(Value::Array(names)) if names.iter().any(|name| name == "null") => schema,
        _ => Map::from_iter([("anyOf".to_owned(), json!([schema, null_schema]))]),
    }
}

/// Makes a field optional, i.e. nullable. Title and description stay outermost.
fn make_optional(field: Value) -> Value {
    let Value::Object(mut schema) = field else { return field };
    let title = schema.shift_remove("title");
    let description = schema.shift_remove("description");
    with_annotations(make_nullable(schema), title, description)
}

/// Adds title and description.
fn with_annotations(mut schema: Map<String, Value>, title: Option<Value>, description: Option<Value>) -> Value {
    // OpenAI rejects keywords beside a reference, so wrap it.
    if schema.contains_key("$ref") && (title.is_some() || description.is_some()) {
        schema = Map::from_iter([("anyOf".to_owned(), json!([schema]))]);
    }
    for (key, text) in [("title", title), ("description", description)] {
        if let Some(text) = text {
            schema.insert(key.to_owned(), text);
        }
    }
    Value::Object(schema)
}
