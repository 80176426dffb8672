//! Commands and state of access tokens. A revoked token is dropped from the state; its events stay in the journal.
//!
//! Names are unique among valid tokens; ids are random. A token that has expired stays in the state until it is revoked
//! or its name is used again; the server checks the time.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::{Event, Inventory};
use crate::access::{
    AccessToken, MAX_ACCESS_TOKENS, MAX_TOKEN_LIFETIME, Role, check_token_claims, check_token_name,
    normalize_token_groups,
};
use crate::error::{Code, Error, Result};
use crate::principal::{Claims, Principal, PrincipalIdentity};
use crate::text::did_you_mean;

use super::command::{NewToken, TokenChange};

impl Inventory {
    /// Returns all tokens that were not revoked, expired ones included, in the order of their ids.
    pub fn tokens(&self) -> impl Iterator<Item = &AccessToken> {
        self.tokens.values()
    }

    /// Finds a token by id or else by name. The id takes precedence, so that a token named like it cannot take its
    /// place.
    pub fn token(&self, id_or_name: &str) -> Option<&AccessToken> {
        self.tokens.get(id_or_name).or_else(|| self.tokens().find(|token| token.name() == id_or_name))
    }

    /// Finds a token by id.
    pub fn token_by_id(&self, id: &str) -> Option<&AccessToken> {
        self.tokens.get(id)
    }

    /// Creates a token. Repeating the same command changes nothing.
    /// Fails with `BAD_REQUEST` for an invalid name, lifetime, group or claim, and with `CONFLICT` for a name in use or too many
    /// tokens.
    pub(super) fn create_token(&self, new: &NewToken) -> Result<Vec<Event>> {
        let NewToken { id, name, role, hash, expires_at, requested_at, groups, claims } = new.clone();
        check_token_name(&name)?;
        let groups = normalize_token_groups(&groups)?;
        check_token_claims(&claims)?;
        self.check_groups_exist(&groups)?;
        if expires_at.is_some_and(|at| at.since(requested_at) > MAX_TOKEN_LIFETIME) {
            let message = "a token is valid for 100 years at most; use a shorter time such as `30d`, or no expiry";
            return Err(Error::new(Code::BadRequest, message));
        }
        // The same command was carried out before.
        if self.tokens.get(&id).is_some_and(|token| token.hash == hash) {
            return Ok(Vec::new());
        }
        let mut events = Vec::new();
        // The name of an expired token is free again; the old token is revoked first.
        match self.tokens().find(|token| token.name() == name) {
            Some(old) if old.is_expired(requested_at) => {
                events.push(Event::TokenRevoked { token: old.id.clone(), name: name.clone() })
            }
            Some(_) => return Err(name_taken_error(&name)),
            None => {}
        }
        // `events` has the revocation of an expired token, whose place is free again.
        if self.tokens.len() >= MAX_ACCESS_TOKENS + events.len() {
            let error = Error::new(Code::Conflict, format!("the limit of {MAX_ACCESS_TOKENS} tokens is reached"));
            let error = error.with_next_step("toolcrib token revoke NAME", "DELETE /api/tokens/{id}", "revokes one");
            return Err(error.with_retryable(false));
        }
        events.push(Event::TokenCreated { token: id, name, role, hash, expires_at, groups, claims });
        Ok(events)
    }

    /// Changes name, role, groups or claims of a token. Expiry and hash cannot be changed: a token with another lifetime
    /// is another token. The event has groups and claims only if they change, so that versions without them understand
    /// the others.
    pub(super) fn change_token(&self, change: &TokenChange) -> Result<Vec<Event>> {
        let unknown = || Error::new(Code::NotFound, format!("no token with the id `{}`", change.id));
        let token = self.tokens.get(&change.id).ok_or_else(unknown)?;
        let name = change.name.as_deref().unwrap_or(token.name());
        let role = change.role.unwrap_or(token.role());
        let groups = change.groups.as_deref().map(normalize_token_groups).transpose()?;
        let groups = groups.filter(|groups| groups != token.groups());
        self.check_groups_exist(groups.as_deref().unwrap_or_default())?;
        if let Some(claims) = &change.claims {
            check_token_claims(claims)?;
        }
        let claims = change.claims.clone().filter(|claims| claims != token.claims().as_map());
        if name == token.name() && role == token.role() && groups.is_none() && claims.is_none() {
            return Ok(Vec::new());
        }
        check_token_name(name)?;
        if self.tokens().any(|other| other.name() == name && other.id != token.id) {
            return Err(name_taken_error(name));
        }
        Ok(vec![Event::TokenChanged { token: token.id.clone(), name: name.to_owned(), role, groups, claims }])
    }

    /// Fails with `BAD_REQUEST` for a group that does not exist. A token keeps a group that is removed later, and sees
    /// nothing of it.
    fn check_groups_exist(&self, groups: &[String]) -> Result<()> {
        let Some(unknown) = groups.iter().find(|name| self.rules.group(name).is_none()) else { return Ok(()) };
        let near = did_you_mean(unknown, self.rules.groups().map(|group| group.name.as_str()));
        let error = Error::new(Code::BadRequest, format!("no group named `{unknown}`{near}"));
        Err(if near.is_empty() {
            error.with_next_step("toolcrib group list", "GET /api/groups", "lists the groups")
        } else {
            error
        })
    }

    /// Replaces the principal of a token. Ignores an unknown one; ends one whose stored claims are invalid, because
    /// without them it might see more.
    pub(super) fn apply_token_change(&mut self, id: &str, name: &str, role: Role, restrictions: TokenRestrictions<'_>) {
        let tokens = Arc::make_mut(&mut self.tokens);
        let Some(known) = tokens.get_mut(id) else { return };
        let groups = restrictions.groups.unwrap_or(known.groups());
        match token_principal(id, name, role, groups, restrictions.claims.unwrap_or(known.claims().as_map())) {
            Ok(principal) => known.principal = principal,
            Err(_) => drop(tokens.remove(id)),
        }
    }

    /// Revokes a token; an unknown id changes nothing.
    /// Revoking twice is therefore no error.
    pub(super) fn revoke_token(&self, id: &str) -> Vec<Event> {
        let token = self.tokens.get(id);
        token
            .map(|token| Event::TokenRevoked { token: token.id.clone(), name: token.name().to_owned() })
            .into_iter()
            .collect()
    }

    /// Accepts damage and revokes every token. Each revocation is an event of its own, so that a version that does not
    /// know `DamageAccepted` revokes them too.
    pub(super) fn accept_damage(&self, damage: &[String], records: Option<&[(u64, u64)]>) -> Vec<Event> {
        let revoked =
            self.tokens().map(|token| Event::TokenRevoked { token: token.id.clone(), name: token.name().to_owned() });
        let accepted = Event::DamageAccepted { damage: damage.to_vec(), records: records.map(<[_]>::to_vec) };
        revoked.chain([accepted]).collect()
    }
}

/// New groups and claims of a token; `None` leaves them as they are.
pub(super) struct TokenRestrictions<'a> {
    pub(super) groups: Option<&'a [String]>,
    pub(super) claims: Option<&'a Map<String, Value>>,
}

/// Makes the principal of all requests with a token. Fails for claims that are too large.
pub(super) fn token_principal(
    id: &str,
    name: &str,
    role: Role,
    groups: &[String],
    claims: &Map<String, Value>,
) -> Result<Principal> {
    let identity = PrincipalIdentity::Token { id: id.into() };
    Ok(Principal::new(identity, name, role).with_groups(groups).with_claims(Claims::new(claims.clone())?))
}

/// Error for a name in use. Not retryable, since it would fail again.
fn name_taken_error(name: &str) -> Error {
    let message = format!("a token named `{name}` already exists; choose another name, or revoke it first");
    Error::new(Code::Conflict, message).with_retryable(false)
}
