//! `toolcrib serve`: serves MCP, REST and the console over HTTP until a shutdown signal, and reloads the configuration
//! when it changes.
//!
//! The HTTP server itself is `toolcrib-server`. This module decides the order of start and end: signals, address,
//! store, then the printed address; on shutdown the server drains, then the sources are closed.
//! [`crate::exit::enforce_drain_timeout`] bounds the whole.

mod reload;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use clap::Args;
use serde_json::json;
use tokio::net::TcpListener;
use toolcrib::catalog::token_count;
use toolcrib::config::WarmPolicy;
use toolcrib::{Code, Error, Registry, Requester, Result};
use toolcrib_server::{HttpServer, McpService, ServerConfig, bind};

use crate::arguments::CommonArguments;
use crate::exit::{HangupSignal, ShutdownSignals};
use crate::output;
use crate::session::CliSession;

/// Serve every tool to MCP clients, programs (REST) and people (console) over HTTP, until Ctrl-C or SIGTERM
///
/// MCP clients connect to `/mcp`. `/mcp?mode=full` lists every tool, `/mcp?mode=search` the three meta tools
/// (`search_tools`, `describe_tools`, `call_tool`) and the essential tools.
/// On this machine your own processes may read and call without a token (`identity.loopback` in the configuration);
/// changes need the token in `TOOLCRIB_ADMIN_TOKEN`, or else in `admin.token` of the data directory. The link that is
/// printed on a terminal, or with `--json`, signs in to the console, once. The configuration is reloaded when its file
/// changes, and on SIGHUP.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  toolcrib serve
  toolcrib serve --listen 127.0.0.1:0            any free port; the first line names it
  toolcrib serve --listen 0.0.0.0:7450           for other machines; their clients need a token
  toolcrib token create ci --role agent          such a token
  toolcrib mcp --connect http://127.0.0.1:7450   a bridge for clients that start a program")]
pub(crate) struct Arguments {
    /// Address and port to listen on; port 0 selects a free port, `0.0.0.0` all interfaces
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7450")]
    listen: String,
    /// Require a token from local clients, too: for use behind a reverse proxy
    #[arg(long)]
    require_token: bool,
}

/// Binds the address, opens the session, serves, and closes within the drain timeout.
pub(crate) async fn run(common: &CommonArguments, arguments: Arguments) -> Result<()> {
    // Register the handlers first: a supervisor that reads `listening` may send a signal at once.
    let mut shutdown_signals = ShutdownSignals::listen();
    let hangup_signal = HangupSignal::listen();
    // Bind before opening the store, so that a taken address is reported at once.
    let listener = bind(resolve_address(&arguments.listen).await?).await?;
    let session = CliSession::open_long_running(common).await?;
    let result =
        serve(common, &session, listener, arguments.require_token, (&mut shutdown_signals, hangup_signal)).await;
    session.close_within_timeout().await;
    result
}

/// Builds the HTTP server and runs it with the configuration watcher until shutdown. Does not close the session: the
/// caller does, also after an error.
async fn serve(
    common: &CommonArguments,
    session: &CliSession,
    listener: TcpListener,
    require_token: bool,
    (shutdown_signals, hangup_signal): (&mut ShutdownSignals, HangupSignal),
) -> Result<()> {
    // Load the tokenizer in the background; summaries need it.
    tokio::task::spawn_blocking(token_count::load_tokenizer);
    let mcp_service = McpService::new(session.registry.clone(), session.loaded_config.config.expose.clone());
    session.registry.statistics().load().await?;
    let server_config = ServerConfig {
        loaded_config: session.loaded_config.clone(),
        data_dir: session.data_directory.clone(),
        require_token,
        refuse_own_process: true,
    };
    let http_server = HttpServer::new(listener, mcp_service.clone(), server_config)?;
    let app_state = http_server.app_state().clone();
    // The socket is bound already: connections that arrive from now on wait in its queue.
    print_addresses(common, &http_server).await?;
    session.warn_without_local_tools();
    warm_at_start(&session.registry);

    let config_watch = reload::watch_config(session, &mcp_service, &app_state, hangup_signal);
    run_until_shutdown(common, http_server, config_watch, shutdown_signals).await;
    Ok(())
}

/// With `warm: start`, starts a background refresh of missing and stale tool lists before the first request.
pub(super) fn warm_at_start(registry: &Registry) {
    if registry.configuration().warm() == WarmPolicy::Start {
        registry.refresher().refresh_in_background(Requester::default());
    }
}

/// Runs the server and the background task until a shutdown signal, then drains calls in flight. A second signal skips
/// the drain.
pub(super) async fn run_until_shutdown(
    common: &CommonArguments,
    http_server: HttpServer,
    background: impl Future<Output = ()>,
    shutdown_signals: &mut ShutdownSignals,
) {
    // The loser of each race is dropped: the watcher with the server, the drain with the second signal.
    let shutdown = tokio_util::sync::CancellationToken::new();
    let serve = http_server.run(shutdown.clone().cancelled_owned());
    let mut serve = std::pin::pin!(serve);
    tokio::select! {
        () = &mut serve => {}
        () = background => {}
        () = shutdown_signals.wait() => {
            common.hint("shutting down: calls in flight have a few seconds to finish; signal again to stop at once");
            shutdown.cancel();
            tokio::select! {
                () = &mut serve => {}
                () = shutdown_signals.wait() => {}
            }
        }
    }
}

/// Prints the listening address and how to sign in to the console. The sign-in link is a credential, so it is printed
/// only to a terminal or with `--json`, and not into the log of a service.
pub(super) async fn print_addresses(common: &CommonArguments, http_server: &HttpServer) -> Result<()> {
    let address = http_server.address();
    // `listening` shows the address as bound; links use one that works in a browser on this machine.
    let url = format!("http://{address}");
    let console = format!("http://{}", reachable_address(address));
    let link = async || match http_server.app_state().create_login_path().await {
        Ok(path) => format!("{console}{path}"),
        Err(error) => {
            tracing::warn!(%error, "no link to the console could be created; sign in with a token");
            format!("{console}/")
        }
    };
    let endpoint = format!("hint: MCP clients connect to {console}/mcp");
    if common.json {
        output::print_json(&json!({ "listening": url, "console": link().await }))?;
        common.hint(&format!("{endpoint}; the link to the console works once, within ten minutes"));
    } else if output::stdout_is_terminal() {
        output::print_line(&format!("listening on {url}\nconsole at {}", link().await))?;
        common.hint(&format!("{endpoint}; the link to the console works once, within ten minutes"));
    } else {
        output::print_line(&format!("listening on {url}\nconsole at {console}/"))?;
        let token = http_server.app_state().admin_token_location();
        common.hint(&format!("{endpoint}; sign in to the console with the token in `{token}`"));
    }
    // Tokens and results cross the network in clear text.
    if !address.ip().to_canonical().is_loopback() {
        common.hint("warning: connections are not encrypted; put a proxy with TLS in front (see docs/access.md)");
    }
    Ok(())
}

/// Replaces an unspecified address (`0.0.0.0`, `::`) by loopback, for URLs that work on this machine.
fn reachable_address(mut address: SocketAddr) -> SocketAddr {
    match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => address.set_ip(Ipv4Addr::LOCALHOST.into()),
        IpAddr::V6(ip) if ip.is_unspecified() => address.set_ip(Ipv6Addr::LOCALHOST.into()),
        IpAddr::V4(_) | IpAddr::V6(_) => {}
    }
    address
}

/// Resolves `ADDRESS:PORT`; the address may be a name such as `localhost`, of which the first address is used. Fails
/// with `CONFIG_INVALID` if there is none.
pub(crate) async fn resolve_address(listen: &str) -> Result<SocketAddr> {
    let invalid = || Error::new(Code::ConfigInvalid, format!("`{listen}` is not an address; write `127.0.0.1:7450`"));
    let mut addresses = tokio::net::lookup_host(listen).await.map_err(|error| invalid().with_cause(error))?;
    addresses.next().ok_or_else(invalid)
}
