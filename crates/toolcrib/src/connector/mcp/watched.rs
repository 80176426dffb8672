//! The resources that clients watch over one connection. A server forgets them with its connection: so that one is kept
//! open while there are any, a new one asks for them again, and when the last client that watches one leaves, the
//! server hears of it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use serde_json::json;
use serde_json::value::{RawValue, to_raw_value};
use tokio::time::{Instant, timeout};
use toolcrib_core::source::Lifecycle;
use toolcrib_core::{Code, Error, SourceId};
use toolcrib_mcp::{RequestOptions, WireError};

use super::exchange::Exchange;
use super::lines::{Line, Watches};
use super::live::Live;
use super::{McpConnector, unsaid};
use crate::call::ClientId;
use crate::connections::News;
use crate::connector::{CallFailure, Request};

/// How many watches there may be over one connection, how many of them one client's, and how long an address may be.
const MOST: usize = 1000;
const MOST_OF_ONE: usize = 200;
const LONGEST: usize = 8 * 1024;
/// For what is asked on nobody's behalf, one by one and in all.
const ASKED: Duration = Duration::from_secs(5);
const ALL_ASKED: Duration = Duration::from_secs(60);
/// Between two looks at a connection that is not as it should be.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

#[derive(Debug, Default)]
pub(super) struct Watched {
    by_uri: Mutex<WatchedUris>,
    /// One change at a time, so that the server hears of them in the order in which they are kept here.
    turn: tokio::sync::Mutex<()>,
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
    fn add<'a>(&'a self, uri: &'a str, client: Option<ClientId>) -> Result<Adding<'a>, String> {
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

    fn granted(&self, uri: &str, live: &Arc<Live>) {
        if let Some(watch) = self.by_uri().get_mut(uri) {
            watch.over = Arc::downgrade(live);
        }
    }

    /// Whether it was the last that watched this.
    fn remove(&self, uri: &str, client: Option<ClientId>) -> bool {
        let mut by_uri = self.by_uri();
        let removed = by_uri.get_mut(uri).is_some_and(|watch| watch.by.remove(&client));
        let last = removed && by_uri.get(uri).is_some_and(|watch| watch.by.is_empty());
        if last {
            by_uri.remove(uri);
        }
        last
    }

    /// Forgets a client; what nobody watches any more.
    fn remove_all(&self, client: ClientId) -> Vec<String> {
        let its = |watch: &mut Watch| watch.by.remove(&Some(client)) && watch.by.is_empty();
        self.by_uri().extract_if(.., |_, watch| its(watch)).map(|(uri, _)| uri).collect()
    }

    fn is_watched(&self, uri: &str) -> bool {
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
    fn is_due(&self) -> bool {
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
                    Err(error) => tracing::debug!(server_name = %id, %error, "a resource is not watched now"),
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
struct Adding<'a> {
    watched: &'a Watched,
    uri: &'a str,
    client: Option<ClientId>,
    new: bool,
}

impl Adding<'_> {
    fn keep(mut self) {
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

impl Line {
    /// Tells the server on nobody's behalf what is not watched any more, as far as it listens.
    async fn tell_unwatched(&self, uris: &[String]) {
        let Some(live) = self.live.lock().await.clone().filter(|live| live.usable()) else { return };
        // Somebody may have begun to watch it meanwhile.
        for uri in uris.iter().filter(|uri| !self.watched.is_watched(uri)) {
            let Ok(params) = to_raw_value(&json!({ "uri": uri })) else { continue };
            let options = RequestOptions::new(ASKED);
            let told = live.client.request("resources/unsubscribe", Some(&params), &options).await;
            // Others wait for their turn.
            if matches!(told, Err(WireError::Timeout { .. })) {
                return;
            }
        }
    }
}

impl McpConnector {
    /// `resources/subscribe`.
    pub(super) async fn watch(&self, mut request: Request) -> Result<Box<RawValue>, CallFailure> {
        let (id, client) = (&self.source.id, request.terms.client);
        let refused = |message: String| CallFailure::Refused(Error::new(Code::ToolInvalidInput, message));
        if self.source.settings.lifecycle() == Lifecycle::Transient {
            let message = format!("`{id}` has a connection for each call alone, over which nothing can be watched");
            return Err(refused(message));
        }
        let uri = uri(&request)?;
        if uri.len() > LONGEST {
            return Err(refused(format!("the address has more than {LONGEST} bytes")));
        }
        let line = self.lines.of(&self.source, &request.terms).map_err(CallFailure::Undecided)?;
        let _turn = self.turn(&line, &mut request).await?;
        let too_many = |many| refused(format!("{many} of `{id}` are watched already; end a subscription first"));
        let adding = line.watched.add(&uri, client).map_err(too_many)?;
        let (answer, live) = self.exchange_over(&Exchange::Request(&request)).await?;
        line.watched.granted(&uri, &live);
        // One that has left meanwhile would watch for ever.
        if request.terms.cancel.is_cancelled() {
            if adding.new && line.watched.remove(&uri, client) {
                line.tell_unwatched(std::slice::from_ref(&uri)).await;
            }
            return Err(CallFailure::cancelled());
        }
        adding.keep();
        Ok(answer)
    }

    /// `resources/unsubscribe`. The server hears of it when nobody else watches the same.
    pub(super) async fn unwatch(&self, mut request: Request) -> Result<Box<RawValue>, CallFailure> {
        let (uri, client) = (uri(&request)?, request.terms.client);
        let line = self.lines.of(&self.source, &request.terms).map_err(CallFailure::Undecided)?;
        let _turn = self.turn(&line, &mut request).await?;
        if !line.watched.remove(&uri, client) {
            return Ok(unsaid());
        }
        let began = Instant::now();
        let standing = timeout(request.terms.timeout.min(ASKED), line.live.lock()).await;
        let stands = standing.is_ok_and(|live| live.as_ref().is_some_and(|live| live.usable()));
        request.terms.timeout = request.terms.timeout.saturating_sub(began.elapsed());
        match stands {
            true => self.exchange(&Exchange::Request(&request)).await,
            false => Ok(unsaid()),
        }
    }

    /// Ends what a client watched that has left: here at once, whatever becomes of telling the server.
    pub(super) async fn unwatch_all(&self, client: ClientId) {
        let line = &self.lines.common;
        let unwatched = line.watched.remove_all(client);
        if unwatched.is_empty() {
            return;
        }
        let telling = async {
            let _turn = line.watched.turn.lock().await;
            line.tell_unwatched(&unwatched).await;
        };
        let _in_time = timeout(ALL_ASKED, telling).await;
    }

    /// Tells who watched what is watched no more that it may have changed: who reads it again finds out.
    pub(super) fn lose(&self, watches: &Watches) {
        for uri in watches.uris() {
            let params = to_raw_value(&json!({ "uri": uri })).ok();
            self.news.said(&self.source.id, "notifications/resources/updated", params.as_deref());
        }
    }

    /// Whether something is watched over a connection that is gone, or not listened to, or not asked for over this one.
    pub(super) fn is_neglected(&self) -> bool {
        self.lines.all().iter().any(|line| line.watched.any() && !line.is_heard())
    }

    /// Makes connections again that are needed for what is watched; and finds out whether a server forgot a session,
    /// which the wire begins anew.
    pub(super) async fn attend(&self) {
        for line in self.lines.all() {
            if !line.watched.any() || line.is_heard() || !line.watched.is_due() {
                continue;
            }
            let mut place = line.live.lock().await;
            // Who watched may have left while another held it.
            if !line.watched.any() {
                continue;
            }
            let stood = place.as_ref().is_some_and(|live| live.usable());
            let standing = self.stand(&line, &mut place, self.source.settings.discovery_timeout()).await;
            drop(place);
            match standing {
                // A new one asks for all of it by itself.
                Ok(_) if !stood => {}
                Ok(live) => {
                    let _either_way = live.client.request("ping", None, &RequestOptions::new(ASKED)).await;
                    line.watched.clone().renew(live, self.source.id.clone(), self.news.clone()).await;
                }
                Err(error) => tracing::debug!(server_name = %self.source.id, %error, "nothing can be watched yet"),
            }
        }
    }

    /// Waits for its turn within the time of the request, which has less of it then.
    async fn turn<'a>(
        &self,
        line: &'a Line,
        request: &mut Request,
    ) -> Result<tokio::sync::MutexGuard<'a, ()>, CallFailure> {
        let began = Instant::now();
        let late = || Error::new(Code::ToolUnavailable, format!("`{}` is asked by others", self.source.id));
        let turn = tokio::select! {
            biased;
            turn = line.watched.turn.lock() => turn,
            () = request.terms.cancel.cancelled() => return Err(CallFailure::cancelled()),
            () = tokio::time::sleep(request.terms.timeout) => return Err(CallFailure::Undecided(late())),
        };
        request.terms.timeout = request.terms.timeout.saturating_sub(began.elapsed());
        Ok(turn)
    }
}

fn uri(request: &Request) -> Result<String, CallFailure> {
    #[derive(serde::Deserialize)]
    struct Params {
        uri: String,
    }
    let params = request.params.as_deref().and_then(|params| serde_json::from_str(params.get()).ok());
    let missing = || CallFailure::Refused(Error::new(Code::ToolInvalidInput, "`uri` is missing"));
    params.map(|Params { uri }| uri).ok_or_else(missing)
}

#[cfg(test)]
mod tests;
