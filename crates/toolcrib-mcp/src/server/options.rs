//! The bounds and deadlines of the server side, and what the server calls itself.

use std::time::Duration;

#[derive(Debug, Clone)]
pub struct ServerOptions {
    pub name: String,
    pub version: String,
    /// A session nobody used for so long is ended.
    pub session_idle_timeout: Duration,
    /// When there are so many, the one that was idle longest gives way to a new one.
    pub sessions_max: usize,
    /// Requests answered at once, in one session or on one stream.
    pub requests_max: usize,
    /// Requests answered at once by one endpoint, whoever asks.
    pub requests_max_total: usize,
    /// Streams one session may hold open besides its requests.
    pub streams_max: usize,
    /// Messages that may wait for a client that does not read.
    pub queued_messages_max: usize,
    pub batch_max: usize,
    /// Over a byte stream; the body of an HTTP request is bounded by the layer above.
    pub line_bytes: usize,
    /// How long the service may take to greet a client.
    pub describe_timeout: Duration,
    /// How long a client may take to answer what it is asked.
    pub ask_timeout: Duration,
    /// Requests of 2026-07-28 that may wait for their client to come back with answers; the oldest gives way.
    pub suspended_max: usize,
    /// How often a silent stream says that it lives.
    pub keep_alive: Duration,
    /// How long a cut stream of a session waits to be taken up again before its request counts as given up.
    pub resume_window: Duration,
    /// How long requests in progress may continue after the server began to stop; then each gets the response of
    /// [`Service::unfinished`](super::Service::unfinished).
    pub drain_timeout: Duration,
    /// How long the service may tidy up after a request that was taken back, and a byte stream at its end.
    pub cleanup_timeout: Duration,
}

impl ServerOptions {
    pub fn new(name: impl Into<String>, version: impl Into<String>) -> ServerOptions {
        ServerOptions { name: name.into(), version: version.into(), ..ServerOptions::default() }
    }
}

impl Default for ServerOptions {
    fn default() -> ServerOptions {
        ServerOptions {
            name: env!("CARGO_PKG_NAME").to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            session_idle_timeout: Duration::from_secs(30 * 60),
            sessions_max: 1000,
            requests_max: 256,
            requests_max_total: 4096,
            streams_max: 8,
            queued_messages_max: 256,
            batch_max: 64,
            line_bytes: 4 * 1024 * 1024,
            describe_timeout: Duration::from_secs(30),
            ask_timeout: Duration::from_secs(5 * 60),
            suspended_max: 256,
            keep_alive: Duration::from_secs(15),
            resume_window: Duration::from_secs(3),
            drain_timeout: Duration::from_secs(2),
            cleanup_timeout: Duration::from_secs(2),
        }
    }
}
