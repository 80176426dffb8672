//! `toolcrib config`: what all files, commands and variables come to, with the origin of each value. Nothing secret.

mod readable;

use clap::Args;
use toolcrib::Result;
use toolcrib::core::text::shown;

use crate::arguments::Common;
use crate::desk::Desk;
use crate::exit::Done;
use crate::output;

/// Show the merged configuration and where each value comes from
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  toolcrib config\n  toolcrib config --json | jq .defaults.ttl")]
pub(crate) struct Arguments {}

pub(crate) async fn run(common: &Common, _: Arguments) -> Result<Done> {
    let desk = Desk::look(common).await?;
    let merged = desk.registry.merged_config(&desk.found, &desk.data);
    desk.close().await;
    match common.json {
        true => output::json(&merged)?,
        false => output::line(&readable::dimmed(&shown(&readable::text(&merged)), output::coloured()))?,
    }
    Ok(Done::Well)
}
