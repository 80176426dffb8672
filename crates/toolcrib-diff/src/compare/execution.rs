//! Compares how calls are executed: the HTTP request of an operation, and whether a call may or must run as an MCP
//! task.
//!
//! For a caller nothing about the tool looks different, yet a call has another effect; hence a class of its own
//! ([`ChangeClass::Execution`]).

use serde_json::Value;
use toolcrib_core::execution::{ExecutionMode, ExecutionSpec};
use toolcrib_core::text::sanitize_truncated;
use toolcrib_core::tool::Tool;

use super::{ChangeClass, Findings, canonical_json, parse_json};

/// Compares the stored execution specifications, which only tools of OpenAPI documents and workflows have.
pub(super) fn compare(old: Option<&ExecutionSpec>, new: Option<&ExecutionSpec>, findings: &mut Findings) {
    let (Some(old), Some(new)) = (old, new) else {
        // The source changed its kind, say from an MCP server to an OpenAPI document.
        if old.is_some() || new.is_some() {
            findings.add(ChangeClass::Execution, || "its execution changed".to_owned());
        }
        return;
    };
    // Where a call goes, and how arguments map to the request.
    if old.execution != new.execution {
        findings.add(ChangeClass::Execution, || describe_execution_change(&old.execution, &new.execution));
    }
    match (old.deprecated, new.deprecated) {
        (false, true) => findings.add(ChangeClass::Other, || "is deprecated by its source now".to_owned()),
        (true, false) => findings.add(ChangeClass::Other, || "is no longer deprecated by its source".to_owned()),
        (true, true) | (false, false) => {}
    }
    if old.tags != new.tags {
        findings.add(ChangeClass::Other, || "its tags changed".to_owned());
    }
}

/// Describes what changed in the request. Leaves out server URLs: a part of one may be confidential.
fn describe_execution_change(old: &ExecutionMode, new: &ExecutionMode) -> String {
    let (Some(old), Some(new)) = (old.operation(), new.operation()) else {
        return "its execution changed".to_owned();
    };
    if (&old.method, &old.path) != (&new.method, &new.path) {
        let request = |method: &str, path: &str| sanitize_truncated(&format!("{method} {path}"), 80);
        return format!(
            "its request: `{}` became `{}`",
            request(&old.method, &old.path),
            request(&new.method, &new.path)
        );
    }
    if old.server == new.server {
        // Parameters, body or security requirements.
        "the encoding of its request changed".to_owned()
    } else {
        "its server changed".to_owned()
    }
}

/// Field of an MCP tool that holds `taskSupport`.
pub(crate) const EXECUTION_FIELD: &str = "execution";

/// MCP's `execution.taskSupport`: whether a call may or must run as a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TaskSupport {
    /// A call must not run as a task; the default.
    Forbidden,
    /// The client chooses.
    Optional,
    /// Every call runs as a task, so a client without task support cannot use the tool.
    Required,
}

/// Compares the `execution` fields. A change that does not affect `taskSupport` counts as `Other`.
pub(super) fn compare_task_support(old: &Tool, new: &Tool, findings: &mut Findings) {
    let before = old.extra.get(EXECUTION_FIELD);
    let after = new.extra.get(EXECUTION_FIELD);
    if canonical_json(before) == canonical_json(after) {
        return;
    }
    // Unknown members of `execution` may have changed instead.
    let (class, note) = TaskSupport::from_tool(old)
        .classify_change(TaskSupport::from_tool(new))
        .unwrap_or((ChangeClass::Other, "its `execution` changed"));
    findings.add(class, || note.to_owned());
}

impl TaskSupport {
    /// Reads `execution.taskSupport` of a tool.
    pub(crate) fn from_tool(tool: &Tool) -> TaskSupport {
        let execution = parse_json(tool.extra.get(EXECUTION_FIELD));
        TaskSupport::from_name(execution.get("taskSupport").and_then(Value::as_str))
    }

    /// Parses the protocol's name. A missing or unknown value means forbidden, as the protocol says.
    pub(crate) fn from_name(name: Option<&str>) -> TaskSupport {
        match name {
            Some("required") => TaskSupport::Required,
            Some("optional") => TaskSupport::Optional,
            Some(_) | None => TaskSupport::Forbidden,
        }
    }

    /// Returns the protocol's name, or `None` for the default.
    pub(crate) fn name(self) -> Option<&'static str> {
        match self {
            TaskSupport::Forbidden => None,
            TaskSupport::Optional => Some("optional"),
            TaskSupport::Required => Some("required"),
        }
    }

    /// Returns the class of a change from `self` to `new` with its note, or `None` if they are equal.
    pub(super) fn classify_change(self, new: TaskSupport) -> Option<(ChangeClass, &'static str)> {
        let change = match (self, new) {
            (_, TaskSupport::Required) => (ChangeClass::Breaking, "must be called as a task now"),
            (TaskSupport::Required, TaskSupport::Forbidden) => {
                (ChangeClass::Breaking, "can no longer be called as a task")
            }
            (_, TaskSupport::Forbidden) => (ChangeClass::Narrowed, "can no longer be called as a task"),
            (TaskSupport::Required, TaskSupport::Optional) => {
                (ChangeClass::Widened, "need not be called as a task any more")
            }
            (_, TaskSupport::Optional) => (ChangeClass::Widened, "may be called as a task now"),
        };
        (self != new).then_some(change)
    }
}
