//! Checks of Toolcrib's own environment: configuration, trust, data directory, store, variables and guard.
//!
//! All checks are local. Only [`check_guard`] starts a process (`true`), and [`check_data_directory`] writes and
//! removes a file.

use std::path::{Path, PathBuf};
use std::time::Duration;

use toolcrib::config_file::{self, LoadedConfig};
use toolcrib::guard::{GuardExe, Launch, clean_env};
use toolcrib::registry::Verification;
use toolcrib::{Error, Result};

use super::DoctorCheck;
use crate::arguments::CommonArguments;
use crate::commands::verify;
use crate::plural::pluralize;
use crate::session::{CliSession, names_store, store_url};

/// Reports which configuration file is used, and its warnings.
pub(super) fn check_config(loaded_config: &LoadedConfig) -> Vec<DoctorCheck> {
    let count = pluralize(loaded_config.config.sources.len(), "source");
    let user_file = config_file::user_config_file().filter(|file| file.is_file());
    // The project file has priority in the message; the user's own file is merged below it.
    let message = match loaded_config.file.as_ref().or(user_file.as_ref()) {
        Some(file) => format!("`{}` is loaded; {count} declared", file.display()),
        None => "no file here; sources come from `toolcrib add`".to_owned(),
    };
    let mut checks = vec![DoctorCheck::ok("config", message)];
    for warning in &loaded_config.config.warnings {
        checks.push(DoctorCheck::warn("config", warning.to_string(), "remove the key, or correct its spelling"));
    }
    checks
}

/// Reports each error of a configuration file that cannot be used at all.
pub(super) fn config_errors(error: &Error) -> Vec<DoctorCheck> {
    let fix = || Some("correct the file, then run `toolcrib doctor` again; until then no command works".to_owned());
    error.message.lines().map(|fault| DoctorCheck::fail("config", fault, fix())).collect()
}

/// Reports whether the project file is trusted; `None` without one. A failure, because none of its sources can be
/// used.
pub(super) fn check_trust(loaded_config: &LoadedConfig) -> Option<DoctorCheck> {
    let project = loaded_config.project.as_ref()?;
    if project.is_trusted() {
        return Some(DoctorCheck::ok("trust", format!("`{}` is trusted", project.file.display())));
    }
    let message =
        format!("{}, so none of its sources is contacted and none of its settings apply", project.untrusted_reason());
    Some(DoctorCheck::fail("trust", message, Some("review it, then run `toolcrib trust`".into())))
}

/// Checks that the data directory is writable by its owner only. A missing one is created when the store is opened.
pub(super) fn check_data_directory(
    common: &CommonArguments,
    loaded_config: &LoadedConfig,
    directory: &Result<PathBuf>,
) -> Option<DoctorCheck> {
    // If the store is elsewhere, the data directory holds none, so its permissions matter less.
    if names_store(common, loaded_config) {
        return None;
    }
    let directory = match directory {
        Ok(directory) => directory,
        Err(error) => return Some(DoctorCheck::fail("data", error.message.clone(), None)),
    };
    let path = directory.display();
    if !directory.exists() {
        return Some(DoctorCheck::ok("data", format!("`{path}` is created now")));
    }
    if let Err(error) = test_write(directory) {
        let fix = format!("take ownership (`chown`, `chmod u+rwx {path}`), or choose another with `--data DIR`");
        return Some(DoctorCheck::fail("data", format!("`{path}` cannot be written: {error}"), Some(fix)));
    }
    // The directory decides what Toolcrib executes, so write access of others is a privilege problem.
    if is_writable_by_others(directory) {
        let message = format!("other users can write to `{path}`, whose store decides which commands are run");
        return Some(DoctorCheck::warn("data", message, format!("chmod 700 {path}")));
    }
    Some(DoctorCheck::ok("data", format!("`{path}` is writable by its owner only")))
}

/// Creates and removes a file.
fn test_write(directory: &Path) -> std::io::Result<()> {
    // A random name, so that concurrent runs do not collide.
    let probe = directory.join(format!(".doctor-{:016x}", rand::random::<u64>()));
    std::fs::write(&probe, b"")?;
    std::fs::remove_file(&probe)
}

#[cfg(unix)]
fn is_writable_by_others(directory: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;

    // The group and world write bits.
    std::fs::metadata(directory).is_ok_and(|metadata| metadata.permissions().mode() & 0o022 != 0)
}

#[cfg(not(unix))]
fn is_writable_by_others(_: &Path) -> bool {
    false
}

/// Verifies the integrity of the opened store, as `toolcrib verify` does.
pub(super) async fn check_store(session: &CliSession) -> Vec<DoctorCheck> {
    // Only the scheme of a store URL: the path is of no interest here.
    let location = match store_url(&session.common, &session.loaded_config, &session.data_directory) {
        Ok(url) if names_store(&session.common, &session.loaded_config) => {
            url.split(':').next().unwrap_or_default().to_owned()
        }
        Ok(_) | Err(_) => format!("`{}`", session.data_directory.display()),
    };
    match session.registry.store().verify().await {
        Ok(verification) if verification.faults.is_empty() => {
            let records = pluralize(verification.records as usize, "record");
            let message = format!("{location} can be opened; {records}, none damaged");
            [DoctorCheck::ok("store", message)].into_iter().chain(check_newer_records(&verification)).collect()
        }
        Ok(verification) => {
            let newer = check_newer_records(&verification);
            // Missing tool lists can be fetched again, lost records cannot.
            let fix = if verification.damage.is_empty() { verify::REFRESH_ADVICE } else { verify::DAMAGE_ADVICE };
            let faults =
                verification.faults.into_iter().map(|fault| DoctorCheck::fail("store", fault, Some(fix.to_owned())));
            faults.chain(newer).collect()
        }
        Err(error) => vec![DoctorCheck::fail("store", error.message, None)],
    }
}

/// Reports journal records that only a newer version of Toolcrib understands.
fn check_newer_records(verification: &Verification) -> Option<DoctorCheck> {
    let newer = verification.unknown_events;
    match &verification.upgrade {
        Some(reason) => {
            let fix = "use the newer Toolcrib; until then tool lists and history can be read, but calls and changes are refused";
            Some(DoctorCheck::fail("store", reason.clone(), Some(fix.to_owned())))
        }
        None if newer > 0 => {
            let records = pluralize(newer as usize, "record");
            let message = format!("skipped {records} written by a newer version of Toolcrib");
            Some(DoctorCheck::warn("store", message, "use the newer Toolcrib"))
        }
        None => None,
    }
}

/// Warns about `TOOLCRIB_SOURCE_*` variables that cannot be used, such as misspelt ones.
pub(super) fn check_variables(session: &CliSession) -> Vec<DoctorCheck> {
    let faults = session.registry.sources().environment_errors();
    let warn = |fault: &toolcrib::config::ConfigDiagnostic| {
        DoctorCheck::warn("environment", fault.to_string(), "correct the variable, or unset it")
    };
    faults.iter().map(warn).collect()
}

/// Starts `true` through the guard, as MCP servers are started, and waits for its end.
pub(super) async fn check_guard() -> DoctorCheck {
    /// Generous, because a loaded machine may start processes slowly.
    const GUARD_TIMEOUT: Duration = Duration::from_secs(10);
    let guard = GuardExe::detect();
    if guard == GuardExe::None {
        let message = "servers are started without a guard on this system: their child processes may outlive Toolcrib";
        return DoctorCheck::warn("guard", message, "stop Toolcrib with a signal that it can handle, not with SIGKILL");
    }
    // The same clean environment and launch path as for real servers.
    let env = clean_env(std::env::vars_os(), &[]);
    let launch = Launch { program: "true".into(), args: Vec::new(), env, cwd: None };
    let fix = || Some("check that this system allows Toolcrib to start processes".to_owned());
    let mut server = match guard.start(launch).await {
        Ok(server) => server,
        Err(error) => return DoctorCheck::fail("guard", error.message, fix()),
    };
    match tokio::time::timeout(GUARD_TIMEOUT, server.wait()).await {
        Ok(Ok(status)) if status.success() => {
            DoctorCheck::ok("guard", "a process was started and ended through the guard")
        }
        Ok(Ok(status)) => DoctorCheck::fail("guard", format!("`true` ended with {status} under the guard"), fix()),
        Ok(Err(error)) => DoctorCheck::fail("guard", format!("the guard cannot be waited for: {error}"), fix()),
        Err(_) => DoctorCheck::fail("guard", "`true` did not end under the guard within 10 s", fix()),
    }
}
