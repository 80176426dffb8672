//! State shared by all requests of one endpoint or byte stream, and the phases of its shutdown.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use ::http::Extensions;
use serde_json::{json, value::RawValue};
use tokio::{sync::watch, time::timeout};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    McpPeer, Service, options::ServerOptions, subscriptions::ResourceSubscribers, suspended_requests::SuspendedRequests,
};
use crate::{era::Era, message::to_raw};

/// Shared state. Shutdown has three phases, each with a token: `draining`, `stopping`, `closing`. A later token never
/// fires before an earlier one in an orderly shutdown; dropping an endpoint or a stream skips to the last.
pub(super) struct ServerShared {
    pub(super) service: Arc<dyn Service>,
    pub(super) options: ServerOptions,
    /// `serverInfo` of this server, encoded once.
    pub(super) server_info: Box<RawValue>,
    pub(super) suspended: SuspendedRequests,
    pub(super) resource_subscribers: ResourceSubscribers,
    /// All tasks of the endpoint or stream. They end at the latest when `closing` fires.
    pub(super) tasks: TaskTracker,
    /// First phase: streams and subscriptions end; requests in progress may finish, and so may those that arrive over
    /// open connections.
    pub(super) draining: CancellationToken,
    /// Second phase: no new requests; unfinished ones get [`Service::shutdown_response`].
    pub(super) stopping: CancellationToken,
    /// Third phase: everything is cancelled.
    pub(super) closing: CancellationToken,
}

impl ServerShared {
    /// Creates the shared state without any task.
    pub(super) fn new(service: Arc<dyn Service>, options: ServerOptions) -> Arc<ServerShared> {
        let server_info = to_raw(&json!({ "name": options.name, "version": options.version })).unwrap_or_default();
        Arc::new(ServerShared {
            service,
            server_info,
            suspended: SuspendedRequests::new(&options),
            options,
            resource_subscribers: ResourceSubscribers::default(),
            tasks: TaskTracker::new(),
            draining: CancellationToken::new(),
            stopping: CancellationToken::new(),
            closing: CancellationToken::new(),
        })
    }

    /// Starts the second phase of shutdown and waits until the unfinished requests have their responses, at most for
    /// the cleanup timeout. The caller has closed the task tracker, else the wait would not end early.
    pub(super) async fn stop(&self) {
        self.stopping.cancel();
        // Tasks that take longer are cancelled in the next phase.
        let _ = timeout(self.options.cleanup_timeout, self.tasks.wait()).await;
    }
}

impl std::fmt::Debug for ServerShared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServerShared").field("options", &self.options).finish_non_exhaustive()
    }
}

/// Returns a peer id that is unique in this process.
pub(super) fn next_peer_id() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

impl McpPeer {
    /// Creates a peer with a new id.
    pub(super) fn new(era: Era, name: Option<String>, capabilities: Box<RawValue>, query: &str) -> McpPeer {
        McpPeer {
            id: next_peer_id(),
            era,
            name,
            capabilities,
            query: query.to_owned(),
            is_stateless: false,
            extensions: watch::Sender::default(),
        }
    }

    /// Replaces the extensions with those of the latest request.
    pub(super) fn set_extensions(&self, extensions: Arc<Extensions>) {
        self.extensions.send_replace(extensions);
    }
}
