//! Starting other programs: in the open, or quietly with a log that is shown when they fail.

use std::env;
use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::paths::WorkspacePaths;
use crate::report::StepStatus;

/// Cargo as the user would call it: without what `cargo run` sets for us, which makes build scripts
/// (ring's, for one) run anew, and with two jobs unless told otherwise.
pub(crate) fn cargo(place: &WorkspacePaths, arguments: &[&str]) -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(arguments).current_dir(&place.root);
    for (name, _) in env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
            command.env_remove(&name);
        }
    }
    if env::var_os("CARGO_BUILD_JOBS").is_none() {
        command.env("CARGO_BUILD_JOBS", "2");
    }
    command
}

/// Runs a command in the open; its own output tells the story.
pub(crate) fn run_visible(mut command: Command) -> StepStatus {
    match command.status() {
        Ok(status) if status.success() => StepStatus::Passed(String::new()),
        Ok(status) => StepStatus::Failed(status.to_string()),
        Err(error) => StepStatus::Failed(format!("start `{}`: {error}", command.get_program().to_string_lossy())),
    }
}

/// Runs a command with its output in a file, for so long and no longer.
pub(crate) fn run_logged(command: &mut Command, log: &Path, deadline: Duration) -> Result<ExitStatus, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let said = |what: &str, error: std::io::Error| format!("{what} `{name}`: {error}");
    let out = File::create(log).map_err(|error| said("write the log of", error))?;
    let err = out.try_clone().map_err(|error| said("write the log of", error))?;
    command.stdin(Stdio::null()).stdout(out).stderr(err);
    let mut child = command.spawn().map_err(|error| said("start", error))?;
    let start = Instant::now();
    loop {
        match child.try_wait().map_err(|error| said("wait for", error))? {
            Some(status) => return Ok(status),
            None if start.elapsed() < deadline => thread::sleep(Duration::from_millis(20)),
            None => break,
        }
    }
    child.kill().and_then(|()| child.wait()).map_err(|error| said("end", error))?;
    Err(format!("`{name}` took longer than {} s", deadline.as_secs()))
}

/// As `quiet`, where anything but success is an error that ends with the last lines of the log.
pub(crate) fn run_logged_checked(command: &mut Command, log: &Path, deadline: Duration) -> Result<(), String> {
    let status = run_logged(command, log, deadline)?;
    if status.success() {
        return Ok(());
    }
    let name = command.get_program().to_string_lossy().into_owned();
    Err(format!("`{name}` ended with {status}\n{}", log_tail(log, 15)))
}

/// Whether a program is there and answers.
pub(crate) fn is_available(program: &str, argument: &str) -> bool {
    let mut command = Command::new(program);
    command.arg(argument).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

fn log_tail(log: &Path, count: usize) -> String {
    let text = fs::read(log).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    let start = lines.len().saturating_sub(count);
    lines.get(start..).unwrap_or_default().iter().map(|line| format!("    {line}\n")).collect()
}
