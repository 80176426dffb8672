//! One module for each command: its arguments, its help, its work.

pub(crate) mod call;
pub(crate) mod refresh;
pub(crate) mod sources;
pub(crate) mod tools;

use toolcrib::Result;
use tracing::Instrument;

use crate::arguments::{Arguments, Command};
use crate::exit::Done;
use crate::log;

pub(crate) async fn run(arguments: Arguments) -> Result<Done> {
    let Arguments { common, command } = arguments;
    let name = command.name();
    let work = async {
        match command {
            Command::Sources(arguments) => sources::run(&common, arguments).await,
            Command::Tools(arguments) => tools::run(&common, arguments).await,
            Command::Call(arguments) => call::run(&common, arguments).await,
            Command::Refresh(arguments) => refresh::run(&common, arguments).await,
        }
    };
    work.instrument(log::command_span(name)).await
}

impl Command {
    fn name(&self) -> &'static str {
        match self {
            Command::Sources(_) => "sources",
            Command::Tools(_) => "tools",
            Command::Call(_) => "call",
            Command::Refresh(_) => "refresh",
        }
    }
}
