//! Large results: stored for a limited time and read page by page, by the client or principal that called.

use std::time::Duration;

use serde_json::{Value, json};
use toolcrib::core::access::Role;
use toolcrib::core::principal::PrincipalIdentity;
use toolcrib::testkit::ScriptedSource;
use toolcrib::{CallContext, CallOutput, ClientId, Code, Principal, Registry, Result, ResultPaging};

use crate::support::{TestRegistry, agent, call, open_yaml};

const RESULT_LIMIT: usize = 1024;

/// Opens a source whose tool `say` returns its argument `result`.
async fn open_limited() -> TestRegistry {
    let git = ScriptedSource::new(["say"]);
    git.set_reply(|_, input| input["result"].clone());
    open_yaml("sources: { git: { command: x, result_limit: 1KiB } }", &[("git", &git)]).await
}

async fn call_say(registry: &Registry, client: Option<u64>, result: Value) -> CallOutput {
    let options = CallContext { client: client.map(ClientId), ..CallContext::default() };
    registry.call("git__say", json!({ "result": result })).context(options).caller(agent()).await.unwrap()
}

/// Reads a page as the same principal, from a connection with this number.
fn read_page(registry: &Registry, client: Option<u64>, cursor: &str) -> Result<CallOutput> {
    let context = CallContext { client: client.map(ClientId), caller: agent(), ..CallContext::default() };
    registry.result_page(cursor, &context)
}

fn long_result() -> Value {
    json!("0123456789".repeat(500))
}

fn next_cursor(output: &CallOutput) -> String {
    output.page.as_ref().unwrap().next.clone().unwrap()
}

fn content_blocks(output: &CallOutput) -> Vec<Value> {
    serde_json::from_str(output.content()).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_small_result_is_passed_unchanged() {
    let fixture = open_limited().await;
    let result = json!({"vendor": {"x": 1}, "content": [{"type": "odd", "y": 2}], "_meta": {"z": 3}});
    let output = call_say(&fixture, None, result.clone()).await;
    assert_eq!(serde_json::from_str::<Value>(output.raw.get()).unwrap(), result);
    assert_eq!((output.meta(), &output.page), (Some(r#"{"z":3}"#), &None));
}

#[tokio::test(start_paused = true)]
async fn all_pages_of_a_large_result_come_from_one_call() {
    let git = ScriptedSource::new(["say"]);
    git.set_reply(|_, input| input["result"].clone());
    let fixture = open_yaml("sources: { git: { command: x, result_limit: 1KiB } }", &[("git", &git)]).await;
    let mut output = call_say(&fixture, Some(1), long_result()).await;
    let mut read = String::new();
    for number in 1.. {
        let page = output.page.clone().unwrap();
        assert_eq!((page.number, page.total_bytes), (number, 5039));
        assert!(output.raw.get().len() <= RESULT_LIMIT, "{}", output.raw.get().len());
        read.push_str(content_blocks(&output)[0]["text"].as_str().unwrap());
        match page.next {
            Some(next) => output = read_page(&fixture, Some(1), &next).unwrap(),
            None => break,
        }
    }
    assert_eq!(json!(read), long_result());
    assert_eq!(git.calls(), 1);
    let stats = fixture.statistics().totals();
    assert_eq!((stats.calls, stats.errors), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_call_for_the_full_result_is_not_paged() {
    let fixture = open_limited().await;
    let call = fixture.call("git__say", json!({"result": long_result()}));
    let output = call.paging(ResultPaging::Whole).caller(agent()).await.unwrap();
    assert_eq!(
        (output.page.clone(), &content_blocks(&output)[0]["text"], content_blocks(&output).len()),
        (None, &long_result(), 1)
    );
    let value = serde_json::to_value(&output).unwrap();
    let keys: Vec<&String> = value.as_object().unwrap().keys().collect();
    assert_eq!(keys, ["content", "structured", "is_error", "elapsed_ms", "source"]);
}

#[tokio::test(start_paused = true)]
async fn a_page_belongs_to_the_client_that_called() {
    let fixture = open_limited().await;
    let cursor = next_cursor(&call_say(&fixture, Some(1), long_result()).await);
    for other in [None, Some(2)] {
        let error = read_page(&fixture, other, &cursor).unwrap_err();
        assert_eq!(error.code, Code::ToolInvalidInput);
        assert!(error.message.contains("call the tool again"), "{}", error.message);
    }
    assert!(read_page(&fixture, Some(1), &cursor).is_ok());
    fixture.client_disconnected(ClientId(2));
    assert!(read_page(&fixture, Some(1), &cursor).is_ok(), "it may be read again");
    fixture.client_disconnected(ClientId(1));
    assert!(read_page(&fixture, Some(1), &cursor).is_err());

    let options = CallContext { client: Some(ClientId(3)), stateless: true, ..CallContext::default() };
    let output =
        fixture.call("git__say", json!({"result": long_result()})).context(options).caller(agent()).await.unwrap();
    fixture.client_disconnected(ClientId(3));
    let cursor = next_cursor(&output);
    assert!(read_page(&fixture, Some(4), &cursor).is_err(), "another session");
    assert!(read_page(&fixture, None, &cursor).is_ok(), "without a session, a page belongs to the principal");
    let identity = PrincipalIdentity::Token { id: "0123".into() };
    let other = CallContext { caller: Principal::new(identity, "other", Role::Admin), ..CallContext::default() };
    assert_eq!(fixture.result_page(&cursor, &other).unwrap_err().code, Code::ToolInvalidInput);
}

#[tokio::test(start_paused = true)]
async fn stored_results_expire_and_are_bounded() {
    let fixture = open_limited().await;
    let first = next_cursor(&call_say(&fixture, None, long_result()).await);
    tokio::time::sleep(Duration::from_secs(599)).await;
    assert!(read_page(&fixture, None, &first).is_ok());
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(read_page(&fixture, None, &first).is_err());

    let oldest = next_cursor(&call_say(&fixture, None, long_result()).await);
    let second = next_cursor(&call_say(&fixture, None, long_result()).await);
    for _ in 0..255 {
        call_say(&fixture, None, long_result()).await;
    }
    assert!(read_page(&fixture, None, &oldest).is_err() && read_page(&fixture, None, &second).is_ok());
}

#[tokio::test(start_paused = true)]
async fn an_invalid_cursor_is_an_error() {
    let fixture = open_limited().await;
    let cursor = next_cursor(&call_say(&fixture, None, long_result()).await);
    let id = cursor.rsplit_once('-').unwrap().0;
    for wrong in ["", "-", "x", "-1", "\u{1b}[31m", &"9".repeat(10_000), id, &format!("{id}-0"), &format!("{id}-99")] {
        let error = read_page(&fixture, None, wrong).unwrap_err();
        assert_eq!(error.code, Code::ToolInvalidInput, "{wrong}");
        assert!(error.message.len() < 300 && !error.message.contains('\u{1b}'), "{}", error.message);
    }
}

/// Regression: a large result counted as a failure.
#[tokio::test(start_paused = true)]
async fn a_large_result_is_no_failure() {
    let fixture = open_limited().await;
    for _ in 0..10 {
        assert!(call(&fixture, "git__say", json!({"result": long_result()})).await.is_ok());
    }
}
