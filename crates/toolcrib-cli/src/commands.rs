//! One module per command: its arguments with their help, its work and its output. [`run`] dispatches.
//!
//! Most commands have the same shape: open a [`CliSession`](crate::session::CliSession), do the work with its
//! registry, print, and close the session, which ends servers and writes counts. After an early error the session is
//! dropped instead, which ends the servers too. Failures that the command prints itself end in `CommandOutcome::Failure`; everything else is an error with a
//! code.

pub(crate) mod add;
pub(crate) mod call;
pub(crate) mod completions;
pub(crate) mod config;
pub(crate) mod context;
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
use tracing::Instrument;

use crate::arguments::{Arguments, CliCommand, CommonArguments};
use crate::exit::CommandOutcome;
use crate::log;
use crate::telemetry::Telemetry;

/// Runs the command within its tracing span, and exports its telemetry afterwards.
pub(crate) async fn run(arguments: Arguments) -> Result<CommandOutcome> {
    let Arguments { common, command } = arguments;
    let name = command.name();
    let (telemetry, command_span) = Telemetry::start(name, command.is_long_running());
    let span = log::command_span(name, telemetry.trace.as_ref());
    let common = &CommonArguments { telemetry, ..common };
    // One boxed future per command: as one `async` block, the futures of all commands would share a state machine as large
    // as the largest, and the compiler would build it in one piece.
    let work: Pin<Box<dyn Future<Output = Result<CommandOutcome>>>> = match command {
        CliCommand::Serve(arguments) => Box::pin(serve::run(common, arguments)),
        CliCommand::Mcp(arguments) => Box::pin(mcp::run(common, arguments)),
        CliCommand::Sources(arguments) => Box::pin(sources::run(common, arguments)),
        CliCommand::Tools(arguments) => Box::pin(tools::run(common, arguments)),
        CliCommand::Search(arguments) => Box::pin(search::run(common, arguments)),
        CliCommand::Describe(arguments) => Box::pin(describe::run(common, arguments)),
        CliCommand::Context(arguments) => Box::pin(context::run(common, arguments)),
        CliCommand::Call(arguments) => Box::pin(call::run(common, arguments)),
        CliCommand::Refresh(arguments) => Box::pin(refresh::run(common, arguments)),
        CliCommand::Init(arguments) => Box::pin(async move { init::run(common, &arguments) }),
        CliCommand::Import(arguments) => Box::pin(import::run(common, arguments)),
        CliCommand::Add(arguments) => Box::pin(add::run(common, *arguments)),
        CliCommand::Remove(arguments) => Box::pin(remove::run(common, arguments)),
        CliCommand::Enable(arguments) => Box::pin(enable::enable(common, arguments)),
        CliCommand::Disable(arguments) => Box::pin(enable::disable(common, arguments)),
        CliCommand::Invalidate(arguments) => Box::pin(invalidate::run(common, arguments)),
        CliCommand::Config(arguments) => Box::pin(config::run(common, arguments)),
        CliCommand::Export(arguments) => Box::pin(export::run(common, arguments)),
        CliCommand::Trust(arguments) => Box::pin(async move { trust::run(common, &arguments) }),
        CliCommand::Logs(arguments) => Box::pin(logs::run(common, arguments)),
        CliCommand::Completions(arguments) => Box::pin(async move { completions::run(&arguments) }),
        CliCommand::History(arguments) => Box::pin(history::run(common, arguments)),
        CliCommand::Diff(arguments) => Box::pin(diff::run(common, arguments)),
        CliCommand::Lock(arguments) => Box::pin(lock::run(common, arguments)),
        CliCommand::Stats(arguments) => Box::pin(stats::run(common, arguments)),
        CliCommand::Verify(arguments) => Box::pin(verify::run(common, arguments)),
        CliCommand::Doctor(arguments) => Box::pin(doctor::run(common, arguments)),
        CliCommand::Eval(arguments) => Box::pin(async move { eval::run(common, &arguments) }),
        CliCommand::Token(arguments) => Box::pin(token::run(common, arguments)),
        CliCommand::Man(arguments) => Box::pin(async move { man::run(&arguments) }),
        CliCommand::Demo(arguments) => Box::pin(demo::run(common, arguments)),
    };
    let result = work.instrument(span).await;
    command_span.finish(&result).await;
    result
}

impl CliCommand {
    /// The name on the command line, used for spans and log events.
    fn name(&self) -> &'static str {
        match self {
            CliCommand::Serve(_) => "serve",
            CliCommand::Mcp(_) => "mcp",
            CliCommand::Sources(_) => "sources",
            CliCommand::Tools(_) => "tools",
            CliCommand::Search(_) => "search",
            CliCommand::Describe(_) => "describe",
            CliCommand::Context(_) => "context",
            CliCommand::Call(_) => "call",
            CliCommand::Refresh(_) => "refresh",
            CliCommand::Init(_) => "init",
            CliCommand::Import(_) => "import",
            CliCommand::Add(_) => "add",
            CliCommand::Remove(_) => "remove",
            CliCommand::Enable(_) => "enable",
            CliCommand::Disable(_) => "disable",
            CliCommand::Invalidate(_) => "invalidate",
            CliCommand::Config(_) => "config",
            CliCommand::Export(_) => "export",
            CliCommand::Trust(_) => "trust",
            CliCommand::Logs(_) => "logs",
            CliCommand::Completions(_) => "completions",
            CliCommand::Man(_) => "man",
            CliCommand::History(_) => "history",
            CliCommand::Diff(_) => "diff",
            CliCommand::Lock(_) => "lock",
            CliCommand::Stats(_) => "stats",
            CliCommand::Verify(_) => "verify",
            CliCommand::Doctor(_) => "doctor",
            CliCommand::Eval(_) => "eval",
            CliCommand::Token(_) => "token",
            CliCommand::Demo(_) => "demo",
        }
    }
}
