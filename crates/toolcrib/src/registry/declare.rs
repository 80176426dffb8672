//! Sources that are declared at run time: by a command, a request, or out of another client's configuration.

use std::sync::Arc;

use serde::Serialize;
use toolcrib_core::inventory::{Actor, Command, Origin};
use toolcrib_core::{Code, Error, Result, Source, SourceId};

use super::Registry;

/// What declaring a source comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum DeclareOutcome {
    New,
    /// It was declared otherwise before.
    Changed,
    /// It is declared so already.
    Same,
}

impl Registry {
    /// Declares a source at run time and contacts nobody: it is discovered at the first need.
    pub async fn declare_lazily(&self, source: &Source, actor: Actor) -> Result<DeclareOutcome> {
        let declared = self.preview_declare(source)?;
        if declared != DeclareOutcome::Same {
            self.shared.ensure_usable()?;
            let declaration = self.shared.declaration(source, Origin::Runtime)?;
            // First the content, then the fact that refers to it.
            self.shared.store.put_definition(declaration.definition, source).await?;
            let (id, definition) = (declaration.source.clone(), declaration.definition);
            self.execute(Command::Declare(declaration), actor).await?;
            self.shared.store.remove_definitions(&id, Some(definition)).await?;
        }
        Ok(declared)
    }

    /// What declaring a source would come to, or why it would be refused.
    pub fn preview_declare(&self, source: &Source) -> Result<DeclareOutcome> {
        let snapshot = self.shared.snapshot.load();
        let state = snapshot.inventory.source(&source.id);
        let is_wrong = snapshot.invalid_sources.get(&source.id).is_some_and(|failure| failure.code != Code::Forbidden);
        if state.is_some_and(|state| state.origin == Origin::Config) || is_wrong {
            let message = format!("`{}` is declared in the configuration, which wins; change it there", source.id);
            return Err(Error::new(Code::Conflict, message).with_retryable(false));
        }
        let command = Command::Declare(self.shared.declaration(source, Origin::Runtime)?);
        Ok(match state {
            None => DeclareOutcome::New,
            Some(_) if snapshot.inventory.decide(&command)?.is_empty() => DeclareOutcome::Same,
            Some(_) => DeclareOutcome::Changed,
        })
    }

    /// Every source as it was declared, in the order of their ids: without defaults, and without what the environment
    /// of this process says. One that a command enabled or disabled since says so.
    pub fn declarations(&self) -> Vec<(Origin, Source)> {
        let snapshot = self.shared.snapshot.load();
        let declared = snapshot
            .declared_sources
            .values()
            .filter_map(|source| Some((source, snapshot.inventory.source(&source.id)?)));
        let as_it_is = declared.map(|(source, state)| {
            let mut source = Source::clone(source);
            if state.enabled != state.declared_enabled.unwrap_or(true) {
                source.settings.enabled = Some(state.enabled);
            }
            (state.origin, source)
        });
        as_it_is.collect()
    }

    /// One source as it was declared, whatever a command said since.
    pub fn declaration(&self, id: &SourceId) -> Option<Arc<Source>> {
        self.shared.snapshot.load().declared_sources.get(id).cloned()
    }
}
