//! `toolcrib import`: the sources of other clients, declared at run time. They live in the store, whose file only its
//! owner can read, because such configurations hold literal secrets. Contacts nobody.

mod place;

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::Args;
use serde::Serialize;
use serde_json::json;
use toolcrib::core::config::{Client, Declaration, Fault};
use toolcrib::registry::Declared;
use toolcrib::{Result, Source, SourceId};

use crate::arguments::Common;
use crate::desk::Desk;
use crate::exit::Done;
use crate::{output, wording};
use place::Place;

/// Declare the sources of another client's configuration; contacts nobody
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  toolcrib import                          what all known clients have, in their usual places
  toolcrib import --from cursor --dry-run
  toolcrib import ~/backup/claude_desktop_config.json

A server that the configuration declares already is left alone.")]
pub(crate) struct Arguments {
    /// A client's file; the usual places are looked at when none is named
    file: Option<PathBuf>,
    /// Whose configuration it is
    #[arg(long, value_name = "CLIENT", value_parser = Client::ALL.map(Client::as_str))]
    from: Option<String>,
    /// Say what would be done, and do nothing
    #[arg(long)]
    dry_run: bool,
}

/// What became of one server.
#[derive(Debug, Serialize)]
struct Line {
    /// None when its name cannot be one.
    source: Option<SourceId>,
    status: Status,
    file: String,
    /// Why it was skipped or failed; else what it runs or contacts.
    reason: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Status {
    Imported,
    Changed,
    Same,
    Skipped,
    Failed,
}

pub(crate) async fn run(common: &Common, arguments: Arguments) -> Result<Done> {
    let client = arguments.from.as_deref().and_then(Client::parse);
    let places = match &arguments.file {
        Some(file) => vec![Place::named(file, client)?],
        None => Place::usual(common, client)?,
    };
    let desk = if arguments.dry_run { Desk::look(common).await? } else { Desk::manage(common).await? };
    let lines = import_all(&desk, &places, arguments.dry_run).await;
    desk.close().await;
    let lines = lines?;
    let warnings: Vec<String> = places.iter().flat_map(|place| &place.warnings).map(Fault::to_string).collect();
    for warning in &warnings {
        common.hint(&format!("warning: {warning}"));
    }
    if common.json {
        output::json(&json!({ "results": lines, "warnings": warnings, "dry_run": arguments.dry_run }))?;
    } else {
        for line in &lines {
            output::line(&line.told(arguments.dry_run))?;
        }
        if lines.iter().any(|line| matches!(line.status, Status::Imported | Status::Changed)) && !arguments.dry_run {
            common.hint("hint: `toolcrib tools` discovers them, `toolcrib sources` shows how they stand");
        }
    }
    let failed = lines.iter().any(|line| line.status == Status::Failed);
    Ok(if failed { Done::Failed } else { Done::Well })
}

async fn import_all(desk: &Desk, places: &[Place], dry_run: bool) -> Result<Vec<Line>> {
    let mut lines = Vec::new();
    let mut seen: BTreeMap<SourceId, (&Source, &str)> = BTreeMap::new();
    for place in places {
        lines.extend(place.faults.iter().map(|fault| Line::failed(None, &place.file, fault.to_string())));
        for Declaration { id, source, .. } in &place.declarations {
            let source = match source {
                Ok(source) => source,
                Err(faults) => {
                    let reason = faults.iter().map(Fault::to_string).collect::<Vec<_>>().join("; ");
                    lines.push(Line::failed(Some(id.clone()), &place.file, reason));
                    continue;
                }
            };
            let first = *seen.entry(id.clone()).or_insert((source, &place.file));
            let (status, reason) = match first {
                (other, file) if other != source => {
                    (Status::Skipped, format!("`{file}` declares that name otherwise, and goes first"))
                }
                _ => import(desk, source, dry_run).await?,
            };
            lines.push(Line { source: Some(id.clone()), status, file: place.file.clone(), reason });
        }
    }
    Ok(lines)
}

async fn import(desk: &Desk, source: &Source, dry_run: bool) -> Result<(Status, String)> {
    if let Some(place) = desk.found.declared_at(&source.id) {
        return Ok((Status::Skipped, format!("`{place}` declares that name, and the configuration wins")));
    }
    let declared = match dry_run {
        true => desk.registry.would_declare(source)?,
        false => desk.registry.declare_lazily(source, Desk::actor()).await?,
    };
    let status = match declared {
        Declared::New => Status::Imported,
        Declared::Changed => Status::Changed,
        Declared::Same => Status::Same,
    };
    Ok((status, wording::reached_by(source)))
}

impl Line {
    fn failed(source: Option<SourceId>, file: &str, reason: String) -> Line {
        Line { source, status: Status::Failed, file: file.to_owned(), reason }
    }

    fn told(&self, dry_run: bool) -> String {
        let Line { status, file, reason, .. } = self;
        let source = self.source.as_ref().map_or("?", SourceId::as_str);
        let would = if dry_run { "would be " } else { "" };
        match status {
            Status::Imported => format!("{source}: {would}imported from `{file}`: {reason}"),
            Status::Changed => format!("{source}: {would}changed to what `{file}` says: {reason}"),
            Status::Same => format!("{source}: already there, as `{file}` says"),
            Status::Skipped => format!("{source}: skipped: {reason}"),
            Status::Failed => format!("{source}: failed: {reason}"),
        }
    }
}
