//! How a call is carried out: the request of an operation, and whether a call may, or must, become a task.

use serde_json::Value;

use super::{ChangeClass, Findings, canonical_json};
use crate::execution::{ExecutionMode, ExecutionSpec};
use crate::text::sanitize_truncated;
use crate::tool::Tool;

pub(super) fn compare(old: Option<&ExecutionSpec>, new: Option<&ExecutionSpec>, findings: &mut Findings) {
    let (Some(old), Some(new)) = (old, new) else {
        if old.is_some() || new.is_some() {
            findings.add(ChangeClass::Execution, || "how it is carried out changed".to_owned());
        }
        return;
    };
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

/// Addresses are not told: a part of one may be confidential.
fn describe_execution_change(old: &ExecutionMode, new: &ExecutionMode) -> String {
    let (Some(old), Some(new)) = (old.operation(), new.operation()) else {
        return "how it is carried out changed".to_owned();
    };
    if (&old.method, &old.path) != (&new.method, &new.path) {
        let line = |method: &str, path: &str| sanitize_truncated(&format!("{method} {path}"), 80);
        return format!("its request: `{}` became `{}`", line(&old.method, &old.path), line(&new.method, &new.path));
    }
    match old.server == new.server {
        false => "its server changed".to_owned(),
        true => "how its request is made changed".to_owned(),
    }
}

/// The field of a tool under which MCP has this.
pub(crate) const EXECUTION_FIELD: &str = "execution";

/// Whether a call may, or must, become a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TaskSupport {
    Forbidden,
    Optional,
    Required,
}

pub(super) fn compare_task_support(old: &Tool, new: &Tool, findings: &mut Findings) {
    let (before, after) = (old.extra.get(EXECUTION_FIELD), new.extra.get(EXECUTION_FIELD));
    if canonical_json(before) == canonical_json(after) {
        return;
    }
    let (class, note) = TaskSupport::from_tool(old)
        .classify_change(TaskSupport::from_tool(new))
        .unwrap_or((ChangeClass::Other, "its `execution` changed"));
    findings.add(class, || note.to_owned());
}

impl TaskSupport {
    pub(crate) fn from_tool(tool: &Tool) -> TaskSupport {
        let execution: Value =
            tool.extra.get(EXECUTION_FIELD).and_then(|raw| serde_json::from_str(raw.get()).ok()).unwrap_or_default();
        TaskSupport::from_name(execution.get("taskSupport").and_then(Value::as_str))
    }

    /// As the protocol has it: forbidden, where nothing is said.
    pub(crate) fn from_name(name: Option<&str>) -> TaskSupport {
        match name {
            Some("required") => TaskSupport::Required,
            Some("optional") => TaskSupport::Optional,
            Some(_) | None => TaskSupport::Forbidden,
        }
    }

    pub(crate) fn name(self) -> Option<&'static str> {
        match self {
            TaskSupport::Forbidden => None,
            TaskSupport::Optional => Some("optional"),
            TaskSupport::Required => Some("required"),
        }
    }

    pub(super) fn classify_change(self, new: TaskSupport) -> Option<(ChangeClass, &'static str)> {
        match (self, new) {
            (TaskSupport::Forbidden | TaskSupport::Optional, TaskSupport::Required) => {
                Some((ChangeClass::Breaking, "must be called as a task now"))
            }
            (TaskSupport::Required, TaskSupport::Forbidden) => {
                Some((ChangeClass::Breaking, "can no longer be called as a task"))
            }
            (TaskSupport::Optional, TaskSupport::Forbidden) => {
                Some((ChangeClass::Narrowed, "can no longer be called as a task"))
            }
            (TaskSupport::Forbidden, TaskSupport::Optional) => {
                Some((ChangeClass::Widened, "may be called as a task now"))
            }
            (TaskSupport::Required, TaskSupport::Optional) => {
                Some((ChangeClass::Widened, "need not be called as a task any more"))
            }
            (TaskSupport::Forbidden, TaskSupport::Forbidden)
            | (TaskSupport::Optional, TaskSupport::Optional)
            | (TaskSupport::Required, TaskSupport::Required) => None,
        }
    }
}
