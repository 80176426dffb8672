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
mod input;
mod model;
mod preview;
mod session;

mod color;
mod copy_progress;
mod output;
mod plural;
mod pretty_json;
mod progress;
mod source_summary;
mod table;

mod exit;
mod log;
mod telemetry;

use std::pin::Pin;
use std::process::ExitCode;

use toolcrib::Result;
use toolcrib::core::access_rules::RuleKind;
use toolcrib::registry::EnabledState;
use tracing::Instrument;

use arguments::{Arguments, CliCommand, CommonArguments};
use exit::CommandOutcome;
use telemetry::Telemetry;

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
            return run_command(arguments).await.map_err(Some);
        }
        // A signal drops the future of the command, with its connections. `None` stands for that signal, which is no
        // error of the command.
        tokio::select! {
            result = run_command(arguments) => result.map_err(Some),
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

/// Runs the command within its tracing span, and exports its telemetry afterwards.
async fn run_command(arguments: Arguments) -> Result<CommandOutcome> {
    let Arguments { common, command } = arguments;
    let (telemetry, command_span) = Telemetry::start(command.is_long_running());
    let common = &CommonArguments { telemetry, ..common };
    // The name is for spans and log events. One boxed future per command: as one `async` block, the futures of all
    // commands would share a state machine as large as the largest, and the compiler would build it in one piece.
    let (name, work) = match command {
        CliCommand::Serve(arguments) => ("serve", box_command(commands::serve::run(common, arguments))),
        CliCommand::Mcp(arguments) => ("mcp", box_command(commands::mcp::run(common, arguments))),
        CliCommand::Sources(arguments) => ("sources", box_command(commands::sources::run(common, arguments))),
        CliCommand::Tools(arguments) => ("tools", box_command(commands::tools::run(common, arguments))),
        CliCommand::Search(arguments) => ("search", box_command(commands::search::run(common, arguments))),
        CliCommand::Describe(arguments) => ("describe", box_command(commands::describe::run(common, arguments))),
        CliCommand::Context(arguments) => ("context", box_command(commands::context::run(common, arguments))),
        CliCommand::Call(arguments) => ("call", box_command(commands::call::run(common, arguments))),
        CliCommand::Refresh(arguments) => ("refresh", box_command(commands::refresh::run(common, arguments))),
        CliCommand::Init(arguments) => ("init", box_command(async move { commands::init::run(common, &arguments) })),
        CliCommand::Import(arguments) => ("import", box_command(commands::import::run(common, arguments))),
        CliCommand::Add(arguments) => ("add", box_command(commands::add::run(common, *arguments))),
        CliCommand::Remove(arguments) => ("remove", box_command(commands::remove::run(common, arguments))),
        CliCommand::Enable(arguments) => {
            ("enable", box_command(commands::enable::run(common, arguments, EnabledState::Enabled)))
        }
        CliCommand::Disable(arguments) => {
            ("disable", box_command(commands::enable::run(common, arguments, EnabledState::Disabled)))
        }
        CliCommand::Invalidate(arguments) => ("invalidate", box_command(commands::invalidate::run(common, arguments))),
        CliCommand::Config(arguments) => ("config", box_command(commands::config::run(common, arguments))),
        CliCommand::Export(arguments) => ("export", box_command(commands::export::run(common, arguments))),
        CliCommand::Trust(arguments) => ("trust", box_command(async move { commands::trust::run(common, &arguments) })),
        CliCommand::Logs(arguments) => ("logs", box_command(commands::logs::run(common, arguments))),
        CliCommand::Completions(arguments) => {
            ("completions", box_command(async move { commands::completions::run(&arguments) }))
        }
        CliCommand::History(arguments) => ("history", box_command(commands::history::run(common, arguments))),
        CliCommand::Diff(arguments) => ("diff", box_command(commands::diff::run(common, arguments))),
        CliCommand::Lock(arguments) => ("lock", box_command(commands::lock::run(common, arguments))),
        CliCommand::Stats(arguments) => ("stats", box_command(commands::stats::run(common, arguments))),
        CliCommand::Verify(arguments) => ("verify", box_command(commands::verify::run(common, arguments))),
        CliCommand::Backup(arguments) => ("backup", box_command(commands::backup::run(common, arguments))),
        CliCommand::Restore(arguments) => ("restore", box_command(commands::restore::run(common, arguments))),
        CliCommand::Store(arguments) => ("store", box_command(commands::store::run(common, arguments))),
        CliCommand::Doctor(arguments) => ("doctor", box_command(commands::doctor::run(common, arguments))),
        CliCommand::Eval(arguments) => ("eval", box_command(async move { commands::eval::run(common, &arguments) })),
        CliCommand::Group(arguments) => {
            ("group", box_command(commands::rules::run(common, RuleKind::Group, arguments.action)))
        }
        CliCommand::Access(arguments) => {
            ("access", box_command(commands::rules::run(common, RuleKind::Access, arguments.action)))
        }
        CliCommand::Policy(arguments) => {
            ("policy", box_command(commands::rules::run(common, RuleKind::Policy, arguments.action)))
        }
        CliCommand::Explain(arguments) => ("explain", box_command(commands::explain::run(common, arguments))),
        CliCommand::Token(arguments) => ("token", box_command(commands::token::run(common, arguments))),
        CliCommand::Man(arguments) => ("man", box_command(async move { commands::man::run(&arguments) })),
        #[cfg(feature = "demo")]
        CliCommand::Demo(arguments) => ("demo", box_command(commands::demo::run(common, arguments))),
    };
    let span = log::command_span(name, common.telemetry.trace.as_ref());
    let result = work.instrument(span).await;
    command_span.finish(name, &result).await;
    result
}

/// Boxes the future of a command, which returns an outcome, or nothing if it has no failures besides errors.
fn box_command<'a, T: Into<CommandOutcome>>(
    work: impl Future<Output = Result<T>> + 'a,
) -> Pin<Box<dyn Future<Output = Result<CommandOutcome>> + 'a>> {
    Box::pin(async { work.await.map(Into::into) })
}
