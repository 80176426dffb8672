//! The official MCP conformance suite: against our client, and against our server with a fixture behind it.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use crate::paths::WorkspacePaths;
use crate::report::{StepReport, StepStatus, format_seconds};

mod client;
mod server;

/// One of the suite's scenarios, in one protocol version.
struct Scenario {
    version: &'static str,
    name: &'static str,
    /// The version of the fixture behind, where there is one.
    fixture_version: Option<&'static str>,
    requirement: Requirement,
}

enum Requirement {
    /// A failure fails the run.
    Required,
    /// Shown, so that a change is noticed; `docs/conformance.md` has the reason.
    Reported,
}

/// What the suite counted, whether it was content or not.
type ScenarioResult = Result<String, String>;

/// How many scenarios a filter leaves.
pub(crate) fn count_matching(filters: &[&str]) -> usize {
    client::count_matching(filters) + server::count_matching(filters)
}

/// A step for each side that a filter leaves anything to do.
pub(crate) fn run(place: &WorkspacePaths, filters: &[&str], report: &mut StepReport) {
    if client::count_matching(filters) > 0 {
        report.run_step("conformance of the client", || {
            Suite::open(place, "conformance_client").map_or_else(|end| end, |suite| client::run(&suite, place, filters))
        });
    }
    if server::count_matching(filters) > 0 {
        report.run_step("conformance of the server", || {
            Suite::open(place, "conformance_server").map_or_else(|end| end, |suite| server::run(&suite, place, filters))
        });
    }
}

/// The suite's program, and a folder for all that is written on the way.
struct Suite {
    node: PathBuf,
    script: PathBuf,
    out_dir: PathBuf,
}

impl Suite {
    fn open(place: &WorkspacePaths, folder: &str) -> Result<Suite, StepStatus> {
        let script = place.deps_dir.join("node_modules/@modelcontextprotocol/conformance/dist/index.js");
        if !script.exists() || !place.node().exists() {
            return Err(crate::deps::missing_component("the suite or its Node.js could not be fetched"));
        }
        let out = place.target_dir.join(folder);
        // What an earlier run found would be read as news.
        let _ = fs::remove_dir_all(&out);
        match fs::create_dir_all(&out) {
            Ok(()) => Ok(Suite { node: place.node(), script, out_dir: out }),
            Err(error) => Err(StepStatus::Failed(format!("make `{}`: {error}", out.display()))),
        }
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.node);
        command.arg(&self.script);
        command
    }
}

/// Prints how scenarios went, and remembers what matters at the end.
#[derive(Default)]
struct ScenarioTally {
    passed: usize,
    failed: Vec<String>,
    reported: usize,
}

impl ScenarioTally {
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

    fn into_status(self, suite: &Suite) -> StepStatus {
        if !self.failed.is_empty() {
            return StepStatus::Failed(format!("{}; logs in `{}`", self.failed.join(", "), suite.out_dir.display()));
        }
        let reported =
            if self.reported == 0 { String::new() } else { format!(", {} others failed and may", self.reported) };
        StepStatus::Passed(format!("{} scenarios passed{reported}", self.passed))
    }
}

impl Scenario {
    const fn required(version: &'static str, name: &'static str) -> Scenario {
        Scenario { version, name, fixture_version: None, requirement: Requirement::Required }
    }

    const fn reported(version: &'static str, name: &'static str) -> Scenario {
        Scenario { version, name, fixture_version: None, requirement: Requirement::Reported }
    }

    fn label(&self) -> String {
        let behind = self.fixture_version.map(|version| format!(" on {version}")).unwrap_or_default();
        format!("{} {}{behind}", self.version, self.name)
    }

    fn matches(&self, filters: &[&str]) -> bool {
        filters.is_empty() || filters.iter().any(|filter| self.name.contains(filter))
    }
}
