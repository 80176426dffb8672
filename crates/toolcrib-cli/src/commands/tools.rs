//! `toolcrib tools`: every tool, from the cache; sources never seen before are discovered first.

use clap::Args;
use toolcrib::core::ResultExt;
use toolcrib::core::catalog::ToolRef;
use toolcrib::core::manifest::SetAside;
use toolcrib::core::render::Format;
use toolcrib::core::text::shown_short;
use toolcrib::registry::Status;
use toolcrib::{Code, Error, Result};

use crate::arguments::Common;
use crate::desk::Desk;
use crate::exit::Done;
use crate::output;
use crate::table::Table;
use crate::waiting::{Missing, NeedArguments};

/// List every tool, from the cache; sources never seen before are discovered first
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  toolcrib tools
  toolcrib tools --source github --json
  toolcrib tools --format anthropic > tools.json
  toolcrib tools --format anthropic --defer
  toolcrib tools --format gemini --source github
  toolcrib tools --wait 10s

A provider's format is the array that provider takes. What it cannot express is edited, which `describe --format X
--explain` tells; a tool that cannot be had in it is left out, with a hint.")]
pub(crate) struct Arguments {
    /// Only the tools of one source
    #[arg(long, value_name = "SOURCE")]
    source: Option<String>,
    /// How to print them; a provider's format is the array that provider takes
    #[arg(long, value_name = "FORMAT", value_parser = ["table", "json", "mcp", "anthropic", "openai", "openai-strict", "gemini"])]
    format: Option<String>,
    /// With `anthropic`: leave what is not essential to the provider's own tool search
    #[arg(long)]
    defer: bool,
    #[command(flatten)]
    need: NeedArguments,
}

pub(crate) async fn run(common: &Common, arguments: Arguments) -> Result<Done> {
    let format = format(common, &arguments)?;
    let desk = Desk::open(common).await?;
    let source = arguments.source.as_deref().map(|name| desk.source(name)).transpose()?;
    let among = source.as_ref().map(std::slice::from_ref);
    // One source that was asked for is worth the wait; there is nothing else to print.
    let patience = if among.is_some() { arguments.need.patience_for_all() } else { arguments.need.patience() };
    let missing = desk.ensure(arguments.need.need(), among, patience).await.missing;
    let failed = source
        .as_ref()
        .and_then(|id| desk.registry.source(id))
        .is_some_and(|source| source.status == Status::Failed && source.tool_count == 0);
    let view = desk.registry.view(&Desk::caller());
    let wanted = |tool: &ToolRef<'_>| source.as_ref().is_none_or(|source| source == tool.source());
    match format {
        Some(format) => {
            // The last piece is held back, for an incomplete list says so at its end.
            let mut last = String::new();
            let set_aside = view.render_pieces(format, wanted, |piece| {
                output::piece(&last)?;
                piece.clone_into(&mut last);
                Ok(())
            })?;
            if format == Format::Json {
                last = with_missing(&last, &missing)?;
            }
            output::line(&last)?;
            hint_set_aside(common, format, &set_aside);
        }
        None => output::line(&table(view.listed().filter(wanted))?)?,
    }
    desk.close().await;
    Ok(if failed { Done::Failed } else { Done::Well })
}

/// The end of a JSON object, with what it lacks where it does.
fn with_missing(end: &str, missing: &[Missing]) -> Result<String> {
    match end.strip_suffix('}') {
        Some(open) if !missing.is_empty() => {
            let missing = serde_json::to_string(missing).context(Code::Internal, "write JSON")?;
            Ok(format!("{open},\"missing\":{missing}}}"))
        }
        Some(_) | None => Ok(end.to_owned()),
    }
}

/// What to print; a table when there is none.
fn format(common: &Common, arguments: &Arguments) -> Result<Option<Format>> {
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

/// Names what a provider's list lacks, and where to read why.
pub(crate) fn hint_set_aside(common: &Common, format: Format, set_aside: &[SetAside]) {
    const MOST: usize = 5;
    let format = format.as_str();
    for SetAside { name, reason } in set_aside.iter().take(MOST) {
        common.hint(&format!("hint: {name} cannot be had as `{format}`: {reason}"));
    }
    if set_aside.len() > MOST {
        let names: Vec<String> = set_aside.iter().skip(MOST).map(|refused| refused.name.clone()).collect();
        common.hint(&format!(
            "hint: nor can {}; `toolcrib describe NAME --format {format} --explain` says why",
            names.join(", ")
        ));
    }
}

fn table<'a>(tools: impl Iterator<Item = ToolRef<'a>>) -> Result<String> {
    let mut tools = tools.peekable();
    if tools.peek().is_none() {
        return Ok("no tools yet; `toolcrib sources` shows what there is, `toolcrib add` declares a source".into());
    }
    let mut table = Table::new(&["tool", "policy", "description"]);
    for tool in tools {
        let description = shown_short(&tool.tool()?.face.description, 200);
        let state = tool.state().as_str();
        let policy = if state == "active" { tool.verdict().as_str() } else { state };
        table.row(vec![tool.name().to_string(), policy.to_owned(), description]);
    }
    Ok(table.render())
}
