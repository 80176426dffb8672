//! Sessions of legacy HTTP clients. A session has a random id and ends by DELETE, after the idle timeout, or when a new
//! session needs its place.
//!
//! A session owns its stream for notifications and knows the streams of its requests, so that a client can resume
//! either. A client may vanish without DELETE, hence the idle timeout and the maximum.

use std::{
    collections::HashMap,
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::server::{
    McpPeer,
    change_notifications::send_changes,
    client_requests::ClientRequests,
    event_buffer::{EventBuffer, Retention},
    request::ClientContext,
    shared::ServerShared,
    sink::Sink,
};

/// Authenticated owner of a session, set by the layer above as an extension of each HTTP request. A session can be used
/// by requests of the same owner only. Without owners, anyone who knows the id can use the session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionOwner(pub Arc<str>);

/// One session.
#[derive(Debug)]
pub(super) struct McpSession {
    /// Random, because it authorizes requests where there is no owner.
    pub(super) id: String,
    pub(super) peer: Arc<McpPeer>,
    owner: Option<SessionOwner>,
    pub(super) client_requests: Arc<ClientRequests>,
    /// Stream for notifications that belong to no request; its number is 0.
    pub(super) notifications: Arc<EventBuffer>,
    /// Fires when the session ends.
    ended: CancellationToken,
    /// Streams of requests by number, for resuming them. Weak: the task of the request owns its stream.
    streams: Mutex<HashMap<u64, Weak<EventBuffer>>>,
    next_stream: AtomicU64,
    last_used: Mutex<Instant>,
    /// Whether the task that sends change notifications was started.
    listening: AtomicBool,
}

/// All sessions of an endpoint.
#[derive(Debug, Default)]
pub(super) struct McpSessions {
    /// By session id. Never locked while the service is called.
    by_id: Mutex<HashMap<String, Arc<McpSession>>>,
    /// Whether the task that ends idle sessions was started, which the first session does.
    sweeper_started: AtomicBool,
}

impl McpSession {
    /// Creates a session with a random id.
    fn new(shared: &ServerShared, peer: Arc<McpPeer>, owner: Option<SessionOwner>) -> McpSession {
        McpSession {
            id: shared.options.handles.create_handle(""),
            peer,
            owner,
            client_requests: Arc::default(),
            notifications: EventBuffer::new(0, shared.options.max_queued_messages, Retention::Latest),
            ended: shared.closing.child_token(),
            streams: Mutex::default(),
            next_stream: AtomicU64::new(1),
            last_used: Mutex::new(Instant::now()),
            listening: AtomicBool::new(false),
        }
    }

    /// Builds the client context for a request of this session.
    pub(super) fn client_context(&self) -> ClientContext {
        ClientContext {
            peer: self.peer.clone(),
            client_requests: Some(self.client_requests.clone()),
            ended: self.ended.clone(),
            is_one_shot: false,
        }
    }

    /// Creates the stream of a request. It can be found by its number while the request owns it.
    pub(super) fn open_stream(&self, max_unread: usize) -> Arc<EventBuffer> {
        let number = self.next_stream.fetch_add(1, Ordering::Relaxed);
        let buffer = EventBuffer::new(number, max_unread, Retention::Latest);
        let mut streams = self.streams.lock();
        // Entries of finished requests are removed here, so the table needs no task of its own.
        streams.retain(|_, buffer| buffer.strong_count() > 0);
        streams.insert(buffer.stream_number, Arc::downgrade(&buffer));
        buffer
    }

    /// Returns the stream with this number, if it still exists.
    pub(super) fn find_stream(&self, number: u64) -> Option<Arc<EventBuffer>> {
        if number == 0 { Some(self.notifications.clone()) } else { self.streams.lock().get(&number)?.upgrade() }
    }

    /// Starts sending change notifications, until the session ends. Later calls do nothing. The first GET stream calls
    /// it: without one, notifications would only fill the queue.
    pub(super) fn start_notifications(&self, shared: &Arc<ServerShared>) {
        if self.listening.swap(true, Ordering::Relaxed) {
            return;
        }
        let changes = shared.service.changes(&self.peer);
        let sending = send_changes(changes, Sink::Http(self.notifications.clone()), shared.draining.clone());
        shared.tasks.spawn(self.ended.clone().run_until_cancelled_owned(sending));
    }

    /// Whether neither a request nor a notification stream is open.
    fn is_idle(&self) -> bool {
        self.client_requests.is_idle() && self.notifications.reader_count() == 0
    }

    /// Cancels the requests of the session and ends its stream.
    fn end(&self, shared: &ServerShared) {
        self.ended.cancel();
        self.notifications.end();
        shared.service.on_disconnect(&self.peer);
    }
}

impl McpSessions {
    /// Opens a session. At the maximum, it replaces the session that was idle longest; returns `None` when none is
    /// idle.
    pub(super) fn open(
        self: &Arc<Self>,
        shared: &Arc<ServerShared>,
        peer: Arc<McpPeer>,
        owner: Option<SessionOwner>,
    ) -> Option<Arc<McpSession>> {
        let session = Arc::new(McpSession::new(shared, peer, owner));
        let evicted = {
            let mut by_id = self.by_id.lock();
            let is_full = by_id.len() >= shared.options.max_sessions;
            let oldest_idle =
                || by_id.values().filter(|session| session.is_idle()).min_by_key(|session| *session.last_used.lock());
            // The replacement and the insertion are one step under the lock, so that the maximum holds under
            // concurrency.
            let evicted = if is_full { Some(oldest_idle()?.id.clone()) } else { None };
            let evicted = evicted.and_then(|id| by_id.remove(&id));
            by_id.insert(session.id.clone(), session.clone());
            evicted
        };
        // Outside the lock, because the service is called.
        if let Some(evicted) = evicted {
            evicted.end(shared);
        }
        if !self.sweeper_started.swap(true, Ordering::Relaxed) {
            let sweeping = sweep_idle(self.clone(), Arc::downgrade(shared), shared.options.session_idle_timeout);
            shared.tasks.spawn(shared.draining.clone().run_until_cancelled_owned(sweeping));
        }
        Some(session)
    }

    /// Returns a session and marks it as used. A session of another owner is treated as unknown.
    pub(super) fn find(&self, id: &str, owner: Option<&SessionOwner>) -> Option<Arc<McpSession>> {
        let session = self.by_id.lock().get(id).cloned()?;
        if session.owner.as_ref() != owner {
            return None;
        }
        *session.last_used.lock() = Instant::now();
        Some(session)
    }

    /// Ends one session; returns whether it existed.
    pub(super) fn end(&self, shared: &ServerShared, id: &str) -> bool {
        let session = self.by_id.lock().remove(id);
        session.inspect(|session| session.end(shared)).is_some()
    }

    /// Ends the notification streams; requests continue.
    pub(super) fn drain(&self) {
        self.by_id.lock().values().for_each(|session| session.notifications.end());
    }

    /// Ends all sessions.
    pub(super) fn end_all(&self, shared: &ServerShared) {
        let sessions: Vec<_> = self.by_id.lock().drain().collect();
        sessions.iter().for_each(|(_, session)| session.end(shared));
    }
}

/// Ends idle sessions periodically. `shared` is weak, so that this task does not keep a dropped endpoint alive.
async fn sweep_idle(sessions: Arc<McpSessions>, shared: Weak<ServerShared>, idle_timeout: Duration) {
    loop {
        tokio::time::sleep((idle_timeout / 4).clamp(Duration::from_millis(100), Duration::from_secs(60))).await;
        let Some(shared) = shared.upgrade() else { return };
        let mut expired = Vec::new();
        sessions.by_id.lock().retain(|_, session| {
            let mut last_used = session.last_used.lock();
            if !session.is_idle() {
                // An open stream or a running request counts as use.
                *last_used = Instant::now();
            }
            let keep = last_used.elapsed() < idle_timeout;
            if !keep {
                expired.push(session.clone());
            }
            keep
        });
        expired.iter().for_each(|session| session.end(&shared));
    }
}
