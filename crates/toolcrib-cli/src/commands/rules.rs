//! `toolcrib group`, `toolcrib access` and `toolcrib policy`: lists, shows, defines and removes rules of one kind.
//!
//! The three commands differ in the kind of the rule, in the columns of their tables and in their examples. Rules of the
//! configuration are listed too, but are changed in their file. No command here contacts a source: members of groups
//! and effects of a change are computed from the tools that are known.

mod change;
mod page;
mod words;

use std::path::Path;

use clap::{Args, Subcommand};
use serde_json::{Value, json};
use toolcrib::config::{ConfigDiagnostic, ParsedRule, parse_rule};
use toolcrib::core::access_rules::{NamedRule, RuleKind};
use toolcrib::core::inventory::Origin;
use toolcrib::registry::RuleChange;
use toolcrib::{Error, Registry, Result};

use crate::arguments::CommonArguments;
use crate::input::{read_file, read_stdin};
use crate::output;
use crate::session::CliSession;

/// Name of stdin in messages about a definition.
const STDIN_NAME: &str = "stdin";

/// List, show, define and remove groups of tools
///
/// A group is a named selection of tools: what its selectors match, plus the tools that it names, minus what it
/// excludes. Access rules and tokens give groups to callers, and policies can refer to them.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  toolcrib group list
  toolcrib group show support
  toolcrib group set support --file support.yaml --dry-run
  echo 'tools: [current_time, calculate]' | toolcrib group set basics --file -
  toolcrib group remove support

A file has the keys of a group in the configuration:
  title: Support desk
  select: [{ source: \"zendesk*\", risk: read_only }]
  tools: [github__get_issue]
  exclude: [\"*delete*\"]")]
#[command(mut_subcommand("list", |list| list.after_help("Examples:
  toolcrib group list
  toolcrib group list --json | jq '.groups[] | {name, members}'")))]
#[command(mut_subcommand("show", |show| show.after_help("Examples:
  toolcrib group show support
  toolcrib group show support --json | jq .members")))]
#[command(mut_subcommand("set", |set| set.after_help("Examples:
  toolcrib group set support --file support.yaml
  toolcrib group set support --file support.yaml --dry-run
  echo 'select: { source: github, risk: read_only }' | toolcrib group set readers --file -")))]
#[command(mut_subcommand("remove", |remove| remove.after_help("Examples:
  toolcrib group remove support --dry-run
  toolcrib group remove support

A group that an access rule or a policy refers to cannot be removed.")))]
pub(crate) struct GroupArguments {
    #[command(subcommand)]
    pub(crate) action: RuleAction,
}

/// List, show, define and remove access rules, which give groups to callers
///
/// A rule applies to the callers whose claims meet all of its conditions. With one or more access rules, a caller sees
/// the groups that active rules give it, and nothing without one. Administrators see everything.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  toolcrib access list
  toolcrib access show support-desk
  toolcrib access set support-desk --file desk.yaml --dry-run
  toolcrib access remove support-desk

A file has the keys of an access rule in the configuration:
  when: [{ claim: realm_access.roles, contains: support }]
  groups: [support]")]
#[command(mut_subcommand("list", |list| list.after_help("Examples:
  toolcrib access list
  toolcrib access list --json | jq '.access[] | select(.active)'")))]
#[command(mut_subcommand("show", |show| show.after_help("Examples:
  toolcrib access show support-desk
  toolcrib access show support-desk --json")))]
#[command(mut_subcommand("set", |set| set.after_help("Examples:
  toolcrib access set support-desk --file desk.yaml
  toolcrib access set support-desk --file desk.yaml --dry-run
  echo '{when: [{claim: caller.kind, equals: local}], groups: [basics]}' |
    toolcrib access set local --file -")))]
#[command(mut_subcommand("remove", |remove| remove.after_help("Examples:
  toolcrib access remove support-desk --dry-run
  toolcrib access remove support-desk")))]
pub(crate) struct AccessArguments {
    #[command(subcommand)]
    pub(crate) action: RuleAction,
}

/// List, show, define and remove policies, which give verdicts on tools
///
/// The verdict on a tool is the strictest of all policies that match it and of the `tools` rules of its source: hide
/// before deny, ask and allow. To narrow a source of the configuration file at run time, set a policy that matches it
/// by `source`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  toolcrib policy list
  toolcrib policy show ask-destructive
  toolcrib policy set ask-destructive --file ask.yaml --dry-run
  echo '{match: {source: github, name: \"delete_*\"}, verdict: deny}' |
    toolcrib policy set github-deletes --file -
  toolcrib policy remove ask-destructive

A file has the keys of a policy in the configuration:
  match: { group: support, risk: destructive, when: [{ claim: caller.kind, equals: jwt }] }
  verdict: ask")]
#[command(mut_subcommand("list", |list| list.after_help("Examples:
  toolcrib policy list
  toolcrib policy list --json | jq '.policies[] | {name, verdict}'")))]
#[command(mut_subcommand("show", |show| show.after_help("Examples:
  toolcrib policy show ask-destructive
  toolcrib policy show ask-destructive --json")))]
#[command(mut_subcommand("set", |set| set.after_help("Examples:
  toolcrib policy set ask-destructive --file ask.yaml
  toolcrib policy set ask-destructive --file ask.yaml --dry-run
  echo '{match: {source: github, name: \"delete_*\"}, verdict: deny}' |
    toolcrib policy set github-deletes --file -       narrows a source of the configuration file")))]
#[command(mut_subcommand("remove", |remove| remove.after_help("Examples:
  toolcrib policy remove ask-destructive --dry-run
  toolcrib policy remove ask-destructive")))]
pub(crate) struct PolicyArguments {
    #[command(subcommand)]
    pub(crate) action: RuleAction,
}

// What the three commands do; not a doc comment, which clap would show as help. Each command has its own examples.
#[derive(Debug, Subcommand)]
pub(crate) enum RuleAction {
    /// List all of them, those of the configuration included
    List,
    /// Show one of them
    Show {
        /// Its name
        name: String,
    },
    /// Define one of them, or replace it
    Set {
        /// Its name: lower-case letters, digits, `_` and `-`
        name: String,
        /// File with its keys, as YAML, JSON or TOML by its extension; `-` reads YAML or JSON from stdin
        #[arg(long, value_name = "FILE|-")]
        file: String,
        /// Write nothing; print what each known caller would gain and lose, and verdicts that would change
        #[arg(long)]
        dry_run: bool,
    },
    /// Remove one of them that was defined at run time
    Remove {
        /// Its name
        name: String,
        /// Write nothing; print what each known caller would gain and lose, and verdicts that would change
        #[arg(long)]
        dry_run: bool,
    },
}

/// Runs one of the three commands.
pub(crate) async fn run(common: &CommonArguments, kind: RuleKind, action: RuleAction) -> Result<()> {
    match action {
        RuleAction::List => {
            let session = CliSession::open_read_only(common).await?;
            session.run_and_close(async |session| list(session, kind)).await
        }
        RuleAction::Show { name } => {
            let session = CliSession::open_read_only(common).await?;
            session.run_and_close(async |session| show(session, kind, &name)).await
        }
        RuleAction::Set { name, file, dry_run } => {
            // A wrong file is reported even where the store cannot be opened.
            let parsed = read_rule(kind, &name, &file)?;
            let session = open_for_change(common, dry_run).await?;
            let set = async |session: &CliSession| {
                let in_force = session.registry.rules().in_force();
                let rule = parsed.check_groups(&in_force);
                let rule = rule.map_err(|errors| ConfigDiagnostic::combined_error(&errors))?;
                change::run(session, &RuleChange::Define(Box::new(rule)), dry_run).await
            };
            session.run_and_close(set).await
        }
        RuleAction::Remove { name, dry_run } => {
            let session = open_for_change(common, dry_run).await?;
            let change = RuleChange::Remove(kind, name);
            session.run_and_close(async |session| change::run(session, &change, dry_run).await).await
        }
    }
}

/// Opens a session for a change, or for its preview, which creates no store.
async fn open_for_change(common: &CommonArguments, dry_run: bool) -> Result<CliSession> {
    if dry_run { CliSession::open_read_only(common).await } else { CliSession::open_offline(common).await }
}

/// Reads the definition of a rule. Errors name file and line.
fn read_rule(kind: RuleKind, name: &str, file: &str) -> Result<ParsedRule> {
    let (text, file) = if file == "-" { (read_stdin()?, STDIN_NAME) } else { (read_file(Path::new(file))?, file) };
    parse_rule(kind, name, &text, file).map_err(|errors| ConfigDiagnostic::combined_error(&errors))
}

/// Prints the rules of one kind.
fn list(session: &CliSession, kind: RuleKind) -> Result<()> {
    let registry = &session.registry;
    let rules: Vec<(NamedRule, Origin)> =
        registry.rules().in_force().iter().filter(|(rule, _)| rule.kind() == kind).collect();
    if session.common.json {
        let objects: Vec<Value> = rules.iter().map(|(rule, origin)| registry.rules().to_json(rule, *origin)).collect();
        return output::print_json(&json!({ kind.plural(): objects }));
    }
    output::print_line(&page::render_list(registry, kind, &rules))
}

/// Prints one rule.
fn show(session: &CliSession, kind: RuleKind, name: &str) -> Result<()> {
    let registry = &session.registry;
    let (rule, origin) = find_rule(registry, kind, name)?;
    let object = registry.rules().to_json(&rule, origin);
    session.common.print(&object, || page::render_rule(registry, &rule, origin))
}

/// Finds a rule by name.
fn find_rule(registry: &Registry, kind: RuleKind, name: &str) -> Result<(NamedRule, Origin), Error> {
    let rules = registry.rules();
    let found = rules.in_force().find(kind, name);
    found.ok_or_else(|| rules.unknown_error(kind, name))
}
