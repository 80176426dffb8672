//! `cargo xtask check`: the inner loop. Formatting, naming rules, lints and unit tests; fetches nothing and starts no
//! server, so it is quick enough to run before each commit.

use std::process::ExitCode;

use crate::naming;
use crate::paths::WorkspacePaths;
use crate::process::{cargo, is_available, run_visible};
use crate::report::{StepReport, StepStatus};
use crate::test::workspace_command;

/// Runs all steps, also after a failed one, and fails if any did.
pub(crate) fn run(paths: &WorkspacePaths) -> ExitCode {
    let mut report = StepReport::default();
    run_static_checks(paths, &mut report);
    report.run_step("unit tests", || run_unit_tests(paths));
    if report.print_summary() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The steps that `cargo xtask test` begins with, too.
pub(crate) fn run_static_checks(paths: &WorkspacePaths, report: &mut StepReport) {
    report.run_step("format", || run_visible(cargo(paths, &["fmt", "--all", "--check"])));
    report.run_step("names", || naming::check(paths));
    // All targets, so that tests, examples and benches are linted, too. A warning fails the step.
    report.run_step("lints", || {
        run_visible(workspace_command(paths, &["clippy", "--all-targets"], &["--", "-D", "warnings"]))
    });
}

/// Runs the tests inside the crates (`src`). Integration tests start servers and are left to `cargo xtask test`.
fn run_unit_tests(paths: &WorkspacePaths) -> StepStatus {
    let command = if is_available("cargo-nextest", "--version") {
        workspace_command(paths, &["nextest", "run", "--lib", "--bins", "--status-level", "fail"], &[])
    } else {
        workspace_command(paths, &["test", "--quiet", "--lib", "--bins"], &[])
    };
    run_visible(command)
}
