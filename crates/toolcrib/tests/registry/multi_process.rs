//! Several processes on one data directory: a registry in this process and `toolcrib` commands.
#![cfg(target_os = "linux")]

use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;
use toolcrib::Registry;
use toolcrib::refresh::RefreshStatus;
use toolcrib::registry::{DiscoveryStatus, HistoryQuery, RegistryNotice};
use toolcrib_testkit::observe::replace_file;
use toolcrib_testkit::programs;

use crate::support::{
    TEST_TIMEOUT, cached_tools, force_refresh, id, list_tools, open_at, read_lines, scripted_source, wait_until,
    with_settings,
};

/// Creates a data directory with a configuration file and opens a registry on it.
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
    replace_file(&home.join("list"), &json!(tools).to_string());
}

#[tokio::test]
async fn a_change_by_another_process_is_noticed() {
    let (home, registry) = open_with_config(|home| {
        write_tool_list(home, &["old"]);
        json!({"s": scripted_source(&["--change-file", home.join("list").to_str().unwrap()])})
    })
    .await;
    assert_eq!(list_tools(&registry).await, ["s__old"]);
    let before = registry.history().records(&HistoryQuery::after(0)).await.unwrap().len();
    write_tool_list(home.path(), &["new"]);
    let mut notices = registry.subscribe();
    let output = json_output(spawn_toolcrib(home.path(), &["refresh", "s", "--force"]));
    assert_eq!(output["results"][0]["added"], json!(["s__new"]), "{output}");
    let changed = async { while !matches!(notices.recv().await.unwrap(), RegistryNotice::CatalogChanged) {} };
    tokio::time::timeout(TEST_TIMEOUT, changed).await.unwrap();
    assert_eq!(cached_tools(&registry), ["s__new"]);
    assert_eq!(
        registry.history().records(&HistoryQuery::after(0)).await.unwrap().len(),
        before + 1,
        "one record for both processes"
    );

    // The other way round: the command sees the list of this process without contacting the server.
    write_tool_list(home.path(), &["newer"]);
    assert_eq!(force_refresh(&registry, "s").await.added, ["s__newer"]);
    let listed = json_output(spawn_toolcrib(home.path(), &["tools", "--cached"]));
    assert_eq!(listed["tools"][0]["name"], json!("s__newer"), "{listed}");
    assert_eq!(registry.store().verify().await.unwrap().faults, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_refreshes_of_processes_contact_a_source_once() {
    let (home, registry) = open_with_config(|home| {
        let starts = home.join("starts").to_str().unwrap().to_owned();
        json!({"s": scripted_source(&["--count-file", &starts, "--delay-ms", "4000"])})
    })
    .await;
    let running = registry.clone();
    let running = tokio::spawn(async move { force_refresh(&running, "s").await });
    wait_until("the discovery started", || read_lines(&home.path().join("starts")).len() == 1).await;
    let others: Vec<Child> = (0..2).map(|_| spawn_toolcrib(home.path(), &["refresh", "s", "--force"])).collect();
    let outputs: Vec<Value> =
        tokio::task::spawn_blocking(|| others.into_iter().map(json_output).collect()).await.unwrap();
    assert_eq!(running.await.unwrap().status, RefreshStatus::Success);
    for output in outputs {
        let result = &output["results"][0];
        assert_eq!((&result["status"], &result["contacted"]), (&json!("unchanged"), &json!(false)), "{output}");
        assert_eq!(result["unchanged"], json!(3));
    }
    assert_eq!(read_lines(&home.path().join("starts")).len(), 1);
}

/// Regression: a process that had not read the newest records contacted the source again.
#[tokio::test]
async fn a_discovery_of_another_process_is_used() {
    let home = tempfile::tempdir().unwrap();
    let starts = home.path().join("starts").to_str().unwrap().to_owned();
    let sources = json!({"s": scripted_source(&["--count-file", &starts])});
    let first = open_at(home.path(), sources.clone()).await;
    let other = open_at(home.path(), sources).await;
    assert_eq!(list_tools(&first).await.len(), 3);
    assert_eq!(list_tools(&other).await.len(), 3);
    assert_eq!(read_lines(&home.path().join("starts")).len(), 1);
    force_refresh(&other, "s").await;
    assert_eq!(read_lines(&home.path().join("starts")).len(), 2, "a forced refresh contacts the source");
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
    let outputs: Vec<Value> =
        tokio::task::spawn_blocking(|| processes.into_iter().map(json_output).collect()).await.unwrap();
    for output in outputs {
        assert_eq!(output["tools"].as_array().unwrap().len(), SOURCES * 3, "{output}");
    }
    assert_eq!(read_lines(&home.path().join("starts")).len(), SOURCES);
}

/// Regression: the lease of a killed process blocked the others and was shown as a running discovery.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_lease_of_a_killed_process_expires() {
    let (home, registry) = open_with_config(|home| {
        let starts = home.join("starts").to_str().unwrap().to_owned();
        json!({"s": with_settings(scripted_source(&["--count-file", &starts, "--hang", "list"]), json!({"discovery_timeout": "60s"}))})
    })
    .await;
    let mut other = spawn_toolcrib(home.path(), &["refresh", "s"]);
    let status = || registry.sources().get(&id("s")).unwrap().status;
    wait_until("the discovery is visible", || status() == DiscoveryStatus::Discovering).await;
    other.kill().unwrap();
    other.wait().unwrap();
    wait_until("the discovery is gone", || status() == DiscoveryStatus::Never).await;
    let listed = json_output(spawn_toolcrib(home.path(), &["sources"]));
    assert_eq!(listed["sources"][0]["status"], json!("never"), "{listed}");
}

/// Regression: a process that waited for the discovery of another first tried again when that failed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn processes_share_a_failed_discovery() {
    let (home, registry) = open_with_config(|home| {
        let starts = home.join("starts").to_str().unwrap().to_owned();
        let source = scripted_source(&["--count-file", &starts, "--hang", "list"]);
        json!({"s": with_settings(source, json!({"discovery_timeout": "12s"}))})
    })
    .await;
    let running = registry.clone();
    let running = tokio::spawn(async move { force_refresh(&running, "s").await });
    wait_until("the discovery started", || read_lines(&home.path().join("starts")).len() == 1).await;
    let other = spawn_toolcrib(home.path(), &["refresh", "s", "--force"]);
    let output = tokio::task::spawn_blocking(|| json_output(other)).await.unwrap();
    let failure = running.await.unwrap().error.unwrap();
    assert_eq!(output["results"][0]["error"]["message"], json!(failure.message), "{output}");
    assert_eq!(registry.sources().get(&id("s")).unwrap().status, DiscoveryStatus::Failed);
    assert_eq!(read_lines(&home.path().join("starts")).len(), 1);
}
