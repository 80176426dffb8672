//! One operation: what a call to it sends where, and the schema of its arguments. Parameters stand at the top under
//! their own names, the body whole under `body`.

mod answer;
mod body;

use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value, json};

use super::convert::{Found, Shared};
use super::parameters::{self, Given, Schema};
use super::schema::{Direction, Gathered, Schemas, Translated};
use super::wording;
use crate::execution::{Operation, Parameter, Place};

/// An operation, ready to become a tool.
#[derive(Debug)]
pub(super) struct Read {
    pub(super) operation: Operation,
    pub(super) input: Gathered,
    pub(super) output: Option<Value>,
}

const LONGEST_DESCRIPTION: usize = 160;

pub(super) fn read<'a>(
    shared: &Shared<'a>,
    schemas: &mut Schemas<'a>,
    found: &Found<'a>,
    broken: &mut Vec<String>,
) -> Read {
    let inherited = [found.item.value.get("parameters"), shared.root.value.get("security")];
    for value in inherited.into_iter().flatten().chain([found.operation.value]) {
        schemas.spend_on(value);
    }
    let given = parameters::read(shared, found, broken);
    let body = body::read(shared, schemas, found, broken);
    let names = arguments(&given, body.is_some());
    let mut input = Input::default();
    let mut parameters = Vec::with_capacity(given.len());
    for (given, argument) in given.into_iter().zip(names) {
        let translated = match given.schema {
            Schema::Given(at) => schemas.translate(at, Direction::Request, broken),
            Schema::Any => Translated::of(json!({})),
            Schema::Text => Translated::of(json!({ "type": "string" })),
        };
        input.add(&argument, described(translated, given.description), given.required);
        let Given { name, place, required, form, .. } = given;
        parameters.push(Parameter { argument, name, place, required, form });
    }
    let body = body.map(|(body, translated)| {
        input.add(&body.argument, translated, body.required);
        body
    });
    let (output, accept) = answer::read(shared, schemas, found);
    let security = shared.security.needed_by(found.operation.value);
    let id = found.operation.value.get("operationId").and_then(Value::as_str);
    Read {
        input: schemas.gather(&input.schema(), Direction::Request),
        output,
        operation: Operation {
            method: found.method.clone(),
            server: shared.servers.of(found),
            path: parameters::plain_path(found.path),
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
fn arguments(given: &[Given<'_>], has_body: bool) -> Vec<String> {
    let mut uses: HashMap<&str, usize> = HashMap::new();
    for parameter in given {
        *uses.entry(&parameter.name).or_default() += 1;
    }
    let mut taken: HashSet<String> = HashSet::with_capacity(given.len());
    let mut names = Vec::with_capacity(given.len());
    for parameter in given {
        let name = &parameter.name;
        let shared = uses.get(name.as_str()).is_some_and(|uses| *uses > 1) && parameter.place != Place::Path;
        let mut argument = name.clone();
        while (shared && argument == *name) || (has_body && argument == "body") || taken.contains(&argument) {
            argument = format!("{argument}__{}", place_name(parameter.place));
        }
        taken.insert(argument.clone());
        names.push(argument);
    }
    names
}

fn place_name(place: Place) -> &'static str {
    match place {
        Place::Path => "path",
        Place::Query => "query",
        Place::Header => "header",
        Place::Cookie => "cookie",
        Place::Querystring => "querystring",
    }
}

/// What a parameter says about itself counts more than what its schema says.
fn described(mut translated: Translated, description: Option<&str>) -> Translated {
    let description = description.map(|text| wording::shortened(text, LONGEST_DESCRIPTION));
    if let (Value::Object(fields), Some(text)) = (&mut translated.value, description.filter(|text| !text.is_empty())) {
        fields.insert("description".into(), text.into());
    }
    translated
}

/// The arguments of a call, as an object.
#[derive(Default)]
struct Input {
    properties: Map<String, Value>,
    required: Vec<String>,
    references: Vec<std::rc::Rc<str>>,
}

impl Input {
    fn add(&mut self, name: &str, schema: Translated, required: bool) {
        self.references.extend(schema.references);
        self.properties.insert(name.to_owned(), schema.value);
        if required {
            self.required.push(name.to_owned());
        }
    }

    fn schema(self) -> Translated {
        let mut schema = json!({ "type": "object", "properties": self.properties });
        if !self.required.is_empty() {
            schema["required"] = json!(self.required);
        }
        Translated::referring(schema, self.references)
    }
}
