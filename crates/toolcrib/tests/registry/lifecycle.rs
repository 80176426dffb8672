//! Processes behind calls: who is started, shared, replaced, put to sleep and ended; and what passes through.
#![cfg(target_os = "linux")]

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use toolcrib::core::inventory::{Actor, Command};
use toolcrib::refresh::Refreshed;
use toolcrib::registry::{Connection, Wanted};
use toolcrib::{CallOptions, Code};

use crate::support::{Workshop, agent, cached, call, force, id, lines, lives, one, scripted, text, tools, until, with};

const COUNTED: [&str; 2] = ["--count-file", "{home}/starts"];

async fn echo(workshop: &Workshop) -> String {
    text(&call(workshop, "s__echo", json!({"text": "hello"})).await.unwrap())
}

fn connection(workshop: &Workshop) -> Connection {
    workshop.source(&id("s")).unwrap().connection
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sixty_four_calls_at_once_share_one_process() {
    let workshop = one(&COUNTED, json!({})).await;
    let calls = (0..64).map(|number| {
        let registry = workshop.registry.clone();
        tokio::spawn(async move {
            let said = format!("number {number}");
            let output = call(&registry, "s__echo", json!({"text": said})).await.unwrap();
            assert_eq!(text(&output), said);
        })
    });
    for one in calls.collect::<Vec<_>>() {
        one.await.unwrap();
    }
    let starts = lines(&workshop.path("starts"));
    assert_eq!(starts.len(), 1, "the first discovery's process served the calls");
    assert_eq!(connection(&workshop), Connection::Connected);
    workshop.registry.close().await;
    assert!(!lives(&starts[0]), "closing ends it");
}

#[tokio::test]
async fn a_discovery_alone_leaves_no_process_behind() {
    let workshop = one(&COUNTED, json!({})).await;
    assert_eq!(tools(&workshop).await.len(), 3);
    let starts = lines(&workshop.path("starts"));
    until("it ended", || !lives(&starts[0])).await;
    assert_eq!(connection(&workshop), Connection::None);
}

#[tokio::test]
async fn a_connected_source_is_refreshed_over_its_connection() {
    let workshop = one(&COUNTED, json!({})).await;
    echo(&workshop).await;
    force(&workshop, "s").await;
    force(&workshop, "s").await;
    assert_eq!(lines(&workshop.path("starts")).len(), 1);
}

/// A call of a stale source started one server for itself and another one to look at the list.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_of_a_stale_source_starts_one_process() {
    let workshop = one(&COUNTED, json!({"ttl": "1ms"})).await;
    tools(&workshop).await;
    until("it is stale", || workshop.due() == [id("s")]).await;
    let before = workshop.checks(&id("s")).await.unwrap().len();
    echo(&workshop).await;
    until("it was looked at", || connection(&workshop) == Connection::Connected).await;
    let deadline = Instant::now() + Duration::from_secs(20);
    while workshop.checks(&id("s")).await.unwrap().len() == before {
        assert!(Instant::now() < deadline, "nobody looked at its list");
    }
    assert_eq!(lines(&workshop.path("starts")).len(), 2, "one to discover, one to call");
}

#[tokio::test]
async fn a_transient_source_has_a_process_for_each_call() {
    let workshop = one(&COUNTED, json!({"lifecycle": "transient"})).await;
    tools(&workshop).await;
    for _ in 0..3 {
        echo(&workshop).await;
    }
    let starts = lines(&workshop.path("starts"));
    assert_eq!(starts.len(), 4);
    until("all ended", || !starts.iter().any(|pid| lives(pid))).await;
}

#[tokio::test]
async fn an_idle_server_is_put_to_sleep_and_woken_by_the_next_call() {
    let workshop = one(&COUNTED, json!({"idle": "300ms"})).await;
    echo(&workshop).await;
    let first = lines(&workshop.path("starts")).remove(0);
    // Looking at its list keeps nobody awake.
    let asleep = Instant::now();
    while lives(&first) {
        force(&workshop, "s").await;
        assert!(asleep.elapsed() < Duration::from_secs(20), "it never sleeps");
    }
    until("the connection is gone", || connection(&workshop) == Connection::None).await;
    assert_eq!(echo(&workshop).await, "hello");
}

#[tokio::test]
async fn a_server_that_died_between_calls_is_replaced() {
    let workshop = one(&["--count-file", "{home}/starts", "--with", "crash"], json!({})).await;
    echo(&workshop).await;
    let error = call(&workshop, "s__crash", json!({})).await.unwrap_err();
    assert_eq!(error.code, Code::ToolExecutionFailed, "{}", error.message);
    assert_eq!(echo(&workshop).await, "hello");
    crate::support::kill(&lines(&workshop.path("starts"))[1]);
    assert_eq!(echo(&workshop).await, "hello");
    assert_eq!(lines(&workshop.path("starts")).len(), 3);
}

#[tokio::test]
async fn a_death_in_mid_call_is_repeated_only_where_that_does_no_harm() {
    let flags = ["--die-once", "{home}/died", "--log-file", "{home}/log", "--tools", "4"];
    let sent = |workshop: &Workshop| lines(&workshop.path("log")).iter().filter(|line| *line == "tools/call").count();
    let workshop = one(&flags, json!({})).await;
    assert_eq!(echo(&workshop).await, "hello", "`echo` only reads");
    assert_eq!(sent(&workshop), 2);

    let workshop = one(&flags, json!({})).await;
    let error = call(&workshop, "s__tool_0001", json!({})).await.unwrap_err();
    assert_eq!(error.code, Code::ToolExecutionFailed, "{}", error.message);
    assert_eq!(sent(&workshop), 1, "it may have happened");
    assert!(call(&workshop, "s__tool_0001", json!({})).await.is_ok());
}

#[tokio::test]
async fn cancellation_reaches_the_server() {
    let workshop = one(&["--with", "hang", "--log-file", "{home}/received"], json!({})).await;
    echo(&workshop).await;
    let received = |what: &str| {
        let log = std::fs::read_to_string(workshop.home.path().join("received")).unwrap_or_default();
        log.lines().filter(|line| line.contains(what)).count()
    };
    let cancel = CancellationToken::new();
    let options = CallOptions { cancel: cancel.clone(), ..CallOptions::default() };
    let caller = agent();
    let (result, ()) = tokio::join!(workshop.call(&caller, "s__hang", json!({}), options), async {
        until("the call is there", || received("tools/call") == 2).await;
        cancel.cancel();
    });
    assert_eq!(result.unwrap_err().message, "the call was cancelled");
    until("the server heard of the first", || received("notifications/cancelled") == 1).await;
    // A call that is dropped is one that nobody waits for either.
    tokio::select! {
        _ = call(&workshop, "s__hang", json!({})) => panic!("it never answers"),
        () = until("the call is there", || received("tools/call") == 3) => {}
    }
    until("the server heard of the second", || received("notifications/cancelled") == 2).await;
    assert_eq!(echo(&workshop).await, "hello");
}

#[tokio::test]
async fn a_call_that_takes_too_long_says_so() {
    let workshop = one(&["--with", "hang"], json!({"call_timeout": "300ms"})).await;
    // Its start is not what is timed.
    let patient = CallOptions { timeout: Some(Duration::from_secs(30)), ..CallOptions::default() };
    workshop.call(&agent(), "s__echo", json!({"text": "hello"}), patient).await.unwrap();
    let error = call(&workshop, "s__hang", json!({})).await.unwrap_err();
    let expected = (Code::ToolExecutionFailed, "`hang` of `s` did not answer within 300ms");
    assert_eq!((error.code, error.message.as_str()), expected);
}

#[tokio::test]
async fn progress_reaches_the_caller() {
    let workshop = one(&["--progress", "4"], json!({})).await;
    let (sender, mut progress) = mpsc::channel(16);
    let options = CallOptions { progress: Some(sender), ..CallOptions::default() };
    let output = workshop.call(&agent(), "s__slow", json!({}), options).await.unwrap();
    assert_eq!(text(&output), "done");
    let mut steps = Vec::new();
    while let Some(step) = progress.recv().await {
        let step: Value = serde_json::from_str(step.get()).unwrap();
        steps.push(step["progress"].as_u64().unwrap());
    }
    assert_eq!(steps, [1, 2, 3, 4]);
}

#[tokio::test]
async fn results_and_errors_pass_through() {
    let workshop = one(&["--with", "image,rpc_error,large"], json!({"result_limit": "10KiB"})).await;
    let output = call(&workshop, "s__echo", json!({"text": "ß"})).await.unwrap();
    assert_eq!(output.structured().unwrap(), r#"{"text":"ß"}"#);
    let output = call(&workshop, "s__image", json!({})).await.unwrap();
    let content: Value = serde_json::from_str(output.content()).unwrap();
    assert_eq!((&content[0]["type"], &content[0]["mimeType"]), (&json!("image"), &json!("image/png")));
    let output = call(&workshop, "s__fail", json!({})).await.unwrap();
    assert_eq!((output.is_error(), text(&output)), (true, "it failed".to_owned()));
    for _ in 0..6 {
        let error = call(&workshop, "s__rpc_error", json!({})).await.unwrap_err();
        assert_eq!(error.code, Code::ToolExecutionFailed);
        assert_eq!(error.message, "`rpc_error` of `s` failed: the server is not well");
        let details = json!({"rpc_code": -32000, "rpc_message": "the server is not well"});
        assert_eq!(error.details, Some(details));
    }
    let page = call(&workshop, "s__large", json!({"bytes": 20_000})).await.unwrap().page.unwrap();
    assert_eq!((page.number, page.of), (1, 3));
    assert_eq!(connection(&workshop), Connection::Connected, "none of that makes it rest");
}

#[tokio::test]
async fn a_server_gets_a_clean_environment_and_what_its_config_grants() {
    let settings = json!({"env": {"GRANTED": "${file:{home}/token}"}});
    let home = tempfile::tempdir().unwrap();
    std::fs::write(home.path().join("token"), "from a file\n").unwrap();
    let settings: Value =
        serde_json::from_str(&settings.to_string().replace("{home}", home.path().to_str().unwrap())).unwrap();
    let workshop = Workshop::open_in(home, json!({"s": with(scripted(&["--env-tool"]), settings)})).await;
    let output = call(&workshop, "s__env", json!({})).await.unwrap();
    let environment: serde_json::Map<String, Value> = serde_json::from_str(&text(&output)).unwrap();
    assert_eq!(environment["GRANTED"], json!("from a file"));
    assert!(environment.contains_key("PATH"));
    let ours =
        |name: &&String| name.starts_with("CARGO") || name.starts_with("NEXTEST") || name.starts_with("TOOLCRIB");
    assert_eq!(environment.keys().filter(ours).collect::<Vec<_>>(), Vec::<&String>::new());
    let secret = format!(
        "{:?}{}",
        workshop.history(&Wanted::after(0)).await.unwrap(),
        serde_json::to_string(&workshop.sources()).unwrap()
    );
    assert!(!secret.contains("from a file"));
}

/// A list that failed over the shared connection ended the server under the calls of others.
#[tokio::test]
async fn a_list_that_fails_over_a_live_connection_leaves_its_calls_alone() {
    let home = tempfile::tempdir().unwrap();
    let list = home.path().join("list");
    let whole = json!([{"name": "slow", "inputSchema": {"type": "object"}}]).to_string();
    std::fs::write(&list, &whole).unwrap();
    let flags = ["--change-file", list.to_str().unwrap(), "--progress", "100"];
    let workshop = Workshop::open_in(home, json!({"s": scripted(&flags)})).await;
    let (sender, mut progress) = mpsc::channel(1);
    let registry = workshop.registry.clone();
    let running = tokio::spawn(async move {
        let options = CallOptions { progress: Some(sender), ..CallOptions::default() };
        registry.call(&agent(), "s__slow", json!({}), options).await
    });
    assert!(progress.recv().await.is_some(), "the call is under way");
    std::fs::write(&list, "no list").unwrap();
    let outcome = force(&workshop, "s").await;
    assert_eq!(outcome.status, Refreshed::Failed);
    assert_eq!(text(&running.await.unwrap().unwrap()), "done");
}

#[tokio::test]
async fn a_change_that_a_server_announces_is_listed() {
    let home = tempfile::tempdir().unwrap();
    let list = home.path().join("list");
    let write = |names: &[&str]| {
        let tools: Vec<Value> = names.iter().map(|name| json!({"name": name})).collect();
        std::fs::write(&list, json!(tools).to_string()).unwrap();
    };
    write(&["announce", "old"]);
    let workshop = Workshop::open_in(home, json!({"s": scripted(&["--change-file", list.to_str().unwrap()])})).await;
    assert_eq!(tools(&workshop).await, ["s__announce", "s__old"]);
    write(&["announce", "new"]);
    call(&workshop, "s__announce", json!({})).await.unwrap();
    until("the new tool is listed", || cached(&workshop) == ["s__announce", "s__new"]).await;
}

#[tokio::test]
async fn a_disabled_source_loses_its_process_once_its_calls_are_done() {
    let workshop = one(&["--count-file", "{home}/starts", "--progress", "30"], json!({})).await;
    let (sender, mut progress) = mpsc::channel(64);
    let registry = workshop.registry.clone();
    let running = tokio::spawn(async move {
        let options = CallOptions { progress: Some(sender), ..CallOptions::default() };
        registry.call(&agent(), "s__slow", json!({}), options).await
    });
    assert!(progress.recv().await.is_some());
    workshop.execute(Command::Disable(id("s")), Actor::new("somebody")).await.unwrap();
    assert!(cached(&workshop).is_empty());
    assert_eq!(text(&running.await.unwrap().unwrap()), "done");
    let pid = lines(&workshop.path("starts")).remove(0);
    until("it ended", || !lives(&pid)).await;
}

#[tokio::test]
async fn nothing_is_left_of_a_servers_family_after_closing() {
    let workshop = one(&["--grandchildren", "--pids-file", "{home}/pids", "--ignore-eof"], json!({})).await;
    echo(&workshop).await;
    let family: Vec<String> = lines(&workshop.path("pids"));
    let pids: Vec<&str> = family.iter().filter_map(|line| line.split(' ').nth(1)).collect();
    assert_eq!(pids.len(), 3);
    workshop.registry.clone().close().await;
    until("all are gone", || !pids.iter().any(|pid| lives(pid))).await;
}
