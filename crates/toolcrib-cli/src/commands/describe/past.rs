//! A tool as it was at some time, from the store; nobody is contacted.

use serde_json::value::{RawValue, to_raw_value};
use toolcrib::clock::Clock;
use toolcrib::core::ResultExt;
use toolcrib::core::json::Fields;
use toolcrib::core::text::shown_short;
use toolcrib::core::time::When;
use toolcrib::core::tool::Note;
use toolcrib::registry::PastTool;
use toolcrib::{Code, Error, Result};

use super::page::Page;
use super::readable::hints;
use super::{Arguments, first_error, told};
use crate::arguments::Common;
use crate::desk::Desk;
use crate::exit::Done;

pub(super) async fn describe(common: &Common, arguments: &Arguments, when: When) -> Result<Done> {
    let desk = Desk::look(common).await?;
    let at = when.as_of(Clock::system().now());
    let mut found: Vec<(&str, Result<PastTool>)> = Vec::new();
    for name in &arguments.names {
        found.push((name, desk.registry.tool_at(name, at).await));
    }
    desk.close().await;
    // A time that nothing can be said of is wrong for all names.
    let is_usage = |error: &Error| error.code == Code::BadRequest;
    if found.iter().any(|(_, found)| found.as_ref().is_err_and(is_usage)) {
        return first_error(found);
    }
    let full = arguments.full;
    told(common, found, |tool| object(tool, full), |tool| readable(tool, full))
}

fn object(tool: &PastTool, full: bool) -> Result<Box<RawValue>> {
    let object = to_raw_value(tool).context(Code::Internal, "write a tool")?;
    let whole = tool.backing.as_ref().and_then(|backing| backing.input_schema.clone());
    let Some(whole) = whole.filter(|_| full) else { return Ok(object) };
    let mut fields: Fields = serde_json::from_str(object.get()).context(Code::Internal, "write a tool")?;
    fields.put("input_schema", whole);
    to_raw_value(&fields).context(Code::Internal, "write a tool")
}

fn readable(tool: &PastTool, full: bool) -> String {
    let behind = tool.backing.as_ref();
    let whole = behind.and_then(|backing| backing.input_schema.as_deref());
    let answer = tool.output_schema.as_deref().or_else(|| behind.and_then(|backing| backing.output_schema.as_deref()));
    let request = behind.and_then(|backing| backing.execution.operation());
    let request = request.map(|operation| shown_short(&format!("{} {}", operation.method, operation.path), 200));
    let complete = || {
        vec![
            ("Input schema", Some(whole.unwrap_or(&tool.input_schema).get().to_owned())),
            ("Output schema", answer.map(|raw| raw.get().to_owned())),
            ("As the source gave it", Some(tool.definition.get().to_owned())),
        ]
    };
    let page = Page {
        name: tool.name.as_str(),
        title: tool.title.as_deref(),
        rows: vec![
            ("source", format!("{}, as it was at {}", tool.source, tool.at)),
            ("so since", tool.updated_at.to_string()),
            ("hints", hints(tool.annotations.as_deref()).join(", ")),
            ("request", request.unwrap_or_default()),
        ],
        description: &tool.description,
        schema: if full { whole.unwrap_or(&tool.input_schema) } else { &tool.input_schema },
        has_schema: !tool.notes.contains(&Note::NoSchema),
        notes: tool.notes.iter().map(|note| note.text().to_owned()).collect(),
        is_pruned: whole.is_some() && !full,
        whole: if full { complete() } else { Vec::new() },
    };
    page.text()
}
