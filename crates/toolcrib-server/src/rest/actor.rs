//! Names of a principal in the journal ([`Actor`]) and for policies ([`Principal`]).
//!
//! The prefix `rest:` separates them from those of other interfaces, so that history shows where a change came from.

use toolcrib::Principal;
use toolcrib::core::inventory::Actor;

use crate::auth::AuthenticatedClient;

impl AuthenticatedClient {
    /// True for a principal with a token or a session; false for a local process without either. `local` is a reserved
    /// name, so no token can have it.
    pub(crate) fn is_authenticated(&self) -> bool {
        self.name != "local"
    }

    /// Actor of journal records: `rest:NAME`, or `rest` for a local process without a token.
    pub(crate) fn actor(&self) -> Actor {
        if self.is_authenticated() { Actor::new(format!("rest:{}", self.name)) } else { Actor::new("rest") }
    }

    /// Caller of tools, with the same name as the actor.
    pub(crate) fn caller(&self) -> Principal {
        Principal::local(self.actor().as_str())
    }
}
