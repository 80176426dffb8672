//! Console sessions, and the one-time login links that start them: shared by all processes on a store.
//!
//! The store has them by the digests of their ids and keys. Requests look them up in a table in memory, which is read
//! again when the store has changed; an id that is not in the table causes a read, not more often than a few times per
//! second. So a session works in every process with its first request, and a flood of wrong cookies is harmless. With
//! the store unavailable, known sessions go on working, and none can be started.
//!
//! With digests as keys, neither a copy of the store nor the time that a lookup takes reveals a usable id. A session has
//! no idle timeout; it ends after [`MAX_CONSOLE_SESSION_AGE`] or by a logout.

mod table;

use std::sync::Arc;
use std::time::Duration;

use parking_lot::RwLock;
use tokio::time::timeout;
use toolcrib_core::fingerprint::Fingerprint;
use toolcrib_core::{Code, Error, Result};

use crate::registry::random_secret;
use crate::secret::keyed_hash;
use crate::shared_runs::SharedRuns;
use crate::state::State;
use crate::store::{Login, LoginKind, StoreState};
use table::LoginTable;

/// A session ends this long after the login, whether it is used or not.
pub const MAX_CONSOLE_SESSION_AGE: Duration = Duration::from_secs(12 * 3600);
/// How long a login link works. It is printed on a terminal, where it may stay readable for long.
const MAX_LOGIN_LINK_AGE: Duration = Duration::from_secs(600);
/// Maximum number of sessions on the store; beyond it the oldest one ends.
const MAX_CONSOLE_SESSIONS: usize = 1_000;
/// Maximum number of sessions of one credential, which then evicts its own oldest session and not those of others.
const MAX_CONSOLE_SESSIONS_PER_CREDENTIAL: usize = 100;
/// Maximum number of unused login links; beyond it the oldest one is dropped. Every process creates one when it starts.
const MAX_LOGIN_LINKS: usize = 100;
/// Minimum time between two reads of the store for unknown ids.
const LOOKUP_INTERVAL: Duration = Duration::from_millis(250);
/// How long a request with an unknown id waits for the store.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(2);
/// How long a login or logout waits for the store.
const WRITE_TIMEOUT: Duration = Duration::from_secs(5);

/// Sessions and login links of a registry; see [`Registry::logins`](crate::Registry::logins).
#[derive(Debug)]
pub struct Logins {
    state: Arc<State>,
    table: RwLock<LoginTable>,
    /// Held while the table is read from the store or a login is added, so that an earlier read does not replace a
    /// later state.
    updating: tokio::sync::Mutex<()>,
    lookups: SharedRuns,
}

/// A console session that has not expired.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConsoleSession {
    /// Credential that it was started with: the id of a token, or what stands for an administrator's token.
    pub credential: String,
    /// Must come back with every unsafe request of the session. The same in every process.
    pub csrf: Arc<str>,
}

impl Logins {
    pub(crate) fn new(state: Arc<State>) -> Logins {
        let lookups = SharedRuns::new(LOOKUP_INTERVAL);
        Logins { state, table: RwLock::default(), updating: tokio::sync::Mutex::default(), lookups }
    }

    /// Returns the session with this id, if it is known here and has not expired. Does not wait for the store.
    pub fn find_session(&self, id: &str) -> Option<ConsoleSession> {
        let login = self.find(&Fingerprint::digest(id), LoginKind::Session)?;
        Some(ConsoleSession { credential: login.credential, csrf: self.csrf_token(id) })
    }

    /// Returns a short name of the store, the same in all processes on it, for the cookie that carries the id.
    pub fn store_tag(&self) -> String {
        keyed_hash(&self.state.store_key, "session cookie").short_hex(8)
    }

    /// Whether another process may have a session with this id, which only the store can tell.
    pub fn is_unknown(&self, id: &str) -> bool {
        is_secret(id) && self.table.read().is_unknown(&Fingerprint::digest(id))
    }

    /// Reads the store if the session or link with this id is unknown here. Waits two seconds at most. Returns false if
    /// the store cannot be read.
    pub async fn look_up(&self, id: &str) -> bool {
        if !self.is_unknown(id) {
            return true;
        }
        let reading = self.lookups.join(async || self.load().await.is_ok());
        let is_read = timeout(LOOKUP_TIMEOUT, reading).await.unwrap_or(false);
        if is_read {
            // An id is in the store before anyone learns it, so one that was not there never will be.
            self.table.write().add_absent(Fingerprint::digest(id));
        }
        is_read
    }

    /// Starts a session and returns its id. Ends the oldest session when there are too many. Fails with
    /// `STORE_UNAVAILABLE` if the session cannot be stored.
    pub async fn start_session(&self, credential: &str) -> Result<String> {
        let id = random_secret();
        self.add(self.new_login(&id, LoginKind::Session, credential)).await?;
        Ok(id)
    }

    /// Ends a session: here at once, and in other processes as soon as they learn of it. If the store is unavailable, it
    /// is removed from it later. Fails with `STORE_UNAVAILABLE` if the session is not known here and the store cannot
    /// tell whether it exists.
    pub async fn end_session(&self, id: &str) -> Result<()> {
        if !self.look_up(id).await {
            return Err(unavailable("the store cannot be read"));
        }
        let digest = Fingerprint::digest(id);
        if self.find(&digest, LoginKind::Session).is_none() {
            return Ok(());
        }
        self.table.write().end(digest);
        if let Err(error) = self.remove_ended().await {
            tracing::warn!(%error, "an ended console session cannot be removed from the store now");
        }
        Ok(())
    }

    /// Ends all sessions and links of a credential: here at once, and in other processes as soon as they learn of it.
    /// Fails with `STORE_UNAVAILABLE` if the store may still have one of them.
    pub async fn end_credential(&self, credential: &str) -> Result<()> {
        let reading = timeout(WRITE_TIMEOUT, self.load());
        reading.await.unwrap_or_else(|_| Err(unavailable("the store does not answer")))?;
        self.table.write().end_credential(credential);
        self.remove_ended().await
    }

    /// Returns what identifies a secret in the rows of this store and does not reveal it.
    pub fn secret_tag(&self, secret: &Fingerprint) -> String {
        keyed_hash(&self.state.store_key, &format!("credential {secret}")).to_string()
    }

    /// Removes ended sessions from the store. After a failure, maintenance does it later.
    async fn remove_ended(&self) -> Result<()> {
        let removing = timeout(WRITE_TIMEOUT, self.flush_ended());
        removing.await.unwrap_or_else(|_| Err(unavailable("the store does not answer")))
    }

    /// Creates a login link for a credential and returns its key. Fails with `STORE_UNAVAILABLE` if the link cannot be
    /// stored.
    pub async fn create_link(&self, credential: &str) -> Result<String> {
        let key = random_secret();
        self.add(self.new_login(&key, LoginKind::Link, credential)).await?;
        Ok(key)
    }

    /// Removes the login link with this key and returns its credential, once, in one of all processes. Returns `None`
    /// if the link does not exist, was used or has expired. Fails with `STORE_UNAVAILABLE` if the store cannot tell.
    pub async fn redeem_link(&self, key: &str) -> Result<Option<String>> {
        let digest = Fingerprint::digest(key);
        if !self.look_up(key).await {
            return Err(unavailable("the store cannot be read"));
        }
        let Some(link) = self.find(&digest, LoginKind::Link) else { return Ok(None) };
        let removing = timeout(WRITE_TIMEOUT, self.state.store.remove_login(digest));
        let is_first = removing.await.map_err(|_| unavailable("the store does not answer"))??;
        self.table.write().remove(&digest);
        Ok(is_first.then_some(link.credential))
    }

    /// Reads all sessions and links from the store.
    pub(crate) async fn load(&self) -> Result<()> {
        let _updating = self.updating.lock().await;
        self.load_locked().await
    }

    /// Removes from the store what was ended here while it was unavailable. Without any the store is not accessed.
    pub(crate) async fn flush_ended(&self) -> Result<()> {
        let ended = self.table.read().stored_ended();
        for digest in ended {
            self.state.store.remove_login(digest).await?;
            self.table.write().mark_removed(&digest);
        }
        Ok(())
    }

    async fn load_locked(&self) -> Result<()> {
        self.flush_ended().await?;
        // Removed from the store before it is read, so they are not in what is read now or later.
        let removed = self.table.read().removed_ended();
        let logins = self.state.store.logins(self.state.now()).await?;
        self.table.write().replace(logins, &removed);
        Ok(())
    }

    /// Stores a login. The limits hold for all processes, so the store is read first.
    async fn add(&self, login: Login) -> Result<()> {
        let adding = async {
            let _updating = self.updating.lock().await;
            self.load_locked().await?;
            let evicted = self.table.read().evicted_by(&login);
            for digest in evicted {
                self.state.store.remove_login(digest).await?;
                self.table.write().remove(&digest);
            }
            self.state.store.put_login(&login).await?;
            self.table.write().insert(login);
            Ok(())
        };
        timeout(WRITE_TIMEOUT, adding).await.unwrap_or_else(|_| Err(unavailable("the store does not answer")))
    }

    fn find(&self, digest: &Fingerprint, kind: LoginKind) -> Option<Login> {
        let login = self.table.read().get(digest)?.clone();
        (login.kind == kind && self.state.now() < login.expires_at).then_some(login)
    }

    fn new_login(&self, id: &str, kind: LoginKind, credential: &str) -> Login {
        let created_at = self.state.now();
        let max_age = match kind {
            LoginKind::Session => MAX_CONSOLE_SESSION_AGE,
            LoginKind::Link => MAX_LOGIN_LINK_AGE,
        };
        Login {
            digest: Fingerprint::digest(id),
            kind,
            credential: credential.to_owned(),
            created_at,
            expires_at: created_at.plus(max_age),
        }
    }

    /// Derives the CSRF token of a session from its id, with the key of the store: all processes compute the same, and
    /// pages that contain it do not reveal the id.
    fn csrf_token(&self, id: &str) -> Arc<str> {
        keyed_hash(&self.state.store_key, &format!("csrf {id}")).to_string().into()
    }
}

/// Whether a text has the form of an id or key. Saves a read of the store for others.
pub(crate) fn is_secret(text: &str) -> bool {
    text.len() == 43 && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
}

fn unavailable(message: &str) -> Error {
    StoreState::Down.annotate(Error::new(Code::StoreUnavailable, message))
}
