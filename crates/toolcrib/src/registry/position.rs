//! The position of this process in the journal, by which a client reads its own writes from another process.

use std::time::Duration;

use tokio::sync::broadcast::error::RecvError;
use tokio::time::timeout;
use toolcrib_catalog::View;
use toolcrib_core::principal::Principal;
use tracing::Instrument;

use super::Registry;
use crate::trace::Trace;

/// Minimum time between two reads of new records that requests cause, so that requests for positions far ahead are
/// cheap.
pub(super) const CATCH_UP_INTERVAL: Duration = Duration::from_millis(50);

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
        let span = tracing::info_span!("catch_up", trace_id = %Trace::log_only().id());
        // A failure is logged by maintenance, which reads the records as soon as that works again.
        self.catch_ups.join(async || self.state.catch_up().instrument(span).await.is_ok()).await;
    }
}
