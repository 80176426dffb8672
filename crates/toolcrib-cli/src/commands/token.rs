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
//!
//! Groups restrict a token to a part of the tools; claims are facts about its holder that conditions of rules read.

use std::time::Duration;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Subcommand};
use serde_json::{Map, Value, json};
use toolcrib::core::access::Role;
use toolcrib::core::text::sanitize;
use toolcrib::core::time::parse_long_duration;
use toolcrib::registry::{CreatedToken, TokenRequest, TokenView};
use toolcrib::{Code, Error, Registry, Result};

use crate::arguments::CommonArguments;
use crate::commands::sources::format_ago;
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
  toolcrib token create desk --role agent --group support --claim team=desk
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
  toolcrib token create desk --role agent --group support --group sales
  toolcrib token create eu --role viewer --claim team=ops --claim regions:='[\"eu\",\"uk\"]'
  toolcrib token create --role viewer                    with a generated name")]
    Create {
        /// Name of the token, for `list` and `revoke`; by default its role and a random suffix
        name: Option<String>,
        /// Permissions: `viewer` reads, `agent` also calls tools and speaks MCP, `admin` also makes changes
        #[arg(long, value_parser = PossibleValuesParser::new(["viewer", "agent", "admin"]).try_map(|role| role.parse::<Role>()))]
        role: Role,
        /// Restrict the token to the tools of this group; repeat it for several groups
        #[arg(long = "group", value_name = "GROUP")]
        groups: Vec<String>,
        /// A claim for conditions of rules: `KEY=VALUE` is text, `KEY:=JSON` any JSON value
        #[arg(long = "claim", value_name = "KEY=VALUE")]
        claims: Vec<String>,
        /// Lifetime, such as `12h`, `30d` or `8w`; without it the token does not expire
        #[arg(long, value_name = "DURATION", value_parser = parse_expiry)]
        expires: Option<Duration>,
    },
    /// List the tokens, without their values; claims and times of creation are in `--json`
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
        TokenCommand::Create { name, role, groups, claims, expires } => {
            // A random suffix keeps generated names unique.
            let name = name.unwrap_or_else(|| format!("{role}-{:04x}", rand::random::<u16>()));
            let request = TokenRequest { name, role, expires, groups, claims: parse_claims(&claims)? };
            print_created(common, &registry.tokens().create_from(request, CliSession::actor()).await?)
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

/// Parses the values of `--claim`. Not a parser of clap, which would repeat the value in its error.
fn parse_claims(pairs: &[String]) -> Result<Map<String, Value>> {
    let invalid = |message: String| Error::new(Code::BadRequest, message);
    let mut claims = Map::new();
    for pair in pairs {
        let (key, text) = pair
            .split_once('=')
            .ok_or_else(|| invalid("write `--claim KEY=VALUE`, or `--claim KEY:=JSON`".to_owned()))?;
        let (key, value) = match key.strip_suffix(':') {
            Some(key) => {
                let parsed = serde_json::from_str(text);
                (key, parsed.map_err(|error| invalid(format!("the claim `{}` is not JSON: {error}", sanitize(key))))?)
            }
            None => (key, Value::from(text)),
        };
        if claims.insert(key.to_owned(), value).is_some() {
            return Err(invalid(format!("the claim `{0}` is given twice; a list is `{0}:='[…]'`", sanitize(key))));
        }
    }
    Ok(claims)
}

/// Prints the token alone to stdout, so that a script can capture it, and its description to stderr.
fn print_created(common: &CommonArguments, created: &CreatedToken) -> Result<()> {
    common.print(created, || created.token.clone())?;
    let TokenView { name, role, groups, expires_at, .. } = &created.view;
    let groups = if groups.is_empty() { String::new() } else { format!(", groups: {}", groups.join(", ")) };
    let until = expires_at.map(|at| format!(", until {at}")).unwrap_or_default();
    common.hint(&format!(
        "hint: this is the token `{name}` ({role}{groups}{until}), shown this once. Send it as `Authorization: Bearer TOKEN`; \
         `toolcrib token revoke {name}` revokes it"
    ));
    Ok(())
}

/// Prints the table of tokens, expired ones included: they are rejected but stay until they are revoked.
fn print_list(tokens: &[TokenView]) -> Result<()> {
    if tokens.is_empty() {
        return output::print_line("there are no tokens; `toolcrib token create NAME --role agent` creates one");
    }
    let mut table = Table::new(&["name", "role", "groups", "id", "expires", "last used"]);
    for token in tokens {
        let expires = match token.expires_at {
            Some(at) if token.expired => format!("{at} (expired)"),
            Some(at) => at.to_string(),
            None => "never".to_owned(),
        };
        let groups = if token.groups.is_empty() { "-".to_owned() } else { token.groups.join(", ") };
        let last_used = token.last_used.map_or_else(|| "never".to_owned(), format_ago);
        table.add_row(vec![token.name.clone(), token.role.to_string(), groups, token.id.clone(), expires, last_used]);
    }
    output::print_line(&table.render())
}
