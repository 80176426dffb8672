//! Authentication and authorization. A token, a console session or being a local process gives a request a role; every
//! route states the [`Permission`] that it requires. Handlers find the [`AuthenticatedClient`] in the request's
//! extensions.
//!
//! Credentials are tried in this order, and the first kind that is present decides:
//! 1. `Authorization: Bearer`: the administrator's token, a stored one, or an access token of an identity
//!    provider (`jwt`). An invalid token is an error, also for a client that needs none, except on public routes.
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

mod admin_sessions;
mod admin_token;
mod jwt;
mod rate_limit;
mod resource_metadata;

mod cookie;
mod login;
mod sessions;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use arc_swap::{ArcSwap, ArcSwapOption};
use axum::http::{HeaderMap, header};
use toolcrib::config::{Config, LoopbackAccess};
use toolcrib::core::fingerprint::Fingerprint;
use toolcrib::core::inventory::Actor;
use toolcrib::core::principal::PrincipalIdentity;
use toolcrib::{Code, Error, Principal, Registry, Result};

pub(crate) use authorize::{
    AuthorizedRequest, InsufficientRole, accepts_html, authenticate_reader, authorize, await_min_position,
};
pub(crate) use jwt::JWT_NAME_PREFIX;
pub(crate) use locality::{ConnectionPeer, Locality};
pub(crate) use login::router;
pub(crate) use origin::reject_foreign_request;
pub(crate) use resource_metadata::metadata_router;
pub(crate) use security_headers::set_security_headers;
pub(crate) use toolcrib::core::access::{Permission, Role};

use admin_sessions::AdminSessions;
use admin_token::AdminToken;
use jwt::AccessTokenVerifier;
use locality::PeerIdentifier;
use origin::PublicHost;
use rate_limit::TokenRateLimit;
use sessions::Credential;

use crate::state::ServerConfig;

/// The authenticated client of a request, inserted into the request's extensions by [`authorize()`].
#[derive(Debug, Clone)]
pub(crate) struct AuthenticatedClient {
    /// Its name is `local`, `admin`, the name of a token, or `jwt:` with a name from an access token.
    pub(crate) principal: Principal,
    /// True when the request comes from a process on this machine that may read and call without a token. A source that
    /// runs programs or reads files may be declared only by a local administrator.
    pub(crate) is_local: bool,
    /// CSRF token of the console session, sent back as the form field `csrf` or the header `X-CSRF-Token`. `None` without
    /// a session: a browser does not add an `Authorization` header by itself, so such requests cannot be forged.
    pub(crate) csrf: Option<Arc<str>>,
}

impl AuthenticatedClient {
    /// Client that sent a token, and so has no session.
    fn with_token(principal: Principal, locality: Locality) -> AuthenticatedClient {
        AuthenticatedClient { principal, is_local: locality == Locality::Local, csrf: None }
    }

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
    /// Read once: a new token takes effect at the next start.
    admin_token: AdminToken,
    /// Representation of that token in stored sessions.
    admin_sessions: AdminSessions,
    /// Name of the cookie of console sessions.
    cookie_name: String,
    /// Counts wrong tokens of each client.
    rate_limit: TokenRateLimit,
    /// Verifies access tokens of identity providers; its issuers are replaced on reload.
    jwt: AccessTokenVerifier,
    /// `public_url`, or the address that the server listens on if only this machine can reach it; `None` if neither is
    /// known. Replaced on reload.
    public_url: ArcSwapOption<String>,
    /// Host of the configured `public_url`, if it is not this machine itself. Replaced on reload.
    public_host: ArcSwapOption<PublicHost>,
    /// The principal of local processes without a token. Made once, because most requests are theirs.
    local_principal: Principal,
    /// The principal of requests with the token in `admin.token`.
    admin_principal: Principal,
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
    /// Reads the administrator's token, or creates it. Fails when `address` is reachable from other machines and there is
    /// neither a valid token (the one in `TOOLCRIB_ADMIN_TOKEN` is one) nor an identity provider, for then no remote
    /// client could be served; also when there is a provider, but no `public_url` by which its tokens could be
    /// recognised.
    pub(crate) fn open(address: SocketAddr, registry: Registry, config: &ServerConfig) -> Result<Authenticator> {
        let is_remote = !locality::is_loopback(address);
        // The tokens in a damaged journal are unknown. The server still starts and accepts only the admin token.
        let tokens_reliable = registry.tokens().ensure_reliable().is_ok();
        let settings = &config.loaded_config.config;
        ensure_public_url(settings, address)?;
        let has_issuers = !settings.identity.issuers.is_empty();
        let chosen_admin_token = AdminToken::from_variable()?;
        let has_token = || chosen_admin_token.is_some() || registry.tokens().list().iter().any(|token| !token.expired);
        if is_remote && tokens_reliable && !has_issuers && !has_token() {
            let message = format!(
                "`{address}` can be reached from other machines, and there is no access token yet; create one with \
                 `toolcrib token create NAME --role agent`, or listen on 127.0.0.1"
            );
            return Err(Error::new(Code::ConfigInvalid, message));
        }
        // Behind a reverse proxy every request seems to come from this machine, so `require_token` counts as reachable.
        let exposure = if is_remote || config.require_token { Exposure::Network } else { Exposure::Loopback };
        // After the checks: it may create the file.
        let admin_token = chosen_admin_token.map_or_else(|| AdminToken::from_file(&config.data_dir), Ok)?;
        let admin_sessions = AdminSessions::open(&config.data_dir, &admin_token, registry.logins())?;
        let cookie_name = cookie::cookie_name(&registry.logins().store_tag());
        let authenticator = Authenticator {
            address,
            registry,
            exposure,
            loopback: ArcSwap::from_pointee(settings.identity.loopback),
            peer_identifier: PeerIdentifier::default(),
            refuse_own_process: config.refuse_own_process,
            admin_token,
            admin_sessions,
            cookie_name,
            rate_limit: TokenRateLimit::default(),
            jwt: AccessTokenVerifier::default(),
            public_url: ArcSwapOption::empty(),
            public_host: ArcSwapOption::empty(),
            local_principal: Principal::local("local"),
            admin_principal: Principal::new(
                PrincipalIdentity::Token { id: PrincipalIdentity::ADMIN_TOKEN.into() },
                "admin",
                Role::Admin,
            ),
        };
        authenticator.set_config(settings);
        // At the start, so that the warning is at the top of the log and not beside the first refused client.
        authenticator.probe_peer_identification();
        Ok(authenticator)
    }

    /// Place of the administrator's token: the path of a file, or the name of a variable.
    pub(crate) fn admin_token_location(&self) -> &str {
        &self.admin_token.location
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

    /// Checks a configuration that is about to be applied. See [`Authenticator::open`].
    pub(crate) fn check_config(&self, config: &Config) -> Result<()> {
        ensure_public_url(config, self.address)
    }

    /// Applies what a configuration takes away: a stricter `identity.loopback`, and issuers that are removed or changed.
    pub(crate) fn restrict(&self, config: &Config) {
        self.loopback.store(Arc::new(self.loopback().max(config.identity.loopback)));
        let public_url = find_public_url(config, self.address);
        self.jwt.suspend_changed_issuers(&config.identity.issuers, &default_audience(public_url.as_deref()));
    }

    /// Reads the keys of identity providers again that are in files.
    pub(crate) async fn reload_key_files(&self) {
        self.jwt.reload_key_files().await;
    }

    /// Sets `identity` and `public_url` for all requests from now on.
    pub(crate) fn set_config(&self, config: &Config) {
        self.loopback.store(Arc::new(config.identity.loopback));
        let public_url = find_public_url(config, self.address);
        self.jwt.set_issuers(&config.identity.issuers, &default_audience(public_url.as_deref()));
        self.public_url.store(public_url.map(Arc::new));
        let public_host = config.public_url.as_deref().and_then(PublicHost::from_url);
        self.public_host.store(public_host.map(Arc::new));
    }

    /// Creates a one-time link that signs in as administrator, and returns its path with the key.
    pub(crate) async fn create_login_path(&self) -> Result<String> {
        let key = self.registry.logins().create_link(&self.admin_sessions.credential).await?;
        Ok(format!("{}?key={key}", login::LOGIN_PATH))
    }

    /// Ends the console sessions of an administrator's token that this node had before. A failure is logged, and made
    /// up for at the next start; this node accepts them no longer in any case.
    pub(crate) async fn end_former_admin_sessions(&self) {
        self.admin_sessions.end_former(self.registry.logins()).await;
    }

    /// Authenticates a request by its headers and locality. Returns `None` for a request without credentials that is
    /// not local either, and an error for credentials that are malformed, unknown, revoked or expired. A token takes
    /// precedence over a cookie: a program that sends one means it, and needs no CSRF token.
    async fn authenticate(
        &self,
        headers: &HeaderMap,
        locality: Locality,
        peer: Option<IpAddr>,
    ) -> Result<Option<AuthenticatedClient>> {
        if headers.contains_key(header::AUTHORIZATION) {
            let token = bearer_token(headers)?;
            if let Some(client) = self.authenticate_jwt(token, locality).await {
                return client.map(Some);
            }
            let credential = self.verify_token(token, peer).await?;
            return Ok(self.resolve_client(&credential, None, locality));
        }
        self.ensure_session_verifiable(headers)?;
        Ok(self.authenticate_without_token(headers, locality))
    }

    /// Verifies an access token of an identity provider; `None` for any other token. A wrong one is not counted as a
    /// failed attempt: it is refused at the same cost for each client, and a client whose token has expired is no
    /// attacker.
    async fn authenticate_jwt(&self, token: &str, locality: Locality) -> Option<Result<AuthenticatedClient>> {
        if let Some(client) = self.find_verified_jwt(token, locality) {
            return Some(Ok(client));
        }
        if !AccessTokenVerifier::is_jwt(token) {
            return None;
        }
        let verified = self.jwt.verify(token, Fingerprint::digest(token), self.registry.now()).await;
        Some(verified.map(|principal| AuthenticatedClient::with_token(principal, locality)))
    }

    /// Returns the callers of identity providers that are known: those whose access tokens this process has verified.
    pub(crate) fn known_jwt_callers(&self) -> Vec<Principal> {
        self.jwt.known_callers(self.registry.now())
    }

    /// Returns the client of an access token that was verified before.
    fn find_verified_jwt(&self, token: &str, locality: Locality) -> Option<AuthenticatedClient> {
        // No other token has a dot.
        if !token.contains('.') {
            return None;
        }
        let principal = self.jwt.find_verified(&Fingerprint::digest(token), self.registry.now())?;
        Some(AuthenticatedClient::with_token(principal, locality))
    }

    /// Fails for a session that was opened with a stored token while the journal is damaged: whether the token was
    /// revoked is unknown then.
    fn ensure_session_verifiable(&self, headers: &HeaderMap) -> Result<()> {
        let Err(damaged) = self.registry.tokens().ensure_reliable() else { return Ok(()) };
        match self.find_session(headers) {
            Some((Credential::Token(_), _)) => Err(damaged),
            Some((Credential::Admin, _)) | None => Ok(()),
        }
    }

    /// Authenticates the headers of an earlier request again. Unlike [`Authenticator::authenticate`] it does not count a
    /// token that became invalid as a failed attempt.
    async fn reauthenticate(&self, headers: &HeaderMap, locality: Locality) -> Option<AuthenticatedClient> {
        if let Some(client) = self.authenticate_now(headers, locality) {
            return Some(client);
        }
        // The cache of verified tokens may have lost the token.
        self.authenticate_jwt(bearer_token(headers).ok()?, locality).await?.ok()
    }

    /// Authenticates a request if that takes no waiting. An access token must have been verified before.
    fn authenticate_now(&self, headers: &HeaderMap, locality: Locality) -> Option<AuthenticatedClient> {
        if headers.contains_key(header::AUTHORIZATION) {
            let token = bearer_token(headers).ok()?;
            return self.find_verified_jwt(token, locality).or_else(|| {
                let credential = self.find_credential(token)?;
                self.resolve_client(&credential, None, locality)
            });
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

    /// Returns `None` for an expired session, for one that is not known here, and for one whose token is gone.
    fn authenticate_session(&self, headers: &HeaderMap, locality: Locality) -> Option<AuthenticatedClient> {
        let (credential, csrf) = self.find_session(headers)?;
        self.resolve_client(&credential, Some(csrf), locality)
    }

    /// Returns the credential that a token proves. Unknown tokens count against the rate limit, which never applies to
    /// valid ones: an attacker cannot lock out other clients.
    async fn verify_token(&self, token: &str, peer: Option<IpAddr>) -> Result<Credential> {
        if let Some(credential) = self.find_credential(token) {
            return Ok(credential);
        }
        // Of the form of the login. Wrong access tokens are not counted anywhere.
        if AccessTokenVerifier::is_jwt(token) {
            let message = "an access token of an identity provider cannot sign in to the console; send it as `Authorization: Bearer`";
            return Err(Error::new(Code::Unauthorized, message));
        }
        // With a damaged journal the token may be valid; it must not count as a failed attempt. Answered with 503 and
        // not 401, so that the client does not throw its token away.
        self.registry.tokens().ensure_reliable()?;
        // Reads the store, which a client with many wrong tokens must not cause.
        if !self.rate_limit.is_exceeded(peer, self.registry.now()) {
            self.registry.tokens().look_up(token).await;
            if let Some(credential) = self.find_credential(token) {
                return Ok(credential);
            }
        }
        // A client whose token has expired is no attacker.
        if !self.registry.tokens().is_expired(&Fingerprint::digest(token)) {
            self.rate_limit.record_failure(peer, self.registry.now())?;
        }
        let message = "unknown, revoked or expired token; create a new one on the server's machine with \
                       `toolcrib token create NAME --role agent`";
        Err(Error::new(Code::Unauthorized, message))
    }

    /// Looks up a token by its digest, which is all that is stored of it.
    fn find_credential(&self, token: &str) -> Option<Credential> {
        let hash = Fingerprint::digest(token);
        if hash == self.admin_token.hash {
            return Some(Credential::Admin);
        }
        self.registry.tokens().ensure_reliable().ok()?;
        self.registry.tokens().find_by_hash(&hash).map(|token| Credential::Token(token.id))
    }

    /// Returns the client of a credential with its current name, role, groups and claims; `None` when its token was
    /// revoked or expired. Looked up for each request, so that a change takes effect at once, in sessions too.
    fn resolve_client(
        &self,
        credential: &Credential,
        csrf: Option<Arc<str>>,
        locality: Locality,
    ) -> Option<AuthenticatedClient> {
        let mut principal = match credential {
            Credential::Admin => self.admin_principal.clone(),
            Credential::Token(id) => {
                self.registry.tokens().ensure_reliable().ok()?;
                self.registry.tokens().find_by_id(id)?.principal
            }
        };
        // Only sessions have a CSRF token. Their requests have the same rights as those with the token itself.
        if csrf.is_some() {
            let token = principal.identity().owner_key();
            principal = principal.with_identity(PrincipalIdentity::Console { token });
        }
        Some(AuthenticatedClient { principal, is_local: locality == Locality::Local, csrf })
    }
}

/// Fails if there are identity providers, but no address by which their tokens could be recognised.
fn ensure_public_url(config: &Config, address: SocketAddr) -> Result<()> {
    if config.identity.issuers.is_empty() || find_public_url(config, address).is_some() {
        return Ok(());
    }
    let message = format!(
        "`{address}` can be reached from other machines, so `identity.issuers` needs `public_url`, the address of this \
         server as clients know it; set it in the configuration, e.g. `public_url: \"https://tools.example.com\"`"
    );
    Err(Error::new(Code::ConfigInvalid, message))
}

/// Returns the address of this server as clients know it: as configured, else as `serve` prints it. The address of a
/// socket that other machines can reach is not used, because they know the server by another one.
fn find_public_url(config: &Config, address: SocketAddr) -> Option<String> {
    config.public_url.clone().or_else(|| locality::is_loopback(address).then(|| format!("http://{address}")))
}

/// Returns the audience of issuers that name none. Without an address there are no issuers.
fn default_audience(public_url: Option<&str>) -> String {
    public_url.map(resource_metadata::resource_url).unwrap_or_default()
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
