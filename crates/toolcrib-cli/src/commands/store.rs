//! `toolcrib store`: copies a store into another one, removes what a store does not need any more, and reports or
//! finishes migrations of its schema. The work is done by the library. Makes no requests to sources.

use std::time::Duration;

use clap::{Args, Subcommand};
use serde_json::json;
use toolcrib::core::time::parse_long_duration;
use toolcrib::store::{self, CopyReport, PruneMode, PruneReport};
use toolcrib::{Code, Error, Result};

use crate::arguments::CommonArguments;
use crate::copy_progress::CopyProgressLine;
use crate::plural::pluralize;
use crate::session::{CliSession, locate_store};

/// Copy a store into another one, remove what it does not need, or migrate it
///
/// A copy is exact and verified. Interrupted at any point, the same command continues it; until it is finished, nothing
/// else uses the target.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  toolcrib store copy --from sqlite:data/toolcrib.db --to postgres://db.internal/toolcrib
  toolcrib store copy --from postgres://db.internal/toolcrib --to ./data
  toolcrib store prune --dry-run
  toolcrib store migrate")]
pub(crate) struct Arguments {
    #[command(subcommand)]
    action: StoreCommand,
}

// The subcommands; not a doc comment, which clap would show as help.
#[derive(Debug, Subcommand)]
enum StoreCommand {
    Copy(CopyArguments),
    Prune(PruneArguments),
    Migrate(MigrateArguments),
}

/// Copy all records, tool lists, definitions and measurements into an empty store, and compare both
///
/// The source may be in use. It must not be damaged, and the target must be empty or an unfinished copy of the source.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  toolcrib store copy --from sqlite:data/toolcrib.db --to postgres://db.internal/toolcrib
  toolcrib store copy --from ./data --to sqlite:/srv/toolcrib/toolcrib.db --json

Interrupted, it continues when it is run again.")]
struct CopyArguments {
    /// Store to read: `sqlite:FILE`, `postgres://…`, or a data directory; other users can see a password in arguments,
    /// so set the variable PGPASSWORD instead
    #[arg(long, value_name = "URL")]
    from: String,
    /// Empty store to fill: `sqlite:FILE`, `postgres://…`, or a data directory; a password as for `--from`
    #[arg(long, value_name = "URL")]
    to: String,
}

/// Remove old checks, counts of unknown tools, expired logins, and definitions and tool lists that nothing refers to
///
/// Records are never removed, nor tool lists that a record refers to. May run while servers use the store.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  toolcrib store prune --dry-run
  toolcrib store prune
  toolcrib store prune --keep-checks 7d")]
struct PruneArguments {
    /// Only count what would be removed
    #[arg(long)]
    dry_run: bool,
    /// Age up to which the checks of sources are kept, such as `12h` or `30d`
    #[arg(long, value_name = "TIME", default_value = "30d", value_parser = parse_age)]
    keep_checks: Duration,
}

/// Migrate the store to the schema of this version, and print the schema version
///
/// Opening a store migrates it. On PostgreSQL, the previous version of Toolcrib goes on working with a migrated store
/// until `--contract` finishes the migration.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  toolcrib store migrate
  toolcrib --store postgres://db.internal/toolcrib store migrate --contract")]
struct MigrateArguments {
    /// Finish migrations that the previous version still understands; stop all nodes of that version first
    #[arg(long)]
    contract: bool,
}

/// Runs the subcommand.
pub(crate) async fn run(common: &CommonArguments, arguments: Arguments) -> Result<()> {
    match arguments.action {
        StoreCommand::Copy(arguments) => copy(common, &arguments).await,
        StoreCommand::Prune(arguments) => prune(common, &arguments).await,
        StoreCommand::Migrate(arguments) => migrate(common, &arguments).await,
    }
}

/// Copies one store into another.
async fn copy(common: &CommonArguments, arguments: &CopyArguments) -> Result<()> {
    if common.store.is_some() {
        let message = "`store copy` does not use `--store`; name both stores by `--from` and `--to`";
        return Err(Error::new(Code::BadRequest, message));
    }
    store::ensure_lasting(&arguments.from)?;
    store::ensure_lasting(&arguments.to)?;
    if store::is_same_location(&arguments.from, &arguments.to)? {
        return Err(Error::new(Code::ConfigInvalid, "`--from` and `--to` name the same store; name another target"));
    }
    let from = store::open_existing(&arguments.from).await?;
    let copied = match store::open_copy_target(&arguments.to).await {
        Ok(to) => {
            let line = CopyProgressLine::new(common);
            let copied = store::copy_store(&from, &*to, &|progress| line.show(progress)).await;
            line.clear();
            to.close().await;
            copied
        }
        Err(error) => Err(error),
    };
    from.store.close().await;
    let report = copied?;
    store::remember_copy(&arguments.to, common.data.as_deref(), &report).await?;
    warn_about_missing_content(common, &report);
    common.print(&report, || render_copy(&report))
}

/// Prints a warning if the source has lost tool lists or definitions.
pub(crate) fn warn_about_missing_content(common: &CommonArguments, report: &CopyReport) {
    if report.missing > 0 {
        let missing = pluralize(report.missing, "item");
        common.hint(&format!(
            "warning: the source lacks {missing} (definitions or tool lists) that its records refer to; run \
             `toolcrib verify`"
        ));
    }
}

/// Renders the verified counts of a copy.
pub(crate) fn render_copy(report: &CopyReport) -> String {
    let mut counts = vec![
        pluralize(usize::try_from(report.records).unwrap_or(usize::MAX), "record"),
        pluralize(report.manifests, "tool list"),
        pluralize(report.definitions, "definition"),
    ];
    if report.features > 0 {
        counts.push(pluralize(report.features, "list") + " of prompts and resources");
    }
    format!("copied and verified {}", counts.join(", "))
}

/// Removes what the configured store does not need.
async fn prune(common: &CommonArguments, arguments: &PruneArguments) -> Result<()> {
    let mode = if arguments.dry_run { PruneMode::Count } else { PruneMode::Remove };
    let session = CliSession::open_for_maintenance(common).await?;
    let prune = async |session: &CliSession| session.registry.store().prune(arguments.keep_checks, mode).await;
    let report = session.run_and_close(prune).await?;
    common.print(&report, || render_prune(&report, mode))
}

/// Renders what was removed, or would be.
fn render_prune(report: &PruneReport, mode: PruneMode) -> String {
    if report.total() == 0 {
        return "there is nothing to remove".to_owned();
    }
    let rows = [
        (report.checks, "check"),
        (report.counts, "count"),
        (report.token_uses, "last use"),
        (report.logins, "expired login"),
        (report.definitions, "definition"),
        (report.manifests, "tool list"),
    ];
    let rows = rows.into_iter().filter(|(count, _)| *count > 0);
    let rows: Vec<String> =
        rows.map(|(count, noun)| pluralize(usize::try_from(count).unwrap_or(usize::MAX), noun)).collect();
    let verb = if mode == PruneMode::Remove { "removed" } else { "would remove" };
    format!("{verb} {}", rows.join(", "))
}

/// Opens the configured store, which migrates it, and finishes migrations if requested.
async fn migrate(common: &CommonArguments, arguments: &MigrateArguments) -> Result<()> {
    let (location, _) = locate_store(common)?;
    let opened = store::open_existing(&location).await?;
    let migrated = async {
        let administration = opened.store.administration();
        let finished = arguments.contract && administration.migrate_contract().await?;
        Ok((administration.schema_status().await?, finished))
    };
    let migrated: Result<_> = migrated.await;
    opened.store.close().await;
    let (status, finished) = migrated?;
    let report = json!({
        "version": status.version,
        "contract_pending": status.is_contract_pending,
        "contracted": finished,
    });
    common.print(&report, || {
        let note = match (status.is_contract_pending, arguments.contract, finished) {
            (_, _, true) => "; the migration is finished, and versions before this one cannot use the store any more",
            (true, _, _) => {
                "; `toolcrib store migrate --contract` finishes the migration once no node has an older version"
            }
            (false, true, false) => "; there is nothing to finish",
            (false, false, false) => "",
        };
        format!("the store has schema version {}{note}", status.version)
    })
}

/// Parses an age, for clap.
fn parse_age(text: &str) -> Result<Duration, String> {
    parse_long_duration(text).ok_or_else(|| "write `12h`, `30d` or `8w`".to_owned())
}
