//! `toolcrib completions`: prints the completion script for a shell.
//!
//! The script is generated from the arguments of this binary, so it cannot differ from them.

use clap::{Args, CommandFactory};
use clap_complete::Shell;
use toolcrib::Result;

use crate::{arguments, output};

/// Print the completion script of a shell
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  toolcrib completions bash > ~/.local/share/bash-completion/completions/toolcrib
  toolcrib completions zsh > ~/.zfunc/_toolcrib
  toolcrib completions fish > ~/.config/fish/completions/toolcrib.fish")]
pub(crate) struct Arguments {
    /// The shell to complete for
    shell: Shell,
}

/// Prints the script to stdout.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut arguments::Arguments::command(), "toolcrib", &mut script);
    output::print_line(&String::from_utf8_lossy(&script))
}
