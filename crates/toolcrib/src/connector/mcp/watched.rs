//! The resources that clients watch over one connection. A server forgets them with its connection: so that one is kept
//! open while there are any, a new one asks for them again, and when the last client that watches one leaves, the
//! server hears of it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use serde_json::json;
use serde_json::value::to_raw_value;
use tokio::time::{Instant, timeout};
use toolcrib_core::SourceId;
use toolcrib_mcp::RequestOptions;

use super::live::Live;
use crate::call::ClientId;
use crate::connections::News;

/// How many watches there may be over one connection, and how many of them one client's.
const MOST: usize = 1000;
const MOST_OF_ONE: usize = 200;
/// For what is asked on nobody's behalf, one by one and in all.
pub(super) const ASKED: Duration = Duration::from_secs(5);
pub(super) const ALL_ASKED: Duration = Duration::from_secs(60);
/// Between two looks at a connection that is not as it should be.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

#[derive(Debug, Default)]
pub(super) struct Watched {
    by_uri: Mutex<WatchedUris>,
    /// One change at a time, so that the server hears of them in the order in which they are kept here.
    pub(super) turn: tokio::sync::Mutex<()>,
    /// When to look again, and how long to wait after that.
    next_look: Mutex<Option<(Instant, Duration)>>,
}

pub(super) type WatchedUris = BTreeMap<String, Watch>;

#[derive(Debug, Default)]
pub(super) struct Watch {
    by: BTreeSet<Option<ClientId>>,
    /// The connection over which the server agreed to it last.
    over: Weak<Live>,
}

impl Watch {
    fn is_over(&self, live: &Arc<Live>) -> bool {
        Weak::as_ptr(&self.over) == Arc::as_ptr(live)
    }
}

impl Watched {
    pub(super) fn any(&self) -> bool {
        !self.by_uri().is_empty()
    }

    /// Whether the server did not agree, over this connection, to all that is watched; not while it is being asked.
    pub(super) fn lags(&self, live: &Arc<Live>) -> bool {
        self.turn.try_lock().is_ok() && self.by_uri().values().any(|watch| !watch.is_over(live))
    }

    /// Keeps what is about to be asked for; why not, when there are too many.
    pub(super) fn add<'a>(&'a self, uri: &'a str, client: Option<ClientId>) -> Result<Adding<'a>, String> {
        let mut by_uri = self.by_uri();
        let new = !by_uri.get(uri).is_some_and(|watch| watch.by.contains(&client));
        if new && by_uri.values().map(|watch| watch.by.len()).sum::<usize>() >= MOST {
            return Err(format!("{MOST} resources"));
        }
        if new && by_uri.values().filter(|watch| watch.by.contains(&client)).count() >= MOST_OF_ONE {
            return Err(format!("{MOST_OF_ONE} resources, as many as one client may watch,"));
        }
        by_uri.entry(uri.to_owned()).or_default().by.insert(client);
        Ok(Adding { watched: self, uri, client, new })
    }

    pub(super) fn granted(&self, uri: &str, live: &Arc<Live>) {
        if let Some(watch) = self.by_uri().get_mut(uri) {
            watch.over = Arc::downgrade(live);
        }
    }

    /// Whether it was the last that watched this.
    pub(super) fn remove(&self, uri: &str, client: Option<ClientId>) -> bool {
        let mut by_uri = self.by_uri();
        let removed = by_uri.get_mut(uri).is_some_and(|watch| watch.by.remove(&client));
        let last = removed && by_uri.get(uri).is_some_and(|watch| watch.by.is_empty());
        if last {
            by_uri.remove(uri);
        }
        last
    }

    /// Forgets a client; what nobody watches any more.
    pub(super) fn remove_all(&self, client: ClientId) -> Vec<String> {
        let its = |watch: &mut Watch| watch.by.remove(&Some(client)) && watch.by.is_empty();
        self.by_uri().extract_if(.., |_, watch| its(watch)).map(|(uri, _)| uri).collect()
    }

    pub(super) fn is_watched(&self, uri: &str) -> bool {
        self.by_uri().contains_key(uri)
    }

    pub(super) fn clear(&self) {
        self.take();
    }

    pub(super) fn take(&self) -> WatchedUris {
        std::mem::take(&mut *self.by_uri())
    }

    /// Watches also what was watched elsewhere.
    pub(super) fn take_in(&self, uris: WatchedUris) {
        let mut by_uri = self.by_uri();
        for (uri, watch) in uris {
            by_uri.entry(uri).or_default().by.extend(watch.by);
        }
    }

    /// Whether it is time to look at the connection again; the next time is later. What was well for long begins anew.
    pub(super) fn is_due(&self) -> bool {
        let now = Instant::now();
        let mut next = self.next_look.lock().unwrap_or_else(PoisonError::into_inner);
        let recent = next.filter(|(at, _)| now.saturating_duration_since(*at) <= LONGEST_PAUSE);
        let (at, pause) = recent.unwrap_or((now, FIRST_PAUSE));
        let due = at <= now;
        if due {
            *next = Some((now + pause, (pause * 2).min(LONGEST_PAUSE)));
        }
        due
    }

    /// Asks over a connection for what is watched and was asked for over another, or in vain. What changed in between
    /// was not told, so all of it may have.
    pub(super) async fn renew(self: Arc<Self>, live: Arc<Live>, id: SourceId, news: News) {
        let renewing = async {
            let _turn = self.turn.lock().await;
            let lost = |(uri, watch): (&String, &Watch)| (!watch.is_over(&live)).then(|| uri.clone());
            let uris: Vec<String> = self.by_uri().iter().filter_map(lost).collect();
            for uri in uris.iter().filter(|uri| self.is_watched(uri)) {
                let Ok(params) = to_raw_value(&json!({ "uri": uri })) else { continue };
                match live.client.request("resources/subscribe", Some(&params), &RequestOptions::new(ASKED)).await {
                    Ok(_) => {
                        self.granted(uri, &live);
                        news.said(&id, "notifications/resources/updated", Some(&params));
                    }
                    Err(_) if !live.usable() => return,
                    Err(error) => {
                        tracing::debug!(server_name = %id, error = error.kind(), "a resource is not watched now");
                    }
                }
            }
        };
        let in_time = timeout(ALL_ASKED, renewing).await.is_ok();
        if !in_time || self.lags(&live) {
            tracing::warn!(server_name = %id, "not all resources could be watched again; tried again later");
        }
    }

    fn by_uri(&self) -> MutexGuard<'_, WatchedUris> {
        self.by_uri.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A watch that is being asked for: kept already, so that it is renewed with the connection, and not kept without
/// the server's consent.
pub(super) struct Adding<'a> {
    watched: &'a Watched,
    uri: &'a str,
    client: Option<ClientId>,
    pub(super) new: bool,
}

impl Adding<'_> {
    pub(super) fn keep(mut self) {
        self.new = false;
    }
}

impl Drop for Adding<'_> {
    fn drop(&mut self) {
        if self.new {
            self.watched.remove(self.uri, self.client);
        }
    }
}

#[cfg(test)]
mod tests;
