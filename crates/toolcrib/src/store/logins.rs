//! Console sessions and one-time login links, which all processes on a store share.
//!
//! Kept by the digests of their ids and keys, so that a copy of the store is of no use for a login.

use toolcrib_core::Timestamp;
use toolcrib_core::fingerprint::Fingerprint;

/// A console session, or a link that starts one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Login {
    /// SHA-256 of the id of the session, or of the key of the link.
    pub digest: Fingerprint,
    /// Kind of login.
    pub kind: LoginKind,
    /// Credential that the session was started with, or that a link stands for: the id of a token, or a text that
    /// identifies an administrator's token and does not reveal it.
    pub credential: String,
    /// Time of its creation.
    pub created_at: Timestamp,
    /// Time from which it is not accepted any more.
    pub expires_at: Timestamp,
}

/// Kind of a [`Login`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoginKind {
    /// Session of a browser.
    Session,
    /// Link that starts a session, once.
    Link,
}

// The store keeps these names.
toolcrib_core::name_variants!(LoginKind { Session => "session", Link => "link" });
