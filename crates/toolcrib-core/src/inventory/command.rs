//! Wishes. Each may be refused, and each may find that nothing needs to be done.

use std::sync::Arc;

use super::Origin;
use crate::access::Role;
use crate::fingerprint::Fingerprint;
use crate::manifest::{Delta, Packed};
use crate::source::SourceId;
use crate::time::Timestamp;
use crate::tool::ToolId;

#[derive(Debug, Clone)]
pub enum Command {
    Declare(Declaration),
    Enable(SourceId),
    Disable(SourceId),
    Remove(SourceId),
    Record(Recording),
    EnableTool(ToolId),
    DisableTool(ToolId),
    CreateToken(NewToken),
    ChangeToken(TokenChange),
    /// By its id.
    RevokeToken(String),
    /// Go on with a damaged journal: every token is revoked.
    AcceptDamage {
        /// The damage, in words.
        damage: Vec<String>,
        /// The records, from and to, that may be missing or unreadable. `None` for all that there are.
        records: Option<Vec<(u64, u64)>>,
    },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewToken {
    pub id: String,
    pub name: String,
    pub role: Role,
    pub hash: Fingerprint,
    pub expires_at: Option<Timestamp>,
    /// When this is wished for: whether an older token of that name still holds depends on it.
    pub now: Timestamp,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenChange {
    pub id: String,
    pub name: Option<String>,
    pub role: Option<Role>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Declaration {
    pub source: SourceId,
    pub kind: String,
    pub origin: Origin,
    pub definition: Fingerprint,
    pub enabled: Option<bool>,
}

/// What a discovery found, and what was known before.
#[derive(Debug, Clone)]
pub struct Recording {
    pub before: Before,
    pub after: Arc<Packed>,
    /// What differs between the two, where that was found out before.
    pub delta: Option<Delta>,
}

#[derive(Debug, Clone)]
pub enum Before {
    Nothing,
    Known(Arc<Packed>),
    /// There was a manifest by this name, and its content cannot be read any more.
    Lost(Fingerprint),
}

impl Before {
    pub fn fingerprint(&self) -> Option<Fingerprint> {
        match self {
            Before::Nothing => None,
            Before::Known(packed) => Some(packed.fingerprint),
            Before::Lost(fingerprint) => Some(*fingerprint),
        }
    }

    pub fn packed(&self) -> Option<&Packed> {
        match self {
            Before::Known(packed) => Some(packed),
            Before::Nothing | Before::Lost(_) => None,
        }
    }
}
