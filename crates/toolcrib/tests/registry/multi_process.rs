//! Two processes on one data directory: a registry here, the command beside it.
#![cfg(target_os = "linux")]

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;
use toolcrib::Registry;
use toolcrib::refresh::RefreshStatus;
use toolcrib::registry::{DiscoveryStatus, HistoryQuery, RegistryNotice};
use toolcrib_testkit::programs;

use crate::support::{
    cached_tools, force_refresh, id, list_tools, open_at, read_lines, scripted_source, wait_until, with_settings,
};

/// A directory with a configuration, and a registry that is open on it.
async fn open_with_config(sources: impl FnOnce(&Path) -> Value) -> (TempDir, Registry) {
    let home = tempfile::tempdir().unwrap();
    let sources = sources(home.path());
    std::fs::write(home.path().join("toolcrib.json"), json!({ "sources": sources }).to_string()).unwrap();
    let registry = open_at(home.path(), sources).await;
    (home, registry)
}

fn spawn_toolcrib(home: &Path, arguments: &[&str]) -> Child {
    let mut command = Command::new(programs::toolcrib_binary());
    command.args(arguments).arg("--json").arg("--data").arg(home).arg("--config").arg(home.join("toolcrib.json"));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap()
}

fn json_output(child: Child) -> Value {
    serde_json::from_slice(&child.wait_with_output().unwrap().stdout).unwrap()
}

fn write_tool_list(home: &Path, names: &[&str]) {
    let tools: Vec<Value> = names.iter().map(|name| json!({"name": name})).collect();
    std::fs::write(home.join("new"), json!(tools).to_string()).unwrap();
    std::fs::rename(home.join("new"), home.join("list")).unwrap();
}

#[tokio::test]
async fn what_a_command_changes_is_noticed_within_two_seconds() {
    let (home, registry) = open_with_config(|home| {
        write_tool_list(home, &["old"]);
        json!({"s": scripted_source(&["--change-file", home.join("list").to_str().unwrap()])})
    })
    .await;
    assert_eq!(list_tools(&registry).await, ["s__old"]);
    let before = registry.history(&HistoryQuery::after(0)).await.unwrap().len();
    write_tool_list(home.path(), &["new"]);
    let mut notices = registry.subscribe();
    let told = json_output(spawn_toolcrib(home.path(), &["refresh", "s", "--force"]));
    let done = Instant::now();
    assert_eq!(told["results"][0]["added"], json!(["s__new"]), "{told}");
    let changed = async { while !matches!(notices.recv().await.unwrap(), RegistryNotice::CatalogChanged) {} };
    tokio::time::timeout(Duration::from_secs(20), changed).await.unwrap();
    assert!(done.elapsed() < Duration::from_secs(2), "{:?}", done.elapsed());
    assert_eq!(cached_tools(&registry), ["s__new"]);
    assert_eq!(registry.history(&HistoryQuery::after(0)).await.unwrap().len(), before + 1, "one fact, for both");

    // And the other way round: what is known here is known there, without a question to the server.
    write_tool_list(home.path(), &["newer"]);
    assert_eq!(force_refresh(&registry, "s").await.added, ["s__newer"]);
    let listed = json_output(spawn_toolcrib(home.path(), &["tools", "--cached"]));
    assert_eq!(listed["tools"][0]["name"], json!("s__newer"), "{listed}");
    assert_eq!(registry.verify().await.unwrap().faults, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn processes_that_refresh_a_source_at_the_same_time_contact_it_once() {
    let (home, registry) = open_with_config(|home| {
        let starts = home.join("starts").to_str().unwrap().to_owned();
        json!({"s": scripted_source(&["--count-file", &starts, "--delay-ms", "4000"])})
    })
    .await;
    let running = registry.clone();
    let running = tokio::spawn(async move { force_refresh(&running, "s").await });
    wait_until("it is asked", || read_lines(&home.path().join("starts")).len() == 1).await;
    let others: Vec<Child> = (0..2).map(|_| spawn_toolcrib(home.path(), &["refresh", "s", "--force"])).collect();
    let told: Vec<Value> = tokio::task::spawn_blocking(|| others.into_iter().map(json_output).collect()).await.unwrap();
    assert_eq!(running.await.unwrap().status, RefreshStatus::Success);
    for told in told {
        let result = &told["results"][0];
        assert_eq!((&result["status"], &result["contacted"]), (&json!("unchanged"), &json!(false)), "{told}");
        assert_eq!(result["unchanged"], json!(3));
    }
    assert_eq!(read_lines(&home.path().join("starts")).len(), 1);
}

/// A process that had not yet heard of what another one found contacted the source again.
#[tokio::test]
async fn a_need_that_another_process_met_is_met() {
    let home = tempfile::tempdir().unwrap();
    let starts = home.path().join("starts").to_str().unwrap().to_owned();
    let sources = json!({"s": scripted_source(&["--count-file", &starts])});
    let (one, other) = (open_at(home.path(), sources.clone()).await, open_at(home.path(), sources).await);
    assert_eq!(list_tools(&one).await.len(), 3);
    assert_eq!(list_tools(&other).await.len(), 3);
    assert_eq!(read_lines(&home.path().join("starts")).len(), 1);
    force_refresh(&other, "s").await;
    assert_eq!(read_lines(&home.path().join("starts")).len(), 2, "what is forced is contacted");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_processes_contact_every_source_once() {
    const SOURCES: usize = 24;
    let home = tempfile::tempdir().unwrap();
    let starts = home.path().join("starts").to_str().unwrap().to_owned();
    let sources: serde_json::Map<String, Value> =
        (0..SOURCES).map(|number| (format!("s{number}"), scripted_source(&["--count-file", &starts]))).collect();
    std::fs::write(home.path().join("toolcrib.json"), json!({ "sources": sources }).to_string()).unwrap();
    let processes: Vec<Child> = (0..3).map(|_| spawn_toolcrib(home.path(), &["tools"])).collect();
    let told: Vec<Value> =
        tokio::task::spawn_blocking(|| processes.into_iter().map(json_output).collect()).await.unwrap();
    for told in told {
        assert_eq!(told["tools"].as_array().unwrap().len(), SOURCES * 3, "{told}");
    }
    assert_eq!(read_lines(&home.path().join("starts")).len(), SOURCES);
}

/// The lease of a process that was killed held up the others and showed as a discovery.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_is_killed_leaves_no_discovery_behind() {
    let (home, registry) = open_with_config(|home| {
        let starts = home.join("starts").to_str().unwrap().to_owned();
        json!({"s": with_settings(scripted_source(&["--count-file", &starts, "--hang", "list"]), json!({"discovery_timeout": "60s"}))})
    })
    .await;
    let mut other = spawn_toolcrib(home.path(), &["refresh", "s"]);
    let status = || registry.source(&id("s")).unwrap().status;
    wait_until("it is seen", || status() == DiscoveryStatus::Discovering).await;
    other.kill().unwrap();
    other.wait().unwrap();
    wait_until("it is over", || status() == DiscoveryStatus::Never).await;
    let listed = json_output(spawn_toolcrib(home.path(), &["sources"]));
    assert_eq!(listed["sources"][0]["status"], json!("never"), "{listed}");
}

/// Whoever waited for the discovery of another process tried again when that one failed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn processes_share_a_failure_too() {
    let (home, registry) = open_with_config(|home| {
        let starts = home.join("starts").to_str().unwrap().to_owned();
        let source = scripted_source(&["--count-file", &starts, "--hang", "list"]);
        json!({"s": with_settings(source, json!({"discovery_timeout": "4s"}))})
    })
    .await;
    let running = registry.clone();
    let running = tokio::spawn(async move { force_refresh(&running, "s").await });
    wait_until("it is asked", || read_lines(&home.path().join("starts")).len() == 1).await;
    let other = spawn_toolcrib(home.path(), &["refresh", "s", "--force"]);
    let told = tokio::task::spawn_blocking(|| json_output(other)).await.unwrap();
    let failure = running.await.unwrap().error.unwrap();
    assert_eq!(told["results"][0]["error"]["message"], json!(failure.message), "{told}");
    assert_eq!(registry.source(&id("s")).unwrap().status, DiscoveryStatus::Failed);
    assert_eq!(read_lines(&home.path().join("starts")).len(), 1);
}
