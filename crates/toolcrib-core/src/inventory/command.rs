//! Commands: requested changes. [`Inventory::decide`](super::Inventory::decide) may reject each of them, or find that
//! it changes nothing.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::Origin;
use crate::access::Role;
use crate::access_rules::{NamedRule, RuleKind};
use crate::delta::Delta;
use crate::features::{FeatureChanges, FeatureSummary};
use crate::fingerprint::Fingerprint;
use crate::manifest::PackedManifest;
use crate::source::SourceId;
use crate::time::Timestamp;
use crate::tool::ToolId;

/// Requested change of the inventory.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Command {
    /// Add a source, or change its definition.
    Declare(Declaration),
    /// Offer the tools of a source again. Fails for an unknown source.
    Enable(SourceId),
    /// Withdraw all tools of a source and keep its declaration.
    Disable(SourceId),
    /// Remove a source; an unknown one is already removed.
    Remove(SourceId),
    /// Record the tool list that a discovery found.
    Record(ManifestUpdate),
    /// Record the prompts, resources and instructions that a discovery found.
    RecordFeatures(Box<FeaturesUpdate>),
    EnableTool(ToolId),
    DisableTool(ToolId),
    CreateToken(NewToken),
    ChangeToken(TokenChange),
    /// Revoke a token by its id.
    RevokeToken(String),
    /// Add a group, access rule or policy at run time, or replace it.
    DefineRule(Box<NamedRule>),
    /// Remove a group, access rule or policy that was defined at run time; an unknown one is already removed.
    RemoveRule {
        kind: RuleKind,
        name: String,
    },
    /// Replace all groups, access rules and policies of the configuration, as one change.
    ReconcileRules(Vec<NamedRule>),
    /// Continue with a damaged journal. Revokes every token, since a revocation may be among the lost records.
    AcceptDamage {
        /// Descriptions of the damage, for the history.
        damage: Vec<String>,
        /// Ranges of records (first, last) that may be missing or unreadable. `None` for all records so far.
        records: Option<Vec<(u64, u64)>>,
    },
}

/// Token to create.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewToken {
    /// Random identifier, chosen by the caller so that a retry is recognised.
    pub id: String,
    pub name: String,
    pub role: Role,
    /// SHA-256 of the token text.
    pub hash: Fingerprint,
    pub expires_at: Option<Timestamp>,
    /// Time of the request: determines whether an older token of the same name has expired.
    pub requested_at: Timestamp,
    /// Groups that the token is restricted to; empty for no restriction.
    pub groups: Vec<String>,
    pub claims: Map<String, Value>,
}

/// Change of a token. `None` leaves a field as it is.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TokenChange {
    pub id: String,
    pub name: Option<String>,
    pub role: Option<Role>,
    /// An empty list ends the restriction to groups.
    pub groups: Option<Vec<String>>,
    pub claims: Option<Map<String, Value>>,
}

/// Source to declare. Its definition is stored beside the journal under the hash `definition`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Declaration {
    pub source: SourceId,
    pub kind: String,
    pub origin: Origin,
    /// Keyed hash of the definition.
    pub definition: Fingerprint,
    /// `enabled` of the declaration; `None` means enabled.
    pub enabled: Option<bool>,
    /// Hash of the reference in `enabled`, if it is one; `enabled` is `None` then.
    pub enabled_reference: Option<Fingerprint>,
}

/// Result of a discovery, with the manifest that it replaces.
#[derive(Debug, Clone)]
pub struct ManifestUpdate {
    /// Manifest that the discovery was compared with. Must still be the current one.
    pub before: PreviousManifest,
    /// Manifest that the discovery found.
    pub after: Arc<PackedManifest>,
    /// Difference of both manifests. Not used if the one before is unreadable.
    pub delta: Delta,
}

/// Features that a discovery found, with those that they replace.
#[derive(Debug, Clone)]
pub struct FeaturesUpdate {
    /// Fingerprint of the list that the changes are relative to; `None` for a source without one.
    pub before: Option<Fingerprint>,
    pub after: FeatureSummary,
    pub changes: FeatureChanges,
}

/// Manifest of a source before a discovery.
#[derive(Debug, Clone)]
pub enum PreviousManifest {
    /// The source was never discovered.
    None,
    Available(Arc<PackedManifest>),
    /// The stored content of this manifest is missing or damaged.
    Unreadable(Fingerprint),
}

impl PreviousManifest {
    /// Fingerprint of the previous manifest, if there was one.
    pub fn fingerprint(&self) -> Option<Fingerprint> {
        match self {
            PreviousManifest::None => None,
            PreviousManifest::Available(packed) => Some(packed.fingerprint),
            PreviousManifest::Unreadable(fingerprint) => Some(*fingerprint),
        }
    }

    /// Returns the content, if it is available.
    pub fn manifest(&self) -> Option<&PackedManifest> {
        match self {
            PreviousManifest::Available(packed) => Some(packed),
            PreviousManifest::None | PreviousManifest::Unreadable(_) => None,
        }
    }
}
