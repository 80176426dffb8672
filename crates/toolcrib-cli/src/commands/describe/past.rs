//! A tool as it was at some time, from the store; nobody is contacted.

use serde_json::Value;
use serde_json::value::to_raw_value;
use toolcrib::clock::Clock;
use toolcrib::core::ResultExt;
use toolcrib::core::text::{shown, shown_short};
use toolcrib::core::time::When;
use toolcrib::registry::PastTool;
use toolcrib::{Code, Result};

use super::as_json;
use super::listed::{listed, wrapped};
use crate::arguments::Common;
use crate::desk::Desk;
use crate::exit::Done;
use crate::{output, paint};

pub(super) async fn describe(common: &Common, names: &[String], when: When) -> Result<Done> {
    let desk = Desk::look(common).await?;
    let at = when.as_of(Clock::system().now());
    let mut found: Vec<(&str, Result<PastTool>)> = Vec::new();
    for name in names {
        found.push((name, desk.registry.tool_at(name, at).await));
    }
    desk.close().await;
    if common.json && found.iter().all(|(_, found)| found.is_err()) {
        let first = found.into_iter().find_map(|(_, found)| found.err());
        return first.map_or(Ok(Done::Well), Err);
    }
    if common.json {
        return as_json(found, |tool| to_raw_value(tool).context(Code::Internal, "write a tool"));
    }
    let texts: Vec<String> = found.iter().filter_map(|(_, found)| found.as_ref().ok()).map(readable).collect();
    if !texts.is_empty() {
        output::line(&texts.join("\n"))?;
    }
    let mut done = Done::Well;
    for error in found.iter().filter_map(|(_, found)| found.as_ref().err()) {
        output::complain(&format!("error: {}", error.message));
        done = Done::Failed;
    }
    Ok(done)
}

fn readable(tool: &PastTool) -> String {
    let mut text = paint::bold(tool.name.as_str());
    if let Some(title) = &tool.title {
        text.push_str(&format!(" — {}", shown_short(title, 120)));
    }
    text.push_str(&format!("\n  {}{}, as it was at {}\n", paint::dim("source    "), tool.source, tool.at));
    text.push_str(&format!("  {}{}\n\n", paint::dim("so since  "), tool.updated_at));
    for line in shown(&tool.description).lines().flat_map(|line| wrapped(line, 2)) {
        text.push_str(format!("  {line}").trim_end());
        text.push('\n');
    }
    let schema: Value = serde_json::from_str(tool.input_schema.get()).unwrap_or_default();
    text.push_str(&format!("\n  {}\n{}", paint::bold("Arguments"), listed(&schema, false)));
    text
}
