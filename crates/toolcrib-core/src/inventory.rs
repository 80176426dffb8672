//! The inventory: state of sources, tools and tokens, folded from the events of the journal (the aggregate in
//! event-sourcing terms).
//!
//! [`Inventory::decide`] checks a command and returns the events that carry it out, or an error. [`Inventory::apply`]
//! folds an event into the state and cannot fail. Both are pure; storing records is left to the library.
//!
//! ```text
//! Command ── decide ──▶ Event ── stored as a Record ──▶ apply ──▶ Inventory
//! Disable               SourceDisabled                            enabled: false
//! ```
//!
//! The state can be computed again from the journal at any time, so `apply` must not depend on anything else: neither
//! on a clock (records have their time) nor on manifests. Content of tools is not part of the inventory, only their
//! names, dates and switches; the catalogue combines both.

mod access_rules;
mod access_tokens;
mod command;
mod damage;
mod event;
pub mod history;
mod reconcile;
mod saved_state;
mod stored_event;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use crate::access::AccessToken;
use crate::access_rules::{AccessRules, NamedRule, RuleKind};
use crate::delta::Delta;
use crate::error::{Code, Error, Result};
use crate::features::{FeatureChanges, FeatureKind};
use crate::fingerprint::Fingerprint;
use crate::manifest::PackedManifest;
use crate::source::SourceId;
use crate::time::Timestamp;
use crate::tool::{ToolId, ToolName};

use access_tokens::{TokenRestrictions, token_principal};

pub use command::{Command, Declaration, FeaturesUpdate, ManifestUpdate, NewToken, PreviousManifest, TokenChange};
pub use damage::{Damage, DamageLog};
pub use event::{Actor, Event, Origin, Record};
pub use reconcile::reconcile;
pub use stored_event::{StoredEvent, compare_versions, event_type};

/// Maximum number of names per kind of change in an event about features. Every start reads all events, and a server may
/// have thousands of resources; the others are counted. The stored lists have all of them.
const MAX_FEATURE_NAMES: usize = 20;

/// Current state of all sources, tokens and rules. Cheap to clone: the parts are shared and copied on write.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Inventory {
    /// Sequence number of the last applied record.
    pub version: u64,
    /// Every source that was ever declared, removed ones included.
    sources: BTreeMap<SourceId, Arc<SourceState>>,
    /// Tokens that were not revoked, by id.
    tokens: Arc<BTreeMap<String, AccessToken>>,
    /// Groups, access rules and policies.
    rules: Arc<AccessRules>,
    /// Number of records that this build does not understand and skipped.
    pub unknown_events: u64,
}

/// State of one source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceState {
    /// `mcp`, `openapi`, `workflow` or `builtin`.
    pub kind: String,
    /// A configuration removes only what a configuration declared.
    pub origin: Origin,
    /// Keyed hash that identifies the stored definition. The definition itself may hold secrets and is no part of the
    /// journal.
    pub definition: Fingerprint,
    /// Value of `enabled` in the last declaration, if it had one. Only a change of it overrides `enabled`.
    pub declared_enabled: Option<bool>,
    /// Hash of the reference in `enabled` of the last declaration, if it had one.
    pub enabled_reference: Option<Fingerprint>,
    /// Current state, which commands may change independently of the declaration. That of a source with a reference in
    /// `enabled` is `switched`, or else what a process resolves the reference to.
    pub enabled: bool,
    /// Last switch by a command since `enabled` of the declaration was edited.
    pub switched: Option<bool>,
    /// A removed source is kept for its history and is not listed.
    pub removed: bool,
    /// Fingerprint of the current manifest; `None` before the first discovery.
    pub manifest: Option<Fingerprint>,
    /// Fingerprint of the current prompts, resources and instructions; `None` if the source never had any.
    pub features: Option<Fingerprint>,
    /// Every tool that the source ever offered, by its own name.
    pub tools: BTreeMap<String, ToolState>,
    /// The last manifest with each deprecated tool, by the tool's own name: it has the last definition.
    pub last_manifests: BTreeMap<String, Fingerprint>,
    /// Tools of a removed source that its rules kept from agents, by their own names.
    pub withheld: BTreeSet<String>,
}

/// State of one tool that outlives its manifest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ToolState {
    /// Time of the first discovery of the tool.
    pub created_at: Timestamp,
    /// Time of its last change, removal or return.
    pub updated_at: Timestamp,
    /// Disabled by a command.
    pub disabled: bool,
    /// No longer offered. Dates and settings are kept in case the tool returns.
    pub deprecated: bool,
}

impl Inventory {
    /// Returns all sources except removed ones.
    pub fn sources(&self) -> impl Iterator<Item = (&SourceId, &Arc<SourceState>)> {
        self.sources.iter().filter(|(_, state)| !state.removed)
    }

    /// Returns a source; `None` for an unknown or removed one.
    pub fn source(&self, id: &SourceId) -> Option<&Arc<SourceState>> {
        self.sources.get(id).filter(|state| !state.removed)
    }

    /// Adds a source that no record declares, because it holds for this process alone. Only to a copy for readers: what
    /// is decided and stored is based on records.
    pub fn add_local_source(&mut self, id: SourceId, state: SourceState) {
        self.sources.insert(id, Arc::new(state));
    }

    /// Returns the last state of a removed source; `None` for an unknown or current one.
    pub fn removed_source(&self, id: &SourceId) -> Option<&Arc<SourceState>> {
        self.sources.get(id).filter(|state| state.removed)
    }

    /// Returns the ids of all sources, removed ones included.
    pub fn all_source_ids(&self) -> impl Iterator<Item = &SourceId> {
        self.sources.keys()
    }

    /// Returns the events that carry out a command. An empty list means that the state is already as requested.
    /// Does not change the state. The caller stores the events under the version that it decided on, and decides again
    /// if another process was faster.
    pub fn decide(&self, command: &Command) -> Result<Vec<Event>> {
        match command {
            Command::Declare(declaration) => Ok(self.decide_declare(declaration)),
            Command::Enable(id) => {
                let state = self.require_source(id)?;
                Ok(event_if(state.needs_switch(true), Event::SourceEnabled { source: id.clone() }))
            }
            Command::Disable(id) => {
                let state = self.require_source(id)?;
                Ok(event_if(state.needs_switch(false), Event::SourceDisabled { source: id.clone() }))
            }
            Command::Remove(id) => {
                let exists = self.source(id).is_some();
                Ok(event_if(exists, Event::SourceRemoved { source: id.clone(), withheld: Vec::new() }))
            }
            Command::Record(update) => self.decide_record(update),
            Command::RecordFeatures(update) => self.decide_record_features(update),
            Command::EnableTool(tool) => {
                let state = self.require_tool(tool)?;
                let event = Event::ToolEnabled { source: tool.source.clone(), tool: tool.name.clone() };
                Ok(event_if(state.disabled, event))
            }
            Command::DisableTool(tool) => {
                let state = self.require_tool(tool)?;
                let event = Event::ToolDisabled { source: tool.source.clone(), tool: tool.name.clone() };
                Ok(event_if(!state.disabled, event))
            }
            Command::CreateToken(new) => self.create_token(new),
            Command::ChangeToken(change) => self.change_token(change),
            Command::RevokeToken(id) => Ok(self.revoke_token(id)),
            Command::DefineRule(rule) => self.define_rule(rule),
            Command::RemoveRule { kind, name } => self.remove_rule(*kind, name),
            Command::ReconcileRules(rules) => self.reconcile_rules(rules),
            Command::AcceptDamage { damage, records } => Ok(self.accept_damage(damage, records.as_deref())),
        }
    }

    /// Folds an event into the state. Copies only the source that it concerns.
    /// Events about unknown sources, tools and tokens are ignored, since a record before them may be lost.
    pub fn apply(&mut self, record: &Record) {
        self.version = record.seq;
        let at = record.at;
        match &record.event {
            Event::SourceDeclared { source, kind, origin, definition, enabled, enabled_reference } => {
                // A source that was removed before gets its tools back, with their dates and settings.
                let old = self.sources.get(source);
                let tools = old.map(|old| old.tools.clone()).unwrap_or_default();
                let last_manifests = old.map(|old| old.last_manifests.clone()).unwrap_or_default();
                let new = SourceState::new(kind, *origin, *definition, *enabled);
                let state = SourceState { tools, last_manifests, enabled_reference: *enabled_reference, ..new };
                self.sources.insert(source.clone(), Arc::new(state));
            }
            Event::SourceChanged { source, kind, origin, definition, enabled, enabled_reference } => {
                self.update_source(source, |state| {
                    state.kind.clone_from(kind);
                    state.origin = *origin;
                    state.definition = *definition;
                    // An edit of `enabled` counts as a command.
                    if state.declared_enabled != *enabled || state.enabled_reference != *enabled_reference {
                        state.switched = None;
                    }
                    state.declared_enabled = *enabled;
                    state.enabled_reference = *enabled_reference;
                });
            }
            Event::SourceEnabled { source } => self.update_source(source, |state| state.switch(true)),
            Event::SourceDisabled { source } => self.update_source(source, |state| state.switch(false)),
            // The tools stay for their dates and switches, in case the source is declared again.
            Event::SourceRemoved { source, withheld } => self.update_source(source, |state| {
                state.removed = true;
                state.withheld = withheld.iter().cloned().collect();
                state.features = None;
                let manifest = state.manifest.take();
                for (name, tool) in state.tools.iter_mut().filter(|(_, tool)| !tool.deprecated) {
                    tool.deprecated = true;
                    state.last_manifests.extend(manifest.map(|manifest| (name.clone(), manifest)));
                }
            }),
            Event::InventoryRecorded { source, fingerprint, added, changed, removed, renamed: _ } => {
                self.update_source(source, |state| {
                    let previous = state.manifest.replace(*fingerprint);
                    // A tool that returns keeps the date of its first discovery, and stays disabled if it was.
                    for name in added {
                        let new = ToolState { created_at: at, updated_at: at, disabled: false, deprecated: false };
                        let tool = state.tools.entry(name.clone()).or_insert(new);
                        tool.deprecated = false;
                        tool.updated_at = at;
                        state.last_manifests.remove(name);
                    }
                    for name in changed.iter().map(|change| &change.name) {
                        if let Some(tool) = state.tools.get_mut(name) {
                            tool.updated_at = at;
                        }
                    }
                    for name in removed {
                        if let Some(tool) = state.tools.get_mut(name) {
                            tool.deprecated = true;
                            tool.updated_at = at;
                            state.last_manifests.extend(previous.map(|previous| (name.clone(), previous)));
                        }
                    }
                });
            }
            Event::FeaturesRecorded { source, fingerprint, .. } => {
                self.update_source(source, |state| state.features = Some(*fingerprint));
            }
            Event::ToolEnabled { source, tool } => self.update_tool(source, tool, |state| state.disabled = false),
            Event::ToolDisabled { source, tool } => self.update_tool(source, tool, |state| state.disabled = true),
            Event::TokenCreated { token: id, name, role, hash, expires_at, groups, claims } => {
                // A token without its claims might see more, so one whose claims are invalid is not admitted.
                if let Ok(principal) = token_principal(id, name, *role, groups, claims) {
                    let (hash, expires_at) = (*hash, *expires_at);
                    let created = AccessToken { id: id.clone(), principal, hash, created_at: at, expires_at };
                    Arc::make_mut(&mut self.tokens).insert(id.clone(), created);
                }
            }
            Event::TokenChanged { token, name, role, groups, claims } => {
                let restrictions = TokenRestrictions { groups: groups.as_deref(), claims: claims.as_ref() };
                self.apply_token_change(token, name, *role, restrictions);
            }
            Event::TokenRevoked { token, .. } => {
                Arc::make_mut(&mut self.tokens).remove(token);
            }
            Event::GroupDefined { group, origin, definition, .. } => {
                self.apply_rule(NamedRule::Group(group.clone(), definition.clone()), *origin);
            }
            Event::AccessRuleDefined { rule, origin, definition, .. } => {
                self.apply_rule(NamedRule::Access(rule.clone(), definition.clone()), *origin);
            }
            Event::PolicyDefined { policy, origin, definition, .. } => {
                self.apply_rule(NamedRule::Policy(policy.clone(), definition.clone()), *origin);
            }
            Event::GroupRemoved { group } => Arc::make_mut(&mut self.rules).remove(RuleKind::Group, group),
            Event::AccessRuleRemoved { rule } => Arc::make_mut(&mut self.rules).remove(RuleKind::Access, rule),
            Event::PolicyRemoved { policy } => Arc::make_mut(&mut self.rules).remove(RuleKind::Policy, policy),
            // A lost record may have revoked any token, so none of them stays valid.
            Event::DamageAccepted { .. } => self.tokens = Arc::default(),
            Event::Unknown => self.unknown_events += 1,
        }
    }

    /// Declares a new source, or records what changed about a known one.
    /// A source that was removed counts as new.
    fn decide_declare(&self, declaration: &Declaration) -> Vec<Event> {
        let Declaration { source, kind, origin, definition, enabled, enabled_reference } = declaration.clone();
        let Some(state) = self.source(&source) else {
            return vec![Event::SourceDeclared { source, kind, origin, definition, enabled, enabled_reference }];
        };
        let is_edited = state.declared_enabled != enabled || state.enabled_reference != enabled_reference;
        let mut events = Vec::new();
        if state.definition != definition || state.origin != origin || is_edited {
            let source = source.clone();
            events.push(Event::SourceChanged { source, kind, origin, definition, enabled, enabled_reference });
        }
        // Every start declares all sources of the configuration. A source that a user disabled by command must stay
        // disabled. Declaring a source again does not enable it again. Only an edit of `enabled` in the declaration
        // does.
        let should_be_enabled = enabled.unwrap_or(true);
        // With a reference, each process knows by itself whether it is enabled.
        if is_edited && enabled_reference.is_none() && state.enabled != should_be_enabled {
            events.push(if should_be_enabled {
                Event::SourceEnabled { source }
            } else {
                Event::SourceDisabled { source }
            });
        }
        events
    }

    /// Records a discovered manifest. Fails with `CONFLICT` if the update was computed against another manifest than
    /// the current one. An unchanged list needs no event.
    fn decide_record(&self, update: &ManifestUpdate) -> Result<Vec<Event>> {
        let ManifestUpdate { before, after, delta } = update;
        let state = self.require_source(&after.source)?;
        // Checked first: two processes may find the same list at the same time, and the second has nothing to add.
        if state.manifest == Some(after.fingerprint) {
            return Ok(Vec::new());
        }
        if state.manifest != before.fingerprint() {
            let message = format!("the tools of `{}` were updated by another refresh meanwhile", after.source);
            return Err(Error::new(Code::Conflict, message));
        }
        let delta = match before {
            // Without the old content every tool would look new. The names in the inventory tell more.
            PreviousManifest::Unreadable(_) => state.delta_by_names(after),
            PreviousManifest::None | PreviousManifest::Available(_) => delta.clone(),
        };
        let Delta { added, changed, removed, renamed, unchanged: _ } = delta;
        Ok(vec![Event::InventoryRecorded {
            source: after.source.clone(),
            fingerprint: after.fingerprint,
            added,
            changed,
            removed,
            renamed,
        }])
    }

    /// Records discovered prompts, resources and instructions. An unchanged list needs no event, nor does a source that
    /// never had any. Fails with `CONFLICT` if the update was computed against another list than the current one.
    fn decide_record_features(&self, update: &FeaturesUpdate) -> Result<Vec<Event>> {
        let FeaturesUpdate { before, after, changes } = update;
        let state = self.require_source(&after.source)?;
        if state.features == Some(after.fingerprint) || (state.features.is_none() && after.is_empty()) {
            return Ok(Vec::new());
        }
        if state.features != *before {
            let message = format!("the prompts of `{}` were updated by another refresh meanwhile", after.source);
            return Err(Error::new(Code::Conflict, message));
        }
        let FeatureChanges { lists, instructions_changed } = changes;
        let delta = |kind| lists.get(kind).truncated(MAX_FEATURE_NAMES);
        Ok(vec![Event::FeaturesRecorded {
            source: after.source.clone(),
            fingerprint: after.fingerprint,
            prompts: delta(FeatureKind::Prompt),
            resources: delta(FeatureKind::Resource),
            resource_templates: delta(FeatureKind::ResourceTemplate),
            instructions_changed: *instructions_changed,
        }])
    }

    /// Returns a source, or a `NOT_FOUND` error.
    pub fn require_source(&self, id: &SourceId) -> Result<&Arc<SourceState>> {
        self.source(id).ok_or_else(|| Error::new(Code::NotFound, format!("no source named `{id}`")))
    }

    /// Returns a tool that the source has or had, or a `TOOL_NOT_IMPLEMENTED` error.
    fn require_tool(&self, tool: &ToolId) -> Result<&ToolState> {
        let unknown = || Error::new(Code::ToolNotImplemented, format!("no tool named `{tool}`"));
        self.require_source(&tool.source)?.tools.get(&tool.name).ok_or_else(unknown)
    }

    /// Changes a copy of the source's state. Ignores unknown sources: `apply` cannot fail.
    fn update_source(&mut self, source: &SourceId, change: impl FnOnce(&mut SourceState)) {
        if let Some(state) = self.sources.get_mut(source) {
            change(Arc::make_mut(state));
        }
    }

    /// Changes the state of a tool. Ignores unknown tools.
    fn update_tool(&mut self, source: &SourceId, tool: &str, change: impl FnOnce(&mut ToolState)) {
        self.update_source(source, |state| {
            if let Some(tool) = state.tools.get_mut(tool) {
                change(tool);
            }
        });
    }
}

impl SourceState {
    /// Returns the state after a declaration: not discovered yet, and enabled unless the declaration says otherwise.
    pub fn new(kind: &str, origin: Origin, definition: Fingerprint, enabled: Option<bool>) -> SourceState {
        SourceState {
            kind: kind.to_owned(),
            origin,
            definition,
            declared_enabled: enabled,
            enabled_reference: None,
            enabled: enabled.unwrap_or(true),
            switched: None,
            removed: false,
            manifest: None,
            features: None,
            tools: BTreeMap::new(),
            last_manifests: BTreeMap::new(),
            withheld: BTreeSet::new(),
        }
    }

    /// Returns the name that agents see, or saw, of every tool that the source ever offered, by its own name. Names are
    /// unique, as in the catalogue: of several tools whose names become the same text, one keeps it and the others get a
    /// hash. Tools that are offered come first, then those whose own name is valid.
    pub fn tool_names(&self, prefix: &str) -> HashMap<&str, ToolName> {
        let mut owners: HashMap<ToolName, ((bool, bool), &str)> = HashMap::new();
        for (original, tool) in &self.tools {
            let name = ToolName::from_original(prefix, original);
            let rank = (tool.deprecated, name.without_prefix(prefix) != original);
            let owner = owners.entry(name).or_insert((rank, original));
            // In order of their own names, so the first of equal rank stays.
            if rank < owner.0 {
                *owner = (rank, original);
            }
        }
        let names = self.tools.keys().map(|original| {
            let name = ToolName::from_original(prefix, original);
            let is_owner = owners.get(&name).is_some_and(|(_, owner)| owner == original);
            (original.as_str(), if is_owner { name } else { ToolName::with_hash(prefix, original) })
        });
        names.collect()
    }

    /// Returns whether the source is enabled, if a command says otherwise than the declaration.
    pub fn enabled_by_command(&self) -> Option<bool> {
        match self.enabled_reference {
            Some(_) => self.switched,
            None => Some(self.enabled).filter(|enabled| *enabled != self.declared_enabled.unwrap_or(true)),
        }
    }

    /// Whether a command to enable or disable the source changes something.
    fn needs_switch(&self, enabled: bool) -> bool {
        self.enabled != enabled || (self.enabled_reference.is_some() && self.switched != Some(enabled))
    }

    /// Enables or disables the source.
    fn switch(&mut self, enabled: bool) {
        self.enabled = enabled;
        self.switched = Some(enabled);
    }

    /// Computes a delta by tool names alone, where the content of the previous manifest cannot be read: additions and
    /// removals are known, changes of a tool are not.
    fn delta_by_names(&self, after: &PackedManifest) -> Delta {
        let is_current = |name: &String| self.tools.get(name).is_some_and(|tool| !tool.deprecated);
        let offered = Delta::all_added(after).added;
        let names: std::collections::BTreeSet<&String> = offered.iter().collect();
        let gone = self.tools.iter().filter(|(name, tool)| !tool.deprecated && !names.contains(name));
        let removed: Vec<String> = gone.map(|(name, _)| name.clone()).collect();
        let unchanged = offered.iter().filter(|name| is_current(name)).count();
        let added = offered.into_iter().filter(|name| !is_current(name)).collect();
        Delta { added, removed, unchanged, ..Delta::default() }
    }
}

/// One event, or none where the state is already as requested.
fn event_if(is_needed: bool, event: Event) -> Vec<Event> {
    if is_needed { vec![event] } else { Vec::new() }
}

#[cfg(test)]
mod tests;
