//! Starting on Windows, where there is no guard: the child alone is killed.

use std::process::ExitStatus;

use tokio::process::Child;
use toolcrib_core::Result;

use super::{GuardExe, Launch, Server, direct, not_started};

/// The child alone is killed, by tokio, when it is dropped.
#[derive(Debug)]
pub(super) struct Leash;

impl Leash {
    pub(super) fn pid(&self) -> Option<u32> {
        None
    }

    pub(super) async fn ended(&mut self, _status: ExitStatus) {}

    pub(super) async fn pull(&mut self, child: &mut Child) {
        // Gone already is as good.
        let _ = child.start_kill();
    }

    pub(super) fn cut(&mut self) {}
}

pub(super) async fn start(_guard: &GuardExe, launch: &Launch) -> Result<Server> {
    let child = direct(launch).spawn().map_err(|error| not_started(launch, error))?;
    Ok(Server::new(child, Leash))
}
