//! Assembles each source's part of the catalogue: its definition with defaults and overrides, its segment, its options.
//!
//! Order of precedence for each setting: environment variables of this process, then the declaration, then `defaults`
//! of the configuration. Only `touched` sources are read and rebuilt; everything else is taken over from the state
//! before.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use toolcrib_catalog::{CatalogSource, Segment, SourceOptions};
use toolcrib_config::resolve_settings;
use toolcrib_core::features::RecordedFeatures;
use toolcrib_core::fingerprint::Fingerprint;
use toolcrib_core::inventory::{Inventory, SourceState};
use toolcrib_core::manifest::PackedManifest;
use toolcrib_core::source::SourceSettings;
use toolcrib_core::{Result, Source, SourceId};

use super::EnvironmentOverrides;
use super::publish::WriterState;
use crate::connectors::builtin::BuiltinTools;
use crate::secret::{ReferenceValues, file_paths, resolve_variables};
use crate::store::Store;

/// Returns the definitions of all sources in `inventory`; reads those of `touched` sources that changed.
pub(super) async fn load_definitions(
    store: &dyn Store,
    writer: &WriterState,
    inventory: &Inventory,
    touched: &BTreeSet<SourceId>,
) -> Result<BTreeMap<SourceId, (Fingerprint, Arc<Source>)>> {
    // Keep what is known of sources that still exist.
    let mut definitions = writer.definitions.clone();
    definitions.retain(|id, _| inventory.source(id).is_some());
    let missing: BTreeMap<Fingerprint, SourceId> = touched
        .iter()
        .filter_map(|id| inventory.source(id).map(|state| (state.definition, id.clone())))
        .filter(|(name, id)| definitions.get(id).is_none_or(|(known, _)| known != name))
        .collect();
    if missing.is_empty() {
        return Ok(definitions);
    }
    let names: Vec<Fingerprint> = missing.keys().copied().collect();
    for (name, source) in store.definitions(&names).await? {
        definitions.insert(source.id.clone(), (name, Arc::new(source)));
    }
    Ok(definitions)
}

/// Returns the segments of all recorded manifests; reads manifests of `touched` sources that are new. A segment is built
/// once per manifest. A manifest that cannot be read leaves its source without tools until the next discovery.
pub(super) async fn load_segments(
    store: &dyn Store,
    writer: &WriterState,
    inventory: &Inventory,
    definitions: &BTreeMap<SourceId, (Fingerprint, Arc<Source>)>,
    touched: &BTreeSet<SourceId>,
) -> Result<BTreeMap<SourceId, Arc<Segment>>> {
    // Keep segments of manifests that are still current.
    let mut segments = writer.segments.clone();
    segments
        .retain(|id, segment| inventory.source(id).is_some_and(|state| state.manifest == Some(segment.fingerprint())));
    let missing: Vec<Fingerprint> = touched
        .iter()
        .filter(|id| !segments.contains_key(*id))
        .filter_map(|id| inventory.source(id).and_then(|state| state.manifest))
        .collect();
    if missing.is_empty() {
        return Ok(segments);
    }
    for packed in store.manifests(&missing).await? {
        let is_builtin = definitions.get(&packed.source).is_some_and(|(_, source)| source.kind.is_builtin());
        let id: SourceId = packed.source.clone();
        let packed: Arc<PackedManifest> = Arc::new(packed);
        // Built-in tools have bare names; all others are `source__tool`.
        let segment = if is_builtin { Segment::without_prefix(packed) } else { Segment::with_prefix(packed) };
        segments.insert(id, Arc::new(segment));
    }
    Ok(segments)
}

/// Returns the features of all sources; reads the summaries of `touched` sources that are new. Their lists are read when
/// they are needed: a server may have thousands of resources. A summary that cannot be read leaves its source without
/// prompts and resources until the next discovery.
pub(super) async fn load_features(
    store: &dyn Store,
    writer: &WriterState,
    inventory: &Inventory,
    touched: &BTreeSet<SourceId>,
) -> Result<BTreeMap<SourceId, Arc<RecordedFeatures>>> {
    let mut features = writer.features.clone();
    features.retain(|id, known| {
        inventory.source(id).is_some_and(|state| state.features == Some(known.summary.fingerprint))
    });
    let missing: Vec<Fingerprint> = touched
        .iter()
        .filter(|id| !features.contains_key(*id))
        .filter_map(|id| inventory.source(id).and_then(|state| state.features))
        .collect();
    if missing.is_empty() {
        return Ok(features);
    }
    for summary in store.feature_summaries(&missing).await? {
        features.insert(summary.source.clone(), Arc::new(RecordedFeatures::new(summary)));
    }
    Ok(features)
}

/// Builds the catalogue entry of a source that has been discovered. `None` leaves the source out of the catalogue: it
/// is not discovered, or its manifest or definition cannot be read.
pub(super) fn build_catalog_source(
    writer: &mut WriterState,
    state: Arc<SourceState>,
    source: Source,
    builtins: &BuiltinTools,
) -> Option<Arc<CatalogSource>> {
    let segment = writer.segment(&source.id)?.clone();
    let mut options = SourceOptions::from_source(&source);
    if source.kind.is_builtin() {
        // Another process may have discovered them: load their handlers and policies here too.
        if !builtins.is_loaded(&source) {
            if !file_paths(&source.kind).is_empty() {
                // No file is read under the writer lock: they are added to the catalogue afterwards.
                writer.unresolved_sources.insert(source.id.clone(), Arc::new(source));
                return None;
            }
            if let Err(error) = builtins.load_source(&source, &ReferenceValues::default()) {
                tracing::warn!(server_name = %source.id, %error, "built-in tools cannot be used");
                return None;
            }
        }
        builtins.add_source_options(&source.id, &mut options);
    }
    let features = writer.features(&source.id).cloned();
    Some(Arc::new(CatalogSource::new(segment, state, options).with_features(features)))
}

/// Returns a source with the environment's overrides and the default settings applied.
pub(super) fn effective_source(
    source: &Source,
    environment: &EnvironmentOverrides,
    defaults: &SourceSettings,
) -> Source {
    let overridden = environment.get(&source.id).map(|overrides| overrides.apply(source));
    let source = overridden.unwrap_or_else(|| source.clone());
    // The configuration is checked when it is read, with an error for people. This is called with every record.
    let (settings, unresolved) = resolve_settings(&source.settings, &resolve_variables);
    for error in unresolved {
        tracing::debug!(server_name = %source.id, key = error.key, "a setting is not used: {}", error.message);
    }
    Source { settings: settings.with_defaults(defaults), ..source }
}
