//! Sessions of the legacy era: found by an id nobody can guess, ended by the client, by idleness, or to make room.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use futures_util::StreamExt;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::{
    connection::lock,
    server::{
        Peer,
        feed::{Feed, Keeps, Weight},
        job::Client,
        listen,
        shared::{Desk, Shared},
    },
};

/// Who opens sessions, as the layer above knows them: it puts one among the extensions of each request, and a session
/// answers to that one alone. Where there are none, whoever knows a session's id may use it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionOwner(pub Arc<str>);

#[derive(Debug)]
pub(super) struct Session {
    pub(super) id: String,
    pub(super) peer: Arc<Peer>,
    /// Who opened it.
    owner: Option<SessionOwner>,
    pub(super) desk: Arc<Desk>,
    /// The stream for what nobody asked for. Its number is 0.
    pub(super) news: Arc<Feed>,
    ended: CancellationToken,
    /// The streams of requests, for as long as their requests keep them.
    streams: Mutex<HashMap<u64, Weak<Feed>>>,
    next_stream: AtomicU64,
    used: Mutex<Instant>,
    listening: AtomicBool,
}

#[derive(Debug, Default)]
pub(super) struct Sessions {
    by_id: Mutex<HashMap<String, Arc<Session>>>,
    swept: AtomicBool,
}

impl Session {
    fn new(shared: &Shared, peer: Arc<Peer>, owner: Option<SessionOwner>) -> Session {
        Session {
            id: format!("{:032x}", rand::random::<u128>()),
            peer,
            owner,
            desk: Arc::default(),
            news: Feed::new(0, shared.options.queue, Keeps::Latest),
            ended: shared.closing.child_token(),
            streams: Mutex::default(),
            next_stream: AtomicU64::new(1),
            used: Mutex::new(Instant::now()),
            listening: AtomicBool::new(false),
        }
    }

    pub(super) fn client(&self) -> Client {
        let (peer, desk, ended) = (self.peer.clone(), Some(self.desk.clone()), self.ended.clone());
        Client { peer, desk, ended, single: false }
    }

    /// A stream for the answer to a request, found again by its number as long as the request keeps it.
    pub(super) fn stream(&self, bound: usize) -> Arc<Feed> {
        let feed = Feed::new(self.next_stream.fetch_add(1, Ordering::Relaxed), bound, Keeps::Latest);
        let mut streams = lock(&self.streams);
        streams.retain(|_, feed| feed.strong_count() > 0);
        streams.insert(feed.number, Arc::downgrade(&feed));
        feed
    }

    pub(super) fn find_stream(&self, number: u64) -> Option<Arc<Feed>> {
        if number == 0 { Some(self.news.clone()) } else { lock(&self.streams).get(&number)?.upgrade() }
    }

    /// Tells the news from now on, until the session ends.
    pub(super) fn listen(&self, shared: &Arc<Shared>) {
        if self.listening.swap(true, Ordering::Relaxed) {
            return;
        }
        let (news, ended, draining) = (self.news.clone(), self.ended.clone(), shared.draining.clone());
        let mut changes = shared.service.changes(&self.peer);
        shared.tasks.spawn(ended.run_until_cancelled_owned(async move {
            while let Some(Some(change)) = draining.run_until_cancelled(changes.next()).await {
                if let Ok(text) = listen::notification(&change, None) {
                    news.push(text, Weight::Once);
                }
            }
        }));
    }

    fn is_idle(&self) -> bool {
        self.desk.is_idle() && self.news.readers() == 0
    }

    fn end(&self, shared: &Shared) {
        self.ended.cancel();
        self.news.end();
        shared.service.gone(&self.peer);
    }
}

impl Sessions {
    /// A new session; none when there are too many and all are in use.
    pub(super) fn open(
        self: &Arc<Self>,
        shared: &Arc<Shared>,
        peer: Arc<Peer>,
        owner: Option<SessionOwner>,
    ) -> Option<Arc<Session>> {
        let session = Arc::new(Session::new(shared, peer, owner));
        let evicted = {
            let mut by_id = lock(&self.by_id);
            let full = by_id.len() >= shared.options.sessions_max;
            let oldest =
                || by_id.values().filter(|session| session.is_idle()).min_by_key(|session| *lock(&session.used));
            let evicted = if full { Some(oldest()?.id.clone()) } else { None };
            let evicted = evicted.and_then(|id| by_id.remove(&id));
            by_id.insert(session.id.clone(), session.clone());
            evicted
        };
        if let Some(evicted) = evicted {
            evicted.end(shared);
        }
        if !self.swept.swap(true, Ordering::Relaxed) {
            let sweeping = sweep(self.clone(), Arc::downgrade(shared), shared.options.session_idle);
            shared.tasks.spawn(shared.draining.clone().run_until_cancelled_owned(sweeping));
        }
        Some(session)
    }

    /// To anybody but its owner a session is as none.
    pub(super) fn find(&self, id: &str, owner: Option<&SessionOwner>) -> Option<Arc<Session>> {
        let session = lock(&self.by_id).get(id).cloned()?;
        if session.owner.as_ref() != owner {
            return None;
        }
        *lock(&session.used) = Instant::now();
        Some(session)
    }

    pub(super) fn end(&self, shared: &Shared, id: &str) -> bool {
        let session = lock(&self.by_id).remove(id);
        session.inspect(|session| session.end(shared)).is_some()
    }

    /// Ends the streams of news; what is being asked goes on.
    pub(super) fn drain(&self) {
        lock(&self.by_id).values().for_each(|session| session.news.end());
    }

    pub(super) fn end_all(&self, shared: &Shared) {
        let sessions: Vec<_> = lock(&self.by_id).drain().collect();
        sessions.iter().for_each(|(_, session)| session.end(shared));
    }
}

/// Ends the sessions that nobody used for long.
async fn sweep(sessions: Arc<Sessions>, shared: Weak<Shared>, idle: Duration) {
    loop {
        tokio::time::sleep((idle / 4).clamp(Duration::from_millis(100), Duration::from_secs(60))).await;
        let Some(shared) = shared.upgrade() else { return };
        let mut over = Vec::new();
        lock(&sessions.by_id).retain(|_, session| {
            let mut used = lock(&session.used);
            if !session.is_idle() {
                // A stream that was open all the time is a use, too.
                *used = Instant::now();
            }
            let keep = used.elapsed() < idle;
            if !keep {
                over.push(session.clone());
            }
            keep
        });
        over.iter().for_each(|session| session.end(&shared));
    }
}
