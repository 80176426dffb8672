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
        McpPeer,
        dispatch::ClientContext,
        event_buffer::{EventBuffer, MessagePriority, Retention},
        shared::{ClientRequests, ServerShared},
        subscriptions,
    },
};

/// Who opens sessions, as the layer above knows them: it puts one among the extensions of each request, and a session
/// answers to that one alone. Where there are none, whoever knows a session's id may use it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionOwner(pub Arc<str>);

#[derive(Debug)]
pub(super) struct McpSession {
    pub(super) id: String,
    pub(super) peer: Arc<McpPeer>,
    /// Who opened it.
    owner: Option<SessionOwner>,
    pub(super) client_requests: Arc<ClientRequests>,
    /// The stream for what nobody asked for. Its number is 0.
    pub(super) notifications: Arc<EventBuffer>,
    ended: CancellationToken,
    /// The streams of requests, for as long as their requests keep them.
    streams: Mutex<HashMap<u64, Weak<EventBuffer>>>,
    next_stream: AtomicU64,
    last_used: Mutex<Instant>,
    listening: AtomicBool,
}

#[derive(Debug, Default)]
pub(super) struct McpSessions {
    by_id: Mutex<HashMap<String, Arc<McpSession>>>,
    sweeper_started: AtomicBool,
}

impl McpSession {
    fn new(shared: &ServerShared, peer: Arc<McpPeer>, owner: Option<SessionOwner>) -> McpSession {
        McpSession {
            id: format!("{:032x}", rand::random::<u128>()),
            peer,
            owner,
            client_requests: Arc::default(),
            notifications: EventBuffer::new(0, shared.options.queued_messages_max, Retention::Latest),
            ended: shared.closing.child_token(),
            streams: Mutex::default(),
            next_stream: AtomicU64::new(1),
            last_used: Mutex::new(Instant::now()),
            listening: AtomicBool::new(false),
        }
    }

    pub(super) fn client_context(&self) -> ClientContext {
        let (peer, desk, ended) = (self.peer.clone(), Some(self.client_requests.clone()), self.ended.clone());
        ClientContext { peer, client_requests: desk, ended, is_one_shot: false }
    }

    /// A stream for the answer to a request, found again by its number as long as the request keeps it.
    pub(super) fn open_stream(&self, bound: usize) -> Arc<EventBuffer> {
        let feed = EventBuffer::new(self.next_stream.fetch_add(1, Ordering::Relaxed), bound, Retention::Latest);
        let mut streams = lock(&self.streams);
        streams.retain(|_, feed| feed.strong_count() > 0);
        streams.insert(feed.stream_number, Arc::downgrade(&feed));
        feed
    }

    pub(super) fn find_stream(&self, number: u64) -> Option<Arc<EventBuffer>> {
        if number == 0 { Some(self.notifications.clone()) } else { lock(&self.streams).get(&number)?.upgrade() }
    }

    /// Tells the news from now on, until the session ends.
    pub(super) fn start_notifications(&self, shared: &Arc<ServerShared>) {
        if self.listening.swap(true, Ordering::Relaxed) {
            return;
        }
        let (news, ended, draining) = (self.notifications.clone(), self.ended.clone(), shared.draining.clone());
        let mut changes = shared.service.changes(&self.peer);
        shared.tasks.spawn(ended.run_until_cancelled_owned(async move {
            while let Some(Some(change)) = draining.run_until_cancelled(changes.next()).await {
                if let Ok(text) = subscriptions::encode_change(&change, None) {
                    news.push(text, MessagePriority::Deduplicated);
                }
            }
        }));
    }

    fn is_idle(&self) -> bool {
        self.client_requests.is_idle() && self.notifications.reader_count() == 0
    }

    fn end(&self, shared: &ServerShared) {
        self.ended.cancel();
        self.notifications.end();
        shared.service.on_disconnect(&self.peer);
    }
}

impl McpSessions {
    /// A new session; none when there are too many and all are in use.
    pub(super) fn open(
        self: &Arc<Self>,
        shared: &Arc<ServerShared>,
        peer: Arc<McpPeer>,
        owner: Option<SessionOwner>,
    ) -> Option<Arc<McpSession>> {
        let session = Arc::new(McpSession::new(shared, peer, owner));
        let evicted = {
            let mut by_id = lock(&self.by_id);
            let full = by_id.len() >= shared.options.sessions_max;
            let oldest =
                || by_id.values().filter(|session| session.is_idle()).min_by_key(|session| *lock(&session.last_used));
            let evicted = if full { Some(oldest()?.id.clone()) } else { None };
            let evicted = evicted.and_then(|id| by_id.remove(&id));
            by_id.insert(session.id.clone(), session.clone());
            evicted
        };
        if let Some(evicted) = evicted {
            evicted.end(shared);
        }
        if !self.sweeper_started.swap(true, Ordering::Relaxed) {
            let sweeping = sweep_idle(self.clone(), Arc::downgrade(shared), shared.options.session_idle_timeout);
            shared.tasks.spawn(shared.draining.clone().run_until_cancelled_owned(sweeping));
        }
        Some(session)
    }

    /// To anybody but its owner a session is as none.
    pub(super) fn find(&self, id: &str, owner: Option<&SessionOwner>) -> Option<Arc<McpSession>> {
        let session = lock(&self.by_id).get(id).cloned()?;
        if session.owner.as_ref() != owner {
            return None;
        }
        *lock(&session.last_used) = Instant::now();
        Some(session)
    }

    pub(super) fn end(&self, shared: &ServerShared, id: &str) -> bool {
        let session = lock(&self.by_id).remove(id);
        session.inspect(|session| session.end(shared)).is_some()
    }

    /// Ends the streams of news; what is being asked goes on.
    pub(super) fn drain(&self) {
        lock(&self.by_id).values().for_each(|session| session.notifications.end());
    }

    pub(super) fn end_all(&self, shared: &ServerShared) {
        let sessions: Vec<_> = lock(&self.by_id).drain().collect();
        sessions.iter().for_each(|(_, session)| session.end(shared));
    }
}

/// Ends the sessions that nobody used for long.
async fn sweep_idle(sessions: Arc<McpSessions>, shared: Weak<ServerShared>, idle: Duration) {
    loop {
        tokio::time::sleep((idle / 4).clamp(Duration::from_millis(100), Duration::from_secs(60))).await;
        let Some(shared) = shared.upgrade() else { return };
        let mut over = Vec::new();
        lock(&sessions.by_id).retain(|_, session| {
            let mut used = lock(&session.last_used);
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
