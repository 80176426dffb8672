//! `toolcrib demo --serve`: serves the demo's tools and the console over HTTP until a shutdown signal.
//!
//! Like `toolcrib serve`, but with the sandbox instead of the configuration of the user, and without a reload: there
//! is no configuration file that could change.

use std::future::pending;

use toolcrib::Result;
use toolcrib::catalog::token_count;
use toolcrib_demo::rest_api::ShopApi;
use toolcrib_server::{HttpServer, McpService, ServerConfig, bind};

use super::Demo;
use crate::arguments::CommonArguments;
use crate::commands::serve;
use crate::exit::ShutdownSignals;

/// Starts the shop's API and the HTTP server, and closes both on shutdown.
pub(super) async fn run(common: &CommonArguments, listen: &str) -> Result<()> {
    let mut shutdown_signals = ShutdownSignals::listen();
    // Signals first, then the address: a script may read the address and end the demo at once.
    let listener = bind(serve::resolve_address(listen).await?).await?;
    let shop = ShopApi::start(serve::resolve_address("127.0.0.1:0").await?).await?;
    let demo = Demo::create(common, &shop.document_url())?;
    let sandbox = &demo.sandbox;
    let registry = sandbox.open_registry().await?;
    // Loaded in the background; the first summary needs it.
    tokio::task::spawn_blocking(token_count::load_tokenizer);
    let serve = async {
        // Discovered before the address is printed, so that the first page of the console has tools.
        demo.discover(&registry).await?;
        let mcp_service = McpService::new(registry.clone(), sandbox.loaded_config().config.expose);
        // As with `toolcrib serve` on loopback, local processes of this user need no token.
        let server_config = ServerConfig {
            loaded_config: sandbox.loaded_config(),
            data_dir: sandbox.data_directory(),
            require_token: false,
            refuse_own_process: true,
        };
        let http_server = HttpServer::new(listener, mcp_service, server_config)?;
        serve::print_addresses(common, &http_server).await?;
        common.hint("hint: the tools are those of a bundled MCP server and a bundled API; Ctrl-C ends the demo");
        serve::run_until_shutdown(common, http_server, pending(), &mut shutdown_signals).await;
        Ok(())
    };
    // Close registry and API on every path, before the sandbox removes their files.
    let result = serve.await;
    registry.close().await;
    shop.close().await;
    result
}
