//! Counters of HTTP requests, by class of route, and of open connections. Rendered by [`crate::metrics`].
//!
//! They count what happens in this process and start at zero with it. Calls and discoveries are counted by the
//! registry, because they also happen without HTTP.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use http::StatusCode;
use parking_lot::Mutex;
use toolcrib::core::Timestamp;
use toolcrib::metrics::DurationHistogram;

/// HTTP counters since the start of the server.
#[derive(Debug)]
pub(crate) struct HttpMetrics {
    /// By the registry's clock, for the uptime.
    pub(crate) started_at: Timestamp,
    requests: Mutex<RequestCounts>,
    /// Connections that were admitted and are not closed yet; those that wait for a place are not counted.
    pub(crate) open_connections: AtomicU64,
}

/// Counters of requests that got a response.
#[derive(Debug, Clone, Default)]
pub(crate) struct RequestCounts {
    /// The number of responses by class and HTTP status.
    pub(crate) by_status: BTreeMap<(RouteClass, u16), u64>,
    /// Time until the head of the response: an event stream may last for days.
    pub(crate) durations: BTreeMap<RouteClass, DurationHistogram>,
}

/// Kind of route. Used as a metric label instead of the path, because clients can request any number of paths.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum RouteClass {
    /// The REST API under `/api`.
    Api,
    /// The MCP endpoint.
    Mcp,
    /// Health checks and metrics.
    Operations,
    /// The console, and all other paths.
    Page,
}

impl RouteClass {
    /// Classifies a path by its first segment.
    pub(crate) fn from_path(path: &str) -> RouteClass {
        let first = path.trim_start_matches('/').split('/').next().unwrap_or_default();
        match first {
            "api" => RouteClass::Api,
            "mcp" => RouteClass::Mcp,
            "healthz" | "readyz" | "metrics" => RouteClass::Operations,
            _ => RouteClass::Page,
        }
    }

    /// Value of the label `class`.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            RouteClass::Api => "api",
            RouteClass::Mcp => "mcp",
            RouteClass::Operations => "operations",
            RouteClass::Page => "page",
        }
    }
}

/// RAII guard for an open connection; dropping it decrements the gauge.
#[derive(Debug)]
pub(crate) struct OpenConnectionGuard<'a>(&'a HttpMetrics);

impl Drop for OpenConnectionGuard<'_> {
    fn drop(&mut self) {
        self.0.open_connections.fetch_sub(1, Ordering::Relaxed);
    }
}

impl HttpMetrics {
    pub(crate) fn new(started_at: Timestamp) -> HttpMetrics {
        HttpMetrics { started_at, requests: Mutex::default(), open_connections: AtomicU64::new(0) }
    }

    /// Counts a connection until the returned guard is dropped.
    pub(crate) fn track_connection(&self) -> OpenConnectionGuard<'_> {
        self.open_connections.fetch_add(1, Ordering::Relaxed);
        OpenConnectionGuard(self)
    }

    /// Counts a response; `elapsed` is the time until its head.
    pub(crate) fn record_response(&self, class: RouteClass, status: StatusCode, elapsed: Duration) {
        let mut requests = self.requests.lock();
        *requests.by_status.entry((class, status.as_u16())).or_default() += 1;
        requests.durations.entry(class).or_default().observe(elapsed);
    }

    /// Returns a copy of the request counters. Copied, so that rendering the metrics does not hold the lock that every
    /// response takes.
    pub(crate) fn snapshot(&self) -> RequestCounts {
        self.requests.lock().clone()
    }
}
