//! A current tool rendered for people.
//!
//! Collects the facts of a tool as rows; `layout` prints them and leaves out those that are empty. Everything that a
//! source wrote is sanitised and truncated, because it goes to a terminal.

use serde_json::Value;
use serde_json::value::RawValue;
use toolcrib::catalog::ToolStatus;
use toolcrib::core::text::{sanitize, sanitize_truncated};
use toolcrib::core::tool::ToolNote;
use toolcrib::registry::ToolDetail;

use super::layout::ToolPage;
use crate::commands::sources::format_ago;

/// Renders the page of a tool; `full` adds the complete schemas and the definition.
pub(crate) fn render_tool(detail: &ToolDetail, full: bool) -> String {
    let view = &detail.view;
    // `original_name` differs from the listed name if characters had to be replaced.
    let original_name = sanitize(&view.original_name);
    // A name that is only prefixed needs no explanation.
    let renamed_from = if view.name.as_str().ends_with(&original_name) {
        String::new()
    } else {
        format!(", which calls it `{original_name}`")
    };
    let mut rows = vec![
        ("source", format!("{} ({}){renamed_from}", view.source, detail.kind)),
        ("policy", policy_text(detail)),
        ("hints", annotation_hints(view.annotations.as_deref()).join(", ")),
    ];
    rows.extend(request_rows(detail));
    rows.push(("tags", sanitize_truncated(&detail.tags.join(", "), 200)));
    rows.push(("calls", call_summary(detail)));
    let mut notes = detail.notes.clone();
    if view.notes.contains(&ToolNote::TextCleaned) && !full {
        notes.push("`--full` has the text as the source gave it".to_owned());
    }
    // The spec keeps the complete schema only if the listed one was pruned.
    let pruned = detail.execution_spec.as_ref().is_some_and(|spec| spec.input_schema.is_some());
    let page = ToolPage {
        name: view.name.as_str(),
        title: view.title.as_deref(),
        rows,
        description: &view.description,
        schema: if full { detail.input_schema() } else { &view.input_schema },
        has_schema: !view.notes.contains(&ToolNote::NoSchema),
        notes,
        is_pruned: pruned && !full,
        json_sections: if full { json_sections(detail).into() } else { Vec::new() },
    };
    page.render()
}

/// Complete schemas, and the execution spec or the definition as the source sent it.
fn json_sections(detail: &ToolDetail) -> [(&'static str, Option<String>); 3] {
    // For an API operation the execution spec says more than the generated definition.
    let last = match &detail.execution_spec {
        Some(spec) => ("Execution", serde_json::to_string(&spec.execution).ok()),
        None => ("As the source gave it", serde_json::to_string(&detail.definition).ok()),
    };
    [
        ("Input schema", Some(detail.input_schema().get().to_owned())),
        ("Output schema", detail.output_schema().map(|raw| raw.get().to_owned())),
        last,
    ]
}

/// Facts about the HTTP request or workflow that a call runs. A fact that a tool does not have is absent or empty.
fn request_rows(detail: &ToolDetail) -> Vec<(&'static str, String)> {
    let execution = &detail.execution;
    let mut rows = Vec::new();
    if let (Some(method), Some(path)) = (&execution.method, &execution.path) {
        rows.push(("request", sanitize_truncated(&format!("{method} {path}"), 200)));
        rows.push(("address", sanitize_truncated(execution.url_template.as_deref().unwrap_or_default(), 300)));
    }
    if execution.mode == "async_poll" {
        rows.push(("result", "asynchronous: polled until it is ready".to_owned()));
    }
    if execution.mode == "workflow" {
        rows.push(("steps", "several, run in sequence".to_owned()));
    }
    // Security alternatives of the OpenAPI document: one of them suffices, each may need several schemes.
    let alternatives = execution.security.iter().map(|schemes| {
        if schemes.is_empty() {
            "none".to_owned()
        } else {
            schemes.keys().map(String::as_str).collect::<Vec<_>>().join(" and ")
        }
    });
    rows.push(("auth", sanitize_truncated(&alternatives.collect::<Vec<_>>().join(", or "), 200)));
    if detail.is_deprecated() {
        rows.push(("status", "deprecated by its source".to_owned()));
    }
    rows
}

/// Policy and state; for a disabled tool the command that enables it.
fn policy_text(detail: &ToolDetail) -> String {
    let policy = detail.view.policy.as_str();
    match detail.view.state {
        ToolStatus::Active => format!("{policy}, {}", detail.view.state.as_str()),
        ToolStatus::Disabled => {
            format!("{policy}, but disabled; `toolcrib enable {}` enables it", detail.view.name)
        }
    }
}

/// Returns the MCP annotations that the source sent, in words. Absent annotations are not shown, although the protocol
/// has defaults for them. Values that are not booleans, such as `"yes"`, are ignored.
pub(super) fn annotation_hints(annotations: Option<&RawValue>) -> Vec<&'static str> {
    let annotations: Value = annotations.and_then(|raw| serde_json::from_str(raw.get()).ok()).unwrap_or_default();
    let value = |name: &str| annotations.get(name).and_then(Value::as_bool);
    let hints = [
        (value("readOnlyHint"), "read-only", "not read-only"),
        (value("destructiveHint"), "destructive", "not destructive"),
        (value("idempotentHint"), "idempotent", "not idempotent"),
        (value("openWorldHint"), "open world", "closed world"),
    ];
    hints.into_iter().filter_map(|(value, yes, no)| value.map(|value| if value { yes } else { no })).collect()
}

/// Number of calls and failures, with the time of the last call and the last error.
fn call_summary(detail: &ToolDetail) -> String {
    let Some(last) = detail.last_called else { return String::new() };
    let mut text = format!("{}, {} failed, the last {}", detail.calls, detail.errors, format_ago(last));
    if let Some(failure) = &detail.last_error {
        text.push_str(&format!("; last error: {}", sanitize_truncated(&failure.message, 200)));
    }
    text
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use serde_json::json;
    use serde_json::value::to_raw_value;
    use toolcrib::config::Config;
    use toolcrib::{Registry, RegistryOptions, SourceId};

    use super::*;

    #[tokio::test]
    async fn an_api_operation_shows_its_request() {
        let text = "sources: { shop: { openapi: shop.yaml } }";
        let config = Config::read(text, "toolcrib.yaml", Path::new("/p")).unwrap();
        let registry = Registry::open(config, RegistryOptions::default()).await.unwrap();
        let needed = json!({ "scheme": "token", "kind": "bearer" });
        let operation = json!({
            "mode": "async_poll",
            "operation": { "method": "POST", "server": "https://x", "path": "/reports", "security": [[needed], []] },
            "poll": { "url": "/r", "status": "/s", "done": ["d"] },
        });
        let whole = json!({ "type": "object", "properties": { "deep": { "type": "string" } } });
        let backing = json!({
            "execution": operation, "tags": ["reports"], "deprecated": true, "input_schema": whole,
            "output_schema": { "title": "a report" },
        });
        let tool = json!({
            "name": "report", "description": "Reports", "inputSchema": { "type": "object" },
            "x-toolcrib-backing": backing,
        });
        let id = SourceId::parse("shop").unwrap();
        registry.sources().record_tools(&id, vec![to_raw_value(&tool).unwrap()]).await.unwrap();
        let detail = registry.tool_detail("shop__report").unwrap();
        registry.close().await;
        let expected = "shop__report\n  source    shop (openapi)\n  policy    allow, active\n  request   POST /reports\n  \
                        address   https://x/reports\n  result    asynchronous: polled until it is ready\n  \
                        auth      token, or none\n  status    deprecated by its source\n  \
                        tags      reports\n\n  Reports\n\n  Arguments\n    none\n\n  \
                        note: deeply nested parts are omitted here; `--full` shows them\n";
        assert_eq!(console::strip_ansi_codes(&render_tool(&detail, false)), expected);
        let full = render_tool(&detail, true);
        for expected_part in ["deep  string", "Output schema", "a report", "Execution", "\"status\": \"/s\""] {
            assert!(full.contains(expected_part), "{expected_part}\n{full}");
        }
        assert!(!full.contains("omitted here"), "{full}");
    }
}
