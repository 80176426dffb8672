//! Events: facts that are stored in the journal for ever.
//!
//! A golden file pins their JSON: variants and fields with defaults may be added, but nothing is renamed or reused.
//!
//! ```json
//! {"type": "SourceDisabled", "source": "github"}
//! ```
//!
//! Measurements, such as the time and duration of a check, are rows of their own and no events. So are definitions of
//! sources: they may contain secrets, and events contain their keyed hash only.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::access::Role;
use crate::access_rules::{AccessRule, Group, NamedRule, Policy, RuleKind};
use crate::delta::{ToolChange, ToolRename};
use crate::features::FeatureDelta;
use crate::fingerprint::Fingerprint;
use crate::source::SourceId;
use crate::time::Timestamp;

/// Fact about sources, tools or tokens. The name of a variant is the value of `type`. Tools are named by their own
/// names, not as agents see them: the rules for names may change, history may not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type")]
pub enum Event {
    SourceDeclared {
        source: SourceId,
        kind: String,
        origin: Origin,
        definition: Fingerprint,
        /// `enabled` of the declaration; `None` means enabled.
        enabled: Option<bool>,
        /// Hash of the reference in `enabled`, such as `${env:NAME}`, which each process resolves by itself.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        enabled_reference: Option<Fingerprint>,
    },
    SourceChanged {
        source: SourceId,
        kind: String,
        origin: Origin,
        definition: Fingerprint,
        /// `enabled` of the declaration; `None` means enabled.
        enabled: Option<bool>,
        /// Hash of the reference in `enabled`, such as `${env:NAME}`, which each process resolves by itself.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        enabled_reference: Option<Fingerprint>,
    },
    SourceEnabled {
        source: SourceId,
    },
    SourceDisabled {
        source: SourceId,
    },
    SourceRemoved {
        source: SourceId,
        /// Tools that the rules of the source kept from agents. With the source its rules are gone, but not its history.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        withheld: Vec<String>,
    },
    /// A discovery found another tool list.
    InventoryRecorded {
        source: SourceId,
        /// The manifest with this fingerprint is stored before the event, so that it can always be read.
        fingerprint: Fingerprint,
        added: Vec<String>,
        changed: Vec<ToolChange>,
        removed: Vec<String>,
        /// Likely renames. Both names are in `removed` and `added` as well.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        renamed: Vec<ToolRename>,
    },
    /// A discovery found other prompts, resources, resource templates or instructions of an MCP server. Items are named
    /// by their own names and URIs.
    FeaturesRecorded {
        source: SourceId,
        /// The list with this fingerprint is stored before the event, like a manifest.
        fingerprint: Fingerprint,
        #[serde(default, skip_serializing_if = "FeatureDelta::is_empty")]
        prompts: FeatureDelta,
        #[serde(default, skip_serializing_if = "FeatureDelta::is_empty")]
        resources: FeatureDelta,
        #[serde(default, skip_serializing_if = "FeatureDelta::is_empty")]
        resource_templates: FeatureDelta,
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        instructions_changed: bool,
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
        /// Id of the token, as in the other token events.
        token: String,
        name: String,
        role: Role,
        /// SHA-256 of the token text, which is stored nowhere.
        hash: Fingerprint,
        expires_at: Option<Timestamp>,
        /// Groups that the token is restricted to; empty for a token without such a restriction.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        groups: Vec<String>,
        /// Claims that conditions of rules read.
        #[serde(default, skip_serializing_if = "Map::is_empty")]
        claims: Map<String, Value>,
    },
    TokenChanged {
        token: String,
        name: String,
        role: Role,
        /// New groups; `None` leaves them as they are.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        groups: Option<Vec<String>>,
        /// New claims; `None` leaves them as they are.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        claims: Option<Map<String, Value>>,
    },
    TokenRevoked {
        token: String,
        name: String,
    },
    /// A group was added or replaced.
    GroupDefined {
        group: String,
        origin: Origin,
        definition: Group,
        /// Whether it replaces a definition of the same name.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        replaces: bool,
    },
    GroupRemoved {
        group: String,
    },
    AccessRuleDefined {
        rule: String,
        origin: Origin,
        definition: AccessRule,
        /// Whether it replaces a definition of the same name.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        replaces: bool,
    },
    AccessRuleRemoved {
        rule: String,
    },
    PolicyDefined {
        policy: String,
        origin: Origin,
        definition: Policy,
        /// Whether it replaces a definition of the same name.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        replaces: bool,
    },
    PolicyRemoved {
        policy: String,
    },
    /// An administrator accepted the damage of the journal before this record. Every token is revoked with it.
    DamageAccepted {
        /// Descriptions of the damage.
        damage: Vec<String>,
        /// Ranges of records (first, last) that may be missing or unreadable. `None` for all before this one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        records: Option<Vec<(u64, u64)>>,
    },
    /// Event of an unknown type: written by a newer version, or damaged. [`StoredEvent`](super::StoredEvent)
    /// distinguishes both.
    #[serde(other)]
    Unknown,
}

/// Event with its sequence number in the journal, its time and its actor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// Position in the journal, counted from one without gaps.
    pub seq: u64,
    pub at: Timestamp,
    pub actor: Actor,
    pub event: Event,
}

/// Originator of an event: `cli`, `config`, `rest` or `rest:TOKEN_NAME`, `mcp` or `mcp:CLIENT`, a name given by an
/// embedding program, or `system` where no client asked, as for a scheduled discovery. Versions before wrote `refresh` for
/// all discoveries.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Actor(String);

/// How a source was declared: by a configuration file, or at run time by a request or a command.
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

    /// Actor of changes by a configuration file.
    pub fn config() -> Actor {
        Actor("config".into())
    }

    /// Actor of changes that no client asked for, such as those found by a scheduled discovery.
    pub fn system() -> Actor {
        Actor("system".into())
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

crate::name_variants!(Origin { Config => "config", Runtime => "runtime" });

impl Event {
    /// Returns the source that the event concerns, if it is about one.
    pub fn source(&self) -> Option<&SourceId> {
        match self {
            Event::SourceDeclared { source, .. }
            | Event::SourceChanged { source, .. }
            | Event::SourceEnabled { source }
            | Event::SourceDisabled { source }
            | Event::SourceRemoved { source, .. }
            | Event::InventoryRecorded { source, .. }
            | Event::FeaturesRecorded { source, .. }
            | Event::ToolEnabled { source, .. }
            | Event::ToolDisabled { source, .. } => Some(source),
            Event::TokenCreated { .. }
            | Event::TokenChanged { .. }
            | Event::TokenRevoked { .. }
            | Event::GroupDefined { .. }
            | Event::GroupRemoved { .. }
            | Event::AccessRuleDefined { .. }
            | Event::AccessRuleRemoved { .. }
            | Event::PolicyDefined { .. }
            | Event::PolicyRemoved { .. }
            | Event::DamageAccepted { .. }
            | Event::Unknown => None,
        }
    }

    /// Returns the event that puts a rule into force. `replaces` tells whether there is one of the same name.
    pub(super) fn rule_defined(rule: NamedRule, origin: Origin, replaces: bool) -> Event {
        match rule {
            NamedRule::Group(group, definition) => Event::GroupDefined { group, origin, definition, replaces },
            NamedRule::Access(rule, definition) => Event::AccessRuleDefined { rule, origin, definition, replaces },
            NamedRule::Policy(policy, definition) => Event::PolicyDefined { policy, origin, definition, replaces },
        }
    }

    /// Returns the event that removes a rule.
    pub(super) fn rule_removed(kind: RuleKind, name: String) -> Event {
        match kind {
            RuleKind::Group => Event::GroupRemoved { group: name },
            RuleKind::Access => Event::AccessRuleRemoved { rule: name },
            RuleKind::Policy => Event::PolicyRemoved { policy: name },
        }
    }

    /// Returns the kind and name of the group, access rule or policy that the event is about.
    pub fn rule(&self) -> Option<(RuleKind, &str)> {
        match self {
            Event::GroupDefined { group, .. } | Event::GroupRemoved { group } => Some((RuleKind::Group, group)),
            Event::AccessRuleDefined { rule, .. } | Event::AccessRuleRemoved { rule } => Some((RuleKind::Access, rule)),
            Event::PolicyDefined { policy, .. } | Event::PolicyRemoved { policy } => Some((RuleKind::Policy, policy)),
            Event::SourceDeclared { .. }
            | Event::SourceChanged { .. }
            | Event::SourceEnabled { .. }
            | Event::SourceDisabled { .. }
            | Event::SourceRemoved { .. }
            | Event::InventoryRecorded { .. }
            | Event::FeaturesRecorded { .. }
            | Event::ToolEnabled { .. }
            | Event::ToolDisabled { .. }
            | Event::TokenCreated { .. }
            | Event::TokenChanged { .. }
            | Event::TokenRevoked { .. }
            | Event::DamageAccepted { .. }
            | Event::Unknown => None,
        }
    }

    /// Whether a version that does not understand this event must stop instead of skipping it.
    ///
    /// An event is critical if skipping it would leave something allowed that it takes away: revocations, disabling,
    /// removal, and rules. The others fail closed: a process that skips them offers less, or an older tool list. In
    /// case of doubt an event is critical.
    pub fn is_critical(&self) -> bool {
        match self {
            Event::SourceDisabled { .. }
            | Event::SourceRemoved { .. }
            | Event::ToolDisabled { .. }
            // The new definition contains the rules of the source, which may be stricter than before.
            | Event::SourceChanged { .. }
            // The new role may be a lower one.
            | Event::TokenChanged { .. }
            | Event::TokenRevoked { .. }
            // Groups, access rules and policies withhold tools. A removed one may have given tools to callers.
            | Event::GroupDefined { .. }
            | Event::GroupRemoved { .. }
            | Event::AccessRuleDefined { .. }
            | Event::AccessRuleRemoved { .. }
            | Event::PolicyDefined { .. }
            | Event::PolicyRemoved { .. }
            // Revokes tokens whose own revocations may be lost.
            | Event::DamageAccepted { .. } => true,
            // A version that does not know groups and claims would admit the token without its restrictions.
            Event::TokenCreated { groups, claims, .. } => !groups.is_empty() || !claims.is_empty(),
            // Names rules too, but those of a source that does not exist without this event.
            Event::SourceDeclared { .. }
            | Event::SourceEnabled { .. }
            | Event::InventoryRecorded { .. }
            | Event::FeaturesRecorded { .. }
            | Event::ToolEnabled { .. }
            | Event::Unknown => false,
        }
    }

    /// Like [`Event::is_critical`], for a damaged event of which only the type can be read. `TokenCreated` is not among
    /// them: a token whose record cannot be read is not admitted.
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
        critical.contains(&kind) || Event::is_rule_type(kind)
    }

    /// Whether events of this type are about a group, access rule or policy.
    pub fn is_rule_type(kind: &str) -> bool {
        let types = [
            "GroupDefined",
            "GroupRemoved",
            "AccessRuleDefined",
            "AccessRuleRemoved",
            "PolicyDefined",
            "PolicyRemoved",
        ];
        types.contains(&kind)
    }

    /// Returns the lowest version that understands this event: the one that introduced its type, or a later addition
    /// that it uses, such as a variant of an enum or a field that restricts something.
    pub fn min_version(&self) -> &'static str {
        match self {
            Event::TokenCreated { groups, claims, .. } if !groups.is_empty() || !claims.is_empty() => "0.2.0",
            Event::TokenChanged { groups, claims, .. } if groups.is_some() || claims.is_some() => "0.2.0",
            // All of these existed in the first release.
            Event::SourceDeclared { .. }
            | Event::SourceChanged { .. }
            | Event::SourceEnabled { .. }
            | Event::SourceDisabled { .. }
            | Event::SourceRemoved { .. }
            | Event::InventoryRecorded { .. }
            | Event::FeaturesRecorded { .. }
            | Event::ToolEnabled { .. }
            | Event::ToolDisabled { .. }
            | Event::TokenCreated { .. }
            | Event::TokenChanged { .. }
            | Event::TokenRevoked { .. }
            | Event::DamageAccepted { .. }
            // Never written.
            | Event::Unknown => "0.1.0",
            Event::GroupDefined { .. }
            | Event::GroupRemoved { .. }
            | Event::AccessRuleDefined { .. }
            | Event::AccessRuleRemoved { .. }
            | Event::PolicyDefined { .. }
            | Event::PolicyRemoved { .. } => "0.2.0",
        }
    }
}
