//! `toolcrib man`: writes a man page for each command. Hidden: it is for packages, which install the pages.

use std::path::PathBuf;

use clap::{Args, CommandFactory};
use toolcrib::{Code, Error, Result};

use crate::arguments;

/// Write the man pages of all commands into a directory
#[derive(Debug, Args)]
#[command(hide = true, after_help = "Examples:\n  toolcrib man ~/.local/share/man/man1")]
pub(crate) struct Arguments {
    /// The directory that receives `toolcrib.1`, `toolcrib-serve.1` and so on
    directory: PathBuf,
}

/// Creates the directory if needed and overwrites existing pages. The pages are those of the plain command, without
/// the groups of `toolcrib --help`.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let directory = &arguments.directory;
    let command = arguments::Arguments::command();
    std::fs::create_dir_all(directory).and_then(|()| clap_mangen::generate_to(command, directory)).map_err(|error| {
        Error::new(Code::BadRequest, format!("cannot write man pages to `{}`: {error}", directory.display()))
    })
}
