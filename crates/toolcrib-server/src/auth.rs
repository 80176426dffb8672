//! Authentication and authorization. A token, a console session or being a local process gives a request a role; every
//! route states the [`Permission`] that it requires. Handlers find the [`AuthenticatedClient`] in the request's extensions.
//!
//! Credentials are tried in this order, and the first kind that is present decides:
//! 1. `Authorization: Bearer`: the administrator's token (`admin.token`) or a stored one. An invalid token is an error,
//!    also for a client that needs none, except on public routes.
//! 2. The cookie of a console session. An expired one counts as none.
//! 3. The process at the other end of the connection, if it is local and `identity.loopback` admits it: role `agent`.
//!
//! Whether a request may come from a browser page of another site is a separate question, answered by `origin` before
//! any credentials are looked at. Tokens themselves are events in the journal; this module only looks them up.

mod authorize;
mod locality;
mod origin;
mod peer;
mod security_headers;

mod admin_token;
mod rate_limit;

mod cookie;
mod login;
mod sessions;

use std::net::SocketAddr;
use std::sync::Arc;

use arc_swap::ArcSwap;
use axum::http::{HeaderMap, header};
use toolcrib::config::LoopbackAccess;
use toolcrib::core::fingerprint::Fingerprint;
use toolcrib::core::inventory::Actor;
use toolcrib::core::principal::PrincipalIdentity;
use toolcrib::registry::TokenView;
use toolcrib::{Code, Error, Principal, Registry, Result};

pub(crate) use authorize::{AuthorizedRequest, InsufficientRole, accepts_html, authenticate_reader, authorize};
pub(crate) use locality::{ConnectionPeer, Locality};
pub(crate) use login::router;
pub(crate) use origin::reject_foreign_request;
pub(crate) use security_headers::set_security_headers;
pub(crate) use toolcrib::core::access::{Permission, Role};

use locality::PeerIdentifier;
use rate_limit::TokenRateLimit;
use sessions::{ConsoleSessions, Credential};

use crate::state::ServerConfig;

/// The authenticated client of a request, inserted into the request's extensions by [`authorize()`].
#[derive(Debug, Clone)]
pub(crate) struct AuthenticatedClient {
    /// Its name is `local`, `admin`, or the name of a token.
    pub(crate) principal: Principal,
    /// True when the request comes from a process on this machine that may read and call without a token. A source that
    /// runs programs or reads files may be declared only by a local administrator.
    pub(crate) is_local: bool,
    /// CSRF token of the console session, sent back as the form field `csrf` or the header `X-CSRF-Token`. `None` without
    /// a session: a browser does not add an `Authorization` header by itself, so such requests cannot be forged.
    pub(crate) csrf: Option<Arc<str>>,
}

impl AuthenticatedClient {
    /// Actor of journal records: `rest:NAME`, or `rest` for a local process without a token. The prefix separates it from
    /// those of other interfaces, so that history shows where a change came from.
    pub(crate) fn actor(&self) -> Actor {
        let is_local = *self.principal.identity() == PrincipalIdentity::Local;
        if is_local { Actor::new("rest") } else { Actor::new(format!("rest:{}", self.principal.name())) }
    }

    /// The principal as it calls tools over REST and the console, with the name of the actor.
    pub(crate) fn caller(&self) -> Principal {
        self.principal.with_name(self.actor().as_str())
    }
}

/// Authenticates requests: by bearer token, by session cookie, or by the local process that made the connection.
#[derive(Debug)]
pub(crate) struct Authenticator {
    /// Address that the server listens on.
    pub(crate) address: SocketAddr,
    /// Has the stored tokens.
    registry: Registry,
    /// Fixed for the life of the server, because the address is.
    exposure: Exposure,
    /// `identity.loopback`; replaced on reload. Read for each request, so a reload affects open connections too.
    loopback: ArcSwap<LoopbackAccess>,
    /// Finds the processes of local clients; used with `identity.loopback: owner` only.
    peer_identifier: PeerIdentifier,
    /// See [`ServerConfig::refuse_own_process`](crate::ServerConfig::refuse_own_process).
    refuse_own_process: bool,
    /// Digest of the token in `DATA/admin.token`. The file is read once: a new token takes effect at the next start.
    admin_token_hash: Fingerprint,
    /// Console sessions and unused login links of this process.
    sessions: ConsoleSessions,
    /// Counts wrong tokens of all clients together.
    rate_limit: TokenRateLimit,
    /// The principal of local processes without a token. Made once, because most requests are theirs.
    local_principal: Principal,
}

/// Which clients can reach the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Exposure {
    /// This machine only: `identity.loopback` decides which processes may read and call without a token.
    Loopback,
    /// Other machines too, directly or through a proxy: every client needs a token.
    Network,
}

impl Authenticator {
    /// Reads the administrator's token, or creates it. Fails when `address` is reachable from other machines and no valid
    /// token exists, for then no remote client could be served.
    pub(crate) fn open(address: SocketAddr, registry: Registry, config: &ServerConfig) -> Result<Authenticator> {
        let is_remote = !locality::is_loopback(address);
        // The tokens in a damaged journal are unknown. The server still starts and accepts only the admin token.
        let tokens_reliable = registry.tokens().ensure_reliable().is_ok();
        if is_remote && tokens_reliable && !registry.tokens().list().iter().any(|token| !token.expired) {
            let message = format!(
                "`{address}` can be reached from other machines, and there is no access token yet; create one with \
                 `toolcrib token create NAME --role agent`, or listen on 127.0.0.1"
            );
            return Err(Error::new(Code::ConfigInvalid, message));
        }
        // Behind a reverse proxy every request seems to come from this machine, so `require_token` counts as reachable.
        let exposure = if is_remote || config.require_token { Exposure::Network } else { Exposure::Loopback };
        let admin_token_hash = Fingerprint::digest(admin_token::read_or_create(&config.data_dir)?);
        let authenticator = Authenticator {
            address,
            registry,
            exposure,
            loopback: ArcSwap::from_pointee(config.loaded_config.config.identity.loopback),
            peer_identifier: PeerIdentifier::default(),
            refuse_own_process: config.refuse_own_process,
            admin_token_hash,
            sessions: ConsoleSessions::default(),
            rate_limit: TokenRateLimit::default(),
            local_principal: Principal::local("local"),
        };
        // At the start, so that the warning is at the top of the log and not beside the first refused client.
        authenticator.probe_peer_identification();
        Ok(authenticator)
    }

    /// True when local processes may read and call without a token. No remote client ever may.
    pub(crate) fn allows_local_without_token(&self) -> bool {
        self.is_on_loopback() && self.loopback() != LoopbackAccess::Token
    }

    /// True when only this machine can reach the server and no proxy is expected in front of it.
    fn is_on_loopback(&self) -> bool {
        self.exposure == Exposure::Loopback
    }

    fn loopback(&self) -> LoopbackAccess {
        **self.loopback.load()
    }

    /// Sets `identity.loopback` for all requests from now on.
    pub(crate) fn set_loopback(&self, loopback: LoopbackAccess) {
        self.loopback.store(Arc::new(loopback));
    }

    /// Creates a one-time link that signs in as administrator, and returns its path with the key.
    pub(crate) fn create_login_path(&self) -> String {
        format!("{}?key={}", login::LOGIN_PATH, self.sessions.create_login_link(self.registry.now()))
    }

    /// Authenticates a request by its headers and locality. Returns `None` for a request without credentials that is
    /// not local either, and an error for credentials that are malformed, unknown, revoked or expired. A token takes
    /// precedence over a cookie: a program that sends one means it, and needs no CSRF token.
    fn authenticate(&self, headers: &HeaderMap, locality: Locality) -> Result<Option<AuthenticatedClient>> {
        if headers.contains_key(header::AUTHORIZATION) {
            let credential = self.verify_token(bearer_token(headers)?)?;
            return Ok(self.resolve_client(&credential, None, locality));
        }
        self.ensure_session_verifiable(headers)?;
        Ok(self.authenticate_without_token(headers, locality))
    }

    /// Fails for a session that was opened with a stored token while the journal is damaged: whether the token was revoked
    /// is unknown then.
    fn ensure_session_verifiable(&self, headers: &HeaderMap) -> Result<()> {
        let Err(damaged) = self.registry.tokens().ensure_reliable() else { return Ok(()) };
        let session =
            cookie::session_id(self.address, headers).and_then(|id| self.sessions.find(id, self.registry.now()));
        match session {
            Some((Credential::Token(_), _)) => Err(damaged),
            Some((Credential::Admin, _)) | None => Ok(()),
        }
    }

    /// Authenticates the headers of an earlier request again. Unlike [`Authenticator::authenticate`] it does not count a
    /// token that became invalid as a failed attempt.
    fn reauthenticate(&self, headers: &HeaderMap, locality: Locality) -> Option<AuthenticatedClient> {
        if headers.contains_key(header::AUTHORIZATION) {
            let credential = self.find_credential(bearer_token(headers).ok()?)?;
            return self.resolve_client(&credential, None, locality);
        }
        self.ensure_session_verifiable(headers).ok()?;
        self.authenticate_without_token(headers, locality)
    }

    /// Authenticates by session cookie; without a valid one, a local process becomes the principal `local`.
    fn authenticate_without_token(&self, headers: &HeaderMap, locality: Locality) -> Option<AuthenticatedClient> {
        self.authenticate_session(headers, locality).or_else(|| {
            (locality == Locality::Local).then(|| AuthenticatedClient {
                principal: self.local_principal.clone(),
                is_local: true,
                csrf: None,
            })
        })
    }

    /// Returns `None` for an expired session and for one of an earlier process. Ends a session whose token is gone.
    fn authenticate_session(&self, headers: &HeaderMap, locality: Locality) -> Option<AuthenticatedClient> {
        let id = cookie::session_id(self.address, headers)?;
        let (credential, csrf) = self.sessions.find(id, self.registry.now())?;
        let client = self.resolve_client(&credential, Some(csrf), locality);
        if client.is_none() {
            self.sessions.end(id);
        }
        client
    }

    /// Returns the credential that a token proves. Unknown tokens count against the rate limit, which never applies to
    /// valid ones: an attacker cannot lock out other clients.
    fn verify_token(&self, token: &str) -> Result<Credential> {
        if let Some(credential) = self.find_credential(token) {
            return Ok(credential);
        }
        // With a damaged journal the token may be valid; it must not count as a failed attempt. Answered with 503 and
        // not 401, so that the client does not throw its token away.
        self.registry.tokens().ensure_reliable()?;
        self.rate_limit.record_failure(self.registry.now())?;
        let message = "unknown, revoked or expired token; create a new one on the server's machine with \
                       `toolcrib token create NAME --role agent`";
        Err(Error::new(Code::Unauthorized, message))
    }

    /// Looks up a token by its digest, which is all that is stored of it.
    fn find_credential(&self, token: &str) -> Option<Credential> {
        let hash = Fingerprint::digest(token);
        if hash == self.admin_token_hash {
            return Some(Credential::Admin);
        }
        self.registry.tokens().ensure_reliable().ok()?;
        self.registry.tokens().find_by_hash(&hash).map(|TokenView { id, .. }| Credential::Token(id))
    }

    /// Returns the client of a credential with its current name and role; `None` when its token was revoked or expired.
    /// Looked up for each request, so that a revoked token or a changed role takes effect at once, in sessions too.
    fn resolve_client(
        &self,
        credential: &Credential,
        csrf: Option<Arc<str>>,
        locality: Locality,
    ) -> Option<AuthenticatedClient> {
        let (id, name, role): (Arc<str>, String, Role) = match credential {
            Credential::Admin => (PrincipalIdentity::ADMIN_TOKEN.into(), "admin".into(), Role::Admin),
            Credential::Token(id) => {
                self.registry.tokens().ensure_reliable().ok()?;
                let token = self.registry.tokens().find_by_id(id).filter(|token| !token.expired)?;
                (token.id.into(), token.name, token.role)
            }
        };
        // Only sessions have a CSRF token.
        let identity =
            if csrf.is_some() { PrincipalIdentity::Console { token: id } } else { PrincipalIdentity::Token { id } };
        let principal = Principal::new(identity, name, role);
        Some(AuthenticatedClient { principal, is_local: locality == Locality::Local, csrf })
    }
}

/// Returns the token of the single `Authorization: Bearer` header. Several headers are refused, because a proxy in
/// front and this server might look at different ones.
fn bearer_token(headers: &HeaderMap) -> Result<&str> {
    let malformed =
        || Error::new(Code::Unauthorized, "malformed `Authorization` header; send `Authorization: Bearer TOKEN` once");
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    let (Some(value), None) = (values.next(), values.next()) else { return Err(malformed()) };
    let (scheme, token) = value.to_str().ok().and_then(|text| text.split_once(' ')).ok_or_else(malformed)?;
    let token = token.trim();
    let is_valid = !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_graphic());
    if scheme.eq_ignore_ascii_case("bearer") && is_valid { Ok(token) } else { Err(malformed()) }
}
