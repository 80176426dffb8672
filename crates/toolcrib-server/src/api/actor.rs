//! Under which name a visitor's deeds are known, in the journal and to rules.

use toolcrib::Caller;
use toolcrib::core::inventory::Actor;

use crate::access::Visitor;

impl Visitor {
    /// `rest`, or `rest:NAME` for whoever showed a token.
    pub(crate) fn actor(&self) -> Actor {
        match self.name.as_str() {
            "local" => Actor::new("rest"),
            name => Actor::new(format!("rest:{}", name.strip_prefix("token:").unwrap_or(name))),
        }
    }

    pub(crate) fn caller(&self) -> Caller {
        Caller { name: self.actor().as_str().to_owned() }
    }
}
