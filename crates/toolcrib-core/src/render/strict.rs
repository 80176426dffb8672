//! OpenAI's Structured Outputs: objects are closed and every field is required, so what is optional may be null instead.
//! An object with fields of any name cannot be said in it.

mod definitions;
mod measure;

use std::collections::{BTreeMap, HashMap, HashSet};

use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::limits::strict as limits;
use super::projection::{Loss, ProjectionContext, ProjectionResult, Unsupported, child_pointer, required_names};
use super::root;
use super::schema::{SchemaKind, SchemaNode};
use definitions::StrictDefinition;

/// The schema, and what was lost.
pub(super) fn project_schema(raw: &RawValue) -> (ProjectionResult<Value>, Vec<Loss>) {
    let schema: Value = serde_json::from_str(raw.get()).unwrap_or_default();
    let mut writer = StrictProjector {
        edits: ProjectionContext::new(&schema, limits::MAX_PARTS),
        definitions: BTreeMap::new(),
        taken_names: HashSet::new(),
        next_numbers: HashMap::new(),
        enum_values: 0,
    };
    let written = writer.project_root(&schema);
    (written, writer.edits.into_losses())
}

struct StrictProjector<'a> {
    edits: ProjectionContext<'a>,
    /// What references lead to, by the reference.
    definitions: BTreeMap<String, StrictDefinition>,
    /// The names of definitions that are taken, and the number to try next after a name that is.
    taken_names: HashSet<String>,
    next_numbers: HashMap<String, usize>,
    enum_values: usize,
}

impl StrictProjector<'_> {
    fn project_root(&mut self, schema: &Value) -> ProjectionResult<Value> {
        let keywords = root::to_object_schema(schema, &mut self.edits)?;
        let open = keywords.get("additionalProperties").is_some_and(|more| *more != Value::Bool(false));
        let empty = keywords.get("properties").and_then(Value::as_object).is_none_or(Map::is_empty);
        if open && empty {
            return Err(Unsupported::new("", "it takes arguments of any name"));
        }
        let mut object = self.project_closed_object(&keywords, "", 1)?;
        for key in ["description", "title"] {
            if let Some(text) = keywords.get(key).filter(|text| text.is_string()) {
                object.insert(key.to_owned(), text.clone());
            }
        }
        let definitions = self.referenced_definitions(&Value::Object(object.clone()))?;
        if !definitions.is_empty() {
            object.insert("$defs".to_owned(), Value::Object(definitions));
        }
        let whole = Value::Object(object);
        measure::check_limits(&whole)?;
        Ok(whole)
    }

    fn project_nested(&mut self, schema: &Value, path: &str, depth: usize) -> ProjectionResult<Value> {
        self.edits.enter_part(path)?;
        let written = self.project_part(schema, path, depth);
        self.edits.leave_part();
        written
    }

    fn project_part(&mut self, schema: &Value, path: &str, depth: usize) -> ProjectionResult<Value> {
        let SchemaNode { path, title, description, nullable, kind } = SchemaNode::parse(schema, path, &mut self.edits)?;
        let path = path.as_str();
        let written = match kind {
            SchemaKind::Any => {
                self.edits
                    .record_loss(path, "any value is not supported, narrowed to text, a number, a boolean or null");
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
        let written = if nullable { make_nullable(written) } else { written };
        Ok(with_annotations(written, title, description))
    }

    /// An object below the top.
    fn project_object(
        &mut self,
        keywords: &Map<String, Value>,
        path: &str,
        depth: usize,
    ) -> ProjectionResult<Map<String, Value>> {
        if depth > limits::MAX_OBJECT_DEPTH {
            return Err(Unsupported::new(
                path,
                format!("objects nest deeper than {} levels", limits::MAX_OBJECT_DEPTH),
            ));
        }
        let empty = keywords.get("properties").and_then(Value::as_object).is_none_or(Map::is_empty);
        if empty && keywords.get("additionalProperties") != Some(&Value::Bool(false)) {
            return Err(Unsupported::new(path, "an object with fields of any name is not supported"));
        }
        self.project_closed_object(keywords, path, depth)
    }

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
                    self.edits.record_loss(&child_pointer(path, keyword), "other fields are not supported, dropped")
                }
                key if key.starts_with('$') || key == "definitions" => {}
                _ => self.edits.record_dropped_keyword(path, keyword, value),
            }
        }
        let (required, mut fields) = (required_names(keywords), Map::new());
        for (name, schema) in keywords.get("properties").and_then(Value::as_object).into_iter().flatten() {
            if *schema == Value::Bool(false) {
                continue;
            }
            let at = child_pointer(&format!("{path}/properties"), name);
            let required = required.contains(name.as_str());
            match self.project_nested(schema, &at, depth) {
                Ok(field) if required => drop(fields.insert(name.clone(), field)),
                Ok(field) => drop(fields.insert(name.clone(), make_optional(field))),
                Err(unfit) if required => return Err(unfit),
                Err(unfit) => self.edits.record_dropped_field(&at, &unfit),
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

    fn project_array(
        &mut self,
        keywords: &Map<String, Value>,
        path: &str,
        depth: usize,
    ) -> ProjectionResult<Map<String, Value>> {
        let any = Value::Bool(true);
        let items = match (keywords.get("items"), keywords.get("prefixItems")) {
            (Some(Value::Array(several)), _) | (None, Some(Value::Array(several))) => {
                self.edits
                    .record_loss(path, "items that differ by their place are not supported; each may be any of them");
                self.project_nested(&json!({ "anyOf": several }), &child_pointer(path, "items"), depth)?
            }
            (items, _) => self.project_nested(items.unwrap_or(&any), &child_pointer(path, "items"), depth)?,
        };
        let mut written = Map::from_iter([("type".to_owned(), json!("array")), ("items".to_owned(), items)]);
        for (keyword, value) in keywords {
            match keyword.as_str() {
                "items" | "prefixItems" => {}
                known if limits::supported_keywords("array").contains(&known) => {
                    drop(written.insert(keyword.clone(), value.clone()))
                }
                _ => self.edits.record_dropped_keyword(path, keyword, value),
            }
        }
        Ok(written)
    }

    fn project_scalar(&mut self, name: &str, keywords: &Map<String, Value>, path: &str) -> Map<String, Value> {
        let mut written = Map::from_iter([("type".to_owned(), json!(name))]);
        for (keyword, value) in keywords {
            let known = limits::supported_keywords(name).contains(&keyword.as_str());
            let taken = known
                && match (keyword.as_str(), value) {
                    ("format", Value::String(format)) => limits::SUPPORTED_FORMATS.contains(&format.as_str()),
                    ("pattern", Value::String(pattern)) => !pattern.replace("(?:", "").contains("(?"),
                    ("enum", Value::Array(values)) => self.accept_enum(values),
                    ("format" | "pattern" | "enum", _) => false,
                    _ => true,
                };
            match taken {
                true => drop(written.insert(keyword.clone(), value.clone())),
                false => self.edits.record_dropped_keyword(path, keyword, value),
            }
        }
        written
    }

    fn accept_enum(&mut self, values: &[Value]) -> bool {
        let (many, most) = limits::LONG_ENUM_LIMIT;
        let characters: usize = values.iter().filter_map(Value::as_str).map(|value| value.chars().count()).sum();
        // One more, for null where the field is optional.
        let total = self.enum_values + values.len() + 1;
        let taken =
            !values.is_empty() && total <= limits::MAX_ENUM_VALUES && (values.len() <= many || characters <= most);
        if taken {
            self.enum_values = total;
        }
        taken
    }

    fn project_alternatives(
        &mut self,
        alternatives: &[(String, Value)],
        path: &str,
        depth: usize,
    ) -> ProjectionResult<Map<String, Value>> {
        let forms = alternatives.iter().map(|(at, form)| (at.as_str(), self.project_nested(form, at, depth))).collect();
        self.edits.join_alternatives(forms, path)
    }
}

/// The same or null. What stands around several forms goes around one more.
fn make_nullable(mut written: Map<String, Value>) -> Map<String, Value> {
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
fn make_optional(field: Value) -> Value {
    let Value::Object(mut written) = field else { return field };
    let (title, description) = (written.shift_remove("title"), written.shift_remove("description"));
    with_annotations(make_nullable(written), title, description)
}

fn with_annotations(mut written: Map<String, Value>, title: Option<Value>, description: Option<Value>) -> Value {
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
