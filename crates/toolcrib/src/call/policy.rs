//! Refuses calls by policy: of disabled tools, and of tools whose rules deny the call or demand consent.

use toolcrib_catalog::{ToolRef, ToolStatus};
use toolcrib_core::policy::Verdict;
use toolcrib_core::text::sanitize_truncated;
use toolcrib_core::{Code, Error, Result};

/// Rejects a disabled tool. It stays listed for administrators. Fails with `TOOL_NOT_IMPLEMENTED`: for an agent, a
/// disabled tool is as absent as an unknown one.
pub(super) fn check_enabled(tool: &ToolRef<'_>) -> Result<()> {
    if tool.status() == ToolStatus::Disabled {
        let name = tool.name();
        let error = Error::new(Code::ToolNotImplemented, format!("`{name}` is disabled"));
        let route = format!("POST /api/tools/{name}/enable");
        return Err(error.with_next_step(&format!("toolcrib enable {name}"), &route, "enables it"));
    }
    Ok(())
}

/// Applies the policy's verdict. `consent` is the confirmation that `Ask` demands. The error names the rule that
/// decided, because the most specific of several matching rules applies and the strictest of several files.
pub(super) fn check_policy(tool: &ToolRef<'_>, consent: bool) -> Result<()> {
    let name = tool.name();
    match tool.verdict() {
        Verdict::Allow => Ok(()),
        Verdict::Ask if consent => Ok(()),
        Verdict::Ask => {
            let reason = describe_rule(tool);
            let message = format!("`{name}` needs consent before each call ({reason})");
            let error = Error::new(Code::Forbidden, message);
            Err(error.with_next_step("toolcrib call --yes", "\"yes\": true", "gives it"))
        }
        Verdict::Deny => Err(denied_error(tool)),
        // `find_tool` has refused hidden tools already; the same answer here must not reveal that the tool exists.
        Verdict::Hide => Err(Error::new(Code::ToolNotImplemented, format!("no tool named `{name}`"))),
    }
}

/// Returns the error for calling or describing a denied tool.
pub(crate) fn denied_error(tool: &ToolRef<'_>) -> Error {
    let (name, source, reason) = (tool.name(), tool.source(), describe_rule(tool));
    let message = format!("`{name}` is denied ({reason}); to allow it, change the rules under `tools` of `{source}`");
    Error::new(Code::Forbidden, message)
}

/// Describes why a tool has its verdict: ``rule `delete_*: deny` ``, spelled as in the configuration. Without a
/// matching rule it is the default of a built-in tool.
fn describe_rule(tool: &ToolRef<'_>) -> String {
    match tool.deciding_rule() {
        Some(rule) => format!("rule `{}: {}`", sanitize_truncated(&rule.glob, 80), rule.verdict.as_str()),
        None => "its default".to_owned(),
    }
}
