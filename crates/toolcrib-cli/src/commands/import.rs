//! `toolcrib import`: the sources of other clients, declared at run time. They live in the store, whose file only its
//! owner can read, because such configurations hold literal secrets. Contacts nobody.

mod client_files;

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::Args;
use serde::Serialize;
use serde_json::json;
use toolcrib::core::config::{ConfigDiagnostic, ConfiguredSource, McpClientKind};
use toolcrib::registry::DeclareOutcome;
use toolcrib::{Result, Source, SourceId};

use crate::arguments::CommonArguments;
use crate::exit::CommandOutcome;
use crate::session::CliSession;
use crate::{output, source_summary};
use client_files::ClientConfigFile;

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
    #[arg(long, value_name = "CLIENT", value_parser = McpClientKind::ALL.map(McpClientKind::as_str))]
    from: Option<String>,
    /// Say what would be done, and do nothing
    #[arg(long)]
    dry_run: bool,
}

/// What became of one server.
#[derive(Debug, Serialize)]
struct ImportResult {
    /// None when its name cannot be one.
    source: Option<SourceId>,
    status: ImportStatus,
    file: String,
    /// Why it was skipped or failed; else what it runs or contacts.
    reason: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum ImportStatus {
    Imported,
    Changed,
    Same,
    Skipped,
    Failed,
}

pub(crate) async fn run(common: &CommonArguments, arguments: Arguments) -> Result<CommandOutcome> {
    let client = arguments.from.as_deref().and_then(McpClientKind::parse);
    let places = match &arguments.file {
        Some(file) => vec![ClientConfigFile::read_named(file, client)?],
        None => ClientConfigFile::read_default_paths(common, client)?,
    };
    let session = if arguments.dry_run {
        CliSession::open_read_only(common).await?
    } else {
        CliSession::open_offline(common).await?
    };
    let lines = import_all(&session, &places, arguments.dry_run).await;
    session.close().await;
    let lines = lines?;
    let warnings: Vec<String> =
        places.iter().flat_map(|place| &place.warnings).map(ConfigDiagnostic::to_string).collect();
    for warning in &warnings {
        common.hint(&format!("warning: {warning}"));
    }
    if common.json {
        output::print_json(&json!({ "results": lines, "warnings": warnings, "dry_run": arguments.dry_run }))?;
    } else {
        for line in &lines {
            output::print_line(&line.render(arguments.dry_run))?;
        }
        if lines.iter().any(|line| matches!(line.status, ImportStatus::Imported | ImportStatus::Changed))
            && !arguments.dry_run
        {
            common.hint("hint: `toolcrib tools` discovers them, `toolcrib sources` shows how they stand");
        }
    }
    let failed = lines.iter().any(|line| line.status == ImportStatus::Failed);
    Ok(if failed { CommandOutcome::Failure } else { CommandOutcome::Success })
}

async fn import_all(session: &CliSession, places: &[ClientConfigFile], dry_run: bool) -> Result<Vec<ImportResult>> {
    let mut lines = Vec::new();
    let mut seen: BTreeMap<SourceId, (&Source, &str)> = BTreeMap::new();
    for place in places {
        lines.extend(place.faults.iter().map(|fault| ImportResult::failure(None, &place.file, fault.to_string())));
        for ConfiguredSource { id, source, .. } in &place.declarations {
            let source = match source {
                Ok(source) => source,
                Err(faults) => {
                    let reason = faults.iter().map(ConfigDiagnostic::to_string).collect::<Vec<_>>().join("; ");
                    lines.push(ImportResult::failure(Some(id.clone()), &place.file, reason));
                    continue;
                }
            };
            let first = *seen.entry(id.clone()).or_insert((source, &place.file));
            let (status, reason) = match first {
                (other, file) if other != source => {
                    (ImportStatus::Skipped, format!("`{file}` declares that name otherwise, and goes first"))
                }
                _ => import_source(session, source, dry_run).await?,
            };
            lines.push(ImportResult { source: Some(id.clone()), status, file: place.file.clone(), reason });
        }
    }
    Ok(lines)
}

async fn import_source(session: &CliSession, source: &Source, dry_run: bool) -> Result<(ImportStatus, String)> {
    if let Some(place) = session.loaded_config.declared_at(&source.id) {
        return Ok((ImportStatus::Skipped, format!("`{place}` declares that name, and the configuration wins")));
    }
    let declared = match dry_run {
        true => session.registry.preview_declare(source)?,
        false => session.registry.declare_lazily(source, CliSession::actor()).await?,
    };
    let status = match declared {
        DeclareOutcome::New => ImportStatus::Imported,
        DeclareOutcome::Changed => ImportStatus::Changed,
        DeclareOutcome::Same => ImportStatus::Same,
    };
    Ok((status, source_summary::summarize_source(source)))
}

impl ImportResult {
    fn failure(source: Option<SourceId>, file: &str, reason: String) -> ImportResult {
        ImportResult { source, status: ImportStatus::Failed, file: file.to_owned(), reason }
    }

    fn render(&self, dry_run: bool) -> String {
        let ImportResult { status, file, reason, .. } = self;
        let source = self.source.as_ref().map_or("?", SourceId::as_str);
        let would = if dry_run { "would be " } else { "" };
        match status {
            ImportStatus::Imported => format!("{source}: {would}imported from `{file}`: {reason}"),
            ImportStatus::Changed => format!("{source}: {would}changed to what `{file}` says: {reason}"),
            ImportStatus::Same => format!("{source}: already there, as `{file}` says"),
            ImportStatus::Skipped => format!("{source}: skipped: {reason}"),
            ImportStatus::Failed => format!("{source}: failed: {reason}"),
        }
    }
}
