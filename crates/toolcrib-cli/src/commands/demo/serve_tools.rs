//! `toolcrib demo --serve`: the demo's tools behind a server of their own, to look around in the console.

use std::future::pending;

use toolcrib::Result;
use toolcrib::core::tokens;
use toolcrib_server::{HttpServer, McpService, ServerConfig, bind};

use super::discover;
use super::sandbox::DemoSandbox;
use super::shop_api::ShopApi;
use crate::arguments::CommonArguments;
use crate::commands::serve;
use crate::exit::{CommandOutcome, ShutdownSignals};

pub(super) async fn run(common: &CommonArguments, listen: &str) -> Result<CommandOutcome> {
    let mut leave = ShutdownSignals::listen();
    let listener = bind(serve::resolve_address(listen).await?).await?;
    let shop = ShopApi::start(serve::resolve_address("127.0.0.1:0").await?).await?;
    let stage = DemoSandbox::create(common, &shop.document_url())?;
    let registry = stage.open_registry().await?;
    tokio::task::spawn_blocking(tokens::load_tokenizer);
    let served = async {
        discover(&stage, &registry).await?;
        let surface = McpService::new(registry.clone(), stage.loaded_config().config.expose);
        let setup = ServerConfig {
            loaded_config: stage.loaded_config(),
            data_dir: stage.data_directory(),
            require_token: false,
            refuse_own_process: true,
        };
        let serving = HttpServer::new(listener, surface, setup)?;
        serve::print_addresses(common, &serving, &stage.data_directory())?;
        common.hint("hint: a lending library and a corner shop stand in for your servers and APIs; Ctrl-C ends it all");
        serve::run_until_shutdown(common, serving, pending(), &mut leave).await;
        Ok(())
    };
    let served = served.await;
    registry.close().await;
    shop.close().await;
    served.map(|()| CommandOutcome::Success)
}
