//! Resources that clients watch, with a real process behind: as long as somebody does, and no longer.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::broadcast;
use toolcrib::core::config::{Config, Mode};
use toolcrib::core::inventory::{Actor, Command};
use toolcrib::registry::Connection;
use toolcrib::{Refresh, SourceId};
use toolcrib_mcp::{Client, Era, Notice, Options, Target};
use toolcrib_server::{Bridge, Surface};

use crate::support::{SOON, Served, ask, connect, processes, source};

const NOTE: &str = "toolcrib://s/note://one";
const SUBSCRIBED: &str = "resources/subscribe";
const UNSUBSCRIBED: &str = "resources/unsubscribe";

/// A surface over one server that has something to watch, and tells what it hears.
struct Watching {
    surface: Surface,
    registry: toolcrib::Registry,
    sources: Value,
    home: TempDir,
}

impl Watching {
    /// `idle` is for how long the server may be unused.
    async fn new(idle: &str) -> Watching {
        Watching::with(idle, &[]).await
    }

    async fn with(idle: &str, more: &[&str]) -> Watching {
        let home = tempfile::tempdir().unwrap();
        let path = |name: &str| home.path().join(name).to_str().unwrap().to_owned();
        let mut flags = vec!["--resources", "--with", "announce"];
        let files = [("--log-file", path("log")), ("--count-file", path("starts")), ("--unwatchable-file", path("no"))];
        files.iter().for_each(|(flag, path)| flags.extend([*flag, path]));
        flags.extend(more);
        let idle = json!({ "idle": idle });
        let sources = json!({ "s": source(&flags, idle.clone()), "unwatched": source(&[], idle) });
        let (registry, surface) = processes(sources.clone(), Mode::Full).await;
        registry.refresh(Refresh::default()).await;
        std::fs::write(home.path().join("log"), "").unwrap();
        std::fs::write(home.path().join("starts"), "").unwrap();
        Watching { surface, registry, sources, home }
    }

    fn lines(&self, file: &str) -> Vec<String> {
        let path: PathBuf = self.home.path().join(file);
        std::fs::read_to_string(path).unwrap_or_default().lines().map(str::to_owned).collect()
    }

    /// How often the server was asked this.
    fn asked(&self, method: &str) -> usize {
        self.lines("log").iter().filter(|line| *line == method).count()
    }

    fn connected(&self, source: &str) -> bool {
        let source = self.registry.source(&SourceId::parse(source).unwrap()).unwrap();
        source.connection == Connection::Connected
    }

    /// Ends the server's process that was started last.
    fn kill(&self) {
        let pid = self.lines("starts").pop().unwrap();
        assert!(std::process::Command::new("kill").args(["-9", &pid]).status().unwrap().success());
    }

    async fn until(&self, what: &str, is_so: impl Fn(&Watching) -> bool) {
        let waiting = async {
            while !is_so(self) {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        let in_time = tokio::time::timeout(SOON, waiting).await;
        assert!(in_time.is_ok(), "in vain: {what}; {:?}", self.lines("log"));
    }

    async fn client(&self) -> (Client, tokio::task::JoinHandle<()>) {
        connect(&self.surface, |_| {}).await
    }
}

async fn subscribe(client: &Client) -> broadcast::Receiver<Notice> {
    let notices = client.notices();
    ask(client, SUBSCRIBED, json!({ "uri": NOTE })).await.unwrap();
    notices
}

/// Has the server say that its resource changed.
async fn change(client: &Client) {
    let params = json!({ "method": "notifications/resources/updated", "params": { "uri": "note://one" } });
    ask(client, "tools/call", json!({ "name": "s__announce", "arguments": params })).await.unwrap();
}

async fn updated(notices: &mut broadcast::Receiver<Notice>) {
    let heard = async {
        loop {
            if let Notice::Other { method, params } = notices.recv().await.unwrap()
                && method == "notifications/resources/updated"
            {
                let params: Value = serde_json::from_str(params.unwrap().get()).unwrap();
                return assert_eq!(params["uri"], NOTE);
            }
        }
    };
    tokio::time::timeout(SOON, heard).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_stays_while_something_of_it_is_watched_and_hears_when_the_last_leaves() {
    let watching = Watching::new("100ms").await;
    let ((one, _one), (two, two_served)) = (watching.client().await, watching.client().await);
    let (mut one_hears, mut two_hears) = (subscribe(&one).await, subscribe(&two).await);
    // One that was used later, and is idle all the same.
    let echo = json!({ "name": "unwatched__echo", "arguments": { "text": "x" } });
    ask(&one, "tools/call", echo).await.unwrap();
    watching.until("the other is idle", |watching| !watching.connected("unwatched")).await;
    change(&one).await;
    updated(&mut one_hears).await;
    updated(&mut two_hears).await;
    assert_eq!((watching.lines("starts").len(), watching.asked(SUBSCRIBED)), (1, 2));

    ask(&one, UNSUBSCRIBED, json!({ "uri": NOTE })).await.unwrap();
    assert_eq!(watching.asked(UNSUBSCRIBED), 0, "the other watches on");
    two.close().await;
    two_served.await.unwrap();
    watching.until("the server hears", |watching| watching.asked(UNSUBSCRIBED) == 1).await;
    watching.until("it is idle again", |watching| !watching.connected("s")).await;
    watching.registry.clone().close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_watched_is_watched_again_when_the_server_was_lost() {
    let watching = Watching::new("5m").await;
    let (client, _served) = watching.client().await;
    let mut hears = subscribe(&client).await;
    watching.kill();
    // Nobody calls: it is started for the subscription alone, and may have changed meanwhile.
    updated(&mut hears).await;
    assert_eq!((watching.lines("starts").len(), watching.asked(SUBSCRIBED)), (2, 2));
    change(&client).await;
    updated(&mut hears).await;
    watching.registry.clone().close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_new_server_refuses_at_first_is_asked_for_again() {
    let watching = Watching::new("5m").await;
    let (client, _served) = watching.client().await;
    let mut hears = subscribe(&client).await;
    std::fs::write(watching.home.path().join("no"), "").unwrap();
    watching.kill();
    watching.until("it is asked in vain", |watching| watching.asked(SUBSCRIBED) >= 2).await;
    std::fs::remove_file(watching.home.path().join("no")).unwrap();
    updated(&mut hears).await;
    assert_eq!(watching.lines("starts").len(), 2, "over the same connection");
    watching.registry.clone().close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_server_refuses_is_not_watched() {
    let watching = Watching::new("100ms").await;
    let (client, _served) = watching.client().await;
    std::fs::write(watching.home.path().join("no"), "").unwrap();
    ask(&client, SUBSCRIBED, json!({ "uri": NOTE })).await.unwrap_err();
    watching.until("it is idle", |watching| !watching.connected("s")).await;
    ask(&client, UNSUBSCRIBED, json!({ "uri": NOTE })).await.unwrap();
    assert_eq!((watching.lines("starts").len(), watching.asked(UNSUBSCRIBED)), (1, 0));
    watching.registry.clone().close().await;
}

/// One by one, each within its time, would take longer than anybody waits.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_leaves_at_once_though_the_server_does_not_answer() {
    let watching = Watching::with("100ms", &["--hang", "unsubscribe"]).await;
    let (client, served) = watching.client().await;
    for number in 0..20 {
        ask(&client, SUBSCRIBED, json!({ "uri": format!("{NOTE}{number}") })).await.unwrap();
    }
    client.close().await;
    served.await.unwrap();
    watching.until("it is idle", |watching| !watching.connected("s")).await;
    assert_eq!(watching.lines("starts").len(), 1);
    watching.registry.clone().close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_source_that_is_declared_otherwise_is_watched_on() {
    let watching = Watching::new("5m").await;
    let (client, served) = watching.client().await;
    let mut hears = subscribe(&client).await;
    let mut sources = watching.sources.clone();
    sources["s"]["ttl"] = json!("7m");
    let config = json!({ "sources": sources }).to_string();
    let config = Config::read(&config, "toolcrib.json", std::path::Path::new(".")).unwrap();
    watching.registry.reconfigure(&config).await.unwrap();
    updated(&mut hears).await;
    assert_eq!((watching.lines("starts").len(), watching.asked(SUBSCRIBED)), (2, 2));
    client.close().await;
    served.await.unwrap();
    watching.until("the server hears", |watching| watching.asked(UNSUBSCRIBED) == 1).await;
    watching.registry.clone().close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_watches_hears_when_a_source_is_disabled_and_finds_nothing() {
    let watching = Watching::new("5m").await;
    let (client, _served) = watching.client().await;
    let mut hears = subscribe(&client).await;
    let s = || SourceId::parse("s").unwrap();
    watching.registry.execute(Command::Disable(s()), Actor::new("somebody")).await.unwrap();
    updated(&mut hears).await;
    let error = ask(&client, "resources/read", json!({ "uri": NOTE })).await.unwrap_err().to_string();
    assert!(error.contains("no resource at"), "{error}");
    watching.registry.execute(Command::Enable(s()), Actor::new("somebody")).await.unwrap();
    let mut hears = subscribe(&client).await;
    change(&client).await;
    updated(&mut hears).await;
    watching.registry.clone().close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_subscription_of_2026_ends_at_the_server_with_its_client() {
    let watching = Watching::new("5m").await;
    let (client, served) = connect(&watching.surface, |options| options.era = Some(Era::Modern)).await;
    let mut notices = client.notices();
    let listening = tokio::spawn(async move {
        let filter = json!({ "notifications": { "resourceSubscriptions": [NOTE] } });
        let _until_closed = ask(&client, "subscriptions/listen", filter).await;
    });
    watching.until("it is watched", |watching| watching.asked(SUBSCRIBED) == 1).await;
    let (other, _other) = watching.client().await;
    change(&other).await;
    updated(&mut notices).await;
    listening.abort();
    served.await.unwrap();
    watching.until("the server hears", |watching| watching.asked(UNSUBSCRIBED) == 1).await;
    watching.registry.clone().close().await;
}

/// Without a session a client is its subscription, and ends with it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn so_does_one_without_a_session() {
    let watching = Watching::new("5m").await;
    let served = Served::at("127.0.0.1:0", &watching.surface).await;
    let target = Target::Http { url: served.url.clone(), headers: http::HeaderMap::new() };
    let client = Client::connect(target, Options::new("test", "0")).await.unwrap();
    assert_eq!(client.era(), Era::Modern);
    let listening = tokio::spawn(async move {
        let filter = json!({ "notifications": { "resourceSubscriptions": [NOTE] } });
        let _until_dropped = ask(&client, "subscriptions/listen", filter).await;
    });
    watching.until("it is watched", |watching| watching.asked(SUBSCRIBED) == 1).await;
    listening.abort();
    watching.until("the server hears", |watching| watching.asked(UNSUBSCRIBED) == 1).await;
    served.end().await;
    watching.registry.clone().close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn over_a_bridge_a_subscription_outlives_serve_and_ends_with_its_client() {
    let watching = Watching::new("5m").await;
    let served = Served::at("127.0.0.1:0", &watching.surface).await;
    let bridge = Bridge::to(served.url.clone()).await.unwrap();
    let (client, stream) = connect(&bridge, |_| {}).await;
    let mut hears = subscribe(&client).await;
    change(&client).await;
    updated(&mut hears).await;

    let address = served.end().await;
    watching.until("the server hears that nobody watches", |watching| watching.asked(UNSUBSCRIBED) == 1).await;
    let served = Served::at(&address, &watching.surface).await;
    // What changed meanwhile was not told, so it may have.
    updated(&mut hears).await;
    assert_eq!(watching.asked(SUBSCRIBED), 2);

    client.close().await;
    stream.await.unwrap();
    bridge.close().await;
    watching.until("the server hears", |watching| watching.asked(UNSUBSCRIBED) == 2).await;
    served.end().await;
    watching.registry.clone().close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn there_is_a_bound() {
    let watching = Watching::new("5m").await;
    let (client, _served) = watching.client().await;
    for number in 0..200 {
        ask(&client, SUBSCRIBED, json!({ "uri": format!("{NOTE}{number}") })).await.unwrap();
    }
    let error = ask(&client, SUBSCRIBED, json!({ "uri": NOTE })).await.unwrap_err().to_string();
    assert!(error.contains("200 resources, as many as one client may watch, of `s` are watched already"), "{error}");
    ask(&client, SUBSCRIBED, json!({ "uri": format!("{NOTE}7") })).await.expect("it is watched already");
    ask(&client, UNSUBSCRIBED, json!({ "uri": format!("{NOTE}7") })).await.unwrap();
    ask(&client, SUBSCRIBED, json!({ "uri": NOTE })).await.unwrap();

    let mut others = Vec::new();
    for _ in 0..4 {
        let (other, served) = watching.client().await;
        for number in 0..200 {
            ask(&other, SUBSCRIBED, json!({ "uri": format!("{NOTE}{number}") })).await.unwrap();
        }
        others.push((other, served));
    }
    let (late, _late) = watching.client().await;
    let error = ask(&late, SUBSCRIBED, json!({ "uri": NOTE })).await.unwrap_err().to_string();
    assert!(error.contains("1000 resources of `s` are watched already"), "{error}");
    ask(&client, SUBSCRIBED, json!({ "uri": NOTE })).await.expect("it is watched already");
    watching.registry.clone().close().await;
}
