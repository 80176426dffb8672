//! `toolcrib serve`: the MCP endpoint on a socket, until somebody asks it to leave.

mod reload;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;

use clap::Args;
use serde_json::json;
use tokio::net::TcpListener;
use toolcrib::core::config::WarmPolicy;
use toolcrib::core::tokens;
use toolcrib::{Code, Error, Registry, Result};
use toolcrib_server::{HttpServer, McpService, ServerConfig, bind};

use crate::arguments::CommonArguments;
use crate::exit::{CommandOutcome, HangupSignal, ShutdownSignals};
use crate::output;
use crate::session::CliSession;

/// Serve every tool to MCP clients, programs (REST) and people (console) over HTTP, until Ctrl-C or SIGTERM
///
/// Clients connect to `/mcp`; `/mcp?mode=full` lists every tool, `/mcp?mode=search` the three that find all others.
/// On this machine your own processes may look and call (`identity.loopback` in the configuration); changes need the token in
/// `admin.token` of the data directory. The link that is printed on a terminal, or with `--json`, signs in to the console, once.
/// The configuration is read again when its file changes, and on SIGHUP.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  toolcrib serve
  toolcrib serve --listen 127.0.0.1:0            any free port; the first line tells which
  toolcrib serve --listen 0.0.0.0:7450           for other machines: make a token first, `toolcrib token create`
  toolcrib mcp --connect http://127.0.0.1:7450   lets a client that starts programs share this one")]
pub(crate) struct Arguments {
    /// Where to listen; port 0 takes any that is free
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7450")]
    listen: String,
    /// Ask everybody for a token, on this machine too: for a place behind a proxy that others reach
    #[arg(long)]
    require_token: bool,
}

pub(crate) async fn run(common: &CommonArguments, arguments: Arguments) -> Result<CommandOutcome> {
    // Heard from the start on, for who reads `listening` may send either at once.
    let mut leave = ShutdownSignals::listen();
    let hang_up = HangupSignal::listen();
    let listener = bind(resolve_address(&arguments.listen).await?).await?;
    let session = CliSession::open_long_running(common).await?;
    let served = serve(common, &session, listener, arguments.require_token, (&mut leave, hang_up)).await;
    session.close_within_timeout().await;
    served.map(|()| CommandOutcome::Success)
}

async fn serve(
    common: &CommonArguments,
    session: &CliSession,
    listener: TcpListener,
    require_token: bool,
    (leave, hang_up): (&mut ShutdownSignals, HangupSignal),
) -> Result<()> {
    tokio::task::spawn_blocking(tokens::load_tokenizer);
    let surface = McpService::new(session.registry.clone(), session.loaded_config.config.expose.clone());
    session.registry.load_counts().await?;
    let setup = ServerConfig {
        loaded_config: session.loaded_config.clone(),
        data_dir: session.data_directory.clone(),
        require_token,
        refuse_own_process: true,
    };
    let serving = HttpServer::new(listener, surface.clone(), setup)?;
    let house = serving.app_state().clone();
    print_addresses(common, &serving, &session.data_directory)?;
    warm_at_start(&session.registry);

    let following = reload::watch_config(session, &surface, &house, hang_up);
    run_until_shutdown(common, serving, following, leave).await;
    Ok(())
}

/// With `warm: start`, what is missing or stale is discovered before a client asks.
pub(super) fn warm_at_start(registry: &Registry) {
    if registry.warm() == WarmPolicy::Start {
        registry.refresh_in_background();
    }
}

/// Serves, and does what is done beside it, until somebody asks it to leave. Who asks twice waits for no call in flight.
pub(super) async fn run_until_shutdown(
    common: &CommonArguments,
    serving: HttpServer,
    beside: impl Future<Output = ()>,
    leave: &mut ShutdownSignals,
) {
    let asked = tokio_util::sync::CancellationToken::new();
    let serve = serving.run(asked.clone().cancelled_owned());
    let mut serve = std::pin::pin!(serve);
    tokio::select! {
        () = &mut serve => {}
        () = beside => {}
        () = leave.wait() => {
            common.hint("leaving: calls in flight have a few seconds to finish; ask again to leave at once");
            asked.cancel();
            tokio::select! {
                () = &mut serve => {}
                () = leave.wait() => {}
            }
        }
    }
}

/// Where it listens, and how to get into the console. The link that signs in is a credential: it is printed for a person
/// at a terminal or a program that asked for JSON, and not into the log of a service.
pub(super) fn print_addresses(common: &CommonArguments, serving: &HttpServer, data: &Path) -> Result<()> {
    let address = serving.address();
    let url = format!("http://{address}");
    let console = format!("http://{}", reachable_address(address));
    let link = || format!("{console}{}", serving.app_state().create_login_path());
    let endpoint = format!("hint: MCP clients connect to {console}/mcp");
    if common.json {
        output::print_json(&json!({ "listening": url, "console": link() }))?;
        common.hint(&format!("{endpoint}; the link to the console is good once, for ten minutes"));
    } else if output::stdout_is_terminal() {
        output::print_line(&format!("listening on {url}\nconsole at {}", link()))?;
        common.hint(&format!("{endpoint}; the link to the console is good once, for ten minutes"));
    } else {
        output::print_line(&format!("listening on {url}\nconsole at {console}/"))?;
        let token = data.join("admin.token");
        common.hint(&format!("{endpoint}; sign in to the console with the token in `{}`", token.display()));
    }
    if !address.ip().to_canonical().is_loopback() {
        common.hint("warning: connections are not encrypted; put a proxy with TLS in front (see docs/access.md)");
    }
    Ok(())
}

/// Who listens on every address is reached on this machine by its own.
fn reachable_address(mut address: SocketAddr) -> SocketAddr {
    match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => address.set_ip(Ipv4Addr::LOCALHOST.into()),
        IpAddr::V6(ip) if ip.is_unspecified() => address.set_ip(Ipv6Addr::LOCALHOST.into()),
        IpAddr::V4(_) | IpAddr::V6(_) => {}
    }
    address
}

/// An address, by number or by a name such as `localhost`.
pub(crate) async fn resolve_address(listen: &str) -> Result<SocketAddr> {
    let wrong = || Error::new(Code::ConfigInvalid, format!("`{listen}` is no address; write `127.0.0.1:7450`"));
    let mut found = tokio::net::lookup_host(listen).await.map_err(|error| wrong().with_cause(error))?;
    found.next().ok_or_else(wrong)
}
