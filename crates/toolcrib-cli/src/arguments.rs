//! Command-line arguments: the top-level parser, the options common to all commands, and the list of commands. Each
//! command defines its own arguments in its module under `commands`.
//!
//! A doc comment on an argument is its help text, so notes for readers of the code are plain comments here and in the
//! modules of the commands.

use std::path::PathBuf;

use clap::builder::Resettable;
use clap::error::Error as UsageError;
use clap::{ArgAction, Args, CommandFactory, FromArgMatches, Parser, Subcommand};
use serde::Serialize;
use toolcrib::Result;
use toolcrib::core::node_label::{NODE_LABEL_RULE, is_node_label};

use crate::discovery_wait::InterruptibleWait;
use crate::output;
use crate::telemetry::Telemetry;

/// Maximum width of help texts in columns. clap wraps at this width, or at that of a narrower terminal; the lines of
/// examples are written by hand and must fit.
const MAX_HELP_WIDTH: usize = 98;

/// One catalogue of every tool an AI agent may use.
#[derive(Debug, Parser)]
#[command(name = "toolcrib", version, propagate_version = true, disable_help_subcommand = true)]
#[command(max_term_width = MAX_HELP_WIDTH)]
#[command(after_help = format!("Examples:{DEMO_EXAMPLE}
  toolcrib add time -- uvx mcp-server-time       declare a server and discover its tools
  toolcrib tools                                 every tool, from the cache
  toolcrib search create an issue                the tools for a task
  toolcrib call time__get_current_time timezone=UTC"))]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) common: CommonArguments,
    #[command(subcommand)]
    pub(crate) command: CliCommand,
}

/// The example of a command that not every build has.
#[cfg(feature = "demo")]
const DEMO_EXAMPLE: &str =
    "\n  toolcrib demo                                  a guided tour that needs no configuration";
#[cfg(not(feature = "demo"))]
const DEMO_EXAMPLE: &str = "";

/// Options that every command accepts, and per-run state that travels with them.
#[derive(Debug, Clone, Args)]
pub(crate) struct CommonArguments {
    /// Configuration file; by default the nearest `toolcrib.yaml` or `.mcp.json`
    #[arg(long, global = true, value_name = "FILE", env = "TOOLCRIB_CONFIG", help_heading = "Common options")]
    pub(crate) config: Option<PathBuf>,
    /// Data directory with the store; by default derived from the path of the configuration file
    #[arg(long, global = true, value_name = "DIR", env = "TOOLCRIB_DATA", help_heading = "Common options")]
    pub(crate) data: Option<PathBuf>,
    /// Store, instead of the one in the data directory: `sqlite:FILE`, `postgres://USER@HOST/DATABASE` or `memory:`; a
    /// password belongs in the variable PGPASSWORD or the configuration, for other users can see arguments
    #[arg(long, global = true, value_name = "URL", help_heading = "Common options")]
    pub(crate) store: Option<String>,
    /// Label of this node, which decides which sources it may start; by default the name of the machine
    #[arg(long, global = true, value_name = "NAME", env = "TOOLCRIB_NODE", help_heading = "Common options")]
    #[arg(value_parser = parse_node_label)]
    pub(crate) node: Option<String>,
    /// Print data as JSON
    #[arg(long, global = true, help_heading = "Common options")]
    pub(crate) json: bool,
    /// Log more to stderr: `-v` discoveries and calls, `-vv` debug events, `-vvv` trace events
    #[arg(short, long, global = true, action = ArgAction::Count, help_heading = "Common options")]
    pub(crate) verbose: u8,
    /// Show neither hints nor progress
    #[arg(short, long, global = true, help_heading = "Common options")]
    pub(crate) quiet: bool,
    // The fields below are not options but state of this run.
    /// Trace and span queue of this run.
    #[arg(skip)]
    pub(crate) telemetry: Telemetry,
    /// The current wait for sources, shared with the signal handler.
    #[arg(skip)]
    pub(crate) wait: InterruptibleWait,
}

/// Makes an empty environment variable count as unset, as scripts and container files leave them.
fn ignore_empty_variable(argument: clap::Arg) -> clap::Arg {
    let is_empty = |name| std::env::var_os(name).is_some_and(|value| value.is_empty());
    if argument.get_env().is_some_and(is_empty) { argument.env(Resettable::Reset) } else { argument }
}

/// Parses the label of a node.
fn parse_node_label(text: &str) -> Result<String, String> {
    if is_node_label(text) { Ok(text.to_owned()) } else { Err(NODE_LABEL_RULE.to_owned()) }
}

impl CommonArguments {
    /// Prints a result: with `--json` the value, else the text.
    pub(crate) fn print(&self, value: &impl Serialize, text: impl FnOnce() -> String) -> Result<()> {
        if self.json { output::print_json(value) } else { output::print_line(&text()) }
    }

    /// Prints a hint or warning to stderr, unless `--quiet` is given.
    pub(crate) fn hint(&self, text: &str) {
        if !self.quiet {
            output::print_stderr_line(text);
        }
    }
}

// All commands. `toolcrib --help` lists them by [`COMMAND_GROUPS`], not in this order. `Add` is boxed because it has
// by far the most options, and an enum is as large as its largest variant. Not a doc comment, which clap would show as
// help.
#[derive(Debug, Subcommand)]
pub(crate) enum CliCommand {
    Serve(crate::commands::serve::Arguments),
    Mcp(crate::commands::mcp::Arguments),
    Sources(crate::commands::sources::Arguments),
    Tools(crate::commands::tools::Arguments),
    Search(crate::commands::search::Arguments),
    Describe(crate::commands::describe::Arguments),
    Context(crate::commands::context::Arguments),
    Call(crate::commands::call::Arguments),
    Refresh(crate::commands::refresh::Arguments),
    Init(crate::commands::init::Arguments),
    Import(crate::commands::import::Arguments),
    Add(Box<crate::commands::add::Arguments>),
    Remove(crate::commands::remove::Arguments),
    /// Enable sources or single tools
    #[command(
        after_help = "Examples:\n  toolcrib enable github\n  toolcrib enable github__delete_repository files/write_file"
    )]
    Enable(crate::commands::enable::Arguments),
    /// Disable sources or single tools: agents no longer see them, but they stay declared
    #[command(
        after_help = "Examples:\n  toolcrib disable github\n  toolcrib disable github__delete_repository files/write_file"
    )]
    Disable(crate::commands::enable::Arguments),
    Invalidate(crate::commands::invalidate::Arguments),
    Config(crate::commands::config::Arguments),
    Export(crate::commands::export::Arguments),
    Trust(crate::commands::trust::Arguments),
    Logs(crate::commands::logs::Arguments),
    Completions(crate::commands::completions::Arguments),
    Man(crate::commands::man::Arguments),
    History(crate::commands::history::Arguments),
    Diff(crate::commands::diff::Arguments),
    Lock(crate::commands::lock::Arguments),
    Stats(crate::commands::stats::Arguments),
    Verify(crate::commands::verify::Arguments),
    Backup(crate::commands::backup::Arguments),
    Restore(crate::commands::restore::Arguments),
    Store(crate::commands::store::Arguments),
    Doctor(crate::commands::doctor::Arguments),
    Eval(crate::commands::eval::Arguments),
    Group(crate::commands::rules::GroupArguments),
    Access(crate::commands::rules::AccessArguments),
    Policy(crate::commands::rules::PolicyArguments),
    Explain(crate::commands::explain::Arguments),
    Token(crate::commands::token::Arguments),
    #[cfg(feature = "demo")]
    Demo(crate::commands::demo::Arguments),
}

/// The commands as `toolcrib --help` groups them; a command that this build does not have is skipped. A test checks that
/// every visible command is in exactly one group.
const COMMAND_GROUPS: [(&str, &[&str]); 7] = [
    ("Use", &["tools", "search", "describe", "call", "context"]),
    ("Sources", &["sources", "add", "remove", "enable", "disable", "refresh", "invalidate", "import"]),
    ("Serve", &["serve", "mcp", "demo"]),
    ("Access", &["group", "access", "policy", "explain", "token"]),
    ("Inspect", &["history", "diff", "lock", "stats", "logs", "doctor", "verify", "eval"]),
    ("Maintain", &["backup", "restore", "store"]),
    ("Set up", &["init", "config", "export", "trust", "completions"]),
];

impl Arguments {
    /// Parses the arguments of this process. Fails with the help text, too, when that was requested.
    pub(crate) fn parse_process() -> Result<Arguments, UsageError> {
        let matches = Arguments::grouped_command().mut_args(ignore_empty_variable).try_get_matches()?;
        Arguments::from_arg_matches(&matches)
    }

    /// The command with its subcommands in groups:
    ///
    /// ```text
    /// Use:
    ///   tools     List every tool, …
    ///
    /// Sources:
    ///   sources   List every source …
    /// ```
    ///
    /// clap lists all subcommands in one block, so each group is rendered as a command of its own and becomes part of
    /// the template, and the block itself is hidden.
    fn grouped_command() -> clap::Command {
        let command = Arguments::command();
        let mut groups = String::new();
        for (title, names) in COMMAND_GROUPS {
            let members = names.iter().filter_map(|name| command.find_subcommand(name)).cloned();
            // In the order of the group; cloned commands would keep the order of the enum.
            let ordered = members.enumerate().map(|(index, member)| member.display_order(index));
            let group = clap::Command::new(title).disable_help_subcommand(true).max_term_width(MAX_HELP_WIDTH);
            let list = group.subcommands(ordered).help_template("{subcommands}").render_help().to_string();
            groups.push_str(&format!("{title}:\n{}\n\n", list.trim_end()));
        }
        command
            // Hidden subcommands can still be called, but clap leaves `<COMMAND>` out of the usage when all are
            // hidden.
            .mut_subcommands(|subcommand| subcommand.hide(true))
            .override_usage("toolcrib [OPTIONS] <COMMAND>")
            .help_template(format!("{{about}}\n\n{{usage-heading}} {{usage}}\n\n{groups}{{all-args}}{{after-help}}"))
    }
}

impl CliCommand {
    /// Returns whether the command runs until a shutdown signal or the end of its input. Such a command handles
    /// signals itself, uses all cores, logs all warnings, and has no trace of its own, because its requests belong to
    /// the traces of their clients.
    pub(crate) fn is_long_running(&self) -> bool {
        #[cfg(feature = "demo")]
        if let CliCommand::Demo(arguments) = self {
            return arguments.is_long_running();
        }
        matches!(self, CliCommand::Serve(_) | CliCommand::Mcp(_))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_visible_command_is_in_one_group() {
        let command = Arguments::command();
        let mut visible: Vec<&str> =
            command.get_subcommands().filter(|command| !command.is_hide_set()).map(clap::Command::get_name).collect();
        let mut grouped: Vec<&str> = COMMAND_GROUPS.iter().flat_map(|(_, names)| *names).copied().collect();
        grouped.retain(|name| *name != "demo" || cfg!(feature = "demo"));
        visible.sort_unstable();
        grouped.sort_unstable();
        assert_eq!(grouped, visible);
    }

    /// clap would wrap a longer line, which breaks the columns of the examples.
    #[test]
    fn every_command_has_examples_that_fit_into_the_help() {
        fn check(command: &clap::Command) {
            let text = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(text.starts_with("Examples:\n"), "{}: {text}", command.get_name());
            for line in text.lines() {
                assert!(line.chars().count() <= MAX_HELP_WIDTH, "{}: {line}", command.get_name());
            }
            command.get_subcommands().for_each(check);
        }
        check(&Arguments::command());
    }

    #[test]
    fn every_command_and_argument_has_help() {
        fn check(command: &clap::Command, path: &str, missing: &mut Vec<String>) {
            let path = format!("{path} {}", command.get_name());
            if command.get_about().is_none() {
                missing.push(path.clone());
            }
            let lacks_help = |argument: &&clap::Arg| !argument.is_hide_set() && argument.get_help().is_none();
            let without_help = command.get_arguments().filter(lacks_help);
            missing.extend(without_help.map(|argument| format!("{path} {}", argument.get_id())));
            command.get_subcommands().for_each(|subcommand| check(subcommand, &path, missing));
        }
        let mut missing = Vec::new();
        check(&Arguments::command(), "", &mut missing);
        assert_eq!(missing, [""; 0]);
    }
}
