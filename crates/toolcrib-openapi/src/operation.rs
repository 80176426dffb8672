//! Converts one operation: how a call maps to a request, and the schema of its arguments. Parameters become top-level
//! arguments under their own names; the body is the argument `body`.
//!
//! ```text
//! GET /pets/{id}?id=…  with a header `id`   ->  arguments `id`, `id__query`, `id__header`
//! POST /pets with a JSON body               ->  argument `body`
//! ```

mod body;
mod response;

use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value, json};
use toolcrib_core::execution::{BodyChoice, BodySpec, Operation, OperationParameter, ParameterLocation};

use super::convert::{DocumentContext, OperationRef};
use super::description;
use super::parameters::{self, DeclaredParameter, ParameterSchema};
use super::schema::{AssembledSchema, Direction, SchemaTranslator, TranslatedSchema};
pub use body::body_encoding;
use body::{ConvertedBody, MediaSchema};

/// A converted operation.
#[derive(Debug)]
pub(super) struct ConvertedOperation {
    /// Maps arguments to a request; stored with the tool.
    pub(super) operation: Operation,
    /// Schema of the arguments.
    pub(super) input: AssembledSchema,
    /// Schema of a successful response, if the document has one.
    pub(super) output: Option<Value>,
}

/// Name of the argument for the body.
const BODY_ARGUMENT: &str = "body";
/// Name of the argument that chooses between several media types of the body.
const CONTENT_TYPE_ARGUMENT: &str = "body__content_type";
/// Maximum length of the description of an argument.
const MAX_DESCRIPTION_LEN: usize = 160;

/// Converts an operation. Faults are added to `faults`; the parts that have them are replaced by something permissive.
/// Never fails: an operation with faults is still offered, and its server has the last word.
pub(super) fn convert_operation<'a>(
    context: &DocumentContext<'a>,
    translator: &mut SchemaTranslator<'a>,
    operation_ref: &OperationRef<'a>,
    faults: &mut Vec<String>,
) -> ConvertedOperation {
    // Charge what every operation reads again: its own object, and what it inherits.
    let inherited = [operation_ref.path_item.value.get("parameters"), context.root.value.get("security")];
    for value in inherited.into_iter().flatten().chain([operation_ref.operation.value]) {
        translator.charge_reading(value);
    }
    // Parameters and body first, because their names depend on each other.
    let declared = parameters::read_parameters(context, operation_ref, faults);
    let body = body::convert_body(context, translator, operation_ref, faults);
    // Parameters and body become the arguments of the tool.
    let reserved: &[&str] = match &body {
        Some(body) if !body.alternatives.is_empty() => &[BODY_ARGUMENT, CONTENT_TYPE_ARGUMENT],
        Some(_) => &[BODY_ARGUMENT],
        None => &[],
    };
    let names = argument_names(&declared, reserved);
    let mut input = ArgumentsSchema::default();
    let mut parameters = Vec::with_capacity(declared.len());
    for (declared, argument) in declared.into_iter().zip(names) {
        let translated = match declared.schema {
            ParameterSchema::Declared(node) => translator.translate(node, Direction::Request, faults),
            ParameterSchema::Any => TranslatedSchema::any(),
            ParameterSchema::Text => TranslatedSchema::without_references(json!({ "type": "string" })),
        };
        input.add(&argument, with_description(translated, declared.description), declared.required);
        let DeclaredParameter { name, location, required, serialization, .. } = declared;
        parameters.push(OperationParameter { argument, name, location, required, serialization });
    }
    let (body, body_choice) = match body {
        Some(ConvertedBody { body, schema, media_schemas, alternatives }) => {
            input.add(&body.argument, schema, body.required);
            let choice = BodyChoice { argument: CONTENT_TYPE_ARGUMENT.to_owned(), alternatives };
            let choice = Some(choice).filter(|choice| !choice.alternatives.is_empty());
            if let Some(choice) = &choice {
                input.add(&choice.argument, content_type_schema(&body, choice), false);
                input.add_body_conditions(&body.argument, &choice.argument, media_schemas);
            }
            (Some(body), choice)
        }
        None => (None, None),
    };
    // Everything that does not depend on arguments.
    let (output, accept) = response::convert_response(context, translator, operation_ref);
    let security = context.security.requirements_of(operation_ref.operation.value);
    let id = operation_ref.operation.value.get("operationId").and_then(Value::as_str);
    let next_page = response::next_page_links(context, operation_ref, &parameters);
    ConvertedOperation {
        input: translator.assemble(&input.into_schema(), Direction::Request),
        output,
        operation: Operation {
            method: operation_ref.method.clone(),
            server: context.servers.server_for(operation_ref),
            path: parameters::normalize_path(context, operation_ref.path),
            operation_id: id.map(str::to_owned),
            parameters,
            body,
            body_choice,
            security: security.alternatives,
            public: security.public,
            declared_schemes: security.declared_schemes,
            token_urls: security.token_urls,
            accept,
            next_page,
        },
    }
}

/// Returns the tags of an operation.
pub(super) fn tags(operation: &Value) -> Vec<String> {
    let tags = operation.get("tags").and_then(Value::as_array);
    tags.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

/// Returns the schema of the argument that chooses the media type of the body.
fn content_type_schema(body: &BodySpec, choice: &BodyChoice) -> TranslatedSchema {
    let alternatives = choice.alternatives.iter().map(|alternative| &alternative.body.media_type);
    let media_types: Vec<&String> = std::iter::once(&body.media_type).chain(alternatives).collect();
    TranslatedSchema::without_references(json!({
        "type": "string",
        "enum": media_types,
        "default": body.media_type,
        "description": "Media type of `body`",
    }))
}

/// Returns the argument name of each parameter. If several parameters share a name, the path parameter keeps it and the
/// others get their location as a suffix.
fn argument_names(declared: &[DeclaredParameter<'_>], reserved: &[&str]) -> Vec<String> {
    let mut uses: HashMap<&str, usize> = HashMap::new();
    for parameter in declared {
        *uses.entry(&parameter.name).or_default() += 1;
    }
    let mut used: HashSet<String> = HashSet::with_capacity(declared.len());
    let mut names = Vec::with_capacity(declared.len());
    for parameter in declared {
        let name = &parameter.name;
        let is_shared =
            uses.get(name.as_str()).is_some_and(|uses| *uses > 1) && parameter.location != ParameterLocation::Path;
        let mut argument = name.clone();
        // Repeats the suffix until the name is free.
        let is_taken = |argument: &String| reserved.contains(&argument.as_str()) || used.contains(argument);
        while (is_shared && argument == *name) || is_taken(&argument) {
            argument = format!("{argument}__{}", parameter.location.as_str());
        }
        used.insert(argument.clone());
        names.push(argument);
    }
    names
}

/// Sets the description of a parameter, which takes precedence over the one of its schema.
fn with_description(mut translated: TranslatedSchema, description: Option<&str>) -> TranslatedSchema {
    let description = description.map(|text| description::shorten(text, MAX_DESCRIPTION_LEN));
    if let (Value::Object(fields), Some(text)) = (&mut translated.value, description.filter(|text| !text.is_empty())) {
        fields.insert("description".into(), text.into());
    }
    translated
}

/// Schema of the arguments or of a form, built member by member.
#[derive(Default)]
struct ArgumentsSchema {
    properties: Map<String, Value>,
    required: Vec<String>,
    /// Names of the definitions that the schemas refer to.
    references: Vec<std::rc::Rc<str>>,
    /// Whether other members are rejected.
    is_closed: bool,
    /// `if`, `then` and `else`: restrictions of a member by the value of another.
    conditions: Map<String, Value>,
}

impl ArgumentsSchema {
    /// Adds a member.
    fn add(&mut self, name: &str, schema: TranslatedSchema, required: bool) {
        self.references.extend(schema.references);
        self.properties.insert(name.to_owned(), schema.value);
        if required {
            self.required.push(name.to_owned());
        }
    }

    /// Requires that a body matches the schema of the media type that is chosen for it. As a chain of `else`, because model
    /// providers reject `allOf` at the top level.
    fn add_body_conditions(&mut self, body: &str, content_type: &str, media_schemas: Vec<MediaSchema>) {
        // A schema that accepts anything restricts nothing.
        let media_schemas = media_schemas.into_iter().filter(|media| media.schema.value != json!({}));
        for MediaSchema { media_types, schema } in media_schemas.rev() {
            self.references.extend(schema.references);
            let is_chosen =
                json!({ "properties": { content_type: { "enum": media_types } }, "required": [content_type] });
            let mut condition = Map::from_iter([("if".to_owned(), is_chosen)]);
            condition.insert("then".to_owned(), json!({ "properties": { body: schema.value } }));
            let others = std::mem::replace(&mut self.conditions, condition);
            if !others.is_empty() {
                self.conditions.insert("else".to_owned(), others.into());
            }
        }
    }

    /// Returns the object schema of all members.
    fn into_schema(self) -> TranslatedSchema {
        let mut schema = json!({ "type": "object", "properties": self.properties });
        if !self.required.is_empty() {
            schema["required"] = json!(self.required);
        }
        if self.is_closed {
            schema["additionalProperties"] = false.into();
        }
        if let Value::Object(fields) = &mut schema {
            fields.extend(self.conditions);
        }
        TranslatedSchema::with_references(schema, self.references)
    }
}
