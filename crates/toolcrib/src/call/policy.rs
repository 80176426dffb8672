//! Refuses calls by policy: of disabled tools, and of tools whose rules deny the call or demand consent.

use toolcrib_catalog::{ToolRef, ToolStatus};
use toolcrib_core::access_rules::{AccessScope, ScopePolicy};
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

/// Applies the verdict on a tool. `consent` is the confirmation that `Ask` demands. The error names the rule or policy that
/// decided, because the most specific of several matching rules applies and the strictest of several files and policies.
pub(super) fn check_policy(tool: &ToolRef<'_>, scope: &AccessScope, consent: bool) -> Result<()> {
    let name = tool.name();
    match tool.verdict() {
        Verdict::Allow => Ok(()),
        Verdict::Ask if consent => Ok(()),
        Verdict::Ask => {
            let reason = describe_decision(tool, scope);
            let message = format!("`{name}` needs consent before each call ({reason})");
            let error = Error::new(Code::Forbidden, message);
            Err(error.with_next_step("toolcrib call --yes", "\"yes\": true", "gives it"))
        }
        Verdict::Deny => Err(denied_error(tool, scope)),
        // `find_tool` has refused hidden tools already; the same answer here must not reveal that the tool exists.
        Verdict::Hide => Err(Error::new(Code::ToolNotImplemented, format!("no tool named `{name}`"))),
    }
}

/// Returns the error for calling or describing a denied tool.
pub(crate) fn denied_error(tool: &ToolRef<'_>, scope: &AccessScope) -> Error {
    let (name, source, reason) = (tool.name(), tool.source(), describe_decision(tool, scope));
    let remedy = if tool.source_verdict() == Verdict::Deny {
        format!("change the rules under `tools` of `{source}`")
    } else {
        "change that policy".to_owned()
    };
    Error::new(Code::Forbidden, format!("`{name}` is denied ({reason}); to allow it, {remedy}"))
}

/// Describes why a tool has its verdict: ``rule `delete_*: deny` ``, spelled as in the configuration, or ``policy `x` ``.
/// Without a matching rule it is the default of a built-in tool.
fn describe_decision(tool: &ToolRef<'_>, scope: &AccessScope) -> String {
    let verdict = tool.verdict();
    if tool.source_verdict() == verdict {
        return match tool.deciding_rule() {
            Some(rule) => format!("rule `{}: {}`", sanitize_truncated(&rule.glob, 80), rule.verdict.as_str()),
            None => "its default".to_owned(),
        };
    }
    let decides = |policy: &&ScopePolicy| policy.verdict() == verdict && tool.with_facts(|tool| policy.matches(tool));
    let policy = scope.policies().iter().find(decides);
    policy.map_or_else(|| "a policy".to_owned(), |policy| format!("policy `{}`", policy.policy.name))
}
