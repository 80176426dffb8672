//! The page that `describe` prints for a tool, as it is or as it was.
//!
//! A past tool has no policy and no counts: only the tool list has a history. Everything that a source wrote is
//! sanitised and truncated, because it goes to a terminal.

use serde_json::Value;
use toolcrib::catalog::ToolStatus;
use toolcrib::core::Timestamp;
use toolcrib::core::json::parse_exact;
use toolcrib::core::policy::Verdict;
use toolcrib::core::text::{sanitize, sanitize_truncated};
use toolcrib::core::tool::{TaskMode, ToolNote};
use toolcrib::registry::{ExecutionView, RemovedTool, ToolView};

use super::arguments::{render_arguments, wrap_line};
use crate::color;
use crate::commands::sources::format_ago;
use crate::pretty_json::pretty_print;

/// Labelled facts, one per line; those with an empty value are left out.
type Rows = Vec<(&'static str, String)>;

/// Renders the page of a tool; `full` adds the complete schemas and the definition.
pub(crate) fn render_tool(view: &ToolView, full: bool) -> String {
    let listing = &view.tool.listing;
    // Name and title.
    let mut text = color::bold(view.name.as_str());
    if let Some(title) = &listing.title {
        text.push_str(&format!(" — {}", sanitize_truncated(title, 120)));
    }
    text.push('\n');
    // Facts, labels padded to ten columns.
    let rows = match view.at {
        Some(at) => past_rows(view, at),
        None => present_rows(view),
    };
    if let Some(removed_at) = view.removed_at {
        text.push_str(&format!(
            "  removed at {removed_at}: `{}` no longer offers it; this is what it was\n",
            view.source
        ));
    }
    for (label, value) in rows.iter().filter(|(_, value)| !value.is_empty()) {
        text.push_str(&format!("  {}{value}\n", color::dim(&format!("{label:<10}"))));
    }
    // Description, wrapped.
    let description: Vec<String> =
        sanitize(&listing.description).lines().map(|line| wrap_line(line, 2).join("\n")).collect();
    text.push_str(&format!("\n{}\n", indent(&description.join("\n"), "  ")));
    // Arguments, from the schema.
    let schema = if full { view.input_schema() } else { &listing.input_schema };
    let schema: Value = parse_exact(schema.get()).unwrap_or_default();
    text.push_str(&format!("\n  {}\n", color::bold("Arguments")));
    text.push_str(&render_arguments(&schema, view.tool.notes.contains(&ToolNote::NoSchema)));
    let notes: Vec<String> = page_notes(view, full).iter().map(|note| format!("  note: {note}\n")).collect();
    if !notes.is_empty() {
        text.push_str(&format!("\n{}", notes.concat()));
    }
    let sections = if full { json_sections(view).into() } else { Vec::new() };
    for (title, raw) in sections {
        let raw = raw.as_ref().map_or_else(|| "none".to_owned(), |raw| sanitize(&pretty_print(raw)));
        text.push_str(&format!("\n  {}\n{}\n", color::bold(title), indent(&raw, "    ")));
    }
    text
}

/// Renders what is known of a removed tool whose definition is lost.
pub(super) fn render_lost_tool(tool: &RemovedTool) -> String {
    format!(
        "{}\n  removed at {}: `{}` no longer offers it, and its last definition cannot be read\n",
        color::bold(tool.name.as_str()),
        tool.removed_at(),
        tool.source
    )
}

/// Remarks on the tool, and on what the page leaves out without `full`.
fn page_notes(view: &ToolView, full: bool) -> Vec<String> {
    let mut notes = view.notes();
    if !full && view.at.is_none() && view.tool.notes.contains(&ToolNote::TextCleaned) {
        notes.push("`--full` has the text as the source gave it".to_owned());
    }
    if !full && view.is_pruned() {
        notes.push("deeply nested parts are omitted here; `--full` shows them".to_owned());
    }
    notes
}

/// Complete schemas, and the execution spec or the definition as the source sent it; `None` is shown as "none".
fn json_sections(view: &ToolView) -> [(&'static str, Option<String>); 3] {
    let last = match &view.execution_spec {
        // For an API operation the execution spec says more than the generated definition.
        Some(spec) if view.at.is_none() => ("Execution", serde_json::to_string(&spec.execution).ok()),
        Some(_) | None => ("As the source gave it", serde_json::to_string(&view.tool.to_offered_fields()).ok()),
    };
    [
        ("Input schema", Some(view.input_schema().get().to_owned())),
        ("Output schema", view.output_schema().map(|raw| raw.get().to_owned())),
        last,
    ]
}

/// Facts about a tool at a time in the past.
fn past_rows(view: &ToolView, at: Timestamp) -> Rows {
    vec![
        ("source", format!("{}, as it was at {at}", view.source)),
        ("since", view.history.updated_at.to_string()),
        ("hints", annotation_hints(view)),
        ("request", request_line(&view.execution())),
    ]
}

/// Facts about a current tool.
fn present_rows(view: &ToolView) -> Rows {
    // The original name differs from the listed name if characters had to be replaced.
    let original_name = sanitize(&view.tool.name);
    // A name that is only prefixed needs no explanation.
    let renamed_from = if view.name.as_str().ends_with(&original_name) {
        String::new()
    } else {
        format!(", which calls it `{original_name}`")
    };
    let execution = view.execution();
    let mode_row = match execution.mode {
        "async_poll" => ("result", "asynchronous: polled until it is ready".to_owned()),
        "workflow" => ("steps", "several, run in sequence".to_owned()),
        _ => ("", String::new()),
    };
    // Security alternatives of the OpenAPI document: one of them suffices, each may need several schemes.
    let alternatives = execution.security.iter().map(|schemes| {
        if schemes.is_empty() {
            "none".to_owned()
        } else {
            schemes.keys().map(String::as_str).collect::<Vec<_>>().join(" and ")
        }
    });
    let auth = alternatives.collect::<Vec<_>>().join(", or ");
    let status = if view.is_deprecated() { "deprecated by its source" } else { "" };
    vec![
        ("source", format!("{} ({}){renamed_from}", view.source, view.kind)),
        ("policy", policy_text(view)),
        ("hints", annotation_hints(view)),
        ("request", request_line(&execution)),
        ("address", sanitize_truncated(execution.url_template.as_deref().unwrap_or_default(), 300)),
        ("query", sanitize_truncated(&query_line(&execution), 300)),
        ("headers", sanitize_truncated(&header_lines(&execution), 1_000)),
        ("body", sanitize_truncated(&body_line(&execution), 300)),
        mode_row,
        ("task", task_text(&execution)),
        ("auth", sanitize_truncated(&auth, 200)),
        ("problem", sanitize_truncated(&auth_error(&execution), 300)),
        ("status", status.to_owned()),
        ("tags", sanitize_truncated(&view.tags().join(", "), 200)),
        ("calls", call_summary(view)),
    ]
}

/// Returns method and path of the request that a call sends; empty if it sends none.
fn request_line(execution: &ExecutionView) -> String {
    let request = execution.method.as_ref().zip(execution.path.as_ref());
    request.map(|(method, path)| sanitize_truncated(&format!("{method} {path}"), 200)).unwrap_or_default()
}

/// Whether the server runs the tool as a task; empty if it does not.
fn task_text(execution: &ExecutionView) -> String {
    match execution.task_support {
        Some(TaskMode::Required) => "required: called as a task, and waited for".to_owned(),
        Some(TaskMode::Optional) => "optional: called without one".to_owned(),
        Some(TaskMode::Forbidden) | None => String::new(),
    }
}

/// Returns the parameters that a call adds to the query besides its arguments: credentials, as references.
fn query_line(execution: &ExecutionView) -> String {
    let query = execution.request.iter().flat_map(|request| &request.query);
    let is_argument = |value: &str| value.starts_with('{') && value.ends_with('}');
    let parameters = query.filter_map(|(name, value)| Some((name, value.as_str()?)));
    let parameters = parameters.filter(|(_, value)| !is_argument(value));
    parameters.map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join("&")
}

/// Returns why no credentials can be sent; empty if there is no reason.
fn auth_error(execution: &ExecutionView) -> String {
    execution.request.as_ref().and_then(|request| request.auth_error.clone()).unwrap_or_default()
}

/// Returns the headers of the request that a call sends, with references instead of credentials.
fn header_lines(execution: &ExecutionView) -> String {
    let headers = execution.request.iter().flat_map(|request| &request.headers);
    let lines: Vec<String> =
        headers.map(|(name, value)| format!("{name}: {}", value.as_str().unwrap_or_default())).collect();
    lines.join("; ")
}

/// Returns what the body of the request contains.
fn body_line(execution: &ExecutionView) -> String {
    let body = execution.request.as_ref().and_then(|request| request.body.as_ref());
    body.map(|body| {
        let types: Vec<&str> =
            std::iter::once(&body.content_type).chain(&body.alternatives).map(String::as_str).collect();
        format!("{} ({})", body.template, types.join(", or "))
    })
    .unwrap_or_default()
}

/// Policy and state; for a disabled tool the command that enables it.
fn policy_text(view: &ToolView) -> String {
    let policy = view.policy.map_or("", Verdict::as_str);
    if view.removed_at.is_some() {
        return format!("{policy}, deprecated");
    }
    match view.state() {
        ToolStatus::Active => format!("{policy}, {}", view.state().as_str()),
        ToolStatus::Disabled => format!("{policy}, but disabled; `toolcrib enable {}` enables it", view.name),
    }
}

/// Returns the MCP annotations that the source sent, in words. Absent annotations are not shown, although the protocol
/// has defaults for them. Values that are not booleans, such as `"yes"`, are ignored.
fn annotation_hints(view: &ToolView) -> String {
    let annotations = view.tool.listing.annotations.as_ref();
    let annotations: Value = annotations.and_then(|raw| serde_json::from_str(raw.get()).ok()).unwrap_or_default();
    let value = |name: &str| annotations.get(name).and_then(Value::as_bool);
    let hints = [
        (value("readOnlyHint"), "read-only", "not read-only"),
        (value("destructiveHint"), "destructive", "not destructive"),
        (value("idempotentHint"), "idempotent", "not idempotent"),
        (value("openWorldHint"), "open world", "closed world"),
    ];
    let words = hints.into_iter().filter_map(|(value, yes, no)| value.map(|value| if value { yes } else { no }));
    words.collect::<Vec<_>>().join(", ")
}

/// Number of calls and failures, with the time of the last call and the last error; empty before the first call.
fn call_summary(view: &ToolView) -> String {
    let Some(usage) = &view.usage else { return String::new() };
    let Some(last) = usage.last_called else { return String::new() };
    let mut text = format!("{}, {} failed, the last {}", usage.calls, usage.errors, format_ago(last));
    if let Some(failure) = &usage.last_error {
        text.push_str(&format!("; last error: {}", sanitize_truncated(&failure.message, 200)));
    }
    text
}

/// Indents every line; drops trailing spaces.
pub(super) fn indent(text: &str, by: &str) -> String {
    let lines: Vec<String> = text.lines().map(|line| format!("{by}{line}").trim_end().to_owned()).collect();
    lines.join("\n")
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
    async fn an_api_operation_shows_keys_in_the_query_and_missing_ones() {
        let text = "sources: { shop: { openapi: shop.yaml, auth: { api_key: '${env:KEY}' } } }";
        let config = Config::read(text, "toolcrib.yaml", Path::new("/p")).unwrap();
        let registry = Registry::open(config, RegistryOptions::default()).await.unwrap();
        let key = |name: &str| json!({ "scheme": name, "kind": { "api_key": { "name": name, "place": "query" } } });
        let tool = |name: &str, security: serde_json::Value| {
            let backing = json!({ "execution": { "mode": "sync_http", "method": "GET", "server": "https://x",
                "path": "/r", "security": security } });
            let tool = json!({ "name": name, "inputSchema": { "type": "object" }, "x-toolcrib-backing": backing });
            to_raw_value(&tool).unwrap()
        };
        let tools = vec![tool("one", json!([[key("a")], [key("b")]])), tool("both", json!([[key("a"), key("b")]]))];
        let id = SourceId::parse("shop").unwrap();
        registry.sources().record_tools(&id, tools).await.unwrap();
        let page = |name: &str| render_tool(&registry.tool(name).unwrap(), false);
        let (one, both) = (page("shop__one"), page("shop__both"));
        registry.close().await;
        assert!(one.contains("query     a=${env:KEY}\n") && !one.contains("problem"), "{one}");
        assert!(both.contains("problem   the document names several security schemes for `GET /r`"), "{both}");
    }

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
        let view = registry.tool("shop__report").unwrap();
        registry.close().await;
        let expected = "shop__report\n  source    shop (openapi)\n  policy    allow, active\n  request   POST /reports\n  \
                        address   https://x/reports\n  headers   Accept: application/json, */*;q=0.1; \
                        Accept-Encoding: gzip, deflate; User-Agent: toolcrib/VERSION\n  result    asynchronous: polled until it is ready\n  \
                        auth      token, or none\n  status    deprecated by its source\n  \
                        tags      reports\n\n  Reports\n\n  Arguments\n    none\n\n  \
                        note: deeply nested parts are omitted here; `--full` shows them\n";
        let expected = expected.replace("VERSION", env!("CARGO_PKG_VERSION"));
        assert_eq!(console::strip_ansi_codes(&render_tool(&view, false)), expected);
        let full = render_tool(&view, true);
        for expected_part in ["deep  string", "Output schema", "a report", "Execution", "\"status\": \"/s\""] {
            assert!(full.contains(expected_part), "{expected_part}\n{full}");
        }
        assert!(!full.contains("omitted here"), "{full}");
    }
}
