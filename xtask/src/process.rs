//! Starts other programs: with their output on the terminal, or with a log file of which the end is printed on failure.
//!
//! Output on the terminal is for programs that a person watches (cargo). A log file is for noisy ones (npm, pip, the
//! conformance suite); it has a deadline, because a hanging one would not be noticed.

use std::env;
use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::paths::WorkspacePaths;
use crate::report::StepStatus;

/// Cargo as a user would call it. Without the variables that `cargo run` sets for this program, which make build
/// scripts (the one of `ring`, for example) run again; with two jobs unless `CARGO_BUILD_JOBS` is set.
pub(crate) fn cargo(paths: &WorkspacePaths, arguments: &[&str]) -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(arguments).current_dir(&paths.root);
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

/// Runs a command with its output on the terminal and without a deadline. The detail of a failure is the exit status;
/// the reason was printed by the program.
pub(crate) fn run_visible(mut command: Command) -> StepStatus {
    match command.status() {
        Ok(status) if status.success() => StepStatus::Passed(String::new()),
        Ok(status) => StepStatus::Failed(status.to_string()),
        Err(error) => StepStatus::Failed(format!("start `{}`: {error}", command.get_program().to_string_lossy())),
    }
}

/// Runs a command with its output in a file and kills it at the deadline. Any exit status is `Ok`; an error means that
/// the command could not be started or took too long. Only the process itself is killed, not its children.
pub(crate) fn run_logged(command: &mut Command, log: &Path, deadline: Duration) -> Result<ExitStatus, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let describe = |action: &str, error: std::io::Error| format!("{action} `{name}`: {error}");
    let out = File::create(log).map_err(|error| describe("write the log of", error))?;
    let err = out.try_clone().map_err(|error| describe("write the log of", error))?;
    // Without stdin a program that asks a question fails at once instead of waiting for an answer.
    command.stdin(Stdio::null()).stdout(out).stderr(err);
    let mut child = command.spawn().map_err(|error| describe("start", error))?;
    let start = Instant::now();
    loop {
        // Polled, since the standard library has no wait with a deadline.
        match child.try_wait().map_err(|error| describe("wait for", error))? {
            Some(status) => return Ok(status),
            None if start.elapsed() < deadline => thread::sleep(Duration::from_millis(20)),
            None => break,
        }
    }
    child.kill().and_then(|()| child.wait()).map_err(|error| describe("end", error))?;
    Err(format!("`{name}` took longer than {} s", deadline.as_secs()))
}

/// Like [`run_logged`], but an exit code other than 0 is an error with the last lines of the log.
pub(crate) fn run_logged_checked(command: &mut Command, log: &Path, deadline: Duration) -> Result<(), String> {
    let status = run_logged(command, log, deadline)?;
    if status.success() {
        return Ok(());
    }
    let name = command.get_program().to_string_lossy().into_owned();
    Err(format!("`{name}` ended with {status}\n{}", log_tail(log, 15)))
}

/// Whether a program is installed and exits with 0 for the given argument.
pub(crate) fn is_available(program: &str, argument: &str) -> bool {
    let mut command = Command::new(program);
    command.arg(argument).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// The last lines of a log, indented for the report.
fn log_tail(log: &Path, count: usize) -> String {
    let text = fs::read(log).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    let start = lines.len().saturating_sub(count);
    lines.get(start..).unwrap_or_default().iter().map(|line| format!("    {line}\n")).collect()
}
