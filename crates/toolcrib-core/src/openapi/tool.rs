//! An operation as the tool it becomes: what agents read of it, and what lies behind.

use std::time::Duration;

use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value, json};

use super::convert::OperationRef;
use super::description;
use super::operation::{ConvertedOperation, tags};
use crate::execution::{ExecutionMode, ExecutionSpec};
use crate::source::PollSettings;
use crate::text::sanitize_truncated;
use crate::time::parse_duration;
use crate::tool::EXECUTION_SPEC_KEY;

const MAX_SUMMARY_LEN: usize = 160;
const MAX_DESCRIPTION_LEN: usize = 200;

/// The tool as a source offers it, or why it cannot be.
pub(super) fn build_tool(
    name: &str,
    found: &OperationRef<'_>,
    read: ConvertedOperation,
    poll: Option<&PollSettings>,
) -> Result<Box<RawValue>, String> {
    let value = found.operation.value;
    let poll = match (poll, value.get("x-toolcrib-poll")) {
        (Some(poll), _) => Some(poll.clone()),
        (None, Some(stated)) => Some(parse_poll(stated)?),
        (None, None) => None,
    };
    let execution = match poll {
        Some(poll) => ExecutionMode::AsyncPoll { operation: read.operation, poll },
        None => ExecutionMode::SyncHttp(read.operation),
    };
    let raw = |value: &Value| to_raw_value(value).map_err(|error| format!("it cannot be written: {error}"));
    let backing = ExecutionSpec {
        execution,
        input_schema: read.input.full.as_ref().map(raw).transpose()?,
        output_schema: read.output.as_ref().map(raw).transpose()?,
        tags: tags(value),
        deprecated: value.get("deprecated") == Some(&Value::Bool(true)),
    };
    let mut tool = Map::new();
    tool.insert("name".into(), name.into());
    tool.insert("description".into(), tool_description(found, backing.deprecated).into());
    tool.insert("inputSchema".into(), read.input.listed);
    if let Some(hints) = method_hints(&found.method) {
        tool.insert("annotations".into(), hints);
    }
    let tool = serde_json::to_string(&tool).map_err(|error| format!("it cannot be written: {error}"))?;
    let backing = serde_json::to_string(&backing).map_err(|error| format!("it cannot be written: {error}"))?;
    let text = format!("{},\"{EXECUTION_SPEC_KEY}\":{backing}}}", tool.strip_suffix('}').unwrap_or(&tool));
    RawValue::from_string(text).map_err(|error| format!("it cannot be written: {error}"))
}

/// The summary, then what the description adds to it; without either, the request itself.
fn tool_description(found: &OperationRef<'_>, deprecated: bool) -> String {
    let text = |holder: &Value, key: &str| {
        holder.get(key).and_then(Value::as_str).map(str::trim).filter(|text| !text.is_empty()).map(str::to_owned)
    };
    let own = |key| text(found.operation.value, key).or_else(|| text(found.path_item.value, key));
    let summary = own("summary").map(|text| description::shorten(&text, MAX_SUMMARY_LEN));
    let description = own("description").map(|text| description::shorten(&text, MAX_DESCRIPTION_LEN));
    let text = match (summary.filter(|text| !text.is_empty()), description.filter(|text| !text.is_empty())) {
        (Some(summary), Some(description)) => match description::remainder(&summary, &description) {
            "" => summary,
            more => {
                let stop = if summary.ends_with(['.', '!', '?', '…']) { "" } else { "." };
                format!("{summary}{stop} {more}")
            }
        },
        (Some(only), None) | (None, Some(only)) => only,
        (None, None) => format!("{} {}", found.method, found.path),
    };
    if deprecated { format!("(deprecated) {text}") } else { text }
}

/// What a method promises.
fn method_hints(method: &str) -> Option<Value> {
    match method {
        "GET" | "HEAD" | "OPTIONS" | "TRACE" | "QUERY" => Some(json!({ "readOnlyHint": true })),
        "PUT" => Some(json!({ "idempotentHint": true })),
        "DELETE" => Some(json!({ "destructiveHint": true, "idempotentHint": true })),
        _ => None,
    }
}

/// How to see when something is done, as `x-toolcrib-poll` says it.
fn parse_poll(stated: &Value) -> Result<PollSettings, String> {
    let wrong = |key: &str| format!("`x-toolcrib-poll` needs `{key}`");
    let text = |key: &str| stated.get(key).and_then(Value::as_str).map(str::to_owned);
    let list = |key: &str| match stated.get(key) {
        Some(Value::String(one)) => vec![one.clone()],
        Some(Value::Array(several)) => several.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
        Some(Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_)) | None => Vec::new(),
    };
    let interval = text("interval").map(|interval| {
        let unknown = || {
            format!(
                "`x-toolcrib-poll`: `interval` is no length of time such as `2s`: `{}`",
                sanitize_truncated(&interval, 80)
            )
        };
        let long = |interval: &Duration| *interval >= PollSettings::MIN_INTERVAL;
        let parsed = parse_duration(&interval).ok_or_else(unknown)?;
        Some(parsed).filter(long).ok_or_else(|| "`x-toolcrib-poll`: `interval` must be `100ms` or more".to_owned())
    });
    let pointer = |key: &str| match text(key) {
        Some(pointer) if !pointer.is_empty() && !pointer.starts_with('/') => {
            let shown = sanitize_truncated(&pointer, 80);
            Err(format!("`x-toolcrib-poll`: `{key}` is no JSON pointer such as `/{shown}`: `{shown}`"))
        }
        pointer => Ok(pointer),
    };
    let done = Some(list("done")).filter(|done| !done.is_empty()).ok_or_else(|| wrong("done"))?;
    Ok(PollSettings {
        url: text("url").ok_or_else(|| wrong("url"))?,
        status: pointer("status")?.ok_or_else(|| wrong("status"))?,
        result: pointer("result")?,
        done,
        failed: list("failed"),
        interval: interval.transpose()?,
    })
}
