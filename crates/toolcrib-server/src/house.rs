//! Everything the routes share: the registry, the MCP endpoint, the configuration as it was last read, who may do what.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use arc_swap::ArcSwap;
use tokio_util::sync::CancellationToken;
use toolcrib::config_file::Found;
use toolcrib::{Registry, Result};
use toolcrib_mcp::server::Endpoint;

use crate::access::Access;
use crate::activity::Activity;
use crate::api::{Feed, Kept, SourceList};
use crate::traffic::Traffic;

/// Cheap to clone; all clones are one house.
#[derive(Debug, Clone)]
pub struct House(Arc<Rooms>);

/// What a house is made with, besides a surface.
#[derive(Debug, Clone)]
pub struct Setup {
    /// The configuration as it was found.
    pub found: Found,
    /// The data directory.
    pub data: PathBuf,
    /// Asks everybody for a token, whatever `identity.loopback` says: for a place behind a proxy.
    pub require_token: bool,
    /// Treats connections of this process to itself like those of servers that it started: with `identity.loopback: owner`
    /// they need a token. A tool that fetches addresses, or an API on this machine, is then no way in for its callers. False
    /// for a program whose own code is a client of its server.
    pub refuse_own_process: bool,
}

#[derive(Debug)]
/// What is in it, for this crate.
pub struct Rooms {
    pub(crate) registry: Registry,
    pub(crate) endpoint: Endpoint,
    /// The configuration; replaced when it is read again.
    pub(crate) found: ArcSwap<Found>,
    /// The data directory, as `GET /api/config` tells it.
    pub(crate) data: PathBuf,
    pub(crate) access: Access,
    /// What happened lately, for the console.
    pub(crate) activity: Activity,
    pub(crate) traffic: Traffic,
    /// Answers over REST that hold for as long as the catalogue does.
    pub(crate) kept: Kept,
    pub(crate) source_list: SourceList,
    /// What those who listen to `/api/events` hear.
    pub(crate) feed: Feed,
    /// Fires when the server stops and no request in progress may go on: each is answered with [`stopping`].
    ///
    /// [`stopping`]: crate::api::stopping
    pub(crate) stopping: CancellationToken,
    /// Held while a declaration is compared with what there is and written: of two for one id, one comes first.
    pub(crate) declaring: tokio::sync::Mutex<()>,
}

impl House {
    pub(crate) fn new(setup: Setup, registry: Registry, endpoint: Endpoint, address: SocketAddr) -> Result<House> {
        let loopback = setup.found.config.identity.loopback;
        let access =
            Access::open(address, &setup.data, &registry, setup.require_token, setup.refuse_own_process, loopback)?;
        Ok(House(Arc::new(Rooms {
            endpoint,
            found: ArcSwap::from_pointee(setup.found),
            data: setup.data,
            access,
            activity: Activity::default(),
            traffic: Traffic::new(registry.now()),
            kept: Kept::default(),
            source_list: SourceList::default(),
            feed: Feed::new(registry.clone()),
            stopping: CancellationToken::new(),
            declaring: tokio::sync::Mutex::default(),
            registry,
        })))
    }

    /// The path of a link to the console that signs in as who runs this: good once, for ten minutes.
    pub fn login_path(&self) -> String {
        self.access.link(&self.registry)
    }

    /// The configuration was read again.
    pub fn reread(&self, found: Found) {
        self.access.set_loopback(found.config.identity.loopback);
        self.found.store(Arc::new(found));
        self.feed.access_changed();
    }
}

impl std::ops::Deref for House {
    type Target = Rooms;

    fn deref(&self) -> &Rooms {
        &self.0
    }
}
