//! What Toolcrib promises about time, measured. Every bar is a ratio within one run, for an absolute time
//! says more about the machine than about the program. `cargo xtask bench` builds and runs this.

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

mod measure;
mod recorded_tools;
mod report;

use std::process::ExitCode;

use report::BenchReport;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;
type BenchFn = fn(&mut BenchReport) -> Result<()>;

const BENCHES: [(&str, BenchFn); 9] = [
    ("start", start::run),
    ("discovery", discovery::run),
    ("publish", publish::run),
    ("curves", curves::run),
    ("wire", wire::run),
    ("proxy", proxy::run),
    ("search", search::run),
    ("openapi", openapi::run),
    ("http", http::run),
];

fn main() -> ExitCode {
    // Servers are started through this same binary; nothing may come before it.
    toolcrib::guard::run_if_asked();
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    if let Some(unknown) = wanted.iter().find(|name| BENCHES.iter().all(|(known, _)| known != name)) {
        let names = BENCHES.map(|(name, _)| name).join(", ");
        eprintln!("no bench is named `{unknown}`; there are {names}");
        return ExitCode::from(2);
    }
    let mut report = BenchReport::default();
    for (name, bench) in BENCHES.iter().filter(|(name, _)| wanted.is_empty() || wanted.iter().any(|w| w == name)) {
        eprintln!("measuring {name} …");
        if let Err(error) = bench(&mut report) {
            report.add_failure(name, &*error);
        }
    }
    print!("{report}");
    if report.is_all_met() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
