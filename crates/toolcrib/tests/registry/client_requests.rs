//! Asking back: what a server asks or says while it is called reaches the client that alone has calls there.
#![cfg(target_os = "linux")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::FutureExt;
use serde_json::value::to_raw_value;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use toolcrib::core::Result;
use toolcrib::{CallOptions, CallOutput, ClientId, Code, Registry};
use toolcrib_mcp::ServerRequestHandler;
use toolcrib_testkit::programs;

use crate::support::{SqliteRegistry, agent, open_scripted, output_text, read_lines, wait_until};

const ASK_FLAGS: [&str; 4] = ["--with", "elicit,sample,meta,announce,hang", "--log-file", "{home}/log"];

/// A client that answers every question in the same way, and counts them.
fn answering_client(number: u64, says: Value) -> (CallOptions, Arc<AtomicUsize>) {
    let asked = Arc::new(AtomicUsize::new(0));
    let counter = asked.clone();
    let back: ServerRequestHandler = Arc::new(move |_| {
        counter.fetch_add(1, Ordering::SeqCst);
        let says = to_raw_value(&says).unwrap();
        async move { Ok(says) }.boxed()
    });
    (CallOptions { client: Some(ClientId(number)), on_server_request: Some(back), ..CallOptions::default() }, asked)
}

/// A client that never answers.
fn silent_client(number: u64, timeout: Duration) -> CallOptions {
    let back: ServerRequestHandler = Arc::new(|_| std::future::pending().boxed());
    CallOptions {
        client: Some(ClientId(number)),
        on_server_request: Some(back),
        timeout: Some(timeout),
        ..CallOptions::default()
    }
}

fn accept_answer() -> Value {
    json!({"action": "accept", "content": {"how": "well"}})
}

async fn call(registry: &Registry, tool: &str, options: CallOptions) -> Result<CallOutput> {
    registry.call(&agent(), tool, json!({}), options).await
}

async fn call_json(registry: &Registry, tool: &str, options: CallOptions) -> Value {
    serde_json::from_str(&output_text(&call(registry, tool, options).await.unwrap())).unwrap()
}

#[tokio::test]
async fn a_client_that_is_alone_is_asked() {
    let workshop = open_scripted(&ASK_FLAGS, json!({})).await;
    let (options, asked) = answering_client(1, accept_answer());
    assert_eq!(call_json(&workshop, "s__elicit", options).await, accept_answer());
    assert_eq!(asked.load(Ordering::SeqCst), 1);
    let sampled = json!({"role": "assistant", "content": {"type": "text", "text": "4"}, "model": "m"});
    assert_eq!(call_json(&workshop, "s__sample", answering_client(1, sampled.clone()).0).await, sampled);
}

#[tokio::test]
async fn where_nobody_can_be_asked_it_is_declined() {
    let workshop = open_scripted(&ASK_FLAGS, json!({})).await;
    let nobody = CallOptions::default;
    assert_eq!(call_json(&workshop, "s__elicit", nobody()).await, json!({"action": "decline"}));
    assert_eq!(call_json(&workshop, "s__sample", nobody()).await["code"], json!(-1));
    let mute = CallOptions { client: Some(ClientId(1)), ..CallOptions::default() };
    assert_eq!(call_json(&workshop, "s__elicit", mute).await, json!({"action": "decline"}));
    let (unnamed, asked) = answering_client(1, accept_answer());
    let unnamed = CallOptions { client: None, ..unnamed };
    assert_eq!(call_json(&workshop, "s__elicit", unnamed).await, json!({"action": "decline"}));
    assert_eq!(asked.load(Ordering::SeqCst), 0);
}

/// Runs a call that does not end while something else is tried.
async fn start_hanging_call(
    workshop: &SqliteRegistry,
    options: CallOptions,
) -> tokio::task::JoinHandle<Result<CallOutput>> {
    let received = || read_lines(&workshop.path("log")).iter().filter(|line| line.contains("tools/call")).count();
    let before = received();
    let registry = workshop.registry.clone();
    let begun = tokio::spawn(async move { call(&registry, "s__hang", options).await });
    wait_until("the server has received it", || received() > before).await;
    begun
}

#[tokio::test]
async fn nobody_is_asked_what_may_be_another_clients() {
    let workshop = open_scripted(&ASK_FLAGS, json!({})).await;
    for other in [answering_client(2, accept_answer()).0, CallOptions::default()] {
        let hanging = start_hanging_call(&workshop, other).await;
        let (options, asked) = answering_client(1, accept_answer());
        assert_eq!(call_json(&workshop, "s__elicit", options).await, json!({"action": "decline"}));
        assert_eq!(asked.load(Ordering::SeqCst), 0);
        hanging.abort();
        let _aborted = hanging.await;
    }
    let hanging = start_hanging_call(&workshop, answering_client(1, accept_answer()).0).await;
    assert_eq!(
        call_json(&workshop, "s__elicit", answering_client(1, accept_answer()).0).await,
        accept_answer(),
        "two calls of one client"
    );
    hanging.abort();
}

#[tokio::test]
async fn what_a_server_says_reaches_the_client_that_is_alone() {
    let workshop = open_scripted(&ASK_FLAGS, json!({})).await;
    let input = json!({"method": "notifications/message", "params": {"level": "info", "data": "hello"}});
    let heard = async || {
        let (said, mut hears) = mpsc::channel(8);
        let options = CallOptions { notifications: Some(said), client: Some(ClientId(1)), ..CallOptions::default() };
        workshop.call(&agent(), "s__announce", input.clone(), options).await.unwrap();
        let said = hears.try_recv().ok()?;
        Some((said.method, said.params.unwrap().get().to_owned()))
    };
    let message = ("notifications/message".to_owned(), r#"{"level":"info","data":"hello"}"#.to_owned());
    assert_eq!(heard().await, Some(message), "before its call ends");
    let hanging = start_hanging_call(&workshop, answering_client(2, accept_answer()).0).await;
    assert_eq!(heard().await, None);
    hanging.abort();
}

/// While a person thinks, the source is not to blame.
#[tokio::test]
async fn a_person_who_does_not_answer_does_not_open_the_breaker() {
    let workshop = open_scripted(&ASK_FLAGS, json!({"call_timeout": "150ms"})).await;
    // Its start is not what is timed.
    let patient = || CallOptions { timeout: Some(Duration::from_secs(30)), ..CallOptions::default() };
    call(&workshop, "s__meta", patient()).await.unwrap();
    for _ in 0..6 {
        let began = std::time::Instant::now();
        let error = call(&workshop, "s__elicit", silent_client(1, Duration::from_millis(200))).await.unwrap_err();
        assert_eq!(error.code, Code::ToolExecutionFailed);
        assert!(error.message.starts_with("`elicit` of `s` asked the user for input and got no answer within"));
        assert!(began.elapsed() < Duration::from_secs(5));
    }
    assert!(call(&workshop, "s__meta", patient()).await.is_ok(), "the breaker is shut");
    for _ in 0..5 {
        call(&workshop, "s__hang", CallOptions::default()).await.unwrap_err();
    }
    let error = call(&workshop, "s__meta", CallOptions::default()).await.unwrap_err();
    assert!(error.message.contains("circuit breaker"), "without a question it is: {}", error.message);
}

#[tokio::test]
async fn a_server_of_2026_asks_by_its_result() {
    let flags = ["--with", "elicit,meta", "--version", "2026-07-28"];
    let workshop = open_scripted(&flags, json!({"call_timeout": "5s"})).await;
    let (options, asked) = answering_client(1, accept_answer());
    assert_eq!(call_json(&workshop, "s__elicit", options).await, accept_answer());
    assert_eq!(asked.load(Ordering::SeqCst), 1);
    assert_eq!(call_json(&workshop, "s__elicit", CallOptions::default()).await, json!({"action": "decline"}));
    let error = call(&workshop, "s__elicit", silent_client(1, Duration::from_millis(100))).await.unwrap_err();
    assert!(error.message.contains("asked its caller"), "{}", error.message);
    let meta = call_json(&workshop, "s__meta", CallOptions::default()).await;
    let capabilities = json!({"elicitation": {"form": {}, "url": {}}, "sampling": {}});
    assert_eq!(meta["io.modelcontextprotocol/clientCapabilities"], capabilities);
}

#[tokio::test]
async fn the_callers_meta_passes_and_the_protocols_own_is_made_anew() {
    let workshop = open_scripted(&ASK_FLAGS, json!({})).await;
    let meta = json!({"vendor/trace": {"a": 1}, "progressToken": "theirs",
        "io.modelcontextprotocol/clientInfo": {"name": "theirs"}, "io.modelcontextprotocol/logLevel": "info"});
    let options = || CallOptions { meta: Some(to_raw_value(&meta).unwrap()), ..CallOptions::default() };
    let passed = json!({"vendor/trace": {"a": 1}, "io.modelcontextprotocol/logLevel": "info"});
    assert_eq!(call_json(&workshop, "s__meta", options()).await, passed);
    let (progress, _hears) = mpsc::channel(1);
    let told = call_json(&workshop, "s__meta", CallOptions { progress: Some(progress), ..options() }).await;
    assert!(told["progressToken"].is_u64(), "{told}");
}

/// The reference server asks as real servers do, and lists what it can ask only to who can be asked.
async fn check_everything(source: Value) {
    let workshop = SqliteRegistry::open(json!({ "s": source })).await;
    let accepted = json!({"action": "accept", "content": {"name": "Ada", "check": true}});
    let output = call(&workshop, "s__trigger-elicitation-request", answering_client(1, accepted).0).await.unwrap();
    assert!(output.content().contains("Ada"), "{}", output.content());
    let output = call(&workshop, "s__trigger-elicitation-request", CallOptions::default()).await.unwrap();
    assert!(output.content().contains("declined"), "{}", output.content());
    let sampled = json!({"role": "assistant", "content": {"type": "text", "text": "forty-two"}, "model": "m"});
    let (options, _) = answering_client(1, sampled);
    let input = json!({"prompt": "how much?"});
    let output = workshop.call(&agent(), "s__trigger-sampling-request", input, options).await.unwrap();
    assert!(output.content().contains("forty-two"), "{}", output.content());
    workshop.registry.clone().close().await;
}

#[tokio::test]
async fn everything_asks_back() {
    let Some((program, arguments)) = programs::everything_server() else {
        return programs::skip("asking::everything_asks_back", "the server was not fetched");
    };
    check_everything(json!({"command": program, "args": arguments})).await;
}

#[tokio::test]
async fn everything_asks_back_over_http() {
    let Some(program) = programs::everything_server() else {
        return programs::skip("asking::everything_asks_back_over_http", "the server was not fetched");
    };
    let (_server, port) = crate::real_servers::start_http_server(program, |_| vec!["streamableHttp".to_owned()]).await;
    check_everything(json!({"url": format!("http://127.0.0.1:{port}/mcp")})).await;
}
