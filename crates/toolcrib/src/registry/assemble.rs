//! Each source's share of the catalogue: its definition as it holds here, its segment, its part.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use toolcrib_core::catalog::{CatalogSource, Segment, SourceOptions};
use toolcrib_core::config::{Override, overrides_from_env};
use toolcrib_core::fingerprint::Fingerprint;
use toolcrib_core::inventory::Inventory;
use toolcrib_core::manifest::PackedManifest;
use toolcrib_core::{Result, Source, SourceId};

use super::RegistryInner;
use super::publish::WriterState;

impl RegistryInner {
    /// Definitions for the sources that need one they do not have yet.
    pub(super) async fn load_definitions(
        &self,
        writer: &WriterState,
        inventory: &Inventory,
        touched: &BTreeSet<SourceId>,
    ) -> Result<BTreeMap<SourceId, (Fingerprint, Arc<Source>)>> {
        let mut definitions = writer.definitions.clone();
        definitions.retain(|id, _| inventory.source(id).is_some());
        let wanted: BTreeMap<Fingerprint, SourceId> = touched
            .iter()
            .filter_map(|id| inventory.source(id).map(|state| (state.definition, id.clone())))
            .filter(|(name, id)| definitions.get(id).is_none_or(|(known, _)| known != name))
            .collect();
        if wanted.is_empty() {
            return Ok(definitions);
        }
        let names: Vec<Fingerprint> = wanted.keys().copied().collect();
        for (name, source) in self.store.definitions(&names).await? {
            definitions.insert(source.id.clone(), (name, Arc::new(source)));
        }
        Ok(definitions)
    }

    /// Segments for the manifests that are new; one manifest, one segment.
    pub(super) async fn load_segments(
        &self,
        writer: &WriterState,
        inventory: &Inventory,
        definitions: &BTreeMap<SourceId, (Fingerprint, Arc<Source>)>,
        touched: &BTreeSet<SourceId>,
    ) -> Result<BTreeMap<SourceId, Arc<Segment>>> {
        let mut segments = writer.segments.clone();
        segments.retain(|id, segment| {
            inventory.source(id).is_some_and(|state| state.manifest == Some(segment.fingerprint()))
        });
        let wanted: Vec<Fingerprint> = touched
            .iter()
            .filter(|id| !segments.contains_key(*id))
            .filter_map(|id| inventory.source(id).and_then(|state| state.manifest))
            .collect();
        if wanted.is_empty() {
            return Ok(segments);
        }
        for packed in self.store.manifests(&wanted).await? {
            let builtin = definitions.get(&packed.source).is_some_and(|(_, source)| source.kind.is_builtin());
            let (id, packed): (SourceId, Arc<PackedManifest>) = (packed.source.clone(), Arc::new(packed));
            let segment = if builtin { Segment::without_prefix(packed) } else { Segment::with_prefix(packed) };
            segments.insert(id, Arc::new(segment));
        }
        Ok(segments)
    }

    /// A source's share of the catalogue, if it is enabled here and has been discovered.
    pub(super) fn build_catalog_source(&self, writer: &WriterState, id: &SourceId) -> Option<Arc<CatalogSource>> {
        let state = self.enabled_source(&writer.inventory, id)?;
        let segment = writer.segment(id)?;
        let (_, definition) = writer.definitions.get(id)?;
        let source = self.effective_source(definition);
        let mut manner = SourceOptions::from_source(&source);
        if source.kind.is_builtin() {
            // Whoever lists them has their handlers and verdicts too, even where others discovered them.
            let builtins = self.connectors.builtins();
            if let Err(error) = builtins.load_source(&source) {
                tracing::warn!(server_name = %id, %error, "built-in tools cannot be used");
                return None;
            }
            builtins.add_source_options(id, &mut manner);
        }
        Some(Arc::new(CatalogSource::new(segment.clone(), state.clone(), manner)))
    }

    pub(super) fn enabled_source<'a>(
        &self,
        inventory: &'a Inventory,
        id: &SourceId,
    ) -> Option<&'a Arc<toolcrib_core::inventory::SourceState>> {
        inventory.source(id).filter(|state| self.is_enabled(id, state.enabled))
    }

    pub(crate) fn is_enabled(&self, id: &SourceId, enabled: bool) -> bool {
        self.source_override(id).and_then(|overriding| overriding.enabled).unwrap_or(enabled)
    }

    pub(super) fn effective_sources(&self, writer: &WriterState) -> Arc<BTreeMap<SourceId, Arc<Source>>> {
        let sources =
            writer.definitions.iter().map(|(id, (_, source))| (id.clone(), Arc::new(self.effective_source(source))));
        Arc::new(sources.collect())
    }

    /// What the environment says of a source, for this process alone.
    pub(super) fn source_override(&self, id: &SourceId) -> Option<Override> {
        if self.options.environment.is_empty() {
            return None;
        }
        overrides_from_env(self.options.environment.iter().cloned(), [id]).by_source.remove(id)
    }

    pub(super) fn effective_source(&self, source: &Source) -> Source {
        let overridden = self.source_override(&source.id).map(|overriding| overriding.apply(source));
        let source = overridden.unwrap_or_else(|| source.clone());
        Source { settings: source.settings.with_defaults(&self.default_settings.load()), ..source }
    }
}
