//! What the tests need and the repository does not hold: real MCP servers, the official SDKs, a current
//! Node.js, the conformance suite and a browser. Everything is fetched by package name with the ordinary clients,
//! pinned by the files in `xtask/deps`, into one folder; a second run finds it there.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::paths::WorkspacePaths;
use crate::process::{is_available, run_logged_checked};
use crate::report::{StepReport, StepStatus};

mod browser;
mod npm;
mod python;

/// Something to fetch as a whole.
struct Component {
    name: &'static str,
    /// The pins: when they change, it is fetched anew.
    pins: &'static [&'static str],
    /// Without this file it is not there, whatever the stamp says.
    marker_file: &'static str,
    fetch: fn(&WorkspacePaths) -> Result<(), String>,
}

const COMPONENTS: [Component; 3] = [
    Component { name: "npm packages", pins: &npm::PINS, marker_file: npm::MARKER_FILE, fetch: npm::fetch },
    Component { name: "python packages", pins: &python::PINS, marker_file: python::MARKER_FILE, fetch: python::fetch },
    Component { name: "browser", pins: &browser::PINS, marker_file: browser::MARKER_FILE, fetch: browser::fetch },
];

/// Long enough for a slow network, short enough for an evening.
const FETCH_TIMEOUT: Duration = Duration::from_secs(600);

/// Fetches what is missing, one step a component.
pub(crate) fn fetch(place: &WorkspacePaths, report: &mut StepReport) {
    for component in &COMPONENTS {
        report.run_step(component.name, || match component.ensure_fetched(place) {
            Ok(text) => StepStatus::Passed(text.to_owned()),
            Err(reason) => missing_component(&format!("cannot be had: {reason}")),
        });
    }
    // Of Debian's package, the one program that reads metrics is used.
    report.run_step("promtool", || match ensure_program("promtool", "prometheus", &place.deps_dir.join("apt.log")) {
        Ok(()) => StepStatus::Passed("there".to_owned()),
        Err(reason) => missing_component(&reason),
    });
}

/// A Python with the peer that `bench openapi` compares with. No test needs it.
pub(crate) fn fetch_fastmcp(place: &WorkspacePaths) -> Result<PathBuf, String> {
    python::fetch_package(place, "fastmcp==3.4.10")
}

/// A component that cannot be had: a pity at home, a failure under CI.
pub(crate) fn missing_component(reason: &str) -> StepStatus {
    if std::env::var("CI").is_ok_and(|value| value == "true") {
        return StepStatus::Failed(reason.to_owned());
    }
    StepStatus::Skipped(reason.to_owned())
}

impl Component {
    fn ensure_fetched(&self, place: &WorkspacePaths) -> Result<&'static str, String> {
        let said = |error: std::io::Error| format!("prepare `{}`: {error}", place.deps_dir.display());
        fs::create_dir_all(&place.deps_dir).map_err(said)?;
        // Two runs at once share one folder.
        let lock = File::create(place.deps_dir.join("lock")).map_err(said)?;
        lock.lock().map_err(said)?;

        // A virtual environment holds absolute paths, so a folder that moved counts as new.
        let wanted = format!("{}\n{}", place.deps_dir.display(), self.pins.join("\n"));
        let stamp = place.deps_dir.join(format!("{}.stamp", self.name.replace(' ', "-")));
        let is_there = place.deps_dir.join(self.marker_file).exists();
        if is_there && fs::read_to_string(&stamp).is_ok_and(|found| found == wanted) {
            return Ok("there already");
        }
        (self.fetch)(place)?;
        fs::write(&stamp, wanted).map_err(said)?;
        Ok("fetched")
    }
}

/// Makes sure that a program is there, from Debian's packages where we may install them.
fn ensure_program(program: &str, package: &str, log: &Path) -> Result<(), String> {
    if is_available(program, "--version") {
        return Ok(());
    }
    install_package(package, log).map_err(|error| format!("`{program}` is missing: {error}"))
}

fn install_package(package: &str, log: &Path) -> Result<(), String> {
    let id = Command::new("id").arg("-u").output();
    let root = id.is_ok_and(|output| output.stdout.trim_ascii() == b"0");
    if !root || !is_available("apt-get", "--version") {
        return Err(format!("install `{package}` and run this again"));
    }
    println!("    apt-get install {package}");
    let apt = |arguments: &[&str]| {
        let mut command = Command::new("apt-get");
        run_logged_checked(command.args(arguments).env("DEBIAN_FRONTEND", "noninteractive"), log, FETCH_TIMEOUT)
    };
    let wanted = ["install", "-y", "--no-install-recommends", package];
    // A machine that was set up a while ago knows of packages that are gone by now.
    apt(&wanted).or_else(|_| apt(&["update"]).and_then(|()| apt(&wanted)))
}
