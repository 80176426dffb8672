//! Scenarios of the server: `toolcrib serve` with a fixture as its source that has all tools, prompts and resources the
//! suite asks for. Once with a fixture of the same protocol version and once with one of the other era, so that the
//! translation between them is covered.
//!
//! The suite runs all scenarios of a version at once and writes a directory per scenario, from which the results are
//! read. Filters select among the results; they do not shorten the run.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use super::{Requirement, Scenario, ScenarioResult, ScenarioTally, Suite};
use crate::paths::WorkspacePaths;
use crate::process::{run_logged, run_logged_checked};
use crate::report::StepStatus;

/// Timeout for all scenarios of a version, which one process runs one after the other within seconds.
const SUITE_TIMEOUT: Duration = Duration::from_secs(300);
/// Timeout for the server to start and to discover the fixture.
const SERVER_START_TIMEOUT: Duration = Duration::from_secs(30);

const LEGACY_VERSION: &str = "2025-11-25";
const MODERN_VERSION: &str = "2026-07-28";

/// Scenarios of both versions. Those of extensions are left out, because no extension is supported.
const SHARED_SCENARIOS: [&str; 21] = [
    "completion-complete",
    "tools-list",
    "tools-call-simple-text",
    "tools-call-image",
    "tools-call-audio",
    "tools-call-embedded-resource",
    "tools-call-mixed-content",
    "tools-call-error",
    "tools-call-with-progress",
    "json-schema-2020-12",
    "server-sse-multiple-streams",
    "resources-list",
    "resources-read-text",
    "resources-read-binary",
    "resources-templates-read",
    "prompts-list",
    "prompts-get-simple",
    "prompts-get-with-args",
    "prompts-get-embedded-resource",
    "prompts-get-with-image",
    "dns-rebinding-protection",
];
/// Scenarios of 2025-11-25 alone: the handshake, sessions, and requests from the server to the client.
const LEGACY_SCENARIOS: [&str; 12] = [
    "server-initialize",
    "server-session-lifecycle",
    "logging-set-level",
    "ping",
    "tools-call-with-logging",
    "tools-call-sampling",
    "tools-call-elicitation",
    "elicitation-sep1034-defaults",
    "elicitation-sep1330-enums",
    "server-sse-polling",
    "resources-subscribe",
    "resources-unsubscribe",
];
/// Scenarios of 2026-07-28 alone: stateless requests, headers, and `input_required` results.
const MODERN_SCENARIOS: [&str; 19] = [
    "server-stateless",
    "sep-2164-resource-not-found",
    "caching",
    "http-header-validation",
    "http-custom-header-server-validation",
    "input-required-result-basic-elicitation",
    "input-required-result-basic-sampling",
    "input-required-result-basic-list-roots",
    "input-required-result-request-state",
    "input-required-result-multiple-input-requests",
    "input-required-result-multi-round",
    "input-required-result-missing-input-response",
    "input-required-result-non-tool-request",
    "input-required-result-result-type",
    "input-required-result-unsupported-methods",
    "input-required-result-tampered-state",
    "input-required-result-capability-check",
    "input-required-result-ignore-extra-params",
    "input-required-result-validate-input",
];

/// Scenarios of 2026-07-28 that may fail with a fixture of 2025-11-25: the older protocol cannot express them.
const ALLOWED_FAILURES_ON_LEGACY: [&str; 14] = [
    "server-stateless",
    "input-required-result-basic-elicitation",
    "input-required-result-basic-sampling",
    "input-required-result-basic-list-roots",
    "input-required-result-request-state",
    "input-required-result-multiple-input-requests",
    "input-required-result-multi-round",
    "input-required-result-missing-input-response",
    "input-required-result-non-tool-request",
    "input-required-result-result-type",
    "input-required-result-tampered-state",
    "input-required-result-capability-check",
    "input-required-result-ignore-extra-params",
    "input-required-result-validate-input",
];
/// Scenarios of 2025-11-25 that may fail with a fixture of 2026-07-28, which has no such methods and streams.
const ALLOWED_FAILURES_ON_MODERN: [&str; 3] = ["server-sse-polling", "resources-subscribe", "resources-unsubscribe"];

/// Number of server scenarios that match the filters, each counted for one fixture.
pub(super) fn count_matching(filters: &[&str]) -> usize {
    [LEGACY_VERSION, MODERN_VERSION]
        .iter()
        .flat_map(|version| scenarios(version, version))
        .filter(|scenario| scenario.matches(filters))
        .count()
}

/// Runs both versions of the suite against a server with each fixture. Fails at the first server or suite that does not
/// run.
pub(super) fn run(suite: &Suite, paths: &WorkspacePaths, filters: &[&str]) -> StepStatus {
    let mut tally = ScenarioTally::default();
    for behind in [LEGACY_VERSION, MODERN_VERSION] {
        let served = match ConformanceServer::start(suite, paths, behind) {
            Ok(served) => served,
            Err(reason) => return StepStatus::Failed(format!("with a fixture of {behind}: {reason}")),
        };
        for version in [LEGACY_VERSION, MODERN_VERSION] {
            let found = match run_suite(suite, &served, version, behind) {
                Ok(found) => found,
                Err(reason) => return StepStatus::Failed(format!("{version} with a fixture of {behind}: {reason}")),
            };
            for scenario in scenarios(version, behind).iter().filter(|scenario| scenario.matches(filters)) {
                tally.add(scenario, None, read_result(&found, scenario.name));
            }
        }
    }
    tally.into_status(suite)
}

/// Scenarios of a version with a fixture of version `behind`.
fn scenarios(version: &'static str, behind: &'static str) -> Vec<Scenario> {
    let alone: &[&'static str] = if version == LEGACY_VERSION { &LEGACY_SCENARIOS } else { &MODERN_SCENARIOS };
    let may_fail: &[&str] = match (version, behind) {
        (MODERN_VERSION, LEGACY_VERSION) => &ALLOWED_FAILURES_ON_LEGACY,
        (LEGACY_VERSION, MODERN_VERSION) => &ALLOWED_FAILURES_ON_MODERN,
        _ => &[],
    };
    let scenario = |name: &&'static str| {
        let need = if may_fail.contains(name) { Requirement::Reported } else { Requirement::Required };
        Scenario { version, name, fixture_version: Some(behind), requirement: need }
    };
    SHARED_SCENARIOS.iter().chain(alone).map(scenario).collect()
}

/// Runs all scenarios of a version and returns the directory with the results.
fn run_suite(suite: &Suite, served: &ConformanceServer, version: &str, behind: &str) -> Result<PathBuf, String> {
    let out = suite.out_dir.join(format!("{version}-on-{behind}"));
    let log = suite.out_dir.join(format!("{version}-on-{behind}.log"));
    let mut command = suite.command();
    command.args(["server", "--suite", "all", "--spec-version", version, "--url", &format!("{}/mcp", served.url)]);
    command.arg("-o").arg(&out);
    // The exit code covers all scenarios together; the results are read one by one.
    run_logged(&mut command, &log, SUITE_TIMEOUT)?;
    Ok(out)
}

/// Reads the result of a scenario from `server-NAME-TIME/checks.json`.
fn read_result(found: &Path, name: &str) -> ScenarioResult {
    let prefix = format!("server-{name}-2");
    let folders = fs::read_dir(found).map_err(|error| format!("no results: {error}"))?;
    let mut folders = folders.filter_map(Result::ok).map(|entry| entry.path());
    let is_wanted = |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(&prefix));
    let folder = folders.find(is_wanted).ok_or("it did not run")?;
    let text = fs::read_to_string(folder.join("checks.json")).map_err(|error| format!("read the checks: {error}"))?;
    evaluate_checks(&text)
}

/// Counts the checks of a scenario. The file is an array of objects with one field per line, which needs no JSON
/// parser.
fn evaluate_checks(checks: &str) -> ScenarioResult {
    let field = |name: &str, line: &str| {
        let value = line.strip_prefix(&format!("    \"{name}\": \""))?;
        Some(value.trim_end_matches(',').trim_end_matches('"').to_owned())
    };
    let mut id = String::new();
    let mut passed = 0;
    let mut warned = Vec::new();
    let mut failed = Vec::new();
    for line in checks.lines() {
        id = field("id", line).unwrap_or(id);
        match field("status", line).as_deref() {
            // Valid messages alone prove nothing about the behaviour that the scenario is about.
            Some("SUCCESS") if id != "wire-schema-valid" => passed += 1,
            Some("WARNING") => warned.push(id.clone()),
            Some("FAILURE") => failed.push(id.clone()),
            _ => {}
        }
    }
    let mut text = format!("Passed: {passed}/{}", passed + warned.len() + failed.len());
    for (word, ids) in [("failed", &failed), ("warned", &warned)] {
        if !ids.is_empty() {
            text = format!("{text}, {word}: {}", ids.join(" "));
        }
    }
    // A scenario without checks proves nothing.
    if failed.is_empty() && passed > 0 { Ok(text) } else { Err(text) }
}

/// A running `toolcrib serve` with the fixture as its only source. Ends when it is dropped.
struct ConformanceServer {
    child: Child,
    /// Base address without a path, as `toolcrib serve` prints it.
    url: String,
}

impl ConformanceServer {
    /// Discovers the fixture, then starts the server on a free port and waits for its address.
    fn start(suite: &Suite, paths: &WorkspacePaths, behind: &str) -> Result<ConformanceServer, String> {
        let folder = suite.out_dir.join(format!("serve-{behind}"));
        fs::create_dir_all(&folder).map_err(|error| format!("create `{}`: {error}", folder.display()))?;
        let config = folder.join("toolcrib.json");
        fs::write(&config, config_json(paths, behind)).map_err(|error| format!("write the config: {error}"))?;
        let toolcrib = |arguments: &[&str]| {
            let mut command = Command::new(paths.target_dir.join("toolcrib"));
            command.args(arguments).arg("--config").arg(&config).arg("--data").arg(folder.join("data"));
            command
        };
        // With the tools of the fixture in the store, the first scenario does not depend on how fast the fixture
        // starts.
        run_logged_checked(&mut toolcrib(&["refresh"]), &folder.join("refresh.log"), SERVER_START_TIMEOUT)?;

        let describe = |error: std::io::Error| format!("start `toolcrib serve`: {error}");
        let log = fs::File::create(folder.join("serve.log")).map_err(describe)?;
        let mut command = toolcrib(&["serve", "--listen", "127.0.0.1:0"]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log);
        let mut served = ConformanceServer { child: command.spawn().map_err(describe)?, url: String::new() };
        let stdout = served.child.stdout.take().ok_or("`toolcrib serve` has no stdout")?;
        served.url = read_address(stdout)?;
        Ok(served)
    }
}

impl Drop for ConformanceServer {
    fn drop(&mut self) {
        // Fails when the process has ended by itself. Its child processes end with it.
        let _ = self.child.kill().and_then(|()| self.child.wait());
    }
}

/// Reads the address from the line `listening on …`. The thread goes on reading, so that the server never blocks on a
/// full pipe.
fn read_address(stdout: impl std::io::Read + Send + 'static) -> Result<String, String> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        for line in BufReader::new(stdout).lines().map_while(Result::ok) {
            if let Some(url) = line.strip_prefix("listening on ") {
                // Fails after the timeout below, when the receiver is gone.
                let _ = sender.send(url.to_owned());
            }
        }
    });
    receiver.recv_timeout(SERVER_START_TIMEOUT).map_err(|_| "`toolcrib serve` did not print its address".to_owned())
}

/// Configuration with the fixture as the only source, all tools listed, and names without the source as prefix, because
/// the suite expects the names of the fixture.
fn config_json(paths: &WorkspacePaths, behind: &str) -> String {
    let fixture = paths.root.join("fixtures/conformance_server.mjs");
    let mut arguments = vec![fixture.display().to_string(), paths.deps_dir.display().to_string()];
    arguments.extend((behind == MODERN_VERSION).then(|| "--modern".to_owned()));
    // For paths, Rust's `Debug` quoting is valid JSON.
    format!(
        r#"{{"sources": {{"fixture": {{"command": {:?}, "args": {arguments:?}}}}}, "expose": {{"mode": "full", "prefix": false}}}}"#,
        paths.node().display().to_string()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(checks: &[(&str, &str)], wanted: Result<&str, &str>) {
        let objects: Vec<String> = checks
            .iter()
            .map(|(id, status)| format!("  {{\n    \"id\": \"{id}\",\n    \"status\": \"{status}\"\n  }}"))
            .collect();
        let text = format!("[\n{}\n]", objects.join(",\n"));
        assert_eq!(evaluate_checks(&text), wanted.map(str::to_owned).map_err(str::to_owned));
    }

    #[test]
    fn a_scenario_counts_by_what_it_checked() {
        check(&[("a", "SUCCESS"), ("b", "INFO"), ("wire-schema-valid", "SUCCESS")], Ok("Passed: 1/1"));
        check(&[("a", "SUCCESS"), ("b", "WARNING")], Ok("Passed: 1/2, warned: b"));
        check(&[("a", "SUCCESS"), ("b", "FAILURE")], Err("Passed: 1/2, failed: b"));
        check(&[("a", "SKIPPED"), ("wire-schema-valid", "SUCCESS")], Err("Passed: 0/0"));
        check(&[], Err("Passed: 0/0"));
    }
}
