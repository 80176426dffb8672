//! `toolcrib serve`: the MCP endpoint on a socket, until somebody asks it to leave.

mod reload;

use std::net::SocketAddr;

use clap::Args;
use serde_json::json;
use toolcrib::core::tokens;
use toolcrib::{Code, Error, Result};
use toolcrib_server::{Serving, Setup, Surface, bind};

use crate::arguments::Common;
use crate::desk::Desk;
use crate::exit::{Done, Leave};
use crate::output;

/// Serve every tool to MCP clients over HTTP, until Ctrl-C or SIGTERM
///
/// Clients connect to `/mcp`; `/mcp?mode=full` lists every tool, `/mcp?mode=search` the three that find all others.
/// The configuration is read again when its file changes, and on SIGHUP.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  toolcrib serve
  toolcrib serve --listen 127.0.0.1:0            any free port; the first line tells which
  toolcrib mcp --connect http://127.0.0.1:7450   lets a client that starts programs share this one")]
pub(crate) struct Arguments {
    /// Where to listen; port 0 takes any that is free
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7450")]
    listen: String,
}

pub(crate) async fn run(common: &Common, arguments: Arguments) -> Result<Done> {
    let mut leave = Leave::listen();
    let listener = bind(address(&arguments.listen).await?).await?;
    let desk = Desk::stay(common).await?;
    tokio::task::spawn_blocking(tokens::warm);
    let surface = Surface::new(desk.registry.clone(), desk.found.config.expose.clone());
    desk.registry.read_counts().await?;
    let setup = Setup { found: desk.found.clone(), data: desk.data.clone() };
    let serving = Serving::new(listener, surface.clone(), setup)?;
    let (url, house) = (format!("http://{}", serving.address()), serving.house().clone());
    match common.json {
        true => output::json(&json!({ "listening": url }))?,
        false => output::line(&format!("listening on {url}"))?,
    }
    common.hint(&format!("hint: MCP clients connect to {url}/mcp"));

    let asked = tokio_util::sync::CancellationToken::new();
    let serve = serving.run(asked.clone().cancelled_owned());
    let mut serve = std::pin::pin!(serve);
    tokio::select! {
        () = &mut serve => {}
        () = reload::watch(&desk, &surface, &house) => {}
        () = leave.asked() => {
            common.hint("leaving: calls in flight may finish; ask again to leave at once");
            asked.cancel();
            tokio::select! {
                () = &mut serve => {}
                () = leave.asked() => {}
            }
        }
    }
    desk.close().await;
    Ok(Done::Well)
}

/// An address, by number or by a name such as `localhost`.
pub(crate) async fn address(listen: &str) -> Result<SocketAddr> {
    let wrong = || Error::new(Code::ConfigInvalid, format!("`{listen}` is no address; write `127.0.0.1:7450`"));
    let mut found = tokio::net::lookup_host(listen).await.map_err(|error| wrong().with_cause(error))?;
    found.next().ok_or_else(wrong)
}
