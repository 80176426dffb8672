//! `toolcrib describe`: prints a tool's description, arguments, policy and statistics; with `--format` its definition
//! for a model provider, with `--at` its state in the past. The id of a source prints the page of that source.
//!
//! Three outputs share the lookup: a page for people (`page`, `arguments`), JSON, and the array of a provider
//! (`provider`). Several names may be given; each that fails is reported, and the others are printed all the same.

mod arguments;
mod page;
mod provider;
mod source;

use std::time::Duration;

use clap::Args;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};
use toolcrib::clock::Clock;
use toolcrib::core::json::RawFields;
use toolcrib::core::principal::ViewNarrowing;
use toolcrib::core::time::TimeSpec;
use toolcrib::core::tool::{ParsedToolName, parse_tool_name};
use toolcrib::core::{Error, ResultExt};
use toolcrib::registry::{FoundTool, SourceView};
use toolcrib::{Code, Principal, Result, SourceId};

use crate::arguments::CommonArguments;
use crate::discovery_wait::DiscoveryArguments;
use crate::exit::CommandOutcome;
use crate::output;
use crate::preview::PreviewArguments;
use crate::session::CliSession;

pub(crate) use page::render_tool;
use provider::{print_losses, print_provider_array, project_tools};
use source::{find_source_id, render_source};

/// Time since the tools of a source are known for its prompts and resources, before its page is printed.
const SOURCE_LISTS_TIMEOUT: Duration = Duration::from_secs(5);

/// Show what a tool is and which arguments it takes, or what a source has
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  toolcrib describe github__create_issue
  toolcrib describe github/create_issue files:read_file --json
  toolcrib describe create_issue --full
  toolcrib describe create_issue --format anthropic
  toolcrib describe create_issue --format gemini --explain
  toolcrib describe create_issue --at 7d
  toolcrib describe create_issue --token ci      as the holder of the token `ci` sees it
  toolcrib describe github")]
pub(crate) struct Arguments {
    /// `source__tool`, `source/tool`, `source:tool`, the tool's own name when it is unique, or the id of a source
    #[arg(value_name = "NAME", required = true)]
    names: Vec<String>,
    /// Add the complete schemas, and the definition as the source gave it
    #[arg(long)]
    full: bool,
    /// Print the array that this model provider expects
    #[arg(long, value_name = "FORMAT", value_parser = ["mcp", "anthropic", "openai", "openai-strict", "gemini"])]
    format: Option<String>,
    /// With `--format`: list what the conversion loses, instead of the tool
    #[arg(long, requires = "format")]
    explain: bool,
    /// Show the tool as it was at a time: `2h`, `7d`, `2026-11-15`, or `2026-11-15T20:00:00Z`; makes no network requests
    /// and starts no process
    #[arg(long, value_name = "TIME", conflicts_with_all = ["format", "cached", "fresh"])]
    at: Option<TimeSpec>,
    #[command(flatten)]
    preview: PreviewArguments,
    #[command(flatten)]
    discovery: DiscoveryArguments,
}

/// Looks up each name, then prints tools, provider definitions or losses.
pub(crate) async fn run(common: &CommonArguments, arguments: Arguments) -> Result<CommandOutcome> {
    if let Some(when) = arguments.at {
        return describe_at(common, &arguments, when).await;
    }
    let session = CliSession::open(common).await?;
    let reader = arguments.preview.reader(&session, None)?;
    let mut lookups: Vec<(&str, Result<FoundTool>)> = Vec::new();
    let mut sources: Vec<SourceView> = Vec::new();
    for name in &arguments.names {
        match (find_source_id(&session, &reader, name), &arguments.format) {
            (Some(id), None) => sources.extend(find_source(&session, &reader, id, &arguments.discovery).await),
            (Some(id), Some(format)) => {
                let message = format!(
                    "`{id}` is a source, which has no format; `toolcrib tools --source {id} --format {format}` prints its tools"
                );
                lookups.push((name, Err(Error::new(Code::BadRequest, message))));
            }
            (None, _) => lookups.push((name, find_tool(&session, &reader, name, &arguments).await)),
        }
    }
    // Project before the session closes: the projection reads the catalogue.
    let formatted = match arguments.format.as_deref() {
        Some(format) => project_tools(&session, &reader, format, &lookups).map(Some),
        None => Ok(None),
    };
    session.close().await;
    match formatted? {
        Some(_) if common.json && lookups.iter().all(|(_, result)| result.is_err()) => return first_error(lookups),
        Some((format, tools)) if arguments.explain => print_losses(common, format, tools)?,
        Some((format, tools)) => print_provider_array(common, format, &tools)?,
        None => return print_described(common, &sources, lookups, arguments.full),
    }
    Ok(print_errors(&lookups))
}

/// Prints the named tools as they were at the time. A read-only session: nothing is discovered, and no store is
/// created.
async fn describe_at(common: &CommonArguments, arguments: &Arguments, when: TimeSpec) -> Result<CommandOutcome> {
    let session = CliSession::open_read_only(common).await?;
    let reader = arguments.preview.reader(&session, None)?;
    let at = when.resolve(Clock::system().now());
    let mut lookups: Vec<(&str, Result<FoundTool>)> = Vec::new();
    for name in &arguments.names {
        let tool = session.registry.history_for(&reader).tool_at(name, at).await;
        lookups.push((name, tool.map(|tool| FoundTool::Offered(Box::new(tool)))));
    }
    session.close().await;
    // An invalid time (in the future, say) is an error of the command line, not of one name.
    let is_usage_error = |error: &Error| error.code == Code::BadRequest;
    if lookups.iter().any(|(_, result)| result.as_ref().is_err_and(is_usage_error)) {
        return first_error(lookups);
    }
    print_described(common, &[], lookups, arguments.full)
}

/// Discovers a source if necessary and returns it.
async fn find_source(
    session: &CliSession,
    reader: &Principal,
    id: SourceId,
    discovery: &DiscoveryArguments,
) -> Option<SourceView> {
    let among = [id];
    session.ensure(discovery.required_freshness(), Some(&among), discovery.wait_policy_for_all()).await;
    // The page lists prompts, resources and instructions, which follow the tools of a first discovery.
    session.registry.refresher().wait_for_pending_lists(SOURCE_LISTS_TIMEOUT).await;
    session.registry.sources().get_for(reader, &among[0])
}

/// Discovers the sources that may have the tool, then looks it up in the catalogue, or among removed tools: these have no
/// provider's format, because they cannot be called.
async fn find_tool(session: &CliSession, reader: &Principal, name: &str, arguments: &Arguments) -> Result<FoundTool> {
    let discovery = &arguments.discovery;
    // A bare name that no cached list contains may belong to any source; a qualified name with an unknown source
    // belongs to none.
    let among = match session.registry.sources().find_by_tool_name(name)? {
        Some(source) => Some(vec![source]),
        None if is_bare_name(name) => None,
        None => Some(Vec::new()),
    };
    // A qualified name needs one source, so wait for it; a bare name may be found without the slow ones.
    let policy = if among.is_some() { discovery.wait_policy_for_all() } else { discovery.wait_policy() };
    session.ensure(discovery.required_freshness(), among.as_deref(), policy).await;
    // The page shows how often the tool was called, by all processes on this store.
    session.registry.statistics().load().await?;
    if arguments.format.is_some() {
        // A provider's array is for agents, so denied and hidden tools are left out for administrators too.
        let agent = reader.narrowed(ViewNarrowing { as_agent: true, ..reader.narrowing().clone() });
        return session.registry.tool_for(&agent, name).map(|tool| FoundTool::Offered(Box::new(tool)));
    }
    if session.common.json {
        session.registry.statistics().count_tokens().await;
    }
    session.registry.history().find_tool(reader, name).await
}

/// Returns whether the name has no source part.
fn is_bare_name(name: &str) -> bool {
    matches!(parse_tool_name(name), Ok(ParsedToolName::Bare(_)))
}

/// Prints sources and tools as JSON or text, and an error for each name that is unknown or ambiguous.
fn print_described(
    common: &CommonArguments,
    sources: &[SourceView],
    lookups: Vec<(&str, Result<FoundTool>)>,
    full: bool,
) -> Result<CommandOutcome> {
    if common.json {
        return print_json(sources, lookups, full);
    }
    let found = lookups.iter().filter_map(|(_, result)| result.as_ref().ok());
    let texts: Vec<String> =
        sources.iter().map(render_source).chain(found.map(|tool| render_found(tool, full))).collect();
    if !texts.is_empty() {
        output::print_line(&texts.join("\n"))?;
    }
    Ok(print_errors(&lookups))
}

/// Renders a tool for people.
fn render_found(tool: &FoundTool, full: bool) -> String {
    match tool {
        FoundTool::Offered(view) => render_tool(view, full),
        FoundTool::Removed(removed) => match &removed.definition {
            Some(view) => render_tool(view, full),
            None => page::render_lost_tool(removed),
        },
    }
}

/// Prints the failed lookups to stderr; the outcome is a failure if there are any.
fn print_errors(lookups: &[(&str, Result<FoundTool>)]) -> CommandOutcome {
    let mut outcome = CommandOutcome::Success;
    for error in lookups.iter().filter_map(|(_, result)| result.as_ref().err()) {
        output::print_stderr_line(&format!("error: {}", error.message));
        outcome = CommandOutcome::Failure;
    }
    outcome
}

/// Prints one tool or source as an object, or several as `tools` and `sources` with an `errors` list for failed lookups.
/// Returns the first error if all lookups failed.
fn print_json(sources: &[SourceView], lookups: Vec<(&str, Result<FoundTool>)>, full: bool) -> Result<CommandOutcome> {
    if let ([only], []) = (sources, &lookups[..]) {
        output::print_json(only)?;
        return Ok(CommandOutcome::Success);
    }
    if sources.is_empty() && lookups.iter().all(|(_, result)| result.is_err()) {
        return first_error(lookups);
    }
    if let ([], [(_, Ok(only))]) = (sources, &lookups[..]) {
        output::print_json(&tool_json(only, full)?)?;
        return Ok(CommandOutcome::Success);
    }
    let mut tools = Vec::new();
    let mut errors = Vec::new();
    for (name, result) in &lookups {
        match result {
            Ok(view) => tools.push(tool_json(view, full)?),
            Err(error) => errors.push(error_with_name(name, error)),
        }
    }
    // The errors are part of the JSON and printed to stderr as well, so that no reader has to look at both.
    #[derive(serde::Serialize)]
    struct DescribeResponse<'a> {
        tools: Vec<Box<RawValue>>,
        #[serde(skip_serializing_if = "<[_]>::is_empty")]
        sources: &'a [SourceView],
        #[serde(skip_serializing_if = "Vec::is_empty")]
        errors: Vec<Value>,
    }
    let outcome = if errors.is_empty() { CommandOutcome::Success } else { CommandOutcome::Failure };
    for error in &errors {
        output::print_stderr_line(&format!("error: {}", error["message"].as_str().unwrap_or_default()));
    }
    output::print_json(&DescribeResponse { tools, sources, errors })?;
    Ok(outcome)
}

/// Returns the first failed lookup as the error of the command, whose code decides the exit code.
fn first_error(lookups: Vec<(&str, Result<FoundTool>)>) -> Result<CommandOutcome> {
    lookups.into_iter().find_map(|(_, result)| result.err()).map_or(Ok(CommandOutcome::Success), Err)
}

/// Returns the inner object of the error envelope, with the name that was looked up.
fn error_with_name(name: &str, error: &Error) -> Value {
    let mut inner = error.envelope()["error"].take();
    inner["name"] = json!(name);
    inner
}

/// Returns the JSON of a tool; `full` adds the complete input schema and the definition as the source sent it.
fn tool_json(tool: &FoundTool, full: bool) -> Result<Box<RawValue>> {
    let object = tool.to_json()?;
    let Some(view) = tool.definition().filter(|_| full) else { return Ok(object) };
    // Fields are replaced in the raw JSON, which keeps the definition byte for byte.
    let mut fields: RawFields = serde_json::from_str(object.get()).context(Code::Internal, "write a tool")?;
    fields.insert("input_schema", view.input_schema().to_owned());
    fields.insert("definition", to_raw_value(&view.tool.to_offered_fields()).context(Code::Internal, "write a tool")?);
    to_raw_value(&fields).context(Code::Internal, "write a tool")
}
