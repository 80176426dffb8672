//! Facts, kept for ever. Their JSON is held by a golden file: variants and defaulted fields are added, nothing is renamed.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::access::Role;
use crate::compare::ToolRename;
use crate::fingerprint::Fingerprint;
use crate::manifest::ToolChange;
use crate::source::SourceId;
use crate::time::Timestamp;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type")]
pub enum Event {
    SourceDeclared {
        source: SourceId,
        kind: String,
        origin: Origin,
        definition: Fingerprint,
        /// What the declaration says about it; enabled when it says nothing.
        enabled: Option<bool>,
    },
    SourceChanged {
        source: SourceId,
        kind: String,
        origin: Origin,
        definition: Fingerprint,
        /// What the declaration says about it; enabled when it says nothing.
        enabled: Option<bool>,
    },
    SourceEnabled {
        source: SourceId,
    },
    SourceDisabled {
        source: SourceId,
    },
    SourceRemoved {
        source: SourceId,
    },
    InventoryRecorded {
        source: SourceId,
        fingerprint: Fingerprint,
        added: Vec<String>,
        changed: Vec<ToolChange>,
        removed: Vec<String>,
        /// Likely renames; both names stand in `removed` and `added` as well.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        renamed: Vec<ToolRename>,
    },
    ToolEnabled {
        source: SourceId,
        tool: String,
    },
    ToolDisabled {
        source: SourceId,
        tool: String,
    },
    TokenCreated {
        /// Its id, as in the others.
        token: String,
        name: String,
        role: Role,
        /// SHA-256 of the token itself, which is written nowhere.
        hash: Fingerprint,
        expires_at: Option<Timestamp>,
    },
    TokenChanged {
        token: String,
        name: String,
        role: Role,
    },
    TokenRevoked {
        token: String,
        name: String,
    },
    /// An administrator accepted all damage of the journal before this record, and with it that every token is revoked.
    DamageAccepted {
        /// The damage, in words.
        damage: Vec<String>,
        /// The records, from and to, that may be missing or unreadable. `None` for all before this one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        records: Option<Vec<(u64, u64)>>,
    },
    /// Not understood: written by a newer Toolcrib, or damaged. [`Reading`](super::Reading) tells the two apart.
    #[serde(other)]
    Unknown,
}

/// A fact with its place in the journal, its time and who caused it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    pub seq: u64,
    pub at: Timestamp,
    pub actor: Actor,
    pub event: Event,
}

/// Who caused a fact: `cli`, `config`, `refresh`, or a name an embedder gives.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Actor(String);

/// Who declared a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Origin {
    Config,
    Runtime,
}

impl Actor {
    pub fn new(name: impl Into<String>) -> Actor {
        Actor(name.into())
    }

    pub fn config() -> Actor {
        Actor("config".into())
    }

    pub fn refresh() -> Actor {
        Actor("refresh".into())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Actor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Origin {
    pub fn as_str(self) -> &'static str {
        match self {
            Origin::Config => "config",
            Origin::Runtime => "runtime",
        }
    }
}

impl Event {
    pub fn source(&self) -> Option<&SourceId> {
        match self {
            Event::SourceDeclared { source, .. }
            | Event::SourceChanged { source, .. }
            | Event::SourceEnabled { source }
            | Event::SourceDisabled { source }
            | Event::SourceRemoved { source }
            | Event::InventoryRecorded { source, .. }
            | Event::ToolEnabled { source, .. }
            | Event::ToolDisabled { source, .. } => Some(source),
            Event::TokenCreated { .. }
            | Event::TokenChanged { .. }
            | Event::TokenRevoked { .. }
            | Event::DamageAccepted { .. }
            | Event::Unknown => None,
        }
    }

    /// Whether a Toolcrib that does not understand this event must stop instead of passing it over. That is so where
    /// ignoring it would leave something allowed that it takes away: revocations, disabling and removal, and rules.
    /// The other events fail closed: a process that ignores them offers less, or an older list. When in doubt, an event is critical.
    pub fn is_critical(&self) -> bool {
        match self {
            Event::SourceDisabled { .. }
            | Event::SourceRemoved { .. }
            | Event::ToolDisabled { .. }
            // The definition that it names holds the rules on the source's tools, and they may be stricter than before.
            | Event::SourceChanged { .. }
            // The new role may be a lesser one.
            | Event::TokenChanged { .. }
            | Event::TokenRevoked { .. }
            // It revokes tokens whose own records may be lost.
            | Event::DamageAccepted { .. } => true,
            // It names rules too, but of a source that is not there without it.
            Event::SourceDeclared { .. }
            | Event::SourceEnabled { .. }
            | Event::InventoryRecorded { .. }
            | Event::ToolEnabled { .. }
            | Event::TokenCreated { .. }
            | Event::Unknown => false,
        }
    }

    /// As [`Event::critical`], for an event of which this build understands nothing but its type.
    pub fn is_critical_type(kind: &str) -> bool {
        let critical = [
            "SourceChanged",
            "SourceDisabled",
            "SourceRemoved",
            "ToolDisabled",
            "TokenChanged",
            "TokenRevoked",
            "DamageAccepted",
        ];
        critical.contains(&kind)
    }

    /// The version of Toolcrib that is needed to understand this event: the one that introduced its type, or what it says
    /// beyond that, such as a variant of an enum or a field that narrows what it allows.
    pub fn min_version(&self) -> &'static str {
        match self {
            // All of these are older than the first release.
            Event::SourceDeclared { .. }
            | Event::SourceChanged { .. }
            | Event::SourceEnabled { .. }
            | Event::SourceDisabled { .. }
            | Event::SourceRemoved { .. }
            | Event::InventoryRecorded { .. }
            | Event::ToolEnabled { .. }
            | Event::ToolDisabled { .. }
            | Event::TokenCreated { .. }
            | Event::TokenChanged { .. }
            | Event::TokenRevoked { .. }
            | Event::DamageAccepted { .. }
            // Never written.
            | Event::Unknown => "0.1.0",
        }
    }
}
