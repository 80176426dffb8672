//! Starts servers on Windows, which has no guard: only the server process itself is killed.

use std::process::ExitStatus;

use tokio::process::Child;
use toolcrib_core::Result;

use super::{GuardExe, Launch, ServerProcess, start_error, unguarded_command};

/// The server process alone. tokio kills it on drop; its children are not known.
#[derive(Debug)]
pub(super) struct ProcessTree;

impl ProcessTree {
    /// Without a guard the child is the server, so its own pid counts.
    pub(super) fn pid(&self) -> Option<u32> {
        None
    }

    /// Nothing to clean up: processes that the server left behind are not known.
    pub(super) async fn finish(&mut self, _status: ExitStatus) {}

    pub(super) async fn terminate(&mut self, child: &mut Child) {
        // Fails if the process has ended already, which is fine.
        let _ = child.start_kill();
    }

    /// Left to tokio, which kills the child when it is dropped.
    pub(super) fn kill(&mut self) {}
}

pub(super) async fn start(_guard: &GuardExe, launch: &Launch) -> Result<ServerProcess> {
    let child = unguarded_command(launch).spawn().map_err(|error| start_error(launch, error))?;
    Ok(ServerProcess::new(child, ProcessTree))
}
