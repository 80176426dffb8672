//! `toolcrib tools`: prints every tool from the cache, as a table, JSON or in a model provider's format. Sources without
//! a tool list are discovered first.
//!
//! Lists are rendered in chunks, so that the text of thousands of tools is not kept in memory at once. A list that
//! lacks sources is printed all the same; JSON then names them in `missing`, the other formats on stderr.

use clap::Args;
use toolcrib::catalog::ToolRef;
use toolcrib::catalog::render::Format;
use toolcrib::core::ResultExt;
use toolcrib::core::manifest::SkippedTool;
use toolcrib::core::text::sanitize_truncated;
use toolcrib::registry::DiscoveryStatus;
use toolcrib::{Code, Error, Result};

use crate::arguments::CommonArguments;
use crate::discovery_wait::{DiscoveryArguments, MissingSource};
use crate::exit::CommandOutcome;
use crate::output;
use crate::session::CliSession;
use crate::table::Table;

/// List every tool, from the cache; sources without a tool list are discovered first
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  toolcrib tools
  toolcrib tools --source github --json
  toolcrib tools --format anthropic > tools.json
  toolcrib tools --format anthropic --defer
  toolcrib tools --format gemini --source github
  toolcrib tools --wait 10s

A provider's format is the array that the provider expects. A schema that it cannot express is
adapted, as `toolcrib describe NAME --format FORMAT --explain` shows; a tool that it does not
support is left out, with a hint.")]
pub(crate) struct Arguments {
    /// Only the tools of one source
    #[arg(long, value_name = "SOURCE")]
    source: Option<String>,
    /// Output format; a provider's format is the array that the provider expects
    #[arg(long, value_name = "FORMAT", value_parser = ["table", "json", "mcp", "anthropic", "openai", "openai-strict", "gemini"])]
    format: Option<String>,
    /// With `--format anthropic`: set `defer_loading` on all but the essential tools, so that the provider's tool
    /// search loads them
    #[arg(long)]
    defer: bool,
    #[command(flatten)]
    discovery: DiscoveryArguments,
}

/// Discovers what is missing, then prints the tools.
pub(crate) async fn run(common: &CommonArguments, arguments: Arguments) -> Result<CommandOutcome> {
    let format = resolve_format(common, &arguments)?;
    let session = CliSession::open(common).await?;
    let source = arguments.source.as_deref().map(|name| session.find_source(name)).transpose()?;
    let among = source.as_ref().map(std::slice::from_ref);
    // With one named source there is nothing else to print, so wait for it.
    let policy =
        if among.is_some() { arguments.discovery.wait_policy_for_all() } else { arguments.discovery.wait_policy() };
    let missing = session.ensure(arguments.discovery.required_freshness(), among, policy).await.missing;
    // Exit code 1 only if the one requested source has failed and nothing is cached for it.
    let failed = source
        .as_ref()
        .and_then(|id| session.registry.sources().get(id))
        .is_some_and(|source| source.status == DiscoveryStatus::Failed && source.tool_count == 0);
    let view = session.registry.view(&CliSession::caller());
    let is_selected = |tool: &ToolRef<'_>| source.as_ref().is_none_or(|source| source == tool.source());
    match format {
        Some(format) => {
            // Hold the last chunk back, because an incomplete JSON list gets `missing` at its end.
            let mut last = String::new();
            let skipped = view.render_chunks(format, is_selected, |chunk| {
                output::print_part(&last)?;
                chunk.clone_into(&mut last);
                Ok(())
            })?;
            if format == Format::Json {
                last = append_missing(&last, &missing)?;
            }
            output::print_line(&last)?;
            hint_skipped(common, format, &skipped);
        }
        // The log names the damage; "no tools yet" would be wrong.
        None if session.is_damaged() && !view.listed_tools().any(|tool| is_selected(&tool)) => {}
        None => output::print_line(&render_table(view.listed_tools().filter(is_selected))?)?,
    }
    session.close().await;
    Ok(if failed { CommandOutcome::Failure } else { CommandOutcome::Success })
}

/// Inserts the field `missing` at the end of a JSON object, unless the list is complete. Edits the text, because the
/// list has been printed up to its last chunk by then.
fn append_missing(end: &str, missing: &[MissingSource]) -> Result<String> {
    match end.strip_suffix('}') {
        Some(open) if !missing.is_empty() => {
            let missing = serde_json::to_string(missing).context(Code::Internal, "write JSON")?;
            Ok(format!("{open},\"missing\":{missing}}}"))
        }
        Some(_) | None => Ok(end.to_owned()),
    }
}

/// Returns the format to print; `None` for a table. `--defer` needs a format that supports it, which is `anthropic`;
/// otherwise the error is a usage error.
fn resolve_format(common: &CommonArguments, arguments: &Arguments) -> Result<Option<Format>> {
    // `--format` takes precedence over `--json`; both print JSON text.
    let format = match arguments.format.as_deref() {
        Some("table") => None,
        Some(format) => Some(Format::parse(format)?),
        None if common.json => Some(Format::Json),
        None => None,
    };
    match (arguments.defer, format) {
        (false, format) => Ok(format),
        (true, Some(format)) => format.deferred().map(Some),
        (true, None) => Err(Error::new(Code::BadRequest, "`--defer` needs `--format anthropic`")),
    }
}

/// Prints hints about tools that are not available in a provider's format.
pub(crate) fn hint_skipped(common: &CommonArguments, format: Format, skipped: &[SkippedTool]) {
    /// Further tools are only named.
    const MAX_SKIPPED_HINTS: usize = 5;
    let format = format.as_str();
    for SkippedTool { name, reason } in skipped.iter().take(MAX_SKIPPED_HINTS) {
        common.hint(&format!("hint: {name} is not available as `{format}`: {reason}"));
    }
    if skipped.len() > MAX_SKIPPED_HINTS {
        let names: Vec<String> = skipped.iter().skip(MAX_SKIPPED_HINTS).map(|tool| tool.name.clone()).collect();
        common.hint(&format!(
            "hint: not available as `{format}` either: {}; `toolcrib describe NAME --format {format} --explain` shows why",
            names.join(", ")
        ));
    }
}

/// Renders the tools for people; instead of the policy, the state of a tool that is not active.
fn render_table<'a>(tools: impl Iterator<Item = ToolRef<'a>>) -> Result<String> {
    let mut tools = tools.peekable();
    // An early message instead of an empty table.
    if tools.peek().is_none() {
        return Ok("no tools yet; `toolcrib sources` lists the sources, `toolcrib add` declares a source".into());
    }
    let mut table = Table::new(&["tool", "policy", "description"]);
    for tool in tools {
        let description = sanitize_truncated(&tool.tool()?.listing.description, 200);
        let state = tool.status().as_str();
        let policy = if state == "active" { tool.verdict().as_str() } else { state };
        table.add_row(vec![tool.name().to_string(), policy.to_owned(), description]);
    }
    Ok(table.render())
}
