//! Values that a workflow step sends although the operation declares no parameters for them: parts of the query, and
//! headers such as an `Authorization` with the token of an earlier step.
//!
//! They become parameters of a copy of the operation, so that names and values are checked and encoded like any other.
//! Configured headers and credentials of the source take precedence. Like those, they are sent to the server of the API
//! alone: a redirect to another origin drops them.

use std::borrow::Cow;

use serde_json::{Map, Value};
use toolcrib_connector::UndeclaredParameters;
use toolcrib_connector::secret::SourceReferences;
use toolcrib_core::execution::{Operation, OperationParameter, ParameterLocation, ParameterStyle, Serialization};

/// Parts of the names of headers and query values that are credentials.
const CREDENTIAL_NAMES: [&str; 6] = ["auth", "token", "key", "secret", "session", "password"];
/// Shorter values are not taken for credentials: masking them would hide ordinary words.
const MIN_CREDENTIAL_LEN: usize = 8;

/// Adds the values to the operation and its arguments, and those that look like credentials to the redactor.
pub(super) fn add_undeclared<'a>(
    undeclared: &UndeclaredParameters,
    operation: &Operation,
    mut arguments: Map<String, Value>,
    references: &SourceReferences,
) -> (Cow<'a, Operation>, Map<String, Value>) {
    let mut operation = operation.clone();
    let query = undeclared.query.iter().map(|pair| (ParameterLocation::Query, ParameterStyle::Form, pair));
    let headers = undeclared.headers.iter().map(|pair| (ParameterLocation::Header, ParameterStyle::Simple, pair));
    for (location, style, (name, value)) in query.chain(headers) {
        if let Some(credential) = credential(name, value) {
            references.add_credential(credential);
        }
        // No argument of a tool contains a space before a parenthesis.
        let argument = format!("{name} ({})", location.as_str());
        arguments.insert(argument.clone(), value.clone());
        operation.parameters.push(OperationParameter {
            argument,
            name: name.clone(),
            location,
            required: false,
            serialization: Serialization::Style { style, explode: true, allow_reserved: false },
        });
    }
    (Cow::Owned(operation), arguments)
}

/// The secret part of a value, if its name says that it is a credential: without the scheme of `Bearer TOKEN`.
fn credential<'a>(name: &str, value: &'a Value) -> Option<&'a str> {
    let name = name.to_ascii_lowercase();
    let is_credential = CREDENTIAL_NAMES.iter().any(|part| name.contains(part));
    let word = value.as_str().filter(|_| is_credential)?.rsplit(' ').next()?;
    Some(word).filter(|word| word.len() >= MIN_CREDENTIAL_LEN)
}
