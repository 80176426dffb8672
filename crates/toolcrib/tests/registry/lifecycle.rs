//! Server processes: started, shared, replaced, stopped when idle, and ended; and what passes between caller and server.
#![cfg(target_os = "linux")]

use std::time::Duration;

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use toolcrib::call::CallDeadline;
use toolcrib::core::freshness::Freshness;
use toolcrib::core::inventory::{Actor, Command};
use toolcrib::refresh::RefreshStatus;
use toolcrib::registry::{ConnectionState, DiscoveryStatus, HistoryQuery};
use toolcrib::testkit::progress_channel;
use toolcrib::{CallContext, Code};

use crate::support::{
    SqliteRegistry, agent, cached_tools, call, force_refresh, id, is_running, list_tools, open_scripted, output_text,
    read_lines, scripted_source, wait_until, wait_until_async, with_settings,
};

const COUNT_FLAGS: [&str; 2] = ["--count-file", "{home}/starts"];

async fn call_echo(fixture: &SqliteRegistry) -> String {
    output_text(&call(fixture, "s__echo", json!({"text": "hello"})).await.unwrap())
}

fn connection_state(fixture: &SqliteRegistry) -> ConnectionState {
    fixture.sources().get(&id("s")).unwrap().connection
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_calls_share_one_process() {
    let fixture = open_scripted(&COUNT_FLAGS, json!({})).await;
    let calls = (0..64).map(|number| {
        let registry = fixture.registry.clone();
        tokio::spawn(async move {
            let sent = format!("number {number}");
            let output = call(&registry, "s__echo", json!({"text": sent})).await.unwrap();
            assert_eq!(output_text(&output), sent);
        })
    });
    for call in calls.collect::<Vec<_>>() {
        call.await.unwrap();
    }
    let starts = read_lines(&fixture.path("starts"));
    assert_eq!(starts.len(), 1, "the first discovery's process served the calls");
    assert_eq!(connection_state(&fixture), ConnectionState::Connected);
    fixture.registry.close().await;
    assert!(!is_running(&starts[0]), "closing ends it");
}

#[tokio::test]
async fn a_discovery_alone_leaves_no_process_behind() {
    let fixture = open_scripted(&COUNT_FLAGS, json!({})).await;
    assert_eq!(list_tools(&fixture).await.len(), 3);
    let starts = read_lines(&fixture.path("starts"));
    wait_until("it ended", || !is_running(&starts[0])).await;
    assert_eq!(connection_state(&fixture), ConnectionState::None);
}

#[tokio::test]
async fn a_connected_source_is_refreshed_over_its_connection() {
    let fixture = open_scripted(&COUNT_FLAGS, json!({})).await;
    call_echo(&fixture).await;
    force_refresh(&fixture, "s").await;
    force_refresh(&fixture, "s").await;
    assert_eq!(read_lines(&fixture.path("starts")).len(), 1);
}

/// Regression: a call of a stale source started one process for the call and another one for the refresh.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_of_a_stale_source_starts_one_process() {
    let fixture = open_scripted(&COUNT_FLAGS, json!({"ttl": "1ms"})).await;
    list_tools(&fixture).await;
    wait_until("it is stale", || fixture.refresher().due_sources() == [id("s")]).await;
    let before = fixture.history().checks(&id("s")).await.unwrap().len();
    call_echo(&fixture).await;
    wait_until("it was looked at", || connection_state(&fixture) == ConnectionState::Connected).await;
    let refreshed = async || fixture.history().checks(&id("s")).await.unwrap().len() > before;
    wait_until_async("the list is refreshed", refreshed).await;
    assert_eq!(read_lines(&fixture.path("starts")).len(), 2, "one to discover, one to call");
}

#[tokio::test]
async fn a_transient_source_has_a_process_for_each_call() {
    let fixture = open_scripted(&COUNT_FLAGS, json!({"lifecycle": "transient"})).await;
    list_tools(&fixture).await;
    for _ in 0..3 {
        call_echo(&fixture).await;
    }
    let starts = read_lines(&fixture.path("starts"));
    assert_eq!(starts.len(), 4);
    wait_until("all ended", || !starts.iter().any(|pid| is_running(pid))).await;
}

#[tokio::test]
async fn an_idle_server_is_stopped_and_restarted_by_the_next_call() {
    let fixture = open_scripted(&COUNT_FLAGS, json!({"idle": "300ms"})).await;
    call_echo(&fixture).await;
    let first = read_lines(&fixture.path("starts")).remove(0);
    // A refresh does not reset the idle timer.
    wait_until_async("the idle server is stopped", async || {
        force_refresh(&fixture, "s").await;
        !is_running(&first)
    })
    .await;
    wait_until("the connection is gone", || connection_state(&fixture) == ConnectionState::None).await;
    assert_eq!(call_echo(&fixture).await, "hello");
}

#[tokio::test]
async fn a_server_that_died_between_calls_is_replaced() {
    let fixture = open_scripted(&["--count-file", "{home}/starts", "--with", "crash"], json!({})).await;
    call_echo(&fixture).await;
    let error = call(&fixture, "s__crash", json!({})).await.unwrap_err();
    assert_eq!(error.code, Code::ToolExecutionFailed, "{}", error.message);
    assert!(error.message.contains("the server exited during the call (exit status 1)"), "{}", error.message);
    assert!(!error.message.contains("stderr: "), "another client's arguments may be in it: {}", error.message);
    assert_eq!(call_echo(&fixture).await, "hello");
    crate::support::send_signal("KILL", &read_lines(&fixture.path("starts"))[1]);
    assert_eq!(call_echo(&fixture).await, "hello");
    assert_eq!(read_lines(&fixture.path("starts")).len(), 3);
}

#[tokio::test]
async fn a_call_is_repeated_after_a_crash_only_if_read_only() {
    let flags = ["--die-once", "{home}/died", "--log-file", "{home}/log", "--tools", "4"];
    let sent =
        |fixture: &SqliteRegistry| read_lines(&fixture.path("log")).iter().filter(|line| *line == "tools/call").count();
    let fixture = open_scripted(&flags, json!({})).await;
    assert_eq!(call_echo(&fixture).await, "hello", "`echo` only reads");
    assert_eq!(sent(&fixture), 2);

    let fixture = open_scripted(&flags, json!({})).await;
    let error = call(&fixture, "s__tool_0001", json!({})).await.unwrap_err();
    assert_eq!(error.code, Code::ToolExecutionFailed, "{}", error.message);
    assert_eq!(sent(&fixture), 1, "it may have happened");
    assert!(call(&fixture, "s__tool_0001", json!({})).await.is_ok());
}

#[tokio::test]
async fn cancellation_reaches_the_server() {
    let fixture = open_scripted(&["--with", "hang", "--log-file", "{home}/received"], json!({})).await;
    call_echo(&fixture).await;
    let received = |what: &str| {
        let log = std::fs::read_to_string(fixture.home.path().join("received")).unwrap_or_default();
        log.lines().filter(|line| line.contains(what)).count()
    };
    let cancel = CancellationToken::new();
    let options = CallContext { cancel: cancel.clone(), ..CallContext::default() };
    let caller = agent();
    let (result, ()) =
        tokio::join!(fixture.call("s__hang", json!({})).context(options).caller(caller.clone()), async {
            wait_until("the call is there", || received("tools/call") == 2).await;
            cancel.cancel();
        });
    assert_eq!(result.unwrap_err().message, "the call was cancelled");
    wait_until("the server received the first cancellation", || received("notifications/cancelled") == 1).await;
    // Dropping a call cancels it too.
    tokio::select! {
        _ = call(&fixture, "s__hang", json!({})) => panic!("it never answers"),
        () = wait_until("the call is there", || received("tools/call") == 3) => {}
    }
    wait_until("the server received the second cancellation", || received("notifications/cancelled") == 2).await;
    assert_eq!(call_echo(&fixture).await, "hello");
}

#[tokio::test]
async fn a_timed_out_call_reports_its_timeout() {
    let fixture = open_scripted(&["--with", "hang"], json!({"call_timeout": "300ms"})).await;
    // Start the server first, so that its start does not count towards the timeout.
    let patient =
        CallContext { deadline: Some(CallDeadline::after(Duration::from_secs(30))), ..CallContext::default() };
    fixture.call("s__echo", json!({"text": "hello"})).context(patient).caller(agent()).await.unwrap();
    let error = call(&fixture, "s__hang", json!({})).await.unwrap_err();
    let expected = (Code::ToolExecutionFailed, "`hang` of `s` timed out after 300ms");
    assert_eq!((error.code, error.message.as_str()), expected);
}

#[tokio::test]
async fn progress_reaches_the_caller() {
    let fixture = open_scripted(&["--progress", "4"], json!({})).await;
    let (listener, mut progress) = progress_channel();
    let output = fixture.call("s__slow", json!({})).on_progress(listener).caller(agent()).await.unwrap();
    assert_eq!(output_text(&output), "done");
    let mut steps = Vec::new();
    while let Some(step) = progress.recv().await {
        let step: Value = serde_json::from_str(step.get()).unwrap();
        steps.push(step["progress"].as_u64().unwrap());
    }
    assert_eq!(steps, [1, 2, 3, 4]);
}

#[tokio::test]
async fn results_and_errors_pass_through() {
    let fixture = open_scripted(&["--with", "image,rpc_error,large"], json!({"result_limit": "10KiB"})).await;
    let output = call(&fixture, "s__echo", json!({"text": "ß"})).await.unwrap();
    assert_eq!(output.structured().unwrap(), r#"{"text":"ß"}"#);
    let output = call(&fixture, "s__image", json!({})).await.unwrap();
    let content: Value = serde_json::from_str(output.content()).unwrap();
    assert_eq!((&content[0]["type"], &content[0]["mimeType"]), (&json!("image"), &json!("image/png")));
    let output = call(&fixture, "s__fail", json!({})).await.unwrap();
    assert_eq!((output.is_error(), output_text(&output)), (true, "it failed".to_owned()));
    for _ in 0..6 {
        let error = call(&fixture, "s__rpc_error", json!({})).await.unwrap_err();
        assert_eq!(error.code, Code::ToolExecutionFailed);
        assert_eq!(error.message, "`rpc_error` of `s` failed: the server is not well");
        let details = json!({"rpc_code": -32000, "rpc_message": "the server is not well"});
        assert_eq!(error.details, Some(details));
    }
    let page = call(&fixture, "s__large", json!({"bytes": 20_000})).await.unwrap().page.unwrap();
    assert_eq!((page.number, page.page_count), (1, 3));
    assert_eq!(connection_state(&fixture), ConnectionState::Connected, "none of these errors opens the breaker");
}

#[tokio::test]
async fn a_server_gets_a_clean_environment_and_its_configured_variables() {
    let settings = json!({"env": {"GRANTED": "${file:{home}/token}"}});
    let home = tempfile::tempdir().unwrap();
    std::fs::write(home.path().join("token"), "from a file\n").unwrap();
    let settings: Value =
        serde_json::from_str(&settings.to_string().replace("{home}", home.path().to_str().unwrap())).unwrap();
    let fixture =
        SqliteRegistry::open_in(home, json!({"s": with_settings(scripted_source(&["--env-tool"]), settings)})).await;
    let output = call(&fixture, "s__env", json!({})).await.unwrap();
    let environment: serde_json::Map<String, Value> = serde_json::from_str(&output_text(&output)).unwrap();
    assert_eq!(environment["GRANTED"], json!("from a file"));
    assert!(environment.contains_key("PATH"));
    let ours =
        |name: &&String| name.starts_with("CARGO") || name.starts_with("NEXTEST") || name.starts_with("TOOLCRIB");
    assert_eq!(environment.keys().filter(ours).collect::<Vec<_>>(), Vec::<&String>::new());
    let secret = format!(
        "{:?}{}",
        fixture.history().records(&HistoryQuery::after(0)).await.unwrap(),
        serde_json::to_string(&fixture.sources().list()).unwrap()
    );
    assert!(!secret.contains("from a file"));
}

#[tokio::test]
async fn a_rotated_secret_file_is_used_by_the_next_connection() {
    let home = tempfile::tempdir().unwrap();
    let token = home.path().join("token");
    let settings =
        json!({"env": {"GRANTED": format!("${{file:{}}}", token.display())}, "lifecycle": "transient", "ttl": "1h"});
    std::fs::write(&token, "first-token").unwrap();
    let source = with_settings(scripted_source(&["--env-tool"]), settings);
    let fixture = SqliteRegistry::open_in(home, json!({"s": source})).await;
    assert!(list_tools(&fixture).await.contains(&"s__env".to_owned()));
    let first = fixture.sources().get(&id("s")).unwrap();
    for value in ["first-token", "second-token"] {
        std::fs::write(&token, value).unwrap();
        let output = call(&fixture, "s__env", json!({})).await.unwrap();
        let environment: serde_json::Map<String, Value> = serde_json::from_str(&output_text(&output)).unwrap();
        assert_eq!(environment["GRANTED"], json!(value));
    }
    // The list is discovered again, because it may be that of another account.
    let source = || fixture.sources().get(&id("s")).unwrap();
    let is_rediscovered = || source().last_checked != first.last_checked && source().status == DiscoveryStatus::Success;
    wait_until("the list is discovered again", is_rediscovered).await;
    let second = source();
    assert_ne!(first.config_hash, second.config_hash);
    assert_eq!(second.freshness, Freshness::Fresh);
    // A forced refresh records the values with which it connected.
    std::fs::write(&token, "third-token").unwrap();
    force_refresh(&fixture, "s").await;
    let third = fixture.sources().get(&id("s")).unwrap();
    assert_ne!(second.config_hash, third.config_hash);
    assert_eq!(third.freshness, Freshness::Fresh);
}

/// Regression: a failed list over the shared connection ended the server while calls were running.
#[tokio::test]
async fn a_failed_list_over_a_shared_connection_does_not_affect_calls() {
    let home = tempfile::tempdir().unwrap();
    let list = home.path().join("list");
    let whole = json!([{"name": "slow", "inputSchema": {"type": "object"}}]).to_string();
    std::fs::write(&list, &whole).unwrap();
    let flags = ["--change-file", list.to_str().unwrap(), "--progress", "100"];
    let fixture = SqliteRegistry::open_in(home, json!({"s": scripted_source(&flags)})).await;
    let (listener, mut progress) = progress_channel();
    let registry = fixture.registry.clone();
    let running =
        tokio::spawn(async move { registry.call("s__slow", json!({})).on_progress(listener).caller(agent()).await });
    assert!(progress.recv().await.is_some(), "the call is under way");
    std::fs::write(&list, "no list").unwrap();
    let outcome = force_refresh(&fixture, "s").await;
    assert_eq!(outcome.status, RefreshStatus::Failed);
    assert_eq!(output_text(&running.await.unwrap().unwrap()), "done");
}

#[tokio::test]
async fn a_change_notification_updates_the_list() {
    let home = tempfile::tempdir().unwrap();
    let list = home.path().join("list");
    let write = |names: &[&str]| {
        let tools: Vec<Value> = names.iter().map(|name| json!({"name": name})).collect();
        std::fs::write(&list, json!(tools).to_string()).unwrap();
    };
    write(&["announce", "old"]);
    let fixture =
        SqliteRegistry::open_in(home, json!({"s": scripted_source(&["--change-file", list.to_str().unwrap()])})).await;
    assert_eq!(list_tools(&fixture).await, ["s__announce", "s__old"]);
    write(&["announce", "new"]);
    call(&fixture, "s__announce", json!({})).await.unwrap();
    wait_until("the new tool is listed", || cached_tools(&fixture) == ["s__announce", "s__new"]).await;
}

#[tokio::test]
async fn a_disabled_source_is_stopped_after_its_calls_finished() {
    let fixture = open_scripted(&["--count-file", "{home}/starts", "--progress", "30"], json!({})).await;
    let (listener, mut progress) = progress_channel();
    let registry = fixture.registry.clone();
    let running =
        tokio::spawn(async move { registry.call("s__slow", json!({})).on_progress(listener).caller(agent()).await });
    assert!(progress.recv().await.is_some());
    fixture.execute(Command::Disable(id("s")), Actor::new("operator")).await.unwrap();
    assert!(cached_tools(&fixture).is_empty());
    assert_eq!(output_text(&running.await.unwrap().unwrap()), "done");
    let pid = read_lines(&fixture.path("starts")).remove(0);
    wait_until("it ended", || !is_running(&pid)).await;
}

#[tokio::test]
async fn closing_ends_the_whole_process_tree() {
    let fixture = open_scripted(&["--grandchildren", "--pids-file", "{home}/pids", "--ignore-eof"], json!({})).await;
    call_echo(&fixture).await;
    let family: Vec<String> = read_lines(&fixture.path("pids"));
    let pids: Vec<&str> = family.iter().filter_map(|line| line.split(' ').nth(1)).collect();
    assert_eq!(pids.len(), 3);
    fixture.registry.clone().close().await;
    wait_until("all are gone", || !pids.iter().any(|pid| is_running(pid))).await;
}
