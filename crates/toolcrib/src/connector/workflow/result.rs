//! What a workflow comes to, for whoever called it.

use serde_json::value::to_raw_value;
use serde_json::{Value, json};
use toolcrib_core::text::sanitize_truncated;
use toolcrib_core::{Code, Error, Result, ResultExt};

use crate::connector::ToolResult;

/// Bytes of outputs that stand in the details of an error.
const MAX_DETAIL_OUTPUT_BYTES: usize = 16 * 1024;

/// The outputs, structured and as text.
pub(super) fn build_result(workflow: &str, outputs: &Value) -> Result<ToolResult> {
    let text = match outputs.as_object().is_some_and(serde_json::Map::is_empty) {
        true => format!("the workflow `{}` is done", sanitize_truncated(workflow, 80)),
        false => outputs.to_string(),
    };
    let result = json!({ "content": [{ "type": "text", "text": text }], "structuredContent": outputs });
    let raw = to_raw_value(&result).context(Code::Internal, "write a result")?;
    ToolResult::parse(raw).ok_or_else(|| Error::new(Code::Internal, "a result is no object"))
}

/// `said` is what an API said to the step.
pub(super) fn failure_error(workflow: &str, step: &str, reason: &str, said: Option<&str>, outputs: &Value) -> Error {
    let (workflow, step, reason) =
        (sanitize_truncated(workflow, 80), sanitize_truncated(step, 80), sanitize_truncated(reason, 600));
    let said = said.map(|said| format!("; {said}")).unwrap_or_default();
    let outputs = if outputs.to_string().len() <= MAX_DETAIL_OUTPUT_BYTES { outputs.clone() } else { Value::Null };
    let message = format!("the workflow `{workflow}` failed at step `{step}`: {reason}{said}");
    Error::new(Code::ToolExecutionFailed, message).with_details(json!({ "step": step, "outputs": outputs }))
}
