//! `toolcrib export`: every source, of the configuration or declared at run time, as a configuration file.

use clap::Args;
use toolcrib::core::config::show::show_keys;
use toolcrib::core::config::{export, export_json};
use toolcrib::{Result, Source};

use crate::arguments::Common;
use crate::desk::Desk;
use crate::exit::Done;
use crate::output;

/// Print all sources as a configuration file
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  toolcrib export > toolcrib.yaml\n  toolcrib export --json > toolcrib.json")]
pub(crate) struct Arguments {}

pub(crate) async fn run(common: &Common, _: Arguments) -> Result<Done> {
    let desk = Desk::look(common).await?;
    let declarations = desk.registry.declarations();
    let unusable: Vec<String> = desk.registry.sources().into_iter().filter_map(unusable).collect();
    desk.close().await;
    let sources: Vec<&Source> = declarations.iter().map(|(_, source)| source).collect();
    match common.json {
        true => output::json(&export_json(&sources))?,
        false => output::line(&export(&sources))?,
    }
    for id in unusable {
        common.hint(&format!("warning: `{id}` is stated wrongly and left out; `toolcrib sources` says how"));
    }
    let literal: Vec<String> =
        sources.iter().filter(|source| has_literals(source)).map(|source| format!("`{}`", source.id)).collect();
    if !literal.is_empty() {
        common.hint(&format!(
            "hint: values of {} that may be secret are written as they are; keep the file safe, or use `${{env:NAME}}`",
            literal.join(", ")
        ));
    }
    Ok(Done::Well)
}

/// A source of the configuration whose declaration cannot be used has no kind.
fn unusable(source: toolcrib::registry::SourceView) -> Option<String> {
    source.transport.is_none().then(|| source.id.to_string())
}

/// Whether something would be masked where secrets are not shown.
fn has_literals(source: &Source) -> bool {
    show_keys(source).to_string().contains("***")
}
