//! Results and errors of workflows. A failed workflow may have had effects, so its error contains the step that failed
//! and the outputs so far: the caller can go on from there.

use serde_json::value::RawValue;
use serde_json::{Value, json};
use toolcrib_connector::ToolResult;
use toolcrib_core::json::to_exact_string;
use toolcrib_core::text::sanitize_truncated;
use toolcrib_core::{Code, Error, Result, ResultExt};

/// Larger outputs are left out of the details of an error.
const MAX_DETAIL_OUTPUT_BYTES: usize = 16 * 1024;

/// Builds the result: outputs as structured content and as text.
pub(super) fn build_result(workflow: &str, outputs: &Value) -> Result<ToolResult> {
    let structured = to_exact_string(outputs).context(Code::Internal, "cannot serialize a result")?;
    let text = if outputs.as_object().is_some_and(serde_json::Map::is_empty) {
        format!("the workflow `{}` is finished", sanitize_truncated(workflow, 80))
    } else {
        structured.clone()
    };
    let content = json!([{ "type": "text", "text": text }]);
    let raw = RawValue::from_string(format!(r#"{{"content":{content},"structuredContent":{structured}}}"#))
        .context(Code::Internal, "cannot serialize a result")?;
    ToolResult::parse(raw).ok_or_else(|| Error::new(Code::Internal, "internal error: a result is not an object"))
}

/// Error of a failed workflow with the outputs so far. `api_message` is the API's own error for the step.
pub(super) fn failure_error(
    workflow: &str,
    step: &str,
    reason: &str,
    api_message: Option<&str>,
    outputs: &Value,
) -> Error {
    let workflow = sanitize_truncated(workflow, 80);
    let step = sanitize_truncated(step, 80);
    let reason = sanitize_truncated(reason, 600);
    let api_message = api_message.map(|api_message| format!("; {api_message}")).unwrap_or_default();
    let outputs = if outputs.to_string().len() <= MAX_DETAIL_OUTPUT_BYTES { outputs.clone() } else { Value::Null };
    let message = format!("the workflow `{workflow}` failed at step `{step}`: {reason}{api_message}");
    Error::new(Code::ToolExecutionFailed, message).with_details(json!({ "step": step, "outputs": outputs }))
}
