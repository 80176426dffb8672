//! Resources that clients watch, with a real process behind: as long as somebody does, and no longer.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::broadcast;
use toolcrib::core::config::{Config, ExposeMode};
use toolcrib::core::inventory::{Actor, Command};
use toolcrib::registry::ConnectionState;
use toolcrib::{Refresh, SourceId};
use toolcrib_mcp::{ClientOptions, ConnectTarget, ConnectionEvent, Era, McpClient};
use toolcrib_server::{Bridge, McpService};

use crate::support::{HttpTestServer, TEST_TIMEOUT, connect_client, open_with_processes, process_source, send_request};

const NOTE_URI: &str = "toolcrib://s/note://one";
const SUBSCRIBE: &str = "resources/subscribe";
const UNSUBSCRIBE: &str = "resources/unsubscribe";

/// A surface over one server that has something to watch, and tells what it hears.
struct SubscriptionFixture {
    service: McpService,
    registry: toolcrib::Registry,
    sources: Value,
    directory: TempDir,
}

impl SubscriptionFixture {
    /// `idle` is for how long the server may be unused.
    async fn new(idle: &str) -> SubscriptionFixture {
        SubscriptionFixture::with_flags(idle, &[]).await
    }

    async fn with_flags(idle: &str, more: &[&str]) -> SubscriptionFixture {
        let home = tempfile::tempdir().unwrap();
        let path = |name: &str| home.path().join(name).to_str().unwrap().to_owned();
        let mut flags = vec!["--resources", "--with", "announce"];
        let files = [("--log-file", path("log")), ("--count-file", path("starts")), ("--unwatchable-file", path("no"))];
        files.iter().for_each(|(flag, path)| flags.extend([*flag, path]));
        flags.extend(more);
        let idle = json!({ "idle": idle });
        let sources = json!({ "s": process_source(&flags, idle.clone()), "unwatched": process_source(&[], idle) });
        let (registry, surface) = open_with_processes(sources.clone(), ExposeMode::Full).await;
        registry.refresh(Refresh::default()).await;
        std::fs::write(home.path().join("log"), "").unwrap();
        std::fs::write(home.path().join("starts"), "").unwrap();
        SubscriptionFixture { service: surface, registry, sources, directory: home }
    }

    fn file_lines(&self, file: &str) -> Vec<String> {
        let path: PathBuf = self.directory.path().join(file);
        std::fs::read_to_string(path).unwrap_or_default().lines().map(str::to_owned).collect()
    }

    /// How often the server was asked this.
    fn request_count(&self, method: &str) -> usize {
        self.file_lines("log").iter().filter(|line| *line == method).count()
    }

    fn is_connected(&self, source: &str) -> bool {
        let source = self.registry.source(&SourceId::parse(source).unwrap()).unwrap();
        source.connection == ConnectionState::Connected
    }

    /// Ends the server's process that was started last.
    fn kill_server(&self) {
        let pid = self.file_lines("starts").pop().unwrap();
        assert!(std::process::Command::new("kill").args(["-9", &pid]).status().unwrap().success());
    }

    async fn wait_until(&self, what: &str, is_so: impl Fn(&SubscriptionFixture) -> bool) {
        let waiting = async {
            while !is_so(self) {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        let in_time = tokio::time::timeout(TEST_TIMEOUT, waiting).await;
        assert!(in_time.is_ok(), "in vain: {what}; {:?}", self.file_lines("log"));
    }

    async fn connect(&self) -> (McpClient, tokio::task::JoinHandle<()>) {
        connect_client(&self.service, |_| {}).await
    }
}

async fn subscribe(client: &McpClient) -> broadcast::Receiver<ConnectionEvent> {
    let notices = client.events();
    send_request(client, SUBSCRIBE, json!({ "uri": NOTE_URI })).await.unwrap();
    notices
}

/// Has the server say that its resource changed.
async fn announce_change(client: &McpClient) {
    let params = json!({ "method": "notifications/resources/updated", "params": { "uri": "note://one" } });
    send_request(client, "tools/call", json!({ "name": "s__announce", "arguments": params })).await.unwrap();
}

async fn wait_for_update(notices: &mut broadcast::Receiver<ConnectionEvent>) {
    let heard = async {
        loop {
            if let ConnectionEvent::Other { method, params } = notices.recv().await.unwrap()
                && method == "notifications/resources/updated"
            {
                let params: Value = serde_json::from_str(params.unwrap().get()).unwrap();
                return assert_eq!(params["uri"], NOTE_URI);
            }
        }
    };
    tokio::time::timeout(TEST_TIMEOUT, heard).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_stays_while_something_of_it_is_watched_and_hears_when_the_last_leaves() {
    let watching = SubscriptionFixture::new("100ms").await;
    let ((one, _one), (two, two_served)) = (watching.connect().await, watching.connect().await);
    let (mut one_hears, mut two_hears) = (subscribe(&one).await, subscribe(&two).await);
    // One that was used later, and is idle all the same.
    let echo = json!({ "name": "unwatched__echo", "arguments": { "text": "x" } });
    send_request(&one, "tools/call", echo).await.unwrap();
    watching.wait_until("the other is idle", |watching| !watching.is_connected("unwatched")).await;
    announce_change(&one).await;
    wait_for_update(&mut one_hears).await;
    wait_for_update(&mut two_hears).await;
    assert_eq!((watching.file_lines("starts").len(), watching.request_count(SUBSCRIBE)), (1, 2));

    send_request(&one, UNSUBSCRIBE, json!({ "uri": NOTE_URI })).await.unwrap();
    assert_eq!(watching.request_count(UNSUBSCRIBE), 0, "the other watches on");
    two.close().await;
    two_served.await.unwrap();
    watching.wait_until("the server hears", |watching| watching.request_count(UNSUBSCRIBE) == 1).await;
    watching.wait_until("it is idle again", |watching| !watching.is_connected("s")).await;
    watching.registry.clone().close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_watched_is_watched_again_when_the_server_was_lost() {
    let watching = SubscriptionFixture::new("5m").await;
    let (client, _served) = watching.connect().await;
    let mut hears = subscribe(&client).await;
    watching.kill_server();
    // Nobody calls: it is started for the subscription alone, and may have changed meanwhile.
    wait_for_update(&mut hears).await;
    assert_eq!((watching.file_lines("starts").len(), watching.request_count(SUBSCRIBE)), (2, 2));
    announce_change(&client).await;
    wait_for_update(&mut hears).await;
    watching.registry.clone().close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_new_server_refuses_at_first_is_asked_for_again() {
    let watching = SubscriptionFixture::new("5m").await;
    let (client, _served) = watching.connect().await;
    let mut hears = subscribe(&client).await;
    std::fs::write(watching.directory.path().join("no"), "").unwrap();
    watching.kill_server();
    watching.wait_until("it is asked in vain", |watching| watching.request_count(SUBSCRIBE) >= 2).await;
    std::fs::remove_file(watching.directory.path().join("no")).unwrap();
    wait_for_update(&mut hears).await;
    assert_eq!(watching.file_lines("starts").len(), 2, "over the same connection");
    watching.registry.clone().close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_server_refuses_is_not_watched() {
    let watching = SubscriptionFixture::new("100ms").await;
    let (client, _served) = watching.connect().await;
    std::fs::write(watching.directory.path().join("no"), "").unwrap();
    send_request(&client, SUBSCRIBE, json!({ "uri": NOTE_URI })).await.unwrap_err();
    watching.wait_until("it is idle", |watching| !watching.is_connected("s")).await;
    send_request(&client, UNSUBSCRIBE, json!({ "uri": NOTE_URI })).await.unwrap();
    assert_eq!((watching.file_lines("starts").len(), watching.request_count(UNSUBSCRIBE)), (1, 0));
    watching.registry.clone().close().await;
}

/// One by one, each within its time, would take longer than anybody waits.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_leaves_at_once_though_the_server_does_not_answer() {
    let watching = SubscriptionFixture::with_flags("100ms", &["--hang", "unsubscribe"]).await;
    let (client, served) = watching.connect().await;
    for number in 0..20 {
        send_request(&client, SUBSCRIBE, json!({ "uri": format!("{NOTE_URI}{number}") })).await.unwrap();
    }
    client.close().await;
    served.await.unwrap();
    watching.wait_until("it is idle", |watching| !watching.is_connected("s")).await;
    assert_eq!(watching.file_lines("starts").len(), 1);
    watching.registry.clone().close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_source_that_is_declared_otherwise_is_watched_on() {
    let watching = SubscriptionFixture::new("5m").await;
    let (client, served) = watching.connect().await;
    let mut hears = subscribe(&client).await;
    let mut sources = watching.sources.clone();
    sources["s"]["ttl"] = json!("7m");
    let config = json!({ "sources": sources }).to_string();
    let config = Config::read(&config, "toolcrib.json", std::path::Path::new(".")).unwrap();
    watching.registry.reconfigure(&config).await.unwrap();
    wait_for_update(&mut hears).await;
    assert_eq!((watching.file_lines("starts").len(), watching.request_count(SUBSCRIBE)), (2, 2));
    client.close().await;
    served.await.unwrap();
    watching.wait_until("the server hears", |watching| watching.request_count(UNSUBSCRIBE) == 1).await;
    watching.registry.clone().close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_watches_hears_when_a_source_is_disabled_and_finds_nothing() {
    let watching = SubscriptionFixture::new("5m").await;
    let (client, _served) = watching.connect().await;
    let mut hears = subscribe(&client).await;
    let s = || SourceId::parse("s").unwrap();
    watching.registry.execute(Command::Disable(s()), Actor::new("somebody")).await.unwrap();
    wait_for_update(&mut hears).await;
    let error = send_request(&client, "resources/read", json!({ "uri": NOTE_URI })).await.unwrap_err().to_string();
    assert!(error.contains("no resource at"), "{error}");
    watching.registry.execute(Command::Enable(s()), Actor::new("somebody")).await.unwrap();
    let mut hears = subscribe(&client).await;
    announce_change(&client).await;
    wait_for_update(&mut hears).await;
    watching.registry.clone().close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_subscription_of_2026_ends_at_the_server_with_its_client() {
    let watching = SubscriptionFixture::new("5m").await;
    let (client, served) = connect_client(&watching.service, |options| options.era = Some(Era::Modern)).await;
    let mut notices = client.events();
    let listening = tokio::spawn(async move {
        let filter = json!({ "notifications": { "resourceSubscriptions": [NOTE_URI] } });
        let _until_closed = send_request(&client, "subscriptions/listen", filter).await;
    });
    watching.wait_until("it is watched", |watching| watching.request_count(SUBSCRIBE) == 1).await;
    let (other, _other) = watching.connect().await;
    announce_change(&other).await;
    wait_for_update(&mut notices).await;
    listening.abort();
    served.await.unwrap();
    watching.wait_until("the server hears", |watching| watching.request_count(UNSUBSCRIBE) == 1).await;
    watching.registry.clone().close().await;
}

/// Without a session a client is its subscription, and ends with it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn so_does_one_without_a_session() {
    let watching = SubscriptionFixture::new("5m").await;
    let served = HttpTestServer::start("127.0.0.1:0", &watching.service).await;
    let target = ConnectTarget::Http { url: served.url.clone(), headers: http::HeaderMap::new() };
    let client = McpClient::connect(target, ClientOptions::new("test", "0")).await.unwrap();
    assert_eq!(client.era(), Era::Modern);
    let listening = tokio::spawn(async move {
        let filter = json!({ "notifications": { "resourceSubscriptions": [NOTE_URI] } });
        let _until_dropped = send_request(&client, "subscriptions/listen", filter).await;
    });
    watching.wait_until("it is watched", |watching| watching.request_count(SUBSCRIBE) == 1).await;
    listening.abort();
    watching.wait_until("the server hears", |watching| watching.request_count(UNSUBSCRIBE) == 1).await;
    served.stop().await;
    watching.registry.clone().close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn over_a_bridge_a_subscription_outlives_serve_and_ends_with_its_client() {
    let watching = SubscriptionFixture::new("5m").await;
    let served = HttpTestServer::start("127.0.0.1:0", &watching.service).await;
    let bridge = Bridge::open(served.url.clone()).await.unwrap();
    let (client, stream) = connect_client(&bridge, |_| {}).await;
    let mut hears = subscribe(&client).await;
    announce_change(&client).await;
    wait_for_update(&mut hears).await;

    let address = served.stop().await;
    watching
        .wait_until("the server hears that nobody watches", |watching| watching.request_count(UNSUBSCRIBE) == 1)
        .await;
    let served = HttpTestServer::start(&address, &watching.service).await;
    // What changed meanwhile was not told, so it may have.
    wait_for_update(&mut hears).await;
    assert_eq!(watching.request_count(SUBSCRIBE), 2);

    client.close().await;
    stream.await.unwrap();
    bridge.close().await;
    watching.wait_until("the server hears", |watching| watching.request_count(UNSUBSCRIBE) == 2).await;
    served.stop().await;
    watching.registry.clone().close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn there_is_a_bound() {
    let watching = SubscriptionFixture::new("5m").await;
    let (client, _served) = watching.connect().await;
    for number in 0..200 {
        send_request(&client, SUBSCRIBE, json!({ "uri": format!("{NOTE_URI}{number}") })).await.unwrap();
    }
    let error = send_request(&client, SUBSCRIBE, json!({ "uri": NOTE_URI })).await.unwrap_err().to_string();
    assert!(error.contains("`s` has 200 subscriptions of this client already"), "{error}");
    send_request(&client, SUBSCRIBE, json!({ "uri": format!("{NOTE_URI}7") })).await.expect("it is watched already");
    send_request(&client, UNSUBSCRIBE, json!({ "uri": format!("{NOTE_URI}7") })).await.unwrap();
    send_request(&client, SUBSCRIBE, json!({ "uri": NOTE_URI })).await.unwrap();

    let mut others = Vec::new();
    for _ in 0..4 {
        let (other, served) = watching.connect().await;
        for number in 0..200 {
            send_request(&other, SUBSCRIBE, json!({ "uri": format!("{NOTE_URI}{number}") })).await.unwrap();
        }
        others.push((other, served));
    }
    let (late, _late) = watching.connect().await;
    let error = send_request(&late, SUBSCRIBE, json!({ "uri": NOTE_URI })).await.unwrap_err().to_string();
    assert!(error.contains("1000 resources of `s` are watched already"), "{error}");
    send_request(&client, SUBSCRIBE, json!({ "uri": NOTE_URI })).await.expect("it is watched already");
    watching.registry.clone().close().await;
}
