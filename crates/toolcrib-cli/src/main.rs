//! The command `toolcrib`: arguments in, work done by the library, results out, one exit code.

mod arguments;
mod color;
mod commands;
mod discovery_wait;
mod exit;
mod log;
mod model;
mod output;
mod pretty_json;
mod progress;
mod session;
mod source_summary;
mod table;
mod telemetry;

use std::process::ExitCode;

use clap::Parser;

use arguments::Arguments;

fn main() -> ExitCode {
    // Servers are started through this same binary; nothing may come before it.
    toolcrib::guard::run_if_asked();
    if let Some(code) = commands::demo::mcp_server::run_if_requested() {
        return code;
    }
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => return exit::report_usage(&error),
    };
    // What serves others leaves in its own way, and uses what cores there are.
    let stays = arguments.command.is_long_running();
    log::init(&arguments.common, stays);
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    if stays {
        exit::enforce_drain_timeout();
    } else {
        runtime.worker_threads(2);
    }
    let runtime = match runtime.enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return exit::report_startup_error(&error),
    };
    let json = arguments.common.json;
    let wait = arguments.common.wait.clone();
    let result = runtime.block_on(async {
        if stays {
            return commands::run(arguments).await.map_err(Some);
        }
        tokio::select! {
            result = commands::run(arguments) => result.map_err(Some),
            () = exit::wait_for_shutdown(&wait) => Err(None),
        }
    });
    // What was dropped above may have processes to end; their guards do that, and need not be waited for.
    runtime.shutdown_background();
    match result {
        Ok(done) => exit::exit_code(done),
        Err(Some(error)) => exit::report_error(&error, json),
        Err(None) => exit::report_interrupt(),
    }
}
