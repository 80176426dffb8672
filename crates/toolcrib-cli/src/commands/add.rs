//! `toolcrib add`: declares a source at run time, discovers it and reports its tools. The definition becomes a
//! row of the store, and an event of the journal refers to it by a keyed hash; no configuration file is changed.
//!
//! The arguments become the keys of a configuration file, so that both ways to declare a source have the same rules
//! and messages:
//!
//! ```text
//! add docs --url https://docs.example.com/mcp --bearer '${env:T}'
//! { "url": "https://docs.example.com/mcp", "transport": null, "headers": {}, "auth": { "bearer": "${env:T}" } }
//! ```

mod report;

use clap::{ArgGroup, Args};
use serde_json::{Map, Value, json};
use toolcrib::config::show::mask_literals;
use toolcrib::config::{ConfigDiagnostic, parse_source_resolved};
use toolcrib::config_file::working_directory;
use toolcrib::refresh::RefreshStatus;
use toolcrib::registry::DeclareOutcome;
use toolcrib::secret::resolve_variables;
use toolcrib::{Code, Error, Refresh, Result, Source};

use crate::arguments::CommonArguments;
use crate::exit::CommandOutcome;
use crate::session::CliSession;
use crate::{output, progress};

use report::AddReport;

/// Declare a source, discover it at once, and report what it offers
#[derive(Debug, Args)]
#[command(override_usage = "toolcrib add [OPTIONS] NAME -- COMMAND…
       toolcrib add [OPTIONS] NAME --url URL
       toolcrib add [OPTIONS] NAME --openapi FILE-OR-URL
       toolcrib add NAME --workflow FILE")]
#[command(group = ArgGroup::new("source_kind").args(["url", "openapi", "workflow", "command"]).required(true))]
#[command(after_help = "Examples:
  toolcrib add time -- uvx mcp-server-time
  toolcrib add files --cwd . --env LOG=debug -- npx -y @modelcontextprotocol/server-filesystem .
  toolcrib add docs --url https://docs.example.com/mcp --bearer '${env:DOCS_TOKEN}'
  toolcrib add old --url https://old.example.com/sse --transport sse --header X-Team=core
  toolcrib add shop --openapi https://shop.example.com/openapi.json --tag orders
  toolcrib add shop --openapi ./shop.yaml --base-url http://127.0.0.1:8080 --exclude '*delete*'
  toolcrib add errands --workflow ./errands.arazzo.yaml

A source that cannot be discovered is kept and marked as failed, and the exit code is 1. Further
options of an API (several credentials, variables, polling) can be set in a configuration file:
docs/openapi.md.")]
pub(crate) struct Arguments {
    /// Name of the source, which is the prefix of its tools: `name__tool`
    name: String,
    /// Command and arguments that start an MCP server on stdio, after `--`
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
    /// Environment variable of the server; the value may be a reference such as `${env:NAME}`
    #[arg(long, value_name = "NAME=VALUE", conflicts_with_all = ["url", "openapi", "workflow"])]
    env: Vec<String>,
    /// Working directory of the server; by default the current directory
    #[arg(long, value_name = "DIR", conflicts_with_all = ["url", "openapi", "workflow"])]
    cwd: Option<String>,
    /// Variable of Toolcrib's own environment to pass on to the server
    #[arg(long, value_name = "NAME", conflicts_with_all = ["url", "openapi", "workflow"])]
    inherit_env: Vec<String>,
    /// URL of an MCP server that is reached over HTTP, such as `https://docs.example.com/mcp`
    #[arg(long, value_name = "URL")]
    url: Option<String>,
    /// MCP transport of `--url`: `http` (Streamable HTTP, the default) or `sse` (legacy HTTP+SSE)
    #[arg(long, value_parser = ["http", "sse"], conflicts_with_all = ["command", "openapi", "workflow"])]
    transport: Option<String>,
    /// HTTP header for every request
    #[arg(long, value_name = "NAME=VALUE", conflicts_with_all = ["command", "workflow"])]
    header: Vec<String>,
    /// Bearer token for the server or API, best as a reference: `${env:NAME}` or `${file:PATH}`
    #[arg(long, value_name = "REFERENCE", conflicts_with_all = ["command", "workflow"])]
    bearer: Option<String>,
    /// OpenAPI document (JSON or YAML) whose operations become tools
    #[arg(long, value_name = "FILE-OR-URL")]
    openapi: Option<String>,
    /// Base URL of requests, instead of the servers in the document
    #[arg(long, value_name = "URL", conflicts_with_all = ["command", "url", "workflow"])]
    base_url: Option<String>,
    /// Only operations that match a glob on the name of the tool or on `METHOD /path`
    #[arg(long, value_name = "GLOB", conflicts_with_all = ["command", "url", "workflow"])]
    include: Vec<String>,
    /// No operations that match a glob on the name of the tool or on `METHOD /path`
    #[arg(long, value_name = "GLOB", conflicts_with_all = ["command", "url", "workflow"])]
    exclude: Vec<String>,
    /// Only operations with this tag; given several times, with one of the tags
    #[arg(long, value_name = "TAG", conflicts_with_all = ["command", "url", "workflow"])]
    tag: Vec<String>,
    /// Allow a document that is fetched from a URL to name servers at private addresses
    #[arg(long, conflicts_with_all = ["command", "url", "workflow"])]
    allow_private: bool,
    /// Arazzo document (JSON or YAML) whose workflows become tools
    #[arg(long, value_name = "FILE")]
    workflow: Option<String>,
}

/// Declares and discovers the source. Offline, because only the new source is contacted.
pub(crate) async fn run(common: &CommonArguments, arguments: Arguments) -> Result<CommandOutcome> {
    let source = source_from_arguments(&arguments)?;
    let session = CliSession::open_offline(common).await?;
    // Before the discovery, which may take long and fail for the reason that a hint names.
    print_hints(common, &arguments);
    session.run_and_close(async |session| add(session, &source).await).await
}

/// Stores the declaration, discovers the source and prints the report. The declaration stays even if discovery fails,
/// so that the user can fix the server and refresh. Fails with `CONFLICT` if a configuration file declares the name.
async fn add(session: &CliSession, source: &Source) -> Result<CommandOutcome> {
    let common = &session.common;
    let id = &source.id;
    // A configuration file overrides run-time declarations, so that the new one would have no effect.
    if let Some(location) = session.loaded_config.declared_at(id) {
        let message = format!(
            "`{id}` is declared in `{location}`, which takes precedence; change it there, or choose another name"
        );
        return Err(Error::new(Code::Conflict, message).with_retryable(false));
    }
    // Declared without discovery: that follows below, with progress, and its failure must not undo the declaration.
    let declared = session.registry.sources().declare_lazily(source, CliSession::actor()).await?;
    if declared == DeclareOutcome::Changed {
        common.hint(&format!("`{id}` had another declaration, which is replaced"));
    }
    // Discover even if the same source was discovered a moment ago: the user wants to see its current tools.
    let refresh = session.registry.refresher().refresh_one(id, Refresh { force: true, ..Refresh::brief() });
    let outcome = progress::show_progress(&session.registry, common.quiet, refresh).await?;
    // Read after the refresh, because the report shows the status that it led to.
    let view =
        session.registry.sources().get(id).ok_or_else(|| session.registry.sources().unknown_error(id.as_str()))?;
    let report = AddReport::build(&session.registry, view).await;
    common.print(&report, || report.render(&outcome))?;
    if outcome.status != RefreshStatus::Failed {
        return Ok(CommandOutcome::Success);
    }
    let reason = outcome.error.map_or_else(|| "unknown reason".to_owned(), |failure| failure.message);
    output::print_stderr_line(&format!("error: {id}: {reason}"));
    Ok(CommandOutcome::Failure)
}

/// Translates the arguments into the keys of a configuration file and parses those, so that both ways of declaring a
/// source are validated alike.
fn source_from_arguments(arguments: &Arguments) -> Result<Source> {
    // One block per kind of source; clap has checked that exactly one of them is given.
    let headers = parse_pairs("--header", &arguments.header, &['=', ':'])?;
    let mut keys = if let Some((command, rest)) = arguments.command.split_first() {
        json!({
            "command": command,
            "args": rest,
            "env": parse_pairs("--env", &arguments.env, &['='])?,
            // Default to the current directory, where the user tried the command: a later call may come from a server
            // with another working directory.
            "cwd": arguments.cwd.as_deref().unwrap_or("."),
            "inherit_env": arguments.inherit_env,
        })
    } else if let Some(url) = &arguments.url {
        json!({ "url": url, "transport": arguments.transport, "headers": headers })
    } else if let Some(document) = &arguments.openapi {
        json!({
            "openapi": document,
            "base_url": arguments.base_url,
            "include": arguments.include,
            "exclude": arguments.exclude,
            "include_tags": arguments.tag,
            "headers": headers,
            "allow_private": arguments.allow_private,
        })
    } else {
        json!({ "workflow": arguments.workflow })
    };
    if let Some(token) = &arguments.bearer {
        keys["auth"] = json!({ "bearer": token });
    }
    // Relative paths of the declaration are resolved against the current directory, as in a file beside it.
    parse_source_resolved(&arguments.name, &keys, &working_directory()?, &resolve_variables)
        .map_err(|faults| invalid_declaration(&faults))
}

/// Joins the faults to one error, without the file positions, which mean nothing for a command line.
fn invalid_declaration(faults: &[ConfigDiagnostic]) -> Error {
    let describe = |fault: &ConfigDiagnostic| match fault.key.strip_prefix("sources.") {
        Some(key) => format!("{key}: {}", fault.message),
        None => fault.message.clone(),
    };
    let message = faults.iter().map(describe).collect::<Vec<_>>().join("\n");
    Error::new(Code::ConfigInvalid, message).with_details(json!({ "faults": faults }))
}

/// Parses `NAME=VALUE` options; headers also accept `Name: value`. Of equal names the last one counts. An error does
/// not quote the malformed text, because it may be a secret.
fn parse_pairs(option: &str, texts: &[String], separators: &[char]) -> Result<Value> {
    let mut pairs = Map::new();
    for pair in texts {
        let Some((name, value)) = pair.split_once(separators).filter(|(name, _)| !name.trim().is_empty()) else {
            return Err(Error::new(Code::BadRequest, format!("`{option}` takes NAME=VALUE")));
        };
        // Headers may be written as `Name: value`.
        let value = if separators.len() > 1 { value.trim_start() } else { value };
        pairs.insert(name.trim().to_owned(), json!(value));
    }
    Ok(pairs.into())
}

/// Prints hints about arguments that are valid but probably not what was meant.
fn print_hints(common: &CommonArguments, arguments: &Arguments) {
    let path = arguments.url.as_deref().and_then(|url| url.split(['?', '#']).next()).unwrap_or_default();
    if arguments.transport.is_none() && path.trim_end_matches('/').ends_with("/sse") {
        common.hint("hint: a URL that ends in `/sse` usually needs the legacy SSE transport; use `--transport sse`");
    }
    if arguments.bearer.as_deref().is_some_and(|token| mask_literals(token).contains("***")) {
        common.hint("hint: the token itself is stored; `--bearer '${env:NAME}'` stores only a reference");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_invalid_pair_is_not_quoted() {
        let parse = |text: &str| parse_pairs("--header", &[text.to_owned()], &['=', ':']);
        assert_eq!(parse("X-Team=a:b").unwrap(), json!({ "X-Team": "a:b" }));
        assert_eq!(parse("Authorization: Basic x==").unwrap(), json!({ "Authorization": "Basic x==" }));
        for invalid in ["hunter2", "=hunter2"] {
            assert_eq!(parse(invalid).unwrap_err().message, "`--header` takes NAME=VALUE");
        }
    }
}
