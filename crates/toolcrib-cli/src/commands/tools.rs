//! `toolcrib tools`: prints every tool from the cache, as a table, text lines, JSON or in a model provider's format.
//! Sources without a tool list are discovered first.
//!
//! Lists are rendered in chunks, so that the text of thousands of tools is not kept in memory at once. A list that
//! lacks sources is printed all the same; JSON then names them in `missing`, the other formats on stderr.

use std::collections::HashMap;

use clap::Args;
use toolcrib::catalog::ToolRef;
use toolcrib::catalog::filter::{ListOrder, StateFilter, ToolFilter, ToolOrder};
use toolcrib::catalog::render::Format;
use toolcrib::core::ResultExt;
use toolcrib::core::manifest::SkippedTool;
use toolcrib::core::text::sanitize_truncated;
use toolcrib::registry::{DiscoveryStatus, RemovedTool, RemovedToolsQuery};
use toolcrib::{Code, Error, Principal, Result, SourceId};

use crate::arguments::CommonArguments;
use crate::discovery_wait::{DiscoveryArguments, MissingSource};
use crate::exit::CommandOutcome;
use crate::output;
use crate::preview::PreviewArguments;
use crate::session::CliSession;
use crate::table::Table;

/// List every tool, from the cache; sources without a tool list are discovered first
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  toolcrib tools
  toolcrib tools --source github --json
  toolcrib tools --kind openapi --tag orders --order tokens
  toolcrib tools --only 'github__*' '*search*'
  toolcrib tools --group support
  toolcrib tools --token ci                      as the holder of the token `ci` sees them
  toolcrib tools --claims '{\"team\":\"support\"}' --format anthropic
  toolcrib tools --state deprecated
  toolcrib tools --format anthropic > tools.json
  toolcrib tools --format anthropic --defer
  toolcrib tools --format gemini --source github
  toolcrib tools --format lines
  toolcrib tools --wait 10s

`lines` is a short list for a prompt: each tool that an agent may call, with the first sentence
of its description. A provider's format is the array that the provider expects. A schema that it
cannot express is adapted, as `toolcrib describe NAME --format FORMAT --explain` shows; a tool
that it does not support is left out, with a hint.")]
pub(crate) struct Arguments {
    /// Only the tools of one source
    #[arg(long, value_name = "SOURCE")]
    source: Option<String>,
    /// Only the tools of this group
    #[arg(long, value_name = "GROUP")]
    group: Option<String>,
    /// Only tools of sources of this kind
    #[arg(long, value_name = "KIND", value_parser = ToolFilter::KINDS)]
    kind: Option<String>,
    /// Only tools with this tag: of an API operation, or of the source
    #[arg(long, value_name = "TAG")]
    tag: Option<String>,
    /// Only tools in this state; deprecated tools are those that their source no longer offers
    #[arg(long, value_name = "STATE", value_parser = StateFilter::ALL.map(StateFilter::as_str))]
    state: Option<String>,
    /// Order of the list; most tokens or calls first
    #[arg(long, value_name = "ORDER", default_value = "name", hide_default_value = true,
        value_parser = ToolOrder::ALL.map(ToolOrder::as_str))]
    order: String,
    /// Only tools whose name matches one of these globs
    #[arg(long, value_name = "GLOB", num_args = 1.., value_delimiter = ',')]
    only: Vec<String>,
    /// Output format; a provider's format is the array that the provider expects
    #[arg(long, value_name = "FORMAT", value_parser = ["table", "lines", "json", "mcp", "anthropic", "openai", "openai-strict", "gemini"])]
    format: Option<String>,
    /// With `--format anthropic`: set `defer_loading` on all but the essential tools, so that the provider's tool
    /// search loads them
    #[arg(long)]
    defer: bool,
    #[command(flatten)]
    preview: PreviewArguments,
    #[command(flatten)]
    discovery: DiscoveryArguments,
}

/// Discovers what is missing, then prints the tools.
pub(crate) async fn run(common: &CommonArguments, arguments: Arguments) -> Result<CommandOutcome> {
    let layout = resolve_layout(common, &arguments)?;
    let session = CliSession::open(common).await?;
    let reader = arguments.preview.reader(&session, arguments.group.as_deref())?;
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
    let view = session.registry.view(&reader);
    let filter = build_filter(&arguments, source.clone())?;
    let order = ToolOrder::from_name(&arguments.order)?;
    let calls = count_calls(&session, order).await?;
    let list_order = match order {
        ToolOrder::Name => ListOrder::Name,
        ToolOrder::Tokens => ListOrder::Tokens,
        ToolOrder::Calls => ListOrder::Calls(&calls),
    };
    if matches!(layout, ListLayout::Format(Format::Json)) || order == ToolOrder::Tokens {
        session.registry.statistics().count_tokens().await;
    }
    let is_selected = |tool: &ToolRef<'_>| filter.accepts(tool);
    match layout {
        ListLayout::Format(Format::Json) | ListLayout::Table if filter.state == Some(StateFilter::Deprecated) => {
            print_removed(&session, &reader, layout, &filter, order, &missing).await?;
        }
        ListLayout::Format(format) => {
            // Hold the last chunk back, because an incomplete JSON list gets `missing` at its end.
            let mut last = String::new();
            let skipped = view.render_chunks(format, is_selected, &list_order, |chunk| {
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
        ListLayout::Table | ListLayout::Lines
            if session.is_damaged() && !view.listed_tools().any(|tool| is_selected(&tool)) => {}
        ListLayout::Lines => view.render_lines(is_selected, &list_order, output::print_part)?,
        ListLayout::Table => {
            let mut tools: Vec<ToolRef<'_>> = view.listed_tools().filter(is_selected).collect();
            list_order.sort(&mut tools);
            if tools.is_empty() {
                let is_filtered = filter.has_conditions() && view.listed_tools().next().is_some();
                let is_narrowed = session.registry.view(&CliSession::caller()).listed_tools().next().is_some();
                output::print_line(if is_filtered || arguments.group.is_some() {
                    "no tool matches"
                } else if arguments.preview.is_given() && is_narrowed {
                    "this caller sees no tools; `toolcrib explain TOOL` with the same options names the rules"
                } else {
                    "no tools yet; `toolcrib sources` lists the sources, `toolcrib add` declares a source"
                })?;
            } else {
                output::print_line(&render_table(&tools, &list_order)?)?;
            }
        }
    }
    session.close().await;
    Ok(if failed { CommandOutcome::Failure } else { CommandOutcome::Success })
}

/// Builds the filter from the arguments, which clap has checked.
fn build_filter(arguments: &Arguments, source: Option<SourceId>) -> Result<ToolFilter> {
    if arguments.only.iter().any(|glob| glob.trim().is_empty()) {
        return Err(Error::new(Code::BadRequest, "`--only` has an empty glob; give one such as `github__*`"));
    }
    Ok(ToolFilter {
        source,
        kind: arguments.kind.clone(),
        tag: arguments.tag.clone(),
        state: arguments.state.as_deref().map(StateFilter::from_name).transpose()?,
        names: arguments.only.clone(),
    })
}

/// Returns the calls of all tools by name, by all processes on this store, if the order needs them.
async fn count_calls(session: &CliSession, order: ToolOrder) -> Result<HashMap<String, u64>> {
    if order != ToolOrder::Calls {
        return Ok(HashMap::new());
    }
    let statistics = session.registry.statistics();
    statistics.load().await?;
    Ok(statistics.totals().tools.into_iter().map(|tool| (tool.name, tool.calls)).collect())
}

/// Prints the tools that their sources no longer offer, with their last definitions.
async fn print_removed(
    session: &CliSession,
    principal: &Principal,
    layout: ListLayout,
    filter: &ToolFilter,
    order: ToolOrder,
    missing: &[MissingSource],
) -> Result<()> {
    let query = RemovedToolsQuery { principal, filter, order, after: None, limit: usize::MAX };
    let removed = session.registry.history().removed_tools(&query).await?.tools;
    if matches!(layout, ListLayout::Format(_)) {
        let tools: Vec<_> = removed.iter().map(RemovedTool::to_list_json).collect::<Result<_>>()?;
        let hash = session.registry.view(principal).hash();
        let tools = serde_json::to_string(&tools).context(Code::Internal, "write JSON")?;
        let text = format!("{{\"tools\":{tools},\"inventory_hash\":\"{hash}\"}}");
        return output::print_line(&append_missing(&text, missing)?);
    }
    if removed.is_empty() {
        return output::print_line("no tool matches");
    }
    let mut table = Table::new(&["tool", "policy", "removed", "description"]);
    for tool in removed {
        let description = tool.definition.as_ref().map(|view| sanitize_truncated(view.description(), 200));
        table.add_row(vec![
            tool.name.to_string(),
            tool.policy.as_str().to_owned(),
            tool.removed_at().to_string(),
            description.unwrap_or_default(),
        ]);
    }
    output::print_line(&table.render())
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

/// How a list is printed.
#[derive(Debug, Clone, Copy)]
enum ListLayout {
    Table,
    /// One line of text per tool.
    Lines,
    /// JSON, of Toolcrib or a provider.
    Format(Format),
}

/// Returns how to print the list. `--defer` needs a format that supports it, which is `anthropic`; otherwise the error is
/// a usage error.
fn resolve_layout(common: &CommonArguments, arguments: &Arguments) -> Result<ListLayout> {
    let layout = match arguments.format.as_deref() {
        Some(format @ ("table" | "lines")) if common.json => {
            let message = format!("`--json` and `--format {format}` are mutually exclusive; keep one");
            return Err(Error::new(Code::BadRequest, message));
        }
        Some("table") => ListLayout::Table,
        Some("lines") => ListLayout::Lines,
        Some(format) => ListLayout::Format(Format::parse(format)?),
        None if common.json => ListLayout::Format(Format::Json),
        None => ListLayout::Table,
    };
    match (arguments.defer, layout) {
        (false, layout) => Ok(layout),
        (true, ListLayout::Format(format)) => format.deferred().map(ListLayout::Format),
        (true, ListLayout::Table | ListLayout::Lines) => {
            Err(Error::new(Code::BadRequest, "`--defer` needs `--format anthropic`"))
        }
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

/// Renders the tools for people, with the number that they are ordered by; instead of the policy, the state of a tool
/// that is not active.
fn render_table(tools: &[ToolRef<'_>], order: &ListOrder<'_>) -> Result<String> {
    let rank_title = match order {
        ListOrder::Name => None,
        ListOrder::Tokens => Some("tokens"),
        ListOrder::Calls(_) => Some("calls"),
    };
    let titles: Vec<&str> = ["tool", "policy"].into_iter().chain(rank_title).chain(["description"]).collect();
    let mut table = Table::new(&titles);
    for tool in tools {
        let description = sanitize_truncated(&tool.tool()?.listing.description, 200);
        let state = tool.status().as_str();
        let policy = if state == "active" { tool.verdict().as_str() } else { state };
        let rank = rank_title.map(|_| order.rank(tool).to_string());
        table.add_row(
            [tool.name().to_string(), policy.to_owned()].into_iter().chain(rank).chain([description]).collect(),
        );
    }
    Ok(table.render())
}
