//! `describe --at`: a tool as it was at a time in the past, read from the store.
//!
//! Reads the manifest that was current at that time. Neither policy, state nor call counts are shown, because only the
//! tool list has a history here.

use serde_json::value::{RawValue, to_raw_value};
use toolcrib::clock::Clock;
use toolcrib::core::ResultExt;
use toolcrib::core::json::RawFields;
use toolcrib::core::text::sanitize_truncated;
use toolcrib::core::time::TimeSpec;
use toolcrib::core::tool::ToolNote;
use toolcrib::registry::HistoricalTool;
use toolcrib::{Code, Error, Result};

use super::human::annotation_hints;
use super::layout::ToolPage;
use super::{Arguments, first_error, print_tools};
use crate::arguments::CommonArguments;
use crate::exit::CommandOutcome;
use crate::session::CliSession;

/// Prints the named tools as they were at the time. A read-only session: nothing is discovered, and no store is
/// created.
pub(super) async fn describe_at(
    common: &CommonArguments,
    arguments: &Arguments,
    when: TimeSpec,
) -> Result<CommandOutcome> {
    let session = CliSession::open_read_only(common).await?;
    let at = when.resolve(Clock::system().now());
    let mut lookups: Vec<(&str, Result<HistoricalTool>)> = Vec::new();
    for name in &arguments.names {
        lookups.push((name, session.registry.history().tool_at(name, at).await));
    }
    session.close().await;
    // An invalid time (in the future, say) is an error of the command line, not of one name.
    let is_usage_error = |error: &Error| error.code == Code::BadRequest;
    if lookups.iter().any(|(_, result)| result.as_ref().is_err_and(is_usage_error)) {
        return first_error(lookups);
    }
    let full = arguments.full;
    print_tools(common, lookups, |tool| tool_json(tool, full), |tool| render_historical_tool(tool, full))
}

/// Returns the JSON of the tool; with `full` the complete input schema replaces a pruned one.
fn tool_json(tool: &HistoricalTool, full: bool) -> Result<Box<RawValue>> {
    let object = to_raw_value(tool).context(Code::Internal, "write a tool")?;
    let full_schema = tool.execution_spec.as_ref().and_then(|spec| spec.input_schema.clone());
    let Some(full_schema) = full_schema.filter(|_| full) else { return Ok(object) };
    let mut fields: RawFields = serde_json::from_str(object.get()).context(Code::Internal, "write a tool")?;
    fields.insert("input_schema", full_schema);
    to_raw_value(&fields).context(Code::Internal, "write a tool")
}

/// Renders the page of the tool, with the time that it shows.
fn render_historical_tool(tool: &HistoricalTool, full: bool) -> String {
    // An API operation keeps complete schemas in its execution spec.
    let spec = tool.execution_spec.as_ref();
    let full_schema = spec.and_then(|spec| spec.input_schema.as_deref());
    let output_schema = tool.output_schema.as_deref().or_else(|| spec.and_then(|spec| spec.output_schema.as_deref()));
    let request = spec.and_then(|spec| spec.execution.operation());
    let request = request.map(|operation| sanitize_truncated(&format!("{} {}", operation.method, operation.path), 200));
    let json_sections = || {
        vec![
            ("Input schema", Some(full_schema.unwrap_or(&tool.input_schema).get().to_owned())),
            ("Output schema", output_schema.map(|raw| raw.get().to_owned())),
            ("As the source gave it", Some(tool.definition.get().to_owned())),
        ]
    };
    let page = ToolPage {
        name: tool.name.as_str(),
        title: tool.title.as_deref(),
        rows: vec![
            ("source", format!("{}, as it was at {}", tool.source, tool.at)),
            ("since", tool.updated_at.to_string()),
            ("hints", annotation_hints(tool.annotations.as_deref()).join(", ")),
            ("request", request.unwrap_or_default()),
        ],
        description: &tool.description,
        schema: if full { full_schema.unwrap_or(&tool.input_schema) } else { &tool.input_schema },
        has_schema: !tool.notes.contains(&ToolNote::NoSchema),
        notes: tool.notes.iter().map(|note| note.text().to_owned()).collect(),
        is_pruned: full_schema.is_some() && !full,
        json_sections: if full { json_sections() } else { Vec::new() },
    };
    page.render()
}
