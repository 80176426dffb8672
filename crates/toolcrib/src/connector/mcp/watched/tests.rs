//! What only shows from inside: pauses, and who holds a connection at which moment.

use std::path::Path;

use tempfile::TempDir;
use tokio::sync::broadcast;
use tokio::time::advance;
use toolcrib_core::config::Config;

use super::*;
use crate::CallOptions;
use crate::connector::Connector;
use crate::connector::Request;
use crate::connector::mcp::McpConnector;

const URI: &str = "note://one";

#[tokio::test(start_paused = true)]
async fn looks_are_ever_rarer_until_all_was_well_for_long() {
    let watched = Watched::default();
    let looks = async |seconds: u64| {
        let mut looks = 0;
        for _ in 0..seconds {
            looks += u32::from(watched.is_due());
            advance(Duration::from_secs(1)).await;
        }
        looks
    };
    assert_eq!(looks(3).await, 2);
    assert!(looks(600).await < 20);
    advance(LONGEST_PAUSE * 3).await;
    assert_eq!(looks(3).await, 2);
}

/// A connector whose server is this program, or the scripted one; and where both write down what happens.
fn connector(command: &str, args: &[&str], settings: &str) -> (Arc<McpConnector>, TempDir) {
    let home = tempfile::tempdir().unwrap();
    let args: Vec<String> = args.iter().map(|arg| arg.replace("{home}", home.path().to_str().unwrap())).collect();
    let mut source = json!({ "command": command, "args": args });
    let settings: serde_json::Value = serde_json::from_str(settings).unwrap();
    source.as_object_mut().unwrap().extend(settings.as_object().unwrap().clone());
    let config = json!({ "sources": { "s": source } }).to_string();
    let config = Config::read(&config, "toolcrib.json", Path::new(".")).unwrap();
    let source = config.sources.into_iter().next().unwrap().source.unwrap();
    let news = News::new(broadcast::channel(16).0);
    (Arc::new(McpConnector::new(source, &crate::Options::default(), Arc::default(), news, Arc::default())), home)
}

fn request(method: &str, client: u64) -> Request {
    let options = CallOptions { client: Some(ClientId(client)), ..CallOptions::default() };
    let params = to_raw_value(&json!({ "uri": URI })).ok();
    Request { method: method.to_owned(), params, meta: None, terms: options.terms(Duration::from_secs(20)) }
}

fn lines(home: &TempDir, file: &str) -> Vec<String> {
    let text = std::fs::read_to_string(home.path().join(file)).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

#[tokio::test]
async fn a_server_hears_of_the_end_though_somebody_holds_the_connection_for_a_moment() {
    let scripted = toolcrib_testkit::rig::scripted();
    let args = ["--resources", "--log-file", "{home}/log"];
    let (connector, home) = connector(scripted.to_str().unwrap(), &args, "{}");
    connector.request(request("resources/subscribe", 1)).await.unwrap();
    let held = connector.lines.common.live.lock().await;
    let ending = connector.request(request("resources/unsubscribe", 1));
    let releasing = async {
        while connector.lines.common.watched.any() {
            tokio::task::yield_now().await;
        }
        drop(held);
    };
    tokio::join!(ending, releasing).0.unwrap();
    assert!(lines(&home, "log").contains(&"resources/unsubscribe".to_owned()));
    connector.close().await;
}

/// It is looked after while its client leaves.
#[tokio::test]
async fn no_server_is_started_for_a_client_that_has_left() {
    let script = "echo x >> {home}/starts; exec sleep 60";
    let settings = r#"{ "lifecycle": "per_client", "discovery_timeout": "1s" }"#;
    let (connector, home) = connector("/bin/sh", &["-c", script], settings);
    let client = ClientId(1);
    let terms = request("resources/subscribe", client.0).terms;
    let own = connector.lines.of(&connector.source, &terms).unwrap();
    connector.lines.common.watched.add(URI, None).unwrap().keep();
    own.watched.add(URI, Some(client)).unwrap().keep();
    let leaving = async {
        while lines(&home, "starts").is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        connector.client_gone(client).await;
    };
    timeout(Duration::from_secs(20), async { tokio::join!(connector.attend(), leaving) }).await.unwrap();
    assert_eq!(lines(&home, "starts").len(), 1, "the one of all");
    assert!(connector.is_neglected(), "which is watched on");
    connector.close().await;
    assert!(!connector.is_neglected());
}
