//! `toolcrib describe`: what a tool is, what it takes, and who may call it.

mod arguments;
mod historical;
mod human;
mod layout;
mod provider;

use clap::Args;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};
use toolcrib::core::json::RawFields;
use toolcrib::core::time::TimeSpec;
use toolcrib::core::tool::{ParsedToolName, parse_tool_name};
use toolcrib::core::{Error, ResultExt};
use toolcrib::registry::ToolDetail;
use toolcrib::{Code, Result};

use crate::arguments::CommonArguments;
use crate::discovery_wait::DiscoveryArguments;
use crate::exit::CommandOutcome;
use crate::output;
use crate::session::CliSession;

pub(crate) use human::render_tool;
use provider::{print_losses, print_provider_array, project_tools};

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
    at: Option<TimeSpec>,
    #[command(flatten)]
    discovery: DiscoveryArguments,
}

pub(crate) async fn run(common: &CommonArguments, arguments: Arguments) -> Result<CommandOutcome> {
    if let Some(when) = arguments.at {
        return historical::describe_at(common, &arguments, when).await;
    }
    let session = CliSession::open(common).await?;
    let mut found: Vec<(&str, Result<ToolDetail>)> = Vec::new();
    for name in &arguments.names {
        found.push((name, find_tool(&session, name, &arguments.discovery).await));
    }
    let formatted = match arguments.format.as_deref() {
        Some(format) => project_tools(&session, format, &found).map(Some),
        None => Ok(None),
    };
    session.close().await;
    match formatted? {
        Some(_) if common.json && found.iter().all(|(_, found)| found.is_err()) => return first_error(found),
        Some((format, tools)) if arguments.explain => print_losses(common, format, tools)?,
        Some((format, tools)) => print_provider_array(common, format, &tools)?,
        None => {
            return print_tools(
                common,
                found,
                |tool| tool_json(tool, arguments.full),
                |tool| render_tool(tool, arguments.full),
            );
        }
    }
    Ok(print_errors(&found))
}

async fn find_tool(session: &CliSession, name: &str, need: &DiscoveryArguments) -> Result<ToolDetail> {
    // A bare name that no list has may be of any source; one that names an unknown source is of none.
    let among = match session.registry.source_for_tool_name(name)? {
        Some(source) => Some(vec![source]),
        None if is_bare_name(name) => None,
        None => Some(Vec::new()),
    };
    let patience = if among.is_some() { need.wait_policy_for_all() } else { need.wait_policy() };
    session.ensure(need.required_freshness(), among.as_deref(), patience).await;
    session.registry.load_counts().await?;
    session.registry.tool_detail(name)
}

fn is_bare_name(name: &str) -> bool {
    matches!(parse_tool_name(name), Ok(ParsedToolName::Bare(_)))
}

/// Each tool that was found, one way or the other, and then what was not found.
fn print_tools<T>(
    common: &CommonArguments,
    found: Vec<(&str, Result<T>)>,
    object: impl Fn(&T) -> Result<Box<RawValue>>,
    readable: impl Fn(&T) -> String,
) -> Result<CommandOutcome> {
    if common.json {
        return print_json(found, object);
    }
    let texts: Vec<String> = found.iter().filter_map(|(_, found)| found.as_ref().ok()).map(readable).collect();
    if !texts.is_empty() {
        output::print_line(&texts.join("\n"))?;
    }
    Ok(print_errors(&found))
}

fn print_errors<T>(found: &[(&str, Result<T>)]) -> CommandOutcome {
    let mut done = CommandOutcome::Success;
    for error in found.iter().filter_map(|(_, found)| found.as_ref().err()) {
        output::print_stderr_line(&format!("error: {}", error.message));
        done = CommandOutcome::Failure;
    }
    done
}

/// One name gives its tool or its error; several give `tools`, and `errors` for those that are not there.
fn print_json<T>(
    found: Vec<(&str, Result<T>)>,
    object: impl Fn(&T) -> Result<Box<RawValue>>,
) -> Result<CommandOutcome> {
    if found.iter().all(|(_, found)| found.is_err()) {
        return first_error(found);
    }
    if let [(_, Ok(only))] = &found[..] {
        output::print_json(&object(only)?)?;
        return Ok(CommandOutcome::Success);
    }
    let mut tools = Vec::new();
    let mut errors = Vec::new();
    for (name, found) in &found {
        match found {
            Ok(detail) => tools.push(object(detail)?),
            Err(error) => errors.push(error_with_name(name, error)),
        }
    }
    #[derive(serde::Serialize)]
    struct DescribeResponse {
        tools: Vec<Box<RawValue>>,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        errors: Vec<Value>,
    }
    let done = if errors.is_empty() { CommandOutcome::Success } else { CommandOutcome::Failure };
    for error in &errors {
        output::print_stderr_line(&format!("error: {}", error["message"].as_str().unwrap_or_default()));
    }
    output::print_json(&DescribeResponse { tools, errors })?;
    Ok(done)
}

/// Where nothing was found, what is said of the first.
fn first_error<T>(found: Vec<(&str, Result<T>)>) -> Result<CommandOutcome> {
    found.into_iter().find_map(|(_, found)| found.err()).map_or(Ok(CommandOutcome::Success), Err)
}

fn error_with_name(name: &str, error: &Error) -> Value {
    let mut inside = error.envelope()["error"].take();
    inside["name"] = json!(name);
    inside
}

fn tool_json(detail: &ToolDetail, full: bool) -> Result<Box<RawValue>> {
    let object = detail.to_json()?;
    if !full {
        return Ok(object);
    }
    let mut fields: RawFields = serde_json::from_str(object.get()).context(Code::Internal, "write a tool")?;
    fields.insert("input_schema", detail.input_schema().to_owned());
    fields.insert("definition", to_raw_value(&detail.definition).context(Code::Internal, "write a tool")?);
    to_raw_value(&fields).context(Code::Internal, "write a tool")
}
