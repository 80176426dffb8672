//! `cargo xtask`: the one place of automation. Plain std, so that there is nothing to install first
//! and nothing to rebuild when the features of a dependency change.

#![expect(clippy::print_stdout, reason = "printing is what this program does")]

use std::process::ExitCode;

mod test;

mod bench;

mod conformance;
mod deps;
mod paths;
mod process;
mod report;

const USAGE: &str = "\
cargo xtask: builds, checks and tests Toolcrib

usage: cargo xtask test [FILTER…]
       cargo xtask bench [NAME…]

  test            fetch what the tests need, then formatting, lints, build, tests, doc tests, MCP conformance,
                  and what the feature `embeddings` adds
  test FILTER…    fetch and build, then only the tests and conformance scenarios whose name contains a FILTER
  bench           build with optimisation, measure, and hold the ratios against their bars
  bench NAME…     only these: start, discovery, publish, curves, wire, proxy, search

examples:
  cargo xtask test
  cargo xtask test search
  cargo xtask test request-metadata
  cargo xtask bench start curves
  CI=true cargo xtask test          a component that cannot be had is a failure, not a skip

environment (docs/testing.md and docs/benchmarks.md say more):
  TOOLCRIB_TEST_DEPS   where fetched packages live   (default: .test-deps)
  TOOLCRIB_TEST_DATA   recorded real material        (default: ../shared/data)
  CARGO_BUILD_JOBS     parallel compilations         (default: 2)
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments.as_slice() {
        ["test", rest @ ..] if rest.iter().all(|argument| !argument.starts_with('-')) => test::run(rest),
        ["bench", rest @ ..] if rest.iter().all(|argument| !argument.starts_with('-')) => bench::run(rest),
        [] | ["help" | "-h" | "--help", ..] | ["test" | "bench", "-h" | "--help"] => {
            print!("{USAGE}");
            ExitCode::SUCCESS
        }
        other => {
            print!("{USAGE}");
            println!("\nunknown: `{}`", other.join(" "));
            ExitCode::from(2)
        }
    }
}
