//! `toolcrib token`: creates, lists and revokes the tokens that clients of `toolcrib serve` present, each with a role.
//!
//! Tokens are events in the journal with a hash, so all processes on the store know them, and a revocation has a
//! record. The value is printed once. Neither the command nor the store can show it again.
//!
//! | role   | may                                                |
//! |--------|----------------------------------------------------|
//! | viewer | read lists, search and history                     |
//! | agent  | also call and refresh tools, and speak MCP         |
//! | admin  | also declare, change and remove, and manage tokens |

use std::time::Duration;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Subcommand};
use serde_json::json;
use toolcrib::core::access::Role;
use toolcrib::core::time::parse_long_duration;
use toolcrib::registry::{CreatedToken, TokenView};
use toolcrib::{Registry, Result};

use crate::arguments::CommonArguments;
use crate::output;
use crate::session::CliSession;
use crate::table::Table;

/// Create, list and revoke the tokens that clients present to `toolcrib serve`
///
/// A viewer reads; an agent also calls and refreshes tools, and speaks MCP; an admin also makes changes.
/// A running `serve` applies a change within two seconds.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  toolcrib token create ci --role agent --expires 30d
  toolcrib token create --role viewer                    with a generated name
  toolcrib token list
  toolcrib token revoke ci")]
pub(crate) struct Arguments {
    #[command(subcommand)]
    action: TokenCommand,
}

// The subcommands; not a doc comment, which clap would show as help.
#[derive(Debug, Subcommand)]
enum TokenCommand {
    /// Create a token and print it; its value is not stored and cannot be shown again
    #[command(after_help = "Examples:
  toolcrib token create ci --role agent --expires 30d
  toolcrib token create --role viewer                    with a generated name")]
    Create {
        /// Name of the token, for `list` and `revoke`; by default its role and a random suffix
        name: Option<String>,
        /// Permissions: `viewer` reads, `agent` also calls tools and speaks MCP, `admin` also makes changes
        #[arg(long, value_parser = PossibleValuesParser::new(["viewer", "agent", "admin"]).try_map(|role| role.parse::<Role>()))]
        role: Role,
        /// Lifetime, such as `12h`, `30d` or `8w`; without it the token does not expire
        #[arg(long, value_name = "DURATION", value_parser = parse_expiry)]
        expires: Option<Duration>,
    },
    /// List the tokens, without their values
    #[command(after_help = "Examples:\n  toolcrib token list\n  toolcrib token list --json")]
    List,
    /// Revoke a token: it is rejected from now on
    #[command(after_help = "Examples:\n  toolcrib token revoke ci\n  toolcrib token revoke 4be0643f1d98     by its id")]
    Revoke {
        /// Its name, or its id as `toolcrib token list` shows it
        #[arg(value_name = "NAME-OR-ID")]
        name: String,
    },
}

/// Parses `--expires`, which also knows days and weeks, unlike the durations of other options.
fn parse_expiry(text: &str) -> Result<Duration, String> {
    parse_long_duration(text).ok_or_else(|| "write `12h`, `30d` or `8w`".to_owned())
}

/// Runs the subcommand.
pub(crate) async fn run(common: &CommonArguments, arguments: Arguments) -> Result<()> {
    let session = CliSession::open_offline(common).await?;
    session.run_and_close(async |session| run_command(common, &session.registry, arguments.action).await).await
}

/// Runs one subcommand against the registry.
async fn run_command(common: &CommonArguments, registry: &Registry, action: TokenCommand) -> Result<()> {
    match action {
        TokenCommand::Create { name, role, expires } => {
            // A random suffix keeps generated names unique.
            let name = name.unwrap_or_else(|| format!("{role}-{:04x}", rand::random::<u16>()));
            print_created(common, &registry.tokens().create(&name, role, expires, CliSession::actor()).await?)
        }
        TokenCommand::List if common.json => output::print_json(&json!({ "tokens": registry.tokens().list() })),
        TokenCommand::List => print_list(&registry.tokens().list()),
        TokenCommand::Revoke { name } => {
            let token = registry.tokens().revoke(&name, CliSession::actor()).await?;
            let report = json!({ "id": token.id, "name": token.name, "revoked": true });
            common.print(&report, || format!("revoked `{}` ({})", token.name, token.role))
        }
    }
}

/// Prints the token alone to stdout, so that a script can capture it, and its description to stderr.
fn print_created(common: &CommonArguments, created: &CreatedToken) -> Result<()> {
    common.print(created, || created.token.clone())?;
    let TokenView { name, role, expires_at, .. } = &created.view;
    let until = expires_at.map(|at| format!(", until {at}")).unwrap_or_default();
    common.hint(&format!(
        "hint: this is the token `{name}` ({role}{until}), shown this once. Send it as `Authorization: Bearer TOKEN`; \
         `toolcrib token revoke {name}` revokes it"
    ));
    Ok(())
}

/// Prints the table of tokens, expired ones included: they are rejected but stay until they are revoked.
fn print_list(tokens: &[TokenView]) -> Result<()> {
    if tokens.is_empty() {
        return output::print_line("there are no tokens; `toolcrib token create NAME --role agent` creates one");
    }
    let mut table = Table::new(&["name", "role", "id", "created", "expires"]);
    for token in tokens {
        let expires = match token.expires_at {
            Some(at) if token.expired => format!("{at} (expired)"),
            Some(at) => at.to_string(),
            None => "never".to_owned(),
        };
        let name = token.name.clone();
        let role = token.role.to_string();
        let id = token.id.clone();
        table.add_row(vec![name, role, id, token.created_at.to_string(), expires]);
    }
    output::print_line(&table.render())
}
