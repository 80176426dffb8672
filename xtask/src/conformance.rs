//! The official MCP conformance suite: against our client, and against our server with a fixture behind it.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use crate::place::Place;
use crate::report::{End, Report, seconds};

mod client;
mod server;

/// One of the suite's scenarios, in one protocol version.
struct Scenario {
    version: &'static str,
    name: &'static str,
    /// The version of the fixture behind, where there is one.
    behind: Option<&'static str>,
    need: Need,
}

enum Need {
    /// A failure fails the run.
    Required,
    /// Shown, so that a change is noticed; `docs/conformance.md` has the reason.
    Reported,
}

/// What the suite counted, whether it was content or not.
type Outcome = Result<String, String>;

/// How many scenarios a filter leaves.
pub(crate) fn matching(filters: &[&str]) -> usize {
    client::matching(filters) + server::matching(filters)
}

/// A step for each side that a filter leaves anything to do.
pub(crate) fn run(place: &Place, filters: &[&str], report: &mut Report) {
    if client::matching(filters) > 0 {
        report.step("conformance of the client", || {
            Suite::open(place, "conformance_client").map_or_else(|end| end, |suite| client::run(&suite, place, filters))
        });
    }
    if server::matching(filters) > 0 {
        report.step("conformance of the server", || {
            Suite::open(place, "conformance_server").map_or_else(|end| end, |suite| server::run(&suite, place, filters))
        });
    }
}

/// The suite's program, and a folder for all that is written on the way.
struct Suite {
    node: PathBuf,
    script: PathBuf,
    out: PathBuf,
}

impl Suite {
    fn open(place: &Place, folder: &str) -> Result<Suite, End> {
        let script = place.deps.join("node_modules/@modelcontextprotocol/conformance/dist/index.js");
        if !script.exists() || !place.node().exists() {
            return Err(crate::deps::missing("the suite or its Node.js could not be fetched"));
        }
        let out = place.built.join(folder);
        // What an earlier run found would be read as news.
        let _ = fs::remove_dir_all(&out);
        match fs::create_dir_all(&out) {
            Ok(()) => Ok(Suite { node: place.node(), script, out }),
            Err(error) => Err(End::Failed(format!("make `{}`: {error}", out.display()))),
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
struct Tally {
    passed: usize,
    failed: Vec<String>,
    reported: usize,
}

impl Tally {
    fn add(&mut self, scenario: &Scenario, took: Option<Duration>, outcome: Outcome) {
        let (word, text) = match (&outcome, &scenario.need) {
            (Ok(text), _) => ("passed", text),
            (Err(text), Need::Required) => ("FAILED", text),
            (Err(text), Need::Reported) => ("failed, not required", text),
        };
        let took = took.map(|took| format!("{:>7}  ", seconds(took))).unwrap_or_default();
        println!("  {:<72} {took}{word}  {text}", scenario.label());
        match (outcome, &scenario.need) {
            (Ok(_), _) => self.passed += 1,
            (Err(_), Need::Required) => self.failed.push(scenario.label()),
            (Err(_), Need::Reported) => self.reported += 1,
        }
    }

    fn end(self, suite: &Suite) -> End {
        if !self.failed.is_empty() {
            return End::Failed(format!("{}; logs in `{}`", self.failed.join(", "), suite.out.display()));
        }
        let reported =
            if self.reported == 0 { String::new() } else { format!(", {} others failed and may", self.reported) };
        End::Passed(format!("{} scenarios passed{reported}", self.passed))
    }
}

impl Scenario {
    const fn required(version: &'static str, name: &'static str) -> Scenario {
        Scenario { version, name, behind: None, need: Need::Required }
    }

    const fn reported(version: &'static str, name: &'static str) -> Scenario {
        Scenario { version, name, behind: None, need: Need::Reported }
    }

    fn label(&self) -> String {
        let behind = self.behind.map(|version| format!(" on {version}")).unwrap_or_default();
        format!("{} {}{behind}", self.version, self.name)
    }

    fn matches(&self, filters: &[&str]) -> bool {
        filters.is_empty() || filters.iter().any(|filter| self.name.contains(filter))
    }
}
