//! Connection fingerprints: keyed hashes of what each source connects to, by which a snapshot tells that the connection
//! data of a tool list has changed.
//!
//! A snapshot is published without reading a file. Sources whose connection data is unchanged keep their fingerprint;
//! for new or changed ones it is computed at once if they name no file, and is unknown otherwise. The writer that
//! published such a source reads its files after the writer lock is released and swaps the fingerprint in, before its
//! own caller continues. Other readers may see the snapshot in between. An unknown fingerprint means to them what it
//! means everywhere: nothing is known to have changed, so the list is as fresh as its age says.
//!
//! Later changes of a file are noticed where it is read anyway, by discoveries, new connections and API requests
//! ([`State::publish_values`]), and by readers of lists, which can wait ([`State::check_references`]). A call over an
//! open connection reads no file.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures_util::{StreamExt, stream};
use toolcrib_core::fingerprint::Fingerprint;
use toolcrib_core::{Source, SourceId};

use super::publish::WriterState;
use super::{Snapshot, State};
use crate::secret::{ReferenceValues, SecretFiles, file_paths};

/// Maximum number of sources whose files are read at once, each file on a thread of its own.
const MAX_PARALLEL_SOURCES: usize = 32;

/// Keyed hash of what a source connects to, and the files that it depends on.
#[derive(Debug, Clone, Default)]
pub(crate) struct ConnectionFingerprint {
    /// Keyed hash of address, command and credentials; `None` when a reference cannot be resolved in this process, or
    /// its file was not read yet.
    hash: Option<Fingerprint>,
    /// Files that the references name. Found once for each declaration: it takes a walk over the whole configuration.
    files: Arc<BTreeSet<String>>,
}

impl State {
    /// Reads files of references again, and publishes the new connection fingerprints. A source whose fingerprint
    /// changed becomes stale. The environment of a process does not change, so only files can.
    pub(crate) async fn check_references(&self, among: Option<&[SourceId]>) {
        let snapshot = self.snapshot();
        let all = among.is_none().then(|| snapshot.effective_sources.values()).into_iter().flatten();
        let some = among.unwrap_or_default().iter().filter_map(|id| snapshot.effective_sources.get(id));
        let with_files = all.chain(some).filter_map(|source| match snapshot.connection_fingerprints.get(&source.id) {
            Some(known) => (!known.files.is_empty()).then(|| (source.clone(), known.files.clone())),
            // Not trusted, or trusted since the snapshot was published.
            None => Some((source.clone(), Arc::new(file_paths(&source.kind)))),
        });
        self.read_and_publish(with_files.collect()).await;
    }

    /// Publishes the connection fingerprint of a source with these values, and returns it. Publishes nothing if the
    /// configuration or the trust of the source has changed since.
    pub(crate) fn publish_values(&self, source: &Source, values: &ReferenceValues) -> Option<Fingerprint> {
        let hash = values.connection_fingerprint(&self.store_key, &source.kind);
        let known = self.snapshot.load().connection_fingerprints.get(&source.id).map(|known| known.hash);
        if known != Some(hash) {
            self.update_snapshot(|snapshot| snapshot.set_connection(source, hash));
        }
        hash
    }

    /// Reads the files of sources that were published without, and publishes what depends on them: the connection
    /// fingerprints, and built-in tools whose `roots` are in a file.
    pub(super) async fn resolve_published(&self, sources: BTreeMap<SourceId, Arc<Source>>) {
        let with_files = sources.into_values().map(|source| {
            let files = Arc::new(file_paths(&source.kind));
            (source, files)
        });
        let read = self.read_and_publish(with_files.collect()).await;
        let snapshot = self.snapshot();
        for (source, values) in read.iter().filter(|(source, _)| source.kind.is_builtin()) {
            let is_discovered = snapshot.inventory.source(&source.id).is_some_and(|state| state.manifest.is_some());
            if is_discovered && snapshot.is_enabled(&source.id) {
                self.publish_builtins(source, values).await;
            }
        }
    }

    /// Reads the files of several sources, and publishes their fingerprints. Leaves out sources that are not trusted,
    /// because an untrusted file could name any secret of the user, and those that run on other nodes, whose values are
    /// not those of this one.
    async fn read_and_publish(
        &self,
        mut sources: Vec<(Arc<Source>, Arc<BTreeSet<String>>)>,
    ) -> Vec<(Arc<Source>, ReferenceValues)> {
        let snapshot = self.snapshot();
        sources.retain(|(source, _)| snapshot.may_read_references(source));
        let files: &SecretFiles = self.connectors.secret_files();
        let read = async |(source, paths): (Arc<Source>, Arc<BTreeSet<String>>)| (source, files.read_all(&paths).await);
        let read: Vec<_> = stream::iter(sources).map(read).buffer_unordered(MAX_PARALLEL_SOURCES).collect().await;
        for (source, values) in &read {
            self.publish_values(source, values);
        }
        read
    }

    /// Returns the fingerprints of sources that are new, or have other connection data than in the current snapshot.
    /// Those that need a file are unknown, and the writer is left to read it. Called with the writer lock held.
    pub(super) fn changed_connections(
        &self,
        writer: &mut WriterState,
        sources: &BTreeMap<SourceId, Arc<Source>>,
    ) -> BTreeMap<SourceId, ConnectionFingerprint> {
        let before = self.snapshot();
        let mut changed = BTreeMap::new();
        for (id, source) in sources {
            let is_known = before.has_connection(source) && before.connection_fingerprints.contains_key(id);
            if is_known || !before.may_read_references(source) {
                continue;
            }
            let files = Arc::new(file_paths(&source.kind));
            let hash = if files.is_empty() {
                ReferenceValues::default().connection_fingerprint(&self.store_key, &source.kind)
            } else {
                writer.unresolved_sources.insert(id.clone(), source.clone());
                None
            };
            changed.insert(id.clone(), ConnectionFingerprint { hash, files });
        }
        changed
    }
}

impl Snapshot {
    /// Returns the keyed hash of what a source connects to, if it is known, the source is trusted and may run here.
    pub(crate) fn connection_fingerprint(&self, id: &SourceId) -> Option<Fingerprint> {
        self.connection_fingerprints.get(id).and_then(|known| known.hash)
    }

    /// Whether a source connects as this configuration says, with references unresolved.
    pub(super) fn has_connection(&self, source: &Source) -> bool {
        self.effective_sources.get(&source.id).is_some_and(|known| known.kind == source.kind)
    }

    /// Replaces changed fingerprints, and drops those of sources that are removed, not trusted or run on other nodes.
    pub(super) fn replace_connections(&mut self, changed: &BTreeMap<SourceId, ConnectionFingerprint>) {
        let mut fingerprints = BTreeMap::clone(&self.connection_fingerprints);
        fingerprints
            .retain(|id, _| self.effective_sources.get(id).is_some_and(|source| self.may_read_references(source)));
        fingerprints.extend(changed.clone());
        self.connection_fingerprints = Arc::new(fingerprints);
    }

    /// Sets a fingerprint, unless the source has another configuration by now, is not trusted, or runs on other nodes.
    fn set_connection(&mut self, source: &Source, hash: Option<Fingerprint>) {
        if !self.has_connection(source) || !self.may_read_references(source) {
            return;
        }
        let known = Arc::make_mut(&mut self.connection_fingerprints).entry(source.id.clone());
        known.or_insert_with(|| ConnectionFingerprint { hash, files: Arc::new(file_paths(&source.kind)) }).hash = hash;
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
    use crate::refresh::{RefreshStatus, Requester, RequiredFreshness};
    use crate::testkit::{ScriptedSource, open_with_connectors};
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
            let registry = open_with_connectors(config, RegistryOptions::default(), factory).await.unwrap();
            let outcomes =
                registry.refresher.ensure_freshness(RequiredFreshness::Fresh, None, Requester::default()).await;
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
            self.registry.state.snapshot().connection_fingerprint(&id("secret"))
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
    async fn a_call_of_a_discovered_tool_reads_no_file() {
        let fixture = Fixture::open().await;
        let _hung = fixture.registry.connectors.secret_files().hang(fixture.token.to_str().unwrap());
        let started = tokio::time::Instant::now();
        fixture.registry.call("secret__push", json!({})).await.unwrap();
        assert_eq!(started.elapsed(), Duration::ZERO, "the call does not wait for the file");
    }

    #[tokio::test(start_paused = true)]
    async fn a_file_that_hangs_delays_no_write_of_another_source() {
        let fixture = Fixture::open().await;
        let path = fixture.token.to_str().unwrap();
        let hung = fixture.registry.connectors.secret_files().hang(path);
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
        assert!(snapshot.connection_fingerprint(&id("other")).is_some(), "the file is read once it can be");
    }
}
