//! Runs the official MCP conformance suite against the client, and against `toolcrib serve` with a fixture as its
//! source.
//!
//! The scenarios are listed here and not taken from the suite, so that one which a new version of it drops is noticed.
//! Each is required or reported; docs/conformance.md has the reason for each that may fail. Logs and results are in
//! `target/debug/conformance_client` and `conformance_server`.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use crate::paths::WorkspacePaths;
use crate::report::{StepReport, StepStatus, format_seconds};

mod client;
mod server;

/// A scenario of the suite in one protocol version.
struct Scenario {
    /// Protocol version that the suite speaks.
    version: &'static str,
    /// Name in the suite, which filters are compared with.
    name: &'static str,
    /// Protocol version of the fixture, for scenarios of the server.
    fixture_version: Option<&'static str>,
    requirement: Requirement,
}

/// Effect of a failed scenario on the run.
enum Requirement {
    /// A failure fails the run.
    Required,
    /// The result is printed and a failure is accepted; `docs/conformance.md` has the reason.
    Reported,
}

/// Summary line of a scenario: `Ok` when it passed, `Err` when it failed.
type ScenarioResult = Result<String, String>;

/// Number of scenarios that match the filters.
pub(crate) fn count_matching(filters: &[&str]) -> usize {
    client::count_matching(filters) + server::count_matching(filters)
}

/// Runs one step each for client and server, unless the filters exclude all their scenarios.
pub(crate) fn run(paths: &WorkspacePaths, filters: &[&str], report: &mut StepReport) {
    if client::count_matching(filters) > 0 {
        report.run_step("conformance of the client", || {
            Suite::open(paths, "conformance_client").map_or_else(|end| end, |suite| client::run(&suite, paths, filters))
        });
    }
    if server::count_matching(filters) > 0 {
        report.run_step("conformance of the server", || {
            Suite::open(paths, "conformance_server").map_or_else(|end| end, |suite| server::run(&suite, paths, filters))
        });
    }
}

/// The program of the suite and a directory for its logs and results.
struct Suite {
    node: PathBuf,
    script: PathBuf,
    out_dir: PathBuf,
}

impl Suite {
    /// Empties the directory for results. The error is the status of the step: skipped if the suite was not fetched.
    fn open(paths: &WorkspacePaths, folder: &str) -> Result<Suite, StepStatus> {
        let script = paths.deps_dir.join("node_modules/@modelcontextprotocol/conformance/dist/index.js");
        if !script.exists() || !paths.node().exists() {
            return Err(crate::deps::missing_component("the suite or its Node.js could not be fetched"));
        }
        let out = paths.target_dir.join(folder);
        // Results of an earlier run must not be read as those of this one. Usually there are none.
        let _ = fs::remove_dir_all(&out);
        match fs::create_dir_all(&out) {
            Ok(()) => Ok(Suite { node: paths.node(), script, out_dir: out }),
            Err(error) => Err(StepStatus::Failed(format!("create `{}`: {error}", out.display()))),
        }
    }

    /// The suite as a command, to which the caller adds arguments.
    fn command(&self) -> Command {
        let mut command = Command::new(&self.node);
        command.arg(&self.script);
        command
    }
}

/// Prints the result of each scenario and counts them.
#[derive(Default)]
struct ScenarioTally {
    passed: usize,
    failed: Vec<String>,
    reported: usize,
}

impl ScenarioTally {
    /// Prints one line and counts the result. `took` is known for scenarios that run as a process each.
    fn add(&mut self, scenario: &Scenario, took: Option<Duration>, outcome: ScenarioResult) {
        let (word, text) = match (&outcome, &scenario.requirement) {
            (Ok(text), _) => ("passed", text),
            (Err(text), Requirement::Required) => ("FAILED", text),
            (Err(text), Requirement::Reported) => ("failed, not required", text),
        };
        let took = took.map(|took| format!("{:>7}  ", format_seconds(took))).unwrap_or_default();
        println!("  {:<72} {took}{word}  {text}", scenario.label());
        match (outcome, &scenario.requirement) {
            (Ok(_), _) => self.passed += 1,
            (Err(_), Requirement::Required) => self.failed.push(scenario.label()),
            (Err(_), Requirement::Reported) => self.reported += 1,
        }
    }

    /// Status of the step: failed if a required scenario failed, with the names of all that did.
    fn into_status(self, suite: &Suite) -> StepStatus {
        if !self.failed.is_empty() {
            return StepStatus::Failed(format!("{}; logs in `{}`", self.failed.join(", "), suite.out_dir.display()));
        }
        let reported = if self.reported == 0 {
            String::new()
        } else {
            format!(", {} failed that are not required", self.reported)
        };
        StepStatus::Passed(format!("{} scenarios passed{reported}", self.passed))
    }
}

impl Scenario {
    /// A client scenario whose failure fails the run.
    const fn required(version: &'static str, name: &'static str) -> Scenario {
        Scenario { version, name, fixture_version: None, requirement: Requirement::Required }
    }

    /// A client scenario that may fail.
    const fn reported(version: &'static str, name: &'static str) -> Scenario {
        Scenario { version, name, fixture_version: None, requirement: Requirement::Reported }
    }

    /// Formats `2026-07-28 caching on 2025-11-25`: version, name, and version of the fixture.
    fn label(&self) -> String {
        let behind = self.fixture_version.map(|version| format!(" on {version}")).unwrap_or_default();
        format!("{} {}{behind}", self.version, self.name)
    }

    /// Whether a filter selects the scenario; all are selected without filters.
    fn matches(&self, filters: &[&str]) -> bool {
        filters.is_empty() || filters.iter().any(|filter| self.name.contains(filter))
    }
}
