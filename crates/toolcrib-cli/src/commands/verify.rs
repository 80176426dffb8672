//! `toolcrib verify`: that the journal is whole and the catalogue equals its replay. Contacts nobody.

use clap::Args;
use toolcrib::Result;
use toolcrib::registry::Verification;

use crate::arguments::Common;
use crate::desk::Desk;
use crate::exit::Done;
use crate::output;
use crate::wording::counted;

/// Check that the journal is whole and that the catalogue equals its replay
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  toolcrib verify
  toolcrib verify --json | jq .faults

Exit code 1 when something is wrong.")]
pub(crate) struct Arguments {}

/// What helps a store that is not whole.
pub(crate) const REMEDY: &str = "`toolcrib refresh --force` fetches lists anew; if the fault stays, move the store away: \
                                 the catalogue is built anew from the configuration";

pub(crate) async fn run(common: &Common, _: Arguments) -> Result<Done> {
    let desk = Desk::manage(common).await?;
    let verification = desk.registry.verify().await;
    desk.close().await;
    let verification = verification?;
    if common.json {
        output::json(&verification)?;
    } else {
        output::line(&readable(&verification))?;
    }
    let sound = verification.faults.is_empty() && verification.upgrade.is_none();
    Ok(if sound { Done::Well } else { Done::Failed })
}

fn readable(verification: &Verification) -> String {
    let Verification { records, manifests, unknown_events, upgrade, faults } = verification;
    let mut lines =
        vec![format!("read {records} records of the journal, and {} of tools", counted(*manifests, "list"))];
    if *unknown_events > 0 {
        lines.push(format!("{unknown_events} records are of a newer Toolcrib and were passed over"));
    }
    lines.extend(upgrade.iter().map(|reason| format!("fault: {reason}; until then nothing is called or written")));
    match &faults[..] {
        [] => lines.push("the journal is whole, and the catalogue equals its replay".to_owned()),
        faults => {
            lines.extend(faults.iter().map(|fault| format!("fault: {fault}")));
            lines.push(REMEDY.to_owned());
        }
    }
    lines.join("\n")
}
