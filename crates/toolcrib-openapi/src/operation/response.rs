//! Converts the successful responses of an operation: their schema and media types. Responses with an error status are
//! not described: an agent sees their bodies when they occur.

use std::collections::BTreeMap;

use serde_json::Value;
use toolcrib_core::execution::OperationParameter;

use super::super::convert::{DocumentContext, OperationRef, SpecVersion, object_members};
use super::super::document_set::NodeRef;
use super::super::schema::{Direction, SchemaTranslator};
use super::body::is_json;

/// Bound on the links of a response that are read, and on the parameters of a link.
const MAX_LINKS: usize = 16;

/// Returns the schema of the first successful JSON response, pruned if necessary, and the media types of all successful
/// responses.
pub(super) fn convert_response<'a>(
    context: &DocumentContext<'a>,
    translator: &mut SchemaTranslator<'a>,
    operation_ref: &OperationRef<'a>,
) -> (Option<Value>, Vec<String>) {
    let mut accept: Vec<String> = Vec::new();
    let mut schema: Option<NodeRef<'a>> = None;
    for (_, value) in success_responses(operation_ref.operation.value) {
        // A response that cannot be resolved only costs its schema.
        let Ok(response) = context.documents.resolve(NodeRef { value, ..operation_ref.operation }) else { continue };
        translator.charge_reading(response.value);
        match context.version {
            SpecVersion::Swagger2 => {
                // Swagger 2.0 has one schema for all media types, which are declared by the operation or the document.
                schema = schema.or(response.value.get("schema").map(|value| NodeRef { value, ..response }));
                let produces =
                    operation_ref.operation.value.get("produces").or_else(|| context.root.value.get("produces"));
                let media_types = produces.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
                accept.extend(media_types.map(str::to_owned));
            }
            SpecVersion::OpenApi3 => {
                // OpenAPI 3 has a schema per media type, of which only JSON can be validated.
                for (media_type, content) in object_members(response.value, "content") {
                    accept.push(media_type.clone());
                    if is_json(media_type) {
                        schema = schema.or(content.get("schema").map(|value| NodeRef { value, ..response }));
                    }
                }
            }
        }
    }
    // Longer lists add nothing to the `Accept` header.
    accept.dedup();
    accept.truncate(8);
    // Faults in a response do not affect calls, so they are not reported.
    let schema = schema.map(|node| translator.translate(node, Direction::Response, &mut Vec::new()));
    (schema.map(|schema| translator.assemble_short(&schema, Direction::Response)), accept)
}

/// Returns the arguments of the next page, if a successful response has a link from the operation to itself:
/// `links: {next: {operationId: listPets, parameters: {cursor: "$response.body#/next"}}}`.
pub(super) fn next_page_links(
    context: &DocumentContext<'_>,
    operation_ref: &OperationRef<'_>,
    parameters: &[OperationParameter],
) -> BTreeMap<String, String> {
    let operation = operation_ref.operation;
    let id = operation.value.get("operationId").and_then(Value::as_str);
    let pointer = format!(
        "#/paths/{}/{}",
        operation_ref.path.replace('~', "~0").replace('/', "~1"),
        operation_ref.method.to_ascii_lowercase()
    );
    let targets_itself = |link: &Value| match (link.get("operationId"), link.get("operationRef")) {
        (Some(target), _) => id.is_some() && target.as_str() == id,
        (None, Some(target)) => target.as_str() == Some(&pointer),
        (None, None) => false,
    };
    for (_, value) in success_responses(operation.value) {
        let Ok(response) = context.documents.resolve(NodeRef { value, ..operation }) else { continue };
        for (_, value) in object_members(response.value, "links").take(MAX_LINKS) {
            let Ok(link) = context.documents.resolve(NodeRef { value, ..response }) else { continue };
            if !targets_itself(link.value) {
                continue;
            }
            let arguments: BTreeMap<String, String> = object_members(link.value, "parameters")
                .filter_map(|(name, value)| {
                    // Only values of the response differ between pages. A name may be qualified: `query.cursor`.
                    let expression = value.as_str().filter(|text| text.starts_with("$response."))?;
                    let is_named = |parameter: &&OperationParameter| {
                        parameter.name == *name
                            || format!("{}.{}", parameter.location.as_str(), parameter.name) == *name
                    };
                    Some((parameters.iter().find(is_named)?.argument.clone(), expression.to_owned()))
                })
                .take(MAX_LINKS)
                .collect();
            if !arguments.is_empty() {
                return arguments;
            }
        }
    }
    BTreeMap::new()
}

/// Returns the successful responses in the order of their status, or the `default` response if there are none.
fn success_responses(operation: &Value) -> Vec<(&String, &Value)> {
    let mut successes: Vec<(&String, &Value)> =
        object_members(operation, "responses").filter(|(status, _)| status.starts_with('2')).collect();
    successes.sort_by_key(|(status, _)| *status);
    if successes.is_empty() {
        successes.extend(object_members(operation, "responses").filter(|(status, _)| *status == "default"));
    }
    successes
}
