//! The command `toolcrib`: arguments in, work done by the library, results out, one exit code.

mod arguments;
mod commands;
mod desk;
mod exit;
mod log;
mod model;
mod output;
mod paint;
mod pretty;
mod progress;
mod table;
mod telemetry;
mod waiting;
mod wording;

use std::process::ExitCode;

use clap::Parser;

use arguments::Arguments;

fn main() -> ExitCode {
    // Servers are started through this same binary; nothing may come before it.
    toolcrib::guard::run_if_asked();
    if let Some(code) = commands::demo::server::run_if_asked() {
        return code;
    }
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => return exit::usage(&error),
    };
    // What serves others leaves in its own way, and uses what cores there are.
    let stays = arguments.command.stays();
    log::start(&arguments.common, stays);
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    if stays {
        exit::enforce_drain_timeout();
    } else {
        runtime.worker_threads(2);
    }
    let runtime = match runtime.enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return exit::broken(&error),
    };
    let json = arguments.common.json;
    let wait = arguments.common.wait.clone();
    let result = runtime.block_on(async {
        if stays {
            return commands::run(arguments).await.map_err(Some);
        }
        tokio::select! {
            result = commands::run(arguments) => result.map_err(Some),
            () = exit::asked_to_leave(&wait) => Err(None),
        }
    });
    // What was dropped above may have processes to end; their guards do that, and need not be waited for.
    runtime.shutdown_background();
    match result {
        Ok(done) => exit::done(done),
        Err(Some(error)) => exit::failed(&error, json),
        Err(None) => exit::interrupted(),
    }
}
