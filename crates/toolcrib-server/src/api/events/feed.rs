//! One ear on the registry for all listeners, and a place for each of them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{broadcast, watch};
use tokio_util::sync::{CancellationToken, DropGuard};
use toolcrib::core::inventory::Event;
use toolcrib::registry::Notice;
use toolcrib::{Code, Error, Registry};

use super::told::{Told, told};

/// Listeners at once.
const MAX_LISTENERS: usize = 1_000;
/// Listeners at once of one identity, so that no client takes all places.
const MAX_LISTENERS_PER_IDENTITY: usize = MAX_LISTENERS / 4;
/// How far a listener may fall behind before it misses measurements.
const BEHIND: usize = 1_024;

/// Ends, and ends its listeners, when it is closed or dropped.
#[derive(Debug)]
pub(crate) struct Feed {
    told: broadcast::Sender<Told>,
    listeners: Arc<Listeners>,
    /// Changes with the tokens there are, and with the configuration.
    access: watch::Sender<()>,
    closed: CancellationToken,
    _open: DropGuard,
}

/// How many listen, by identity.
#[derive(Debug, Default)]
struct Listeners(Mutex<HashMap<Arc<str>, usize>>);

/// A place among the listeners, until it is dropped.
#[derive(Debug)]
pub(super) struct ListenerPermit {
    listeners: Arc<Listeners>,
    identity: Arc<str>,
}

/// Why there is no place for another listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TooMany {
    InAll,
    OfIdentity,
}

impl Feed {
    pub(crate) fn new(registry: Registry) -> Feed {
        let (told, _) = broadcast::channel(BEHIND);
        let closed = CancellationToken::new();
        let access = watch::Sender::new(());
        tokio::spawn(closed.clone().run_until_cancelled_owned(listen(registry, told.clone(), access.clone())));
        Feed { told, access, listeners: Arc::default(), _open: closed.clone().drop_guard(), closed }
    }

    /// From now on nobody listens.
    pub(crate) fn close(&self) {
        self.closed.cancel();
    }

    pub(super) fn admit(&self, identity: &Arc<str>) -> Result<ListenerPermit, TooMany> {
        let mut listeners = self.listeners.by_identity();
        if listeners.values().sum::<usize>() >= MAX_LISTENERS {
            return Err(TooMany::InAll);
        }
        let own = listeners.entry(identity.clone()).or_default();
        if *own >= MAX_LISTENERS_PER_IDENTITY {
            return Err(TooMany::OfIdentity);
        }
        *own += 1;
        Ok(ListenerPermit { listeners: self.listeners.clone(), identity: identity.clone() })
    }

    pub(crate) fn listeners(&self) -> usize {
        self.listeners.by_identity().values().sum()
    }

    pub(super) fn subscribe(&self) -> broadcast::Receiver<Told> {
        self.told.subscribe()
    }

    /// Tells when a token was made, changed or revoked, and when the configuration was read again.
    pub(crate) fn access_changes(&self) -> watch::Receiver<()> {
        self.access.subscribe()
    }

    pub(crate) fn access_changed(&self) {
        self.access.send_replace(());
    }

    pub(super) fn closed(&self) -> CancellationToken {
        self.closed.clone()
    }
}

impl Listeners {
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

impl TooMany {
    pub(super) fn into_error(self) -> Error {
        let message = match self {
            TooMany::InAll => format!("{MAX_LISTENERS} clients listen already; try again in a moment"),
            TooMany::OfIdentity => {
                format!("{MAX_LISTENERS_PER_IDENTITY} clients with these credentials listen already; close one of them")
            }
        };
        Error::new(Code::RateLimited, message)
    }
}

async fn listen(registry: Registry, tell: broadcast::Sender<Told>, tokens: watch::Sender<()>) {
    let mut notices = registry.subscribe();
    loop {
        let heard = notices.recv().await;
        if heard.as_ref().map_or(true, concerns_tokens) {
            tokens.send_replace(());
        }
        let news = match heard {
            // What nobody hears need not be written.
            Ok(_) if tell.receiver_count() == 0 => continue,
            Ok(notice) => told(&registry, &notice),
            Err(RecvError::Lagged(missed)) => vec![Told::Lost(missed)],
            Err(RecvError::Closed) => return,
        };
        for one in news {
            // The last may have left just now.
            let _nobody_listens = tell.send(one);
        }
    }
}

fn concerns_tokens(notice: &Notice) -> bool {
    matches!(notice, Notice::Recorded(record) if matches!(
        record.event,
        Event::TokenCreated { .. } | Event::TokenChanged { .. } | Event::TokenRevoked { .. } | Event::DamageAccepted { .. }
    ))
}
