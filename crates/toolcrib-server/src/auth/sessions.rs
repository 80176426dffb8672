//! Console sessions, and the one-time login links that start them. In memory only: a restart ends all of them. Stored
//! by the digests of their ids and keys.
//!
//! With digests as keys, neither a memory dump nor the time that a lookup takes reveals a usable id. A session has no
//! idle timeout; it ends after [`MAX_CONSOLE_SESSION_AGE`], by logout, or when its token is revoked.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use toolcrib::core::Timestamp;
use toolcrib::core::fingerprint::Fingerprint;
use toolcrib::registry::random_secret;

/// A session ends this long after the login, whether it is used or not. The cookie expires at the same time.
pub(super) const MAX_CONSOLE_SESSION_AGE: Duration = Duration::from_secs(12 * 3600);
/// How long a login link works. It is printed on a terminal, where it may stay readable for long.
const MAX_LOGIN_LINK_AGE: Duration = Duration::from_secs(600);
/// Maximum number of sessions; beyond it the oldest one ends.
const MAX_CONSOLE_SESSIONS: usize = 1_000;
/// Maximum number of sessions of one credential, which then evicts its own oldest session and not those of others.
const MAX_CONSOLE_SESSIONS_PER_CREDENTIAL: usize = 100;
/// Maximum number of unused login links; beyond it the oldest one is dropped.
const MAX_LOGIN_LINKS: usize = 16;

/// All sessions of this server.
#[derive(Debug, Default)]
pub(super) struct ConsoleSessions(Mutex<SessionTable>);

/// Sessions and links, behind one lock.
#[derive(Debug, Default)]
struct SessionTable {
    sessions: HashMap<Fingerprint, ConsoleSession>,
    /// Digests of the keys of unused links with their creation times, oldest first.
    login_links: Vec<(Fingerprint, Timestamp)>,
}

/// One login. Name and role are not stored: they are those of the credential at the time of each request.
#[derive(Debug)]
struct ConsoleSession {
    credential: Credential,
    /// Must come back with every unsafe request of the session.
    csrf: Arc<str>,
    started_at: Timestamp,
}

/// Credential that a session or a request was authenticated with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Credential {
    /// The token in `admin.token`, or a login link.
    Admin,
    /// A stored token, by its id. Its role is looked up for each request, so that a change takes effect at once.
    Token(String),
}

impl ConsoleSessions {
    /// Starts a session and returns its id. Removes expired sessions first.
    pub(super) fn start(&self, credential: Credential, now: Timestamp) -> String {
        let id = random_secret();
        let csrf = random_secret().into();
        let mut table = self.0.lock();
        table.sessions.retain(|_, session| now.since(session.started_at) < MAX_CONSOLE_SESSION_AGE);
        table.evict_oldest(MAX_CONSOLE_SESSIONS_PER_CREDENTIAL, |session| session.credential == credential);
        table.evict_oldest(MAX_CONSOLE_SESSIONS, |_| true);
        table.sessions.insert(Fingerprint::digest(&id), ConsoleSession { credential, csrf, started_at: now });
        id
    }

    /// Returns the credential and the CSRF token of a session that has not expired.
    pub(super) fn find(&self, id: &str, now: Timestamp) -> Option<(Credential, Arc<str>)> {
        let table = self.0.lock();
        let session = table.sessions.get(&Fingerprint::digest(id))?;
        (now.since(session.started_at) < MAX_CONSOLE_SESSION_AGE)
            .then(|| (session.credential.clone(), session.csrf.clone()))
    }

    /// Ends a session, if it exists.
    pub(super) fn end(&self, id: &str) {
        self.0.lock().sessions.remove(&Fingerprint::digest(id));
    }

    /// Creates a login link and returns its key.
    pub(super) fn create_login_link(&self, now: Timestamp) -> String {
        let key = random_secret();
        let mut table = self.0.lock();
        if table.login_links.len() >= MAX_LOGIN_LINKS {
            table.login_links.remove(0);
        }
        table.login_links.push((Fingerprint::digest(&key), now));
        key
    }

    /// Removes the login link with this key. Returns false when it does not exist, was used or has expired.
    pub(super) fn redeem_login_link(&self, key: &str, now: Timestamp) -> bool {
        let hash = Fingerprint::digest(key);
        let mut table = self.0.lock();
        table.login_links.retain(|(_, created_at)| now.since(*created_at) < MAX_LOGIN_LINK_AGE);
        let index = table.login_links.iter().position(|(link, _)| *link == hash);
        index.map(|index| table.login_links.remove(index)).is_some()
    }
}

impl SessionTable {
    /// Ends the oldest of the matching sessions when there are `max` of them, to make room for one more. The tables are
    /// small enough to scan, and this runs at logins only.
    fn evict_oldest(&mut self, max: usize, matches: impl Fn(&ConsoleSession) -> bool) {
        let matching = || self.sessions.iter().filter(|(_, session)| matches(session));
        if matching().count() >= max {
            let oldest = matching().min_by_key(|(_, session)| session.started_at).map(|(id, _)| *id);
            oldest.map(|oldest| self.sessions.remove(&oldest));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_login_link_works_once_and_for_ten_minutes() {
        let sessions = ConsoleSessions::default();
        let first = sessions.create_login_link(Timestamp(0));
        let second = sessions.create_login_link(Timestamp(0));
        assert!(sessions.redeem_login_link(&first, Timestamp(599_999)));
        assert!(!sessions.redeem_login_link(&first, Timestamp(599_999)));
        assert!(!sessions.redeem_login_link(&second, Timestamp(600_000)));
        assert!(!sessions.redeem_login_link("", Timestamp(0)));
    }

    #[test]
    fn the_oldest_session_is_evicted_and_sessions_end_after_twelve_hours() {
        let sessions = ConsoleSessions::default();
        let of_token = sessions.start(Credential::Token("t".into()), Timestamp(0));
        let ids: Vec<String> = (0..=MAX_CONSOLE_SESSIONS_PER_CREDENTIAL as i64)
            .map(|at| sessions.start(Credential::Admin, Timestamp(at)))
            .collect();
        let now = Timestamp(2_000);
        assert!(sessions.find(&of_token, now).is_some());
        assert!(sessions.find(&ids[0], now).is_none() && sessions.find(&ids[1], now).is_some());
        assert!(sessions.find(&ids[1], Timestamp(1).plus(MAX_CONSOLE_SESSION_AGE)).is_none());
        sessions.end(&ids[2]);
        assert!(sessions.find(&ids[2], now).is_none());
    }
}
