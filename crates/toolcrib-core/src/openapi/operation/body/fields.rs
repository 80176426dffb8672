//! The fields of a form: which of them are files, how each is written, and the schema of the whole.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use super::super::super::convert::Shared;
use super::super::super::library::At;
use super::super::super::object::Object;
use super::super::super::parameters;
use super::super::super::schema::{Direction, Schemas, Translated};
use crate::execution::{Content, Field, Form, Place};

pub(super) struct Fields {
    pub(super) fields: BTreeMap<String, Field>,
    pub(super) schema: Translated,
}

/// A file is base64, with a name where one is wanted.
pub(super) fn base64() -> Value {
    json!({ "type": ["string", "object"], "description": "base64, or {name, base64}" })
}

pub(super) fn read<'a>(
    shared: &Shared<'a>,
    schemas: &mut Schemas<'a>,
    schema: Option<At<'a>>,
    encoding: &Value,
    content: Content,
    broken: &mut Vec<String>,
) -> Fields {
    let Some(schema) = schema else {
        return Fields { fields: BTreeMap::new(), schema: Translated::of(json!({ "type": "object" })) };
    };
    let mut translated = schemas.translate(schema, Direction::Request, broken);
    let Object { properties, required, .. } = schemas.object(schema);
    let mut fields = BTreeMap::new();
    for (name, at) in &properties {
        let said = encoding.get(name).unwrap_or(&Value::Null);
        let mut field = field(shared, *at, said, content);
        field.required = required.contains(name) && may_be_empty(shared, *at);
        if field != Field::default() {
            fields.insert(name.clone(), field);
        }
    }
    // Files are not what their schemas say, so these need one of their own.
    if fields.values().any(|field| field.binary) {
        translated = with_files(shared, schemas, schema, &properties, &fields, &required, broken);
    }
    Fields { fields, schema: translated }
}

fn field(shared: &Shared<'_>, at: At<'_>, encoding: &Value, content: Content) -> Field {
    let content_type = encoding.get("contentType").and_then(Value::as_str);
    let content_type = content_type.and_then(|types| types.split(',').map(str::trim).find(|one| !one.contains('*')));
    let styled = ["style", "explode", "allowReserved"].iter().any(|key| encoding.get(*key).is_some());
    let form = styled.then(|| parameters::style(encoding, Place::Query));
    let binary = content == Content::Multipart && is_file(shared, at, encoding, 0);
    // Text that is encoded bytes goes as it is, and says what it is.
    let followed = shared.library.follow(at).map_or(&Value::Null, |at| at.value);
    let encoded = content == Content::Multipart && !binary && followed.get("contentEncoding").is_some();
    let content_type = content_type.or(encoded.then_some("application/octet-stream"));
    Field { binary, content_type: content_type.map(str::to_owned), form, required: false }
}

/// Whether it is a list or an object, of which an empty one leaves no trace in a form.
fn may_be_empty(shared: &Shared<'_>, at: At<'_>) -> bool {
    let Ok(at) = shared.library.follow(at) else { return false };
    matches!(at.value.get("type").and_then(Value::as_str), Some("array" | "object"))
}

/// Lists of lists may be without end.
const DEEPEST_LIST: usize = 4;

fn is_file(shared: &Shared<'_>, at: At<'_>, encoding: &Value, depth: usize) -> bool {
    let Ok(at) = shared.library.follow(at) else { return false };
    let text = |key: &str| at.value.get(key).and_then(Value::as_str);
    if let (Some("array"), Some(items)) = (text("type"), at.value.get("items")) {
        return depth < DEEPEST_LIST && is_file(shared, At { value: items, ..at }, encoding, depth + 1);
    }
    let encoded = text("contentEncoding").is_some();
    let typed = encoding.get("contentType").and_then(Value::as_str).or(text("contentMediaType"));
    let string = matches!(text("type"), Some("string") | None) && at.value.get("properties").is_none();
    let binary_type = |media: &str| {
        ["image/", "audio/", "video/", "application/octet-stream", "application/pdf", "application/zip"]
            .iter()
            .any(|prefix| media.starts_with(prefix))
    };
    text("format") == Some("binary")
        || text("type") == Some("file")
        || (string && !encoded && typed.is_some_and(binary_type))
}

/// The schema of a form with files in it, field by field.
fn with_files<'a>(
    shared: &Shared<'a>,
    schemas: &mut Schemas<'a>,
    schema: At<'a>,
    properties: &BTreeMap<String, At<'a>>,
    fields: &BTreeMap<String, Field>,
    required: &BTreeSet<String>,
    broken: &mut Vec<String>,
) -> Translated {
    let (mut out, mut references) = (Map::new(), Vec::new());
    for (name, at) in properties {
        let followed = shared.library.follow(*at).unwrap_or(*at);
        let read_only = |at: At<'_>| at.value.get("readOnly") == Some(&Value::Bool(true));
        if read_only(*at) || read_only(followed) {
            continue;
        }
        let file = fields.get(name).is_some_and(|field| field.binary);
        let many = followed.value.get("type").and_then(Value::as_str) == Some("array");
        let value = match (file, many) {
            (true, true) => json!({ "type": "array", "items": base64() }),
            (true, false) => base64(),
            (false, _) => {
                let translated = schemas.translate(*at, Direction::Request, broken);
                references.extend(translated.references);
                translated.value
            }
        };
        out.insert(name.clone(), value);
    }
    let required: Vec<&String> = required.iter().filter(|name| out.contains_key(*name)).collect();
    let mut value = json!({ "type": "object", "properties": out });
    if !required.is_empty() {
        value["required"] = json!(required);
    }
    if is_closed(shared, schema) {
        value["additionalProperties"] = false.into();
    }
    Translated::referring(value, references)
}

/// Whether the form takes no other fields.
fn is_closed(shared: &Shared<'_>, schema: At<'_>) -> bool {
    let Ok(at) = shared.library.follow(schema) else { return false };
    at.value.get("additionalProperties") == Some(&Value::Bool(false))
}

/// The fields that Swagger 2.0 keeps among the parameters.
pub(super) fn of_swagger<'a>(schemas: &mut Schemas<'a>, given: &[At<'a>], broken: &mut Vec<String>) -> Fields {
    let (mut properties, mut required, mut references) = (Map::new(), Vec::new(), Vec::new());
    let mut fields = BTreeMap::new();
    for at in given {
        let text = |key: &str| at.value.get(key).and_then(Value::as_str);
        let Some(name) = text("name") else { continue };
        let binary = text("type") == Some("file");
        let translated = schemas.translate(*at, Direction::Request, broken);
        references.extend(translated.references);
        properties.insert(name.to_owned(), if binary { base64() } else { translated.value });
        if at.value.get("required") == Some(&Value::Bool(true)) {
            required.push(name.to_owned());
        }
        let listed = text("type") == Some("array");
        let form: Option<Form> = listed.then(|| parameters::collection(text("collectionFormat"), Place::Query));
        let required = listed && at.value.get("required") == Some(&Value::Bool(true));
        fields.insert(name.to_owned(), Field { binary, content_type: None, form, required });
    }
    fields.retain(|_, field| *field != Field::default());
    let mut value = json!({ "type": "object", "properties": properties });
    if !required.is_empty() {
        value["required"] = json!(required);
    }
    Fields { fields, schema: Translated::referring(value, references) }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use url::Url;

    use crate::execution::{Backing, Body};
    use crate::openapi::{Conversion, Library, convert};
    use crate::source::{OpenApi, SourceId};
    use crate::tool::BACKING;

    /// The body of a form with this schema, and the schema of its argument.
    fn form(media_type: &str, schema: Value) -> (Body, Value) {
        let content = json!({ media_type: { "schema": schema } });
        let operation = json!({ "operationId": "send", "requestBody": { "content": content } });
        let document = json!({ "openapi": "3.0.3", "paths": { "/t": { "post": operation } } });
        let library = Library::new(Url::parse("file:///t.json").unwrap(), document);
        let source = SourceId::parse("t").unwrap();
        let converted = convert(&library, Conversion { source: &source, openapi: &OpenApi::default() }).unwrap();
        let tool: Value = serde_json::from_str(converted.tools[0].get()).unwrap();
        let backing: Backing = serde_json::from_value(tool[BACKING].clone()).unwrap();
        let body = backing.execution.operation().and_then(|operation| operation.body.clone()).unwrap();
        (body, tool["inputSchema"]["properties"]["body"].clone())
    }

    #[test]
    fn a_form_with_files_takes_other_fields_only_where_its_schema_does() {
        let file = json!({ "image": { "type": "string", "format": "binary" } });
        for (more, expected) in [(json!(false), json!(false)), (json!(true), json!(null)), (json!({}), json!(null))] {
            let schema = json!({ "type": "object", "properties": file, "additionalProperties": more });
            let (_, schema) = form("multipart/form-data", schema);
            assert_eq!(schema["additionalProperties"], expected, "{schema}");
        }
    }

    #[test]
    fn a_list_that_a_form_must_have_is_known() {
        let properties = json!({ "tags": { "type": "array", "items": {} }, "name": { "type": "string" } });
        let schema = json!({ "type": "object", "properties": properties, "required": ["tags", "name"] });
        for media_type in ["multipart/form-data", "application/x-www-form-urlencoded"] {
            let (body, _) = form(media_type, schema.clone());
            let required: Vec<&String> =
                body.fields.iter().filter(|(_, field)| field.required).map(|(name, _)| name).collect();
            assert_eq!(required, ["tags"], "{media_type}");
        }
    }
}
