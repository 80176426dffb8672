//! The house itself: configuration, trust, data directory, store, environment, guard.

use std::path::{Path, PathBuf};
use std::time::Duration;

use toolcrib::config_file::{self, LoadedConfig};
use toolcrib::core::config::overrides_from_env;
use toolcrib::guard::{GuardExe, Launch, clean_env};
use toolcrib::registry::Verification;
use toolcrib::{Error, Result};

use super::DoctorCheck;
use crate::arguments::CommonArguments;
use crate::commands::verify;
use crate::plural::pluralize;
use crate::session::CliSession;

pub(super) fn check_config(found: &LoadedConfig) -> Vec<DoctorCheck> {
    let count = pluralize(found.config.sources.len(), "source");
    let own = config_file::user_config_file().filter(|file| file.is_file());
    let message = match (&found.file, own) {
        (Some(file), _) => format!("`{}` is read; {count} declared", file.display()),
        (None, Some(own)) => format!("`{}` is read; {count} declared", own.display()),
        (None, None) => "no file here; sources come from `toolcrib add`".to_owned(),
    };
    let mut checks = vec![DoctorCheck::ok("config", message)];
    for warning in &found.config.warnings {
        checks.push(DoctorCheck::warn("config", warning.to_string(), "remove the key, or write what Toolcrib knows"));
    }
    checks
}

/// A file that cannot be used at all: each of its faults.
pub(super) fn config_errors(error: &Error) -> Vec<DoctorCheck> {
    let fix = || Some("correct the file, then run `toolcrib doctor` again; until then no command works".to_owned());
    error.message.lines().map(|fault| DoctorCheck::fail("config", fault, fix())).collect()
}

pub(super) fn check_trust(found: &LoadedConfig) -> Option<DoctorCheck> {
    let project = found.project.as_ref()?;
    if project.is_trusted() {
        return Some(DoctorCheck::ok("trust", format!("`{}` is trusted", project.file.display())));
    }
    let message =
        format!("{}, so none of its sources is contacted and nothing else of it holds", project.untrusted_reason());
    Some(DoctorCheck::fail("trust", message, Some("look at it, then run `toolcrib trust`".into())))
}

/// Whether the data directory can be written, and by nobody else. One that is not there yet is made by the store.
pub(super) fn check_data_directory(common: &CommonArguments, data: &Result<PathBuf>) -> Option<DoctorCheck> {
    if common.store.is_some() {
        return None;
    }
    let directory = match data {
        Ok(directory) => directory,
        Err(error) => return Some(DoctorCheck::fail("data", error.message.clone(), None)),
    };
    let shown = directory.display();
    if !directory.exists() {
        return Some(DoctorCheck::ok("data", format!("`{shown}` is made now")));
    }
    if let Err(error) = test_write(directory) {
        let fix = format!("make it yours (`chown`, `chmod u+rwx {shown}`), or choose another with `--data DIR`");
        return Some(DoctorCheck::fail("data", format!("`{shown}` cannot be written: {error}"), Some(fix)));
    }
    if is_writable_by_others(directory) {
        let message = format!("others may write to `{shown}`, and what lies there decides which commands are run");
        return Some(DoctorCheck::warn("data", message, format!("chmod 700 {shown}")));
    }
    Some(DoctorCheck::ok("data", format!("`{shown}` is writable, by its owner alone")))
}

fn test_write(directory: &Path) -> std::io::Result<()> {
    let probe = directory.join(format!(".doctor-{:016x}", rand::random::<u64>()));
    std::fs::write(&probe, b"")?;
    std::fs::remove_file(&probe)
}

#[cfg(unix)]
fn is_writable_by_others(directory: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;

    std::fs::metadata(directory).is_ok_and(|metadata| metadata.permissions().mode() & 0o022 != 0)
}

#[cfg(not(unix))]
fn open_to_others(_: &Path) -> bool {
    false
}

/// That the store opened is known by now; whether it is whole is not.
pub(super) async fn check_store(session: &CliSession) -> Vec<DoctorCheck> {
    let place = match &session.common.store {
        Some(url) => url.split(':').next().unwrap_or_default().to_owned(),
        None => format!("`{}`", session.data_directory.display()),
    };
    match session.registry.verify().await {
        Ok(found) if found.faults.is_empty() => {
            let message = format!("{place} opens; {} records, whole", found.records);
            [DoctorCheck::ok("store", message)].into_iter().chain(check_newer_records(&found)).collect()
        }
        Ok(found) => {
            let newer = check_newer_records(&found);
            let fix = if found.damage.is_empty() { verify::REFRESH_ADVICE } else { verify::DAMAGE_ADVICE };
            let faults = found.faults.into_iter().map(|fault| DoctorCheck::fail("store", fault, Some(fix.to_owned())));
            faults.chain(newer).collect()
        }
        Err(error) => vec![DoctorCheck::fail("store", error.message, None)],
    }
}

/// Records that only a newer Toolcrib understands.
fn check_newer_records(found: &Verification) -> Option<DoctorCheck> {
    let newer = found.unknown_events;
    match &found.upgrade {
        Some(reason) => {
            let fix =
                "use the newer Toolcrib; until then lists and history can be read, and nothing is called or written";
            Some(DoctorCheck::fail("store", reason.clone(), Some(fix.to_owned())))
        }
        None if newer > 0 => {
            let message = format!("{newer} records were written by a newer Toolcrib and are passed over");
            Some(DoctorCheck::warn("store", message, "use the newer Toolcrib"))
        }
        None => None,
    }
}

/// Variables that override nothing are most likely slips.
pub(super) fn check_variables(session: &CliSession) -> Vec<DoctorCheck> {
    let sources = session.registry.sources();
    let variables = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.to_string_lossy().into_owned())));
    let faults = overrides_from_env(variables, sources.iter().map(|source| &source.id)).errors;
    let warn = |fault: &toolcrib::core::config::ConfigDiagnostic| {
        DoctorCheck::warn("environment", fault.to_string(), "correct the variable, or unset it")
    };
    faults.iter().map(warn).collect()
}

/// Starts a program that does nothing, the way servers are started.
pub(super) async fn check_guard() -> DoctorCheck {
    const GUARD_TIMEOUT: Duration = Duration::from_secs(10);
    let guard = GuardExe::detect();
    if guard == GuardExe::None {
        let message = "servers are started without a guard on this system: what they leave behind may outlive us";
        return DoctorCheck::warn("guard", message, "end Toolcrib in order, not by force");
    }
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
        Err(_) => DoctorCheck::fail("guard", "a process that does nothing did not end under the guard", fix()),
    }
}
