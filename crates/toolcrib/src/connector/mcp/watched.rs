//! The resources that clients watch over one connection. A server forgets them with its connection: so that one is kept
//! open while there are any, a new one asks for them again, and when the last client that watches one leaves, the
//! server hears of it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::json;
use serde_json::value::{RawValue, to_raw_value};
use tokio::time::{Instant, timeout};
use toolcrib_core::source::Lifecycle;
use toolcrib_core::{Code, Error, SourceId};
use toolcrib_mcp::RequestOptions;

use super::exchange::Exchange;
use super::lines::Line;
use super::live::Live;
use super::{McpConnector, unsaid};
use crate::call::ClientId;
use crate::connections::News;
use crate::connector::{CallFailure, Request};

/// How many watches there may be over one connection, each of one client, and how long an address may be.
const MOST: usize = 1000;
const LONGEST: usize = 8 * 1024;
/// For what is asked on nobody's behalf, one by one and in all.
const ASKED: Duration = Duration::from_secs(5);
const ALL_ASKED: Duration = Duration::from_secs(60);
/// Between two looks at a connection that is not as it should be.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

type Watchers = BTreeSet<Option<ClientId>>;

#[derive(Debug, Default)]
pub(super) struct Watched {
    by_uri: Mutex<BTreeMap<String, Watchers>>,
    /// One change at a time, so that the server hears of them in the order in which they are kept here.
    turn: tokio::sync::Mutex<()>,
    /// When to look again, and how long to wait after that.
    next_look: Mutex<Option<(Instant, Duration)>>,
}

impl Watched {
    pub(super) fn any(&self) -> bool {
        !self.by_uri().is_empty()
    }

    fn has_room(&self) -> bool {
        self.by_uri().values().map(BTreeSet::len).sum::<usize>() < MOST
    }

    fn add(&self, uri: &str, client: Option<ClientId>) {
        self.by_uri().entry(uri.to_owned()).or_default().insert(client);
    }

    /// Whether it was the last that watched this.
    fn remove(&self, uri: &str, client: Option<ClientId>) -> bool {
        let mut by_uri = self.by_uri();
        let removed = by_uri.get_mut(uri).is_some_and(|watchers| watchers.remove(&client));
        let last = removed && by_uri.get(uri).is_some_and(BTreeSet::is_empty);
        if last {
            by_uri.remove(uri);
        }
        last
    }

    fn of(&self, client: ClientId) -> Vec<String> {
        let by_uri = self.by_uri();
        let its = by_uri.iter().filter(|(_, watchers)| watchers.contains(&Some(client)));
        its.map(|(uri, _)| uri.clone()).collect()
    }

    pub(super) fn clear(&self) {
        self.by_uri().clear();
    }

    /// Whether it is time to look at the connection again; the next time is later.
    fn is_due(&self) -> bool {
        let mut next = self.next_look.lock().unwrap_or_else(PoisonError::into_inner);
        let (at, pause) = next.unwrap_or_else(|| (Instant::now(), FIRST_PAUSE));
        let due = at <= Instant::now();
        if due {
            *next = Some((Instant::now() + pause, (pause * 2).min(LONGEST_PAUSE)));
        }
        due
    }

    fn is_well(&self) {
        *self.next_look.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Asks over a new connection for what was watched over the one before. What changed in between was not told, so
    /// all of it may have.
    pub(super) async fn renew(self: Arc<Self>, live: Arc<Live>, id: SourceId, news: News) {
        let renewing = async {
            let _turn = self.turn.lock().await;
            let uris: Vec<String> = self.by_uri().keys().cloned().collect();
            for uri in uris {
                let Ok(params) = to_raw_value(&json!({ "uri": uri })) else { continue };
                match live.client.request("resources/subscribe", Some(&params), &RequestOptions::new(ASKED)).await {
                    Ok(_) => news.said(&id, "notifications/resources/updated", Some(&params)),
                    Err(_) if !live.usable() => return,
                    Err(error) => tracing::warn!(server_name = %id, %error, "a resource is not watched any more"),
                }
            }
        };
        if timeout(ALL_ASKED, renewing).await.is_err() {
            tracing::warn!(server_name = %id, "not all resources could be watched again in time");
        }
    }

    fn by_uri(&self) -> MutexGuard<'_, BTreeMap<String, Watchers>> {
        self.by_uri.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Line {
    /// Ends what a client watches, on nobody's behalf.
    async fn unwatch(&self, uri: &str, client: Option<ClientId>) {
        let last = self.watched.remove(uri, client);
        let live = self.live.lock().await.clone().filter(|live| last && live.usable());
        if let (Some(live), Ok(params)) = (live, to_raw_value(&json!({ "uri": uri }))) {
            let options = RequestOptions::new(ASKED);
            let _either_way = live.client.request("resources/unsubscribe", Some(&params), &options).await;
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
        if !line.watched.has_room() {
            return Err(refused(format!("{MOST} resources of `{id}` are watched already; end a subscription first")));
        }
        let answer = self.exchange(&Exchange::Request(&request)).await?;
        line.watched.add(&uri, client);
        // One that has left meanwhile would watch for ever.
        if request.terms.cancel.is_cancelled() {
            line.unwatch(&uri, client).await;
            return Err(CallFailure::cancelled());
        }
        Ok(answer)
    }

    /// `resources/unsubscribe`. The server hears of it when nobody else watches the same.
    pub(super) async fn unwatch(&self, mut request: Request) -> Result<Box<RawValue>, CallFailure> {
        let (uri, client) = (uri(&request)?, request.terms.client);
        let line = self.lines.of(&self.source, &request.terms).map_err(CallFailure::Undecided)?;
        let _turn = self.turn(&line, &mut request).await?;
        match line.watched.remove(&uri, client) && line.stands() {
            true => self.exchange(&Exchange::Request(&request)).await,
            false => Ok(unsaid()),
        }
    }

    /// Ends what a client watched that has left.
    pub(super) async fn unwatch_all(&self, client: ClientId) {
        let line = &self.lines.common;
        if line.watched.of(client).is_empty() {
            return;
        }
        let ending = async {
            let _turn = line.watched.turn.lock().await;
            for uri in line.watched.of(client) {
                line.unwatch(&uri, Some(client)).await;
            }
        };
        let _in_time = timeout(ALL_ASKED, ending).await;
    }

    /// Whether something is watched over a connection that is gone, or that is not listened to.
    pub(super) fn is_neglected(&self) -> bool {
        self.lines.all().iter().any(|line| line.watched.any() && !line.is_heard())
    }

    /// Makes connections again that are needed for what is watched; and finds out whether a server forgot a session,
    /// which the wire begins anew.
    pub(super) async fn attend(&self) {
        for line in self.lines.all() {
            if !line.watched.any() || line.is_heard() {
                line.watched.is_well();
                continue;
            }
            if !line.watched.is_due() {
                continue;
            }
            match self.standing(&line, self.source.settings.discovery_timeout()).await {
                Ok(live) => {
                    let _either_way = live.client.request("ping", None, &RequestOptions::new(ASKED)).await;
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
