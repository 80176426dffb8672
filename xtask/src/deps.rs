//! Fetches what the tests need and the repository does not contain: real MCP servers, the official SDKs, a current
//! Node.js, the conformance suite and a browser. Packages are fetched by name with npm, pip and apt, pinned by the
//! files in `xtask/deps`, into one directory that later runs reuse.
//!
//! A component has a stamp file with its pins. It is fetched again when a pin or the place of the directory changed, or
//! when its marker file is missing. A component that cannot be fetched skips its tests, and fails the run under
//! `CI=true`.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::paths::WorkspacePaths;
use crate::process::{is_available, run_logged_checked};
use crate::report::{StepReport, StepStatus};

mod browser;
pub(crate) mod npm;
mod postgresql;
mod python;

/// A set of packages that one package manager fetches.
struct Component {
    name: &'static str,
    /// Pinned versions; a change fetches the component again.
    pins: &'static [&'static str],
    /// A file of the component. Without it the component is fetched, whatever the stamp says.
    marker_file: &'static str,
    /// Fetches into [`WorkspacePaths::deps_dir`], over an incomplete or older state.
    fetch: fn(&WorkspacePaths) -> Result<(), String>,
}

/// Independent of each other, one per package manager, so that one failure does not lose the others.
const COMPONENTS: [Component; 3] = [
    Component { name: "npm packages", pins: &npm::PINS, marker_file: npm::MARKER_FILE, fetch: npm::fetch },
    Component { name: "python packages", pins: &python::PINS, marker_file: python::MARKER_FILE, fetch: python::fetch },
    Component { name: "browser", pins: &browser::PINS, marker_file: browser::MARKER_FILE, fetch: browser::fetch },
];

/// Timeout of one fetch; several times what a slow network took.
const FETCH_TIMEOUT: Duration = Duration::from_secs(600);

/// Fetches missing components, one step each.
pub(crate) fn fetch(paths: &WorkspacePaths, report: &mut StepReport) {
    for component in &COMPONENTS {
        report.run_step(component.name, || match component.ensure_fetched(paths) {
            Ok(text) => StepStatus::Passed(text.to_owned()),
            Err(reason) => missing_component(&format!("cannot be fetched: {reason}")),
        });
    }
    let log = paths.deps_dir.join("apt.log");
    // Part of Debian's `prometheus`; tests check the metrics endpoint with it.
    report.run_step("promtool", || program_status(ensure_program("promtool", "--version", "prometheus", &log)));
    install_cluster_programs(paths, report);
}

/// Installs the programs that several nodes need, one step each.
pub(crate) fn install_cluster_programs(paths: &WorkspacePaths, report: &mut StepReport) {
    // For the log, also before anything else was fetched. An error shows when the log is written.
    let _ = fs::create_dir_all(&paths.deps_dir);
    let log = paths.deps_dir.join("apt.log");
    report.run_step("postgresql", || program_status(postgresql::ensure_installed(&log)));
    // Balances the nodes of `examples/cluster`.
    report.run_step("haproxy", || program_status(ensure_program("haproxy", "-v", "haproxy", &log)));
}

/// Status of a program that Debian packages.
fn program_status(installed: Result<(), String>) -> StepStatus {
    match installed {
        Ok(()) => StepStatus::Passed("installed".to_owned()),
        Err(reason) => missing_component(&reason),
    }
}

/// Returns a Python interpreter with FastMCP, the peer that `bench openapi` compares with. No test needs it.
pub(crate) fn fetch_fastmcp(paths: &WorkspacePaths) -> Result<PathBuf, String> {
    python::fetch_package(paths, "fastmcp==3.4.10")
}

/// Status of a component that cannot be fetched: tests that need it skip, but under CI that is a failure.
pub(crate) fn missing_component(reason: &str) -> StepStatus {
    if std::env::var("CI").is_ok_and(|value| value == "true") {
        return StepStatus::Failed(reason.to_owned());
    }
    StepStatus::Skipped(reason.to_owned())
}

impl Component {
    /// Fetches the component unless it is there in the pinned version; returns a word for the report.
    fn ensure_fetched(&self, paths: &WorkspacePaths) -> Result<&'static str, String> {
        let describe = |error: std::io::Error| format!("prepare `{}`: {error}", paths.deps_dir.display());
        fs::create_dir_all(&paths.deps_dir).map_err(describe)?;
        // Concurrent runs share the directory.
        let lock = File::create(paths.deps_dir.join("lock")).map_err(describe)?;
        lock.lock().map_err(describe)?;

        // A Python virtual environment contains absolute paths, so a moved directory is fetched again.
        let expected = format!("{}\n{}", paths.deps_dir.display(), self.pins.join("\n"));
        let stamp = paths.deps_dir.join(format!("{}.stamp", self.name.replace(' ', "-")));
        let is_present = paths.deps_dir.join(self.marker_file).exists();
        if is_present && fs::read_to_string(&stamp).is_ok_and(|text| text == expected) {
            return Ok("already fetched");
        }
        (self.fetch)(paths)?;
        // Written last, so that an interrupted fetch is repeated.
        fs::write(&stamp, expected).map_err(describe)?;
        Ok("fetched")
    }
}

/// Installs a program from Debian's packages unless it is there. Needs root.
fn ensure_program(program: &str, version_argument: &str, package: &str, log: &Path) -> Result<(), String> {
    if is_available(program, version_argument) {
        return Ok(());
    }
    install_package(package, log).map_err(|error| format!("`{program}` is missing: {error}"))
}

/// Installs a Debian package. Only root can; other users get the name of the package to install.
fn install_package(package: &str, log: &Path) -> Result<(), String> {
    let id = Command::new("id").arg("-u").output();
    let is_root = id.is_ok_and(|output| output.stdout.trim_ascii() == b"0");
    if !is_root || !is_available("apt-get", "--version") {
        return Err(format!("install `{package}` and run this again"));
    }
    println!("    apt-get install {package}");
    let apt = |arguments: &[&str]| {
        let mut command = Command::new("apt-get");
        run_logged_checked(command.args(arguments).env("DEBIAN_FRONTEND", "noninteractive"), log, FETCH_TIMEOUT)
    };
    let install = ["install", "-y", "--no-install-recommends", package];
    // The package lists of an older image name versions that the mirror no longer has.
    apt(&install).or_else(|_| apt(&["update"]).and_then(|()| apt(&install)))
}
