//! A tool as it was at some time, from the store; nobody is contacted.

use serde_json::Value;
use toolcrib::Result;
use toolcrib::clock::Clock;
use toolcrib::core::text::{shown, shown_short};
use toolcrib::core::time::When;
use toolcrib::registry::PastTool;

use super::listed::{listed, wrapped};
use crate::arguments::Common;
use crate::desk::Desk;
use crate::exit::Done;
use crate::{output, paint};

pub(super) async fn describe(common: &Common, names: &[String], when: When) -> Result<Done> {
    let desk = Desk::look(common).await?;
    let at = when.as_of(Clock::system().now());
    let mut found = Vec::new();
    for name in names {
        found.push(desk.registry.tool_at(name, at).await);
    }
    desk.close().await;
    if common.json && found.len() == 1 {
        let tool = found.pop().transpose()?;
        output::json(&tool)?;
        return Ok(Done::Well);
    }
    let (mut tools, mut done) = (Vec::new(), Done::Well);
    for found in found {
        match found {
            Ok(tool) => tools.push(tool),
            Err(error) => {
                output::complain(&format!("error: {}", error.message));
                done = Done::Failed;
            }
        }
    }
    match common.json {
        true => output::json(&serde_json::json!({ "tools": tools }))?,
        false => output::line(&tools.iter().map(readable).collect::<Vec<_>>().join("\n"))?,
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
