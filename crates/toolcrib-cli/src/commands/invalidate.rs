//! `toolcrib invalidate`: marks the cached tool lists of sources as stale. The lists stay in use until the next command
//! that needs fresh ones discovers the sources again.
//!
//! Contacts no source. Unlike `refresh` it changes nothing that agents see, and unlike `--fresh` it affects all
//! processes on the store.

use clap::Args;
use serde_json::json;
use toolcrib::{Result, SourceId};

use crate::arguments::CommonArguments;
use crate::output;
use crate::session::CliSession;

/// Mark tool lists as stale: the next use refreshes them; tools stay listed
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  toolcrib invalidate\n  toolcrib invalidate github files")]
pub(crate) struct Arguments {
    /// Which sources; all when none are named
    #[arg(value_name = "SOURCE")]
    sources: Vec<String>,
}

/// Invalidates and prints the affected sources.
pub(crate) async fn run(common: &CommonArguments, arguments: Arguments) -> Result<()> {
    let session = CliSession::open_offline(common).await?;
    let sources = session.run_and_close(async |session| invalidate(session, &arguments.sources).await).await?;
    if common.json {
        output::print_json(&json!({ "invalidated": sources }))?;
    } else if sources.is_empty() {
        output::print_line("no sources yet; `toolcrib add NAME -- COMMAND` declares one")?;
    }
    for source in sources.iter().filter(|_| !common.json) {
        output::print_line(&format!("{source}: stale; refreshed at its next use"))?;
    }
    Ok(())
}

/// Invalidates the named sources, or all; returns their ids.
async fn invalidate(session: &CliSession, names: &[String]) -> Result<Vec<SourceId>> {
    if names.is_empty() {
        session.registry.sources().invalidate(None).await?;
        return Ok(session.registry.inventory().sources().map(|(id, _)| id.clone()).collect());
    }
    let mut sources = names.iter().map(|name| session.find_source(name)).collect::<Result<Vec<_>>>()?;
    // A source may be named twice, in different spellings.
    sources.sort();
    sources.dedup();
    for source in &sources {
        session.registry.sources().invalidate(Some(source)).await?;
    }
    Ok(sources)
}
