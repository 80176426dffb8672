//! The sessions and links that one process knows. Pure: it is filled and asked by [`Logins`](super::Logins).

use std::collections::{HashMap, HashSet};

use toolcrib_core::fingerprint::Fingerprint;

use super::{MAX_CONSOLE_SESSIONS, MAX_CONSOLE_SESSIONS_PER_CREDENTIAL, MAX_LOGIN_LINKS};
use crate::store::{Login, LoginKind};

/// Maximum number of remembered ids that the store does not have. Beyond it all are forgotten, which costs a read each.
const MAX_ABSENT: usize = 1_000;

/// Sessions and links as last read from the store, with what happened here since.
#[derive(Debug, Default)]
pub(super) struct LoginTable {
    known: HashMap<Fingerprint, Login>,
    /// Sessions that were ended here. Not accepted, although a read of the store that began before may return them.
    ended: HashMap<Fingerprint, EndedSession>,
    /// Digests that the store does not have, such as those of expired cookies that browsers go on sending.
    absent: HashSet<Fingerprint>,
}

/// Progress of ending a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EndedSession {
    /// The store may have it.
    Stored,
    /// Removed from the store.
    Removed,
}

impl LoginTable {
    pub(super) fn get(&self, digest: &Fingerprint) -> Option<&Login> {
        self.known.get(digest)
    }

    /// Whether only the store can tell about this digest.
    pub(super) fn is_unknown(&self, digest: &Fingerprint) -> bool {
        !self.known.contains_key(digest) && !self.ended.contains_key(digest) && !self.absent.contains(digest)
    }

    pub(super) fn insert(&mut self, login: Login) {
        self.known.insert(login.digest, login);
    }

    /// Removes a login that is not in the store any more.
    pub(super) fn remove(&mut self, digest: &Fingerprint) {
        self.known.remove(digest);
        // As ended by this process: a read that began before may return it.
        self.ended.insert(*digest, EndedSession::Removed);
    }

    /// Removes a session that the store still has.
    pub(super) fn end(&mut self, digest: Fingerprint) {
        self.known.remove(&digest);
        self.ended.insert(digest, EndedSession::Stored);
    }

    /// Removes the sessions and links of a credential, which the store still has.
    pub(super) fn end_credential(&mut self, credential: &str) {
        let of_credential = self.known.values().filter(|login| login.credential == credential);
        let digests: Vec<Fingerprint> = of_credential.map(|login| login.digest).collect();
        digests.into_iter().for_each(|digest| self.end(digest));
    }

    /// Returns the ended sessions that the store may have.
    pub(super) fn stored_ended(&self) -> Vec<Fingerprint> {
        self.ended_with(EndedSession::Stored)
    }

    /// Returns the ended sessions that the store does not have any more.
    pub(super) fn removed_ended(&self) -> Vec<Fingerprint> {
        self.ended_with(EndedSession::Removed)
    }

    fn ended_with(&self, progress: EndedSession) -> Vec<Fingerprint> {
        self.ended.iter().filter(|(_, ended)| **ended == progress).map(|(digest, _)| *digest).collect()
    }

    /// Records that an ended session was removed from the store.
    pub(super) fn mark_removed(&mut self, digest: &Fingerprint) {
        if let Some(ended) = self.ended.get_mut(digest) {
            *ended = EndedSession::Removed;
        }
    }

    /// Records that the store does not have this digest, unless it has appeared.
    pub(super) fn add_absent(&mut self, digest: Fingerprint) {
        if !self.is_unknown(&digest) {
            return;
        }
        if self.absent.len() >= MAX_ABSENT {
            self.absent.clear();
        }
        self.absent.insert(digest);
    }

    /// Takes over the content of the store. `removed` were removed from it before it was read, so they need not be
    /// remembered any longer.
    pub(super) fn replace(&mut self, logins: Vec<Login>, removed: &[Fingerprint]) {
        let accepted = logins.into_iter().filter(|login| !self.ended.contains_key(&login.digest));
        self.known = accepted.map(|login| (login.digest, login)).collect();
        for digest in removed {
            self.ended.remove(digest);
            self.add_absent(*digest);
        }
    }

    /// Returns the logins that have to go before another one is added. The table is small enough to scan, and this
    /// happens at logins only.
    pub(super) fn evicted_by(&self, new: &Login) -> Vec<Fingerprint> {
        let of_kind = || self.known.values().filter(|login| login.kind == new.kind);
        let (max, max_own) = match new.kind {
            LoginKind::Session => (MAX_CONSOLE_SESSIONS, MAX_CONSOLE_SESSIONS_PER_CREDENTIAL),
            LoginKind::Link => (MAX_LOGIN_LINKS, MAX_LOGIN_LINKS),
        };
        let mut evicted = oldest_beyond(max_own, of_kind().filter(|login| login.credential == new.credential));
        let rest = of_kind().filter(|login| !evicted.contains(&login.digest));
        let others = oldest_beyond(max, rest);
        evicted.extend(others);
        evicted
    }
}

/// Returns the oldest logins that have to go so that one more makes `max` at most.
fn oldest_beyond<'a>(max: usize, logins: impl Iterator<Item = &'a Login>) -> Vec<Fingerprint> {
    let mut logins: Vec<&Login> = logins.collect();
    let excess = (logins.len() + 1).saturating_sub(max);
    logins.sort_by_key(|login| (login.created_at, login.digest));
    logins.into_iter().take(excess).map(|login| login.digest).collect()
}

#[cfg(test)]
mod tests {
    use toolcrib_core::Timestamp;

    use super::*;

    fn login(number: usize, kind: LoginKind, credential: &str) -> Login {
        Login {
            digest: Fingerprint::digest(number.to_string()),
            kind,
            credential: credential.to_owned(),
            created_at: Timestamp(number as i64),
            expires_at: Timestamp(i64::MAX),
        }
    }

    #[test]
    fn a_credential_evicts_its_own_oldest_session_and_no_other() {
        let mut table = LoginTable::default();
        table.insert(login(0, LoginKind::Session, "other"));
        table.insert(login(1, LoginKind::Link, ""));
        let new = login(500, LoginKind::Session, "");
        for number in 0..MAX_CONSOLE_SESSIONS_PER_CREDENTIAL {
            assert_eq!(table.evicted_by(&new), []);
            table.insert(login(10 + number, LoginKind::Session, ""));
        }
        assert_eq!(table.evicted_by(&new), [Fingerprint::digest("10")]);
        for number in 0..MAX_CONSOLE_SESSIONS {
            table.insert(login(1_000 + number, LoginKind::Session, &number.to_string()));
        }
        let evicted = table.evicted_by(&login(3_000, LoginKind::Session, "new"));
        assert_eq!((evicted.len(), evicted[0]), (102, Fingerprint::digest("0")), "the limit on all holds too");
    }

    #[test]
    fn a_read_that_began_earlier_brings_no_ended_session_back() {
        let mut table = LoginTable::default();
        let session = login(1, LoginKind::Session, "");
        let digest = session.digest;
        table.insert(session.clone());
        table.end(digest);
        assert_eq!((table.stored_ended(), table.removed_ended()), (vec![digest], vec![]));
        table.replace(vec![session.clone()], &[]);
        assert!(table.get(&digest).is_none() && !table.is_unknown(&digest));
        table.mark_removed(&digest);
        table.replace(vec![session], &[]);
        assert!(table.get(&digest).is_none());
        let removed = table.removed_ended();
        table.replace(Vec::new(), &removed);
        assert_eq!(table.removed_ended(), []);
        assert!(!table.is_unknown(&digest), "the store need not be asked again");
    }

    #[test]
    fn ending_a_credential_leaves_the_logins_of_others() {
        let mut table = LoginTable::default();
        let (session, link) = (login(1, LoginKind::Session, "old"), login(2, LoginKind::Link, "old"));
        let other = login(3, LoginKind::Session, "new");
        for login in [&session, &link, &other] {
            table.insert(login.clone());
        }
        table.end_credential("old");
        let is_known = [&session, &link, &other].map(|login| table.get(&login.digest).is_some());
        assert_eq!((is_known, table.stored_ended().len()), ([false, false, true], 2));
    }

    #[test]
    fn ids_that_the_store_does_not_have_are_remembered_within_a_limit() {
        let mut table = LoginTable::default();
        for number in 0..=MAX_ABSENT {
            table.add_absent(Fingerprint::digest(number.to_string()));
        }
        assert_eq!(table.absent.len(), 1);
        assert!(table.is_unknown(&Fingerprint::digest("0")));
    }
}
