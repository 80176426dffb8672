//! Scenarios of the server: `toolcrib serve` with a fixture as its source that has all tools, prompts and resources the
//! suite asks for. Once with a fixture of the same protocol version, once with one of the other era, so that the
//! translation between them is covered, and with one that speaks both.
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
/// Scenarios of 2025-11-25 that may fail with a fixture of 2026-07-28, which has no such streams.
const ALLOWED_FAILURES_ON_MODERN: [&str; 1] = ["server-sse-polling"];

/// The fixture behind Toolcrib.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ConformanceFixture {
    Legacy,
    Modern,
    /// Both eras at one HTTP endpoint.
    DualHttp,
    /// Both eras over the pipes of one process.
    DualStdio,
}

impl ConformanceFixture {
    const ALL: [ConformanceFixture; 4] = [
        ConformanceFixture::Legacy,
        ConformanceFixture::Modern,
        ConformanceFixture::DualHttp,
        ConformanceFixture::DualStdio,
    ];

    /// Supported versions, for labels and directories.
    fn label(self) -> &'static str {
        match self {
            ConformanceFixture::Legacy => LEGACY_VERSION,
            ConformanceFixture::Modern => MODERN_VERSION,
            ConformanceFixture::DualHttp => "both-http",
            ConformanceFixture::DualStdio => "both-stdio",
        }
    }

    /// Option of the fixture for its era.
    fn era_option(self) -> Option<&'static str> {
        match self {
            ConformanceFixture::Legacy => None,
            ConformanceFixture::Modern => Some("--modern"),
            ConformanceFixture::DualHttp | ConformanceFixture::DualStdio => Some("--dual"),
        }
    }
}

/// Number of server scenarios that match the filters, each counted for one fixture.
pub(super) fn count_matching(filters: &[&str]) -> usize {
    [(LEGACY_VERSION, ConformanceFixture::Legacy), (MODERN_VERSION, ConformanceFixture::Modern)]
        .into_iter()
        .flat_map(|(version, behind)| scenarios(version, behind))
        .filter(|scenario| scenario.matches(filters))
        .count()
}

/// Runs both versions of the suite against a server with each fixture. Fails at the first server or suite that does not
/// run.
pub(super) fn run(suite: &Suite, paths: &WorkspacePaths, filters: &[&str]) -> StepStatus {
    let mut tally = ScenarioTally::default();
    for behind in ConformanceFixture::ALL {
        let served = match ConformanceServer::start(suite, paths, behind) {
            Ok(served) => served,
            Err(reason) => return StepStatus::Failed(format!("with a fixture of {}: {reason}", behind.label())),
        };
        for version in [LEGACY_VERSION, MODERN_VERSION] {
            let found = match run_suite(suite, &served, version, behind) {
                Ok(found) => found,
                Err(reason) => {
                    let label = behind.label();
                    return StepStatus::Failed(format!("{version} with a fixture of {label}: {reason}"));
                }
            };
            for scenario in scenarios(version, behind).iter().filter(|scenario| scenario.matches(filters)) {
                tally.add(scenario, None, read_result(&found, scenario.name));
            }
        }
    }
    tally.into_status(suite)
}

/// Scenarios of a version with the fixture `behind`.
fn scenarios(version: &'static str, behind: ConformanceFixture) -> Vec<Scenario> {
    let alone: &[&'static str] = if version == LEGACY_VERSION { &LEGACY_SCENARIOS } else { &MODERN_SCENARIOS };
    let may_fail: &[&str] = match (version, behind) {
        (MODERN_VERSION, ConformanceFixture::Legacy) => &ALLOWED_FAILURES_ON_LEGACY,
        (LEGACY_VERSION, ConformanceFixture::Modern) => &ALLOWED_FAILURES_ON_MODERN,
        _ => &[],
    };
    let scenario = |name: &&'static str| {
        let need = if may_fail.contains(name) { Requirement::Reported } else { Requirement::Required };
        Scenario { version, name, fixture_version: Some(behind.label()), requirement: need }
    };
    SHARED_SCENARIOS.iter().chain(alone).map(scenario).collect()
}

/// Runs all scenarios of a version and returns the directory with the results.
fn run_suite(
    suite: &Suite,
    served: &ConformanceServer,
    version: &str,
    behind: ConformanceFixture,
) -> Result<PathBuf, String> {
    let behind = behind.label();
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
    _child: ChildGuard,
    /// The fixture, where Toolcrib does not start it.
    _fixture: Option<ChildGuard>,
    /// Base address without a path, as `toolcrib serve` prints it.
    url: String,
}

impl ConformanceServer {
    /// Starts the fixture, or configures and discovers it, then starts the server on a free port and waits for its
    /// address.
    fn start(suite: &Suite, paths: &WorkspacePaths, behind: ConformanceFixture) -> Result<ConformanceServer, String> {
        let folder = suite.out_dir.join(format!("serve-{}", behind.label()));
        fs::create_dir_all(&folder).map_err(|error| format!("create `{}`: {error}", folder.display()))?;
        let (fixture, source) = match behind {
            ConformanceFixture::DualHttp => {
                let (fixture, url) = start_http_fixture(paths, behind)?;
                (Some(fixture), format!(r#"{{"url": {url:?}}}"#))
            }
            ConformanceFixture::Legacy | ConformanceFixture::Modern | ConformanceFixture::DualStdio => {
                (None, stdio_source(paths, behind))
            }
        };
        let config = folder.join("toolcrib.json");
        fs::write(&config, config_json(&source)).map_err(|error| format!("write the config: {error}"))?;
        let toolcrib = |arguments: &[&str]| {
            let mut command = Command::new(paths.target_dir.join("toolcrib"));
            command.args(arguments).arg("--config").arg(&config).arg("--data").arg(folder.join("data"));
            command
        };
        // With the tools of the fixture in the store, the first scenario does not depend on how fast the fixture
        // starts. A fixture that is running already is discovered by the first scenario.
        if fixture.is_none() {
            run_logged_checked(&mut toolcrib(&["refresh"]), &folder.join("refresh.log"), SERVER_START_TIMEOUT)?;
        }

        let describe = |error: std::io::Error| format!("start `toolcrib serve`: {error}");
        let log = fs::File::create(folder.join("serve.log")).map_err(describe)?;
        let mut command = toolcrib(&["serve", "--listen", "127.0.0.1:0"]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log);
        let mut child = ChildGuard(command.spawn().map_err(describe)?);
        let stdout = child.0.stdout.take().ok_or("`toolcrib serve` has no stdout")?;
        let url = read_address(stdout)?;
        Ok(ConformanceServer { _child: child, _fixture: fixture, url })
    }
}

/// Starts the fixture on a free port and returns its address.
fn start_http_fixture(paths: &WorkspacePaths, behind: ConformanceFixture) -> Result<(ChildGuard, String), String> {
    let mut command = Command::new(paths.node());
    command.args(fixture_arguments(paths, behind)).args(["--http", "0"]);
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = ChildGuard(command.spawn().map_err(|error| format!("start the fixture: {error}"))?);
    let stdout = child.0.stdout.take().ok_or("the fixture has no stdout")?;
    let url = read_address(stdout)?;
    Ok((child, url))
}

/// RAII guard that kills a process. The child processes of `toolcrib serve` end with it.
struct ChildGuard(Child);

impl Drop for ChildGuard {
    fn drop(&mut self) {
        // Fails when the process has ended by itself.
        let _ = self.0.kill().and_then(|()| self.0.wait());
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
    receiver.recv_timeout(SERVER_START_TIMEOUT).map_err(|_| "the server did not print its address".to_owned())
}

/// Configuration with the fixture as the only source, all tools listed, and names without the source as prefix, because
/// the suite expects the names of the fixture.
fn config_json(source: &str) -> String {
    format!(r#"{{"sources": {{"fixture": {source}}}, "expose": {{"mode": "full", "prefix": false}}}}"#)
}

/// Source that starts the fixture on stdio.
fn stdio_source(paths: &WorkspacePaths, behind: ConformanceFixture) -> String {
    // For paths, Rust's `Debug` quoting is valid JSON.
    let arguments = fixture_arguments(paths, behind);
    format!(r#"{{"command": {:?}, "args": {arguments:?}}}"#, paths.node().display().to_string())
}

/// Arguments of Node for the fixture.
fn fixture_arguments(paths: &WorkspacePaths, behind: ConformanceFixture) -> Vec<String> {
    let fixture = paths.root.join("fixtures/conformance_server.mjs");
    let mut arguments = vec![fixture.display().to_string(), paths.deps_dir.display().to_string()];
    arguments.extend(behind.era_option().map(str::to_owned));
    arguments
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
