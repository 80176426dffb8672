//! However Toolcrib ends, no process of a server survives it: children, grandchildren, or processes that left the process
//! group.
#![cfg(target_os = "linux")]

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;
use toolcrib_testkit::observe::is_running;
use toolcrib_testkit::programs;

use crate::support::test_server::{read_or_empty, send_signal, wait_until};

/// A directory with a server that starts child processes which try to escape.
struct ProcessTreeFixture(TempDir);

impl ProcessTreeFixture {
    fn new() -> ProcessTreeFixture {
        ProcessTreeFixture::with_arguments(&[], json!({}))
    }

    /// Adds arguments for the server, and the `defaults` of the configuration.
    fn with_arguments(more: &[&str], defaults: Value) -> ProcessTreeFixture {
        let home = tempfile::tempdir().unwrap();
        let path = |name: &str| home.path().join(name).to_str().unwrap().to_owned();
        let args = [
            "--grandchildren",
            "--pids-file",
            &path("family"),
            "--count-file",
            &path("starts"),
            "--log-file",
            &path("log"),
            "--with",
            "hang",
            "--ignore-eof",
        ];
        let args: Vec<&str> = args.iter().chain(more).copied().collect();
        let config =
            json!({"sources": {"s": {"command": programs::scripted_server(), "args": args}}, "defaults": defaults});
        std::fs::write(home.path().join("toolcrib.json"), config.to_string()).unwrap();
        ProcessTreeFixture(home)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn spawn_toolcrib(&self, arguments: &[&str]) -> Child {
        let mut command = Command::new(programs::toolcrib_binary());
        command.args(arguments).arg("--data").arg(self.0.path()).arg("--config").arg(self.path("toolcrib.json"));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    }

    /// Starts a call that never ends, and waits until it has reached the server.
    fn start_hanging_call(&self) -> Child {
        let child = self.spawn_toolcrib(&["call", "s__hang"]);
        wait_until("the call to be in flight", || read_or_empty(&self.path("log")).contains("tools/call"));
        assert!(self.all_pids().iter().all(|pid| is_running(pid)), "all of them run");
        child
    }

    /// Ids of all processes that the servers and their children ever started.
    fn all_pids(&self) -> Vec<String> {
        let starts = read_or_empty(&self.path("starts"));
        let pids = read_or_empty(&self.path("family"));
        let pids = starts.lines().chain(pids.lines()).filter_map(|line| line.rsplit(' ').next());
        pids.map(str::to_owned).collect()
    }

    fn assert_no_process_left(&self) {
        let pids = self.all_pids();
        assert!(pids.len() >= 4, "a server, its child, its grandchild and an escapee: {pids:?}");
        wait_until("all processes to end", || !pids.iter().any(|pid| is_running(pid)));
    }
}

#[test]
fn no_process_survives_sigkill_during_a_call() {
    let fixture = ProcessTreeFixture::new();
    let mut child = fixture.start_hanging_call();
    child.kill().unwrap();
    child.wait().unwrap();
    fixture.assert_no_process_left();
}

#[test]
fn no_process_survives_sigint_during_a_call() {
    let fixture = ProcessTreeFixture::new();
    let mut child = fixture.start_hanging_call();
    send_signal("INT", child.id());
    assert!(!child.wait().unwrap().success());
    fixture.assert_no_process_left();
}

#[test]
fn no_process_survives_sigterm_during_a_call() {
    let fixture = ProcessTreeFixture::new();
    let mut child = fixture.start_hanging_call();
    send_signal("TERM", child.id());
    child.wait().unwrap();
    fixture.assert_no_process_left();
}

#[test]
fn no_process_survives_a_finished_command() {
    let fixture = ProcessTreeFixture::new();
    assert!(fixture.spawn_toolcrib(&["call", "s__echo", "text=hello"]).wait().unwrap().success());
    fixture.assert_no_process_left();
    assert!(fixture.spawn_toolcrib(&["refresh", "--force"]).wait().unwrap().success());
    fixture.assert_no_process_left();
}

#[test]
fn no_process_survives_a_command_whose_source_hangs() {
    let fixture = ProcessTreeFixture::with_arguments(&["--hang", "list"], json!({ "first_start_timeout": "1s" }));
    assert_eq!(fixture.spawn_toolcrib(&["refresh"]).wait().unwrap().code(), Some(1));
    fixture.assert_no_process_left();
}
