//! The packages from PyPI, in a virtual environment of their own: reference servers and the Python SDK.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::place::Place;
use crate::process::quiet_success;

const REQUIREMENTS: &str = include_str!("../../deps/requirements.txt");

pub(super) const PINS: [&str; 1] = [REQUIREMENTS];
pub(super) const PROOF: &str = "venv/bin/mcp-server-git";

pub(super) fn fetch(place: &Place) -> Result<(), String> {
    let log = place.deps.join("python.log");
    let venv = place.deps.join("venv");
    super::need("python3", "python3", &log)?;
    make(&venv, &log).or_else(|_| {
        // Debian keeps the module apart from Python.
        super::install("python3-venv", &log)?;
        make(&venv, &log)
    })?;
    let list = place.deps.join("requirements.txt");
    fs::write(&list, REQUIREMENTS).map_err(|error| format!("write `requirements.txt`: {error}"))?;
    let mut command = Command::new(venv.join("bin/python"));
    command.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--requirement"]).arg(list);
    quiet_success(&mut command, &log, super::FETCH_DEADLINE)
}

/// One package in an environment of its own; found there by a second run.
pub(super) fn fetch_peer(place: &Place, package: &str) -> Result<PathBuf, String> {
    let (log, venv) = (place.deps.join("python.log"), place.deps.join(package.replace("==", "-")));
    let (python, done) = (venv.join("bin/python"), venv.join("fetched"));
    if !done.exists() {
        fs::create_dir_all(&place.deps).map_err(|error| format!("prepare `{}`: {error}", place.deps.display()))?;
        make(&venv, &log)?;
        let mut command = Command::new(&python);
        command.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", package]);
        quiet_success(&mut command, &log, super::FETCH_DEADLINE)?;
        fs::write(&done, package).map_err(|error| format!("write `{}`: {error}", done.display()))?;
    }
    Ok(python)
}

fn make(venv: &Path, log: &Path) -> Result<(), String> {
    let mut command = Command::new("python3");
    quiet_success(command.args(["-m", "venv", "--clear"]).arg(venv), log, super::FETCH_DEADLINE)
}
