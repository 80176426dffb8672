//! Shared helpers: registries over scripted sources in memory or over real processes, and waiting for conditions.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;
use toolcrib::clock::{Clock, ManualClock};
use toolcrib::config::Config;
use toolcrib::core::{Result, SourceId, Timestamp};
use toolcrib::guard::GuardExe;
use toolcrib::registry::{SourceView, ToolFilter};
use toolcrib::store::{MemoryStore, Store};
use toolcrib::testkit::{ConnectorFactory, ScriptedSource, open_with_connectors};
use toolcrib::{CallOutput, Principal, Refresh, RefreshOutcome, Registry, RegistryOptions};
use toolcrib_testkit::programs;

pub(crate) use toolcrib_testkit::observe::{
    TEST_TIMEOUT, is_running, read_lines, send_signal, wait_until, wait_until_async,
};
pub(crate) use toolcrib_testkit::programs::{scripted_source, with_settings};

/// A registry over scripted sources, with its clock and its store in memory.
pub(crate) struct TestRegistry {
    pub(crate) registry: Registry,
    pub(crate) manual_clock: ManualClock,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) options: RegistryOptions,
    pub(crate) factory: ConnectorFactory,
}

impl std::ops::Deref for TestRegistry {
    type Target = Registry;

    fn deref(&self) -> &Registry {
        &self.registry
    }
}

pub(crate) type ScriptedSources<'a> = &'a [(&'a str, &'a Arc<ScriptedSource>)];

/// Opens a registry over scripted sources with default settings.
pub(crate) async fn open(sources: ScriptedSources<'_>) -> TestRegistry {
    let ids: Vec<String> = sources.iter().map(|(id, _)| format!("  {id}: {{ command: scripted }}\n")).collect();
    open_yaml(&format!("sources:\n{}", ids.concat()), sources).await
}

pub(crate) async fn open_yaml(yaml: &str, sources: ScriptedSources<'_>) -> TestRegistry {
    open_with(yaml, sources, |options| options).await
}

pub(crate) async fn open_with(
    yaml: &str,
    sources: ScriptedSources<'_>,
    change: impl FnOnce(RegistryOptions) -> RegistryOptions,
) -> TestRegistry {
    let (clock, manual_clock) = Clock::manual(Timestamp(1_790_000_000_000));
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let options = change(RegistryOptions {
        store: Some(store.clone()),
        clock,
        environment: Vec::new(),
        ..RegistryOptions::default()
    });
    let factory = ScriptedSource::connector_factory(sources.iter().copied());
    let registry = open_with_connectors(config(yaml), options.clone(), factory.clone()).await.unwrap();
    TestRegistry { registry, manual_clock, store, options, factory }
}

impl TestRegistry {
    /// Opens another registry on the same store, like another process.
    pub(crate) async fn open_again(&self, yaml: &str) -> Registry {
        self.open_again_with(yaml, self.options.clone()).await
    }

    /// Like `open_again`, with other options.
    pub(crate) async fn open_again_with(&self, yaml: &str, options: RegistryOptions) -> Registry {
        open_with_connectors(config(yaml), options, self.factory.clone()).await.unwrap()
    }

    pub(crate) async fn journal_len(&self) -> usize {
        self.store.records(0, 10_000).await.unwrap().len()
    }

    pub(crate) fn source_view(&self, source: &str) -> SourceView {
        self.sources().get(&id(source)).unwrap()
    }
}

pub(crate) fn config(yaml: &str) -> Config {
    Config::read(yaml, "toolcrib.yaml", Path::new("/")).unwrap()
}

pub(crate) fn id(text: &str) -> SourceId {
    SourceId::parse(text).unwrap()
}

pub(crate) fn agent() -> Principal {
    Principal::local("agent")
}

/// The `toolcrib` binary as the guard of server processes, as in production.
pub(crate) fn guard_program() -> GuardExe {
    GuardExe::Path(programs::toolcrib_binary())
}

pub(crate) async fn call(registry: &Registry, name: &str, input: Value) -> Result<CallOutput> {
    registry.call(name, input).caller(agent()).await
}

pub(crate) fn output_text(output: &CallOutput) -> String {
    let content: Value = serde_json::from_str(output.content()).unwrap();
    content[0]["text"].as_str().unwrap_or_default().to_owned()
}

/// Returns the names of the listed tools without contacting sources.
pub(crate) fn cached_tools(registry: &Registry) -> Vec<String> {
    registry.view(&agent()).offered_tools().map(|tool| tool.name().to_string()).collect()
}

/// Returns the names of the listed tools after discovering missing sources.
pub(crate) async fn list_tools(registry: &Registry) -> Vec<String> {
    registry.tools(ToolFilter::default()).await.unwrap().into_iter().map(|tool| tool.name.to_string()).collect()
}

pub(crate) async fn refresh(registry: &Registry, source: &str) -> RefreshOutcome {
    refresh_source(registry, source, false).await
}

pub(crate) async fn force_refresh(registry: &Registry, source: &str) -> RefreshOutcome {
    refresh_source(registry, source, true).await
}

async fn refresh_source(registry: &Registry, source: &str, force: bool) -> RefreshOutcome {
    let refresh = Refresh { sources: Some(vec![id(source)]), force, ..Refresh::default() };
    registry.refresh(refresh).await.pop().unwrap()
}

pub(crate) fn tool_json(name: &str, description: &str) -> Value {
    json!({"name": name, "description": description, "inputSchema": {"type": "object"}})
}

/// Yields often enough for all runnable tasks to finish.
pub(crate) async fn run_pending_tasks() {
    for _ in 0..200 {
        tokio::task::yield_now().await;
    }
}

/// A registry as the command line opens it: SQLite in its own directory, servers as processes under the guard.
pub(crate) struct SqliteRegistry {
    pub(crate) home: TempDir,
    pub(crate) registry: Registry,
}

impl std::ops::Deref for SqliteRegistry {
    type Target = Registry;

    fn deref(&self) -> &Registry {
        &self.registry
    }
}

impl SqliteRegistry {
    pub(crate) async fn open(sources: Value) -> SqliteRegistry {
        SqliteRegistry::open_in(tempfile::tempdir().unwrap(), sources).await
    }

    pub(crate) async fn open_in(home: TempDir, sources: Value) -> SqliteRegistry {
        let registry = open_at(home.path(), sources).await;
        SqliteRegistry { home, registry }
    }

    /// Closes the registry and opens the same directory with another configuration.
    pub(crate) async fn reopen(self, sources: Value) -> SqliteRegistry {
        self.registry.close().await;
        SqliteRegistry::open_in(self.home, sources).await
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }
}

pub(crate) async fn open_at(home: &Path, sources: Value) -> Registry {
    let options = RegistryOptions {
        store: Some(toolcrib::store::open(home.to_str().unwrap()).await.unwrap()),
        logs_directory: Some(home.join("logs")),
        guard: guard_program(),
        environment: Vec::new(),
        ..RegistryOptions::default()
    };
    let text = json!({ "sources": sources }).to_string();
    let config = Config::read(&text, "toolcrib.json", home).unwrap();
    Registry::open(config, options).await.unwrap()
}

/// Opens a registry with one scripted server `s`; `{home}` in a flag is replaced with the data directory.
pub(crate) async fn open_scripted(flags: &[&str], settings: Value) -> SqliteRegistry {
    let home = tempfile::tempdir().unwrap();
    let flags: Vec<String> = flags.iter().map(|flag| flag.replace("{home}", home.path().to_str().unwrap())).collect();
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let source = with_settings(scripted_source(&flags), settings);
    SqliteRegistry::open_in(home, json!({"s": source})).await
}

/// Moves the clock of the runtime forward, so that deadlines pass at once. Unlike a paused clock it does not skip waits for
/// files and processes. For a test on one thread with the real clock.
pub(crate) async fn skip_time(duration: Duration) {
    tokio::time::pause();
    tokio::time::advance(duration).await;
    tokio::time::resume();
}
