//! What goes in and out over HTTP, counted: requests by what they were for, and connections.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::StatusCode;
use toolcrib::core::Timestamp;
use toolcrib::meters::Durations;

#[derive(Debug)]
pub(crate) struct Traffic {
    pub(crate) started: Timestamp,
    requests: Mutex<Requests>,
    pub(crate) connections: AtomicU64,
}

/// Requests that were answered.
#[derive(Debug, Clone, Default)]
pub(crate) struct Requests {
    pub(crate) by_status: BTreeMap<(Class, u16), u64>,
    /// Until the answer's head: a stream of events may last for days.
    pub(crate) durations: BTreeMap<Class, Durations>,
}

/// What a request is for. Paths are too many to count by, and anybody can make one up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Class {
    Api,
    Mcp,
    Operations,
    /// The console, and everything else.
    Page,
}

impl Class {
    pub(crate) fn of(path: &str) -> Class {
        let first = path.trim_start_matches('/').split('/').next().unwrap_or_default();
        match first {
            "api" => Class::Api,
            "mcp" => Class::Mcp,
            "healthz" | "readyz" | "metrics" => Class::Operations,
            _ => Class::Page,
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Class::Api => "api",
            Class::Mcp => "mcp",
            Class::Operations => "operations",
            Class::Page => "page",
        }
    }
}

/// A connection that stands.
#[derive(Debug)]
pub(crate) struct Connected<'a>(&'a Traffic);

impl Drop for Connected<'_> {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Traffic {
    pub(crate) fn new(started: Timestamp) -> Traffic {
        Traffic { started, requests: Mutex::default(), connections: AtomicU64::new(0) }
    }

    /// A connection, counted for as long as what is returned lives.
    pub(crate) fn connected(&self) -> Connected<'_> {
        self.connections.fetch_add(1, Ordering::Relaxed);
        Connected(self)
    }

    pub(crate) fn answered(&self, class: Class, status: StatusCode, elapsed: Duration) {
        let mut requests = self.requests();
        *requests.by_status.entry((class, status.as_u16())).or_default() += 1;
        requests.durations.entry(class).or_default().add(elapsed);
    }

    pub(crate) fn read(&self) -> Requests {
        self.requests().clone()
    }

    fn requests(&self) -> MutexGuard<'_, Requests> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
