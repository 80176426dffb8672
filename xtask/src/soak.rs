//! `cargo xtask soak`: the tests of several nodes under faults at their full size. `cargo xtask test` runs them at a size of
//! some seconds.

use std::process::ExitCode;

use crate::deps;
use crate::paths::WorkspacePaths;
use crate::process::run_visible;
use crate::report::{StepReport, StepStatus};
use crate::test::workspace_command;

/// The tests, with full names.
const SOAK_TESTS: [&str; 2] = [
    "cluster::chaos::nodes_and_database_may_fail_at_any_time",
    "cluster::balancer::calls_through_the_balancer_are_lost_with_a_killed_node_only",
];

/// Builds the programs, then runs the tests one after the other; each prints its figures.
pub(crate) fn run(paths: &WorkspacePaths) -> ExitCode {
    let mut report = StepReport::default();
    deps::install_cluster_programs(paths, &mut report);
    report.run_step("build", || run_visible(workspace_command(paths, &["build", "--bins"], &[])));
    for test in SOAK_TESTS {
        if report.has_failed() {
            report.skip_step(test, "an earlier step failed");
        } else {
            report.run_step(test, || run_test(paths, test));
        }
    }
    if report.print_summary() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs one test with its output on the terminal.
fn run_test(paths: &WorkspacePaths, name: &str) -> StepStatus {
    let mut command = workspace_command(paths, &["test", "--test", "cli"], &["--", "--exact", "--nocapture", name]);
    // Under CI a missing program is a failure and not a skip.
    command.env("TOOLCRIB_TEST_DEPS", &paths.deps_dir).env("TOOLCRIB_SOAK", "full").env("CI", "true");
    run_visible(command)
}

#[cfg(test)]
mod tests {
    use super::SOAK_TESTS;

    /// A name that matches no test would pass.
    #[test]
    fn the_tests_exist() {
        let sources = [
            include_str!("../../crates/toolcrib-cli/tests/cluster/chaos.rs"),
            include_str!("../../crates/toolcrib-cli/tests/cluster/balancer.rs"),
        ];
        for (test, source) in SOAK_TESTS.iter().zip(sources) {
            let name = test.rsplit("::").next().unwrap();
            assert!(source.contains(&format!("fn {name}()")), "{test}");
        }
    }
}
