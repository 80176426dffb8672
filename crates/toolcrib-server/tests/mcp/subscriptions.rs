//! Tests resource subscriptions with a real server process: they last as long as a client is subscribed.

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::broadcast;
use toolcrib::config::{Config, ExposeMode};
use toolcrib::core::inventory::{Actor, Command};
use toolcrib::registry::ConnectionState;
use toolcrib::{Refresh, SourceId};
use toolcrib_mcp::{ClientOptions, ConnectTarget, ConnectionEvent, Era, McpClient};
use toolcrib_server::{Bridge, McpService};
use toolcrib_testkit::observe::{read_lines, send_signal, wait_until};
use toolcrib_testkit::programs::{scripted_source, with_settings};

use super::support::{TEST_TIMEOUT, connect_client, open_with_processes, send_request, serve_http};

const NOTE_URI: &str = "toolcrib://s/note://one";
const SUBSCRIBE: &str = "resources/subscribe";
const UNSUBSCRIBE: &str = "resources/unsubscribe";

/// An MCP service over a server process that offers a resource and logs the requests it receives.
struct SubscriptionFixture {
    service: McpService,
    registry: toolcrib::Registry,
    sources: Value,
    directory: TempDir,
}

impl SubscriptionFixture {
    /// `idle` is the time after which an unused server is stopped.
    async fn new(idle: &str) -> SubscriptionFixture {
        SubscriptionFixture::with_flags(idle, &[]).await
    }

    async fn with_flags(idle: &str, extra_flags: &[&str]) -> SubscriptionFixture {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
        let mut flags = vec!["--resources", "--with", "announce"];
        let files = [("--log-file", path("log")), ("--count-file", path("starts")), ("--unwatchable-file", path("no"))];
        files.iter().for_each(|(flag, path)| flags.extend([*flag, path]));
        flags.extend(extra_flags);
        let idle = json!({ "idle": idle });
        let sources = json!({ "s": with_settings(scripted_source(&flags), idle.clone()), "unwatched": with_settings(scripted_source(&[]), idle) });
        let (registry, service) = open_with_processes(sources.clone(), ExposeMode::Full).await;
        registry.refresh(Refresh::default()).await;
        std::fs::write(directory.path().join("log"), "").unwrap();
        std::fs::write(directory.path().join("starts"), "").unwrap();
        SubscriptionFixture { service, registry, sources, directory }
    }

    fn file_lines(&self, file: &str) -> Vec<String> {
        read_lines(&self.directory.path().join(file))
    }

    /// How many requests with this method the server has received.
    fn request_count(&self, method: &str) -> usize {
        self.file_lines("log").iter().filter(|line| *line == method).count()
    }

    fn is_connected(&self, source: &str) -> bool {
        let source = self.registry.sources().get(&SourceId::parse(source).unwrap()).unwrap();
        source.connection == ConnectionState::Connected
    }

    /// Kills the server process that was started last.
    fn kill_server(&self) {
        send_signal("KILL", self.file_lines("starts").pop().unwrap());
    }

    async fn wait_until(&self, what: &str, condition: impl Fn(&SubscriptionFixture) -> bool) {
        wait_until(what, || condition(self)).await;
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

/// Makes the server send a notification that its resource changed.
async fn announce_change(client: &McpClient) {
    let params = json!({ "method": "notifications/resources/updated", "params": { "uri": "note://one" } });
    send_request(client, "tools/call", json!({ "name": "s__announce", "arguments": params })).await.unwrap();
}

async fn wait_for_update(notices: &mut broadcast::Receiver<ConnectionEvent>) {
    let updated = async {
        loop {
            if let ConnectionEvent::Other { method, params } = notices.recv().await.unwrap()
                && method == "notifications/resources/updated"
            {
                let params: Value = serde_json::from_str(params.unwrap().get()).unwrap();
                return assert_eq!(params["uri"], NOTE_URI);
            }
        }
    };
    tokio::time::timeout(TEST_TIMEOUT, updated).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_subscription_keeps_the_server_running_until_the_last_client_leaves() {
    let fixture = SubscriptionFixture::new("100ms").await;
    let (first, _first_task) = fixture.connect().await;
    let (second, second_task) = fixture.connect().await;
    let mut first_events = subscribe(&first).await;
    let mut second_events = subscribe(&second).await;
    // The other source was used later, but has no subscription and is stopped as idle.
    let echo = json!({ "name": "unwatched__echo", "arguments": { "text": "x" } });
    send_request(&first, "tools/call", echo).await.unwrap();
    fixture.wait_until("the other source is idle", |fixture| !fixture.is_connected("unwatched")).await;
    announce_change(&first).await;
    wait_for_update(&mut first_events).await;
    wait_for_update(&mut second_events).await;
    assert_eq!((fixture.file_lines("starts").len(), fixture.request_count(SUBSCRIBE)), (1, 2));

    send_request(&first, UNSUBSCRIBE, json!({ "uri": NOTE_URI })).await.unwrap();
    assert_eq!(fixture.request_count(UNSUBSCRIBE), 0, "the second client is still subscribed");
    second.close().await;
    second_task.await.unwrap();
    fixture
        .wait_until("the server receives the unsubscribe request", |fixture| fixture.request_count(UNSUBSCRIBE) == 1)
        .await;
    fixture.wait_until("it is idle again", |fixture| !fixture.is_connected("s")).await;
    fixture.registry.clone().close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn subscriptions_are_restored_after_the_server_crashed() {
    let fixture = SubscriptionFixture::new("5m").await;
    let (client, _served) = fixture.connect().await;
    let mut events = subscribe(&client).await;
    fixture.kill_server();
    // The server is restarted for the subscription alone. The resource may have changed in between, so an update is
    // sent.
    wait_for_update(&mut events).await;
    assert_eq!((fixture.file_lines("starts").len(), fixture.request_count(SUBSCRIBE)), (2, 2));
    announce_change(&client).await;
    wait_for_update(&mut events).await;
    fixture.registry.clone().close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restoring_a_subscription_is_retried() {
    let fixture = SubscriptionFixture::new("5m").await;
    let (client, _served) = fixture.connect().await;
    let mut events = subscribe(&client).await;
    std::fs::write(fixture.directory.path().join("no"), "").unwrap();
    fixture.kill_server();
    fixture.wait_until("a rejected subscribe request", |fixture| fixture.request_count(SUBSCRIBE) >= 2).await;
    std::fs::remove_file(fixture.directory.path().join("no")).unwrap();
    wait_for_update(&mut events).await;
    assert_eq!(fixture.file_lines("starts").len(), 2, "over the same connection");
    fixture.registry.clone().close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rejected_subscription_is_not_kept() {
    let fixture = SubscriptionFixture::new("100ms").await;
    let (client, _served) = fixture.connect().await;
    std::fs::write(fixture.directory.path().join("no"), "").unwrap();
    send_request(&client, SUBSCRIBE, json!({ "uri": NOTE_URI })).await.unwrap_err();
    fixture.wait_until("it is idle", |fixture| !fixture.is_connected("s")).await;
    send_request(&client, UNSUBSCRIBE, json!({ "uri": NOTE_URI })).await.unwrap();
    assert_eq!((fixture.file_lines("starts").len(), fixture.request_count(UNSUBSCRIBE)), (1, 0));
    fixture.registry.clone().close().await;
}

/// Waiting for each unsubscribe request in turn would take too long.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_disconnects_at_once_although_unsubscribing_hangs() {
    let fixture = SubscriptionFixture::with_flags("100ms", &["--hang", "unsubscribe"]).await;
    let (client, served) = fixture.connect().await;
    for number in 0..20 {
        send_request(&client, SUBSCRIBE, json!({ "uri": format!("{NOTE_URI}{number}") })).await.unwrap();
    }
    client.close().await;
    served.await.unwrap();
    fixture.wait_until("it is idle", |fixture| !fixture.is_connected("s")).await;
    assert_eq!(fixture.file_lines("starts").len(), 1);
    fixture.registry.clone().close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn subscriptions_survive_a_changed_declaration() {
    let fixture = SubscriptionFixture::new("5m").await;
    let (client, served) = fixture.connect().await;
    let mut events = subscribe(&client).await;
    let mut sources = fixture.sources.clone();
    sources["s"]["ttl"] = json!("7m");
    let config = json!({ "sources": sources }).to_string();
    let config = Config::read(&config, "toolcrib.json", std::path::Path::new(".")).unwrap();
    fixture.registry.configuration().apply(&config).await.unwrap();
    wait_for_update(&mut events).await;
    assert_eq!((fixture.file_lines("starts").len(), fixture.request_count(SUBSCRIBE)), (2, 2));
    client.close().await;
    served.await.unwrap();
    fixture
        .wait_until("the server receives the unsubscribe request", |fixture| fixture.request_count(UNSUBSCRIBE) == 1)
        .await;
    fixture.registry.clone().close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn subscribers_are_notified_when_a_source_is_disabled() {
    let fixture = SubscriptionFixture::new("5m").await;
    let (client, _served) = fixture.connect().await;
    let mut events = subscribe(&client).await;
    let s = || SourceId::parse("s").unwrap();
    fixture.registry.execute(Command::Disable(s()), Actor::new("somebody")).await.unwrap();
    wait_for_update(&mut events).await;
    let error = send_request(&client, "resources/read", json!({ "uri": NOTE_URI })).await.unwrap_err().to_string();
    assert!(error.contains("no resource at"), "{error}");
    fixture.registry.execute(Command::Enable(s()), Actor::new("somebody")).await.unwrap();
    let mut events = subscribe(&client).await;
    announce_change(&client).await;
    wait_for_update(&mut events).await;
    fixture.registry.clone().close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_modern_subscription_ends_with_its_client() {
    let fixture = SubscriptionFixture::new("5m").await;
    let (client, served) = connect_client(&fixture.service, |options| options.era = Some(Era::Modern)).await;
    let mut notices = client.events();
    let listening = tokio::spawn(async move {
        let filter = json!({ "notifications": { "resourceSubscriptions": [NOTE_URI] } });
        // Pends until the client is closed; the result does not matter.
        let _ = send_request(&client, "subscriptions/listen", filter).await;
    });
    fixture
        .wait_until("the server receives the subscribe request", |fixture| fixture.request_count(SUBSCRIBE) == 1)
        .await;
    let (other, _other) = fixture.connect().await;
    announce_change(&other).await;
    wait_for_update(&mut notices).await;
    listening.abort();
    served.await.unwrap();
    fixture
        .wait_until("the server receives the unsubscribe request", |fixture| fixture.request_count(UNSUBSCRIBE) == 1)
        .await;
    fixture.registry.clone().close().await;
}

/// A client without a session ends with its subscription request.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stateless_subscription_ends_with_its_request() {
    let fixture = SubscriptionFixture::new("5m").await;
    let served = serve_http("127.0.0.1:0", &fixture.service).await;
    let target = ConnectTarget::Http { url: served.mcp_url(), headers: http::HeaderMap::new() };
    let client = McpClient::connect(target, ClientOptions::new("test", "0")).await.unwrap();
    assert_eq!(client.era(), Era::Modern);
    let listening = tokio::spawn(async move {
        let filter = json!({ "notifications": { "resourceSubscriptions": [NOTE_URI] } });
        // Pends until the task is aborted; the result does not matter.
        let _ = send_request(&client, "subscriptions/listen", filter).await;
    });
    fixture
        .wait_until("the server receives the subscribe request", |fixture| fixture.request_count(SUBSCRIBE) == 1)
        .await;
    listening.abort();
    fixture
        .wait_until("the server receives the unsubscribe request", |fixture| fixture.request_count(UNSUBSCRIBE) == 1)
        .await;
    served.stop().await;
    fixture.registry.clone().close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn over_a_bridge_a_subscription_survives_a_restart_and_ends_with_its_client() {
    let fixture = SubscriptionFixture::new("5m").await;
    let served = serve_http("127.0.0.1:0", &fixture.service).await;
    let bridge = Bridge::open(served.mcp_url()).await.unwrap();
    let (client, stream) = connect_client(&bridge, |_| {}).await;
    let mut events = subscribe(&client).await;
    announce_change(&client).await;
    wait_for_update(&mut events).await;

    let address = served.stop().await;
    fixture
        .wait_until("the server receives the unsubscribe request", |fixture| fixture.request_count(UNSUBSCRIBE) == 1)
        .await;
    let served = serve_http(&address, &fixture.service).await;
    // A change during the restart would have been missed, so an update is sent.
    wait_for_update(&mut events).await;
    assert_eq!(fixture.request_count(SUBSCRIBE), 2);

    client.close().await;
    stream.await.unwrap();
    bridge.close().await;
    fixture
        .wait_until("the server receives the unsubscribe request", |fixture| fixture.request_count(UNSUBSCRIBE) == 2)
        .await;
    served.stop().await;
    fixture.registry.clone().close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_number_of_subscriptions_is_limited() {
    let fixture = SubscriptionFixture::new("5m").await;
    let (client, _served) = fixture.connect().await;
    for number in 0..200 {
        send_request(&client, SUBSCRIBE, json!({ "uri": format!("{NOTE_URI}{number}") })).await.unwrap();
    }
    let error = send_request(&client, SUBSCRIBE, json!({ "uri": NOTE_URI })).await.unwrap_err().to_string();
    assert!(error.contains("`s` has 200 subscriptions of this client already"), "{error}");
    send_request(&client, SUBSCRIBE, json!({ "uri": format!("{NOTE_URI}7") }))
        .await
        .expect("this client is already subscribed");
    send_request(&client, UNSUBSCRIBE, json!({ "uri": format!("{NOTE_URI}7") })).await.unwrap();
    send_request(&client, SUBSCRIBE, json!({ "uri": NOTE_URI })).await.unwrap();

    let mut others = Vec::new();
    for _ in 0..4 {
        let (other, served) = fixture.connect().await;
        for number in 0..200 {
            send_request(&other, SUBSCRIBE, json!({ "uri": format!("{NOTE_URI}{number}") })).await.unwrap();
        }
        others.push((other, served));
    }
    let (late, _late) = fixture.connect().await;
    let error = send_request(&late, SUBSCRIBE, json!({ "uri": NOTE_URI })).await.unwrap_err().to_string();
    assert!(error.contains("`s` has 1000 subscriptions already"), "{error}");
    send_request(&client, SUBSCRIBE, json!({ "uri": NOTE_URI })).await.expect("this client is already subscribed");
    fixture.registry.clone().close().await;
}
