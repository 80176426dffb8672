//! Who may do what: a token, a console's session, or being on this machine gives a role, and every route names the
//! least that it needs. Pages find who looks at them, and what their forms must carry, in a [`Visitor`].

mod admin_token;
mod authorize;
mod cookie;
mod locality;
mod login;
mod origin;
mod rate_limit;
mod security_headers;
mod sessions;

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use arc_swap::ArcSwap;
use axum::http::{HeaderMap, header};
use toolcrib::core::config::LoopbackAccess;
use toolcrib::core::fingerprint::Fingerprint;
use toolcrib::registry::TokenView;
use toolcrib::{Code, Error, Registry, Result};

pub(crate) use authorize::{InsufficientRole, accepts_html, authorize, can_read};
pub(crate) use locality::{ConnectionPeer, Locality};
pub(crate) use login::router;
pub(crate) use origin::reject_foreign_request;
pub(crate) use security_headers::set_security_headers;
pub(crate) use toolcrib::core::access::{Permission, Role};

use locality::PeerIdentifier;
use rate_limit::TokenRateLimit;
use sessions::{ConsoleSessions, Credential};

/// Who came, among the extensions of every request that a route let in.
#[derive(Debug, Clone)]
pub(crate) struct Principal {
    /// For logs, rules and the journal: `local`, `admin`, or the name of a token.
    pub(crate) name: String,
    pub(crate) role: Role,
    /// Whether the request comes from a process on this machine that would need no token to read and call.
    pub(crate) is_local: bool,
    /// The same as long as they are, whatever they are named: `local`, `admin`, or the id of a token.
    pub(crate) identity: Arc<str>,
    /// What a page's forms send as `csrf` and its script as `X-CSRF-Token`. Only those with a session have one, and
    /// only they need one.
    pub(crate) csrf: Option<Arc<str>>,
}

/// How visitors are known.
#[derive(Debug)]
pub(crate) struct Authenticator {
    /// Where we listen.
    pub(crate) address: SocketAddr,
    exposure: Exposure,
    /// Replaced when the configuration is read again.
    loopback: ArcSwap<LoopbackAccess>,
    peer_identifier: PeerIdentifier,
    /// Whether this process's own connections are treated like those of servers that it started.
    refuse_own_process: bool,
    /// Of the token in `DATA/admin.token`.
    admin_token_hash: Fingerprint,
    sessions: ConsoleSessions,
    rate_limit: TokenRateLimit,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Exposure {
    /// On loopback: `identity.loopback` says which processes may read and call.
    Loopback,
    /// Everybody shows a token.
    Network,
}

impl Authenticator {
    /// Reads the token of who runs this, or makes it. Refuses to be reached from elsewhere while nobody has a token.
    pub(crate) fn open(
        address: SocketAddr,
        data: &Path,
        registry: &Registry,
        require_token: bool,
        refuse_own_process: bool,
        loopback: LoopbackAccess,
    ) -> Result<Authenticator> {
        let beyond = !locality::is_loopback(address);
        // Of a damaged journal it is unknown which tokens there are; none is accepted then.
        let tokens_known = registry.ensure_tokens_reliable().is_ok();
        if beyond && tokens_known && !registry.tokens().iter().any(|token| !token.expired) {
            let message = format!(
                "`{address}` can be reached from other machines, and nobody has a token yet; make one with \
                 `toolcrib token create NAME --role agent`, or listen on 127.0.0.1"
            );
            return Err(Error::new(Code::ConfigInvalid, message));
        }
        let reach = if beyond || require_token { Exposure::Network } else { Exposure::Loopback };
        let admin = Fingerprint::digest(admin_token::read_or_create(data)?);
        let access = Authenticator {
            address,
            exposure: reach,
            loopback: ArcSwap::from_pointee(loopback),
            peer_identifier: PeerIdentifier::default(),
            refuse_own_process,
            admin_token_hash: admin,
            sessions: ConsoleSessions::default(),
            rate_limit: TokenRateLimit::default(),
        };
        access.probe_peer_identification();
        Ok(access)
    }

    /// Whether local processes, and no others, may come in without a token.
    pub(crate) fn allows_local_without_token(&self) -> bool {
        self.is_on_loopback() && self.loopback() != LoopbackAccess::Token
    }

    fn is_on_loopback(&self) -> bool {
        self.exposure == Exposure::Loopback
    }

    fn loopback(&self) -> LoopbackAccess {
        **self.loopback.load()
    }

    /// For requests from now on.
    pub(crate) fn set_loopback(&self, loopback: LoopbackAccess) {
        self.loopback.store(Arc::new(loopback));
    }

    /// The path of a link that signs its first visitor in as who runs this.
    pub(crate) fn create_login_path(&self, registry: &Registry) -> String {
        format!("{}?key={}", login::LOGIN_PATH, self.sessions.create_login_link(registry.now()))
    }

    /// Who a request comes from; `None` where nobody showed anything and nothing is free.
    fn authenticate(&self, registry: &Registry, headers: &HeaderMap, locality: Locality) -> Result<Option<Principal>> {
        if headers.contains_key(header::AUTHORIZATION) {
            let holder = self.verify_token(registry, bearer_token(headers)?)?;
            return Ok(resolve_principal(registry, &holder, None, locality));
        }
        self.ensure_session_verifiable(registry, headers)?;
        Ok(self.authenticate_without_token(registry, headers, locality))
    }

    /// Refuses a session that was opened with a stored token while those cannot be relied on.
    fn ensure_session_verifiable(&self, registry: &Registry, headers: &HeaderMap) -> Result<()> {
        let Err(damaged) = registry.ensure_tokens_reliable() else { return Ok(()) };
        let holder = cookie::session_id(self.address, headers).and_then(|id| self.sessions.find(id, registry.now()));
        match holder {
            Some((Credential::Token(_), _)) => Err(damaged),
            Some((Credential::Admin, _)) | None => Ok(()),
        }
    }

    /// Who somebody that was let in before is now. What is no good any more is no attempt at guessing.
    fn reauthenticate(&self, registry: &Registry, headers: &HeaderMap, locality: Locality) -> Option<Principal> {
        if headers.contains_key(header::AUTHORIZATION) {
            return resolve_principal(
                registry,
                &self.find_credential(registry, bearer_token(headers).ok()?)?,
                None,
                locality,
            );
        }
        self.ensure_session_verifiable(registry, headers).ok()?;
        self.authenticate_without_token(registry, headers, locality)
    }

    fn authenticate_without_token(
        &self,
        registry: &Registry,
        headers: &HeaderMap,
        locality: Locality,
    ) -> Option<Principal> {
        self.authenticate_session(registry, headers, locality).or_else(|| {
            (locality == Locality::Local).then(|| Principal {
                name: "local".into(),
                role: Role::Agent,
                is_local: true,
                identity: "local".into(),
                csrf: None,
            })
        })
    }

    /// A session that is over, or of a Toolcrib that is gone, is as none.
    fn authenticate_session(&self, registry: &Registry, headers: &HeaderMap, locality: Locality) -> Option<Principal> {
        let id = cookie::session_id(self.address, headers)?;
        let (holder, csrf) = self.sessions.find(id, registry.now())?;
        let visitor = resolve_principal(registry, &holder, Some(csrf), locality);
        if visitor.is_none() {
            self.sessions.end(id);
        }
        visitor
    }

    /// Whose token this is. Wrong ones are counted, and after too many of them each is told to wait; a right one never is.
    fn verify_token(&self, registry: &Registry, token: &str) -> Result<Credential> {
        if let Some(holder) = self.find_credential(registry, token) {
            return Ok(holder);
        }
        // Whether it was revoked cannot be told, so that it is neither right nor wrong.
        registry.ensure_tokens_reliable()?;
        self.rate_limit.record_failure(registry.now())?;
        let message =
            "this token is not known here, or was revoked, or has expired; `toolcrib token list` shows those there are";
        Err(Error::new(Code::Unauthorized, message))
    }

    fn find_credential(&self, registry: &Registry, token: &str) -> Option<Credential> {
        let hash = Fingerprint::digest(token);
        if hash == self.admin_token_hash {
            return Some(Credential::Admin);
        }
        registry.ensure_tokens_reliable().ok()?;
        registry.token_by_hash(&hash).map(|TokenView { id, .. }| Credential::Token(id))
    }
}

/// What a holder is now; none when its token is gone.
fn resolve_principal(
    registry: &Registry,
    holder: &Credential,
    csrf: Option<Arc<str>>,
    locality: Locality,
) -> Option<Principal> {
    let here = locality == Locality::Local;
    match holder {
        Credential::Admin => {
            Some(Principal { name: "admin".into(), role: Role::Admin, is_local: here, identity: "admin".into(), csrf })
        }
        Credential::Token(id) => {
            registry.ensure_tokens_reliable().ok()?;
            let token = registry.token_by_id(id).filter(|token| !token.expired)?;
            Some(Principal { name: token.name, role: token.role, is_local: here, identity: token.id.into(), csrf })
        }
    }
}

/// The token of `Authorization: Bearer`.
fn bearer_token(headers: &HeaderMap) -> Result<&str> {
    let malformed = || Error::new(Code::Unauthorized, "write `Authorization: Bearer` and a token, once");
    let mut given = headers.get_all(header::AUTHORIZATION).iter();
    let (Some(value), None) = (given.next(), given.next()) else { return Err(malformed()) };
    let (scheme, token) = value.to_str().ok().and_then(|text| text.split_once(' ')).ok_or_else(malformed)?;
    let token = token.trim();
    let plain = !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_graphic());
    if scheme.eq_ignore_ascii_case("bearer") && plain { Ok(token) } else { Err(malformed()) }
}
