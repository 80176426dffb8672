//! Limits on calls, per caller and per source: refusals with the time to wait, queues in turn, and what counts.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use toolcrib::core::access::Role;
use toolcrib::core::principal::PrincipalIdentity;
use toolcrib::testkit::ScriptedSource;
use toolcrib::{CallOutput, Code, Error, Principal, Registry};
use toolcrib_testkit::observe::TEST_TIMEOUT;

use crate::support::{TestRegistry, config, list_tools, open_yaml, run_pending_tasks, wait_until};

fn token(name: &str) -> Principal {
    Principal::new(PrincipalIdentity::Token { id: name.into() }, name, Role::Agent)
}

/// Opens the source `git` with these keys at top level and on the source; its tools are known.
async fn open_limited(top: &str, on_source: &str) -> (TestRegistry, Arc<ScriptedSource>) {
    let git = ScriptedSource::new(["push"]);
    let fixture = open_yaml(&yaml(top, on_source), &[("git", &git)]).await;
    list_tools(&fixture).await;
    (fixture, git)
}

fn yaml(top: &str, on_source: &str) -> String {
    format!("sources: {{ git: {{ command: scripted, {on_source} }} }}\n{top}")
}

async fn call_as(registry: &Registry, caller: &str) -> Result<CallOutput, Error> {
    registry.call("git__push", json!({})).caller(token(caller)).await
}

/// Starts calls to a paused source and waits until they wait for it or for a limit.
async fn start_calls(
    (registry, git): (&Registry, &ScriptedSource),
    caller: &'static str,
    count: usize,
    calls: &mut JoinSet<&'static str>,
) {
    for _ in 0..count {
        let registry = registry.clone();
        calls.spawn(async move {
            call_as(&registry, caller).await.unwrap();
            caller
        });
        run_pending_tasks().await;
        // The first call uses other threads, whose end the paused time does not wait for.
        let deadline = Instant::now() + TEST_TIMEOUT;
        while git.calls() == 0 {
            assert!(Instant::now() < deadline, "no call has reached the source");
            run_pending_tasks().await;
        }
    }
}

/// Returns the calls to `git` in progress and waiting.
fn source_load(registry: &Registry) -> (u64, u64) {
    let load = registry.statistics().metrics().limited_sources.into_values().next().unwrap_or_default();
    (load.in_flight, load.waiting)
}

fn details(error: &Error) -> Value {
    assert_eq!((error.code, error.is_retryable()), (Code::RateLimited, true), "{}", error.message);
    error.details.clone().unwrap_or_default()
}

#[tokio::test(start_paused = true)]
async fn a_caller_above_its_calls_per_minute_is_told_when_to_try_again() {
    let (fixture, git) = open_limited("limits: { calls_per_minute: 7 }", "").await;
    // Calls that fail count too: of an unknown tool, with wrong arguments.
    for (name, arguments) in [("git__nothing", json!({})), ("git__push", json!([]))] {
        fixture.call(name, arguments).caller(token("a")).await.unwrap_err();
    }
    for _ in 0..5 {
        call_as(&fixture, "a").await.unwrap();
    }
    let error = call_as(&fixture, "a").await.unwrap_err();
    assert_eq!(details(&error), json!({"by": "caller", "limit": "calls_per_minute", "retry_after_ms": 8572}));
    assert_eq!(error.message, "more than 7 calls per minute of one caller; try again in 8572ms");
    assert_eq!(git.calls(), 5);
    call_as(&fixture, "b").await.unwrap();
    let console = Principal::new(PrincipalIdentity::Console { token: "a".into() }, "ada", Role::Agent);
    let error = fixture.call("git__push", json!({})).caller(console).await.unwrap_err();
    assert_eq!(details(&error)["retry_after_ms"], 8572, "a session of the console shares the limit of its token");

    tokio::time::advance(Duration::from_millis(8571)).await;
    assert_eq!(details(&call_as(&fixture, "a").await.unwrap_err())["retry_after_ms"], 1);
    tokio::time::advance(Duration::from_millis(1)).await;
    call_as(&fixture, "a").await.unwrap();
    assert_eq!(details(&call_as(&fixture, "a").await.unwrap_err())["retry_after_ms"], 8571);

    let callers = fixture.statistics().metrics().callers;
    let counts = |name: &str| (callers[name].succeeded, callers[name].failed, callers[name].rate_limited);
    let counts = [counts("token:a"), counts("token:b"), counts("token:ada")];
    assert_eq!(counts, [(6, 2, 3), (1, 0, 0), (0, 0, 1)]);
}

#[tokio::test(start_paused = true)]
async fn calls_of_a_source_above_its_calls_per_minute_are_refused() {
    let (fixture, git) = open_limited("", "limits: { calls_per_minute: 2 }").await;
    call_as(&fixture, "a").await.unwrap();
    call_as(&fixture, "b").await.unwrap();
    let error = call_as(&fixture, "c").await.unwrap_err();
    assert_eq!(details(&error), json!({"by": "source_limit", "limit": "calls_per_minute", "retry_after_ms": 30000}));
    assert_eq!(error.message, "more than 2 calls per minute of the source `git`; try again in 30s");
    let calls = fixture.statistics().totals().tools.iter().map(|tool| tool.calls).sum::<u64>();
    assert_eq!((git.calls(), calls), (2, 2), "a refused call is no call of the tool");
}

/// Regression: the call waited for the caller's other calls first.
#[tokio::test(start_paused = true)]
async fn a_call_above_the_calls_per_minute_of_its_source_does_not_wait_for_its_caller() {
    let (fixture, git) = open_limited("limits: { concurrent_calls: 1 }", "limits: { calls_per_minute: 1 }").await;
    git.pause();
    let mut calls = JoinSet::new();
    start_calls((&fixture, &git), "a", 1, &mut calls).await;
    let error = call_as(&fixture, "a").await.unwrap_err();
    assert_eq!(details(&error), json!({"by": "source_limit", "limit": "calls_per_minute", "retry_after_ms": 60000}));
    assert_eq!(error.message, "more than 1 call per minute of the source `git`; try again in 1m");
    git.resume();
    calls.join_all().await;
}

/// Without any configured limit, callers take turns at a tool whose calls wait for each other.
#[tokio::test(start_paused = true)]
async fn callers_take_turns_at_a_busy_tool() {
    let (fixture, git) = open_limited("", "").await;
    git.pause();
    let mut calls = JoinSet::new();
    start_calls((&fixture, &git), "greedy", 300, &mut calls).await;
    start_calls((&fixture, &git), "modest", 1, &mut calls).await;
    assert_eq!(git.calls(), 128);
    let mut order = Vec::new();
    while !order.contains(&"modest") {
        git.resume_next();
        order.push(calls.join_next().await.unwrap().unwrap());
    }
    // Those that were in flight, one of the greedy caller, and the one of the other.
    assert!(order.len() <= 130, "{}", order.len());
    git.resume();
    assert_eq!(calls.join_all().await.len() + order.len(), 301);
}

#[tokio::test(start_paused = true)]
async fn a_greedy_caller_does_not_delay_the_call_of_another() {
    let (fixture, git) = open_limited("", "limits: { concurrent_calls: 2 }").await;
    git.pause();
    let mut calls = JoinSet::new();
    start_calls((&fixture, &git), "greedy", 62, &mut calls).await;
    start_calls((&fixture, &git), "modest", 1, &mut calls).await;
    assert_eq!((git.calls(), source_load(&fixture)), (2, (2, 61)));
    let mut order = Vec::new();
    while !order.contains(&"modest") {
        git.resume_next();
        order.push(calls.join_next().await.unwrap().unwrap());
    }
    assert!(order.len() <= 4, "{order:?}");
    git.resume();
    assert_eq!(calls.join_all().await.len() + order.len(), 63);
    assert_eq!(source_load(&fixture), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn the_65th_waiting_call_is_refused_and_a_deadline_ends_the_wait() {
    for (top, on_source, by, of) in [
        ("limits: { concurrent_calls: 1 }", "", "caller", "of one caller"),
        ("", "limits: { concurrent_calls: 1 }", "source_limit", "of the source `git`"),
    ] {
        let (fixture, git) = open_limited(top, on_source).await;
        git.pause();
        let mut calls = JoinSet::new();
        start_calls((&fixture, &git), "a", 65, &mut calls).await;
        let error = call_as(&fixture, "a").await.unwrap_err();
        assert_eq!(details(&error), json!({"by": by, "limit": "concurrent_calls", "retry_after_ms": 1000}));
        let message =
            format!("1 call is in progress, the limit {of}, and 64 of this caller are waiting; try again later");
        assert_eq!(error.message, message);
        git.resume_next();
        calls.join_next().await.unwrap().unwrap();

        let timeout = Duration::from_secs(2);
        let error = fixture.call("git__push", json!({})).caller(token("a")).timeout(timeout).await.unwrap_err();
        assert_eq!(details(&error), json!({"by": by, "limit": "concurrent_calls", "retry_after_ms": 1000}));
        assert!(error.message.contains("the tool was not called"), "{}", error.message);
        assert_eq!(git.calls(), 2);

        let cancel = CancellationToken::new();
        cancel.cancel();
        let call = fixture.call("git__push", json!({})).caller(token("a")).cancel(cancel);
        assert_eq!(call.await.unwrap_err().code, Code::ToolExecutionFailed);
        git.resume();
        calls.join_all().await;
        assert_eq!(git.calls(), 65, "the calls that left the queue were not sent");
    }
}

#[tokio::test(start_paused = true)]
async fn a_dropped_call_leaves_the_queue() {
    let (fixture, git) = open_limited("limits: { concurrent_calls: 1 }", "").await;
    git.pause();
    let registry = fixture.registry.clone();
    let running = tokio::spawn(async move { call_as(&registry, "a").await });
    wait_until("it is in flight", || git.calls() == 1).await;
    let registry = fixture.registry.clone();
    let waiting = tokio::spawn(async move { call_as(&registry, "a").await });
    run_pending_tasks().await;
    for call in [waiting, running] {
        call.abort();
        assert!(call.await.unwrap_err().is_cancelled());
    }
    git.resume();
    call_as(&fixture, "a").await.unwrap();
    assert_eq!(git.calls(), 2);
}

#[tokio::test(start_paused = true)]
async fn changed_limits_apply_at_once_and_keep_the_connection() {
    let (fixture, git) = open_limited("limits: { calls_per_minute: 1, concurrent_calls: 1 }", "").await;
    call_as(&fixture, "a").await.unwrap();
    details(&call_as(&fixture, "a").await.unwrap_err());
    let reload = async |top: &str, on_source: &str| {
        fixture.configuration().apply(&config(&yaml(top, on_source))).await.unwrap();
    };
    git.pause();
    reload("limits: { concurrent_calls: 1 }", "").await;
    let mut calls = JoinSet::new();
    start_calls((&fixture, &git), "a", 3, &mut calls).await;
    assert_eq!(git.calls(), 2);
    reload("limits: { concurrent_calls: 2 }", "").await;
    wait_until("a waiting call is sent", || git.calls() == 3).await;
    reload("", "limits: { concurrent_calls: 1 }").await;
    wait_until("the last one is sent", || git.calls() == 4).await;
    start_calls((&fixture, &git), "a", 3, &mut calls).await;
    assert_eq!((git.calls(), source_load(&fixture)), (5, (1, 2)));
    reload("", "limits: { concurrent_calls: 2 }").await;
    wait_until("a waiting call is sent", || git.calls() == 6).await;
    reload("", "").await;
    wait_until("the last one is sent", || git.calls() == 7).await;
    git.resume();
    assert_eq!(calls.join_all().await.len(), 6);
    assert_eq!(git.closes(), 0);
}

/// Regression: each waiting call set the limits that it had found.
#[tokio::test(start_paused = true)]
async fn calls_that_waited_during_a_reload_do_not_undo_it() {
    let (fixture, git) = open_limited("", "limits: { concurrent_calls: 1 }").await;
    let reload = async |limit: u32| {
        let yaml = yaml("", &format!("limits: {{ concurrent_calls: {limit} }}"));
        fixture.configuration().apply(&config(&yaml)).await.unwrap();
        run_pending_tasks().await;
    };
    git.pause();
    let mut calls = JoinSet::new();
    start_calls((&fixture, &git), "a", 30, &mut calls).await;
    wait_until("they wait", || source_load(&fixture) == (1, 29)).await;
    reload(4).await;
    wait_until("four are sent", || (git.calls(), source_load(&fixture)) == (4, (4, 26))).await;
    let end_one_call = async |calls: &mut JoinSet<&'static str>| {
        let sent = git.calls();
        git.resume_next();
        calls.join_next().await.unwrap().unwrap();
        wait_until("the next is sent", || git.calls() == sent + 1).await;
    };
    for waiting in (20..26).rev() {
        end_one_call(&mut calls).await;
        assert_eq!(source_load(&fixture), (4, waiting));
        // Calls of both configurations wait.
        start_calls((&fixture, &git), "b", 1, &mut calls).await;
        wait_until("it waits", || source_load(&fixture) == (4, waiting + 1)).await;
        end_one_call(&mut calls).await;
    }
    reload(2).await;
    let mut most_in_flight = 4;
    while let (in_flight @ 1.., _) = source_load(&fixture) {
        assert!(in_flight <= most_in_flight, "{in_flight}");
        most_in_flight = in_flight.max(2);
        git.resume_next();
        calls.join_next().await.unwrap().unwrap();
        run_pending_tasks().await;
    }
    assert_eq!((git.calls(), git.closes()), (36, 0));
}

/// Regression: changed limits closed the circuit breaker.
#[tokio::test(start_paused = true)]
async fn changed_limits_keep_the_circuit_breaker() {
    let (fixture, git) = open_limited("", "").await;
    git.fail("gone");
    for _ in 0..5 {
        call_as(&fixture, "a").await.unwrap_err();
    }
    fixture.configuration().apply(&config(&yaml("", "limits: { calls_per_minute: 9 }"))).await.unwrap();
    assert!(call_as(&fixture, "a").await.unwrap_err().message.contains("circuit breaker"));
}

/// The circuit breaker refuses calls before they count for the source.
#[tokio::test(start_paused = true)]
async fn calls_that_the_circuit_breaker_refuses_do_not_count_for_the_source() {
    let (fixture, git) = open_limited("", "limits: { calls_per_minute: 6, concurrent_calls: 1 }").await;
    git.fail("gone");
    for _ in 0..5 {
        assert_eq!(call_as(&fixture, "a").await.unwrap_err().message, "gone");
    }
    for _ in 0..5 {
        assert!(call_as(&fixture, "a").await.unwrap_err().message.contains("circuit breaker"));
    }
    git.recover();
    tokio::time::advance(Duration::from_secs(1)).await;
    call_as(&fixture, "a").await.unwrap();
    details(&call_as(&fixture, "a").await.unwrap_err());
}
