//! `toolcrib describe`: what a tool is, what it takes, and who may call it.

mod listed;
mod page;
mod past;
mod provided;
mod readable;

use clap::Args;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};
use toolcrib::core::json::Fields;
use toolcrib::core::time::When;
use toolcrib::core::tool::{Asked, parse_name};
use toolcrib::core::{Error, ResultExt};
use toolcrib::registry::ToolDetail;
use toolcrib::{Code, Result};

use crate::arguments::Common;
use crate::desk::Desk;
use crate::exit::Done;
use crate::output;
use crate::waiting::NeedArguments;

use provided::{explain, projected, provided};
pub(crate) use readable::readable;

/// Show what a tool is and which arguments it takes
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  toolcrib describe github__create_issue
  toolcrib describe github/create_issue files:read_file --json
  toolcrib describe create_issue --full
  toolcrib describe create_issue --format anthropic
  toolcrib describe create_issue --format gemini --explain
  toolcrib describe create_issue --at 7d")]
pub(crate) struct Arguments {
    /// `source__tool`, `source/tool`, `source:tool`, or the tool's own name when it is unique
    #[arg(value_name = "NAME", required = true)]
    names: Vec<String>,
    /// Add the complete schemas, and the definition as the source gave it
    #[arg(long)]
    full: bool,
    /// Print an array as that provider takes it
    #[arg(long, value_name = "FORMAT", value_parser = ["mcp", "anthropic", "openai", "openai-strict", "gemini"])]
    format: Option<String>,
    /// With `--format`: list every edit that loses something, instead of the tool
    #[arg(long, requires = "format")]
    explain: bool,
    /// As it was then: `2h`, `7d`, `2026-11-15`, or a time such as `2026-11-15T20:00:00Z`; contacts nobody
    #[arg(long, value_name = "TIME", conflicts_with_all = ["format", "cached", "fresh"])]
    at: Option<When>,
    #[command(flatten)]
    need: NeedArguments,
}

pub(crate) async fn run(common: &Common, arguments: Arguments) -> Result<Done> {
    if let Some(when) = arguments.at {
        return past::describe(common, &arguments, when).await;
    }
    let desk = Desk::open(common).await?;
    let mut found: Vec<(&str, Result<ToolDetail>)> = Vec::new();
    for name in &arguments.names {
        found.push((name, look_up(&desk, name, &arguments.need).await));
    }
    let formatted = match arguments.format.as_deref() {
        Some(format) => projected(&desk, format, &found).map(Some),
        None => Ok(None),
    };
    desk.close().await;
    match formatted? {
        Some(_) if common.json && found.iter().all(|(_, found)| found.is_err()) => return first_error(found),
        Some((format, tools)) if arguments.explain => explain(common, format, tools)?,
        Some((format, tools)) => provided(common, format, &tools)?,
        None => return told(common, found, |tool| object(tool, arguments.full), |tool| readable(tool, arguments.full)),
    }
    Ok(complained(&found))
}

async fn look_up(desk: &Desk, name: &str, need: &NeedArguments) -> Result<ToolDetail> {
    // A bare name that no list has may be of any source; one that names an unknown source is of none.
    let among = match desk.registry.source_of_name(name)? {
        Some(source) => Some(vec![source]),
        None if is_bare(name) => None,
        None => Some(Vec::new()),
    };
    let patience = if among.is_some() { need.patience_for_all() } else { need.patience() };
    desk.ensure(need.need(), among.as_deref(), patience).await;
    desk.registry.read_counts().await?;
    desk.registry.tool_detail(name)
}

fn is_bare(name: &str) -> bool {
    matches!(parse_name(name), Ok(Asked::Bare(_)))
}

/// Each tool that was found, one way or the other, and then what was not found.
fn told<T>(
    common: &Common,
    found: Vec<(&str, Result<T>)>,
    object: impl Fn(&T) -> Result<Box<RawValue>>,
    readable: impl Fn(&T) -> String,
) -> Result<Done> {
    if common.json {
        return as_json(found, object);
    }
    let texts: Vec<String> = found.iter().filter_map(|(_, found)| found.as_ref().ok()).map(readable).collect();
    if !texts.is_empty() {
        output::line(&texts.join("\n"))?;
    }
    Ok(complained(&found))
}

fn complained<T>(found: &[(&str, Result<T>)]) -> Done {
    let mut done = Done::Well;
    for error in found.iter().filter_map(|(_, found)| found.as_ref().err()) {
        output::complain(&format!("error: {}", error.message));
        done = Done::Failed;
    }
    done
}

/// One name gives its tool or its error; several give `tools`, and `errors` for those that are not there.
fn as_json<T>(found: Vec<(&str, Result<T>)>, object: impl Fn(&T) -> Result<Box<RawValue>>) -> Result<Done> {
    if found.iter().all(|(_, found)| found.is_err()) {
        return first_error(found);
    }
    if let [(_, Ok(only))] = &found[..] {
        output::json(&object(only)?)?;
        return Ok(Done::Well);
    }
    let (mut tools, mut errors) = (Vec::new(), Vec::new());
    for (name, found) in &found {
        match found {
            Ok(detail) => tools.push(object(detail)?),
            Err(error) => errors.push(named(name, error)),
        }
    }
    #[derive(serde::Serialize)]
    struct Several {
        tools: Vec<Box<RawValue>>,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        errors: Vec<Value>,
    }
    let done = if errors.is_empty() { Done::Well } else { Done::Failed };
    for error in &errors {
        output::complain(&format!("error: {}", error["message"].as_str().unwrap_or_default()));
    }
    output::json(&Several { tools, errors })?;
    Ok(done)
}

/// Where nothing was found, what is said of the first.
fn first_error<T>(found: Vec<(&str, Result<T>)>) -> Result<Done> {
    found.into_iter().find_map(|(_, found)| found.err()).map_or(Ok(Done::Well), Err)
}

fn named(name: &str, error: &Error) -> Value {
    let mut inside = error.envelope()["error"].take();
    inside["name"] = json!(name);
    inside
}

fn object(detail: &ToolDetail, full: bool) -> Result<Box<RawValue>> {
    let object = detail.json()?;
    if !full {
        return Ok(object);
    }
    let mut fields: Fields = serde_json::from_str(object.get()).context(Code::Internal, "write a tool")?;
    fields.put("input_schema", detail.input_schema().to_owned());
    fields.put("definition", to_raw_value(&detail.definition).context(Code::Internal, "write a tool")?);
    to_raw_value(&fields).context(Code::Internal, "write a tool")
}
