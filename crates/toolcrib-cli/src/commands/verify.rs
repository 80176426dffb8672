//! `toolcrib verify`: checks that the journal is complete and that the catalogue equals its replay; with
//! `--accept-damage` continues with a damaged journal. Makes no network requests and starts no process.
//!
//! The checks themselves are `StoreMaintenance::verify` of the library. Exit code 0 means that no fault was found,
//! apart from damage that was accepted before. There are two ways to accept damage: a record in the same file while
//! SQLite is sound, else a new file that is filled with what can be read.

use std::path::PathBuf;

use clap::Args;
use serde::Serialize;
use toolcrib::registry::{DamageAcceptance, Verification};
use toolcrib::{Result, store};

use crate::arguments::CommonArguments;
use crate::exit::CommandOutcome;
use crate::plural::pluralize;
use crate::session::{CliSession, store_url};

/// Check the journal for missing or corrupt records, and the catalogue against a replay of it
///
/// A journal that lost records is damaged: lists can be read, but calls and changes are refused, because a lost record
/// may have revoked a token or disabled a tool. Without a backup, `--accept-damage` continues with what can be read.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  toolcrib verify
  toolcrib verify --json | jq .faults
  toolcrib verify --accept-damage       continue with a damaged journal; every token is revoked

Exit code 1 when something is wrong.")]
pub(crate) struct Arguments {
    /// Record that the damage is accepted, and continue with what can be read; revokes every stored token
    #[arg(long)]
    accept_damage: bool,
}

/// Advice on a store with missing or corrupt tool lists.
pub(crate) const REFRESH_ADVICE: &str = "`toolcrib refresh --force` fetches the tool lists again";
/// Advice on a damaged journal.
pub(crate) const DAMAGE_ADVICE: &str = "stop Toolcrib and restore a backup of the store, or continue with the readable records: \
                                        `toolcrib verify --accept-damage`, which revokes every stored token";

/// The report as printed with `--json`.
#[derive(Debug, Serialize)]
struct VerifyReport {
    #[serde(flatten)]
    verification: Verification,
    #[serde(skip_serializing_if = "Option::is_none")]
    acceptance: Option<AcceptedDamage>,
}

/// Result of `--accept-damage`.
#[derive(Debug, Serialize)]
struct AcceptedDamage {
    #[serde(flatten)]
    record: DamageAcceptance,
    /// Path of the old store file, if a new store was created.
    #[serde(rename = "set_aside")]
    moved_to: Option<PathBuf>,
}

/// Verifies the store, after accepting damage if requested.
pub(crate) async fn run(common: &CommonArguments, arguments: Arguments) -> Result<CommandOutcome> {
    let session = CliSession::open_for_maintenance(common).await?;
    let (session, acceptance) =
        if arguments.accept_damage { accept_damage(common, session).await? } else { (session, None) };
    let verification = session.registry.store().verify().await;
    session.close().await;
    let report = VerifyReport { verification: verification?, acceptance };
    common.print(&report, || render_report(&report, arguments.accept_damage))?;
    // A record of a newer version that must not be ignored counts as a failure, too.
    let is_sound = report.verification.faults.is_empty() && report.verification.upgrade.is_none();
    Ok(if is_sound { CommandOutcome::Success } else { CommandOutcome::Failure })
}

/// Records that the damage is accepted, if there is any. If the store file cannot be appended to any more, creates a new
/// store with what can be read of it and keeps the old file under another name.
async fn accept_damage(common: &CommonArguments, session: CliSession) -> Result<(CliSession, Option<AcceptedDamage>)> {
    // Damage can be recorded in the same file as long as SQLite itself is sound.
    if !session.registry.store().needs_new_store() && session.registry.store().integrity_faults().await.is_empty() {
        let record = session.registry.store().accept_damage(CliSession::actor()).await?;
        return Ok((session, record.map(|record| AcceptedDamage { record, moved_to: None })));
    }
    // Read everything before closing: rebuilding moves the file.
    let damage = session.registry.store().describe_damage().await;
    let salvage = session.registry.store().salvage().await?;
    // Taken before the session closes: the location of the file, and the time that becomes part of its new name.
    let store_url = store_url(common, &session.loaded_config, &session.data_directory)?;
    let now = session.registry.now();
    session.close().await;
    let moved_to = store::rebuild_store(&store_url, &salvage, now).await?;
    let session = CliSession::open_for_maintenance(common).await?;
    let record = session.registry.store().accept_described_damage(damage, CliSession::actor()).await?;
    Ok((session, Some(AcceptedDamage { record, moved_to })))
}

/// Renders the report for people.
fn render_report(report: &VerifyReport, accept_requested: bool) -> String {
    let Verification { records, manifests, feature_lists, unknown_events, upgrade, damage, accepted, faults, .. } =
        &report.verification;
    let mut lines = match (&report.acceptance, accept_requested) {
        (Some(acceptance), _) => acceptance_lines(acceptance),
        // `--accept-damage` on a sound store changes nothing and is no failure.
        (None, true) => vec!["nothing is damaged, so there is nothing to accept".to_owned()],
        (None, false) => Vec::new(),
    };
    let journal_records = pluralize(*records as usize, "journal record");
    lines.push(format!("verified {journal_records} and {}", pluralize(*manifests, "tool list")));
    if *feature_lists > 0 {
        lines.push(format!("verified the prompts and resources of {}", pluralize(*feature_lists, "source")));
    }
    if *unknown_events > 0 {
        let skipped = pluralize(*unknown_events as usize, "record");
        lines.push(format!("skipped {skipped} written by a newer version of Toolcrib"));
    }
    lines.extend(
        upgrade
            .iter()
            .map(|reason| format!("fault: {reason}; calls and changes are refused until Toolcrib is upgraded")),
    );
    // Damage that this run accepted is listed above already.
    if report.acceptance.is_none() {
        lines.extend(accepted.iter().map(|fault| format!("accepted before: {fault}")));
    }
    if faults.is_empty() {
        lines.push("the journal is complete, and the catalogue matches a replay of it".to_owned());
        return lines.join("\n");
    }
    lines.extend(faults.iter().map(|fault| format!("fault: {fault}")));
    if damage.is_empty() {
        lines.push(REFRESH_ADVICE.to_owned());
    } else {
        lines.push(
            "the journal is damaged: tokens that were revoked, tools and sources that were disabled, and sources, groups, \
             access rules and policies that were added at run time may be lost with its records, so calls and changes are refused"
                .to_owned(),
        );
        lines.push(DAMAGE_ADVICE.to_owned());
    }
    lines.join("\n")
}

/// Renders what was accepted, and what to check by hand because it may be lost. The lists have what could be read; a
/// lost record may have added to them or taken from them.
fn acceptance_lines(acceptance: &AcceptedDamage) -> Vec<String> {
    let AcceptedDamage { record: recorded, moved_to } = acceptance;
    let list = |names: &[String]| if names.is_empty() { "none".to_owned() } else { names.join(", ") };
    let mut lines: Vec<String> = recorded.damage.iter().map(|fault| format!("accepted: {fault}")).collect();
    if let Some(path) = moved_to {
        lines.push(format!(
            "created a new store with the readable records; the old file is `{}`; restart a running `toolcrib serve`",
            path.display()
        ));
    }
    lines.push(format!("every stored token is revoked; known by name: {}", list(&recorded.revoked_tokens)));
    lines.push("compare these lists with what you expect, and declare or disable again what is missing:".to_owned());
    lines.push(format!("  sources disabled: {}", list(&recorded.disabled_sources)));
    lines.push(format!("  tools disabled: {}", list(&recorded.disabled_tools)));
    lines.push(format!("  sources added at run time: {}", list(&recorded.runtime_sources)));
    lines.push(format!("  rules defined at run time: {}", list(&recorded.runtime_rules)));
    lines.push(format!("the decision is record {} of the journal", recorded.seq));
    lines
}
