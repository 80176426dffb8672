//! Sessions of the console, and the one-time links that begin them. They live as long as this process, and are kept by
//! the hashes of their ids.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use toolcrib::core::Timestamp;
use toolcrib::core::fingerprint::Fingerprint;
use toolcrib::registry::random_secret;

pub(super) const LONGEST: Duration = Duration::from_secs(12 * 3600);
const LINK: Duration = Duration::from_secs(600);
/// The oldest go when there are more: of all, and of one holder, who can so not end the others'.
const MOST: usize = 1_000;
const MOST_OF_ONE: usize = 100;
const MOST_LINKS: usize = 16;

#[derive(Debug, Default)]
pub(super) struct Sessions(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    sessions: HashMap<Fingerprint, Session>,
    /// Links that nobody used yet, oldest first.
    links: Vec<(Fingerprint, Timestamp)>,
}

#[derive(Debug)]
struct Session {
    holder: Holder,
    csrf: Arc<str>,
    began: Timestamp,
}

/// Whose a session or a token is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Holder {
    /// Who runs this.
    Admin,
    /// A token, by its id: what it may do is what the token may at that moment.
    Token(String),
}

impl Sessions {
    /// Begins one; its id.
    pub(super) fn begin(&self, holder: Holder, now: Timestamp) -> String {
        let (id, csrf) = (random_secret(), random_secret().into());
        let mut kept = self.kept();
        kept.sessions.retain(|_, session| now.since(session.began) < LONGEST);
        kept.make_room(MOST_OF_ONE, |session| session.holder == holder);
        kept.make_room(MOST, |_| true);
        kept.sessions.insert(Fingerprint::of(&id), Session { holder, csrf, began: now });
        id
    }

    /// Whose it is, and what its forms must carry.
    pub(super) fn find(&self, id: &str, now: Timestamp) -> Option<(Holder, Arc<str>)> {
        let kept = self.kept();
        let session = kept.sessions.get(&Fingerprint::of(id))?;
        (now.since(session.began) < LONGEST).then(|| (session.holder.clone(), session.csrf.clone()))
    }

    pub(super) fn end(&self, id: &str) {
        self.kept().sessions.remove(&Fingerprint::of(id));
    }

    /// The key of a new link.
    pub(super) fn link(&self, now: Timestamp) -> String {
        let key = random_secret();
        let mut kept = self.kept();
        if kept.links.len() >= MOST_LINKS {
            kept.links.remove(0);
        }
        kept.links.push((Fingerprint::of(&key), now));
        key
    }

    /// Whether a key is good; it is not any more afterwards.
    pub(super) fn take_link(&self, key: &str, now: Timestamp) -> bool {
        let hash = Fingerprint::of(key);
        let mut kept = self.kept();
        kept.links.retain(|(_, made)| now.since(*made) < LINK);
        let found = kept.links.iter().position(|(link, _)| *link == hash);
        found.map(|place| kept.links.remove(place)).is_some()
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kept {
    /// Ends the oldest of these sessions when there are so many.
    fn make_room(&mut self, most: usize, of: impl Fn(&Session) -> bool) {
        let these = || self.sessions.iter().filter(|(_, session)| of(session));
        if these().count() >= most {
            let oldest = these().min_by_key(|(_, session)| session.began).map(|(id, _)| *id);
            oldest.map(|oldest| self.sessions.remove(&oldest));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_is_good_once_and_for_ten_minutes() {
        let sessions = Sessions::default();
        let (one, two) = (sessions.link(Timestamp(0)), sessions.link(Timestamp(0)));
        assert!(sessions.take_link(&one, Timestamp(599_999)));
        assert!(!sessions.take_link(&one, Timestamp(599_999)));
        assert!(!sessions.take_link(&two, Timestamp(600_000)));
        assert!(!sessions.take_link("", Timestamp(0)));
    }

    #[test]
    fn the_oldest_session_makes_room_and_none_is_older_than_twelve_hours() {
        let sessions = Sessions::default();
        let another = sessions.begin(Holder::Token("t".into()), Timestamp(0));
        let ids: Vec<String> =
            (0..=MOST_OF_ONE as i64).map(|at| sessions.begin(Holder::Admin, Timestamp(at))).collect();
        let now = Timestamp(2_000);
        assert!(sessions.find(&another, now).is_some());
        assert!(sessions.find(&ids[0], now).is_none() && sessions.find(&ids[1], now).is_some());
        assert!(sessions.find(&ids[1], Timestamp(1).plus(LONGEST)).is_none());
        sessions.end(&ids[2]);
        assert!(sessions.find(&ids[2], now).is_none());
    }
}
