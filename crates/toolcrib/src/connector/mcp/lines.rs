//! Which connection serves whom: one for all, or with `lifecycle: per_client` one for each client that stays.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::future::join_all;
use tokio::time::Instant;
use toolcrib_core::source::Lifecycle;
use toolcrib_core::{Code, Error, Result, Source};

use super::live::Live;
use super::watched::{Watched, WatchedUris};
use crate::call::ClientId;
use crate::connector::{CallFailure, Terms};

/// How many clients may have a connection of their own.
const CLIENTS: usize = 64;

/// A place for one connection, and what is watched over it.
#[derive(Debug, Default)]
pub(super) struct Line {
    /// Locked while one is made, so that one is made for all who wait.
    pub(super) live: tokio::sync::Mutex<Option<Arc<Live>>>,
    pub(super) watched: Arc<Watched>,
    /// Why there was no connection the last time, and when.
    failure: Mutex<Option<(Instant, CallFailure)>>,
}

impl Line {
    pub(super) fn failed(&self, failure: &CallFailure) {
        *self.failure() = Some((Instant::now(), failure.copy()));
    }

    /// Why no connection came about, if that was found out since `began`.
    pub(super) fn failure_since(&self, began: Instant) -> Option<CallFailure> {
        let failure = self.failure();
        let (_, failure) = failure.as_ref().filter(|(at, _)| *at > began)?;
        // A caller that waited for less time than the source may take says nothing to the others.
        (!matches!(failure, CallFailure::Undecided(_))).then(|| failure.copy())
    }

    fn failure(&self) -> MutexGuard<'_, Option<(Instant, CallFailure)>> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn stands(&self) -> bool {
        // Somebody is connecting when the lock is taken.
        self.live.try_lock().is_ok_and(|live| live.as_ref().is_some_and(|live| live.usable()))
    }

    /// Whether somebody listens to what is said over it, and the server knows what is watched; or it is about to be so.
    pub(super) fn is_heard(&self) -> bool {
        let heard = |live: &Arc<Live>| live.usable() && live.client.is_listening() && !self.watched.lags(live);
        self.live.try_lock().map_or(true, |live| live.as_ref().is_some_and(heard))
    }
}

#[derive(Debug, Default)]
pub(super) struct Lines {
    pub(super) common: Arc<Line>,
    own: Mutex<HashMap<ClientId, Arc<Line>>>,
}

/// What is watched over each connection of a source: the one of all, and those of single clients.
#[derive(Debug, Default)]
pub struct Watches(Vec<(Option<ClientId>, WatchedUris)>);

impl Watches {
    pub(super) fn uris(&self) -> BTreeSet<&String> {
        self.0.iter().flat_map(|(_, uris)| uris.keys()).collect()
    }
}

impl Lines {
    /// Where a caller's connection is, or will be.
    pub(super) fn of(&self, source: &Source, terms: &Terms) -> Result<Arc<Line>> {
        let client = match (source.settings.lifecycle(), terms.client) {
            (Lifecycle::PerClient, Some(client)) if !terms.fleeting => client,
            (Lifecycle::PerClient | Lifecycle::Shared | Lifecycle::Transient, _) => return Ok(self.common.clone()),
        };
        let mut own = self.own();
        if let Some(line) = own.get(&client) {
            return Ok(line.clone());
        }
        if own.len() >= CLIENTS {
            own.retain(|_, line| in_use(line));
        }
        if own.len() >= CLIENTS {
            let message = format!(
                "`{}` serves {CLIENTS} clients already, each with a server of its own (`lifecycle: per_client`); try again when one has left",
                source.id
            );
            return Err(Error::new(Code::ToolUnavailable, message));
        }
        Ok(own.entry(client).or_default().clone())
    }

    /// Ends the connection of a client that has left. Nobody waits for its calls any more.
    pub(super) async fn client_gone(&self, client: ClientId) {
        let line = self.own().remove(&client);
        let Some(line) = line else { return };
        // First, so that nobody who looks after it connects again.
        line.watched.clear();
        if let Some(live) = line.live.lock().await.take() {
            live.close().await;
        }
    }

    pub(super) fn connected(&self) -> bool {
        self.common.stands() || self.own().values().any(|line| line.stands())
    }

    pub(super) fn all(&self) -> Vec<Arc<Line>> {
        let own = self.own();
        std::iter::once(&self.common).chain(own.values()).cloned().collect()
    }

    pub(super) fn hand_over(&self) -> Watches {
        let own = self.own();
        let own = own.iter().map(|(client, line)| (Some(*client), &line.watched));
        let all = std::iter::once((None, &self.common.watched)).chain(own);
        Watches(all.map(|(client, watched)| (client, watched.take())).filter(|(_, uris)| !uris.is_empty()).collect())
    }

    /// `whose` says whose connection takes the place of a client's, or of the one of all.
    pub(super) fn take_over(&self, watches: Watches, whose: impl Fn(Option<ClientId>) -> Option<ClientId>) {
        for (client, uris) in watches.0 {
            match whose(client) {
                Some(client) => self.own().entry(client).or_default().watched.take_in(uris),
                None => self.common.watched.take_in(uris),
            }
        }
    }

    /// Ends all, once the calls in flight are done.
    pub(super) async fn drain(&self) {
        let mut lines: Vec<Arc<Line>> = self.own().drain().map(|(_, line)| line).collect();
        lines.push(self.common.clone());
        join_all(lines.iter().map(async |line| {
            line.watched.clear();
            if let Some(live) = line.live.lock().await.take() {
                live.drain().await;
            }
        }))
        .await;
    }

    fn own(&self) -> MutexGuard<'_, HashMap<ClientId, Arc<Line>>> {
        self.own.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A line that somebody holds may get a connection yet.
fn in_use(line: &Arc<Line>) -> bool {
    let stands = line.live.try_lock().map_or(true, |live| live.as_ref().is_some_and(|live| live.usable()));
    stands || line.watched.any() || Arc::strong_count(line) > 1
}
