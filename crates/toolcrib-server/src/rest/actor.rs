//! Under which name a visitor's deeds are known, in the journal and to rules.

use toolcrib::Caller;
use toolcrib::core::inventory::Actor;

use crate::auth::Principal;

impl Principal {
    /// Whether they showed a token or have a session, and are not just on this machine.
    pub(crate) fn is_authenticated(&self) -> bool {
        self.name != "local"
    }

    /// `rest`, or `rest:NAME` for whoever showed a token.
    pub(crate) fn actor(&self) -> Actor {
        match self.is_authenticated() {
            true => Actor::new(format!("rest:{}", self.name)),
            false => Actor::new("rest"),
        }
    }

    pub(crate) fn caller(&self) -> Caller {
        Caller { name: self.actor().as_str().to_owned() }
    }
}
