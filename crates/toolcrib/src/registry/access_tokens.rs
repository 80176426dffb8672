//! Tokens for those who come over the network: made here, shown once, and from then on known by their hash.

use std::fmt;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Serialize;
use toolcrib_core::access::{Role, Token};
use toolcrib_core::fingerprint::Fingerprint;
use toolcrib_core::inventory::{Actor, Command, NewToken, TokenChange};
use toolcrib_core::text::sanitize_truncated;
use toolcrib_core::{Code, Error, Result, Timestamp};

use super::Registry;

/// What every token begins with, so that people and scanners know one when they see it.
const TOKEN_PREFIX: &str = "tcb_";

/// A token as it is listed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TokenView {
    pub id: String,
    pub name: String,
    pub role: Role,
    pub created_at: Timestamp,
    pub expires_at: Option<Timestamp>,
    pub expired: bool,
}

/// A token that was just made. It is told this once.
#[derive(Clone, PartialEq, Eq, Serialize)]
pub struct CreatedToken {
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

/// 256 random bits as text that may stand in addresses and headers.
pub fn random_secret() -> String {
    URL_SAFE_NO_PAD.encode(rand::random::<[u8; 32]>())
}

/// A new token, which is nobody's yet.
pub fn random_token() -> String {
    format!("{TOKEN_PREFIX}{}", random_secret())
}

impl Registry {
    /// The time as this registry has it.
    pub fn now(&self) -> Timestamp {
        self.shared.options.clock.now()
    }

    pub async fn create_token(
        &self,
        name: &str,
        role: Role,
        expires: Option<Duration>,
        actor: Actor,
    ) -> Result<CreatedToken> {
        let (token, id, now) = (random_token(), format!("{:012x}", rand::random::<u64>() >> 16), self.now());
        if expires == Some(Duration::ZERO) {
            return Err(Error::new(Code::BadRequest, "a token that expires at once is of no use; say `30d` or `12h`"));
        }
        let new = NewToken {
            id: id.clone(),
            name: name.to_owned(),
            role,
            hash: Fingerprint::digest(&token),
            expires_at: expires.map(|expires| now.plus(expires)),
            requested_at: now,
        };
        self.execute(Command::CreateToken(new), actor).await?;
        Ok(CreatedToken { view: self.token(&id)?, token })
    }

    /// Those that were not revoked, by their names.
    pub fn tokens(&self) -> Vec<TokenView> {
        let (inventory, now) = (self.inventory(), self.now());
        let mut tokens: Vec<TokenView> = inventory.tokens().map(|token| token_view(token, now)).collect();
        tokens.sort_by(|a, b| a.name.cmp(&b.name));
        tokens
    }

    /// By its id, else by its name.
    pub fn token(&self, name: &str) -> Result<TokenView> {
        let inventory = self.inventory();
        let unknown = || {
            if let Some(damaged) = self.damage_error() {
                return damaged;
            }
            let message =
                format!("no token named `{}`; `toolcrib token list` shows them", sanitize_truncated(name, 80));
            Error::new(Code::NotFound, message)
        };
        inventory.token(name).map(|token| token_view(token, self.now())).ok_or_else(unknown)
    }

    pub fn token_by_id(&self, id: &str) -> Option<TokenView> {
        let inventory = self.inventory();
        inventory.tokens().find(|token| token.id == id).map(|token| token_view(token, self.now()))
    }

    /// The token that is the one of this hash, unless it has expired.
    pub fn token_by_hash(&self, hash: &Fingerprint) -> Option<TokenView> {
        let (inventory, now) = (self.inventory(), self.now());
        inventory
            .tokens()
            .find(|token| token.hash == *hash)
            .map(|token| token_view(token, now))
            .filter(|token| !token.expired)
    }

    pub async fn change_token(
        &self,
        name: &str,
        new_name: Option<String>,
        role: Option<Role>,
        actor: Actor,
    ) -> Result<TokenView> {
        let id = self.token(name)?.id;
        self.execute(Command::ChangeToken(TokenChange { id: id.clone(), name: new_name, role }), actor).await?;
        self.token(&id)
    }

    /// From now on it opens nothing.
    pub async fn revoke_token(&self, name: &str, actor: Actor) -> Result<TokenView> {
        let token = self.token(name)?;
        self.execute(Command::RevokeToken(token.id.clone()), actor).await?;
        Ok(token)
    }
}

fn token_view(token: &Token, now: Timestamp) -> TokenView {
    TokenView {
        id: token.id.clone(),
        name: token.name.clone(),
        role: token.role,
        created_at: token.created_at,
        expires_at: token.expires_at,
        expired: token.is_expired(now),
    }
}
