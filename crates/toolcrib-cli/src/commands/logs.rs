//! `toolcrib logs`: prints the latest stderr output of a server.
//!
//! The registry writes one file per stdio source below `logs` in the data directory. Servers that are reached over
//! HTTP keep their own logs.

use clap::Args;
use serde_json::json;
use toolcrib::core::text::sanitize;
use toolcrib::redact::Redactor;
use toolcrib::secret::SecretFiles;
use toolcrib::{Code, Error, Result, SourceId};

use crate::arguments::CommonArguments;
use crate::output;
use crate::session::CliSession;

/// Show the latest stderr output of a server
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  toolcrib logs files\n  toolcrib logs files -n 20")]
pub(crate) struct Arguments {
    /// The source, as `toolcrib sources` lists it
    source: String,
    /// How many lines
    #[arg(short = 'n', long, value_name = "LINES", default_value_t = 50)]
    lines: usize,
}

/// Prints the lines, or a hint why there are none.
pub(crate) async fn run(common: &CommonArguments, arguments: Arguments) -> Result<()> {
    let session = CliSession::open_without_records(common).await?;
    let (id, lines, has_process) = session
        .run_and_close(async |session| {
            let id = session.find_source(&arguments.source)?;
            let lines = read_last_lines(session, &id, arguments.lines).await?;
            let has_process = session.registry.sources().get(&id).is_some_and(|source| source.command.is_some());
            Ok((id, lines, has_process))
        })
        .await?;
    if common.json {
        output::print_json(&json!({ "source": id, "lines": lines }))?;
    } else if !lines.is_empty() {
        output::print_line(&lines.join("\n"))?;
    } else if has_process {
        common.hint(&format!("`{id}` has written nothing to stderr yet"));
    } else {
        common.hint(&format!("`{id}` is not a program that Toolcrib starts, so it has no log"));
    }
    Ok(())
}

/// Reads the last lines of the log, without terminal control characters and with the source's secrets redacted.
async fn read_last_lines(session: &CliSession, id: &SourceId, limit: usize) -> Result<Vec<String>> {
    let path = toolcrib::server_log_path(&session.data_directory.join("logs"), id);
    let text = match tokio::fs::read(&path).await {
        Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        // No file yet: the server was never started, or wrote nothing.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => {
            let message = format!("cannot read `{}`: {error}", path.display());
            return Err(Error::new(Code::Internal, message).with_cause(error));
        }
    };
    // The log was redacted when it was written; redact again with the secrets of the current declaration.
    let text = match session.registry.sources().effective(id) {
        Some(source) => {
            let references = SecretFiles::default().read_for(&source.kind).await;
            Redactor::for_source(&source.kind, &references).redact(&text).into_owned()
        }
        None => text,
    };
    let lines: Vec<String> = sanitize(&text).lines().map(str::to_owned).collect();
    Ok(lines[lines.len().saturating_sub(limit)..].to_vec())
}
