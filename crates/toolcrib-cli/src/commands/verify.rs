//! `toolcrib verify`: that the journal is whole and the catalogue equals its replay. Makes no network requests and starts no
//! process.

use std::path::PathBuf;

use clap::Args;
use serde::Serialize;
use toolcrib::registry::{DamageAcceptance, Verification};
use toolcrib::{Result, store};

use crate::arguments::CommonArguments;
use crate::exit::CommandOutcome;
use crate::output;
use crate::plural::pluralize;
use crate::session::{CliSession, store_url};

/// Check that the journal is whole and that the catalogue equals its replay
///
/// A journal that lost records is damaged: lists can be read, and nothing is called or written, because a lost record may have
/// revoked a token or disabled a tool. Where no backup is at hand, `--accept-damage` goes on with what can be read.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  toolcrib verify
  toolcrib verify --json | jq .faults
  toolcrib verify --accept-damage       go on with a damaged journal; every token is revoked

Exit code 1 when something is wrong.")]
pub(crate) struct Arguments {
    /// Record that the damage is accepted, and go on with what can be read; revokes every stored token
    #[arg(long)]
    accept_damage: bool,
}

/// What helps a store that is not whole.
pub(crate) const REFRESH_ADVICE: &str = "`toolcrib refresh --force` fetches lists anew";
/// What helps a damaged one.
pub(crate) const DAMAGE_ADVICE: &str = "stop Toolcrib and put a backup of the store back, or go on with what can be read: \
                                        `toolcrib verify --accept-damage`, which revokes every stored token";

#[derive(Debug, Serialize)]
struct VerifyReport {
    #[serde(flatten)]
    verification: Verification,
    #[serde(skip_serializing_if = "Option::is_none")]
    acceptance: Option<AcceptedDamage>,
}

/// What accepting the damage did.
#[derive(Debug, Serialize)]
struct AcceptedDamage {
    #[serde(flatten)]
    record: DamageAcceptance,
    /// Where the old file lies, when a new store was begun.
    set_aside: Option<PathBuf>,
}

pub(crate) async fn run(common: &CommonArguments, arguments: Arguments) -> Result<CommandOutcome> {
    let session = CliSession::open_offline(common).await?;
    let (session, acceptance) = match arguments.accept_damage {
        true => accept_damage(common, session).await?,
        false => (session, None),
    };
    let verification = session.registry.verify().await;
    session.close().await;
    let output = VerifyReport { verification: verification?, acceptance };
    if common.json {
        output::print_json(&output)?;
    } else {
        output::print_line(&render_report(&output, arguments.accept_damage))?;
    }
    let sound = output.verification.faults.is_empty() && output.verification.upgrade.is_none();
    Ok(if sound { CommandOutcome::Success } else { CommandOutcome::Failure })
}

/// Accepts what is damaged, if anything is. Where nothing can be appended to the file any more, a new store is begun with what
/// can be read of it, and the old file is kept under another name.
async fn accept_damage(common: &CommonArguments, session: CliSession) -> Result<(CliSession, Option<AcceptedDamage>)> {
    if !session.registry.needs_new_store() && session.registry.integrity_faults().await.is_empty() {
        let recorded = session.registry.accept_damage(CliSession::actor()).await?;
        return Ok((session, recorded.map(|recorded| AcceptedDamage { record: recorded, set_aside: None })));
    }
    let damage = session.registry.describe_damage().await;
    let salvage = session.registry.salvage().await?;
    let place = store_url(common, &session.data_directory);
    let now = session.registry.now();
    session.close().await;
    let set_aside = store::rebuild_store(&place, &salvage, now).await?;
    let session = CliSession::open_offline(common).await?;
    let recorded = session.registry.accept_described_damage(damage, CliSession::actor()).await?;
    Ok((session, Some(AcceptedDamage { record: recorded, set_aside })))
}

fn render_report(output: &VerifyReport, asked_to_accept: bool) -> String {
    let Verification { records, manifests, unknown_events, upgrade, damage, accepted, faults, .. } =
        &output.verification;
    let mut lines = match (&output.acceptance, asked_to_accept) {
        (Some(acceptance), _) => acceptance_lines(acceptance),
        (None, true) => vec!["nothing is damaged, so that there is nothing to accept".to_owned()],
        (None, false) => Vec::new(),
    };
    lines.push(format!("read {records} records of the journal, and {} of tools", pluralize(*manifests, "list")));
    if *unknown_events > 0 {
        lines.push(format!("{unknown_events} records are of a newer Toolcrib and were passed over"));
    }
    lines.extend(upgrade.iter().map(|reason| format!("fault: {reason}; until then nothing is called or written")));
    if output.acceptance.is_none() {
        lines.extend(accepted.iter().map(|fault| format!("accepted before: {fault}")));
    }
    if faults.is_empty() {
        lines.push("the journal is whole, and the catalogue equals its replay".to_owned());
        return lines.join("\n");
    }
    lines.extend(faults.iter().map(|fault| format!("fault: {fault}")));
    if damage.is_empty() {
        lines.push(REFRESH_ADVICE.to_owned());
    } else {
        lines.push(
            "the journal is damaged: tokens that were revoked, tools and sources that were disabled and sources that were \
             added at run time may be lost with its records, so nothing is called or written"
                .to_owned(),
        );
        lines.push(DAMAGE_ADVICE.to_owned());
    }
    lines.join("\n")
}

fn acceptance_lines(acceptance: &AcceptedDamage) -> Vec<String> {
    let AcceptedDamage { record: recorded, set_aside } = acceptance;
    let list = |names: &[String]| if names.is_empty() { "none".to_owned() } else { names.join(", ") };
    let mut lines: Vec<String> = recorded.damage.iter().map(|fault| format!("accepted: {fault}")).collect();
    if let Some(path) = set_aside {
        lines.push(format!(
            "a new store was begun with what could be read; the old file is `{}`; restart a `toolcrib serve` that runs",
            path.display()
        ));
    }
    lines.push(format!("every stored token is revoked; known by name: {}", list(&recorded.revoked_tokens)));
    lines.push("check what else may be lost, and declare or disable it again where it is:".to_owned());
    lines.push(format!("  sources disabled: {}", list(&recorded.disabled_sources)));
    lines.push(format!("  tools disabled: {}", list(&recorded.disabled_tools)));
    lines.push(format!("  sources added at run time: {}", list(&recorded.runtime_sources)));
    lines.push(format!("the decision is record {} of the journal", recorded.seq));
    lines
}
