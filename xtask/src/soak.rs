//! `cargo xtask soak`: the tests of several nodes under faults at their full size. `cargo xtask test` runs them at a
//! size of some seconds.

use std::process::{ExitCode, Stdio};

use crate::deps;
use crate::paths::WorkspacePaths;
use crate::process::run_visible;
use crate::report::{StepReport, StepStatus};
use crate::test::workspace_command;

/// Target of the tests.
const TEST_TARGET: &str = "cli";
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

/// Runs one test with its output on the terminal. Fails if there is none with this name, with which `cargo test`
/// succeeds.
fn run_test(paths: &WorkspacePaths, name: &str) -> StepStatus {
    let test_command = |options: &[&str]| {
        workspace_command(paths, &["test", "--test", TEST_TARGET], &[&["--", "--exact", name], options].concat())
    };
    match test_command(&["--list"]).stderr(Stdio::inherit()).output() {
        Ok(output) if !lists_test(&String::from_utf8_lossy(&output.stdout), name) => {
            return StepStatus::Failed(format!("there is no test `{name}`"));
        }
        Ok(_) => {}
        Err(error) => return StepStatus::Failed(format!("list the tests: {error}")),
    }
    let mut command = test_command(&["--nocapture"]);
    // Under CI a missing program is a failure and not a skip.
    command.env("TOOLCRIB_TEST_DEPS", &paths.deps_dir).env("TOOLCRIB_SOAK", "full").env("CI", "true");
    run_visible(command)
}

/// Whether the output of `--list` has a test.
fn lists_test(output: &str, name: &str) -> bool {
    output.lines().any(|line| line.strip_suffix(": test") == Some(name))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::{SOAK_TESTS, lists_test};

    #[test]
    fn the_tests_exist() {
        for test in SOAK_TESTS {
            let (module, name) = test.rsplit_once("::").unwrap();
            let file = format!("../crates/toolcrib-cli/tests/{}.rs", module.replace("::", "/"));
            let source = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(file)).unwrap();
            assert!(source.contains(&format!("fn {name}()")), "{test}");
        }
    }

    /// Regression: the run passed without its tests when a module had another name.
    #[test]
    fn only_the_full_name_is_a_listed_test() {
        let output = "cluster::chaos::nodes_may_fail: test\n\n1 test, 0 benchmarks\n";
        assert!(lists_test(output, "cluster::chaos::nodes_may_fail"));
        assert!(!lists_test(output, "faults::nodes_may_fail"));
        assert!(!lists_test("0 tests, 0 benchmarks\n", "cluster::chaos::nodes_may_fail"));
    }
}
