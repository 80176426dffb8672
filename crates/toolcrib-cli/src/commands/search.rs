//! `toolcrib search`: prints the tools that match a task, one per line.
//!
//! Ranking is the same as for agents (`search_tools`). Hidden and disabled tools are not found. The output has one
//! line per hit; hints about further or weak matches go to stderr.

use clap::Args;
use toolcrib::Result;
use toolcrib::catalog::search::{Hit, Query};

use crate::arguments::CommonArguments;
use crate::discovery_wait::{DiscoveryArguments, PartialResponse};
use crate::model::ModelArguments;
use crate::preview::PreviewArguments;
use crate::session::CliSession;
use crate::{color, output};

/// Find the tools that fit a task, a question or a name
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  toolcrib search create an issue
  toolcrib search \"who wrote this file last?\" -k 3
  toolcrib search send_email --source mail
  toolcrib search list tables --tag database --json
  toolcrib search open tickets --group support
  toolcrib search open tickets --claims '{\"team\":\"support\"}'")]
pub(crate) struct Arguments {
    /// Purpose of the tool in your own words, or its name in any spelling
    #[arg(value_name = "QUERY", required = true)]
    query: Vec<String>,
    /// Maximum number of hits; 0 for all
    #[arg(short = 'k', long, value_name = "N", default_value_t = Query::DEFAULT_LIMIT)]
    limit: usize,
    /// Only the tools of one source
    #[arg(long, value_name = "SOURCE")]
    source: Option<String>,
    /// Only tools with this tag: of an API operation, or of the source
    #[arg(long, value_name = "TAG")]
    tag: Option<String>,
    /// Only the tools of this group
    #[arg(long, value_name = "GROUP")]
    group: Option<String>,
    #[command(flatten)]
    preview: PreviewArguments,
    #[command(flatten)]
    model: ModelArguments,
    #[command(flatten)]
    discovery: DiscoveryArguments,
}

/// Searches the tools that the reader sees, after discovering what is missing.
pub(crate) async fn run(common: &CommonArguments, arguments: Arguments) -> Result<()> {
    let searcher = arguments.model.load()?;
    let session = CliSession::open(common).await?;
    let reader = arguments.preview.reader(&session, arguments.group.as_deref())?;
    let source = arguments.source.as_deref().map(|name| session.find_source(name)).transpose()?;
    let among = source.as_ref().map(std::slice::from_ref);
    let missing = session
        .ensure(arguments.discovery.required_freshness(), among, arguments.discovery.wait_policy())
        .await
        .missing;
    let query = Query { text: arguments.query.join(" "), limit: arguments.limit, source, tag: arguments.tag };
    let view = session.registry.view(&reader);
    // The first search loads a model of the configuration and builds the index.
    let results = tokio::task::spawn_blocking(move || searcher.search(&view, &query)).await.unwrap_or_default();
    session.close().await;
    if common.json {
        output::print_json(&PartialResponse { response: results.to_response(), missing })?;
    } else if !results.hits.is_empty() {
        output::print_line(&results.hits.iter().map(render_hit).collect::<Vec<_>>().join("\n"))?;
        // `also` names the same tool at other sources, which is shown with its hit.
        let more = results.total.saturating_sub(results.hits.iter().map(|hit| 1 + hit.also.len()).sum());
        if more > 0 {
            common.hint(&format!("hint: {more} more match; `-k 0` shows all"));
        }
    }
    if let Some(hint) = &results.hint {
        common.hint(&format!("hint: {hint}"));
    }
    Ok(())
}

/// Renders the line that an agent gets, with the name in bold.
fn render_hit(hit: &Hit) -> String {
    let line = hit.to_line();
    match line.strip_prefix(hit.name.as_str()) {
        Some(rest) => format!("{}{rest}", color::bold(hit.name.as_str())),
        None => line,
    }
}
