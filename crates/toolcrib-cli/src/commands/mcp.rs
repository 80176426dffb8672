//! `toolcrib mcp`: serves MCP over stdio, for clients that start their servers as programs; with `--connect` as a bridge
//! to a running `toolcrib serve`.
//!
//! Stdout belongs to the protocol; everything for people goes to stderr. Without `--connect` the process has its own
//! registry on the shared store, and starts its own servers. With `--connect` it has neither: the bridge forwards each
//! request to the running server.

use std::io::IsTerminal;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use tokio_util::sync::CancellationToken;
use toolcrib::catalog::token_count;
use toolcrib::config::{Expose, ExposeMode};
use toolcrib::secret::{self, SecretFiles};
use toolcrib::{Code, Error, Result};
use toolcrib_mcp::server::{ServerOptions, Service, serve_stream};
use toolcrib_server::{Bridge, McpService};
use url::Url;

use super::serve;
use crate::arguments::CommonArguments;
use crate::exit::ShutdownSignals;
use crate::session::CliSession;

/// Serve MCP on stdio, for clients that start a program (Claude Desktop, Cursor, an IDE)
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  toolcrib mcp --config /path/to/toolcrib.yaml    the command for a client's configuration
  toolcrib mcp --mode full                        list every tool, however many there are
  toolcrib mcp --connect http://127.0.0.1:7450    a bridge to a running `toolcrib serve`
  toolcrib mcp --connect http://127.0.0.1:7450/mcp/support    only the tools of a group
  toolcrib mcp --connect https://tools.example.com --token '${env:TOOLS_TOKEN}'")]
pub(crate) struct Arguments {
    /// Tools to list: `full` all tools, `search` the three meta tools (search, describe, call) and the essential tools,
    /// `auto` one or the other by the size of the catalogue in tokens; by default `expose.mode` of the configuration
    #[arg(long, value_name = "MODE", value_parser = ["auto", "search", "full"])]
    mode: Option<String>,
    /// Forward all requests to the `toolcrib serve` at this URL
    #[arg(long, value_name = "URL")]
    connect: Option<Url>,
    /// Bearer token for `--connect`, or a reference such as `${env:NAME}` or `${file:PATH}`; by default the variable
    /// `TOOLCRIB_TOKEN`
    #[arg(long, value_name = "REF", requires = "connect")]
    token: Option<String>,
}

/// Runs until the client closes stdin, or a shutdown signal.
pub(crate) async fn run(common: &CommonArguments, arguments: Arguments) -> Result<()> {
    let shutdown_signals = ShutdownSignals::listen();
    if std::io::stdin().is_terminal() {
        common
            .hint("hint: this command speaks MCP on stdin and stdout, for an MCP client that starts it (see `--help`)");
    }
    let mode = arguments.mode.as_deref().and_then(ExposeMode::parse);
    match arguments.connect {
        Some(url) => {
            let url = endpoint_url(url, mode)?;
            // Not a clap `env`: with the variable set, `toolcrib mcp` without `--connect` must still be accepted.
            let token =
                arguments.token.or_else(|| std::env::var("TOOLCRIB_TOKEN").ok().filter(|token| !token.is_empty()));
            // Without a token, the server decides by `identity.loopback` whether this process is admitted.
            let bridge = match token {
                Some(token) => {
                    let files = SecretFiles::default().read_all(&secret::file_paths_in(&token).collect()).await;
                    Bridge::open_with_token(url, files.resolve(&token)?.trim()).await?
                }
                None => Bridge::open(url).await?,
            };
            let options = ServerOptions::new("toolcrib", env!("CARGO_PKG_VERSION"));
            serve_stdio(Arc::new(bridge.clone()), options, shutdown_signals).await;
            bridge.close().await;
        }
        None => {
            let session = CliSession::open_long_running(common).await?;
            session.warn_without_local_tools();
            // In the background: the first list in mode `auto` counts tokens, and the client should not wait for the
            // load.
            tokio::task::spawn_blocking(token_count::load_tokenizer);
            let expose = session.loaded_config.config.expose.clone();
            // `--mode` overrides `expose.mode` of the configuration.
            let expose = Expose { mode: mode.unwrap_or(expose.mode), ..expose };
            // A client lists tools right after the handshake; with `warm: start` discovery has begun by then.
            serve::warm_at_start(&session.registry);
            let service = McpService::new(session.registry.clone(), expose);
            let options = service.server_options();
            serve_stdio(Arc::new(service), options, shutdown_signals).await;
            session.close_within_timeout().await;
        }
    }
    Ok(())
}

/// Timeout of each shutdown step. There are three steps after the two seconds for calls in flight, so that everything
/// including the end of the sources fits into the drain timeout.
const SHUTDOWN_STEP_TIMEOUT: Duration = Duration::from_secs(1);

/// Serves MCP on stdin and stdout until the client closes stdin, or a shutdown signal. On a signal, calls that cannot finish
/// get an error response; a second signal skips that.
async fn serve_stdio(service: Arc<dyn Service>, options: ServerOptions, mut shutdown_signals: ShutdownSignals) {
    let options = ServerOptions { cleanup_timeout: SHUTDOWN_STEP_TIMEOUT, ..options };
    // Cancelling stops reading and answers calls in flight; the second `select!` waits for that.
    let stop = CancellationToken::new();
    let mut serve = pin!(serve_stream(service, tokio::io::stdin(), tokio::io::stdout(), options, stop.clone()));
    tokio::select! {
        () = &mut serve => return,
        () = shutdown_signals.wait() => stop.cancel(),
    }
    tokio::select! {
        () = serve => {}
        () = shutdown_signals.wait() => {}
    }
}

/// Returns the URL of the MCP endpoint; a URL without a path gets `/mcp`. `http://127.0.0.1:7450` with `--mode full`
/// becomes `http://127.0.0.1:7450/mcp?mode=full`. Fails with `BAD_REQUEST` for another scheme than HTTP.
fn endpoint_url(mut url: Url, mode: Option<ExposeMode>) -> Result<Url> {
    if !matches!(url.scheme(), "http" | "https") {
        let message = format!("`{url}` is not the URL of a `toolcrib serve`; write `http://127.0.0.1:7450`");
        return Err(Error::new(Code::BadRequest, message));
    }
    if matches!(url.path(), "" | "/") {
        url.set_path("/mcp");
    }
    // The mode of the remote endpoint is chosen by a query parameter.
    if let Some(mode) = mode {
        url.query_pairs_mut().append_pair("mode", mode.as_str());
    }
    Ok(url)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_endpoint_of_a_group_can_be_in_the_url() {
        let check = |url: &str, mode: Option<ExposeMode>, expected: &str| {
            assert_eq!(endpoint_url(url.parse().unwrap(), mode).unwrap().as_str(), expected);
        };
        check("http://127.0.0.1:7450", None, "http://127.0.0.1:7450/mcp");
        check("http://127.0.0.1:7450/mcp/support", None, "http://127.0.0.1:7450/mcp/support");
        let mode = ExposeMode::parse("full");
        check("http://127.0.0.1:7450/mcp/support", mode, "http://127.0.0.1:7450/mcp/support?mode=full");
        check("http://127.0.0.1:7450?group=support", mode, "http://127.0.0.1:7450/mcp?group=support&mode=full");
    }
}
