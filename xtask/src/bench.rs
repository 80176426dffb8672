//! `cargo xtask bench`: builds with optimisation and runs the program of `bench/`, whose exit code is 0 if every
//! threshold is met.
//!
//! Measures the profile `dist`, which is shipped. The `proxy` bench runs with `release` as well, because that is what
//! contributors build and run.

use std::process::{Command, ExitCode};

use crate::deps;
use crate::paths::WorkspacePaths;
use crate::process::{cargo, run_visible};
use crate::report::{StepReport, StepStatus};

/// Selects all programs of the measurements, built together so that no crate is compiled twice with other features.
const PROGRAMS: [&str; 9] = [
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

/// Runs the benchmarks with these names, all without names. Fails if a build fails or a threshold is missed.
pub(crate) fn run(paths: &WorkspacePaths, names: &[&str]) -> ExitCode {
    // The command line is part of the output, which is pasted into docs/benchmarks.md.
    println!("$ cargo xtask bench {}\n", names.join(" "));
    if names.is_empty() || names.contains(&"nodes") {
        // What is missing afterwards is reported by the benchmark.
        deps::install_cluster_programs(paths, &mut StepReport::default());
    }
    let mut failures = Vec::new();
    if let StepStatus::Failed(reason) = build_and_run(paths, "dist", names) {
        failures.push(format!("profile `dist`: {reason}"));
    }
    // Also after a failure above: both profiles are reported in one run.
    let includes_proxy = names.is_empty() || names.contains(&"proxy");
    if includes_proxy && let StepStatus::Failed(reason) = build_and_run(paths, "release", &["proxy"]) {
        failures.push(format!("profile `release`: {reason}"));
    }
    for failure in &failures {
        println!("\nfailed: {failure}");
    }
    if failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Builds with one profile and runs the measurements of that build.
fn build_and_run(paths: &WorkspacePaths, profile: &str, names: &[&str]) -> StepStatus {
    let build = [&["build", "--profile", profile], &PROGRAMS[..]].concat();
    if let StepStatus::Failed(reason) = run_visible(cargo(paths, &build)) {
        return StepStatus::Failed(format!("the build: {reason}"));
    }
    println!("\nmeasured with the profile `{profile}`\n");
    let program = paths.target_dir.with_file_name(profile).join("toolcrib-bench");
    let mut command = Command::new(program);
    command.args(names).env("TOOLCRIB_TEST_DATA", &paths.data_dir);
    if names.is_empty() || names.contains(&"openapi") {
        // Optional: the comparison has no threshold, and without network the other rows are still worth having.
        match deps::fetch_fastmcp(paths) {
            Ok(python) => {
                command.env("TOOLCRIB_BENCH_FASTMCP", python);
            }
            Err(reason) => println!("without FastMCP to compare with: {reason}\n"),
        }
    }
    run_visible(command)
}
