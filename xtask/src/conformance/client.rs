//! Scenarios of the client. For each, the suite starts a server of its own and then the example program
//! `conformance_client` with its address.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use super::{Scenario, ScenarioResult, ScenarioTally, Suite};
use crate::paths::WorkspacePaths;
use crate::process::run_logged;
use crate::report::StepStatus;

/// The example program that implements the client side.
const CLIENT_EXAMPLE: &str = "conformance_client";

/// Timeout of the suite. It gives the client 30 s by itself.
const SCENARIO_TIMEOUT: Duration = Duration::from_secs(60);

/// Without `auth/*`, which needs OAuth, and without `extension`, because no extension is supported.
const SCENARIOS: [Scenario; 13] = [
    Scenario::required("2025-11-25", "initialize"),
    Scenario::required("2025-11-25", "tools_call"),
    Scenario::required("2025-11-25", "elicitation-sep1034-client-defaults"),
    Scenario::required("2025-11-25", "sse-retry"),
    Scenario::reported("2025-11-25", "json-schema-2020-12-preservation"),
    Scenario::required("2026-07-28", "tools_call"),
    Scenario::required("2026-07-28", "request-metadata"),
    Scenario::required("2026-07-28", "sep-2322-client-request-state"),
    Scenario::required("2026-07-28", "http-standard-headers"),
    Scenario::required("2026-07-28", "http-custom-headers"),
    Scenario::required("2026-07-28", "http-invalid-tool-headers"),
    Scenario::required("2026-07-28", "json-schema-ref-no-deref"),
    Scenario::reported("2026-07-28", "json-schema-2020-12-preservation"),
];

/// Number of client scenarios that match the filters.
pub(super) fn count_matching(filters: &[&str]) -> usize {
    SCENARIOS.iter().filter(|scenario| scenario.matches(filters)).count()
}

/// Runs the scenarios one after the other, each in a process of the suite.
pub(super) fn run(suite: &Suite, paths: &WorkspacePaths, filters: &[&str]) -> StepStatus {
    let client = paths.target_dir.join("examples").join(CLIENT_EXAMPLE);
    let mut tally = ScenarioTally::default();
    for scenario in SCENARIOS.iter().filter(|scenario| scenario.matches(filters)) {
        let start = Instant::now();
        let outcome = run_scenario(suite, &client, scenario);
        tally.add(scenario, Some(start.elapsed()), outcome);
    }
    tally.into_status(suite)
}

/// Runs one scenario and reads its count of checks from the line `Passed: …` of the log.
fn run_scenario(suite: &Suite, client: &Path, scenario: &Scenario) -> ScenarioResult {
    let log = suite.out_dir.join(format!("{}-{}.log", scenario.version, scenario.name));
    let mut command = suite.command();
    // The suite passes the command to a shell, hence the quotes.
    command.arg("client").arg("--command").arg(format!("'{}'", client.display()));
    command.args(["--scenario", scenario.name, "--spec-version", scenario.version]);
    command.arg("-o").arg(&suite.out_dir);
    let status = run_logged(&mut command, &log, SCENARIO_TIMEOUT)?;
    let text = fs::read_to_string(&log).unwrap_or_default();
    let count = text.lines().find(|line| line.starts_with("Passed:")).unwrap_or("no result").to_owned();
    // A scenario without checks proves nothing.
    if status.success() && !count.starts_with("Passed: 0/") { Ok(count) } else { Err(count) }
}
