//! Declaring sources at run time: by a command, a REST request, or an import from another client's configuration.
//!
//! A declaration is two writes: the definition, which may hold secrets and can be deleted, and the event, which refers
//! to it by a keyed hash and stays for ever. The configuration takes precedence: a name that it declares cannot be
//! declared at run time.

use std::sync::Arc;

use serde::Serialize;
use toolcrib_core::inventory::{Actor, Command, Event, Origin};
use toolcrib_core::{Code, Error, Result, Source, SourceId};

use super::{EnabledState, Sources};
use crate::refresh::{Refresh, RefreshOutcome, Requester};
use crate::trace::Trace;

/// Effect of declaring a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum DeclareOutcome {
    /// The source is new.
    New,
    /// The source was declared differently before.
    Changed,
    /// The source is declared like this already.
    Same,
}

impl Sources<'_> {
    /// Declares a source at run time and discovers it at once, as part of `trace`. The source stays declared when its
    /// discovery fails.
    pub async fn declare(&self, source: Source, actor: Actor, trace: Option<Trace>) -> Result<RefreshOutcome> {
        let id = source.id.clone();
        self.declare_lazily(&source, actor.clone()).await?;
        let requester = Requester { actor: Some(actor), trace };
        self.registry.refresher.refresh_one(&id, Refresh { force: true, requester, ..Refresh::brief() }).await
    }
    /// Declares a source at run time without contacting it: it is discovered when it is first needed. Fails with
    /// `CONFLICT` if the configuration declares the name. Declaring the same thing again writes nothing.
    pub async fn declare_lazily(&self, source: &Source, actor: Actor) -> Result<DeclareOutcome> {
        let outcome = self.preview_declare(source)?;
        if outcome != DeclareOutcome::Same {
            self.write_declaration(source, None, actor).await?;
        }
        Ok(outcome)
    }

    /// Changes the declaration of a source, if one is given, and whether it is enabled, in one write. Fails like
    /// [`Sources::declare_lazily`].
    pub async fn change(
        &self,
        id: &SourceId,
        declaration: Option<&Source>,
        state: Option<EnabledState>,
        actor: Actor,
    ) -> Result<DeclareOutcome> {
        self.registry.state.snapshot().environment.ensure_not_declared(id)?;
        let changed = match declaration {
            Some(source) if self.preview_declare(source)? != DeclareOutcome::Same => Some(source),
            Some(_) | None => None,
        };
        let switch = state.map(|state| state.source_command(id));
        let events = match changed {
            Some(source) => self.write_declaration(source, switch, actor).await?,
            None => {
                let commands: Vec<Command> = switch.into_iter().collect();
                self.registry.state.execute(&commands, actor, self.precondition).await?
            }
        };
        Ok(if events.is_empty() { DeclareOutcome::Same } else { DeclareOutcome::Changed })
    }

    /// Stores a definition, then writes the event that refers to it together with those of another command.
    async fn write_declaration(&self, source: &Source, switch: Option<Command>, actor: Actor) -> Result<Vec<Event>> {
        let state = &self.registry.state;
        state.snapshot().ensure_usable()?;
        let declaration = state.declaration(source, Origin::Runtime)?;
        // First the content, then the event that refers to it.
        let definition = declaration.definition;
        state.store.put_definition(definition, source).await?;
        let commands: Vec<Command> = std::iter::once(Command::Declare(declaration)).chain(switch).collect();
        let events = state.execute(&commands, actor, self.precondition).await;
        // The event may have been written although the store failed; it needs its definition then.
        if let Err(error) = &events
            && matches!(error.code, Code::StoreUnavailable | Code::Internal)
        {
            return events;
        }
        // An old definition may hold secrets, and so may the one of a refused change.
        let removed = state.remove_outdated_rows(&source.id).await;
        let events = events?;
        removed?;
        let current = state.snapshot().inventory.source(&source.id).map(|state| state.definition);
        // Another process that declared the source meanwhile may have removed it.
        if current == Some(definition) {
            state.store.put_definition(definition, source).await?;
        }
        Ok(events)
    }

    /// Removes a source that was declared at run time. A source of the configuration must be removed there. Its
    /// definitions and its log file are deleted, because they may hold secrets; its history and manifests stay.
    pub async fn remove(&self, id: &SourceId, actor: Actor) -> Result<()> {
        let snapshot = self.registry.state.snapshot();
        let state =
            snapshot.inventory.source(id).ok_or_else(|| snapshot.unknown_source_error(id.as_str(), |_| true))?;
        snapshot.environment.ensure_not_declared(id)?;
        if state.origin == Origin::Config {
            let message =
                format!("`{id}` is declared in the configuration; remove it there, or run `toolcrib disable {id}`");
            return Err(Error::new(Code::Conflict, message).with_retryable(false));
        }
        // The event first: if the process ends in between, the source is removed, and only rows without use are left.
        self.registry.state.execute(&[Command::Remove(id.clone())], actor, self.precondition).await?;
        self.registry.state.remove_outdated_rows(id).await?;
        if let Some(logs) = &self.registry.options.logs_directory {
            // The log file goes with its source; it may not exist.
            let _ = std::fs::remove_file(crate::connectors::server_log_path(logs, id));
        }
        Ok(())
    }
    /// Marks one or all sources as stale: they are discovered again when they are next needed, and their tools stay
    /// listed until then.
    pub async fn invalidate(&self, source: Option<&SourceId>) -> Result<()> {
        let snapshot = self.registry.state.snapshot();
        snapshot.ensure_usable()?;
        let ids: Vec<SourceId> = match source {
            Some(id) if snapshot.inventory.source(id).is_none() => {
                return Err(snapshot.unknown_source_error(id.as_str(), |_| true));
            }
            Some(id) => vec![id.clone()],
            None => snapshot.inventory.sources().map(|(id, _)| id.clone()).collect(),
        };
        for id in &ids {
            // Also holds for a discovery that is running now, which may have read the list before this request.
            self.registry.state.store.invalidate(id).await?;
        }
        self.registry.state.catch_up().await
    }
    /// Returns what declaring a source would do, or why it would be rejected. Reads the snapshot only.
    pub fn preview_declare(&self, source: &Source) -> Result<DeclareOutcome> {
        let snapshot = self.registry.state.snapshot();
        let state = snapshot.inventory.source(&source.id);
        // `Forbidden` marks a source of an untrusted file, which does not count as declared.
        let is_invalid = snapshot.invalid_sources.get(&source.id).is_some_and(|error| error.code != Code::Forbidden);
        if state.is_some_and(|state| state.origin == Origin::Config) || is_invalid {
            let message =
                format!("`{}` is declared in the configuration, which takes precedence; change it there", source.id);
            return Err(Error::new(Code::Conflict, message).with_retryable(false));
        }
        let command = Command::Declare(self.registry.state.declaration(source, Origin::Runtime)?);
        Ok(match state {
            None => DeclareOutcome::New,
            Some(_) if snapshot.inventory.decide(&command)?.is_empty() => DeclareOutcome::Same,
            Some(_) => DeclareOutcome::Changed,
        })
    }

    /// Returns every source as it was declared, ordered by id, without default settings and what the environment
    /// overrides or declares. Reflects whether a command has enabled or disabled it since.
    pub fn declarations(&self) -> Vec<(Origin, Source)> {
        let snapshot = self.registry.state.snapshot();
        let declared = snapshot
            .declared_sources
            .values()
            .filter(|source| !snapshot.environment.declared().contains_key(&source.id))
            .filter_map(|source| Some((source, snapshot.inventory.source(&source.id)?)));
        let current = declared.map(|(source, state)| {
            let mut source = Source::clone(source);
            if let Some(enabled) = state.enabled_by_command() {
                source.settings.references.remove("enabled");
                source.settings.enabled = Some(enabled);
            }
            (state.origin, source)
        });
        current.collect()
    }

    /// Returns one source as it was declared, whatever commands have changed since.
    pub fn declaration(&self, id: &SourceId) -> Option<Arc<Source>> {
        self.registry.state.snapshot().declared_sources.get(id).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RegistryOptions;
    use crate::store::{MemoryStore, Store};
    use crate::testkit::{ScriptedSource, config_with_sources, open_with_connectors};

    /// A node that was paused between the removal and its clean-up knows nothing of the new declaration.
    #[tokio::test]
    async fn what_another_node_has_declared_since_is_not_removed() {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let shop = ScriptedSource::new(["order"]);
        let open = async || {
            let options = RegistryOptions { store: Some(store.clone()), ..RegistryOptions::default() };
            let options = RegistryOptions { follow_writes: false, environment: Vec::new(), ..options };
            let factory = ScriptedSource::connector_factory([("shop", &shop)]);
            open_with_connectors(config_with_sources([]), options, factory).await.unwrap()
        };
        let source = config_with_sources(["shop"]).sources.remove(0).source.unwrap();
        let (paused, other) = (open().await, open().await);
        paused.sources().declare(source.clone(), Actor::new("a"), None).await.unwrap();
        paused.sources().remove(&source.id, Actor::new("a")).await.unwrap();
        assert!(store.source_statuses().await.unwrap().is_empty());

        other.sources().declare(source.clone(), Actor::new("b"), None).await.unwrap();
        paused.state.remove_outdated_rows(&source.id).await.unwrap();
        let definition = other.inventory().source(&source.id).unwrap().definition;
        assert_eq!(store.definitions(&[definition]).await.unwrap(), [(definition, source.clone())]);
        assert!(store.source_statuses().await.unwrap()[&source.id].checked_at.is_some());
    }
}
