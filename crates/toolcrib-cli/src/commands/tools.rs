//! `toolcrib tools`: every tool, from the cache; sources never seen before are discovered first.

use clap::Args;
use toolcrib::core::catalog::ToolRef;
use toolcrib::core::render::Format;
use toolcrib::core::text::shown_short;
use toolcrib::registry::Status;
use toolcrib::{Need, Result};

use crate::arguments::Common;
use crate::desk::Desk;
use crate::exit::Done;
use crate::output;
use crate::table::Table;

/// List every tool, from the cache; sources never seen before are discovered first
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  toolcrib tools
  toolcrib tools --source github --json
  toolcrib tools --format anthropic > tools.json")]
pub(crate) struct Arguments {
    /// Only the tools of one source
    #[arg(long, value_name = "SOURCE")]
    source: Option<String>,
    /// How to print them; a provider's format is the array that provider takes
    #[arg(long, value_name = "FORMAT", value_parser = ["table", "json", "mcp", "anthropic", "openai"])]
    format: Option<String>,
    #[command(flatten)]
    need: NeedArguments,
}

/// Who may be contacted before reading.
#[derive(Debug, Args)]
pub(crate) struct NeedArguments {
    /// Contact nobody
    #[arg(long, conflicts_with = "fresh")]
    cached: bool,
    /// Wait for lists that may be old, too
    #[arg(long)]
    fresh: bool,
}

impl NeedArguments {
    pub(crate) fn need(&self) -> Need {
        match (self.cached, self.fresh) {
            (true, _) => Need::Cached,
            (false, true) => Need::Fresh,
            (false, false) => Need::Known,
        }
    }
}

pub(crate) async fn run(common: &Common, arguments: Arguments) -> Result<Done> {
    let desk = Desk::open(common).await?;
    let source = arguments.source.as_deref().map(|name| desk.source(name)).transpose()?;
    desk.ensure(arguments.need.need(), source.as_ref().map(std::slice::from_ref)).await;
    let failed = source
        .as_ref()
        .and_then(|id| desk.registry.source(id))
        .is_some_and(|source| source.status == Status::Failed && source.tool_count == 0);
    let view = desk.registry.view(&Desk::caller());
    let format = match arguments.format.as_deref() {
        Some("table") => None,
        Some(format) => Some(Format::parse(format)?),
        None if common.json => Some(Format::Json),
        None => None,
    };
    let wanted = |tool: &ToolRef<'_>| source.as_ref().is_none_or(|source| source == tool.source());
    match format {
        Some(format) => {
            view.render_pieces(format, wanted, output::piece)?;
            output::line("")?;
        }
        None => output::line(&table(view.listed().filter(wanted))?)?,
    }
    desk.close().await;
    Ok(if failed { Done::Failed } else { Done::Well })
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
