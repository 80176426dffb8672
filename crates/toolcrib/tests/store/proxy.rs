//! A proxy between a store and PostgreSQL that interferes once, at a chosen statement.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;

/// Interference with a statement that passes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Interference {
    /// The statement is executed, and its answer is lost with the connection.
    LoseAnswer,
    /// The connection is lost before the statement reaches the server.
    LoseStatement,
    /// The statement is executed, and then nothing passes until [`PostgresProxy::resume`].
    Pause,
}

/// Forwards connections on a port of loopback.
pub(super) struct PostgresProxy {
    port: u16,
    shared: Arc<SharedState>,
}

#[derive(Default)]
struct SharedState {
    /// Text of the statement, and what happens then.
    armed: Mutex<Option<(&'static str, Interference)>>,
    interfered: Notify,
    resumed: Notify,
}

impl PostgresProxy {
    /// Starts a proxy for the server of a URL.
    pub(super) async fn start(url: &str) -> PostgresProxy {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let shared = Arc::<SharedState>::default();
        let server = server_address(url).to_owned();
        let accepting = shared.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let Ok(server) = TcpStream::connect(&server).await else { continue };
                tokio::spawn(forward(client, server, accepting.clone()));
            }
        });
        PostgresProxy { port, shared }
    }

    /// The URL of the same database through the proxy.
    pub(super) fn url(&self, url: &str) -> String {
        url.replacen(server_address(url), &format!("127.0.0.1:{}", self.port), 1)
    }

    /// Interferes with the next statement that contains a text.
    pub(super) fn arm(&self, statement: &'static str, interference: Interference) {
        *self.shared.armed.lock() = Some((statement, interference));
    }

    /// Waits until it has interfered.
    pub(super) async fn wait_for_interference(&self) {
        self.shared.interfered.notified().await;
    }

    /// Ends a pause.
    pub(super) fn resume(&self) {
        self.shared.resumed.notify_one();
    }
}

/// Host and port in a URL.
fn server_address(url: &str) -> &str {
    let (_, rest) = url.split_once('@').unwrap();
    rest.split('/').next().unwrap()
}

/// Forwards both directions until one side closes the connection, or until the interference ends it.
async fn forward(mut client: TcpStream, mut server: TcpStream, shared: Arc<SharedState>) -> std::io::Result<()> {
    let (mut from_client, mut from_server) = (vec![0; 65_536], vec![0; 65_536]);
    loop {
        tokio::select! {
            length = client.read(&mut from_client) => {
                let statement = &from_client[..length?];
                if statement.is_empty() {
                    return Ok(());
                }
                match shared.take_interference(statement) {
                    None => server.write_all(statement).await?,
                    Some(Interference::LoseStatement) => return Ok(()),
                    Some(Interference::LoseAnswer) => {
                        server.write_all(statement).await?;
                        // Once there is an answer, it was executed.
                        server.readable().await?;
                        return Ok(());
                    }
                    Some(Interference::Pause) => {
                        server.write_all(statement).await?;
                        shared.resumed.notified().await;
                    }
                }
            }
            length = server.read(&mut from_server) => {
                let answer = &from_server[..length?];
                if answer.is_empty() {
                    return Ok(());
                }
                client.write_all(answer).await?;
            }
        }
    }
}

impl SharedState {
    /// Returns the interference if the statement is the one that it is meant for.
    fn take_interference(&self, statement: &[u8]) -> Option<Interference> {
        let mut armed = self.armed.lock();
        let (text, interference) = (*armed)?;
        let is_meant = statement.windows(text.len()).any(|part| part == text.as_bytes());
        if !is_meant {
            return None;
        }
        *armed = None;
        self.interfered.notify_one();
        Some(interference)
    }
}
