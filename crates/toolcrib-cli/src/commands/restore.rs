//! `toolcrib restore`: fills the store from a backup, verified.

use std::path::PathBuf;

use clap::Args;
use serde::Serialize;
use toolcrib::Result;
use toolcrib::clock::Clock;
use toolcrib::store::{self, CopyReport, ExistingStore};

use crate::arguments::CommonArguments;
use crate::commands::store::{render_copy, warn_about_missing_content};
use crate::copy_progress::CopyProgressLine;
use crate::session::locate_store;

/// Fill the store from a backup, verified
///
/// The store must be empty. With `--replace`, a store in a file is kept under another name; empty a PostgreSQL database
/// yourself. Stop the servers that use the store first. Tokens that were revoked after the backup are valid again.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  toolcrib restore toolcrib-backup.db
  toolcrib restore toolcrib-backup.db --replace
  toolcrib --store postgres://db.internal/toolcrib restore toolcrib-backup.db")]
pub(crate) struct Arguments {
    /// Backup that `toolcrib backup` wrote
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Keep the current store file as `FILE.replaced-TIME`, and restore in its place
    #[arg(long)]
    replace: bool,
}

/// The report as printed with `--json`.
#[derive(Debug, Serialize)]
struct RestoreReport {
    #[serde(flatten)]
    copy: CopyReport,
    /// Path of the old store file.
    #[serde(rename = "set_aside", skip_serializing_if = "Option::is_none")]
    moved_to: Option<PathBuf>,
}

/// Restores the backup.
pub(crate) async fn run(common: &CommonArguments, arguments: Arguments) -> Result<()> {
    let (location, data) = locate_store(common)?;
    let existing = if arguments.replace { ExistingStore::MoveAside } else { ExistingStore::Refuse };
    let line = CopyProgressLine::new(common);
    let show = |progress| line.show(progress);
    let restored =
        store::restore_backup(&arguments.file, &location, &data, existing, Clock::system().now(), &show).await;
    line.clear();
    let restored = restored?;
    let report = RestoreReport { copy: restored.copy, moved_to: restored.moved_to };
    warn_about_missing_content(common, &report.copy);
    common.print(&report, || {
        let kept = report.moved_to.as_ref().map(|path| format!("\nthe store before is kept as `{}`", path.display()));
        format!("{}{}", render_copy(&report.copy), kept.unwrap_or_default())
    })
}
