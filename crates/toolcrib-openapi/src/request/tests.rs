//! Requests of operations built by hand. Integration tests send those of real documents over HTTP.

mod bodies;
mod locations;
mod safety;
mod styles;

use serde_json::{Value, json};
use toolcrib_core::execution::{ParameterLocation, ParameterStyle, Serialization};

use super::*;

const BASE: &str = "http://h/api";

fn with_style(style: ParameterStyle, explode: bool) -> Serialization {
    Serialization::Style { style, explode, allow_reserved: false }
}

fn with_reserved(style: ParameterStyle, explode: bool) -> Serialization {
    Serialization::Style { style, explode, allow_reserved: true }
}

fn with_content(media_type: &str) -> Serialization {
    Serialization::Content { media_type: media_type.to_owned() }
}

fn parameter(name: &str, location: ParameterLocation, serialization: Serialization) -> OperationParameter {
    OperationParameter {
        argument: name.to_owned(),
        name: name.to_owned(),
        location,
        required: location == ParameterLocation::Path,
        serialization,
    }
}

fn operation(path: &str, parameters: Vec<OperationParameter>) -> Operation {
    Operation { method: "GET".into(), path: path.to_owned(), parameters, ..Operation::default() }
}

fn prepare_json(operation: &Operation, arguments: Value) -> Result<PreparedRequest> {
    prepare(operation, BASE, arguments.as_object().unwrap(), "BOUNDARY")
}

/// Returns the URL after the base, or the error.
fn url(operation: &Operation, arguments: Value) -> String {
    match prepare_json(operation, arguments) {
        Ok(prepared) => prepared.url.strip_prefix(BASE).unwrap().to_owned(),
        Err(error) => {
            assert_eq!(error.code, Code::ToolInvalidInput);
            format!("refused: {error}")
        }
    }
}
