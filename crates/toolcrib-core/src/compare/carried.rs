//! How a call is carried out: the request of an operation, and whether a call may, or must, become a task.

use serde_json::Value;

use super::{Class, Findings, canonical};
use crate::execution::{Backing, Execution};
use crate::text::shown_short;
use crate::tool::Tool;

pub(super) fn compare(old: Option<&Backing>, new: Option<&Backing>, findings: &mut Findings) {
    let (Some(old), Some(new)) = (old, new) else {
        if old.is_some() || new.is_some() {
            findings.add(Class::Execution, || "how it is carried out changed".to_owned());
        }
        return;
    };
    if old.execution != new.execution {
        findings.add(Class::Execution, || carried_out(&old.execution, &new.execution));
    }
    match (old.deprecated, new.deprecated) {
        (false, true) => findings.add(Class::Other, || "is deprecated by its source now".to_owned()),
        (true, false) => findings.add(Class::Other, || "is no longer deprecated by its source".to_owned()),
        (true, true) | (false, false) => {}
    }
    if old.tags != new.tags {
        findings.add(Class::Other, || "its tags changed".to_owned());
    }
}

/// Addresses are not told: a part of one may be confidential.
fn carried_out(old: &Execution, new: &Execution) -> String {
    let (Some(old), Some(new)) = (old.operation(), new.operation()) else {
        return "how it is carried out changed".to_owned();
    };
    if (&old.method, &old.path) != (&new.method, &new.path) {
        let line = |method: &str, path: &str| shown_short(&format!("{method} {path}"), 80);
        return format!("its request: `{}` became `{}`", line(&old.method, &old.path), line(&new.method, &new.path));
    }
    match old.server == new.server {
        false => "its server changed".to_owned(),
        true => "how its request is made changed".to_owned(),
    }
}

/// The field of a tool under which MCP has this.
pub(crate) const EXECUTION: &str = "execution";

/// Whether a call may, or must, become a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tasks {
    Forbidden,
    Optional,
    Required,
}

pub(super) fn compare_tasks(old: &Tool, new: &Tool, findings: &mut Findings) {
    let (before, after) = (old.extra.get(EXECUTION), new.extra.get(EXECUTION));
    if canonical(before) == canonical(after) {
        return;
    }
    let (class, note) = Tasks::of(old).became(Tasks::of(new)).unwrap_or((Class::Other, "its `execution` changed"));
    findings.add(class, || note.to_owned());
}

impl Tasks {
    pub(crate) fn of(tool: &Tool) -> Tasks {
        let execution: Value =
            tool.extra.get(EXECUTION).and_then(|raw| serde_json::from_str(raw.get()).ok()).unwrap_or_default();
        Tasks::named(execution.get("taskSupport").and_then(Value::as_str))
    }

    /// As the protocol has it: forbidden, where nothing is said.
    pub(crate) fn named(name: Option<&str>) -> Tasks {
        match name {
            Some("required") => Tasks::Required,
            Some("optional") => Tasks::Optional,
            Some(_) | None => Tasks::Forbidden,
        }
    }

    pub(crate) fn name(self) -> Option<&'static str> {
        match self {
            Tasks::Forbidden => None,
            Tasks::Optional => Some("optional"),
            Tasks::Required => Some("required"),
        }
    }

    pub(super) fn became(self, new: Tasks) -> Option<(Class, &'static str)> {
        match (self, new) {
            (Tasks::Forbidden | Tasks::Optional, Tasks::Required) => {
                Some((Class::Breaking, "must be called as a task now"))
            }
            (Tasks::Required, Tasks::Forbidden) => Some((Class::Breaking, "can no longer be called as a task")),
            (Tasks::Optional, Tasks::Forbidden) => Some((Class::Narrowed, "can no longer be called as a task")),
            (Tasks::Forbidden, Tasks::Optional) => Some((Class::Widened, "may be called as a task now")),
            (Tasks::Required, Tasks::Optional) => Some((Class::Widened, "need not be called as a task any more")),
            (Tasks::Forbidden, Tasks::Forbidden)
            | (Tasks::Optional, Tasks::Optional)
            | (Tasks::Required, Tasks::Required) => None,
        }
    }
}
