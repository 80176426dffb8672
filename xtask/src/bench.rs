//! `cargo xtask bench`: an optimised build, then the program of `bench/`, whose exit code tells whether every bar was met.

use std::process::{Command, ExitCode};

use crate::deps;
use crate::place::Place;
use crate::process::{cargo, open};
use crate::report::End;

/// Built together, so that nothing is compiled twice with other features.
const BUILD: [&str; 11] = [
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
    match measure(names) {
        End::Passed(_) => ExitCode::SUCCESS,
        End::Failed(reason) | End::Skipped(reason) => {
            println!("\nfailed: {reason}");
            ExitCode::FAILURE
        }
    }
}

fn measure(names: &[&str]) -> End {
    let place = match Place::find() {
        Ok(place) => place,
        Err(reason) => return End::Failed(reason),
    };
    if let End::Failed(reason) = open(cargo(&place, &BUILD)) {
        return End::Failed(format!("the build: {reason}"));
    }
    let program = place.built.with_file_name("release").join("toolcrib-bench");
    println!("$ cargo xtask bench {}\n", names.join(" "));
    let mut command = Command::new(program);
    command.args(names).env("TOOLCRIB_TEST_DATA", &place.data);
    if names.is_empty() || names.contains(&"openapi") {
        match deps::fastmcp(&place) {
            Ok(python) => drop(command.env("TOOLCRIB_BENCH_FASTMCP", python)),
            Err(reason) => println!("without FastMCP to compare with: {reason}\n"),
        }
    }
    open(command)
}
