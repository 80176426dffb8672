//! Who may do what: a token, a console's session, or being on this machine gives a role, and every route names the
//! least that it needs. Pages find who looks at them, and what their forms must carry, in a [`Visitor`].

mod admin;
mod admit;
mod attempts;
mod cookie;
mod headers;
mod locality;
mod login;
mod origin;
mod sessions;

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use arc_swap::ArcSwap;
use axum::http::{HeaderMap, header};
use toolcrib::core::config::Loopback;
use toolcrib::core::fingerprint::Fingerprint;
use toolcrib::registry::TokenView;
use toolcrib::{Code, Error, Registry, Result};

pub(crate) use admit::{RoleTooLow, admit, may_read, takes_pages};
pub(crate) use headers::secure;
pub(crate) use locality::{ConnectionPeer, Locality};
pub(crate) use login::router;
pub(crate) use origin::turned_away;
pub(crate) use toolcrib::core::access::{Needs, Role};

use attempts::Attempts;
use locality::Peers;
use sessions::{Holder, Sessions};

/// Who came, among the extensions of every request that a route let in.
#[derive(Debug, Clone)]
pub(crate) struct Visitor {
    /// For logs, rules and the journal: `local`, `admin`, or the name of a token.
    pub(crate) name: String,
    pub(crate) role: Role,
    /// Whether the request comes from a process on this machine that would need no token to read and call.
    pub(crate) here: bool,
    /// The same as long as they are, whatever they are named: `local`, `admin`, or the id of a token.
    pub(crate) identity: Arc<str>,
    /// What a page's forms send as `csrf` and its script as `X-CSRF-Token`. Only those with a session have one, and
    /// only they need one.
    pub(crate) csrf: Option<Arc<str>>,
}

/// How visitors are known.
#[derive(Debug)]
pub(crate) struct Access {
    /// Where we listen.
    pub(crate) address: SocketAddr,
    reach: Reach,
    /// Replaced when the configuration is read again.
    loopback: ArcSwap<Loopback>,
    peers: Peers,
    /// Whether this process's own connections are treated like those of servers that it started.
    refuse_own_process: bool,
    /// Of the token in `DATA/admin.token`.
    admin: Fingerprint,
    sessions: Sessions,
    attempts: Attempts,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reach {
    /// On loopback: `identity.loopback` says which processes may read and call.
    Here,
    /// Everybody shows a token.
    Beyond,
}

impl Access {
    /// Reads the token of who runs this, or makes it. Refuses to be reached from elsewhere while nobody has a token.
    pub(crate) fn open(
        address: SocketAddr,
        data: &Path,
        registry: &Registry,
        require_token: bool,
        refuse_own_process: bool,
        loopback: Loopback,
    ) -> Result<Access> {
        let beyond = !locality::is_loopback(address);
        // Of a damaged journal it is unknown which tokens there are; none is accepted then.
        let tokens_known = registry.ensure_tokens_known().is_ok();
        if beyond && tokens_known && !registry.tokens().iter().any(|token| !token.expired) {
            let message = format!(
                "`{address}` can be reached from other machines, and nobody has a token yet; make one with \
                 `toolcrib token create NAME --role agent`, or listen on 127.0.0.1"
            );
            return Err(Error::new(Code::ConfigInvalid, message));
        }
        let reach = if beyond || require_token { Reach::Beyond } else { Reach::Here };
        let admin = Fingerprint::of(admin::read_or_make(data)?);
        let access = Access {
            address,
            reach,
            loopback: ArcSwap::from_pointee(loopback),
            peers: Peers::default(),
            refuse_own_process,
            admin,
            sessions: Sessions::default(),
            attempts: Attempts::default(),
        };
        access.try_identifying();
        Ok(access)
    }

    /// Whether local processes, and no others, may come in without a token.
    pub(crate) fn is_local(&self) -> bool {
        self.is_on_loopback() && self.loopback() != Loopback::Token
    }

    fn is_on_loopback(&self) -> bool {
        self.reach == Reach::Here
    }

    fn loopback(&self) -> Loopback {
        **self.loopback.load()
    }

    /// For requests from now on.
    pub(crate) fn set_loopback(&self, loopback: Loopback) {
        self.loopback.store(Arc::new(loopback));
    }

    /// The path of a link that signs its first visitor in as who runs this.
    pub(crate) fn link(&self, registry: &Registry) -> String {
        format!("{}?key={}", login::PATH, self.sessions.link(registry.now()))
    }

    /// Who a request comes from; `None` where nobody showed anything and nothing is free.
    fn visitor(&self, registry: &Registry, headers: &HeaderMap, locality: Locality) -> Result<Option<Visitor>> {
        if headers.contains_key(header::AUTHORIZATION) {
            let holder = self.holder(registry, bearer(headers)?)?;
            return Ok(named(registry, &holder, None, locality));
        }
        self.ensure_session_known(registry, headers)?;
        Ok(self.without_token(registry, headers, locality))
    }

    /// Refuses a session that was opened with a stored token while those cannot be relied on.
    fn ensure_session_known(&self, registry: &Registry, headers: &HeaderMap) -> Result<()> {
        let Err(damaged) = registry.ensure_tokens_known() else { return Ok(()) };
        let holder = cookie::session(self.address, headers).and_then(|id| self.sessions.find(id, registry.now()));
        match holder {
            Some((Holder::Token(_), _)) => Err(damaged),
            Some((Holder::Admin, _)) | None => Ok(()),
        }
    }

    /// Who somebody that was let in before is now. What is no good any more is no attempt at guessing.
    fn still(&self, registry: &Registry, headers: &HeaderMap, locality: Locality) -> Option<Visitor> {
        if headers.contains_key(header::AUTHORIZATION) {
            return named(registry, &self.known(registry, bearer(headers).ok()?)?, None, locality);
        }
        self.ensure_session_known(registry, headers).ok()?;
        self.without_token(registry, headers, locality)
    }

    fn without_token(&self, registry: &Registry, headers: &HeaderMap, locality: Locality) -> Option<Visitor> {
        self.with_session(registry, headers, locality).or_else(|| {
            (locality == Locality::Local).then(|| Visitor {
                name: "local".into(),
                role: Role::Agent,
                here: true,
                identity: "local".into(),
                csrf: None,
            })
        })
    }

    /// A session that is over, or of a Toolcrib that is gone, is as none.
    fn with_session(&self, registry: &Registry, headers: &HeaderMap, locality: Locality) -> Option<Visitor> {
        let id = cookie::session(self.address, headers)?;
        let (holder, csrf) = self.sessions.find(id, registry.now())?;
        let visitor = named(registry, &holder, Some(csrf), locality);
        if visitor.is_none() {
            self.sessions.end(id);
        }
        visitor
    }

    /// Whose token this is. Wrong ones are counted, and after too many of them each is told to wait; a right one never is.
    fn holder(&self, registry: &Registry, token: &str) -> Result<Holder> {
        if let Some(holder) = self.known(registry, token) {
            return Ok(holder);
        }
        // Whether it was revoked cannot be told, so that it is neither right nor wrong.
        registry.ensure_tokens_known()?;
        self.attempts.failed(registry.now())?;
        let message =
            "this token is not known here, or was revoked, or has expired; `toolcrib token list` shows those there are";
        Err(Error::new(Code::Unauthorized, message))
    }

    fn known(&self, registry: &Registry, token: &str) -> Option<Holder> {
        let hash = Fingerprint::of(token);
        if hash == self.admin {
            return Some(Holder::Admin);
        }
        registry.ensure_tokens_known().ok()?;
        registry.token_by_hash(&hash).map(|TokenView { id, .. }| Holder::Token(id))
    }
}

/// What a holder is now; none when its token is gone.
fn named(registry: &Registry, holder: &Holder, csrf: Option<Arc<str>>, locality: Locality) -> Option<Visitor> {
    let here = locality == Locality::Local;
    match holder {
        Holder::Admin => {
            Some(Visitor { name: "admin".into(), role: Role::Admin, here, identity: "admin".into(), csrf })
        }
        Holder::Token(id) => {
            registry.ensure_tokens_known().ok()?;
            let token = registry.token_by_id(id).filter(|token| !token.expired)?;
            Some(Visitor { name: token.name, role: token.role, here, identity: token.id.into(), csrf })
        }
    }
}

/// The token of `Authorization: Bearer`.
fn bearer(headers: &HeaderMap) -> Result<&str> {
    let malformed = || Error::new(Code::Unauthorized, "write `Authorization: Bearer` and a token, once");
    let mut given = headers.get_all(header::AUTHORIZATION).iter();
    let (Some(value), None) = (given.next(), given.next()) else { return Err(malformed()) };
    let (scheme, token) = value.to_str().ok().and_then(|text| text.split_once(' ')).ok_or_else(malformed)?;
    let token = token.trim();
    let plain = !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_graphic());
    if scheme.eq_ignore_ascii_case("bearer") && plain { Ok(token) } else { Err(malformed()) }
}
