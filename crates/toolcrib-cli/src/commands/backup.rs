//! `toolcrib backup`: copies the store into a new SQLite file, verified, also while servers use the store.

use std::path::PathBuf;

use clap::Args;
use toolcrib::{Result, store};

use crate::arguments::CommonArguments;
use crate::commands::store::{render_copy, warn_about_missing_content};
use crate::copy_progress::CopyProgressLine;
use crate::session::locate_store;

/// Copy the store into a new file, verified, also while servers use the store
///
/// The file has everything that the store has, also secrets that were given literally; only its owner may read it.
/// `toolcrib restore` reads it. Interrupted, the same command continues; until it is complete, the file is named
/// FILE.partial.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  toolcrib backup toolcrib-backup.db
  toolcrib --store postgres://db.internal/toolcrib backup /backup/toolcrib.db
  toolcrib backup toolcrib-backup.db --json")]
pub(crate) struct Arguments {
    /// New file for the backup
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

/// Copies the store.
pub(crate) async fn run(common: &CommonArguments, arguments: Arguments) -> Result<()> {
    let (location, data) = locate_store(common)?;
    let line = CopyProgressLine::new(common);
    let copied = store::back_up_store(&location, &data, &arguments.file, &|progress| line.show(progress)).await;
    line.clear();
    let report = copied?;
    warn_about_missing_content(common, &report);
    common.print(&report, || format!("{}: {}", arguments.file.display(), render_copy(&report)))
}
