//! Names of a client in the journal ([`Actor`]) and in records of calls ([`Principal`]).
//!
//! The prefix `rest:` separates them from those of other interfaces, so that history shows where a change came from.

use toolcrib::Principal;
use toolcrib::core::inventory::Actor;
use toolcrib::core::principal::PrincipalIdentity;

use crate::auth::AuthenticatedClient;

impl AuthenticatedClient {
    /// True for a client with a token or a session; false for a local process without either.
    pub(crate) fn is_authenticated(&self) -> bool {
        *self.principal.identity() != PrincipalIdentity::Local
    }

    /// Actor of journal records: `rest:NAME`, or `rest` for a local process without a token.
    pub(crate) fn actor(&self) -> Actor {
        if self.is_authenticated() { Actor::new(format!("rest:{}", self.principal.name())) } else { Actor::new("rest") }
    }

    /// The principal as it calls tools, with the name of the actor.
    pub(crate) fn caller(&self) -> Principal {
        self.principal.with_name(self.actor().as_str())
    }
}
