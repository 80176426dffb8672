//! One module per command: its arguments with their help, its work and its output. [`run`] dispatches.
//!
//! Most commands have the same shape: open a [`CliSession`](crate::session::CliSession), do the work with its
//! registry, print, and close the session, which ends servers and writes counts. After an early error the session is
//! dropped instead, which ends the servers too. Failures that the command prints itself end in
//! `CommandOutcome::Failure`; everything else is an error with a code.

pub(crate) mod add;
pub(crate) mod call;
pub(crate) mod completions;
pub(crate) mod config;
pub(crate) mod context;
#[cfg(feature = "demo")]
pub(crate) mod demo;
pub(crate) mod describe;
pub(crate) mod diff;
pub(crate) mod doctor;
pub(crate) mod enable;
pub(crate) mod eval;
pub(crate) mod export;
pub(crate) mod history;
pub(crate) mod import;
pub(crate) mod init;
pub(crate) mod invalidate;
pub(crate) mod lock;
pub(crate) mod logs;
pub(crate) mod man;
pub(crate) mod mcp;
pub(crate) mod refresh;
pub(crate) mod remove;
pub(crate) mod search;
pub(crate) mod serve;
pub(crate) mod sources;
pub(crate) mod stats;
pub(crate) mod token;
pub(crate) mod tools;
pub(crate) mod trust;
pub(crate) mod verify;

use std::pin::Pin;

use toolcrib::Result;
use toolcrib::registry::EnabledState;
use tracing::Instrument;

use crate::arguments::{Arguments, CliCommand, CommonArguments};
use crate::exit::CommandOutcome;
use crate::log;
use crate::telemetry::Telemetry;

/// Runs the command within its tracing span, and exports its telemetry afterwards.
pub(crate) async fn run(arguments: Arguments) -> Result<CommandOutcome> {
    let Arguments { common, command } = arguments;
    let (telemetry, command_span) = Telemetry::start(command.is_long_running());
    let common = &CommonArguments { telemetry, ..common };
    // The name is for spans and log events. One boxed future per command: as one `async` block, the futures of all
    // commands would share a state machine as large as the largest, and the compiler would build it in one piece.
    let (name, work) = match command {
        CliCommand::Serve(arguments) => ("serve", box_command(serve::run(common, arguments))),
        CliCommand::Mcp(arguments) => ("mcp", box_command(mcp::run(common, arguments))),
        CliCommand::Sources(arguments) => ("sources", box_command(sources::run(common, arguments))),
        CliCommand::Tools(arguments) => ("tools", box_command(tools::run(common, arguments))),
        CliCommand::Search(arguments) => ("search", box_command(search::run(common, arguments))),
        CliCommand::Describe(arguments) => ("describe", box_command(describe::run(common, arguments))),
        CliCommand::Context(arguments) => ("context", box_command(context::run(common, arguments))),
        CliCommand::Call(arguments) => ("call", box_command(call::run(common, arguments))),
        CliCommand::Refresh(arguments) => ("refresh", box_command(refresh::run(common, arguments))),
        CliCommand::Init(arguments) => ("init", box_command(async move { init::run(common, &arguments) })),
        CliCommand::Import(arguments) => ("import", box_command(import::run(common, arguments))),
        CliCommand::Add(arguments) => ("add", box_command(add::run(common, *arguments))),
        CliCommand::Remove(arguments) => ("remove", box_command(remove::run(common, arguments))),
        CliCommand::Enable(arguments) => ("enable", box_command(enable::run(common, arguments, EnabledState::Enabled))),
        CliCommand::Disable(arguments) => {
            ("disable", box_command(enable::run(common, arguments, EnabledState::Disabled)))
        }
        CliCommand::Invalidate(arguments) => ("invalidate", box_command(invalidate::run(common, arguments))),
        CliCommand::Config(arguments) => ("config", box_command(config::run(common, arguments))),
        CliCommand::Export(arguments) => ("export", box_command(export::run(common, arguments))),
        CliCommand::Trust(arguments) => ("trust", box_command(async move { trust::run(common, &arguments) })),
        CliCommand::Logs(arguments) => ("logs", box_command(logs::run(common, arguments))),
        CliCommand::Completions(arguments) => ("completions", box_command(async move { completions::run(&arguments) })),
        CliCommand::History(arguments) => ("history", box_command(history::run(common, arguments))),
        CliCommand::Diff(arguments) => ("diff", box_command(diff::run(common, arguments))),
        CliCommand::Lock(arguments) => ("lock", box_command(lock::run(common, arguments))),
        CliCommand::Stats(arguments) => ("stats", box_command(stats::run(common, arguments))),
        CliCommand::Verify(arguments) => ("verify", box_command(verify::run(common, arguments))),
        CliCommand::Doctor(arguments) => ("doctor", box_command(doctor::run(common, arguments))),
        CliCommand::Eval(arguments) => ("eval", box_command(async move { eval::run(common, &arguments) })),
        CliCommand::Token(arguments) => ("token", box_command(token::run(common, arguments))),
        CliCommand::Man(arguments) => ("man", box_command(async move { man::run(&arguments) })),
        #[cfg(feature = "demo")]
        CliCommand::Demo(arguments) => ("demo", box_command(demo::run(common, arguments))),
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
