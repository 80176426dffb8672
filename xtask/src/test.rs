//! `cargo xtask test`: fetch, check, build, test. Every step runs and the summary shows them all; only
//! after a failed build is the rest left out, for it would say the same again.

use std::fs;
use std::path::Path;
use std::process::{Command, ExitCode};

use crate::paths::WorkspacePaths;
use crate::process::{cargo, is_available, run_visible};
use crate::report::{StepReport, StepStatus};
use crate::{conformance, deps};

/// The same selection for every cargo command, so that nothing is compiled twice with other features.
const WORKSPACE_ARGS: [&str; 3] = ["--workspace", "--features", "toolcrib-testkit/rmcp-server"];
/// With what is off by default.
const EMBEDDINGS_ARGS: [&str; 3] =
    ["--workspace", "--features", "toolcrib-testkit/rmcp-server,toolcrib-cli/embeddings"];

/// What nextest says when a filter leaves nothing.
const NEXTEST_NO_TESTS_EXIT_CODE: i32 = 4;

pub(crate) fn run(filters: &[&str]) -> ExitCode {
    let place = match WorkspacePaths::find() {
        Ok(place) => place,
        Err(reason) => {
            println!("{reason}");
            return ExitCode::FAILURE;
        }
    };
    let mut report = StepReport::default();
    deps::fetch(&place, &mut report);
    if filters.is_empty() {
        report.run_step("format", || run_visible(cargo(&place, &["fmt", "--all", "--check"])));
        report.run_step("lints", || {
            run_visible(workspace_command(&place, &["clippy", "--all-targets"], &["--", "-D", "warnings"]))
        });
    }
    report.run_step("build", || run_visible(workspace_command(&place, &["build", "--all-targets"], &[])));
    if report.has_last_failed() {
        report.skip_step("tests", "the build failed");
    } else {
        run_tests(&place, filters, &mut report);
    }
    if report.print_summary() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn run_tests(place: &WorkspacePaths, filters: &[&str], report: &mut StepReport) {
    println!("    packages: {}\n    data:     {}\n", place.deps_dir.display(), describe_dir(&place.data_dir));
    let skips = place.target_dir.join("skipped-tests.txt");
    // A leftover of the last run would be told as news.
    let _ = fs::remove_file(&skips);

    report.run_step("tests", || run_test_binaries(place, filters, &skips));
    if filters.is_empty() {
        report.run_step("doc tests", || {
            run_visible(with_test_env(workspace_command(place, &["test", "--doc"], &[]), place, &skips))
        });
    }
    conformance::run(place, filters, report);
    if filters.is_empty() {
        // Last, for these leave a program behind that has the feature.
        let lints = [&["clippy"], &EMBEDDINGS_ARGS[..], &["--all-targets", "--", "-D", "warnings"]].concat();
        report.run_step("lints with embeddings", || run_visible(cargo(place, &lints)));
        let tests = [&["test"], &EMBEDDINGS_ARGS[..], &["--lib", "--test", "search", "meaning"]].concat();
        report.run_step("tests with embeddings", || run_visible(with_test_env(cargo(place, &tests), place, &skips)));
    }
    let skipped = fs::read_to_string(&skips).unwrap_or_default();
    report.set_skipped_tests(skipped.lines().map(str::to_owned).collect());
}

fn run_test_binaries(place: &WorkspacePaths, filters: &[&str], skips: &Path) -> StepStatus {
    if !is_available("cargo-nextest", "--version") {
        let command = workspace_command(place, &["test", "--all-targets", "--no-fail-fast"], &["--"]);
        return run_visible(with_filters(with_test_env(command, place, skips), filters));
    }
    // Whoever watches sees each test pass; a log that is read later has what did not, and what was slow.
    let told = if std::env::var_os("CI").is_some() { "slow" } else { "pass" };
    let run = ["nextest", "run", "--no-fail-fast", "--status-level", told, "--final-status-level", "slow"];
    let mut command = with_filters(with_test_env(workspace_command(place, &run, &[]), place, skips), filters);
    match command.status() {
        Ok(status) if status.success() => StepStatus::Passed(String::new()),
        Ok(status) if status.code() == Some(NEXTEST_NO_TESTS_EXIT_CODE) => no_tests_status(filters),
        Ok(status) => StepStatus::Failed(status.to_string()),
        Err(error) => StepStatus::Failed(format!("start nextest: {error}")),
    }
}

/// No test that matches is a slip, unless a scenario does.
fn no_tests_status(filters: &[&str]) -> StepStatus {
    if !filters.is_empty() && conformance::count_matching(filters) > 0 {
        return StepStatus::Skipped("none match".to_owned());
    }
    StepStatus::Failed(format!("nothing matches `{}`", filters.join(" ")))
}

fn workspace_command(place: &WorkspacePaths, before: &[&str], after: &[&str]) -> Command {
    cargo(place, &[before, &WORKSPACE_ARGS, after].concat())
}

fn with_filters(mut command: Command, filters: &[&str]) -> Command {
    command.args(filters);
    command
}

/// What the testkit's `rig` module reads.
fn with_test_env(mut command: Command, place: &WorkspacePaths, skips: &Path) -> Command {
    command.env("TOOLCRIB_TEST_DEPS", &place.deps_dir).env("TOOLCRIB_TEST_DATA", &place.data_dir);
    command.env("TOOLCRIB_TEST_SKIPS", skips);
    command
}

fn describe_dir(folder: &Path) -> String {
    let note = if folder.is_dir() { "" } else { " (absent: tests that need it are skipped)" };
    format!("{}{note}", folder.display())
}
