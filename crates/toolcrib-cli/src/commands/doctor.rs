//! `toolcrib doctor`: checks configuration, trust, data directory, store, environment, guard, sources and access rules,
//! with advice on every problem. Makes no network requests and starts no server, except with `--probe`.
//!
//! Each check is a line with a status and, if there is something to do, a fix:
//!
//! ```text
//! ok    config       `toolcrib.yaml` is loaded; 2 sources declared
//! FAIL  source npx   its command `npx` is not found
//!                    -> install Node.js: https://nodejs.org
//! ```
//!
//! Checks are independent: a broken configuration or store is reported, and the remaining checks still run where they
//! can.

mod access;
mod advice;
mod environment;
mod sources;

use clap::Args;
use serde::Serialize;
use serde_json::json;
use toolcrib::{Refresh, Result};

use crate::arguments::CommonArguments;
use crate::exit::CommandOutcome;
use crate::plural::pluralize;
use crate::session::{self, CliSession};
use crate::{color, progress};

/// Check configuration, store and sources, and print how to fix problems
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  toolcrib doctor
  toolcrib doctor --probe
  toolcrib doctor --json | jq '.checks[] | select(.status != \"ok\")'

Exit code 1 when a check fails; a warning alone leaves it 0.")]
pub(crate) struct Arguments {
    /// Contact every enabled source now and report its response
    #[arg(long)]
    probe: bool,
}

/// Result of one check, as printed with `--json`. `fix` may also be set for a passed check, as a hint at what is
/// possible.
#[derive(Debug, Serialize)]
struct DoctorCheck {
    /// `source github`, `store`, …; several checks may share a name.
    name: String,
    status: CheckStatus,
    message: String,
    /// Advice on the problem.
    fix: Option<String>,
}

/// `warn` does not change the exit code, `fail` does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum CheckStatus {
    Ok,
    Warn,
    Fail,
}

/// Runs all checks and prints them. Never fails itself: an unusable configuration or store is a failed check.
pub(crate) async fn run(common: &CommonArguments, arguments: Arguments) -> Result<CommandOutcome> {
    // The checks report what opening a session would print as hints, and must not ask for trust.
    let silent = CommonArguments { quiet: true, json: true, ..common.clone() };
    let mut checks = Vec::new();
    match session::load_config(&silent) {
        Ok(loaded_config) => {
            checks.extend(environment::check_config(&loaded_config));
            checks.extend(environment::check_trust(&loaded_config));
            let data_directory = session::data_directory(&silent, &loaded_config);
            checks.extend(environment::check_data_directory(&silent, &loaded_config, &data_directory));
            checks.extend(check_store_and_sources(&silent, common, &arguments).await);
        }
        // Without a configuration the data directory is unknown, so store and sources cannot be checked.
        Err(error) => checks.extend(environment::config_errors(&error)),
    }
    // Last, and always: it depends neither on configuration nor on store.
    checks.push(environment::check_guard().await);
    let failed = checks.iter().filter(|check| check.status == CheckStatus::Fail).count();
    common.print(&json!({ "checks": checks }), || render_checks(&checks))?;
    Ok(if failed > 0 { CommandOutcome::Failure } else { CommandOutcome::Success })
}

/// Runs the checks that need an open store.
async fn check_store_and_sources(
    silent: &CommonArguments,
    common: &CommonArguments,
    arguments: &Arguments,
) -> Vec<DoctorCheck> {
    let session = match CliSession::open(silent).await {
        Ok(session) => session,
        Err(error) => return vec![DoctorCheck::fail("store", error.message, None)],
    };
    let mut checks = environment::check_store(&session).await;
    checks.extend(environment::check_variables(&session));
    // The refresh happens before the sources are read, so that their status is current.
    let outcomes = if arguments.probe {
        let refresh = Refresh { force: true, ..Refresh::brief() };
        progress::show_progress(&session.registry, common.quiet, session.registry.refresh(refresh)).await
    } else {
        Vec::new()
    };
    let source_views = session.registry.sources().list();
    if source_views.is_empty() && !session.is_damaged() {
        let fix = "`toolcrib add NAME -- COMMAND` declares one, `toolcrib import` imports those of another client";
        checks.push(DoctorCheck::ok("sources", "none yet").with_fix(fix));
    }
    for source in &source_views {
        let outcome = outcomes.iter().find(|outcome| outcome.source == source.id);
        checks.extend(sources::check_source(&session, source, outcome).await);
    }
    checks.extend(access::check_rules(&session));
    session.close().await;
    checks
}

impl DoctorCheck {
    /// A check without a problem.
    fn ok(name: impl Into<String>, message: impl Into<String>) -> DoctorCheck {
        DoctorCheck { name: name.into(), status: CheckStatus::Ok, message: message.into(), fix: None }
    }

    /// A problem that does not stop Toolcrib from working; always has a fix.
    fn warn(name: impl Into<String>, message: impl Into<String>, fix: impl Into<String>) -> DoctorCheck {
        DoctorCheck { name: name.into(), status: CheckStatus::Warn, message: message.into(), fix: Some(fix.into()) }
    }

    /// A problem that stops something from working.
    fn fail(name: impl Into<String>, message: impl Into<String>, fix: Option<String>) -> DoctorCheck {
        DoctorCheck { name: name.into(), status: CheckStatus::Fail, message: message.into(), fix }
    }

    /// Adds advice to a check without a problem.
    fn with_fix(mut self, fix: impl Into<String>) -> DoctorCheck {
        self.fix = Some(fix.into());
        self
    }
}

/// Renders a line per check, its fix below it, and a total.
fn render_checks(checks: &[DoctorCheck]) -> String {
    let widest = checks.iter().map(|check| check.name.len()).max().unwrap_or(0);
    let mut text = String::new();
    for DoctorCheck { name, status, message, fix } in checks {
        let mark = match status {
            CheckStatus::Ok => color::success("ok  "),
            CheckStatus::Warn => color::warning("warn"),
            CheckStatus::Fail => color::failure("FAIL"),
        };
        // Align messages and fixes after status and name.
        let margin = " ".repeat(4 + 2 + widest + 2);
        let message = message.replace('\n', &format!("\n{margin}"));
        text.push_str(&format!("{mark}  {name:<widest$}  {message}\n"));
        if let Some(fix) = fix {
            text.push_str(&format!("{margin}{} {fix}\n", color::dim("->")));
        }
    }
    let count = |status: CheckStatus| checks.iter().filter(|check| check.status == status).count();
    let failed = count(CheckStatus::Fail);
    let warned = count(CheckStatus::Warn);
    text.push_str(&match (failed, warned) {
        (0, 0) => "\nno problems found".to_owned(),
        (0, warned) => format!("\nno problems; {}", pluralize(warned, "warning")),
        (failed, warned) => format!("\n{}, {}", pluralize(failed, "problem"), pluralize(warned, "warning")),
    });
    text
}
