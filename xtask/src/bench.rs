//! `cargo xtask bench`: an optimised build, then the program of `bench/`, whose exit code tells whether every bar was met.

use std::process::{Command, ExitCode};

use crate::deps;
use crate::paths::WorkspacePaths;
use crate::process::{cargo, run_visible};
use crate::report::StepStatus;

/// Built together, so that nothing is compiled twice with other features.
const BUILD_ARGS: [&str; 11] = [
    "build",
    "--release",
    "--bins",
    "-p",
    "toolcrib-cli",
    "-p",
    "toolcrib-testkit",
    "-p",
    "toolcrib-bench",
    "--features",
    "toolcrib-testkit/rmcp-server",
];

pub(crate) fn run(names: &[&str]) -> ExitCode {
    match build_and_run(names) {
        StepStatus::Passed(_) => ExitCode::SUCCESS,
        StepStatus::Failed(reason) | StepStatus::Skipped(reason) => {
            println!("\nfailed: {reason}");
            ExitCode::FAILURE
        }
    }
}

fn build_and_run(names: &[&str]) -> StepStatus {
    let place = match WorkspacePaths::find() {
        Ok(place) => place,
        Err(reason) => return StepStatus::Failed(reason),
    };
    if let StepStatus::Failed(reason) = run_visible(cargo(&place, &BUILD_ARGS)) {
        return StepStatus::Failed(format!("the build: {reason}"));
    }
    let program = place.target_dir.with_file_name("release").join("toolcrib-bench");
    println!("$ cargo xtask bench {}\n", names.join(" "));
    let mut command = Command::new(program);
    command.args(names).env("TOOLCRIB_TEST_DATA", &place.data_dir);
    if names.is_empty() || names.contains(&"openapi") {
        match deps::fetch_fastmcp(&place) {
            Ok(python) => drop(command.env("TOOLCRIB_BENCH_FASTMCP", python)),
            Err(reason) => println!("without FastMCP to compare with: {reason}\n"),
        }
    }
    run_visible(command)
}
