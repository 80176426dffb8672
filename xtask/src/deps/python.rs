//! Packages from PyPI in a virtual environment: reference servers and the Python SDK.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::paths::WorkspacePaths;
use crate::process::run_logged_checked;

const REQUIREMENTS: &str = include_str!("../../deps/requirements.txt");

/// The requirements with their versions.
pub(super) const PINS: [&str; 1] = [REQUIREMENTS];
/// Program of one of the servers.
pub(super) const MARKER_FILE: &str = "venv/bin/mcp-server-git";

/// Creates the virtual environment anew and installs the requirements.
pub(super) fn fetch(paths: &WorkspacePaths) -> Result<(), String> {
    let log = paths.deps_dir.join("python.log");
    let venv = paths.deps_dir.join("venv");
    super::ensure_program("python3", "--version", "python3", &log)?;
    create_venv(&venv, &log).or_else(|_| {
        // Debian ships the module `venv` in a package of its own.
        super::install_package("python3-venv", &log)?;
        create_venv(&venv, &log)
    })?;
    let list = paths.deps_dir.join("requirements.txt");
    fs::write(&list, REQUIREMENTS).map_err(|error| format!("write `requirements.txt`: {error}"))?;
    let mut command = Command::new(venv.join("bin/python"));
    command.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--requirement"]).arg(list);
    run_logged_checked(&mut command, &log, super::FETCH_TIMEOUT)
}

/// Fetches one package into a virtual environment of its own, unless an earlier run did, and returns its interpreter.
pub(super) fn fetch_package(paths: &WorkspacePaths, package: &str) -> Result<PathBuf, String> {
    let log = paths.deps_dir.join("python.log");
    let venv = paths.deps_dir.join(package.replace("==", "-"));
    let python = venv.join("bin/python");
    // Written last, so that an interrupted fetch is repeated.
    let done = venv.join("fetched");
    if !done.exists() {
        fs::create_dir_all(&paths.deps_dir)
            .map_err(|error| format!("prepare `{}`: {error}", paths.deps_dir.display()))?;
        create_venv(&venv, &log)?;
        let mut command = Command::new(&python);
        command.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", package]);
        run_logged_checked(&mut command, &log, super::FETCH_TIMEOUT)?;
        fs::write(&done, package).map_err(|error| format!("write `{}`: {error}", done.display()))?;
    }
    Ok(python)
}

/// Creates an empty virtual environment, in place of an existing one.
fn create_venv(venv: &Path, log: &Path) -> Result<(), String> {
    let mut command = Command::new("python3");
    run_logged_checked(command.args(["-m", "venv", "--clear"]).arg(venv), log, super::FETCH_TIMEOUT)
}
