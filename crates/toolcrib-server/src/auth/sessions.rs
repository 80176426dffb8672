//! Sessions of the console, and the one-time links that begin them. They live as long as this process, and are kept by
//! the hashes of their ids.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use toolcrib::core::Timestamp;
use toolcrib::core::fingerprint::Fingerprint;
use toolcrib::registry::random_secret;

pub(super) const MAX_SESSION_AGE: Duration = Duration::from_secs(12 * 3600);
const MAX_LOGIN_LINK_AGE: Duration = Duration::from_secs(600);
/// The oldest go when there are more: of all, and of one holder, who can so not end the others'.
const MAX_SESSIONS: usize = 1_000;
const MAX_SESSIONS_PER_CREDENTIAL: usize = 100;
const MAX_LOGIN_LINKS: usize = 16;

#[derive(Debug, Default)]
pub(super) struct ConsoleSessions(Mutex<SessionTable>);

#[derive(Debug, Default)]
struct SessionTable {
    sessions: HashMap<Fingerprint, ConsoleSession>,
    /// Links that nobody used yet, oldest first.
    login_links: Vec<(Fingerprint, Timestamp)>,
}

#[derive(Debug)]
struct ConsoleSession {
    credential: Credential,
    csrf: Arc<str>,
    started_at: Timestamp,
}

/// Whose a session or a token is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Credential {
    /// Who runs this.
    Admin,
    /// A token, by its id: what it may do is what the token may at that moment.
    Token(String),
}

impl ConsoleSessions {
    /// Begins one; its id.
    pub(super) fn start(&self, holder: Credential, now: Timestamp) -> String {
        let (id, csrf) = (random_secret(), random_secret().into());
        let mut kept = self.lock();
        kept.sessions.retain(|_, session| now.since(session.started_at) < MAX_SESSION_AGE);
        kept.evict_oldest(MAX_SESSIONS_PER_CREDENTIAL, |session| session.credential == holder);
        kept.evict_oldest(MAX_SESSIONS, |_| true);
        kept.sessions.insert(Fingerprint::digest(&id), ConsoleSession { credential: holder, csrf, started_at: now });
        id
    }

    /// Whose it is, and what its forms must carry.
    pub(super) fn find(&self, id: &str, now: Timestamp) -> Option<(Credential, Arc<str>)> {
        let kept = self.lock();
        let session = kept.sessions.get(&Fingerprint::digest(id))?;
        (now.since(session.started_at) < MAX_SESSION_AGE).then(|| (session.credential.clone(), session.csrf.clone()))
    }

    pub(super) fn end(&self, id: &str) {
        self.lock().sessions.remove(&Fingerprint::digest(id));
    }

    /// The key of a new link.
    pub(super) fn create_login_link(&self, now: Timestamp) -> String {
        let key = random_secret();
        let mut kept = self.lock();
        if kept.login_links.len() >= MAX_LOGIN_LINKS {
            kept.login_links.remove(0);
        }
        kept.login_links.push((Fingerprint::digest(&key), now));
        key
    }

    /// Whether a key is good; it is not any more afterwards.
    pub(super) fn redeem_login_link(&self, key: &str, now: Timestamp) -> bool {
        let hash = Fingerprint::digest(key);
        let mut kept = self.lock();
        kept.login_links.retain(|(_, made)| now.since(*made) < MAX_LOGIN_LINK_AGE);
        let found = kept.login_links.iter().position(|(link, _)| *link == hash);
        found.map(|place| kept.login_links.remove(place)).is_some()
    }

    fn lock(&self) -> MutexGuard<'_, SessionTable> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SessionTable {
    /// Ends the oldest of these sessions when there are so many.
    fn evict_oldest(&mut self, most: usize, of: impl Fn(&ConsoleSession) -> bool) {
        let these = || self.sessions.iter().filter(|(_, session)| of(session));
        if these().count() >= most {
            let oldest = these().min_by_key(|(_, session)| session.started_at).map(|(id, _)| *id);
            oldest.map(|oldest| self.sessions.remove(&oldest));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_is_good_once_and_for_ten_minutes() {
        let sessions = ConsoleSessions::default();
        let (one, two) = (sessions.create_login_link(Timestamp(0)), sessions.create_login_link(Timestamp(0)));
        assert!(sessions.redeem_login_link(&one, Timestamp(599_999)));
        assert!(!sessions.redeem_login_link(&one, Timestamp(599_999)));
        assert!(!sessions.redeem_login_link(&two, Timestamp(600_000)));
        assert!(!sessions.redeem_login_link("", Timestamp(0)));
    }

    #[test]
    fn the_oldest_session_makes_room_and_none_is_older_than_twelve_hours() {
        let sessions = ConsoleSessions::default();
        let another = sessions.start(Credential::Token("t".into()), Timestamp(0));
        let ids: Vec<String> = (0..=MAX_SESSIONS_PER_CREDENTIAL as i64)
            .map(|at| sessions.start(Credential::Admin, Timestamp(at)))
            .collect();
        let now = Timestamp(2_000);
        assert!(sessions.find(&another, now).is_some());
        assert!(sessions.find(&ids[0], now).is_none() && sessions.find(&ids[1], now).is_some());
        assert!(sessions.find(&ids[1], Timestamp(1).plus(MAX_SESSION_AGE)).is_none());
        sessions.end(&ids[2]);
        assert!(sessions.find(&ids[2], now).is_none());
    }
}
