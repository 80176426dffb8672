//! Cache of verified access tokens, by the SHA-256 of the token. A signature takes some 50 µs to verify, and an agent
//! sends the same token with each call.
//!
//! An entry counts only while its issuer has the same configuration, the key that signed it is in the issuer's set, and
//! the token has not expired. All of it is checked at each lookup, so nothing has to find outdated entries in time.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use parking_lot::RwLock;
use toolcrib::Principal;
use toolcrib::core::Timestamp;
use toolcrib::core::fingerprint::Fingerprint;

use super::Issuer;

/// Maximum number of tokens; some kilobytes each.
const MAX_VERIFIED_TOKENS: usize = 10_000;

/// Maximum number of callers that [`VerifiedTokens::newest_callers`] returns.
const MAX_CALLERS: usize = 1_000;

/// Verified tokens of all issuers.
#[derive(Debug, Default)]
pub(super) struct VerifiedTokens(RwLock<HashMap<Fingerprint, VerifiedToken>>);

/// A token that was verified.
#[derive(Debug)]
pub(super) struct VerifiedToken {
    pub(super) principal: Principal,
    pub(super) issuer: Arc<Issuer>,
    /// Fingerprint of the key that signed it.
    pub(super) key: Fingerprint,
    /// The end of the token, leeway included.
    pub(super) expires_at: Timestamp,
}

impl VerifiedToken {
    fn is_valid(&self, now: Timestamp) -> bool {
        now < self.expires_at
            && self.issuer.is_current()
            && self.issuer.keys.usable().is_some_and(|keys| keys.contains(&self.key))
    }
}

impl VerifiedTokens {
    /// Returns the principal of a token that is still valid. `None` while the keys are stale, too: the token is verified
    /// again, which waits for the new keys, so that a withdrawn key is not accepted once more.
    pub(super) fn find(&self, hash: &Fingerprint, now: Timestamp) -> Option<Principal> {
        let tokens = self.0.read();
        let token = tokens.get(hash)?;
        if !token.issuer.keys.is_fresh() {
            return None;
        }
        if token.is_valid(now) {
            return Some(token.principal.clone());
        }
        drop(tokens);
        self.0.write().remove(hash);
        None
    }

    /// Adds a token. A full cache first loses the tokens that are not valid any more, else the one that expires first.
    pub(super) fn insert(&self, hash: Fingerprint, token: VerifiedToken, now: Timestamp) {
        let mut tokens = self.0.write();
        if tokens.len() >= MAX_VERIFIED_TOKENS && !tokens.contains_key(&hash) {
            tokens.retain(|_, token| token.is_valid(now));
            if tokens.len() >= MAX_VERIFIED_TOKENS {
                let first = tokens.iter().min_by_key(|(_, token)| token.expires_at).map(|(hash, _)| *hash);
                first.map(|first| tokens.remove(&first));
            }
        }
        tokens.insert(hash, token);
    }

    /// Returns the principals whose valid tokens expire last, each identity once with the last of its tokens.
    pub(super) fn newest_callers(&self, now: Timestamp) -> Vec<Principal> {
        let tokens = self.0.read();
        let mut valid: Vec<&VerifiedToken> = tokens.values().filter(|token| token.is_valid(now)).collect();
        valid.sort_by_key(|token| Reverse(token.expires_at));
        let mut identities = HashSet::new();
        let principals = valid.into_iter().map(|token| &token.principal);
        let principals = principals.filter(|principal| identities.insert(principal.identity()));
        principals.take(MAX_CALLERS).cloned().collect()
    }

    /// Removes the tokens of issuers whose configuration was replaced.
    pub(super) fn remove_outdated(&self) {
        self.0.write().retain(|_, token| token.issuer.is_current());
    }
}
