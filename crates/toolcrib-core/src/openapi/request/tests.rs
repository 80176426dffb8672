//! What requests come of operations that are built by hand. Those of real documents are tried over HTTP, elsewhere.

mod bodies;
mod places;
mod safety;
mod styles;

use serde_json::{Value, json};

use super::*;
use crate::execution::{Form, Place, Style};

const BASE: &str = "http://h/api";

fn style(style: Style, explode: bool) -> Form {
    Form::Style { style, explode, allow_reserved: false }
}

fn reserved(style: Style, explode: bool) -> Form {
    Form::Style { style, explode, allow_reserved: true }
}

fn content(media_type: &str) -> Form {
    Form::Content { media_type: media_type.to_owned() }
}

fn parameter(name: &str, place: Place, form: Form) -> Parameter {
    Parameter { argument: name.to_owned(), name: name.to_owned(), place, required: place == Place::Path, form }
}

fn operation(path: &str, parameters: Vec<Parameter>) -> Operation {
    Operation { method: "GET".into(), path: path.to_owned(), parameters, ..Operation::default() }
}

fn prepared(operation: &Operation, arguments: Value) -> Result<Prepared> {
    prepare(operation, BASE, arguments.as_object().unwrap(), "BOUNDARY")
}

/// What follows the base, or why there is nothing.
fn url(operation: &Operation, arguments: Value) -> String {
    match prepared(operation, arguments) {
        Ok(prepared) => prepared.url.strip_prefix(BASE).unwrap().to_owned(),
        Err(error) => {
            assert_eq!(error.code, Code::ToolInvalidInput);
            format!("refused: {error}")
        }
    }
}
