//! `toolcrib import`: declares the MCP servers of other clients (Claude Desktop, Cursor, …) at run time. They are kept in
//! the store, which only its owner can read, because such files contain literal secrets. Contacts no source.
//!
//! Files are read first, all of them, and then declared one server at a time. One invalid server or file does not stop
//! the others; each has a line in the result, and the exit code is 1 if any failed. Names are those of the client,
//! made valid as source ids.

mod client_files;

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::Args;
use serde::Serialize;
use serde_json::json;
use toolcrib::config::{ConfigDiagnostic, ConfiguredSource, McpClientKind};
use toolcrib::registry::DeclareOutcome;
use toolcrib::{Result, Source, SourceId};

use crate::arguments::CommonArguments;
use crate::exit::CommandOutcome;
use crate::session::CliSession;
use crate::{output, source_summary};
use client_files::ClientConfigFile;

/// Declare the sources of another client's configuration, without contacting them
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  toolcrib import                          servers of all known clients, from their usual paths
  toolcrib import --from cursor --dry-run
  toolcrib import ~/backup/claude_desktop_config.json

A server that the configuration already declares is skipped.")]
pub(crate) struct Arguments {
    /// A client's file; by default the usual paths of all clients
    file: Option<PathBuf>,
    /// The client that the configuration belongs to
    #[arg(long, value_name = "CLIENT", value_parser = McpClientKind::ALL.map(McpClientKind::as_str))]
    from: Option<String>,
    /// Print what would be imported, and change nothing
    #[arg(long)]
    dry_run: bool,
}

/// Result for one server, as printed with `--json`.
#[derive(Debug, Serialize)]
struct ImportResult {
    /// `None` for a file that cannot be read.
    source: Option<SourceId>,
    status: ImportStatus,
    file: String,
    /// Why it was skipped or failed; otherwise its command or address.
    reason: String,
}

/// The outcome for one server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum ImportStatus {
    /// Declared for the first time.
    Imported,
    /// Replaced a declaration that was made at run time.
    Changed,
    /// Already declared like this; nothing was written.
    Same,
    /// Another declaration of the name takes precedence.
    Skipped,
    /// The file or the declaration is invalid.
    Failed,
}

/// Reads the files of other clients, then declares their servers.
pub(crate) async fn run(common: &CommonArguments, arguments: Arguments) -> Result<CommandOutcome> {
    // Read the files before opening the store: an unreadable named file changes nothing.
    let client = arguments.from.as_deref().and_then(McpClientKind::parse);
    let config_files = match &arguments.file {
        Some(file) => vec![ClientConfigFile::read_named(file, client)?],
        None => ClientConfigFile::read_default_paths(common, client)?,
    };
    // Opening a store creates it; a dry run must not.
    let session = if arguments.dry_run {
        CliSession::open_without_records(common).await?
    } else {
        CliSession::open_offline(common).await?
    };
    let import = async |session: &CliSession| import_all(session, &config_files, arguments.dry_run).await;
    let results = session.run_and_close(import).await?;
    let warnings: Vec<String> =
        config_files.iter().flat_map(|config_file| &config_file.warnings).map(ConfigDiagnostic::to_string).collect();
    for warning in &warnings {
        common.hint(&format!("warning: {warning}"));
    }
    if common.json {
        output::print_json(&json!({ "results": results, "warnings": warnings, "dry_run": arguments.dry_run }))?;
    } else {
        for result in &results {
            output::print_line(&result.render(arguments.dry_run))?;
        }
        if results.iter().any(|result| matches!(result.status, ImportStatus::Imported | ImportStatus::Changed))
            && !arguments.dry_run
        {
            common.hint("hint: `toolcrib tools` discovers them, `toolcrib sources` shows their status");
        }
    }
    let failed = results.iter().any(|result| result.status == ImportStatus::Failed);
    Ok(if failed { CommandOutcome::Failure } else { CommandOutcome::Success })
}

/// Imports every server of the files. When two files declare the same name differently, the first one takes precedence.
async fn import_all(
    session: &CliSession,
    config_files: &[ClientConfigFile],
    dry_run: bool,
) -> Result<Vec<ImportResult>> {
    let mut results = Vec::new();
    // The first declaration of each id, with its file.
    let mut seen: BTreeMap<SourceId, (&Source, &str)> = BTreeMap::new();
    for config_file in config_files {
        // Errors of the file itself, such as invalid JSON.
        results.extend(
            config_file.faults.iter().map(|fault| ImportResult::failure(None, &config_file.file, fault.to_string())),
        );
        for ConfiguredSource { id, source, .. } in &config_file.declarations {
            let source = match source {
                Ok(source) => source,
                // A server with an invalid declaration fails alone.
                Err(faults) => {
                    let reason = faults.iter().map(ConfigDiagnostic::to_string).collect::<Vec<_>>().join("; ");
                    results.push(ImportResult::failure(Some(id.clone()), &config_file.file, reason));
                    continue;
                }
            };
            // The first file in the order of clients takes precedence; an equal declaration in a second file is
            // harmless.
            let first = *seen.entry(id.clone()).or_insert((source, &config_file.file));
            let (status, reason) = match first {
                (other, file) if other != source => {
                    (ImportStatus::Skipped, format!("`{file}` declares that name differently, and is read first"))
                }
                _ => import_source(session, source, dry_run).await?,
            };
            results.push(ImportResult { source: Some(id.clone()), status, file: config_file.file.clone(), reason });
        }
    }
    Ok(results)
}

/// Declares one source, unless the configuration has one with that name. A dry run computes the same outcome without
/// writing. The text is the reason for a skip, else the command or address.
async fn import_source(session: &CliSession, source: &Source, dry_run: bool) -> Result<(ImportStatus, String)> {
    if let Some(location) = session.loaded_config.declared_at(&source.id) {
        return Ok((
            ImportStatus::Skipped,
            format!("`{location}` declares that name, and the configuration takes precedence"),
        ));
    }
    let outcome = if dry_run {
        session.registry.sources().preview_declare(source)?
    } else {
        session.registry.sources().declare_lazily(source, CliSession::actor()).await?
    };
    let status = match outcome {
        DeclareOutcome::New => ImportStatus::Imported,
        DeclareOutcome::Changed => ImportStatus::Changed,
        DeclareOutcome::Same => ImportStatus::Same,
    };
    Ok((status, source_summary::summarize_source(source)))
}

impl ImportResult {
    /// A failed import.
    fn failure(source: Option<SourceId>, file: &str, reason: String) -> ImportResult {
        ImportResult { source, status: ImportStatus::Failed, file: file.to_owned(), reason }
    }

    /// Renders the result as one line for people.
    fn render(&self, dry_run: bool) -> String {
        let ImportResult { status, file, reason, .. } = self;
        let source = self.source.as_ref().map_or("?", SourceId::as_str);
        let would = if dry_run { "would be " } else { "" };
        match status {
            ImportStatus::Imported => format!("{source}: {would}imported from `{file}`: {reason}"),
            ImportStatus::Changed => format!("{source}: {would}updated from `{file}`: {reason}"),
            ImportStatus::Same => format!("{source}: already declared as in `{file}`"),
            ImportStatus::Skipped => format!("{source}: skipped: {reason}"),
            ImportStatus::Failed => format!("{source}: failed: {reason}"),
        }
    }
}
