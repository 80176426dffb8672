//! `toolcrib config`: prints the configuration merged from files, commands and environment variables, with the origin of
//! each value. Secrets are masked.

mod human;

use clap::Args;
use toolcrib::Result;
use toolcrib::core::text::sanitize;

use crate::arguments::CommonArguments;
use crate::output;
use crate::session::CliSession;

/// Show the merged configuration and where each value comes from
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  toolcrib config\n  toolcrib config --json | jq .defaults.ttl")]
pub(crate) struct Arguments {}

/// Prints the merged configuration as JSON, or as YAML with origins.
pub(crate) async fn run(common: &CommonArguments, _: Arguments) -> Result<()> {
    let session = CliSession::open_without_records(common).await?;
    let merged = session.registry.configuration().show(&session.loaded_config, &session.data_directory);
    session.close().await;
    common.print(&merged, || {
        let text = sanitize(&human::render_config(&merged));
        human::dim_comments(&text, output::is_stdout_colored())
    })
}
