//! SIGKILL at any moment of a refresh: no acknowledged write is lost, and a tool list is old or new, never partial.
#![cfg(target_os = "linux")]

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use serde_json::{Value, json};
use toolcrib::config::Config;
use toolcrib::{Registry, RegistryOptions};
use toolcrib_testkit::programs;

use crate::support::sleep_before_kill;

const ROUNDS: usize = 50;
/// Enough tools to notice a partial list.
const TOOL_COUNT: usize = 40;

#[test]
fn a_killed_refresh_leaves_the_old_or_the_new_list() {
    let home = tempfile::tempdir().unwrap();
    let home = home.path();
    // One source per round, because a killed process holds its discovery lease until it expires.
    let sources: serde_json::Map<String, Value> = (0..ROUNDS)
        .map(|round| {
            write_list(home, round, "old");
            let list = home.join(format!("list{round}"));
            (format!("s{round}"), json!({"command": programs::scripted_server(), "args": ["--change-file", list]}))
        })
        .collect();
    std::fs::write(home.join("toolcrib.json"), json!({ "sources": sources }).to_string()).unwrap();
    assert!(toolcrib(home, &["refresh"]).status().unwrap().success());
    let started_at = Instant::now();
    assert!(toolcrib(home, &["refresh", "s0", "--force"]).status().unwrap().success());
    // The refresh is killed at a random time within this window. The window adapts to the last result, so that both
    // results occur on any machine.
    let mut window = started_at.elapsed();

    let mut old = 0;
    let mut new = 0;
    let mut acknowledged = 0;
    for round in 0..ROUNDS {
        write_list(home, round, "new");
        let source = format!("s{round}");
        let mut refresh = toolcrib(home, &["refresh", &source, "--force"]).spawn().unwrap();
        sleep_before_kill(window.mul_f64(rand::random::<f64>()));
        refresh.kill().unwrap();
        let succeeded = refresh.wait().unwrap().success();
        match listed_version(home, &source).as_str() {
            "old" => {
                assert!(!succeeded, "round {round}: it reported success");
                old += 1;
                window = window.mul_f64(1.2);
            }
            "new" => {
                new += 1;
                window = window.mul_f64(0.8);
            }
            other => unreachable!("round {round}: {other}"),
        }
        acknowledged += usize::from(succeeded);
        verify(home, round);
    }
    // The proportion depends on the machine, but both results must have occurred.
    assert!(old > 0 && new > 0, "{old} old, {new} new, {acknowledged} acknowledged");
}

fn write_list(home: &Path, round: usize, version: &str) {
    let tool = |number| json!({"name": format!("tool_{number}"), "description": version});
    let tools: Vec<Value> = (0..TOOL_COUNT).map(tool).collect();
    let path = home.join(format!("list{round}"));
    std::fs::write(path.with_extension("new"), json!(tools).to_string()).unwrap();
    std::fs::rename(path.with_extension("new"), path).unwrap();
}

fn toolcrib(home: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(programs::toolcrib_binary());
    command.args(arguments).arg("--json").arg("--data").arg(home).arg("--config").arg(home.join("toolcrib.json"));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

/// Returns the description that all tools of the source share.
fn listed_version(home: &Path, source: &str) -> String {
    let output = toolcrib(home, &["tools", "--cached", "--source", source]).stdout(Stdio::piped()).output().unwrap();
    let listed: Value = serde_json::from_slice(&output.stdout).unwrap();
    let tools = listed["tools"].as_array().unwrap();
    assert_eq!(tools.len(), TOOL_COUNT, "{source}");
    let versions: BTreeSet<&str> = tools.iter().map(|tool| tool["description"].as_str().unwrap()).collect();
    assert_eq!(versions.len(), 1, "{source}: half of a list");
    versions.into_iter().next().unwrap().to_owned()
}

fn verify(home: &Path, round: usize) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let store = toolcrib::store::open(home.to_str().unwrap()).await.unwrap();
        let text = std::fs::read_to_string(home.join("toolcrib.json")).unwrap();
        let config = Config::read(&text, "toolcrib.json", home).unwrap();
        let options = RegistryOptions {
            store: Some(store),
            follow_writes: false,
            environment: Vec::new(),
            ..RegistryOptions::default()
        };
        let registry = Registry::open(config, options).await.unwrap();
        let found = registry.store().verify().await.unwrap();
        assert_eq!((found.faults, found.manifests), (Vec::new(), ROUNDS), "round {round}");
        registry.close().await;
    });
}
