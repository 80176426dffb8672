//! Builds the tool of an operation: what agents see, and the execution specification stored with it.
//!
//! ```json
//! {"name": "getPet", "description": "…", "inputSchema": {…}, "annotations": {"readOnlyHint": true},
//!  "x-toolcrib-backing": {"execution": {…}, "input_schema": {…}}}
//! ```

use std::time::Duration;

use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use toolcrib_core::execution::{ExecutionMode, ExecutionSpec};
use toolcrib_core::json::{to_exact_raw, to_exact_string};
use toolcrib_core::source::PollSettings;
use toolcrib_core::text::sanitize_truncated;
use toolcrib_core::time::parse_duration;
use toolcrib_core::tool::EXECUTION_SPEC_KEY;

use super::convert::OperationRef;
use super::description;
use super::operation::{ConvertedOperation, tags};

/// Maximum length of a summary in a tool description. Lists of hundreds of operations are read by agents, so both texts
/// are short.
const MAX_SUMMARY_LEN: usize = 160;
/// Maximum length of the description that follows it.
const MAX_DESCRIPTION_LEN: usize = 200;

/// Returns the tool in the form in which a source lists it, or why that is impossible.
pub(super) fn build_tool(
    name: &str,
    operation_ref: &OperationRef<'_>,
    converted: ConvertedOperation,
    poll: Option<&PollSettings>,
) -> Result<Box<RawValue>, String> {
    let value = operation_ref.operation.value;
    // The declaration of the source takes precedence over the document.
    // A fault in the extension skips the operation: without polling, a call would return an unfinished job.
    let poll = match (poll, value.get("x-toolcrib-poll")) {
        (Some(poll), _) => Some(poll.clone()),
        (None, Some(declared)) => Some(parse_poll(declared)?),
        (None, None) => None,
    };
    let execution = match poll {
        Some(poll) => ExecutionMode::AsyncPoll { operation: converted.operation, poll },
        None => ExecutionMode::SyncHttp(converted.operation),
    };
    let raw = |value: &Value| to_exact_raw(value).map_err(|error| format!("it cannot be written: {error}"));
    let spec = ExecutionSpec {
        execution,
        input_schema: converted.input.full.as_ref().map(raw).transpose()?,
        output_schema: converted.output.as_ref().map(raw).transpose()?,
        tags: tags(value),
        deprecated: value.get("deprecated") == Some(&Value::Bool(true)),
    };
    let mut tool = Map::new();
    tool.insert("name".into(), name.into());
    tool.insert("description".into(), tool_description(operation_ref, spec.deprecated).into());
    tool.insert("inputSchema".into(), converted.input.listed);
    if let Some(hints) = method_hints(&operation_ref.method) {
        tool.insert("annotations".into(), hints);
    }
    let tool = to_exact_string(&tool).map_err(|error| format!("it cannot be written: {error}"))?;
    let spec = serde_json::to_string(&spec).map_err(|error| format!("it cannot be written: {error}"))?;
    // Appends the specification to the serialised tool, so that raw schemas need not be parsed again.
    let text = format!("{},\"{EXECUTION_SPEC_KEY}\":{spec}}}", tool.strip_suffix('}').unwrap_or(&tool));
    RawValue::from_string(text).map_err(|error| format!("it cannot be written: {error}"))
}

/// Returns the summary and what the description adds to it; without either, method and path.
fn tool_description(operation_ref: &OperationRef<'_>, deprecated: bool) -> String {
    let text = |container: &Value, key: &str| {
        container.get(key).and_then(Value::as_str).map(str::trim).filter(|text| !text.is_empty()).map(str::to_owned)
    };
    // The path item may have a summary and description for all its operations.
    // Both are shortened first, so that their first sentences can be compared.
    let text_of = |key| text(operation_ref.operation.value, key).or_else(|| text(operation_ref.path_item.value, key));
    let summary = text_of("summary").map(|text| description::shorten(&text, MAX_SUMMARY_LEN));
    let description = text_of("description").map(|text| description::shorten(&text, MAX_DESCRIPTION_LEN));
    let text = match (summary.filter(|text| !text.is_empty()), description.filter(|text| !text.is_empty())) {
        (Some(summary), Some(description)) => match description::remainder(&summary, &description) {
            "" => summary,
            // Ends the summary with a full stop before the description.
            more => {
                let stop = if summary.ends_with(['.', '!', '?', '…']) { "" } else { "." };
                format!("{summary}{stop} {more}")
            }
        },
        (Some(text), None) | (None, Some(text)) => text,
        (None, None) => format!("{} {}", operation_ref.method, operation_ref.path),
    };
    if deprecated { format!("(deprecated) {text}") } else { text }
}

/// Returns the annotations that follow from the semantics of an HTTP method.
fn method_hints(method: &str) -> Option<Value> {
    match method {
        "GET" | "HEAD" | "OPTIONS" | "TRACE" | "QUERY" => Some(json!({ "readOnlyHint": true })),
        "PUT" => Some(json!({ "idempotentHint": true })),
        "DELETE" => Some(json!({ "destructiveHint": true, "idempotentHint": true })),
        // `POST` and `PATCH` have no defined effect, so the defaults of MCP apply to them.
        _ => None,
    }
}

/// Parses the extension `x-toolcrib-poll`, which says how to wait for the end of an asynchronous operation.
fn parse_poll(declared: &Value) -> Result<PollSettings, String> {
    let missing = |key: &str| format!("`x-toolcrib-poll` needs `{key}`");
    let text = |key: &str| declared.get(key).and_then(Value::as_str).map(str::to_owned);
    let list = |key: &str| match declared.get(key) {
        // A single value may be written without a list.
        Some(Value::String(value)) => vec![value.clone()],
        Some(Value::Array(values)) => values.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
        Some(Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_)) | None => Vec::new(),
    };
    let interval = text("interval").map(|interval| {
        let invalid = || {
            format!(
                "`x-toolcrib-poll`: `interval` is not a duration such as `2s`: `{}`",
                sanitize_truncated(&interval, 80)
            )
        };
        // Shorter intervals would flood the server with requests.
        let is_long_enough = |interval: &Duration| *interval >= PollSettings::MIN_INTERVAL;
        let parsed = parse_duration(&interval).ok_or_else(invalid)?;
        Some(parsed)
            .filter(is_long_enough)
            .ok_or_else(|| "`x-toolcrib-poll`: `interval` must be `100ms` or more".to_owned())
    });
    let pointer = |key: &str| match text(key) {
        Some(pointer) if !pointer.is_empty() && !pointer.starts_with('/') => {
            let sanitized = sanitize_truncated(&pointer, 80);
            Err(format!("`x-toolcrib-poll`: `{key}` is not a JSON pointer such as `/{sanitized}`: `{sanitized}`"))
        }
        pointer => Ok(pointer),
    };
    // Without a final state the poll would never end.
    let done = Some(list("done")).filter(|done| !done.is_empty()).ok_or_else(|| missing("done"))?;
    Ok(PollSettings {
        url: text("url").ok_or_else(|| missing("url"))?,
        status: pointer("status")?.ok_or_else(|| missing("status"))?,
        result: pointer("result")?,
        done,
        failed: list("failed"),
        interval: interval.transpose()?,
    })
}
