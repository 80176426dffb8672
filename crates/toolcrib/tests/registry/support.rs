//! What the tests share: registries over scripted sources in memory, and waiting without sleeping.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;
use toolcrib::clock::{Clock, Hand};
use toolcrib::core::config::Config;
use toolcrib::core::{Result, SourceId, Timestamp};
use toolcrib::guard::GuardExe;
use toolcrib::registry::{Filter, SourceView};
use toolcrib::store::{MemoryStore, Store};
use toolcrib::testkit::Scripted;
use toolcrib::{CallOptions, Caller, Options, Outcome, Output, Refresh, Registry};
use toolcrib_testkit::rig;

/// A registry over scripted sources, its clock, and its store.
pub(crate) struct Bench {
    pub(crate) registry: Registry,
    pub(crate) hand: Hand,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) options: Options,
}

impl std::ops::Deref for Bench {
    type Target = Registry;

    fn deref(&self) -> &Registry {
        &self.registry
    }
}

pub(crate) type Sources<'a> = &'a [(&'a str, &'a Arc<Scripted>)];

/// Scripted sources with nothing special about them.
pub(crate) async fn open(sources: Sources<'_>) -> Bench {
    let ids: Vec<String> = sources.iter().map(|(id, _)| format!("  {id}: {{ command: scripted }}\n")).collect();
    open_yaml(&format!("sources:\n{}", ids.concat()), sources).await
}

pub(crate) async fn open_yaml(yaml: &str, sources: Sources<'_>) -> Bench {
    open_with(yaml, sources, |options| options).await
}

pub(crate) async fn open_with(yaml: &str, sources: Sources<'_>, change: impl FnOnce(Options) -> Options) -> Bench {
    let (clock, hand) = Clock::manual(Timestamp(1_790_000_000_000));
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let options = change(Options {
        store: Some(store.clone()),
        clock,
        environment: Vec::new(),
        connect: Some(Scripted::connect(sources.iter().copied())),
        ..Options::default()
    });
    let registry = Registry::open(config(yaml), options.clone()).await.unwrap();
    Bench { registry, hand, store, options }
}

impl Bench {
    /// A second registry on the same store, as another process would be.
    pub(crate) async fn again(&self, yaml: &str) -> Registry {
        Registry::open(config(yaml), self.options.clone()).await.unwrap()
    }

    pub(crate) async fn journal(&self) -> usize {
        self.store.records(0, 10_000).await.unwrap().len()
    }

    pub(crate) fn view_of(&self, source: &str) -> SourceView {
        self.source(&id(source)).unwrap()
    }
}

pub(crate) fn config(yaml: &str) -> Config {
    Config::read(yaml, "toolcrib.yaml", Path::new("/")).unwrap()
}

pub(crate) fn id(text: &str) -> SourceId {
    SourceId::parse(text).unwrap()
}

pub(crate) fn agent() -> Caller {
    Caller { name: "agent".into() }
}

/// Guarded by the command itself, as in real life.
pub(crate) fn guard() -> GuardExe {
    GuardExe::Path(rig::toolcrib())
}

pub(crate) async fn call(registry: &Registry, name: &str, input: Value) -> Result<Output> {
    registry.call(&agent(), name, input, CallOptions::default()).await
}

pub(crate) fn text(output: &Output) -> String {
    let content: Value = serde_json::from_str(output.content()).unwrap();
    content[0]["text"].as_str().unwrap_or_default().to_owned()
}

/// The names that agents are offered, from what is known.
pub(crate) fn cached(registry: &Registry) -> Vec<String> {
    registry.view(&agent()).offered().map(|tool| tool.name().to_string()).collect()
}

/// The names that agents are offered once what is missing was discovered.
pub(crate) async fn tools(registry: &Registry) -> Vec<String> {
    registry.tools(Filter::default()).await.unwrap().into_iter().map(|tool| tool.name.to_string()).collect()
}

pub(crate) async fn refresh(registry: &Registry, source: &str) -> Outcome {
    refresh_how(registry, source, false).await
}

pub(crate) async fn force(registry: &Registry, source: &str) -> Outcome {
    refresh_how(registry, source, true).await
}

async fn refresh_how(registry: &Registry, source: &str, force: bool) -> Outcome {
    let refresh = Refresh { sources: Some(vec![id(source)]), force, ..Refresh::default() };
    registry.refresh(refresh).await.pop().unwrap()
}

pub(crate) fn tool(name: &str, description: &str) -> Value {
    json!({"name": name, "description": description, "inputSchema": {"type": "object"}})
}

/// Waits for what must come, by looking again and again; under tokio's paused clock that takes no time.
pub(crate) async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !is_so() {
        assert!(Instant::now() < deadline, "it never came to this: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Gives everything that could still happen the time to happen.
pub(crate) async fn settle() {
    for _ in 0..200 {
        tokio::task::yield_now().await;
    }
}

/// A registry as the command line has it: SQLite in a directory of its own, real servers through the guard.
pub(crate) struct Workshop {
    pub(crate) home: TempDir,
    pub(crate) registry: Registry,
}

impl std::ops::Deref for Workshop {
    type Target = Registry;

    fn deref(&self) -> &Registry {
        &self.registry
    }
}

impl Workshop {
    pub(crate) async fn open(sources: Value) -> Workshop {
        Workshop::open_in(tempfile::tempdir().unwrap(), sources).await
    }

    pub(crate) async fn open_in(home: TempDir, sources: Value) -> Workshop {
        let registry = open_at(home.path(), sources).await;
        Workshop { home, registry }
    }

    /// The same directory after a restart, with another configuration.
    pub(crate) async fn reopen(self, sources: Value) -> Workshop {
        self.registry.close().await;
        Workshop::open_in(self.home, sources).await
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }
}

pub(crate) async fn open_at(home: &Path, sources: Value) -> Registry {
    let options = Options {
        store: Some(toolcrib::store::open(home.to_str().unwrap()).await.unwrap()),
        logs: Some(home.join("logs")),
        guard: guard(),
        environment: Vec::new(),
        ..Options::default()
    };
    let text = json!({ "sources": sources }).to_string();
    let config = Config::read(&text, "toolcrib.json", home).unwrap();
    Registry::open(config, options).await.unwrap()
}

/// A source behind the scripted server.
pub(crate) fn scripted(flags: &[&str]) -> Value {
    json!({"command": rig::scripted(), "args": flags})
}

/// A source with more settings.
pub(crate) fn with(mut source: Value, settings: Value) -> Value {
    source.as_object_mut().unwrap().extend(settings.as_object().unwrap().clone());
    source
}

pub(crate) fn lines(file: &Path) -> Vec<String> {
    std::fs::read_to_string(file).unwrap_or_default().lines().map(str::to_owned).collect()
}

/// Whether a process is there and not merely unburied.
pub(crate) fn lives(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(") ").next().is_some_and(|rest| !rest.is_empty() && !rest.starts_with('Z'))
}

pub(crate) fn kill(pid: &str) {
    assert!(std::process::Command::new("kill").args(["-9", pid]).status().unwrap().success());
}
