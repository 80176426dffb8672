//! The credentials behind console sessions. The sessions themselves are in the store, so that every process on it knows
//! them: see [`Logins`](toolcrib::registry::Logins).

use std::sync::Arc;

use axum::http::{HeaderMap, header};

use super::admin_sessions::AdminSessions;
use super::{Authenticator, cookie};

/// Credential that a session or a request was authenticated with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Credential {
    /// The administrator's token, or a login link: see [`AdminSessions`].
    Admin,
    /// A stored token, by its id. Its role is looked up for each request, so that a change takes effect at once.
    Token(String),
}

impl Authenticator {
    /// Returns the credential of a stored session; `None` if it is that of an administrator's token which was replaced.
    pub(super) fn stored_credential(&self, text: String) -> Option<Credential> {
        if AdminSessions::is_admin(&text) {
            return self.admin_sessions.accepts(&text).then_some(Credential::Admin);
        }
        Some(Credential::Token(text))
    }

    /// Returns the form in which sessions of a credential are stored.
    pub(super) fn to_stored<'a>(&'a self, credential: &'a Credential) -> &'a str {
        match credential {
            Credential::Admin => &self.admin_sessions.credential,
            Credential::Token(id) => id,
        }
    }

    /// Returns the credential and the CSRF token of the session that a request belongs to. Does not wait for the store.
    pub(super) fn find_session(&self, headers: &HeaderMap) -> Option<(Credential, Arc<str>)> {
        let session = self.registry.logins().find_session(cookie::session_id(&self.cookie_name, headers)?)?;
        Some((self.stored_credential(session.credential)?, session.csrf))
    }

    /// Whether the session of a request may be one of another process that is not known here yet. Its requests must not
    /// be served as those of a client without a session.
    pub(super) fn has_unknown_session(&self, headers: &HeaderMap) -> bool {
        self.unknown_session_id(headers).is_some()
    }

    /// Reads the store if the session of a request is not known here.
    pub(super) async fn look_up_session(&self, headers: &HeaderMap) {
        if let Some(id) = self.unknown_session_id(headers) {
            // If the store cannot tell, the request has no session.
            self.registry.logins().look_up(id).await;
        }
    }

    fn unknown_session_id<'a>(&self, headers: &'a HeaderMap) -> Option<&'a str> {
        // A token takes precedence over a cookie.
        if headers.contains_key(header::AUTHORIZATION) {
            return None;
        }
        cookie::session_id(&self.cookie_name, headers).filter(|id| self.registry.logins().is_unknown(id))
    }
}
