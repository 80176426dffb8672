//! Wishes. Each may be refused, and each may find that nothing needs to be done.

use std::sync::Arc;

use super::Origin;
use crate::access::Role;
use crate::fingerprint::Fingerprint;
use crate::manifest::{Delta, PackedManifest};
use crate::source::SourceId;
use crate::time::Timestamp;
use crate::tool::ToolId;

#[derive(Debug, Clone)]
pub enum Command {
    Declare(Declaration),
    Enable(SourceId),
    Disable(SourceId),
    Remove(SourceId),
    Record(ManifestUpdate),
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
    pub requested_at: Timestamp,
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
pub struct ManifestUpdate {
    pub before: PreviousManifest,
    pub after: Arc<PackedManifest>,
    /// What differs between the two, where that was found out before.
    pub delta: Option<Delta>,
}

#[derive(Debug, Clone)]
pub enum PreviousManifest {
    None,
    Available(Arc<PackedManifest>),
    /// There was a manifest by this name, and its content cannot be read any more.
    Unreadable(Fingerprint),
}

impl PreviousManifest {
    pub fn fingerprint(&self) -> Option<Fingerprint> {
        match self {
            PreviousManifest::None => None,
            PreviousManifest::Available(packed) => Some(packed.fingerprint),
            PreviousManifest::Unreadable(fingerprint) => Some(*fingerprint),
        }
    }

    pub fn manifest(&self) -> Option<&PackedManifest> {
        match self {
            PreviousManifest::Available(packed) => Some(packed),
            PreviousManifest::None | PreviousManifest::Unreadable(_) => None,
        }
    }
}
