//! The packages from PyPI, in a virtual environment of their own: reference servers and the Python SDK.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::paths::WorkspacePaths;
use crate::process::run_logged_checked;

const REQUIREMENTS: &str = include_str!("../../deps/requirements.txt");

pub(super) const PINS: [&str; 1] = [REQUIREMENTS];
pub(super) const MARKER_FILE: &str = "venv/bin/mcp-server-git";

pub(super) fn fetch(place: &WorkspacePaths) -> Result<(), String> {
    let log = place.deps_dir.join("python.log");
    let venv = place.deps_dir.join("venv");
    super::ensure_program("python3", "python3", &log)?;
    create_venv(&venv, &log).or_else(|_| {
        // Debian keeps the module apart from Python.
        super::install_package("python3-venv", &log)?;
        create_venv(&venv, &log)
    })?;
    let list = place.deps_dir.join("requirements.txt");
    fs::write(&list, REQUIREMENTS).map_err(|error| format!("write `requirements.txt`: {error}"))?;
    let mut command = Command::new(venv.join("bin/python"));
    command.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--requirement"]).arg(list);
    run_logged_checked(&mut command, &log, super::FETCH_TIMEOUT)
}

/// One package in an environment of its own; found there by a second run.
pub(super) fn fetch_package(place: &WorkspacePaths, package: &str) -> Result<PathBuf, String> {
    let (log, venv) = (place.deps_dir.join("python.log"), place.deps_dir.join(package.replace("==", "-")));
    let (python, done) = (venv.join("bin/python"), venv.join("fetched"));
    if !done.exists() {
        fs::create_dir_all(&place.deps_dir)
            .map_err(|error| format!("prepare `{}`: {error}", place.deps_dir.display()))?;
        create_venv(&venv, &log)?;
        let mut command = Command::new(&python);
        command.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", package]);
        run_logged_checked(&mut command, &log, super::FETCH_TIMEOUT)?;
        fs::write(&done, package).map_err(|error| format!("write `{}`: {error}", done.display()))?;
    }
    Ok(python)
}

fn create_venv(venv: &Path, log: &Path) -> Result<(), String> {
    let mut command = Command::new("python3");
    run_logged_checked(command.args(["-m", "venv", "--clear"]).arg(venv), log, super::FETCH_TIMEOUT)
}
