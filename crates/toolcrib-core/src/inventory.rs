//! The folded truth: which sources there are, whether they are enabled, what each offers, and what became of each tool.
//! `decide` turns a wish into facts or refuses; `apply` takes facts in and never refuses.

mod command;
mod damage;
mod event;
mod reconcile;
mod stored_event;
mod tokens;

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::access::Token;
use crate::error::{Code, Error, Result};
use crate::fingerprint::Fingerprint;
use crate::manifest::Delta;
use crate::source::SourceId;
use crate::time::Timestamp;
use crate::tool::ToolId;

pub use command::{Command, Declaration, ManifestUpdate, NewToken, PreviousManifest, TokenChange};
pub use damage::{Damage, DamageLog};
pub use event::{Actor, Event, Origin, Record};
pub use reconcile::reconcile;
pub use stored_event::{StoredEvent, compare_versions, event_type};

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Inventory {
    /// The sequence number of the last record taken in.
    pub version: u64,
    sources: BTreeMap<SourceId, Arc<SourceState>>,
    /// Tokens that were not revoked, by their ids.
    tokens: Arc<BTreeMap<String, Token>>,
    /// Records that this build does not understand and passed over.
    pub unknown_events: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceState {
    pub kind: String,
    pub origin: Origin,
    /// Which stored definition is meant.
    pub definition: Fingerprint,
    /// What its declaration last said about being enabled, if anything.
    pub declared_enabled: Option<bool>,
    pub enabled: bool,
    /// A removed source stays for its history; it is listed nowhere.
    pub removed: bool,
    pub manifest: Option<Fingerprint>,
    /// Every tool it ever had.
    pub tools: BTreeMap<String, ToolState>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ToolState {
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    pub disabled: bool,
    /// No longer offered; remembered in case it returns.
    pub deprecated: bool,
}

impl Inventory {
    /// The sources that exist, removed ones excepted.
    pub fn sources(&self) -> impl Iterator<Item = (&SourceId, &Arc<SourceState>)> {
        self.sources.iter().filter(|(_, state)| !state.removed)
    }

    pub fn source(&self, id: &SourceId) -> Option<&Arc<SourceState>> {
        self.sources.get(id).filter(|state| !state.removed)
    }

    /// Every source that there is or was.
    pub fn all_source_ids(&self) -> impl Iterator<Item = &SourceId> {
        self.sources.keys()
    }

    /// The facts that make a wish come true. None means it is so already.
    pub fn decide(&self, command: &Command) -> Result<Vec<Event>> {
        match command {
            Command::Declare(declaration) => Ok(self.decide_declare(declaration)),
            Command::Enable(id) => {
                let state = self.require_source(id)?;
                Ok(event_if(!state.enabled, Event::SourceEnabled { source: id.clone() }))
            }
            Command::Disable(id) => {
                let state = self.require_source(id)?;
                Ok(event_if(state.enabled, Event::SourceDisabled { source: id.clone() }))
            }
            Command::Remove(id) => {
                let exists = self.source(id).is_some();
                Ok(event_if(exists, Event::SourceRemoved { source: id.clone() }))
            }
            Command::Record(recording) => self.decide_record(recording),
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
            Command::AcceptDamage { damage, records } => Ok(self.accept_damage(damage, records.as_deref())),
        }
    }

    /// Takes a fact in. Only the source it speaks of is copied.
    pub fn apply(&mut self, record: &Record) {
        self.version = record.seq;
        let at = record.at;
        match &record.event {
            Event::SourceDeclared { source, kind, origin, definition, enabled } => {
                let tools = self.sources.get(source).map(|old| old.tools.clone()).unwrap_or_default();
                let state = SourceState {
                    kind: kind.clone(),
                    origin: *origin,
                    definition: *definition,
                    declared_enabled: *enabled,
                    enabled: enabled.unwrap_or(true),
                    removed: false,
                    manifest: None,
                    tools,
                };
                self.sources.insert(source.clone(), Arc::new(state));
            }
            Event::SourceChanged { source, kind, origin, definition, enabled } => self.update_source(source, |state| {
                state.kind.clone_from(kind);
                state.origin = *origin;
                state.definition = *definition;
                state.declared_enabled = *enabled;
            }),
            Event::SourceEnabled { source } => self.update_source(source, |state| state.enabled = true),
            Event::SourceDisabled { source } => self.update_source(source, |state| state.enabled = false),
            Event::SourceRemoved { source } => self.update_source(source, |state| {
                state.removed = true;
                state.manifest = None;
                state.tools.values_mut().for_each(|tool| tool.deprecated = true);
            }),
            Event::InventoryRecorded { source, fingerprint, added, changed, removed, renamed: _ } => {
                self.update_source(source, |state| {
                    state.manifest = Some(*fingerprint);
                    for name in added {
                        let new = ToolState { created_at: at, updated_at: at, disabled: false, deprecated: false };
                        let tool = state.tools.entry(name.clone()).or_insert(new);
                        tool.deprecated = false;
                        tool.updated_at = at;
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
                        }
                    }
                });
            }
            Event::ToolEnabled { source, tool } => self.update_tool(source, tool, |state| state.disabled = false),
            Event::ToolDisabled { source, tool } => self.update_tool(source, tool, |state| state.disabled = true),
            Event::TokenCreated { token, name, role, hash, expires_at } => {
                let (id, name) = (token.clone(), name.clone());
                let made = Token { id, name, role: *role, hash: *hash, created_at: at, expires_at: *expires_at };
                Arc::make_mut(&mut self.tokens).insert(token.clone(), made);
            }
            Event::TokenChanged { token, name, role } => {
                if let Some(known) = Arc::make_mut(&mut self.tokens).get_mut(token) {
                    known.name.clone_from(name);
                    known.role = *role;
                }
            }
            Event::TokenRevoked { token, .. } => {
                Arc::make_mut(&mut self.tokens).remove(token);
            }
            // A lost record may have revoked any of them, so none is valid any more.
            Event::DamageAccepted { .. } => self.tokens = Arc::default(),
            Event::Unknown => self.unknown_events += 1,
        }
    }

    fn decide_declare(&self, declaration: &Declaration) -> Vec<Event> {
        let Declaration { source, kind, origin, definition, enabled } = declaration.clone();
        let Some(state) = self.source(&source) else {
            return vec![Event::SourceDeclared { source, kind, origin, definition, enabled }];
        };
        let changed = state.definition != definition || state.origin != origin || state.declared_enabled != enabled;
        let mut events = Vec::new();
        if changed {
            events.push(Event::SourceChanged { source: source.clone(), kind, origin, definition, enabled });
        }
        // Declaring again does not enable again; an edited `enabled` is a wish like any other.
        let wanted = enabled.unwrap_or(true);
        if state.declared_enabled != enabled && state.enabled != wanted {
            events.push(match wanted {
                true => Event::SourceEnabled { source },
                false => Event::SourceDisabled { source },
            });
        }
        events
    }

    fn decide_record(&self, recording: &ManifestUpdate) -> Result<Vec<Event>> {
        let ManifestUpdate { before, after, delta } = recording;
        let state = self.require_source(&after.source)?;
        if state.manifest == Some(after.fingerprint) {
            return Ok(Vec::new());
        }
        if state.manifest != before.fingerprint() {
            let message = format!("`{}` was discovered by somebody else meanwhile", after.source);
            return Err(Error::new(Code::Conflict, message));
        }
        let mut delta = match delta {
            Some(delta) => delta.clone(),
            None => Delta::between(before.manifest(), after)?,
        };
        if let PreviousManifest::Unreadable(_) = before {
            delta = state.delta_by_names(delta);
        }
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

    /// The source, or that there is none.
    pub fn require_source(&self, id: &SourceId) -> Result<&Arc<SourceState>> {
        self.source(id).ok_or_else(|| Error::new(Code::NotFound, format!("no source named `{id}`")))
    }

    fn require_tool(&self, tool: &ToolId) -> Result<&ToolState> {
        let unknown = || Error::new(Code::ToolNotImplemented, format!("no tool named `{tool}`"));
        self.require_source(&tool.source)?.tools.get(&tool.name).ok_or_else(unknown)
    }

    fn update_source(&mut self, source: &SourceId, change: impl FnOnce(&mut SourceState)) {
        if let Some(state) = self.sources.get_mut(source) {
            change(Arc::make_mut(state));
        }
    }

    fn update_tool(&mut self, source: &SourceId, tool: &str, change: impl FnOnce(&mut ToolState)) {
        self.update_source(source, |state| {
            if let Some(tool) = state.tools.get_mut(tool) {
                change(tool);
            }
        });
    }
}

impl SourceState {
    /// What differs when the old content is lost: names tell what came and went, and nothing tells what changed.
    fn delta_by_names(&self, all_added: Delta) -> Delta {
        let current = |name: &String| self.tools.get(name).is_some_and(|tool| !tool.deprecated);
        let offered = all_added.added;
        let names: std::collections::BTreeSet<&String> = offered.iter().collect();
        let gone = self.tools.iter().filter(|(name, tool)| !tool.deprecated && !names.contains(name));
        let removed: Vec<String> = gone.map(|(name, _)| name.clone()).collect();
        let unchanged = offered.iter().filter(|name| current(name)).count();
        let added = offered.into_iter().filter(|name| !current(name)).collect();
        Delta { added, removed, unchanged, ..Delta::default() }
    }
}

fn event_if(needed: bool, event: Event) -> Vec<Event> {
    if needed { vec![event] } else { Vec::new() }
}

#[cfg(test)]
mod tests;
