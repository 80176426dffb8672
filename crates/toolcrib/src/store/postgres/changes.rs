//! Changes by other nodes, by `LISTEN` and `NOTIFY`.
//!
//! A notification is sent within a transaction and delivered after its commit. It names its sender, so that a node
//! ignores its own. It may be lost with the connection, so readers poll as well, and every new connection counts as a
//! notification.
//!
//! Only what clients wait for is notified; counts are noticed by the poll. What has changed is told by the numbers of
//! [`count_change`] and of the head, so that a reader reads only that part.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use sqlx::PgConnection;
use sqlx::postgres::{PgConnectOptions, PgListener, PgPoolOptions};
use tokio::sync::Notify;
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;

/// Name of the channel.
pub(super) const CHANNEL: &str = "toolcrib";
/// Time between attempts to listen again.
const RECONNECT_INTERVAL: Duration = Duration::from_secs(1);
/// Maximum time of one attempt.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Time without a notification after which the connection is checked. A firewall that forgets a silent connection tells
/// neither side.
const CHECK_INTERVAL: Duration = Duration::from_secs(30);
/// Maximum time of a check.
const CHECK_TIMEOUT: Duration = Duration::from_secs(5);

/// Listens for notifications, from the first wait on. A command that ends soon opens no connection for it.
pub(super) struct ChangeListener {
    options: PgConnectOptions,
    /// Names this process in its notifications.
    sender: String,
    changed: Arc<Notify>,
    task: Mutex<ListenerTask>,
}

/// State of the task that listens.
enum ListenerTask {
    Idle,
    Running { _task: AbortOnDropHandle<()> },
    Closed,
}

/// Sends notifications in the name of this process.
#[derive(Debug, Clone, Copy)]
pub(super) struct NoticeSender<'a>(&'a str);

impl<'a> NoticeSender<'a> {
    /// Returns the payload of the notifications.
    pub(super) fn name(self) -> &'a str {
        self.0
    }

    /// Notifies the other nodes when the transaction is committed.
    pub(super) async fn send(self, transaction: &mut PgConnection) -> sqlx::Result<()> {
        sqlx::query("SELECT pg_notify($1, $2)").bind(CHANNEL).bind(self.0).execute(transaction).await.map(drop)
    }
}

/// A part of the store that has a counter of its own, apart from the head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ChangedPart {
    Counts,
    Logins,
    TokenUses,
}

/// Counts a change of a part. The first statement of every transaction that changes it: the common first lock rules out
/// deadlocks.
pub(super) async fn count_change(transaction: &mut PgConnection, part: ChangedPart) -> sqlx::Result<()> {
    let part = match part {
        ChangedPart::Counts => "counts",
        ChangedPart::Logins => "logins",
        ChangedPart::TokenUses => "token_uses",
    };
    sqlx::query("UPDATE changes SET number = number + 1 WHERE part = $1")
        .bind(part)
        .execute(transaction)
        .await
        .map(drop)
}

impl ChangeListener {
    /// Creates a listener; it connects when it is first waited for.
    pub(super) fn new(options: PgConnectOptions) -> ChangeListener {
        let sender = format!("{:016x}", rand::random::<u64>());
        ChangeListener { options, sender, changed: Arc::default(), task: Mutex::new(ListenerTask::Idle) }
    }

    /// Returns the sender of this process.
    pub(super) fn sender(&self) -> NoticeSender<'_> {
        NoticeSender(&self.sender)
    }

    /// Waits for a notification of another process. One that arrived since the last wait counts.
    pub(super) async fn wait(&self) {
        {
            let mut task = self.task.lock();
            if matches!(*task, ListenerTask::Idle) {
                let listening = listen(self.options.clone(), self.sender.clone(), self.changed.clone());
                *task = ListenerTask::Running { _task: AbortOnDropHandle::new(tokio::spawn(listening)) };
            }
        }
        self.changed.notified().await;
    }

    /// Ends the connection. Later waits never end.
    pub(super) fn close(&self) {
        *self.task.lock() = ListenerTask::Closed;
    }
}

/// Listens until the task is aborted; connects again when the connection is lost.
async fn listen(options: PgConnectOptions, own: String, changed: Arc<Notify>) {
    loop {
        if let Err(error) = listen_once(&options, &own, &changed).await {
            tracing::debug!(%error, "the connection for notifications is lost; the store is polled meanwhile");
        }
        tokio::time::sleep(RECONNECT_INTERVAL).await;
    }
}

/// Connects, and passes on notifications until the connection is lost.
async fn listen_once(options: &PgConnectOptions, own: &str, changed: &Notify) -> sqlx::Result<()> {
    // A pool of its own: a connection of the other pool would be one less for statements.
    let pool = PgPoolOptions::new()
        .max_connections(1)
        .acquire_timeout(CONNECT_TIMEOUT)
        .idle_timeout(None)
        .max_lifetime(None)
        .connect_lazy_with(options.clone());
    let connect = async {
        let mut listener = PgListener::connect_with(&pool).await?;
        // Connecting again is left to the loop above, which pauses.
        listener.eager_reconnect(false);
        listener.listen(CHANNEL).await?;
        Ok(listener)
    };
    let connected = timeout(CONNECT_TIMEOUT, connect).await;
    let mut listener = connected.unwrap_or_else(|_| Err(sqlx::Error::Io(std::io::ErrorKind::TimedOut.into())))?;
    // What was written before counts as a notification.
    changed.notify_one();
    loop {
        match timeout(CHECK_INTERVAL, listener.try_recv()).await {
            Ok(Ok(Some(notification))) if notification.payload() != own => changed.notify_one(),
            Ok(Ok(Some(_))) => {}
            Ok(Ok(None)) => return Ok(()),
            Ok(Err(error)) => return Err(error),
            Err(_) => {
                let check = timeout(CHECK_TIMEOUT, sqlx::query("SELECT 1").execute(&mut listener)).await;
                check.map_err(|_| sqlx::Error::Io(std::io::ErrorKind::TimedOut.into()))??;
            }
        }
    }
}
