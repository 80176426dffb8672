//! `cargo xtask test`: fetch, check, build, test. Every step runs and the summary shows them all; only
//! after a failed build is the rest left out, for it would say the same again.

use std::fs;
use std::path::Path;
use std::process::{Command, ExitCode};

use crate::place::Place;
use crate::process::{answers, cargo, open};
use crate::report::{End, Report};
use crate::{conformance, deps};

/// The same selection for every cargo command, so that nothing is compiled twice with other features.
const WORKSPACE: [&str; 3] = ["--workspace", "--features", "toolcrib-testkit/rmcp-server"];
/// With what is off by default.
const EMBEDDINGS: [&str; 3] = ["--workspace", "--features", "toolcrib-testkit/rmcp-server,toolcrib-cli/embeddings"];

/// What nextest says when a filter leaves nothing.
const NEXTEST_NO_TESTS: i32 = 4;

pub(crate) fn run(filters: &[&str]) -> ExitCode {
    let place = match Place::find() {
        Ok(place) => place,
        Err(reason) => {
            println!("{reason}");
            return ExitCode::FAILURE;
        }
    };
    let mut report = Report::default();
    deps::fetch(&place, &mut report);
    if filters.is_empty() {
        report.step("format", || open(cargo(&place, &["fmt", "--all", "--check"])));
        report.step("lints", || open(workspace(&place, &["clippy", "--all-targets"], &["--", "-D", "warnings"])));
    }
    report.step("build", || open(workspace(&place, &["build", "--all-targets"], &[])));
    if report.last_failed() {
        report.skip("tests", "the build failed");
    } else {
        tests(&place, filters, &mut report);
    }
    if report.close() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn tests(place: &Place, filters: &[&str], report: &mut Report) {
    println!("    packages: {}\n    data:     {}\n", place.deps.display(), shown(&place.data));
    let skips = place.built.join("skipped-tests.txt");
    // A leftover of the last run would be told as news.
    let _ = fs::remove_file(&skips);

    report.step("tests", || nextest_or_test(place, filters, &skips));
    if filters.is_empty() {
        report.step("doc tests", || open(in_rig(workspace(place, &["test", "--doc"], &[]), place, &skips)));
    }
    conformance::run(place, filters, report);
    if filters.is_empty() {
        // Last, for these leave a program behind that has the feature.
        let lints = [&["clippy"], &EMBEDDINGS[..], &["--all-targets", "--", "-D", "warnings"]].concat();
        report.step("lints with embeddings", || open(cargo(place, &lints)));
        let tests = [&["test"], &EMBEDDINGS[..], &["--lib", "--test", "search", "meaning"]].concat();
        report.step("tests with embeddings", || open(in_rig(cargo(place, &tests), place, &skips)));
    }
    let skipped = fs::read_to_string(&skips).unwrap_or_default();
    report.skipped_tests(skipped.lines().map(str::to_owned).collect());
}

fn nextest_or_test(place: &Place, filters: &[&str], skips: &Path) -> End {
    if !answers("cargo-nextest", "--version") {
        let command = workspace(place, &["test", "--all-targets", "--no-fail-fast"], &["--"]);
        return open(with(in_rig(command, place, skips), filters));
    }
    // Whoever watches sees each test pass; a log that is read later has what did not, and what was slow.
    let told = if std::env::var_os("CI").is_some() { "slow" } else { "pass" };
    let run = ["nextest", "run", "--no-fail-fast", "--status-level", told, "--final-status-level", "slow"];
    let mut command = with(in_rig(workspace(place, &run, &[]), place, skips), filters);
    match command.status() {
        Ok(status) if status.success() => End::Passed(String::new()),
        Ok(status) if status.code() == Some(NEXTEST_NO_TESTS) => none_ran(filters),
        Ok(status) => End::Failed(status.to_string()),
        Err(error) => End::Failed(format!("start nextest: {error}")),
    }
}

/// No test that matches is a slip, unless a scenario does.
fn none_ran(filters: &[&str]) -> End {
    if !filters.is_empty() && conformance::matching(filters) > 0 {
        return End::Skipped("none match".to_owned());
    }
    End::Failed(format!("nothing matches `{}`", filters.join(" ")))
}

fn workspace(place: &Place, before: &[&str], after: &[&str]) -> Command {
    cargo(place, &[before, &WORKSPACE, after].concat())
}

fn with(mut command: Command, filters: &[&str]) -> Command {
    command.args(filters);
    command
}

/// What the testkit's `rig` module reads.
fn in_rig(mut command: Command, place: &Place, skips: &Path) -> Command {
    command.env("TOOLCRIB_TEST_DEPS", &place.deps).env("TOOLCRIB_TEST_DATA", &place.data);
    command.env("TOOLCRIB_TEST_SKIPS", skips);
    command
}

fn shown(folder: &Path) -> String {
    let note = if folder.is_dir() { "" } else { " (absent: tests that need it are skipped)" };
    format!("{}{note}", folder.display())
}
