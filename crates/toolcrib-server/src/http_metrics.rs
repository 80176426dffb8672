//! What goes in and out over HTTP, counted: requests by what they were for, and connections.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::StatusCode;
use toolcrib::core::Timestamp;
use toolcrib::metrics::DurationHistogram;

#[derive(Debug)]
pub(crate) struct HttpMetrics {
    pub(crate) started_at: Timestamp,
    requests: Mutex<RequestCounts>,
    pub(crate) open_connections: AtomicU64,
}

/// Requests that were answered.
#[derive(Debug, Clone, Default)]
pub(crate) struct RequestCounts {
    pub(crate) by_status: BTreeMap<(RouteClass, u16), u64>,
    /// Until the answer's head: a stream of events may last for days.
    pub(crate) durations: BTreeMap<RouteClass, DurationHistogram>,
}

/// What a request is for. Paths are too many to count by, and anybody can make one up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum RouteClass {
    Api,
    Mcp,
    Operations,
    /// The console, and everything else.
    Page,
}

impl RouteClass {
    pub(crate) fn from_path(path: &str) -> RouteClass {
        let first = path.trim_start_matches('/').split('/').next().unwrap_or_default();
        match first {
            "api" => RouteClass::Api,
            "mcp" => RouteClass::Mcp,
            "healthz" | "readyz" | "metrics" => RouteClass::Operations,
            _ => RouteClass::Page,
        }
    }

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            RouteClass::Api => "api",
            RouteClass::Mcp => "mcp",
            RouteClass::Operations => "operations",
            RouteClass::Page => "page",
        }
    }
}

/// A connection that stands.
#[derive(Debug)]
pub(crate) struct ConnectionGuard<'a>(&'a HttpMetrics);

impl Drop for ConnectionGuard<'_> {
    fn drop(&mut self) {
        self.0.open_connections.fetch_sub(1, Ordering::Relaxed);
    }
}

impl HttpMetrics {
    pub(crate) fn new(started: Timestamp) -> HttpMetrics {
        HttpMetrics { started_at: started, requests: Mutex::default(), open_connections: AtomicU64::new(0) }
    }

    /// A connection, counted for as long as what is returned lives.
    pub(crate) fn track_connection(&self) -> ConnectionGuard<'_> {
        self.open_connections.fetch_add(1, Ordering::Relaxed);
        ConnectionGuard(self)
    }

    pub(crate) fn record_response(&self, class: RouteClass, status: StatusCode, elapsed: Duration) {
        let mut requests = self.lock();
        *requests.by_status.entry((class, status.as_u16())).or_default() += 1;
        requests.durations.entry(class).or_default().observe(elapsed);
    }

    pub(crate) fn snapshot(&self) -> RequestCounts {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, RequestCounts> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
