//! Behaviour that is visible only from inside: check intervals, and the state of connection locks.

use std::path::Path;

use serde_json::value::RawValue;
use tempfile::TempDir;
use tokio::sync::broadcast;
use tokio::time::advance;
use toolcrib_config::Config;
use toolcrib_testkit::observe::{TEST_TIMEOUT, read_lines, wait_until};

use super::*;
use crate::CallContext;
use crate::connector::{CallDeadline, CallFailure, Connector, SourceRequest};
use crate::connectors::mcp::McpConnector;
use crate::secret::SourceReferences;

const RESOURCE_URI: &str = "note://one";

#[tokio::test(start_paused = true)]
async fn checks_back_off_and_start_over_after_a_quiet_time() {
    let subscriptions = SubscriptionSet::default();
    let checks = async |seconds: u64| {
        let mut checks = 0;
        for _ in 0..seconds {
            checks += u32::from(subscriptions.begin_check_if_due());
            advance(Duration::from_secs(1)).await;
        }
        checks
    };
    assert_eq!(checks(3).await, 2);
    assert!(checks(600).await < 20);
    advance(MAX_CHECK_INTERVAL * 3).await;
    assert_eq!(checks(3).await, 2);
}

/// Connector of a stdio source, and the directory (`{home}` in `args`) in which its server writes log files.
fn build_connector(command: &str, args: &[&str], settings: &str) -> (Arc<McpConnector>, TempDir) {
    let home = tempfile::tempdir().unwrap();
    let args: Vec<String> = args.iter().map(|arg| arg.replace("{home}", home.path().to_str().unwrap())).collect();
    let mut source = json!({ "command": command, "args": args });
    let settings: serde_json::Value = serde_json::from_str(settings).unwrap();
    source.as_object_mut().unwrap().extend(settings.as_object().unwrap().clone());
    let config = json!({ "sources": { "s": source } }).to_string();
    let config = Config::read(&config, "toolcrib.json", Path::new(".")).unwrap();
    let source = config.sources.into_iter().next().unwrap().source.unwrap();
    let source_events = SourceEvents::new(broadcast::channel(16).0);
    let references = Arc::new(SourceReferences::new(source.kind.clone(), Arc::default()));
    (Arc::new(McpConnector::new(source, Arc::default(), Arc::default(), source_events, references)), home)
}

async fn send_request(connector: &McpConnector, method: &str) -> Result<Box<RawValue>, CallFailure> {
    let context = CallContext { client: Some(ClientId(1)), ..CallContext::default() };
    let params = to_raw_value(&json!({ "uri": RESOURCE_URI })).unwrap();
    let deadline = CallDeadline::after(Duration::from_secs(20));
    let source = &connector.source.id;
    connector.request(&SourceRequest { source, method, params: Some(&params), deadline, context: &context }).await
}

#[tokio::test]
async fn a_server_is_told_to_unsubscribe_while_the_connection_is_locked() {
    let scripted = toolcrib_testkit::programs::scripted_server();
    let args = ["--resources", "--log-file", "{home}/log"];
    let (connector, home) = build_connector(scripted.to_str().unwrap(), &args, "{}");
    send_request(&connector, "resources/subscribe").await.unwrap();
    let locked = connector.pool.shared.connection.lock().await;
    let unsubscribing = send_request(&connector, "resources/unsubscribe");
    let releasing = async {
        wait_until("it is unsubscribed", || !connector.pool.shared.subscriptions.has_any()).await;
        drop(locked);
    };
    tokio::join!(unsubscribing, releasing).0.unwrap();
    assert!(read_lines(&home.path().join("log")).contains(&"resources/unsubscribe".to_owned()));
    connector.close().await;
}

/// The client disconnects while its connection is being restored.
#[tokio::test]
async fn no_server_is_started_for_a_disconnected_client() {
    let script = "echo x >> {home}/starts; exec sleep 60";
    let settings = r#"{ "lifecycle": "per_client", "discovery_timeout": "1s" }"#;
    let (connector, home) = build_connector("/bin/sh", &["-c", script], settings);
    let client = ClientId(1);
    let context = CallContext { client: Some(client), ..CallContext::default() };
    let pooled = connector.pool.select(&connector.source, &context).unwrap();
    connector.pool.shared.subscriptions.add(RESOURCE_URI, None).unwrap().commit();
    pooled.subscriptions.add(RESOURCE_URI, Some(client)).unwrap().commit();
    let disconnecting = async {
        wait_until("the server has started", || !read_lines(&home.path().join("starts")).is_empty()).await;
        connector.client_disconnected(client).await;
    };
    timeout(TEST_TIMEOUT, async { tokio::join!(connector.restore_connections(), disconnecting) }).await.unwrap();
    assert_eq!(read_lines(&home.path().join("starts")).len(), 1, "only for the shared connection");
    assert!(connector.has_outdated_subscriptions(), "the shared connection still has a subscription");
    connector.close().await;
    assert!(!connector.has_outdated_subscriptions());
}
