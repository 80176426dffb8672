//! `cargo xtask`: checks, tests, measures and packages Toolcrib. Uses the standard library alone, so that it starts
//! quickly on a fresh machine and is not rebuilt when the features of a dependency change.
//!
//! Each command is a list of steps (`report`) that start other programs (`process`): `check` is the inner loop, `test`
//! is what CI runs, `soak` tests nodes under faults for longer, `bench` measures, `dist` packages. `deps` fetches the
//! programs that tests need.

#![expect(clippy::print_stdout, reason = "the output of this program is its report")]

use std::process::ExitCode;

mod bench;
mod check;
mod dist;
mod soak;
mod test;

mod conformance;
mod dependencies;
mod deps;
mod naming;

mod paths;
mod postgres;
mod process;
mod report;

use paths::WorkspacePaths;

/// Printed for `help`, without arguments, and before the message about unknown ones. Exit code 2 means wrong arguments,
/// 1 a failed step.
const USAGE: &str = "\
cargo xtask: checks, tests, measures and packages Toolcrib

usage: cargo xtask check
       cargo xtask test [FILTER…]
       cargo xtask soak
       cargo xtask bench [NAME…]
       cargo xtask dist

  check           format, naming rules, lints and unit tests: the inner loop
  test            everything that CI runs: fetches what the tests need, then all of `check`, dependencies,
                  documentation, all tests, MCP conformance, and an archive that is unpacked and tried
  test FILTER…    fetch and build, then only the tests and conformance scenarios whose name contains a FILTER
  soak            the tests of several nodes under faults at full size: 10,000 changes, 100 agents; some minutes
  bench           build with the profile `dist`, measure, and compare the ratios with their bars; `proxy` is
                  measured with the profile `release` too
  bench NAME…     only these: start, discovery, publish, curves, wire, proxy, search, openapi, http,
                  access, nodes
  dist            the files of a release in target/artefacts: archive, Debian package, container context,
                  checksums

examples:
  cargo xtask check
  cargo xtask test
  cargo xtask test search
  cargo xtask test request-metadata
  cargo xtask bench start curves
  CI=true cargo xtask test          fail, instead of skip, when something cannot be fetched

environment (see docs/testing.md and docs/benchmarks.md):
  TOOLCRIB_TEST_DEPS   directory of fetched packages     (default: .test-deps)
  TOOLCRIB_TEST_DATA   directory of recorded test data   (default: ../shared/data)
  CARGO_BUILD_JOBS     parallel compilations             (default: 2)
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments.as_slice() {
        ["check"] => in_workspace(check::run),
        // A filter that begins with `-` is more likely a flag of cargo, which is not passed on.
        ["test", filters @ ..] if filters.iter().all(|filter| !filter.starts_with('-')) => {
            in_workspace(|paths| test::run(paths, filters))
        }
        ["bench", names @ ..] if names.iter().all(|name| !name.starts_with('-')) => {
            in_workspace(|paths| bench::run(paths, names))
        }
        ["soak"] => in_workspace(soak::run),
        ["dist"] => in_workspace(dist::run),
        [] | ["help" | "-h" | "--help", ..] | ["check" | "test" | "soak" | "bench" | "dist", "-h" | "--help"] => {
            print!("{USAGE}");
            ExitCode::SUCCESS
        }
        unknown => {
            print!("{USAGE}");
            println!("\nunknown arguments: `{}`", unknown.join(" "));
            ExitCode::from(2)
        }
    }
}

/// Runs a command with the directories of the workspace.
fn in_workspace(run: impl FnOnce(&WorkspacePaths) -> ExitCode) -> ExitCode {
    match WorkspacePaths::find() {
        Ok(paths) => run(&paths),
        Err(reason) => {
            println!("{reason}");
            ExitCode::FAILURE
        }
    }
}
