//! `toolcrib config`: what all files, commands and variables come to, with the origin of each value. Nothing secret.

mod human;

use clap::Args;
use toolcrib::Result;
use toolcrib::core::text::sanitize;

use crate::arguments::CommonArguments;
use crate::exit::CommandOutcome;
use crate::output;
use crate::session::CliSession;

/// Show the merged configuration and where each value comes from
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  toolcrib config\n  toolcrib config --json | jq .defaults.ttl")]
pub(crate) struct Arguments {}

pub(crate) async fn run(common: &CommonArguments, _: Arguments) -> Result<CommandOutcome> {
    let session = CliSession::open_read_only(common).await?;
    let merged = session.registry.effective_config(&session.loaded_config, &session.data_directory);
    session.close().await;
    match common.json {
        true => output::print_json(&merged)?,
        false => output::print_line(&human::dim_comments(
            &sanitize(&human::render_config(&merged)),
            output::is_stdout_colored(),
        ))?,
    }
    Ok(CommandOutcome::Success)
}
