//! One ear on the registry for all listeners, and a place for each of them.

use std::sync::Arc;

use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, broadcast, watch};
use tokio_util::sync::{CancellationToken, DropGuard};
use toolcrib::Registry;
use toolcrib::core::inventory::Event;
use toolcrib::registry::Notice;

use super::told::{Told, told};

/// Listeners at once.
const MOST: usize = 1_000;
/// How far a listener may fall behind before it misses measurements.
const BEHIND: usize = 1_024;

/// Ends, and ends its listeners, when it is closed or dropped.
#[derive(Debug)]
pub(crate) struct Feed {
    told: broadcast::Sender<Told>,
    places: Arc<Semaphore>,
    /// Changes with the tokens there are.
    tokens: watch::Sender<()>,
    closed: CancellationToken,
    _open: DropGuard,
}

impl Feed {
    pub(crate) fn new(registry: Registry) -> Feed {
        let (told, _) = broadcast::channel(BEHIND);
        let closed = CancellationToken::new();
        let tokens = watch::Sender::new(());
        tokio::spawn(closed.clone().run_until_cancelled_owned(listen(registry, told.clone(), tokens.clone())));
        Feed { told, tokens, places: Arc::new(Semaphore::new(MOST)), _open: closed.clone().drop_guard(), closed }
    }

    /// From now on nobody listens.
    pub(crate) fn close(&self) {
        self.closed.cancel();
    }

    pub(super) fn place(&self) -> Option<OwnedSemaphorePermit> {
        self.places.clone().try_acquire_owned().ok()
    }

    pub(crate) fn listeners(&self) -> usize {
        MOST.saturating_sub(self.places.available_permits())
    }

    pub(super) fn subscribe(&self) -> broadcast::Receiver<Told> {
        self.told.subscribe()
    }

    /// Tells when a token was made, changed or revoked.
    pub(crate) fn tokens(&self) -> watch::Receiver<()> {
        self.tokens.subscribe()
    }

    pub(super) fn closed(&self) -> CancellationToken {
        self.closed.clone()
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
        Event::TokenCreated { .. } | Event::TokenChanged { .. } | Event::TokenRevoked { .. }
    ))
}
