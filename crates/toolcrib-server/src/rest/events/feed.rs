//! One ear on the registry for all listeners, and a place for each of them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{broadcast, watch};
use tokio_util::sync::{CancellationToken, DropGuard};
use toolcrib::core::inventory::Event;
use toolcrib::registry::RegistryNotice;
use toolcrib::{Code, Error, Registry};

use super::sse::{FeedEvent, render_notice};

/// Listeners at once.
const MAX_LISTENERS: usize = 1_000;
/// Listeners at once of one identity, so that no client takes all places.
const MAX_LISTENERS_PER_IDENTITY: usize = MAX_LISTENERS / 4;
/// How far a listener may fall behind before it misses measurements.
const MAX_QUEUED_EVENTS: usize = 1_024;

/// Ends, and ends its listeners, when it is closed or dropped.
#[derive(Debug)]
pub(crate) struct EventFeed {
    events: broadcast::Sender<FeedEvent>,
    listeners: Arc<ListenerCounts>,
    /// Changes with the tokens there are, and with the configuration.
    auth_changes: watch::Sender<()>,
    closed: CancellationToken,
    _open: DropGuard,
}

/// How many listen, by identity.
#[derive(Debug, Default)]
struct ListenerCounts(Mutex<HashMap<Arc<str>, usize>>);

/// A place among the listeners, until it is dropped.
#[derive(Debug)]
pub(super) struct ListenerPermit {
    listeners: Arc<ListenerCounts>,
    identity: Arc<str>,
}

/// Why there is no place for another listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TooManyListeners {
    Total,
    PerIdentity,
}

impl EventFeed {
    pub(crate) fn new(registry: Registry) -> EventFeed {
        let (told, _) = broadcast::channel(MAX_QUEUED_EVENTS);
        let closed = CancellationToken::new();
        let access = watch::Sender::new(());
        tokio::spawn(closed.clone().run_until_cancelled_owned(forward_notices(registry, told.clone(), access.clone())));
        EventFeed {
            events: told,
            auth_changes: access,
            listeners: Arc::default(),
            _open: closed.clone().drop_guard(),
            closed,
        }
    }

    /// From now on nobody listens.
    pub(crate) fn close(&self) {
        self.closed.cancel();
    }

    pub(super) fn acquire_permit(&self, identity: &Arc<str>) -> Result<ListenerPermit, TooManyListeners> {
        let mut listeners = self.listeners.by_identity();
        if listeners.values().sum::<usize>() >= MAX_LISTENERS {
            return Err(TooManyListeners::Total);
        }
        let own = listeners.entry(identity.clone()).or_default();
        if *own >= MAX_LISTENERS_PER_IDENTITY {
            return Err(TooManyListeners::PerIdentity);
        }
        *own += 1;
        Ok(ListenerPermit { listeners: self.listeners.clone(), identity: identity.clone() })
    }

    pub(crate) fn listener_count(&self) -> usize {
        self.listeners.by_identity().values().sum()
    }

    pub(super) fn subscribe(&self) -> broadcast::Receiver<FeedEvent> {
        self.events.subscribe()
    }

    /// Tells when a token was made, changed or revoked, and when the configuration was read again.
    pub(crate) fn subscribe_auth_changes(&self) -> watch::Receiver<()> {
        self.auth_changes.subscribe()
    }

    pub(crate) fn notify_auth_changed(&self) {
        self.auth_changes.send_replace(());
    }

    pub(super) fn closed_token(&self) -> CancellationToken {
        self.closed.clone()
    }
}

impl ListenerCounts {
    fn by_identity(&self) -> MutexGuard<'_, HashMap<Arc<str>, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for ListenerPermit {
    fn drop(&mut self) {
        let mut listeners = self.listeners.by_identity();
        if let Some(own) = listeners.get_mut(&self.identity) {
            *own -= 1;
            if *own == 0 {
                listeners.remove(&self.identity);
            }
        }
    }
}

impl TooManyListeners {
    pub(super) fn into_error(self) -> Error {
        let message = match self {
            TooManyListeners::Total => format!("{MAX_LISTENERS} clients listen already; try again in a moment"),
            TooManyListeners::PerIdentity => {
                format!("{MAX_LISTENERS_PER_IDENTITY} clients with these credentials listen already; close one of them")
            }
        };
        Error::new(Code::RateLimited, message)
    }
}

async fn forward_notices(registry: Registry, tell: broadcast::Sender<FeedEvent>, tokens: watch::Sender<()>) {
    let mut notices = registry.subscribe();
    loop {
        let heard = notices.recv().await;
        if heard.as_ref().map_or(true, affects_tokens) {
            tokens.send_replace(());
        }
        let news = match heard {
            // What nobody hears need not be written.
            Ok(_) if tell.receiver_count() == 0 => continue,
            Ok(notice) => render_notice(&registry, &notice),
            Err(RecvError::Lagged(missed)) => vec![FeedEvent::Lost(missed)],
            Err(RecvError::Closed) => return,
        };
        for one in news {
            // The last may have left just now.
            let _nobody_listens = tell.send(one);
        }
    }
}

fn affects_tokens(notice: &RegistryNotice) -> bool {
    matches!(notice, RegistryNotice::RecordAppended(record) if matches!(
        record.event,
        Event::TokenCreated { .. } | Event::TokenChanged { .. } | Event::TokenRevoked { .. } | Event::DamageAccepted { .. }
    ))
}
