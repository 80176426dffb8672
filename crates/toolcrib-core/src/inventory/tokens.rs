//! Tokens as facts: created, changed, revoked. What is revoked is forgotten here; the journal remembers it.

use super::{Event, Inventory};
use crate::access::{MAX_ACCESS_TOKENS, MAX_TOKEN_LIFETIME, Token, check_token_name};
use crate::error::{Code, Error, Result};

use super::command::{NewToken, TokenChange};

impl Inventory {
    /// Every token that was not revoked, expired ones included, by their ids.
    pub fn tokens(&self) -> impl Iterator<Item = &Token> {
        self.tokens.values()
    }

    /// By its id, else by its name: an id always means its own token, whatever others are named.
    pub fn token(&self, name: &str) -> Option<&Token> {
        self.tokens.get(name).or_else(|| self.tokens().find(|token| token.name == name))
    }

    pub(super) fn create_token(&self, new: &NewToken) -> Result<Vec<Event>> {
        let NewToken { id, name, role, hash, expires_at, requested_at: now } = new.clone();
        check_token_name(&name)?;
        if expires_at.is_some_and(|at| at.since(now) > MAX_TOKEN_LIFETIME) {
            let message =
                "a token lives for 100 years at most; say `30d` or `12h`, or nothing for one that never expires";
            return Err(Error::new(Code::BadRequest, message));
        }
        if self.tokens.get(&id).is_some_and(|token| token.hash == hash) {
            return Ok(Vec::new());
        }
        let mut events = Vec::new();
        // A name whose token has expired is free again.
        match self.tokens().find(|token| token.name == name) {
            Some(old) if old.is_expired(now) => {
                events.push(Event::TokenRevoked { token: old.id.clone(), name: name.clone() })
            }
            Some(_) => return Err(name_taken_error(&name)),
            None => {}
        }
        if self.tokens.len() >= MAX_ACCESS_TOKENS + events.len() {
            let message =
                format!("there are {MAX_ACCESS_TOKENS} tokens already; revoke some with `toolcrib token revoke`");
            return Err(Error::new(Code::Conflict, message).with_retryable(false));
        }
        events.push(Event::TokenCreated { token: id, name, role, hash, expires_at });
        Ok(events)
    }

    pub(super) fn change_token(&self, change: &TokenChange) -> Result<Vec<Event>> {
        let unknown = || Error::new(Code::NotFound, format!("no token with the id `{}`", change.id));
        let token = self.tokens.get(&change.id).ok_or_else(unknown)?;
        let name = change.name.as_ref().unwrap_or(&token.name);
        let role = change.role.unwrap_or(token.role);
        if *name == token.name && role == token.role {
            return Ok(Vec::new());
        }
        check_token_name(name)?;
        if self.tokens().any(|other| other.name == *name && other.id != token.id) {
            return Err(name_taken_error(name));
        }
        Ok(vec![Event::TokenChanged { token: token.id.clone(), name: name.clone(), role }])
    }

    pub(super) fn revoke_token(&self, id: &str) -> Vec<Event> {
        let token = self.tokens.get(id);
        token
            .map(|token| Event::TokenRevoked { token: token.id.clone(), name: token.name.clone() })
            .into_iter()
            .collect()
    }

    /// Every known token is revoked by a record of its own, so that a version that does not know `DamageAccepted`
    /// revokes it too.
    pub(super) fn accept_damage(&self, damage: &[String], records: Option<&[(u64, u64)]>) -> Vec<Event> {
        let revoked =
            self.tokens().map(|token| Event::TokenRevoked { token: token.id.clone(), name: token.name.clone() });
        let accepted = Event::DamageAccepted { damage: damage.to_vec(), records: records.map(<[_]>::to_vec) };
        revoked.chain([accepted]).collect()
    }
}

fn name_taken_error(name: &str) -> Error {
    let message = format!("there is a token named `{name}` already; take another name, or revoke it first");
    Error::new(Code::Conflict, message).with_retryable(false)
}
