//! Connection fingerprints: keyed hashes of what each source connects to, by which a snapshot tells that the connection
//! data of a tool list has changed.
//!
//! A snapshot is published without reading a file. Sources whose connection data is unchanged keep their fingerprint;
//! for new or changed ones it is computed at once if they name no file, and is unknown otherwise. The writer that
//! published such a source reads its files after the writer lock is released and swaps the fingerprint in, before its
//! own caller continues. Other readers may see the snapshot in between. An unknown fingerprint means to them what it
//! means everywhere: nothing is known to have changed, so the list is as fresh as its age says. A reader that can wait
//! reads the files itself first ([`State::check_references`]).

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::{StreamExt, stream};
use toolcrib_core::fingerprint::Fingerprint;
use toolcrib_core::{Source, SourceId};

use super::publish::WriterState;
use super::{Snapshot, State};
use crate::secret::{ReferenceValues, file_paths};

/// Maximum number of sources whose files are read at once, each file on a thread of its own.
const MAX_PARALLEL_SOURCES: usize = 32;

impl State {
    /// Reads references again where their values may have changed, and publishes the new connection fingerprints. A
    /// source whose fingerprint changed becomes stale.
    pub(crate) async fn check_references(&self, among: Option<&[SourceId]>) {
        let snapshot = self.snapshot();
        // The environment of a process does not change; a file may be rewritten, and trust may have been granted.
        let may_have_changed = |source: &Source| {
            !snapshot.connection_fingerprints.contains_key(&source.id) || !file_paths(&source.kind).is_empty()
        };
        let all = among.is_none().then(|| snapshot.effective_sources.values()).into_iter().flatten();
        let some = among.unwrap_or_default().iter().filter_map(|id| snapshot.effective_sources.get(id));
        // The references of a source that must not be contacted are not resolved: an untrusted file could name any
        // secret of the user.
        let is_trusted = |source: &Source| snapshot.ensure_trusted(&source.id).is_ok();
        let candidates = all.chain(some).filter(|source| is_trusted(source) && may_have_changed(source));
        let read = self.read_references(candidates.cloned().collect()).await;
        self.publish_values(&read);
    }

    /// Reads the references of a source, publishes its connection fingerprint and returns it.
    pub(crate) async fn read_fingerprint(&self, source: &Source) -> Option<Fingerprint> {
        let values = self.connectors.secret_files().read_for(&source.kind).await;
        let fingerprint = self.connection_fingerprint(source, &values);
        self.publish_fingerprints(&[(source, fingerprint)]);
        fingerprint
    }

    /// Publishes connection fingerprints. Does nothing for a source whose configuration or trust has changed since.
    pub(crate) fn publish_fingerprints(&self, fingerprints: &[(&Source, Option<Fingerprint>)]) {
        let snapshot = self.snapshot.load();
        let is_known = |(source, fingerprint): &(&Source, Option<Fingerprint>)| {
            snapshot.connection_fingerprints.get(&source.id) == Some(fingerprint)
        };
        if !fingerprints.iter().all(is_known) {
            self.update_snapshot(|snapshot| snapshot.set_connections(fingerprints));
        }
    }

    /// Returns the connection fingerprint of a source with the given values.
    pub(crate) fn connection_fingerprint(&self, source: &Source, values: &ReferenceValues) -> Option<Fingerprint> {
        values.connection_fingerprint(&self.store_key, &source.kind)
    }

    /// Reads the files of sources that were published without, and publishes what depends on them: the connection
    /// fingerprints, and built-in tools whose `roots` are in a file.
    pub(super) async fn resolve_published(&self, sources: BTreeMap<SourceId, Arc<Source>>) {
        let snapshot = self.snapshot();
        let is_needed = |source: &Arc<Source>| source.kind.is_builtin() || snapshot.ensure_trusted(&source.id).is_ok();
        let read = self.read_references(sources.into_values().filter(is_needed).collect()).await;
        self.publish_values(&read);
        for (source, values) in read.iter().filter(|(source, _)| source.kind.is_builtin()) {
            let is_discovered = snapshot.inventory.source(&source.id).is_some_and(|state| state.manifest.is_some());
            if is_discovered && snapshot.is_enabled(&source.id) {
                self.publish_builtins(source, values).await;
            }
        }
    }

    /// Returns the fingerprints of sources that are new, or have other connection data than in the current snapshot.
    /// Those that need a file are unknown, and the writer is left to read it. Called with the writer lock held.
    pub(super) fn changed_connections(
        &self,
        writer: &mut WriterState,
        sources: &BTreeMap<SourceId, Arc<Source>>,
    ) -> BTreeMap<SourceId, Option<Fingerprint>> {
        let before = self.snapshot();
        let mut changed = BTreeMap::new();
        for (id, source) in sources {
            let is_known = before.has_connection(source) && before.connection_fingerprints.contains_key(id);
            if is_known || before.ensure_trusted(id).is_err() {
                continue;
            }
            let fingerprint = if file_paths(&source.kind).is_empty() {
                self.connection_fingerprint(source, &ReferenceValues::default())
            } else {
                writer.unresolved.insert(id.clone(), source.clone());
                None
            };
            changed.insert(id.clone(), fingerprint);
        }
        changed
    }

    /// Reads the files of several sources. Each file has its own deadline.
    async fn read_references(&self, sources: Vec<Arc<Source>>) -> Vec<(Arc<Source>, ReferenceValues)> {
        let read = async |source: Arc<Source>| {
            let values = self.connectors.secret_files().read_for(&source.kind).await;
            (source, values)
        };
        stream::iter(sources).map(read).buffer_unordered(MAX_PARALLEL_SOURCES).collect().await
    }

    /// Publishes the fingerprints of values that were read.
    fn publish_values(&self, read: &[(Arc<Source>, ReferenceValues)]) {
        let fingerprints: Vec<(&Source, Option<Fingerprint>)> =
            read.iter().map(|(source, values)| (&**source, self.connection_fingerprint(source, values))).collect();
        self.publish_fingerprints(&fingerprints);
    }
}

impl Snapshot {
    /// Whether a source connects as this configuration says, with references unresolved.
    pub(super) fn has_connection(&self, source: &Source) -> bool {
        self.effective_sources.get(&source.id).is_some_and(|known| known.kind == source.kind)
    }

    /// Replaces changed fingerprints, and drops those of sources that are removed or not trusted.
    pub(super) fn replace_connections(&mut self, changed: &BTreeMap<SourceId, Option<Fingerprint>>) {
        let mut fingerprints = BTreeMap::clone(&self.connection_fingerprints);
        fingerprints.retain(|id, _| self.effective_sources.contains_key(id) && self.ensure_trusted(id).is_ok());
        fingerprints.extend(changed.clone());
        self.connection_fingerprints = Arc::new(fingerprints);
    }

    /// Sets fingerprints, except for sources that have another configuration or are not trusted.
    fn set_connections(&mut self, fingerprints: &[(&Source, Option<Fingerprint>)]) {
        let is_current = |source: &Source| self.has_connection(source) && self.ensure_trusted(&source.id).is_ok();
        let current = fingerprints.iter().filter(|(source, _)| is_current(source));
        let current: Vec<_> = current.map(|(source, fingerprint)| (source.id.clone(), *fingerprint)).collect();
        Arc::make_mut(&mut self.connection_fingerprints).extend(current);
    }
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};
    use std::time::Duration;

    use serde_json::json;
    use tempfile::TempDir;
    use toolcrib_config::Config;
    use toolcrib_core::freshness::Freshness;
    use toolcrib_core::inventory::{Actor, Command};

    use super::*;
    use crate::refresh::{RefreshStatus, RequiredFreshness};
    use crate::testkit::ScriptedSource;
    use crate::{Registry, RegistryOptions};

    fn id(name: &str) -> SourceId {
        SourceId::parse(name).unwrap()
    }

    /// Registry with the sources `plain` and `secret`, which has been discovered with a token from a file.
    struct Fixture {
        registry: Registry,
        token: PathBuf,
        _directory: TempDir,
    }

    impl Fixture {
        async fn open() -> Fixture {
            let directory = tempfile::tempdir().unwrap();
            let token = directory.path().join("token");
            std::fs::write(&token, "first").unwrap();
            let secret = json!({ "command": "x", "env": { "TOKEN": format!("${{file:{}}}", token.display()) } });
            let config = json!({ "sources": { "plain": { "command": "y" }, "secret": secret } }).to_string();
            let config = Config::read(&config, "toolcrib.json", Path::new(".")).unwrap();
            let scripted = ScriptedSource::new(["push"]);
            let factory = ScriptedSource::connector_factory([("plain", &scripted), ("secret", &scripted)]);
            let options = RegistryOptions { connector_factory: Some(factory), ..RegistryOptions::default() };
            let registry = Registry::open(config, options).await.unwrap();
            let outcomes = registry.refresher.ensure_freshness(RequiredFreshness::Fresh, None).await;
            assert!(outcomes.iter().all(|outcome| outcome.status == RefreshStatus::Success));
            Fixture { registry, token, _directory: directory }
        }

        /// Publishes several changes of the source `plain`.
        async fn change_plain(&self) {
            let plain = id("plain");
            for command in [Command::Disable(plain.clone()), Command::Enable(plain)] {
                self.registry.execute(command, Actor::new("test")).await.unwrap();
            }
        }

        fn fingerprint(&self) -> Option<Fingerprint> {
            self.registry.state.snapshot().connection_fingerprints[&id("secret")]
        }

        fn freshness(&self) -> Freshness {
            let state = &self.registry.state;
            state.snapshot().freshness(&id("secret"), state.now())
        }
    }

    #[tokio::test]
    async fn changes_of_other_sources_do_not_read_a_file_again() {
        let fixture = Fixture::open().await;
        let first = fixture.fingerprint();
        assert!(first.is_some());
        std::fs::write(&fixture.token, "second").unwrap();
        fixture.change_plain().await;
        assert_eq!((fixture.fingerprint(), fixture.freshness()), (first, Freshness::Fresh));
        fixture.registry.state.check_references(None).await;
        assert_ne!(fixture.fingerprint(), first);
        assert_eq!(fixture.freshness(), Freshness::Stale, "a rotated token makes the list stale");
        std::fs::remove_file(&fixture.token).unwrap();
        fixture.change_plain().await;
        assert_eq!(fixture.freshness(), Freshness::Stale);
        fixture.registry.state.check_references(None).await;
        assert_eq!(
            (fixture.fingerprint(), fixture.freshness()),
            (None, Freshness::Fresh),
            "nothing is known to differ"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_file_that_hangs_delays_no_write_of_another_source() {
        let fixture = Fixture::open().await;
        let path = fixture.token.to_str().unwrap();
        let hung = fixture.registry.state.connectors.secret_files().hang(path);
        // Another source with the same file is declared: its writer waits for the file.
        let mut other = Source::clone(&fixture.registry.state.snapshot().effective_sources[&id("secret")]);
        other.id = id("other");
        let started = tokio::time::Instant::now();
        let registry = fixture.registry.clone();
        let declared = async move { registry.sources().declare_lazily(&other, Actor::new("test")).await };
        let declaring = tokio::spawn(declared);
        while !fixture.registry.state.snapshot().effective_sources.contains_key(&id("other")) {
            tokio::task::yield_now().await;
        }
        fixture.change_plain().await;
        assert_eq!(started.elapsed(), Duration::ZERO, "writes of another source do not wait");
        assert!(!declaring.is_finished());
        declaring.await.unwrap().unwrap();
        assert!(started.elapsed() >= Duration::from_secs(5), "the declaration waits until the deadline");
        drop(hung);
        fixture.registry.state.check_references(None).await;
        let snapshot = fixture.registry.state.snapshot();
        assert!(snapshot.connection_fingerprints[&id("other")].is_some(), "the file is read once it can be");
    }
}
