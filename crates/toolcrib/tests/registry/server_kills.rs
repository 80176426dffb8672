//! Servers that are killed during calls.
#![cfg(target_os = "linux")]

use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};

use crate::support::{call, list_tools, open_at, output_text as text_of, read_lines, scripted_source, wait_until};

/// Regression: with random kills, four calls were rejected for each one in flight at a kill.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn randomly_killed_servers_fail_few_calls_beyond_those_in_flight() {
    const SOURCES: usize = 20;
    const CLIENTS: usize = 50;
    const CALLS: usize = 40;
    const KILLS: usize = 32;
    let home = tempfile::tempdir().unwrap();
    let starts = |number: usize| home.path().join(format!("starts-{number}"));
    let sources: serde_json::Map<String, Value> = (0..SOURCES)
        .map(|number| (format!("s{number}"), scripted_source(&["--count-file", starts(number).to_str().unwrap()])))
        .collect();
    let registry = open_at(home.path(), Value::Object(sources)).await;
    assert_eq!(list_tools(&registry).await.len(), SOURCES * 3);
    let in_flight: Arc<Vec<AtomicUsize>> = Arc::new((0..SOURCES).map(|_| AtomicUsize::new(0)).collect());
    let done = Arc::new(AtomicUsize::new(0));

    let mut clients = tokio::task::JoinSet::new();
    for client in 0..CLIENTS {
        let registry = registry.clone();
        let in_flight = in_flight.clone();
        let done = done.clone();
        clients.spawn(async move {
            let mut failed = Vec::new();
            for number in 0..CALLS {
                let source = rand::random_range(0..SOURCES);
                let text = format!("{client}-{number}");
                // `echo` is idempotent, `fail` is not.
                let tool = if number % 2 == 0 { "echo" } else { "fail" };
                in_flight[source].fetch_add(1, Ordering::SeqCst);
                let answer = call(&registry, &format!("s{source}__{tool}"), json!({"text": text})).await;
                in_flight[source].fetch_sub(1, Ordering::SeqCst);
                done.fetch_add(1, Ordering::SeqCst);
                match answer {
                    Ok(output) if tool == "echo" => assert_eq!(text_of(&output), text, "an answer of another call"),
                    Ok(output) => assert!(output.is_error()),
                    Err(error) => failed.push(error.message),
                }
            }
            failed
        });
    }
    let mut hit = 0;
    let mut killed = 0;
    for kill in 0..KILLS {
        wait_until("some calls are done", || done.load(Ordering::SeqCst) >= kill * CLIENTS * CALLS / (KILLS + 1)).await;
        let source = rand::random_range(0..SOURCES);
        let Some(pid) = read_lines(&starts(source)).last().cloned().filter(|pid| is_server(pid)) else { continue };
        killed += 1;
        let before = in_flight[source].load(Ordering::SeqCst);
        // Fails when the process has ended meanwhile.
        let _ = Command::new("kill").args(["-KILL", &pid]).stderr(Stdio::null()).status();
        hit += before.max(in_flight[source].load(Ordering::SeqCst));
    }
    let failed: Vec<String> = clients.join_all().await.into_iter().flatten().collect();
    assert_eq!(done.load(Ordering::SeqCst), CLIENTS * CALLS);
    assert!(killed > KILLS / 2 && hit > 0, "{killed} servers were killed, with {hit} calls in flight");
    assert!(failed.len() <= 2 * hit, "{hit} in flight at kills, {} failed: {failed:?}", failed.len());
}

/// Whether the process is a scripted server: the id may have been reused.
fn is_server(pid: &str) -> bool {
    let command = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&command).contains("scripted-server")
}
