//! Requests and notifications of a server during a call: they reach the client, if it is the only one with active calls.
#![cfg(target_os = "linux")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::FutureExt;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use toolcrib::call::{CallDeadline, NotificationListener, QuestionHandler};
use toolcrib::core::Result;
use toolcrib::testkit::progress_channel;
use toolcrib::{CallContext, CallOutput, ClientId, Code, Registry};
use toolcrib_testkit::programs;

use crate::support::{SqliteRegistry, agent, open_scripted, output_text, read_lines, skip_time, wait_until};

const ASK_FLAGS: [&str; 4] = ["--with", "elicit,sample,meta,announce,hang", "--log-file", "{home}/log"];

/// A client that gives the same answer to every request of the server and counts the requests.
fn answering_client(number: u64, answer: Value) -> (CallContext, Arc<AtomicUsize>) {
    let request_count = Arc::new(AtomicUsize::new(0));
    let counter = request_count.clone();
    let handler: QuestionHandler = Arc::new(move |_| {
        counter.fetch_add(1, Ordering::SeqCst);
        let answer = to_raw_value(&answer).unwrap();
        async move { Ok(answer) }.boxed()
    });
    (
        CallContext { client: Some(ClientId(number)), on_question: Some(handler), ..CallContext::default() },
        request_count,
    )
}

/// A client that never answers: after the question, the 30 s of its call pass at once.
fn silent_client(number: u64) -> CallContext {
    let timeout = Duration::from_secs(30);
    let handler: QuestionHandler = Arc::new(move |_| {
        // In a task of its own, because the question is dropped with the call.
        tokio::spawn(skip_time(timeout));
        std::future::pending().boxed()
    });
    CallContext {
        client: Some(ClientId(number)),
        on_question: Some(handler),
        deadline: Some(CallDeadline::after(timeout)),
        ..CallContext::default()
    }
}

fn accept_answer() -> Value {
    json!({"action": "accept", "content": {"how": "well"}})
}

async fn call(registry: &Registry, tool: &str, options: CallContext) -> Result<CallOutput> {
    registry.call(tool, json!({})).context(options).caller(agent()).await
}

async fn call_json(registry: &Registry, tool: &str, options: CallContext) -> Value {
    serde_json::from_str(&output_text(&call(registry, tool, options).await.unwrap())).unwrap()
}

#[tokio::test]
async fn a_server_request_reaches_the_only_active_client() {
    let fixture = open_scripted(&ASK_FLAGS, json!({})).await;
    let (options, request_count) = answering_client(1, accept_answer());
    assert_eq!(call_json(&fixture, "s__elicit", options).await, accept_answer());
    assert_eq!(request_count.load(Ordering::SeqCst), 1);
    let sampled = json!({"role": "assistant", "content": {"type": "text", "text": "4"}, "model": "m"});
    assert_eq!(call_json(&fixture, "s__sample", answering_client(1, sampled.clone()).0).await, sampled);
}

#[tokio::test]
async fn a_server_request_is_declined_without_a_handler() {
    let fixture = open_scripted(&ASK_FLAGS, json!({})).await;
    let without_client = CallContext::default;
    assert_eq!(call_json(&fixture, "s__elicit", without_client()).await, json!({"action": "decline"}));
    assert_eq!(call_json(&fixture, "s__sample", without_client()).await["code"], json!(-1));
    let without_handler = CallContext { client: Some(ClientId(1)), ..CallContext::default() };
    assert_eq!(call_json(&fixture, "s__elicit", without_handler).await, json!({"action": "decline"}));
    let (without_id, request_count) = answering_client(1, accept_answer());
    let without_id = CallContext { client: None, ..without_id };
    assert_eq!(call_json(&fixture, "s__elicit", without_id).await, json!({"action": "decline"}));
    assert_eq!(request_count.load(Ordering::SeqCst), 0);
}

/// Starts a call that never ends and waits until the server has received it.
async fn start_hanging_call(
    fixture: &SqliteRegistry,
    options: CallContext,
) -> tokio::task::JoinHandle<Result<CallOutput>> {
    let received = || read_lines(&fixture.path("log")).iter().filter(|line| line.contains("tools/call")).count();
    let before = received();
    let registry = fixture.registry.clone();
    let call_task = tokio::spawn(async move { call(&registry, "s__hang", options).await });
    wait_until("the server has received it", || received() > before).await;
    call_task
}

#[tokio::test]
async fn a_server_request_is_declined_while_two_clients_are_active() {
    let fixture = open_scripted(&ASK_FLAGS, json!({})).await;
    for other in [answering_client(2, accept_answer()).0, CallContext::default()] {
        let hanging = start_hanging_call(&fixture, other).await;
        let (options, request_count) = answering_client(1, accept_answer());
        assert_eq!(call_json(&fixture, "s__elicit", options).await, json!({"action": "decline"}));
        assert_eq!(request_count.load(Ordering::SeqCst), 0);
        hanging.abort();
        // Returns the error of the aborted task.
        let _ = hanging.await;
    }
    let hanging = start_hanging_call(&fixture, answering_client(1, accept_answer()).0).await;
    assert_eq!(
        call_json(&fixture, "s__elicit", answering_client(1, accept_answer()).0).await,
        accept_answer(),
        "two calls of one client"
    );
    hanging.abort();
}

#[tokio::test]
async fn notifications_reach_the_only_active_client() {
    let fixture = open_scripted(&ASK_FLAGS, json!({})).await;
    let input = json!({"method": "notifications/message", "params": {"level": "info", "data": "hello"}});
    let received_notification = async || {
        let (sender, mut receiver) = mpsc::unbounded_channel();
        let listener: NotificationListener = Arc::new(move |method: &str, params: Option<&RawValue>| {
            sender.send((method.to_owned(), params.unwrap().get().to_owned())).unwrap();
        });
        let options =
            CallContext { on_notification: Some(listener), client: Some(ClientId(1)), ..CallContext::default() };
        fixture.call("s__announce", input.clone()).context(options).caller(agent()).await.unwrap();
        receiver.try_recv().ok()
    };
    let message = ("notifications/message".to_owned(), r#"{"level":"info","data":"hello"}"#.to_owned());
    assert_eq!(received_notification().await, Some(message), "before its call ends");
    let hanging = start_hanging_call(&fixture, answering_client(2, accept_answer()).0).await;
    assert_eq!(received_notification().await, None);
    hanging.abort();
}

/// Waiting for a person is no failure of the source.
#[tokio::test]
async fn an_unanswered_question_does_not_open_the_breaker() {
    let fixture = open_scripted(&ASK_FLAGS, json!({"call_timeout": "25s"})).await;
    for _ in 0..6 {
        let error = call(&fixture, "s__elicit", silent_client(1)).await.unwrap_err();
        assert_eq!(error.code, Code::ToolExecutionFailed);
        assert_eq!(error.message, "`elicit` of `s` asked the user for input and got no answer within 30s");
    }
    assert!(call(&fixture, "s__meta", CallContext::default()).await.is_ok(), "the breaker is closed");
    for _ in 0..5 {
        let hanging = start_hanging_call(&fixture, CallContext::default()).await;
        skip_time(Duration::from_secs(25)).await;
        hanging.await.unwrap().unwrap_err();
    }
    let error = call(&fixture, "s__meta", CallContext::default()).await.unwrap_err();
    assert!(
        error.message.contains("circuit breaker"),
        "timeouts without a question open the breaker: {}",
        error.message
    );
}

#[tokio::test]
async fn a_modern_server_asks_with_an_input_required_result() {
    let flags = ["--with", "elicit,meta", "--version", "2026-07-28"];
    let fixture = open_scripted(&flags, json!({"call_timeout": "5s"})).await;
    let (options, request_count) = answering_client(1, accept_answer());
    assert_eq!(call_json(&fixture, "s__elicit", options).await, accept_answer());
    assert_eq!(request_count.load(Ordering::SeqCst), 1);
    assert_eq!(call_json(&fixture, "s__elicit", CallContext::default()).await, json!({"action": "decline"}));
    let error = call(&fixture, "s__elicit", silent_client(1)).await.unwrap_err();
    assert!(error.message.contains("asked the user for input"), "{}", error.message);
    let meta = call_json(&fixture, "s__meta", CallContext::default()).await;
    let capabilities = json!({"elicitation": {"form": {}, "url": {}}, "sampling": {}});
    assert_eq!(meta["io.modelcontextprotocol/clientCapabilities"], capabilities);
}

#[tokio::test]
async fn the_callers_meta_is_forwarded_without_hop_by_hop_keys() {
    let fixture = open_scripted(&ASK_FLAGS, json!({})).await;
    let meta = json!({"vendor/trace": {"a": 1}, "progressToken": "theirs",
        "io.modelcontextprotocol/clientInfo": {"name": "theirs"}, "io.modelcontextprotocol/logLevel": "info"});
    let call = || fixture.call("s__meta", json!({})).meta(to_raw_value(&meta).ok());
    let read = |output: CallOutput| serde_json::from_str::<Value>(&output.text()).unwrap();
    let passed = json!({"vendor/trace": {"a": 1}, "io.modelcontextprotocol/logLevel": "info"});
    assert_eq!(read(call().await.unwrap()), passed);
    let (progress, _receiver) = progress_channel();
    let meta = read(call().on_progress(progress).await.unwrap());
    assert!(meta["progressToken"].is_u64(), "{meta}");
}

/// Checks elicitation and sampling with the reference server, which lists these tools only to clients that support them.
async fn check_everything(source: Value) {
    let fixture = SqliteRegistry::open(json!({ "s": source })).await;
    let accepted = json!({"action": "accept", "content": {"name": "Ada", "check": true}});
    let output = call(&fixture, "s__trigger-elicitation-request", answering_client(1, accepted).0).await.unwrap();
    assert!(output.content().contains("Ada"), "{}", output.content());
    let output = call(&fixture, "s__trigger-elicitation-request", CallContext::default()).await.unwrap();
    assert!(output.content().contains("declined"), "{}", output.content());
    let sampled = json!({"role": "assistant", "content": {"type": "text", "text": "forty-two"}, "model": "m"});
    let (options, _) = answering_client(1, sampled);
    let input = json!({"prompt": "how much?"});
    let output = fixture.call("s__trigger-sampling-request", input).context(options).caller(agent()).await.unwrap();
    assert!(output.content().contains("forty-two"), "{}", output.content());
    fixture.registry.clone().close().await;
}

#[tokio::test]
async fn server_everything_asks_the_client() {
    let Some((program, arguments)) = programs::everything_server() else {
        return programs::skip("client_requests::server_everything_asks_the_client", "the server was not fetched");
    };
    check_everything(json!({"command": program, "args": arguments})).await;
}

#[tokio::test]
async fn server_everything_asks_the_client_over_http() {
    let Some(program) = programs::everything_server() else {
        return programs::skip(
            "client_requests::server_everything_asks_the_client_over_http",
            "the server was not fetched",
        );
    };
    let (_server, port) = super::real_servers::start_http_server(program, |_| vec!["streamableHttp".to_owned()]).await;
    check_everything(json!({"url": format!("http://127.0.0.1:{port}/mcp")})).await;
}
