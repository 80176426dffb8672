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

use crate::arguments::{Arguments, Command, Common};
use crate::exit::Done;
use crate::log;
use crate::telemetry::Telemetry;

pub(crate) async fn run(arguments: Arguments) -> Result<Done> {
    let Arguments { common, command } = arguments;
    let name = command.name();
    let (telemetry, underway) = Telemetry::start(name, command.stays());
    let span = log::command_span(name, telemetry.trace.as_ref());
    let common = Common { telemetry, ..common };
    let work = async {
        match command {
            Command::Serve(arguments) => serve::run(&common, arguments).await,
            Command::Mcp(arguments) => mcp::run(&common, arguments).await,
            Command::Sources(arguments) => sources::run(&common, arguments).await,
            Command::Tools(arguments) => tools::run(&common, arguments).await,
            Command::Search(arguments) => search::run(&common, arguments).await,
            Command::Describe(arguments) => describe::run(&common, arguments).await,
            Command::Context(arguments) => context::run(&common, arguments).await,
            Command::Call(arguments) => call::run(&common, arguments).await,
            Command::Refresh(arguments) => refresh::run(&common, arguments).await,
            Command::Init(arguments) => init::run(&common, &arguments),
            Command::Import(arguments) => import::run(&common, arguments).await,
            Command::Add(arguments) => add::run(&common, *arguments).await,
            Command::Remove(arguments) => remove::run(&common, arguments).await,
            Command::Enable(arguments) => enable::enable(&common, arguments).await,
            Command::Disable(arguments) => enable::disable(&common, arguments).await,
            Command::Invalidate(arguments) => invalidate::run(&common, arguments).await,
            Command::Config(arguments) => config::run(&common, arguments).await,
            Command::Export(arguments) => export::run(&common, arguments).await,
            Command::Trust(arguments) => trust::run(&common, &arguments),
            Command::Logs(arguments) => logs::run(&common, arguments).await,
            Command::Completions(arguments) => completions::run(&arguments),
            Command::History(arguments) => history::run(&common, arguments).await,
            Command::Diff(arguments) => diff::run(&common, arguments).await,
            Command::Lock(arguments) => lock::run(&common, arguments).await,
            Command::Stats(arguments) => stats::run(&common, arguments).await,
            Command::Verify(arguments) => verify::run(&common, arguments).await,
            Command::Doctor(arguments) => doctor::run(&common, arguments).await,
            Command::Eval(arguments) => eval::run(&common, &arguments),
            Command::Token(arguments) => token::run(&common, arguments).await,
            Command::Demo(arguments) => demo::run(&common, arguments).await,
        }
    };
    let result = work.instrument(span).await;
    underway.end(&result).await;
    result
}

impl Command {
    fn name(&self) -> &'static str {
        match self {
            Command::Serve(_) => "serve",
            Command::Mcp(_) => "mcp",
            Command::Sources(_) => "sources",
            Command::Tools(_) => "tools",
            Command::Search(_) => "search",
            Command::Describe(_) => "describe",
            Command::Context(_) => "context",
            Command::Call(_) => "call",
            Command::Refresh(_) => "refresh",
            Command::Init(_) => "init",
            Command::Import(_) => "import",
            Command::Add(_) => "add",
            Command::Remove(_) => "remove",
            Command::Enable(_) => "enable",
            Command::Disable(_) => "disable",
            Command::Invalidate(_) => "invalidate",
            Command::Config(_) => "config",
            Command::Export(_) => "export",
            Command::Trust(_) => "trust",
            Command::Logs(_) => "logs",
            Command::Completions(_) => "completions",
            Command::History(_) => "history",
            Command::Diff(_) => "diff",
            Command::Lock(_) => "lock",
            Command::Stats(_) => "stats",
            Command::Verify(_) => "verify",
            Command::Doctor(_) => "doctor",
            Command::Eval(_) => "eval",
            Command::Token(_) => "token",
            Command::Demo(_) => "demo",
        }
    }
}
