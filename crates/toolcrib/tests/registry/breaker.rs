//! The circuit breaker: what opens and closes it, and what callers get while it is open.

use std::time::Duration;

use serde_json::json;
use tokio::task::JoinSet;
use toolcrib::call::CallDeadline;
use toolcrib::registry::{BreakerState, ConnectionState, SourceHealth};
use toolcrib::testkit::{ScriptedReply, ScriptedSource};
use toolcrib::{CallContext, CallOutput, Code, Registry};

use crate::support::{TestRegistry, agent, call, force_refresh, list_tools, open, open_yaml, wait_until};

const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);

async fn call_push(registry: &Registry) -> Result<CallOutput, toolcrib::Error> {
    call(registry, "git__push", json!({})).await
}

/// Opens a source and lets its calls fail until the breaker is open.
async fn open_breaker() -> (TestRegistry, std::sync::Arc<ScriptedSource>) {
    let git = ScriptedSource::new(["push"]);
    let fixture = open(&[("git", &git)]).await;
    list_tools(&fixture).await;
    git.fail("gone");
    for _ in 0..5 {
        assert_eq!(call_push(&fixture).await.unwrap_err().message, "gone");
    }
    (fixture, git)
}

#[tokio::test(start_paused = true)]
async fn five_failures_open_the_breaker_for_a_second_and_then_longer() {
    let (fixture, git) = open_breaker().await;
    let error = call_push(&fixture).await.unwrap_err();
    assert_eq!(
        (error.code, error.message.as_str()),
        (Code::ToolUnavailable, "the circuit breaker of `git` is open after 5 failures in a row; try again in 1 s")
    );
    assert_eq!((error.is_retryable(), error.details.unwrap()["retry_after_ms"].clone()), (true, json!(1000)));
    assert_eq!(git.calls(), 5, "the source is not contacted");
    let view = fixture.source_view("git");
    assert_eq!((view.connection, view.health), (ConnectionState::BreakerOpen, SourceHealth::Down));
    assert_eq!((view.breaker.state, view.breaker.retry_at.is_some()), (BreakerState::Open, true));
    assert_eq!((view.failures, view.failing_since.is_some()), (5, true));
    assert_eq!(view.last_error.unwrap().message, "gone");

    for pause in [1, 2, 4, 8, 16, 30, 30] {
        tokio::time::advance(Duration::from_secs(pause)).await;
        assert_eq!(fixture.source_view("git").breaker.state, BreakerState::HalfOpen);
        assert_eq!(call_push(&fixture).await.unwrap_err().message, "gone");
        assert!(call_push(&fixture).await.unwrap_err().message.contains("circuit breaker"));
    }
    git.recover();
    tokio::time::advance(Duration::from_secs(30)).await;
    assert!(call_push(&fixture).await.is_ok());
    let view = fixture.source_view("git");
    assert_eq!((view.breaker.state, view.failures, view.failing_since), (BreakerState::Closed, 0, None));
    assert_eq!(view.last_error, None);
}

#[tokio::test(start_paused = true)]
async fn callers_wait_for_a_running_probe() {
    let (fixture, git) = open_breaker().await;
    tokio::time::advance(Duration::from_secs(1)).await;
    git.recover();
    git.pause();
    let mut waiting = JoinSet::new();
    for _ in 0..20 {
        let registry = fixture.registry.clone();
        waiting.spawn(async move { call_push(&registry).await });
    }
    wait_until("the probe is sent", || git.calls() == 6).await;
    let options = CallContext { deadline: Some(CallDeadline::after(Duration::from_secs(2))), ..CallContext::default() };
    let error = fixture.call("git__push", json!({})).context(options).caller(agent()).await.unwrap_err();
    assert_eq!((error.code, error.is_retryable()), (Code::ToolUnavailable, true), "{}", error.message);
    assert_eq!(git.calls(), 6, "one probe at a time");
    git.resume();
    while let Some(answer) = waiting.join_next().await {
        assert!(answer.unwrap().is_ok());
    }
}

#[tokio::test(start_paused = true)]
async fn callers_that_waited_for_a_failed_probe_get_the_retry_time() {
    let (fixture, git) = open_breaker().await;
    tokio::time::advance(Duration::from_secs(1)).await;
    git.pause();
    let mut waiting = JoinSet::new();
    for _ in 0..5 {
        let registry = fixture.registry.clone();
        waiting.spawn(async move { call_push(&registry).await.unwrap_err().message });
    }
    wait_until("the probe is sent", || git.calls() == 6).await;
    git.resume();
    let mut messages = waiting.join_all().await;
    messages.sort();
    let breaker_open = "the circuit breaker of `git` is open after 6 failures in a row; try again in 2 s";
    assert_eq!(messages, ["gone", breaker_open, breaker_open, breaker_open, breaker_open]);
    assert_eq!(git.calls(), 6);
}

/// Regression: callers kept waiting for a hanging probe after another call had succeeded.
#[tokio::test(start_paused = true)]
async fn a_successful_call_ends_the_wait_for_a_probe() {
    let git = ScriptedSource::new(["push", "pull"]);
    let fixture = open(&[("git", &git)]).await;
    list_tools(&fixture).await;
    git.pause();
    let registry = fixture.registry.clone();
    let older = tokio::spawn(async move { call(&registry, "git__pull", json!({})).await });
    wait_until("it is in flight", || git.calls() == 1).await;
    git.set_reply(
        |tool, _| if tool == "push" { ScriptedReply::Disconnected("gone".into()) } else { json!("pulled").into() },
    );
    for _ in 0..5 {
        git.allow_next();
        call_push(&fixture).await.unwrap_err();
    }
    tokio::time::advance(Duration::from_secs(1)).await;
    let mut waiting = JoinSet::new();
    for _ in 0..2 {
        let registry = fixture.registry.clone();
        waiting.spawn(async move { call(&registry, "git__pull", json!({})).await });
    }
    wait_until("the probe is sent", || git.calls() == 7).await;
    assert_eq!(fixture.source_view("git").breaker.state, BreakerState::HalfOpen);
    git.resume_next();
    assert!(older.await.unwrap().is_ok());
    wait_until("the other call is sent too", || git.calls() == 8).await;
    git.resume();
    assert!(waiting.join_all().await.into_iter().all(|answer| answer.is_ok()));
}

/// Regression: a probe whose caller gave up blocked all other calls.
#[tokio::test(start_paused = true)]
async fn an_abandoned_probe_makes_room_for_the_next() {
    let (fixture, git) = open_breaker().await;
    tokio::time::advance(Duration::from_secs(1)).await;
    git.recover();
    git.pause();
    let registry = fixture.registry.clone();
    let probe = tokio::spawn(async move { call_push(&registry).await });
    wait_until("the probe is sent", || git.calls() == 6).await;
    let registry = fixture.registry.clone();
    let waiting = tokio::spawn(async move { call_push(&registry).await });
    probe.abort();
    assert!(probe.await.is_err());
    git.resume();
    assert!(waiting.await.unwrap().is_ok());
}

/// Regression: six calls in flight on one lost connection opened the breaker for 30 s.
#[tokio::test(start_paused = true)]
async fn calls_lost_with_one_connection_are_one_failure() {
    let git = ScriptedSource::new(["push"]);
    let fixture = open(&[("git", &git)]).await;
    list_tools(&fixture).await;
    git.pause();
    let mut calls = JoinSet::new();
    for _ in 0..50 {
        let registry = fixture.registry.clone();
        calls.spawn(async move { call_push(&registry).await.is_err() });
    }
    wait_until("all are in flight", || git.calls() == 50).await;
    tokio::time::advance(Duration::from_millis(1)).await;
    git.fail("gone");
    git.resume();
    assert!(calls.join_all().await.into_iter().all(|failed| failed));
    let view = fixture.source_view("git");
    assert_eq!((view.failures, view.breaker.state, view.health), (1, BreakerState::Closed, SourceHealth::Degraded));
    git.recover();
    assert!(call_push(&fixture).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_timed_out_call_counts_only_without_a_response_to_another_call() {
    let git = ScriptedSource::new(["push"]);
    let yaml = "sources: { git: { command: x, call_timeout: 10s } }";
    let fixture = open_yaml(yaml, &[("git", &git)]).await;
    list_tools(&fixture).await;
    for round in 0..10 {
        git.pause();
        let registry = fixture.registry.clone();
        let before = git.calls();
        let late = tokio::spawn(async move { call_push(&registry).await });
        wait_until("it is in flight", || git.calls() == before + 1).await;
        if round < 5 {
            // The first call keeps waiting for its own release, which never comes.
            git.allow_next();
            assert!(call_push(&fixture).await.is_ok());
        }
        assert!(late.await.unwrap().is_err());
        assert_eq!(fixture.source_view("git").failures, if round < 5 { 0 } else { round - 4 });
    }
    assert_eq!(fixture.source_view("git").breaker.state, BreakerState::Open);
}

#[tokio::test(start_paused = true)]
async fn rejections_and_tool_errors_do_not_affect_health() {
    let git = ScriptedSource::new(["push"]);
    let fixture = open(&[("git", &git)]).await;
    git.set_reply(|_, input| match input["refuse"].as_bool() {
        Some(true) => ScriptedReply::Rejected("no".into()),
        _ => json!({"content": [], "isError": true}).into(),
    });
    for round in 0..20 {
        // Both outcomes occur.
        let _ = call(&fixture, "git__push", json!({"refuse": round % 2 == 0})).await;
    }
    assert_eq!((git.calls(), fixture.source_view("git").failures), (20, 0));
}

#[tokio::test(start_paused = true)]
async fn a_successful_discovery_closes_the_breaker() {
    let (fixture, git) = open_breaker().await;
    git.recover();
    force_refresh(&fixture, "git").await;
    assert_eq!(fixture.source_view("git").breaker.state, BreakerState::Closed);
    assert!(call_push(&fixture).await.is_ok());
}

/// Regression: a clock that was set back kept the breaker open for that time.
#[tokio::test(start_paused = true)]
async fn a_jump_of_the_wall_clock_does_not_affect_the_breaker() {
    for forward in [true, false] {
        let (fixture, git) = open_breaker().await;
        if forward {
            fixture.manual_clock.advance(YEAR)
        } else {
            fixture.manual_clock.set_back(YEAR)
        }
        assert!(
            call_push(&fixture).await.unwrap_err().message.contains("try again in 1 s"),
            "the breaker is still open"
        );
        git.recover();
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(call_push(&fixture).await.is_ok());
    }
}

/// A hanging tool must not use up the capacity of its source.
#[tokio::test(start_paused = true)]
async fn calls_in_flight_are_bounded_per_tool() {
    let git = ScriptedSource::new(["push", "pull"]);
    let fixture = open(&[("git", &git)]).await;
    list_tools(&fixture).await;
    git.pause();
    let mut calls = JoinSet::new();
    for _ in 0..140 {
        let registry = fixture.registry.clone();
        calls.spawn(async move { call_push(&registry).await });
    }
    wait_until("as many as may are in flight", || git.calls() == 128).await;
    let options = CallContext { deadline: Some(CallDeadline::after(Duration::from_secs(2))), ..CallContext::default() };
    let error = fixture.call("git__push", json!({})).context(options).caller(agent()).await.unwrap_err();
    assert_eq!((error.code, error.is_retryable()), (Code::ToolUnavailable, true), "{}", error.message);
    assert!(error.message.starts_with("128 calls are in progress, the limit of the tool `push`"), "{}", error.message);
    git.allow_next();
    assert!(call(&fixture, "git__pull", json!({})).await.is_ok());
    git.resume();
    assert!(calls.join_all().await.into_iter().all(|answer| answer.is_ok()));
}
