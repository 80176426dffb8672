//! A tool as it was at some time, from the store; nobody is contacted.

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

pub(super) async fn describe_at(
    common: &CommonArguments,
    arguments: &Arguments,
    when: TimeSpec,
) -> Result<CommandOutcome> {
    let session = CliSession::open_read_only(common).await?;
    let at = when.resolve(Clock::system().now());
    let mut found: Vec<(&str, Result<HistoricalTool>)> = Vec::new();
    for name in &arguments.names {
        found.push((name, session.registry.tool_at(name, at).await));
    }
    session.close().await;
    // A time that nothing can be said of is wrong for all names.
    let is_usage = |error: &Error| error.code == Code::BadRequest;
    if found.iter().any(|(_, found)| found.as_ref().is_err_and(is_usage)) {
        return first_error(found);
    }
    let full = arguments.full;
    print_tools(common, found, |tool| tool_json(tool, full), |tool| render_historical_tool(tool, full))
}

fn tool_json(tool: &HistoricalTool, full: bool) -> Result<Box<RawValue>> {
    let object = to_raw_value(tool).context(Code::Internal, "write a tool")?;
    let whole = tool.execution_spec.as_ref().and_then(|backing| backing.input_schema.clone());
    let Some(whole) = whole.filter(|_| full) else { return Ok(object) };
    let mut fields: RawFields = serde_json::from_str(object.get()).context(Code::Internal, "write a tool")?;
    fields.insert("input_schema", whole);
    to_raw_value(&fields).context(Code::Internal, "write a tool")
}

fn render_historical_tool(tool: &HistoricalTool, full: bool) -> String {
    let behind = tool.execution_spec.as_ref();
    let whole = behind.and_then(|backing| backing.input_schema.as_deref());
    let answer = tool.output_schema.as_deref().or_else(|| behind.and_then(|backing| backing.output_schema.as_deref()));
    let request = behind.and_then(|backing| backing.execution.operation());
    let request = request.map(|operation| sanitize_truncated(&format!("{} {}", operation.method, operation.path), 200));
    let complete = || {
        vec![
            ("Input schema", Some(whole.unwrap_or(&tool.input_schema).get().to_owned())),
            ("Output schema", answer.map(|raw| raw.get().to_owned())),
            ("As the source gave it", Some(tool.definition.get().to_owned())),
        ]
    };
    let page = ToolPage {
        name: tool.name.as_str(),
        title: tool.title.as_deref(),
        rows: vec![
            ("source", format!("{}, as it was at {}", tool.source, tool.at)),
            ("so since", tool.updated_at.to_string()),
            ("hints", annotation_hints(tool.annotations.as_deref()).join(", ")),
            ("request", request.unwrap_or_default()),
        ],
        description: &tool.description,
        schema: if full { whole.unwrap_or(&tool.input_schema) } else { &tool.input_schema },
        has_schema: !tool.notes.contains(&ToolNote::NoSchema),
        notes: tool.notes.iter().map(|note| note.text().to_owned()).collect(),
        is_pruned: whole.is_some() && !full,
        json_sections: if full { complete() } else { Vec::new() },
    };
    page.render()
}
