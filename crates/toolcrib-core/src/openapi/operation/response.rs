//! What an operation answers with when all is well: the schema of that, and the media types it comes in.

use serde_json::Value;

use super::super::convert::{DocumentContext, OperationRef, SpecVersion, object_members};
use super::super::document_set::NodeRef;
use super::super::schema::{Direction, SchemaTranslator};
use super::body::is_json;

/// The schema of the first success that has one as JSON, short enough to be shown; and all media types of successes.
pub(super) fn convert_response<'a>(
    shared: &DocumentContext<'a>,
    schemas: &mut SchemaTranslator<'a>,
    found: &OperationRef<'a>,
) -> (Option<Value>, Vec<String>) {
    let mut accept: Vec<String> = Vec::new();
    let mut schema: Option<NodeRef<'a>> = None;
    for (_, value) in success_responses(found.operation.value) {
        let Ok(answer) = shared.documents.resolve(NodeRef { value, ..found.operation }) else { continue };
        schemas.charge_reading(answer.value);
        match shared.version {
            SpecVersion::Swagger2 => {
                schema = schema.or(answer.value.get("schema").map(|value| NodeRef { value, ..answer }));
                let produces = found.operation.value.get("produces").or_else(|| shared.root.value.get("produces"));
                let produced = produces.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
                accept.extend(produced.map(str::to_owned));
            }
            SpecVersion::OpenApi3 => {
                for (media_type, content) in object_members(answer.value, "content") {
                    accept.push(media_type.clone());
                    if is_json(media_type) {
                        schema = schema.or(content.get("schema").map(|value| NodeRef { value, ..answer }));
                    }
                }
            }
        }
    }
    accept.dedup();
    accept.truncate(8);
    // What is broken in an answer keeps nobody from asking.
    let schema = schema.map(|at| schemas.translate(at, Direction::Response, &mut Vec::new()));
    (schema.map(|schema| schemas.assemble_short(&schema, Direction::Response)), accept)
}

/// `200` before other successes, and what is said of all only where nothing else is.
fn success_responses(operation: &Value) -> Vec<(&String, &Value)> {
    let mut successes: Vec<(&String, &Value)> =
        object_members(operation, "responses").filter(|(status, _)| status.starts_with('2')).collect();
    successes.sort_by_key(|(status, _)| *status);
    if successes.is_empty() {
        successes.extend(object_members(operation, "responses").filter(|(status, _)| *status == "default"));
    }
    successes
}
