//! Benchmarks of Toolcrib against thresholds. Thresholds are ratios within one run, since an absolute time says more
//! about the machine than about the program. `cargo xtask bench` builds and runs this program.
//!
//! Each benchmark is a module with a function `run` that adds rows, curves or tables to the report. Where possible, the
//! two sides of a ratio are measured alternately, so that other load on the machine affects both. A benchmark that
//! fails with an error does not end the run. docs/benchmarks.md explains the thresholds and has the last results.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "printing is what this program does")]

mod start;

mod discovery;

mod publish;

mod curves;

mod wire;

mod proxy;
mod search;

mod openapi;

mod http;

mod access;

mod nodes;

mod measure;
mod recorded_tools;
mod report;

use std::process::ExitCode;

use report::BenchReport;

/// Errors are boxed: they are only printed.
type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;
/// One benchmark: adds its measurements to the report.
type BenchFn = fn(&mut BenchReport) -> Result<()>;

/// All benchmarks, in the order in which they run.
const BENCHES: [(&str, BenchFn); 11] = [
    ("start", start::run),
    ("discovery", discovery::run),
    ("publish", publish::run),
    ("curves", curves::run),
    ("wire", wire::run),
    ("proxy", proxy::run),
    ("search", search::run),
    ("openapi", openapi::run),
    ("http", http::run),
    ("access", access::run),
    ("nodes", nodes::run),
];

fn main() -> ExitCode {
    // Server processes are started through this binary as a guard, so this check comes first.
    toolcrib::guard::run_if_requested();
    let selected: Vec<String> = std::env::args().skip(1).collect();
    if let Some(unknown) = selected.iter().find(|name| BENCHES.iter().all(|(known, _)| known != name)) {
        let names = BENCHES.map(|(name, _)| name).join(", ");
        eprintln!("unknown benchmark `{unknown}`; known are {names}");
        return ExitCode::from(2);
    }
    // The report goes to stdout at the end, progress to stderr, so that the report can be redirected to a file.
    let mut report = BenchReport::default();
    for (name, bench) in
        BENCHES.iter().filter(|(name, _)| selected.is_empty() || selected.iter().any(|selected| selected == name))
    {
        eprintln!("measuring {name} …");
        if let Err(error) = bench(&mut report) {
            report.add_failure(name, &*error);
        }
    }
    print!("{report}");
    if report.is_all_met() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
