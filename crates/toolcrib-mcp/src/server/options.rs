//! Name, handles, bounds and timeouts of the server side.
//!
//! Every bound protects the process from its clients. Beyond a bound a client gets an error, or loses a message that
//! may be dropped, or the oldest or longest-idle state makes room.

use std::{fmt, sync::Arc, time::Duration};

/// Options of an endpoint or a byte stream.
///
/// More than twelve fields: each is a limit or a timeout of its own, and most servers keep the defaults.
#[derive(Debug, Clone)]
pub struct ServerOptions {
    /// Name and version announced to clients as `serverInfo`.
    pub name: String,
    pub version: String,
    /// Prefix of session ids and request states.
    pub handles: HandlePrefix,
    /// Time after which an unused session ends. A session with a request in progress or an open GET stream is in use.
    pub session_idle_timeout: Duration,
    /// Maximum number of sessions. A new one beyond it ends the session that was idle longest, or is rejected when none
    /// is idle.
    pub max_sessions: usize,
    /// Maximum number of concurrent requests of one session or one byte stream; a further one is rejected with an
    /// error.
    pub max_requests_per_client: usize,
    /// Maximum number of concurrent requests of the whole endpoint; a further one is rejected with an error, over HTTP
    /// with status 503.
    pub max_requests: usize,
    /// Maximum number of open connections to one event stream of a session.
    pub max_readers_per_stream: usize,
    /// Maximum number of messages queued for a client that does not read. Beyond it, progress and log messages are
    /// dropped, over HTTP change notifications too; on a byte stream the sender of a change notification waits. A
    /// response is never dropped: over HTTP it is queued all the same, on a byte stream its sender waits.
    pub max_queued_messages: usize,
    /// Maximum number of messages in one batch.
    pub max_batch_messages: usize,
    /// Maximum bytes of one line of a byte stream. The layer above bounds the body of an HTTP request.
    pub max_line_bytes: usize,
    /// Maximum time for [`Service::describe`](super::Service::describe).
    pub describe_timeout: Duration,
    /// Maximum time for a client to answer a question of the service. Minutes, because a person may have to answer.
    pub ask_timeout: Duration,
    /// Maximum number of requests of 2026-07-28 that wait for answers of their client; the oldest is cancelled beyond
    /// it.
    pub max_suspended_requests: usize,
    /// Interval of keep-alive comments on an idle event stream. A response that takes longer becomes an event stream,
    /// if the client accepts one.
    pub keep_alive: Duration,
    /// Time for which a legacy client may resume an interrupted stream before its request is cancelled.
    pub resume_window: Duration,
    /// Time for which requests in progress may continue after the server began to stop; then each gets the response of
    /// [`Service::shutdown_response`](super::Service::shutdown_response).
    pub drain_timeout: Duration,
    /// Time for which the service may continue after a request was cancelled, and the writer of a byte stream after its
    /// end.
    pub cleanup_timeout: Duration,
}

/// Text with which handles (session ids and request states) begin: it names the process that can serve them. Empty by
/// default, for a server without related processes.
#[derive(Clone)]
pub struct HandlePrefix {
    text: String,
    is_related: Arc<dyn Fn(&str) -> bool + Send + Sync>,
}

impl HandlePrefix {
    /// Creates the prefix of this process. `is_related` recognises the prefixes of processes in whose place this one may
    /// get a request, such as its predecessor before a restart: their request states are refused, because the request is
    /// lost, and not passed to the service like those of a server behind it.
    pub fn new(text: impl Into<String>, is_related: impl Fn(&str) -> bool + Send + Sync + 'static) -> HandlePrefix {
        HandlePrefix { text: text.into(), is_related: Arc::new(is_related) }
    }

    /// Creates a handle. It is random, because it is all that a client needs to use what it stands for.
    pub(super) fn create_handle(&self, mark: &str) -> String {
        format!("{}{mark}{:032x}", self.text, rand::random::<u128>())
    }

    /// Whether `prefix` is the one of this process.
    pub(super) fn is_own(&self, prefix: &str) -> bool {
        prefix == self.text
    }

    /// Whether `prefix` is the one of this process or of a related one.
    pub(super) fn is_known(&self, prefix: &str) -> bool {
        self.is_own(prefix) || (self.is_related)(prefix)
    }
}

impl Default for HandlePrefix {
    fn default() -> HandlePrefix {
        HandlePrefix::new("", |_| false)
    }
}

impl fmt::Debug for HandlePrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("HandlePrefix").field(&self.text).finish()
    }
}

impl ServerOptions {
    /// Default bounds and timeouts under this name and version.
    pub fn new(name: impl Into<String>, version: impl Into<String>) -> ServerOptions {
        ServerOptions { name: name.into(), version: version.into(), ..ServerOptions::default() }
    }
}

impl Default for ServerOptions {
    fn default() -> ServerOptions {
        ServerOptions {
            name: env!("CARGO_PKG_NAME").to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            handles: HandlePrefix::default(),
            session_idle_timeout: Duration::from_secs(30 * 60),
            max_sessions: 1000,
            max_requests_per_client: 256,
            max_requests: 4096,
            max_readers_per_stream: 8,
            max_queued_messages: 256,
            max_batch_messages: 64,
            max_line_bytes: 4 * 1024 * 1024,
            describe_timeout: Duration::from_secs(30),
            ask_timeout: Duration::from_secs(5 * 60),
            max_suspended_requests: 256,
            keep_alive: Duration::from_secs(15),
            resume_window: Duration::from_secs(3),
            drain_timeout: Duration::from_secs(2),
            cleanup_timeout: Duration::from_secs(2),
        }
    }
}
