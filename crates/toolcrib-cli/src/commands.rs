//! One module for each command: its arguments, its help, its work.

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

use toolcrib::Result;
use tracing::Instrument;

use crate::arguments::{Arguments, CliCommand, CommonArguments};
use crate::exit::CommandOutcome;
use crate::log;
use crate::telemetry::Telemetry;

pub(crate) async fn run(arguments: Arguments) -> Result<CommandOutcome> {
    let Arguments { common, command } = arguments;
    let name = command.name();
    let (telemetry, underway) = Telemetry::start(name, command.is_long_running());
    let span = log::command_span(name, telemetry.trace.as_ref());
    let common = CommonArguments { telemetry, ..common };
    let work = async {
        match command {
            CliCommand::Serve(arguments) => serve::run(&common, arguments).await,
            CliCommand::Mcp(arguments) => mcp::run(&common, arguments).await,
            CliCommand::Sources(arguments) => sources::run(&common, arguments).await,
            CliCommand::Tools(arguments) => tools::run(&common, arguments).await,
            CliCommand::Search(arguments) => search::run(&common, arguments).await,
            CliCommand::Describe(arguments) => describe::run(&common, arguments).await,
            CliCommand::Context(arguments) => context::run(&common, arguments).await,
            CliCommand::Call(arguments) => call::run(&common, arguments).await,
            CliCommand::Refresh(arguments) => refresh::run(&common, arguments).await,
            CliCommand::Init(arguments) => init::run(&common, &arguments),
            CliCommand::Import(arguments) => import::run(&common, arguments).await,
            CliCommand::Add(arguments) => add::run(&common, *arguments).await,
            CliCommand::Remove(arguments) => remove::run(&common, arguments).await,
            CliCommand::Enable(arguments) => enable::enable(&common, arguments).await,
            CliCommand::Disable(arguments) => enable::disable(&common, arguments).await,
            CliCommand::Invalidate(arguments) => invalidate::run(&common, arguments).await,
            CliCommand::Config(arguments) => config::run(&common, arguments).await,
            CliCommand::Export(arguments) => export::run(&common, arguments).await,
            CliCommand::Trust(arguments) => trust::run(&common, &arguments),
            CliCommand::Logs(arguments) => logs::run(&common, arguments).await,
            CliCommand::Completions(arguments) => completions::run(&arguments),
            CliCommand::History(arguments) => history::run(&common, arguments).await,
            CliCommand::Diff(arguments) => diff::run(&common, arguments).await,
            CliCommand::Lock(arguments) => lock::run(&common, arguments).await,
            CliCommand::Stats(arguments) => stats::run(&common, arguments).await,
            CliCommand::Verify(arguments) => verify::run(&common, arguments).await,
            CliCommand::Doctor(arguments) => doctor::run(&common, arguments).await,
            CliCommand::Eval(arguments) => eval::run(&common, &arguments),
            CliCommand::Token(arguments) => token::run(&common, arguments).await,
            CliCommand::Demo(arguments) => demo::run(&common, arguments).await,
        }
    };
    let result = work.instrument(span).await;
    underway.finish(&result).await;
    result
}

impl CliCommand {
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
