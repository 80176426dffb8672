//! What requests come of operations that are built by hand. Those of real documents are tried over HTTP, elsewhere.

mod bodies;
mod locations;
mod safety;
mod styles;

use serde_json::{Value, json};

use super::*;
use crate::execution::{ParameterLocation, ParameterStyle, Serialization};

const BASE: &str = "http://h/api";

fn style_form(style: ParameterStyle, explode: bool) -> Serialization {
    Serialization::Style { style, explode, allow_reserved: false }
}

fn reserved_form(style: ParameterStyle, explode: bool) -> Serialization {
    Serialization::Style { style, explode, allow_reserved: true }
}

fn content_form(media_type: &str) -> Serialization {
    Serialization::Content { media_type: media_type.to_owned() }
}

fn parameter(name: &str, place: ParameterLocation, form: Serialization) -> OperationParameter {
    OperationParameter {
        argument: name.to_owned(),
        name: name.to_owned(),
        location: place,
        required: place == ParameterLocation::Path,
        serialization: form,
    }
}

fn operation(path: &str, parameters: Vec<OperationParameter>) -> Operation {
    Operation { method: "GET".into(), path: path.to_owned(), parameters, ..Operation::default() }
}

fn prepare_json(operation: &Operation, arguments: Value) -> Result<PreparedRequest> {
    prepare(operation, BASE, arguments.as_object().unwrap(), "BOUNDARY")
}

/// What follows the base, or why there is nothing.
fn url(operation: &Operation, arguments: Value) -> String {
    match prepare_json(operation, arguments) {
        Ok(prepared) => prepared.url.strip_prefix(BASE).unwrap().to_owned(),
        Err(error) => {
            assert_eq!(error.code, Code::ToolInvalidInput);
            format!("refused: {error}")
        }
    }
}
