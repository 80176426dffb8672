//! Broadcasts the notices of the registry to all event listeners, and limits their number. Also announces changes that
//! affect authorization, so that open streams are checked again.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{broadcast, watch};
use tokio_util::sync::{CancellationToken, DropGuard};
use toolcrib::core::inventory::Event;
use toolcrib::registry::RegistryNotice;
use toolcrib::{Code, Error, Registry, Result};

use super::sse::{FeedEvent, notice_events};

/// Maximum number of concurrent listeners. Each holds one of the server's connections for as long as it listens.
const MAX_LISTENERS: usize = 1_000;
/// Maximum number of concurrent listeners of one identity, so that one client cannot exhaust the limit for all.
const MAX_LISTENERS_PER_IDENTITY: usize = MAX_LISTENERS / 4;
/// How many events a slow listener may fall behind before measurements are lost. Records are never lost: the listener
/// reads them from the journal. The events are shared by all listeners; a slow one costs nothing but its own gap.
const MAX_QUEUED_EVENTS: usize = 1_024;

/// Source of all event streams. Closing or dropping it ends them.
#[derive(Debug)]
pub(crate) struct EventFeed {
    /// Events, which listeners with the same scope share in one rendering.
    pub(super) events: broadcast::Sender<FeedEvent>,
    /// Shared with the permits, which may outlive the feed.
    listeners: ListenerCounts,
    /// Changes when a token is created, changed or revoked, and when the configuration is reloaded. All open streams check
    /// their authorization then.
    pub(crate) auth_changes: watch::Sender<()>,
    /// Ends all event streams when it is cancelled.
    pub(crate) closed: CancellationToken,
    _close_on_drop: DropGuard,
}

/// Number of listeners by identity. An identity without listeners has no entry, so the map does not grow with the
/// tokens that were ever used.
type ListenerCounts = Arc<Mutex<HashMap<Arc<str>, usize>>>;

/// RAII guard for one listener; dropping it makes room for another.
#[derive(Debug)]
pub(super) struct ListenerPermit {
    listeners: ListenerCounts,
    identity: Arc<str>,
}

impl EventFeed {
    /// Creates the feed and starts its task.
    pub(crate) fn new(registry: Registry) -> EventFeed {
        let (events, _) = broadcast::channel(MAX_QUEUED_EVENTS);
        let closed = CancellationToken::new();
        let auth_changes = watch::Sender::new(());
        let forwarding = forward_notices(registry, events.clone(), auth_changes.clone());
        tokio::spawn(closed.clone().run_until_cancelled_owned(forwarding));
        EventFeed {
            events,
            auth_changes,
            listeners: Arc::default(),
            _close_on_drop: closed.clone().drop_guard(),
            closed,
        }
    }

    /// Counts a new listener until the returned permit is dropped. Fails with `RATE_LIMITED` if a limit is reached.
    pub(super) fn acquire_permit(&self, identity: &Arc<str>) -> Result<ListenerPermit> {
        let mut listeners = self.listeners.lock();
        if listeners.values().sum::<usize>() >= MAX_LISTENERS {
            let message = format!("too many event streams ({MAX_LISTENERS}); try again later");
            return Err(Error::new(Code::RateLimited, message));
        }
        let count = listeners.entry(identity.clone()).or_default();
        if *count >= MAX_LISTENERS_PER_IDENTITY {
            let limit = MAX_LISTENERS_PER_IDENTITY;
            let message = format!("too many event streams with these credentials ({limit}); close one of them");
            return Err(Error::new(Code::RateLimited, message));
        }
        *count += 1;
        Ok(ListenerPermit { listeners: self.listeners.clone(), identity: identity.clone() })
    }

    /// Number of current listeners, for metrics.
    pub(crate) fn listener_count(&self) -> usize {
        self.listeners.lock().values().sum()
    }
}

impl Drop for ListenerPermit {
    fn drop(&mut self) {
        let mut listeners = self.listeners.lock();
        if let Some(count) = listeners.get_mut(&self.identity) {
            *count -= 1;
            if *count == 0 {
                listeners.remove(&self.identity);
            }
        }
    }
}

/// Forwards the notices of the registry to the listeners, until the registry closes. One task for all listeners. It
/// never waits for them: the channel drops the oldest events of a listener that lags.
async fn forward_notices(registry: Registry, sender: broadcast::Sender<FeedEvent>, auth_changes: watch::Sender<()>) {
    let mut notices = registry.subscribe();
    loop {
        let notice = notices.recv().await;
        // Missed notices may have been about tokens, so they count as a change.
        if notice.as_ref().map_or(true, affects_tokens) {
            auth_changes.send_replace(());
        }
        let events = match notice {
            // Without listeners there is nothing to do.
            Ok(_) if sender.receiver_count() == 0 => continue,
            Ok(notice) => notice_events(&notice, registry.now()),
            Err(RecvError::Lagged(missed)) => vec![FeedEvent::Lost(missed)],
            Err(RecvError::Closed) => return,
        };
        for event in events {
            // Fails when the last listener has just disconnected.
            let _ = sender.send(event);
        }
    }
}

/// True for records that change which tokens are valid.
fn affects_tokens(notice: &RegistryNotice) -> bool {
    matches!(notice, RegistryNotice::RecordAppended(record) if matches!(
        record.event,
        Event::TokenCreated { .. } | Event::TokenChanged { .. } | Event::TokenRevoked { .. } | Event::DamageAccepted { .. }
    ))
}
