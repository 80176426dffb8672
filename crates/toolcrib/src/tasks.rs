//! Background tasks of a registry: they end when it closes, and closing waits for them.

use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

/// Spawns background tasks and ends them. Cheap to clone; all clones belong to the same registry.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tasks {
    tracker: TaskTracker,
    shutdown: CancellationToken,
}

impl Tasks {
    /// Spawns a task that runs to its end, although the registry closes. Its waits must be bounded.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) -> JoinHandle<()> {
        self.tracker.spawn(task)
    }

    /// Spawns a task that is dropped when the registry closes.
    pub(crate) fn spawn_until_shutdown<T>(&self, task: impl Future<Output = T> + Send + 'static)
    where
        T: Send + 'static,
    {
        let shutdown = self.shutdown.clone();
        self.tracker.spawn(async move {
            shutdown.run_until_cancelled(task).await;
        });
    }

    /// Returns the token that is cancelled when the registry closes.
    pub(crate) fn shutdown(&self) -> &CancellationToken {
        &self.shutdown
    }

    /// Returns a guard that starts the shutdown when it is dropped.
    pub(crate) fn shutdown_guard(&self) -> DropGuard {
        self.shutdown.clone().drop_guard()
    }

    /// Starts the shutdown and waits for all tasks.
    pub(crate) async fn close(&self) {
        self.shutdown.cancel();
        self.tracker.close();
        self.tracker.wait().await;
    }
}
