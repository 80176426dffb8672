//! The official MCP conformance suite against our client: an example program that the suite starts with
//! the address of a server of its own making, once a scenario.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::place::Place;
use crate::process::quiet;
use crate::report::{End, seconds};

/// The example that speaks for us, in whichever crate it lives.
const CLIENT: &str = "conformance_client";

/// The suite gives a client 30 s; this is for the suite itself.
const DEADLINE: Duration = Duration::from_secs(60);

struct Scenario {
    version: &'static str,
    name: &'static str,
    need: Need,
}

enum Need {
    /// A failure fails the run.
    Required,
    /// Shown, so that a change is noticed.
    Reported,
}

const fn required(version: &'static str, name: &'static str) -> Scenario {
    Scenario { version, name, need: Need::Required }
}

const fn reported(version: &'static str, name: &'static str) -> Scenario {
    Scenario { version, name, need: Need::Reported }
}

/// Left out: `auth/*`, for there is no OAuth yet; the `extension` scenarios, for we claim none of them.
const SCENARIOS: [Scenario; 13] = [
    required("2025-11-25", "initialize"),
    required("2025-11-25", "tools_call"),
    required("2025-11-25", "elicitation-sep1034-client-defaults"),
    required("2025-11-25", "sse-retry"),
    reported("2025-11-25", "json-schema-2020-12-preservation"),
    required("2026-07-28", "tools_call"),
    required("2026-07-28", "request-metadata"),
    required("2026-07-28", "sep-2322-client-request-state"),
    required("2026-07-28", "http-standard-headers"),
    required("2026-07-28", "http-custom-headers"),
    required("2026-07-28", "http-invalid-tool-headers"),
    required("2026-07-28", "json-schema-ref-no-deref"),
    reported("2026-07-28", "json-schema-2020-12-preservation"),
];

/// How many scenarios a filter leaves.
pub(crate) fn matching(filters: &[&str]) -> usize {
    SCENARIOS.iter().filter(|scenario| scenario.matches(filters)).count()
}

pub(crate) fn run(place: &Place, filters: &[&str]) -> End {
    let suite = place.deps.join("node_modules/@modelcontextprotocol/conformance/dist/index.js");
    if !suite.exists() || !place.node().exists() {
        return crate::deps::missing("the suite or its Node.js could not be fetched");
    }
    let out = place.built.join(CLIENT);
    if let Err(error) = fs::create_dir_all(&out) {
        return End::Failed(format!("make `{}`: {error}", out.display()));
    }
    let bench = Bench { node: place.node(), suite, client: place.built.join("examples").join(CLIENT), out };

    let (mut passed, mut failed) = (0, Vec::new());
    for scenario in SCENARIOS.iter().filter(|scenario| scenario.matches(filters)) {
        let start = Instant::now();
        let ended = bench.run(scenario);
        let (word, text) = match (&ended, &scenario.need) {
            (Ok(text), _) => ("passed", text),
            (Err(text), Need::Required) => ("FAILED", text),
            (Err(text), Need::Reported) => ("failed, not required", text),
        };
        println!("  {} {:<38} {:>7}  {word}  {text}", scenario.version, scenario.name, seconds(start.elapsed()));
        match (ended, &scenario.need) {
            (Ok(_), _) => passed += 1,
            (Err(_), Need::Required) => failed.push(format!("{} {}", scenario.version, scenario.name)),
            (Err(_), Need::Reported) => {}
        }
    }
    if failed.is_empty() {
        return End::Passed(format!("{passed} scenarios"));
    }
    End::Failed(format!("{}; logs in `{}`", failed.join(", "), bench.out.display()))
}

/// The suite and the client it tries.
struct Bench {
    node: PathBuf,
    suite: PathBuf,
    client: PathBuf,
    out: PathBuf,
}

impl Bench {
    /// The suite's own count, whether it was content or not.
    fn run(&self, scenario: &Scenario) -> Result<String, String> {
        let log = self.out.join(format!("{}-{}.log", scenario.version, scenario.name));
        let mut command = Command::new(&self.node);
        command.arg(&self.suite).arg("client");
        // The suite hands the command to a shell.
        command.arg("--command").arg(format!("'{}'", self.client.display()));
        command.args(["--scenario", scenario.name, "--spec-version", scenario.version]);
        command.arg("-o").arg(&self.out);
        let status = quiet(&mut command, &log, DEADLINE)?;
        let text = fs::read_to_string(&log).unwrap_or_default();
        let count = text.lines().find(|line| line.starts_with("Passed:")).unwrap_or("no result").to_owned();
        // A scenario that checked nothing says nothing about us.
        if status.success() && !count.starts_with("Passed: 0/") { Ok(count) } else { Err(count) }
    }
}

impl Scenario {
    fn matches(&self, filters: &[&str]) -> bool {
        filters.is_empty() || filters.iter().any(|filter| self.name.contains(filter))
    }
}
