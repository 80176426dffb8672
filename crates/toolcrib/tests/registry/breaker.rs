//! The circuit breaker: what opens it, what does not, and how callers fare while it is open.

use std::time::Duration;

use serde_json::json;
use tokio::task::JoinSet;
use toolcrib::registry::{BreakerState, Connection, Health};
use toolcrib::testkit::{Reply, Scripted};
use toolcrib::{CallOptions, Code, Output, Registry};

use crate::support::{Bench, agent, call, force, open, open_yaml, tools, until};

const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);

async fn push(registry: &Registry) -> Result<Output, toolcrib::Error> {
    call(registry, "git__push", json!({})).await
}

/// A source whose calls failed until its breaker opened.
async fn opened() -> (Bench, std::sync::Arc<Scripted>) {
    let git = Scripted::new(["push"]);
    let bench = open(&[("git", &git)]).await;
    tools(&bench).await;
    git.fail("gone");
    for _ in 0..5 {
        assert_eq!(push(&bench).await.unwrap_err().message, "gone");
    }
    (bench, git)
}

#[tokio::test(start_paused = true)]
async fn five_failures_open_it_for_a_second_and_then_longer() {
    let (bench, git) = opened().await;
    let error = push(&bench).await.unwrap_err();
    assert_eq!(
        (error.code, error.message.as_str()),
        (Code::ToolUnavailable, "the circuit breaker of `git` is open after 5 failures in a row; try again in 1 s")
    );
    assert_eq!((error.retryable(), error.details.unwrap()["retry_after_ms"].clone()), (true, json!(1000)));
    assert_eq!(git.calls(), 5, "it is left alone");
    let view = bench.view_of("git");
    assert_eq!((view.connection, view.health), (Connection::Resting, Health::Down));
    assert_eq!((view.breaker.state, view.breaker.retry_at.is_some()), (BreakerState::Open, true));
    assert_eq!((view.failures, view.failing_since.is_some()), (5, true));
    assert_eq!(view.last_error.unwrap().message, "gone");

    for pause in [1, 2, 4, 8, 16, 30, 30] {
        tokio::time::advance(Duration::from_secs(pause)).await;
        assert_eq!(bench.view_of("git").breaker.state, BreakerState::HalfOpen);
        assert_eq!(push(&bench).await.unwrap_err().message, "gone");
        assert!(push(&bench).await.unwrap_err().message.contains("circuit breaker"));
    }
    git.recover();
    tokio::time::advance(Duration::from_secs(30)).await;
    assert!(push(&bench).await.is_ok());
    let view = bench.view_of("git");
    assert_eq!((view.breaker.state, view.failures, view.failing_since), (BreakerState::Closed, 0, None));
    assert_eq!(view.last_error, None);
}

#[tokio::test(start_paused = true)]
async fn while_a_probe_runs_other_callers_wait_for_it() {
    let (bench, git) = opened().await;
    tokio::time::advance(Duration::from_secs(1)).await;
    git.recover();
    git.hold();
    let mut waiting = JoinSet::new();
    for _ in 0..20 {
        let registry = bench.registry.clone();
        waiting.spawn(async move { push(&registry).await });
    }
    until("the probe is sent", || git.calls() == 6).await;
    let hurried = CallOptions { timeout: Some(Duration::from_secs(2)), ..CallOptions::default() };
    let error = bench.call(&agent(), "git__push", json!({}), hurried).await.unwrap_err();
    assert_eq!((error.code, error.retryable()), (Code::ToolUnavailable, true), "{}", error.message);
    assert_eq!(git.calls(), 6, "one probe at a time");
    git.release();
    while let Some(answer) = waiting.join_next().await {
        assert!(answer.unwrap().is_ok());
    }
}

#[tokio::test(start_paused = true)]
async fn callers_that_waited_for_a_probe_that_fails_are_told_when_to_come_again() {
    let (bench, git) = opened().await;
    tokio::time::advance(Duration::from_secs(1)).await;
    git.hold();
    let mut waiting = JoinSet::new();
    for _ in 0..5 {
        let registry = bench.registry.clone();
        waiting.spawn(async move { push(&registry).await.unwrap_err().message });
    }
    until("the probe is sent", || git.calls() == 6).await;
    git.release();
    let mut told = waiting.join_all().await;
    told.sort();
    let paused = "the circuit breaker of `git` is open after 6 failures in a row; try again in 2 s";
    assert_eq!(told, ["gone", paused, paused, paused, paused]);
    assert_eq!(git.calls(), 6);
}

/// Callers that waited for a probe that hung were not told when another call succeeded.
#[tokio::test(start_paused = true)]
async fn a_call_that_succeeds_ends_the_wait_for_a_probe() {
    let git = Scripted::new(["push", "pull"]);
    let bench = open(&[("git", &git)]).await;
    tools(&bench).await;
    git.hold();
    let registry = bench.registry.clone();
    let older = tokio::spawn(async move { call(&registry, "git__pull", json!({})).await });
    until("it is in flight", || git.calls() == 1).await;
    git.answer(|tool, _| if tool == "push" { Reply::Lost("gone".into()) } else { json!("pulled").into() });
    for _ in 0..5 {
        git.pass_one();
        push(&bench).await.unwrap_err();
    }
    tokio::time::advance(Duration::from_secs(1)).await;
    let mut waiting = JoinSet::new();
    for _ in 0..2 {
        let registry = bench.registry.clone();
        waiting.spawn(async move { call(&registry, "git__pull", json!({})).await });
    }
    until("the probe is sent", || git.calls() == 7).await;
    assert_eq!(bench.view_of("git").breaker.state, BreakerState::HalfOpen);
    git.release_one();
    assert!(older.await.unwrap().is_ok());
    until("the other one is sent too", || git.calls() == 8).await;
    git.release();
    assert!(waiting.join_all().await.into_iter().all(|answer| answer.is_ok()));
}

/// A probe whose caller left kept all others out.
#[tokio::test(start_paused = true)]
async fn a_probe_that_is_abandoned_makes_room_for_the_next() {
    let (bench, git) = opened().await;
    tokio::time::advance(Duration::from_secs(1)).await;
    git.recover();
    git.hold();
    let registry = bench.registry.clone();
    let probe = tokio::spawn(async move { push(&registry).await });
    until("the probe is sent", || git.calls() == 6).await;
    let registry = bench.registry.clone();
    let waiting = tokio::spawn(async move { push(&registry).await });
    probe.abort();
    assert!(probe.await.is_err());
    git.release();
    assert!(waiting.await.unwrap().is_ok());
}

/// Six calls that were in flight when one connection died closed the source for 30 s.
#[tokio::test(start_paused = true)]
async fn calls_that_are_lost_together_are_one_failure() {
    let git = Scripted::new(["push"]);
    let bench = open(&[("git", &git)]).await;
    tools(&bench).await;
    git.hold();
    let mut calls = JoinSet::new();
    for _ in 0..50 {
        let registry = bench.registry.clone();
        calls.spawn(async move { push(&registry).await.is_err() });
    }
    until("all are in flight", || git.calls() == 50).await;
    tokio::time::advance(Duration::from_millis(1)).await;
    git.fail("gone");
    git.release();
    assert!(calls.join_all().await.into_iter().all(|failed| failed));
    let view = bench.view_of("git");
    assert_eq!((view.failures, view.breaker.state, view.health), (1, BreakerState::Closed, Health::Degraded));
    git.recover();
    assert!(push(&bench).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_late_call_counts_only_if_no_other_was_answered_meanwhile() {
    let git = Scripted::new(["push"]);
    let yaml = "sources: { git: { command: x, call_timeout: 10s } }";
    let bench = open_yaml(yaml, &[("git", &git)]).await;
    tools(&bench).await;
    for round in 0..10 {
        git.hold();
        let (registry, before) = (bench.registry.clone(), git.calls());
        let late = tokio::spawn(async move { push(&registry).await });
        until("it is in flight", || git.calls() == before + 1).await;
        if round < 5 {
            // It goes on waiting for its own release, which never comes.
            git.pass_one();
            assert!(push(&bench).await.is_ok());
        }
        assert!(late.await.unwrap().is_err());
        assert_eq!(bench.view_of("git").failures, if round < 5 { 0 } else { round - 4 });
    }
    assert_eq!(bench.view_of("git").breaker.state, BreakerState::Open);
}

#[tokio::test(start_paused = true)]
async fn refusals_and_errors_of_tools_say_nothing_about_health() {
    let git = Scripted::new(["push"]);
    let bench = open(&[("git", &git)]).await;
    git.answer(|_, input| match input["refuse"].as_bool() {
        Some(true) => Reply::Refused("no".into()),
        _ => json!({"content": [], "isError": true}).into(),
    });
    for round in 0..20 {
        let _either = call(&bench, "git__push", json!({"refuse": round % 2 == 0})).await;
    }
    assert_eq!((git.calls(), bench.view_of("git").failures), (20, 0));
}

#[tokio::test(start_paused = true)]
async fn a_discovery_that_succeeds_closes_it() {
    let (bench, git) = opened().await;
    git.recover();
    force(&bench, "git").await;
    assert_eq!(bench.view_of("git").breaker.state, BreakerState::Closed);
    assert!(push(&bench).await.is_ok());
}

/// A clock that was set back kept a source closed for as long as it was set back.
#[tokio::test(start_paused = true)]
async fn a_wall_clock_that_jumps_does_not_matter() {
    for forward in [true, false] {
        let (bench, git) = opened().await;
        if forward {
            bench.hand.advance(YEAR)
        } else {
            bench.hand.set_back(YEAR)
        }
        assert!(push(&bench).await.unwrap_err().message.contains("try again in 1 s"), "the pause is not over");
        git.recover();
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(push(&bench).await.is_ok());
    }
}

/// A tool that hangs takes no more than its share of a source.
#[tokio::test(start_paused = true)]
async fn calls_in_flight_are_bounded_for_each_tool() {
    let git = Scripted::new(["push", "pull"]);
    let bench = open(&[("git", &git)]).await;
    tools(&bench).await;
    git.hold();
    let mut calls = JoinSet::new();
    for _ in 0..140 {
        let registry = bench.registry.clone();
        calls.spawn(async move { push(&registry).await });
    }
    until("as many as may are in flight", || git.calls() == 128).await;
    let hurried = CallOptions { timeout: Some(Duration::from_secs(2)), ..CallOptions::default() };
    let error = bench.call(&agent(), "git__push", json!({}), hurried).await.unwrap_err();
    assert_eq!((error.code, error.retryable()), (Code::ToolUnavailable, true), "{}", error.message);
    assert!(error.message.starts_with("128 calls of `push` are in flight"), "{}", error.message);
    git.pass_one();
    assert!(call(&bench, "git__pull", json!({})).await.is_ok());
    git.release();
    assert!(calls.join_all().await.into_iter().all(|answer| answer.is_ok()));
}
