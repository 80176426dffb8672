//! The binary `toolcrib`: parses the command line, runs one command against the `toolcrib` library, prints the result
//! and exits with one code. The library does the work; this crate only parses, prints and handles signals.
//!
//! A run has five steps: act as the guard or the demo server if a hidden first argument says so, parse the arguments,
//! set up the log, run the command on an async runtime, and map its result to an exit code. A one-shot command
//! (`tools`, `call`) is dropped when a signal arrives. A long-running command (`serve`, `mcp`, `demo --serve`)
//! receives the signals itself, because it finishes calls in flight first.

mod arguments;
mod commands;

mod discovery_wait;
mod model;
mod session;

mod color;
mod output;
mod plural;
mod pretty_json;
mod progress;
mod source_summary;
mod table;

mod exit;
mod log;
mod telemetry;

use std::process::ExitCode;

use arguments::Arguments;

fn main() -> ExitCode {
    // MCP servers are started through this binary acting as their guard. The guard must not parse arguments, open files
    // or start threads first.
    toolcrib::guard::run_if_requested();
    // The MCP server of `toolcrib demo` is this binary, too. It is synchronous and needs no runtime.
    #[cfg(feature = "demo")]
    if let Some(code) = toolcrib_demo::mcp_server::run_if_requested() {
        return code;
    }
    let arguments = match Arguments::parse_process() {
        Ok(arguments) => arguments,
        Err(error) => return exit::report_usage(&error),
    };
    // A long-running command handles signals itself (graceful shutdown) and uses all cores.
    let is_long_running = arguments.command.is_long_running();
    log::init(&arguments.common, is_long_running);
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    if is_long_running {
        exit::enforce_drain_timeout();
    } else {
        // A one-shot command mostly waits for I/O; more workers would only cost start-up time.
        runtime.worker_threads(2);
    }
    let runtime = match runtime.enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return exit::report_startup_error(&error),
    };
    // Copied before `arguments` moves into the command: the error report and the signal handler need them afterwards.
    let json = arguments.common.json;
    let wait = arguments.common.wait.clone();
    let result = runtime.block_on(async {
        if is_long_running {
            return commands::run(arguments).await.map_err(Some);
        }
        // A signal drops the future of the command, with its connections. `None` stands for that signal, which is no
        // error of the command.
        tokio::select! {
            result = commands::run(arguments) => result.map_err(Some),
            () = exit::wait_for_shutdown(&wait) => Err(None),
        }
    });
    // Dropped connections may still have server processes to end. Their guards do that without this process, so there is
    // no need to wait for blocking tasks.
    runtime.shutdown_background();
    match result {
        Ok(outcome) => exit::exit_code(outcome),
        Err(Some(error)) => exit::report_error(&error, json),
        Err(None) => exit::report_interrupt(),
    }
}
