//! `toolcrib demo --serve`: the demo's tools behind a server of their own, to look around in the console.

use std::future::pending;

use toolcrib::Result;
use toolcrib::core::tokens;
use toolcrib_server::{Serving, Setup, Surface, bind};

use super::discover;
use super::shop::Shop;
use super::stage::Stage;
use crate::arguments::Common;
use crate::commands::serve;
use crate::exit::{Done, Leave};

pub(super) async fn run(common: &Common, listen: &str) -> Result<Done> {
    let mut leave = Leave::listen();
    let listener = bind(serve::address(listen).await?).await?;
    let shop = Shop::open(serve::address("127.0.0.1:0").await?).await?;
    let stage = Stage::set(common, &shop.document())?;
    let registry = stage.open().await?;
    tokio::task::spawn_blocking(tokens::warm);
    let served = async {
        discover(&stage, &registry).await?;
        let surface = Surface::new(registry.clone(), stage.found().config.expose);
        let setup = Setup { found: stage.found(), data: stage.data(), require_token: false, refuse_own_process: true };
        let serving = Serving::new(listener, surface, setup)?;
        serve::announce(common, &serving, &stage.data())?;
        common.hint("hint: a lending library and a corner shop stand in for your servers and APIs; Ctrl-C ends it all");
        serve::until_left(common, serving, pending(), &mut leave).await;
        Ok(())
    };
    let served = served.await;
    registry.close().await;
    shop.close().await;
    served.map(|()| Done::Well)
}
