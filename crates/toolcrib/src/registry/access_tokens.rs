//! Access tokens of network clients: generated here, shown once, and stored as a hash.
//!
//! A token is `tcb_` and 43 characters of Base64: 256 random bits, so its hash needs neither salt nor a slow function.
//! Creation, change and revocation are events, so all processes on a store know the same tokens. Checking a request
//! against them is left to the server.

use std::fmt;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Serialize;
use serde_json::{Map, Value};
use tokio::time::timeout;
use toolcrib_core::access::{AccessToken, Role};
use toolcrib_core::fingerprint::Fingerprint;
use toolcrib_core::inventory::{Actor, Command, NewToken, TokenChange};
use toolcrib_core::principal::{Claims, Principal, PrincipalIdentity};
use toolcrib_core::text::sanitize_truncated;
use toolcrib_core::{Code, Error, Result, Timestamp};

use super::{Precondition, Registry};
use crate::logins::is_secret;
use crate::store::StoreState;

/// Prefix of every token, so that people and secret scanners recognise one.
const TOKEN_PREFIX: &str = "tcb_";
/// How long a request with an unknown token waits for the store.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(2);

/// A token as it is listed, without its secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TokenView {
    /// Identifies the token in commands and in the journal.
    pub id: String,
    /// Name that the administrator chose.
    pub name: String,
    /// Decides what the holder may do.
    pub role: Role,
    /// Groups that the token is restricted to, in the order of their names; empty for no restriction.
    pub groups: Vec<String>,
    /// Claims that conditions of rules read.
    pub claims: Claims,
    /// Time of the record that created the token.
    pub created_at: Timestamp,
    /// Time after which the token is rejected; `None` for no limit.
    pub expires_at: Option<Timestamp>,
    /// Whether `expires_at` has passed; such a token stays listed until it is revoked.
    pub expired: bool,
    /// Time of the last admitted request with the token. Requests to other processes are included after some seconds.
    pub last_used: Option<Timestamp>,
}

/// Token to create.
#[derive(Debug, Clone)]
pub struct TokenRequest {
    /// Name, unique among valid tokens.
    pub name: String,
    /// Decides what the holder may do.
    pub role: Role,
    /// Lifetime; `None` for a token that is valid until it is revoked.
    pub expires: Option<Duration>,
    /// Groups that the token is restricted to; empty for no restriction.
    pub groups: Vec<String>,
    /// Claims that conditions of rules read.
    pub claims: Map<String, Value>,
}

/// A token that was just created. This is the only time it is shown.
#[derive(Clone, PartialEq, Eq, Serialize)]
pub struct CreatedToken {
    /// The token as it will be listed.
    #[serde(flatten)]
    pub view: TokenView,
    /// The token itself.
    pub token: String,
}

impl fmt::Debug for CreatedToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CreatedToken({:?}, ***)", self.view)
    }
}

/// Returns 256 random bits as text that is safe in URLs and headers.
#[doc(hidden)]
pub fn random_secret() -> String {
    URL_SAFE_NO_PAD.encode(rand::random::<[u8; 32]>())
}

/// Returns a new random token. It is valid once its hash is stored.
#[doc(hidden)]
pub fn random_token() -> String {
    format!("{TOKEN_PREFIX}{}", random_secret())
}

/// Whether a text has the form of a token.
fn is_token(text: &str) -> bool {
    text.strip_prefix(TOKEN_PREFIX).is_some_and(is_secret)
}

/// The access tokens of a registry; see [`Registry::tokens`].
#[derive(Debug, Clone, Copy)]
pub struct AccessTokens<'a> {
    pub(super) registry: &'a Registry,
    /// Condition on which tokens are changed and revoked.
    pub(super) precondition: Precondition<'a>,
}

impl<'a> AccessTokens<'a> {
    /// Returns the tokens for changes that are made only if a condition holds.
    #[must_use]
    pub fn only_if(self, precondition: Precondition<'a>) -> AccessTokens<'a> {
        AccessTokens { precondition, ..self }
    }
}

impl AccessTokens<'_> {
    /// Creates a token without groups and claims. Otherwise like [`AccessTokens::create_from`].
    pub async fn create(
        &self,
        name: &str,
        role: Role,
        expires: Option<Duration>,
        actor: Actor,
    ) -> Result<CreatedToken> {
        let name = name.to_owned();
        self.create_from(TokenRequest { name, role, expires, groups: Vec::new(), claims: Map::new() }, actor).await
    }

    /// Creates a token. Fails with `BAD_REQUEST` for a lifetime of zero, and as the inventory decides, e.g. for a name
    /// that is in use.
    pub async fn create_from(&self, request: TokenRequest, actor: Actor) -> Result<CreatedToken> {
        let TokenRequest { name, role, expires, groups, claims } = request;
        let token = random_token();
        // 48 random bits, for commands and URLs. The id is no secret.
        let id = format!("{:012x}", rand::random::<u64>() >> 16);
        let now = self.registry.now();
        if expires == Some(Duration::ZERO) {
            let message = "a token must not expire at once; give a duration such as `30d` or `12h`";
            return Err(Error::new(Code::BadRequest, message));
        }
        let new = NewToken {
            id: id.clone(),
            name,
            role,
            hash: Fingerprint::digest(&token),
            expires_at: expires.map(|expires| now.plus(expires)),
            requested_at: now,
            groups,
            claims,
        };
        self.registry.execute(Command::CreateToken(new), actor).await?;
        Ok(CreatedToken { view: self.get(&id)?, token })
    }

    /// Fails while stored tokens are not reliable: the record that revoked one may be lost.
    pub fn ensure_reliable(&self) -> Result<()> {
        match &self.registry.state.snapshot().damage {
            Some(damage) => Err(damage.to_public_error()),
            None => Ok(()),
        }
    }

    /// Returns the tokens that are not revoked, ordered by name.
    pub fn list(&self) -> Vec<TokenView> {
        let inventory = self.registry.inventory();
        let mut tokens: Vec<TokenView> = inventory.tokens().map(|token| self.view(token)).collect();
        tokens.sort_by(|a, b| a.name.cmp(&b.name));
        tokens
    }

    /// Returns a token by its id, or else by its name. Expired tokens are found too. Fails with `NOT_FOUND`, or with
    /// the damage of the journal if there is any.
    pub fn get(&self, name: &str) -> Result<TokenView> {
        let inventory = self.registry.inventory();
        let unknown = || {
            // The token may be among the lost records of a damaged journal.
            if let Some(damaged) = self.registry.store().damage_error() {
                return damaged;
            }
            let error = Error::new(Code::NotFound, format!("no token named `{}`", sanitize_truncated(name, 80)));
            error.with_next_step("toolcrib token list", "GET /api/tokens", "lists them")
        };
        inventory.token(name).map(|token| self.view(token)).ok_or_else(unknown)
    }

    /// Returns the token with this id, unless it is expired.
    pub fn find_by_id(&self, id: &str) -> Option<AccessToken> {
        let token = self.registry.inventory().token_by_id(id)?.clone();
        (!token.is_expired(self.registry.now())).then_some(token)
    }

    /// Returns the token with this hash, unless it is expired.
    pub fn find_by_hash(&self, hash: &Fingerprint) -> Option<AccessToken> {
        let token = self.registry.inventory().tokens().find(|token| token.hash == *hash)?.clone();
        (!token.is_expired(self.registry.now())).then_some(token)
    }

    /// Reads what other processes have written if this may be a token that one of them has just created. The reads are
    /// shared and limited in number, so that wrong tokens cannot load the store. Waits two seconds at most, and not for
    /// a store that is down.
    pub async fn look_up(&self, token: &str) {
        let hash = Fingerprint::digest(token);
        let is_unknown = is_token(token) && !self.registry.inventory().tokens().any(|known| known.hash == hash);
        if is_unknown && self.registry.store().health().state != StoreState::Down {
            // Without an answer the token stays unknown.
            let _ = timeout(LOOKUP_TIMEOUT, self.registry.catch_up()).await;
        }
    }

    /// Whether a stored token has this hash, and is expired.
    pub fn is_expired(&self, hash: &Fingerprint) -> bool {
        let now = self.registry.now();
        self.registry.inventory().tokens().any(|token| token.hash == *hash && token.is_expired(now))
    }

    /// Records that a request of this principal was admitted, if it has a stored token or a console session that was
    /// opened with one. Does not wait for the store.
    pub fn record_use(&self, principal: &Principal) {
        let (PrincipalIdentity::Token { id } | PrincipalIdentity::Console { token: id }) = principal.identity() else {
            return;
        };
        if **id != *PrincipalIdentity::ADMIN_TOKEN {
            self.registry.dispatcher.monitoring.token_uses.record(id, self.registry.now());
        }
    }

    /// Changes the name, role, groups or claims of a token, which is given by its id or name.
    pub async fn change(&self, change: TokenChange, actor: Actor) -> Result<TokenView> {
        let id = self.get(&change.id)?.id;
        let command = Command::ChangeToken(TokenChange { id: id.clone(), ..change });
        self.registry.state.execute(&[command], actor, self.precondition).await?;
        self.get(&id)
    }

    /// Revokes a token: at once in this process, and in others with their next maintenance run, twice a second.
    pub async fn revoke(&self, name: &str, actor: Actor) -> Result<TokenView> {
        let token = self.get(name)?;
        let command = Command::RevokeToken(token.id.clone());
        self.registry.state.execute(&[command], actor, self.precondition).await?;
        Ok(token)
    }

    /// Builds the view of a token.
    fn view(&self, token: &AccessToken) -> TokenView {
        TokenView {
            id: token.id.clone(),
            name: token.name().to_owned(),
            role: token.role(),
            groups: token.groups().to_vec(),
            claims: token.claims().clone(),
            created_at: token.created_at,
            expires_at: token.expires_at,
            expired: token.is_expired(self.registry.now()),
            last_used: self.registry.dispatcher.monitoring.token_uses.last_use(&token.id),
        }
    }
}
