//! The house itself: configuration, trust, data directory, store, environment, guard.

use std::path::{Path, PathBuf};
use std::time::Duration;

use toolcrib::config_file::{self, Found};
use toolcrib::core::config::overrides;
use toolcrib::guard::{GuardExe, Launch, clean_env};
use toolcrib::registry::Verification;
use toolcrib::{Error, Result};

use super::Check;
use crate::arguments::Common;
use crate::commands::verify;
use crate::desk::Desk;
use crate::wording::counted;

pub(super) fn config(found: &Found) -> Vec<Check> {
    let count = counted(found.config.sources.len(), "source");
    let own = config_file::user_file().filter(|file| file.is_file());
    let message = match (&found.file, own) {
        (Some(file), _) => format!("`{}` is read; {count} declared", file.display()),
        (None, Some(own)) => format!("`{}` is read; {count} declared", own.display()),
        (None, None) => "no file here; sources come from `toolcrib add`".to_owned(),
    };
    let mut checks = vec![Check::ok("config", message)];
    for warning in &found.config.warnings {
        checks.push(Check::warn("config", warning.to_string(), "remove the key, or write what Toolcrib knows"));
    }
    checks
}

/// A file that cannot be used at all: each of its faults.
pub(super) fn unreadable(error: &Error) -> Vec<Check> {
    let fix = || Some("correct the file, then run `toolcrib doctor` again; until then no command works".to_owned());
    error.message.lines().map(|fault| Check::fail("config", fault, fix())).collect()
}

pub(super) fn trust(found: &Found) -> Option<Check> {
    let project = found.project.as_ref()?;
    if project.is_trusted() {
        return Some(Check::ok("trust", format!("`{}` is trusted", project.file.display())));
    }
    let message =
        format!("{}, so none of its sources is contacted and nothing else of it holds", project.not_trusted());
    Some(Check::fail("trust", message, Some("look at it, then run `toolcrib trust`".into())))
}

/// Whether the data directory can be written, and by nobody else. One that is not there yet is made by the store.
pub(super) fn data(common: &Common, data: &Result<PathBuf>) -> Option<Check> {
    if common.store.is_some() {
        return None;
    }
    let directory = match data {
        Ok(directory) => directory,
        Err(error) => return Some(Check::fail("data", error.message.clone(), None)),
    };
    let shown = directory.display();
    if !directory.exists() {
        return Some(Check::ok("data", format!("`{shown}` is made now")));
    }
    if let Err(error) = try_writing(directory) {
        let fix = format!("make it yours (`chown`, `chmod u+rwx {shown}`), or choose another with `--data DIR`");
        return Some(Check::fail("data", format!("`{shown}` cannot be written: {error}"), Some(fix)));
    }
    if open_to_others(directory) {
        let message = format!("others may write to `{shown}`, and what lies there decides which commands are run");
        return Some(Check::warn("data", message, format!("chmod 700 {shown}")));
    }
    Some(Check::ok("data", format!("`{shown}` is writable, by its owner alone")))
}

fn try_writing(directory: &Path) -> std::io::Result<()> {
    let probe = directory.join(format!(".doctor-{:016x}", rand::random::<u64>()));
    std::fs::write(&probe, b"")?;
    std::fs::remove_file(&probe)
}

#[cfg(unix)]
fn open_to_others(directory: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;

    std::fs::metadata(directory).is_ok_and(|metadata| metadata.permissions().mode() & 0o022 != 0)
}

#[cfg(not(unix))]
fn open_to_others(_: &Path) -> bool {
    false
}

/// That the store opened is known by now; whether it is whole is not.
pub(super) async fn store(desk: &Desk) -> Vec<Check> {
    let place = match &desk.common.store {
        Some(url) => url.split(':').next().unwrap_or_default().to_owned(),
        None => format!("`{}`", desk.data.display()),
    };
    match desk.registry.verify().await {
        Ok(found) if found.faults.is_empty() => {
            let message = format!("{place} opens; {} records, whole", found.records);
            [Check::ok("store", message)].into_iter().chain(newer_records(&found)).collect()
        }
        Ok(found) => {
            let newer = newer_records(&found);
            let fix = if found.damage.is_empty() { verify::REMEDY } else { verify::DAMAGE_REMEDY };
            let faults = found.faults.into_iter().map(|fault| Check::fail("store", fault, Some(fix.to_owned())));
            faults.chain(newer).collect()
        }
        Err(error) => vec![Check::fail("store", error.message, None)],
    }
}

/// Records that only a newer Toolcrib understands.
fn newer_records(found: &Verification) -> Option<Check> {
    let newer = found.unknown_events;
    match &found.upgrade {
        Some(reason) => {
            let fix =
                "use the newer Toolcrib; until then lists and history can be read, and nothing is called or written";
            Some(Check::fail("store", reason.clone(), Some(fix.to_owned())))
        }
        None if newer > 0 => {
            let message = format!("{newer} records were written by a newer Toolcrib and are passed over");
            Some(Check::warn("store", message, "use the newer Toolcrib"))
        }
        None => None,
    }
}

/// Variables that override nothing are most likely slips.
pub(super) fn environment(desk: &Desk) -> Vec<Check> {
    let sources = desk.registry.sources();
    let variables = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.to_string_lossy().into_owned())));
    let faults = overrides(variables, sources.iter().map(|source| &source.id)).faults;
    let warn = |fault: &toolcrib::core::config::Fault| {
        Check::warn("environment", fault.to_string(), "correct the variable, or unset it")
    };
    faults.iter().map(warn).collect()
}

/// Starts a program that does nothing, the way servers are started.
pub(super) async fn guard() -> Check {
    const PATIENCE: Duration = Duration::from_secs(10);
    let guard = GuardExe::detect();
    if guard == GuardExe::None {
        let message = "servers are started without a guard on this system: what they leave behind may outlive us";
        return Check::warn("guard", message, "end Toolcrib in order, not by force");
    }
    let env = clean_env(std::env::vars_os(), &[]);
    let launch = Launch { program: "true".into(), args: Vec::new(), env, cwd: None };
    let fix = || Some("check that this system allows Toolcrib to start processes".to_owned());
    let mut server = match guard.start(launch).await {
        Ok(server) => server,
        Err(error) => return Check::fail("guard", error.message, fix()),
    };
    match tokio::time::timeout(PATIENCE, server.wait()).await {
        Ok(Ok(status)) if status.success() => Check::ok("guard", "a process was started and ended through the guard"),
        Ok(Ok(status)) => Check::fail("guard", format!("`true` ended with {status} under the guard"), fix()),
        Ok(Err(error)) => Check::fail("guard", format!("the guard cannot be waited for: {error}"), fix()),
        Err(_) => Check::fail("guard", "a process that does nothing did not end under the guard", fix()),
    }
}
