//! What an operation answers with when all is well: the schema of that, and the media types it comes in.

use serde_json::Value;

use super::super::convert::{Found, Shared, Version, members};
use super::super::library::At;
use super::super::schema::{Direction, Schemas};
use super::body::is_json;

/// The schema of the first success that has one as JSON, short enough to be shown; and all media types of successes.
pub(super) fn read<'a>(
    shared: &Shared<'a>,
    schemas: &mut Schemas<'a>,
    found: &Found<'a>,
) -> (Option<Value>, Vec<String>) {
    let mut accept: Vec<String> = Vec::new();
    let mut schema: Option<At<'a>> = None;
    for (_, value) in successes(found.operation.value) {
        let Ok(answer) = shared.library.follow(At { value, ..found.operation }) else { continue };
        schemas.spend_on(answer.value);
        match shared.version {
            Version::Two => {
                schema = schema.or(answer.value.get("schema").map(|value| At { value, ..answer }));
                let produces = found.operation.value.get("produces").or_else(|| shared.root.value.get("produces"));
                let produced = produces.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
                accept.extend(produced.map(str::to_owned));
            }
            Version::Three => {
                for (media_type, content) in members(answer.value, "content") {
                    accept.push(media_type.clone());
                    if is_json(media_type) {
                        schema = schema.or(content.get("schema").map(|value| At { value, ..answer }));
                    }
                }
            }
        }
    }
    accept.dedup();
    accept.truncate(8);
    // What is broken in an answer keeps nobody from asking.
    let schema = schema.map(|at| schemas.translate(at, Direction::Answer, &mut Vec::new()));
    (schema.map(|schema| schemas.gather_short(&schema, Direction::Answer)), accept)
}

/// `200` before other successes, and what is said of all only where nothing else is.
fn successes(operation: &Value) -> Vec<(&String, &Value)> {
    let mut successes: Vec<(&String, &Value)> =
        members(operation, "responses").filter(|(status, _)| status.starts_with('2')).collect();
    successes.sort_by_key(|(status, _)| *status);
    if successes.is_empty() {
        successes.extend(members(operation, "responses").filter(|(status, _)| *status == "default"));
    }
    successes
}
