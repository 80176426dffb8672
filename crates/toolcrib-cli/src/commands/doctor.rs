//! `toolcrib doctor`: what is wrong, and how to put it right. Contacts nobody unless asked to.

mod house;
mod remedy;
mod sources;

use clap::Args;
use serde::Serialize;
use serde_json::json;
use toolcrib::{Refresh, Result};

use crate::arguments::Common;
use crate::desk::{self, Desk};
use crate::exit::Done;
use crate::wording::counted;
use crate::{output, paint, progress};

/// Say what is wrong and how to put it right
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  toolcrib doctor
  toolcrib doctor --probe
  toolcrib doctor --json | jq '.checks[] | select(.status != \"ok\")'

Exit code 1 when a check fails; a warning alone leaves it 0.")]
pub(crate) struct Arguments {
    /// Contact every enabled source now, and say how it answers
    #[arg(long)]
    probe: bool,
}

/// One thing that was looked at.
#[derive(Debug, Serialize)]
struct Check {
    name: String,
    status: Status,
    message: String,
    fix: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Status {
    Ok,
    Warn,
    Fail,
}

pub(crate) async fn run(common: &Common, arguments: Arguments) -> Result<Done> {
    // What the desk would hint at is said here in the checks; and a doctor asks for nobody's trust.
    let silent = Common { quiet: true, json: true, ..common.clone() };
    let mut checks = Vec::new();
    match desk::find(&silent) {
        Ok(found) => {
            checks.extend(house::config(&found));
            checks.extend(house::trust(&found));
            let data = desk::data_directory(&silent, &found);
            checks.extend(house::data(&silent, &data));
            checks.extend(look_closer(&silent, common, &arguments).await);
        }
        Err(error) => checks.extend(house::unreadable(&error)),
    }
    checks.push(house::guard().await);
    let failed = checks.iter().filter(|check| check.status == Status::Fail).count();
    if common.json {
        output::json(&json!({ "checks": checks }))?;
    } else {
        output::line(&readable(&checks))?;
    }
    Ok(if failed > 0 { Done::Failed } else { Done::Well })
}

/// What can only be seen with the store open.
async fn look_closer(silent: &Common, common: &Common, arguments: &Arguments) -> Vec<Check> {
    let desk = match Desk::open(silent).await {
        Ok(desk) => desk,
        Err(error) => return vec![Check::fail("store", error.message, None)],
    };
    let mut checks = house::store(&desk).await;
    checks.extend(house::environment(&desk));
    let outcomes = match arguments.probe {
        true => {
            let refresh = Refresh { force: true, ..Refresh::default() };
            progress::shown(&desk.registry, common.quiet, desk.registry.refresh(refresh)).await
        }
        false => Vec::new(),
    };
    let found = desk.registry.sources();
    if found.is_empty() {
        let fix = "`toolcrib add NAME -- COMMAND` declares one, `toolcrib import` brings those of another client";
        checks.push(Check::ok("sources", "none yet").with_fix(fix));
    }
    for source in &found {
        let outcome = outcomes.iter().find(|outcome| outcome.source == source.id);
        checks.extend(sources::checks(&desk, source, outcome));
    }
    desk.close().await;
    checks
}

impl Check {
    fn ok(name: impl Into<String>, message: impl Into<String>) -> Check {
        Check { name: name.into(), status: Status::Ok, message: message.into(), fix: None }
    }

    fn warn(name: impl Into<String>, message: impl Into<String>, fix: impl Into<String>) -> Check {
        Check { name: name.into(), status: Status::Warn, message: message.into(), fix: Some(fix.into()) }
    }

    fn fail(name: impl Into<String>, message: impl Into<String>, fix: Option<String>) -> Check {
        Check { name: name.into(), status: Status::Fail, message: message.into(), fix }
    }

    fn with_fix(mut self, fix: impl Into<String>) -> Check {
        self.fix = Some(fix.into());
        self
    }
}

fn readable(checks: &[Check]) -> String {
    let widest = checks.iter().map(|check| check.name.len()).max().unwrap_or(0);
    let mut text = String::new();
    for Check { name, status, message, fix } in checks {
        let mark = match status {
            Status::Ok => paint::good("ok  "),
            Status::Warn => paint::doubtful("warn"),
            Status::Fail => paint::bad("FAIL"),
        };
        let margin = " ".repeat(4 + 2 + widest + 2);
        let message = message.replace('\n', &format!("\n{margin}"));
        text.push_str(&format!("{mark}  {name:<widest$}  {message}\n"));
        if let Some(fix) = fix {
            text.push_str(&format!("{margin}{} {fix}\n", paint::dim("->")));
        }
    }
    let count = |wanted: Status| checks.iter().filter(|check| check.status == wanted).count();
    let (failed, warned) = (count(Status::Fail), count(Status::Warn));
    text.push_str(&match (failed, warned) {
        (0, 0) => "\nall is well".to_owned(),
        (0, warned) => format!("\nnothing is broken; {}", counted(warned, "warning")),
        (failed, warned) => format!("\n{}, {}", counted(failed, "problem"), counted(warned, "warning")),
    });
    text
}
