//! `toolcrib tools`: every tool, from the cache; sources never seen before are discovered first.

use clap::Args;
use toolcrib::core::catalog::ToolRef;
use toolcrib::core::manifest::SetAside;
use toolcrib::core::render::Format;
use toolcrib::core::text::shown_short;
use toolcrib::registry::Status;
use toolcrib::{Code, Error, Need, Result};

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
  toolcrib tools --format anthropic > tools.json
  toolcrib tools --format anthropic --defer
  toolcrib tools --format gemini --source github

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
        self.need_or(Need::Known)
    }

    /// What is needed when nobody says otherwise is for the command to know.
    pub(crate) fn need_or(&self, unsaid: Need) -> Need {
        match (self.cached, self.fresh) {
            (true, _) => Need::Cached,
            (false, true) => Need::Fresh,
            (false, false) => unsaid,
        }
    }
}

pub(crate) async fn run(common: &Common, arguments: Arguments) -> Result<Done> {
    let format = format(common, &arguments)?;
    let desk = Desk::open(common).await?;
    let source = arguments.source.as_deref().map(|name| desk.source(name)).transpose()?;
    desk.ensure(arguments.need.need(), source.as_ref().map(std::slice::from_ref)).await;
    let failed = source
        .as_ref()
        .and_then(|id| desk.registry.source(id))
        .is_some_and(|source| source.status == Status::Failed && source.tool_count == 0);
    let view = desk.registry.view(&Desk::caller());
    let wanted = |tool: &ToolRef<'_>| source.as_ref().is_none_or(|source| source == tool.source());
    match format {
        Some(format) => {
            let set_aside = view.render_pieces(format, wanted, output::piece)?;
            output::line("")?;
            hint_set_aside(common, format, &set_aside);
        }
        None => output::line(&table(view.listed().filter(wanted))?)?,
    }
    desk.close().await;
    Ok(if failed { Done::Failed } else { Done::Well })
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
