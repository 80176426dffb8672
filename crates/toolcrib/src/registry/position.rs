//! The position of this process in the journal, by which a client reads its own writes from another process.

use std::time::Duration;

use tokio::sync::broadcast::error::RecvError;
use tokio::sync::oneshot;
use tokio::time::timeout;
use toolcrib_catalog::View;
use toolcrib_core::principal::Principal;
use tracing::Instrument;

use super::Registry;
use crate::trace::Trace;

/// Minimum time between two reads of new records that requests cause, so that requests for positions far ahead are
/// cheap.
pub(super) const CATCH_UP_INTERVAL: Duration = Duration::from_millis(250);

impl Registry {
    /// Returns the sequence number of the last record that readers see. Lock-free.
    pub fn position(&self) -> u64 {
        self.state.snapshot().inventory.version
    }

    /// Like [`Registry::view`], with the position of the catalogue that it shows.
    pub fn view_with_position(&self, principal: &Principal) -> (View, u64) {
        let snapshot = self.state.snapshot();
        (snapshot.view(principal), snapshot.inventory.version)
    }

    /// Waits until readers see the record with this sequence number; returns false if they do not within `limit`. Reads
    /// what other processes have written at once, with other callers that wait, instead of waiting for news of it.
    pub async fn wait_for_position(&self, position: u64, limit: Duration) -> bool {
        if self.position() >= position {
            return true;
        }
        // Subscribed before the position is compared again, so that no record is missed.
        let mut notices = self.subscribe();
        let reached = async {
            while self.position() < position {
                if let Err(RecvError::Closed) = notices.recv().await {
                    return false;
                }
            }
            true
        };
        let catching_up = async {
            self.catch_up().await;
            std::future::pending().await
        };
        let reached_or_pending = async {
            tokio::select! {
                reached = reached => reached,
                () = catching_up => false,
            }
        };
        timeout(limit, reached_or_pending).await.unwrap_or(false)
    }

    /// Reads what other processes have written, in one run with other callers that wait for it.
    pub(super) async fn catch_up(&self) {
        self.catch_ups.join(async || self.catch_up_in_background().await).await;
    }

    /// Reads new records in a task of its own: after it has published them it reads the files that new sources refer to,
    /// for which the callers do not wait. Returns whether it succeeded.
    async fn catch_up_in_background(&self) -> bool {
        // A run that hangs is not joined by further ones. Its callers wait for the position as well.
        let Ok(running) = self.background_catch_up.clone().try_lock_owned() else { return false };
        let state = self.state.clone();
        let (done, is_done) = oneshot::channel();
        let span = tracing::info_span!("catch_up", trace_id = %Trace::log_only().id());
        self.tasks.spawn_until_shutdown(async move {
            // A failure is logged by maintenance, which reads the records as soon as that works again.
            let is_ok = state.catch_up().instrument(span).await.is_ok();
            drop(running);
            // Fails only if the callers have gone away.
            let _ = done.send(is_ok);
        });
        is_done.await.unwrap_or(false)
    }
}
