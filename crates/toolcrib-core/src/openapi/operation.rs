//! One operation: what a call to it sends where, and the schema of its arguments. Parameters stand at the top under
//! their own names, the body whole under `body`.

mod body;
mod response;

use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value, json};

use super::convert::{DocumentContext, OperationRef};
use super::description;
use super::parameters::{self, DeclaredParameter, ParameterSchema};
use super::schema::{AssembledSchema, Direction, SchemaTranslator, TranslatedSchema};
use crate::execution::{Operation, OperationParameter, ParameterLocation};

/// An operation, ready to become a tool.
#[derive(Debug)]
pub(super) struct ConvertedOperation {
    pub(super) operation: Operation,
    pub(super) input: AssembledSchema,
    pub(super) output: Option<Value>,
}

const MAX_DESCRIPTION_LEN: usize = 160;

pub(super) fn convert_operation<'a>(
    shared: &DocumentContext<'a>,
    schemas: &mut SchemaTranslator<'a>,
    found: &OperationRef<'a>,
    broken: &mut Vec<String>,
) -> ConvertedOperation {
    let inherited = [found.path_item.value.get("parameters"), shared.root.value.get("security")];
    for value in inherited.into_iter().flatten().chain([found.operation.value]) {
        schemas.charge_reading(value);
    }
    let given = parameters::read_parameters(shared, found, broken);
    let body = body::convert_body(shared, schemas, found, broken);
    let names = argument_names(&given, body.is_some());
    let mut input = ArgumentsSchema::default();
    let mut parameters = Vec::with_capacity(given.len());
    for (given, argument) in given.into_iter().zip(names) {
        let translated = match given.schema {
            ParameterSchema::Declared(at) => schemas.translate(at, Direction::Request, broken),
            ParameterSchema::Any => TranslatedSchema::without_references(json!({})),
            ParameterSchema::Text => TranslatedSchema::without_references(json!({ "type": "string" })),
        };
        input.add(&argument, with_description(translated, given.description), given.required);
        let DeclaredParameter { name, place, required, form, .. } = given;
        parameters.push(OperationParameter { argument, name, location: place, required, serialization: form });
    }
    let body = body.map(|(body, translated)| {
        input.add(&body.argument, translated, body.required);
        body
    });
    let (output, accept) = response::convert_response(shared, schemas, found);
    let security = shared.security.requirements_of(found.operation.value);
    let id = found.operation.value.get("operationId").and_then(Value::as_str);
    ConvertedOperation {
        input: schemas.assemble(&input.into_schema(), Direction::Request),
        output,
        operation: Operation {
            method: found.method.clone(),
            server: shared.servers.server_for(found),
            path: parameters::normalize_path(found.path),
            operation_id: id.map(str::to_owned),
            parameters,
            body,
            security: security.alternatives,
            public: security.public,
            accept,
        },
    }
}

pub(super) fn tags(operation: &Value) -> Vec<String> {
    let tags = operation.get("tags").and_then(Value::as_array);
    tags.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

/// The names agents use. Where one stands in two places the path's keeps it, and the others say where they go.
fn argument_names(given: &[DeclaredParameter<'_>], has_body: bool) -> Vec<String> {
    let mut uses: HashMap<&str, usize> = HashMap::new();
    for parameter in given {
        *uses.entry(&parameter.name).or_default() += 1;
    }
    let mut taken: HashSet<String> = HashSet::with_capacity(given.len());
    let mut names = Vec::with_capacity(given.len());
    for parameter in given {
        let name = &parameter.name;
        let shared =
            uses.get(name.as_str()).is_some_and(|uses| *uses > 1) && parameter.place != ParameterLocation::Path;
        let mut argument = name.clone();
        while (shared && argument == *name) || (has_body && argument == "body") || taken.contains(&argument) {
            argument = format!("{argument}__{}", location_name(parameter.place));
        }
        taken.insert(argument.clone());
        names.push(argument);
    }
    names
}

fn location_name(place: ParameterLocation) -> &'static str {
    match place {
        ParameterLocation::Path => "path",
        ParameterLocation::Query => "query",
        ParameterLocation::Header => "header",
        ParameterLocation::Cookie => "cookie",
        ParameterLocation::Querystring => "querystring",
    }
}

/// What a parameter says about itself counts more than what its schema says.
fn with_description(mut translated: TranslatedSchema, description: Option<&str>) -> TranslatedSchema {
    let description = description.map(|text| description::shorten(text, MAX_DESCRIPTION_LEN));
    if let (Value::Object(fields), Some(text)) = (&mut translated.value, description.filter(|text| !text.is_empty())) {
        fields.insert("description".into(), text.into());
    }
    translated
}

/// The arguments of a call, as an object.
#[derive(Default)]
struct ArgumentsSchema {
    properties: Map<String, Value>,
    required: Vec<String>,
    references: Vec<std::rc::Rc<str>>,
}

impl ArgumentsSchema {
    fn add(&mut self, name: &str, schema: TranslatedSchema, required: bool) {
        self.references.extend(schema.references);
        self.properties.insert(name.to_owned(), schema.value);
        if required {
            self.required.push(name.to_owned());
        }
    }

    fn into_schema(self) -> TranslatedSchema {
        let mut schema = json!({ "type": "object", "properties": self.properties });
        if !self.required.is_empty() {
            schema["required"] = json!(self.required);
        }
        TranslatedSchema::with_references(schema, self.references)
    }
}
