//! Calls: error codes of each step, policy, argument validation, deadlines, cancellation and statistics.

use std::time::Duration;

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use toolcrib::call::CallDeadline;
use toolcrib::core::inventory::{Actor, Command};
use toolcrib::testkit::{ScriptedReply, ScriptedSource};
use toolcrib::{CallContext, Code};

use crate::support::{
    TestRegistry, agent, cached_tools, call, force_refresh, id, list_tools, open, open_yaml, output_text,
    run_pending_tasks, wait_until,
};

/// Formats the outcome of a call: `ok: TEXT`, `error: TEXT` from the tool, or an error code and its message.
async fn call_outcome(fixture: &TestRegistry, name: &str, input: Value) -> String {
    match call(fixture, name, input).await {
        Ok(output) if output.is_error() => format!("error: {}", output_text(&output)),
        Ok(output) => format!("ok: {}", output_text(&output)),
        Err(error) => format!("{} {}", error.code.as_str(), error.message),
    }
}

#[tokio::test(start_paused = true)]
async fn every_step_of_a_call_has_its_error_code() {
    let (git, hub, down) =
        (ScriptedSource::new(["push", "pull"]), ScriptedSource::new(["push"]), ScriptedSource::new(["x"]));
    down.fail("connection refused");
    let sources: [(&str, _); 3] = [("git", &git), ("hub", &hub), ("down", &down)];
    let fixture = open(&sources).await;
    list_tools(&fixture).await;
    let pull = fixture.unrestricted_catalog().find("git__pull").unwrap().id();
    fixture.execute(Command::DisableTool(pull), Actor::new("operator")).await.unwrap();
    for (name, expected) in [
        ("git__push", r#"ok: push {"a":1}"#),
        ("git/push", r#"ok: push {"a":1}"#),
        ("Git:push", r#"ok: push {"a":1}"#),
        ("push", "TOOL_INVALID_INPUT `push` is offered by several sources: git__push, hub__push"),
        ("git__psuh", "TOOL_NOT_IMPLEMENTED no tool named `git__psuh`; did you mean `git__push`?"),
        ("nowhere__push", "TOOL_NOT_IMPLEMENTED no tool named `nowhere__push`; did you mean `hub__push`?"),
        ("git__pull", "TOOL_NOT_IMPLEMENTED `git__pull` is disabled; `toolcrib enable git__pull` enables it"),
        (
            "down__x",
            "TOOL_UNAVAILABLE the tools of `down` are unknown: connection refused; `toolcrib refresh down` tries again",
        ),
    ] {
        let outcome = call_outcome(&fixture, name, json!({"a": 1})).await;
        if name == "nowhere__push" {
            assert!(outcome.starts_with("TOOL_NOT_IMPLEMENTED no tool named `nowhere__push`"), "{outcome}");
        } else {
            assert_eq!(outcome, expected, "{name}");
        }
    }
    for malformed in ["", "__push", "git__"] {
        assert!(call_outcome(&fixture, malformed, json!({})).await.starts_with("TOOL_INVALID_INPUT"), "{malformed:?}");
    }
}

/// A `null` that the schema does not allow is dropped, also beside arguments too large for detailed validation.
#[tokio::test]
async fn a_null_argument_is_dropped_even_beside_large_arguments() {
    let schema = json!({
        "type": "object", "additionalProperties": false,
        "properties": { "content": { "anyOf": [{ "type": "string" }, { "type": "array" }] }, "encoding": { "enum": ["utf8"] } },
    });
    let files = ScriptedSource::new([json!({ "name": "write", "inputSchema": schema })]);
    files.set_reply(|_, input| json!(input["encoding"].to_string()));
    let fixture = open(&[("files", &files)]).await;
    for content in [json!("a"), json!("a".repeat(2_000_000)), json!(vec![1; 200_000])] {
        let outcome = call_outcome(&fixture, "files__write", json!({ "content": content, "encoding": null })).await;
        assert_eq!(outcome, "ok: null");
    }
    let outcome = call_outcome(&fixture, "files__write", json!({ "content": 1, "encoding": null })).await;
    assert!(outcome.starts_with("TOOL_INVALID_INPUT wrong arguments for `files__write`: /content"), "{outcome}");
}

/// Validations of one source run one after another; those of other sources do not wait for them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_validations_do_not_block_other_sources() {
    let slow = json!({ "items": { "allOf": vec![json!({ "type": "integer" }); 400] } });
    let slow = json!({ "name": "t", "inputSchema": { "type": "object", "properties": { "x": slow } } });
    let busy = ScriptedSource::new([slow]);
    let idle = ScriptedSource::new(["t"]);
    let fixture = open(&[("busy", &busy), ("idle", &idle)]).await;
    list_tools(&fixture).await;
    let slow_calls: Vec<_> = (0..12)
        .map(|_| {
            let registry = fixture.registry.clone();
            tokio::spawn(async move { call(&registry, "busy__t", json!({ "x": vec![1; 2_000] })).await })
        })
        .collect();
    wait_until("the first of them", || busy.calls() > 0).await;
    assert_eq!(call_outcome(&fixture, "idle__t", json!({ "a": 1 })).await, r#"ok: t {"a":1}"#);
    assert!(busy.calls() < 12, "the call did not wait for all of them");

    let options =
        CallContext { deadline: Some(CallDeadline::after(Duration::from_millis(1))), ..CallContext::default() };
    let error =
        fixture.call("busy__t", json!({ "x": vec![1; 2_000] })).context(options).caller(agent()).await.unwrap_err();
    assert_eq!(error.code, Code::ToolUnavailable, "{}", error.message);
    for slow_call in slow_calls {
        assert!(slow_call.await.unwrap().is_ok());
    }
}

#[tokio::test(start_paused = true)]
async fn an_abandoned_call_is_counted() {
    let git = ScriptedSource::new(["push"]);
    let fixture = open(&[("git", &git)]).await;
    call(&fixture, "git__push", json!({})).await.unwrap();
    git.pause();
    let held = call(&fixture, "git__push", json!({}));
    let in_flight = async {
        run_pending_tasks().await;
        fixture.statistics().metrics().calls_in_flight
    };
    tokio::select! {
        _ = held => panic!("the call is held"),
        in_flight = in_flight => assert_eq!(in_flight, 1),
    }
    let measures = fixture.statistics().metrics();
    let counted = &measures.calls[&Some(id("git"))];
    assert_eq!(measures.calls_in_flight, 0);
    assert_eq!(counted.by_code.clone().into_iter().collect::<Vec<_>>(), [("OK", 1), ("TOOL_EXECUTION_FAILED", 1)]);
    assert_eq!((counted.durations.count, fixture.statistics().totals().errors), (2, 1));
}

#[tokio::test(start_paused = true)]
async fn failures_of_a_source_have_different_codes() {
    let git = ScriptedSource::new(["push"]);
    let fixture = open(&[("git", &git)]).await;
    git.set_reply(|_, input| match input["how"].as_str() {
        Some("refuse") => ScriptedReply::Rejected("it said no".into()),
        Some("lose") => ScriptedReply::Disconnected("it is gone".into()),
        Some("fail") => json!({"content": [{"type": "text", "text": "my fault"}], "isError": true}).into(),
        _ => json!({"content": [], "structuredContent": {"a": 1}, "_meta": {"b": 2}}).into(),
    });
    assert_eq!(call_outcome(&fixture, "git__push", json!({"how": "refuse"})).await, "TOOL_EXECUTION_FAILED it said no");
    assert_eq!(call_outcome(&fixture, "git__push", json!({"how": "lose"})).await, "TOOL_UNAVAILABLE it is gone");
    assert_eq!(call_outcome(&fixture, "git__push", json!({"how": "fail"})).await, "error: my fault");
    let output = call(&fixture, "git__push", json!({})).await.unwrap();
    assert_eq!((output.structured().unwrap(), output.meta().unwrap()), (r#"{"a":1}"#, r#"{"b":2}"#));
    assert_eq!((output.is_error(), output.source), (false, id("git")));
}

#[tokio::test(start_paused = true)]
async fn a_call_is_measured_and_counted() {
    let git = ScriptedSource::new(["push"]);
    let fixture = open(&[("git", &git)]).await;
    list_tools(&fixture).await;
    git.set_delay(Duration::from_millis(250));
    assert_eq!(call(&fixture, "git__push", json!({})).await.unwrap().elapsed_ms, 250);
    git.set_reply(|_, _| json!({"content": [{"type": "text", "text": "my fault"}], "isError": true}));
    fixture.manual_clock.advance(Duration::from_secs(1));
    call(&fixture, "git__push", json!({})).await.unwrap();
    call(&fixture, "git__nothing", json!({})).await.unwrap_err();
    let stats = fixture.statistics().totals();
    assert_eq!((stats.calls, stats.errors, stats.tools.len()), (2, 1, 1));
    let push = &stats.tools[0];
    assert_eq!((push.name.as_str(), push.calls, push.errors), ("git__push", 2, 1));
    assert_eq!(push.last_called, Some(fixture.options.clock.now()));
    let error = push.last_error.as_ref().unwrap();
    assert_eq!((error.code, error.message.as_str()), (Code::ToolExecutionFailed, "my fault"));
}

#[tokio::test(start_paused = true)]
async fn policy_rules_apply_to_lists_and_calls() {
    let git = ScriptedSource::new(["add", "delete", "push", "secret"]);
    let yaml = "sources: { git: { command: x, tools: { 'p*': ask, delete: deny, secret: hide } } }";
    let fixture = open_yaml(yaml, &[("git", &git)]).await;
    assert_eq!(list_tools(&fixture).await, ["git__add", "git__push"]);
    for (name, expected) in [
        ("git__add", "ok: add {}"),
        (
            "git__push",
            "FORBIDDEN `git__push` needs consent before each call (rule `p*: ask`); `toolcrib call --yes` gives it",
        ),
        (
            "git__delete",
            "FORBIDDEN `git__delete` is denied (rule `delete: deny`); to allow it, change the rules under `tools` of `git`",
        ),
        ("git__secret", "TOOL_NOT_IMPLEMENTED no tool named `git__secret`; `toolcrib search WORDS` finds tools"),
        ("secret", "TOOL_NOT_IMPLEMENTED no tool named `secret`; `toolcrib search WORDS` finds tools"),
    ] {
        assert_eq!(call_outcome(&fixture, name, json!({})).await, expected, "{name}");
    }
    let measures = fixture.statistics().metrics();
    assert_eq!(measures.calls[&Some(id("git"))].by_code["FORBIDDEN"], 2, "counted for their source");
    assert_eq!(measures.calls[&None].by_code.keys().collect::<Vec<_>>(), [&"TOOL_NOT_IMPLEMENTED"]);
    assert_eq!(fixture.statistics().totals().calls, 1, "only executed calls are counted as calls");
    let consent = || CallContext { consent: true, ..CallContext::default() };
    assert!(fixture.call("git__push", json!({})).context(consent()).caller(agent()).await.is_ok());
    for name in ["git__delete", "git__secret"] {
        assert!(fixture.call(name, json!({})).context(consent()).caller(agent()).await.is_err(), "{name}");
    }
    assert_eq!(git.calls(), 2, "rejected calls never reach the source");
    assert!(fixture.tool("git__secret").is_err());
}

#[tokio::test(start_paused = true)]
async fn a_null_for_an_optional_argument_is_dropped() {
    let schema = json!({
        "type": "object",
        "properties": {
            "to": {"type": "string"},
            "cc": {"type": "string"},
            "at": {"type": ["string", "null"]},
            "more": {"type": "object", "properties": {"x": {"type": "integer"}}},
        },
        "required": ["to"],
    });
    let mail = ScriptedSource::new([json!({"name": "send", "inputSchema": schema})]);
    let fixture = open(&[("mail", &mail)]).await;
    let arguments = json!({"to": "ann", "cc": null, "at": null, "more": {"x": null}});
    assert_eq!(call_outcome(&fixture, "mail__send", arguments).await, r#"ok: send {"to":"ann","at":null,"more":{}}"#);
    assert!(call_outcome(&fixture, "mail__send", json!({"to": null})).await.starts_with("TOOL_INVALID_INPUT"));
    assert!(
        call_outcome(&fixture, "mail__send", json!({"to": "ann", "cc": 7})).await.starts_with("TOOL_INVALID_INPUT")
    );
}

#[tokio::test(start_paused = true)]
async fn every_invalid_argument_is_reported_with_its_path() {
    let schema = json!({"type": "object", "required": ["name", "size"], "additionalProperties": false, "properties": {
        "name": {"type": "string"}, "size": {"type": "integer", "minimum": 1},
        "tags": {"type": "array", "items": {"type": "string"}}}});
    let git = ScriptedSource::new([json!({"name": "make", "inputSchema": schema})]);
    let fixture = open(&[("git", &git)]).await;
    let input = json!({"size": 0, "tags": ["a", 2], "colour": "red"});
    let error = call(&fixture, "git__make", input).await.unwrap_err();
    assert_eq!(error.code, Code::ToolInvalidInput);
    assert!(error.message.starts_with("wrong arguments for `git__make`: "), "{}", error.message);
    let faults = error.details.unwrap()["faults"].as_array().unwrap().clone();
    let mut paths: Vec<&str> = faults.iter().map(|fault| fault["path"].as_str().unwrap()).collect();
    paths.sort_unstable();
    assert_eq!(paths.len(), 4, "{faults:?}");
    for part in ["size", "tags", "name", "colour"] {
        assert!(faults.iter().any(|fault| fault.to_string().contains(part)), "{part}: {faults:?}");
    }
    assert_eq!(git.calls(), 0);
    for wrong in [json!(null), json!([]), json!("text"), json!(7)] {
        assert_eq!(call(&fixture, "git__make", wrong).await.unwrap_err().code, Code::ToolInvalidInput);
    }
    assert!(call(&fixture, "git__make", json!({"name": "a", "size": 1})).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_call_ends_at_its_deadline() {
    let git = ScriptedSource::new(["push"]);
    let fixture = open_yaml("sources: { git: { command: x, call_timeout: 7s } }", &[("git", &git)]).await;
    list_tools(&fixture).await;
    git.pause();
    for (timeout, expected) in [(None, 7), (Some(Duration::from_secs(2)), 2)] {
        let began = tokio::time::Instant::now();
        let options = CallContext { deadline: timeout.map(CallDeadline::after), ..CallContext::default() };
        let error = fixture.call("git__push", json!({})).context(options).caller(agent()).await.unwrap_err();
        assert_eq!((error.code, began.elapsed().as_secs()), (Code::ToolExecutionFailed, expected));
    }
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_call_does_not_count_as_a_failure() {
    let git = ScriptedSource::new(["push"]);
    let fixture = open(&[("git", &git)]).await;
    list_tools(&fixture).await;
    git.pause();
    for _ in 0..6 {
        let cancel = CancellationToken::new();
        let options = CallContext { cancel: cancel.clone(), ..CallContext::default() };
        let caller = agent();
        let running = fixture.call("git__push", json!({})).context(options).caller(caller.clone());
        let (result, ()) = tokio::join!(running, async {
            run_pending_tasks().await;
            cancel.cancel();
        });
        assert_eq!(result.unwrap_err().message, "the call was cancelled");
    }
    git.resume();
    assert!(call(&fixture, "git__push", json!({})).await.is_ok(), "the breaker is closed");
}

/// Regression: a call waiting for discovery could not be cancelled and outlived its deadline.
#[tokio::test(start_paused = true)]
async fn a_call_that_waits_for_discovery_has_a_deadline_and_can_be_cancelled() {
    let git = ScriptedSource::new(["push"]);
    let fixture = open(&[("git", &git)]).await;
    git.pause();
    let cancel = CancellationToken::new();
    let options = CallContext { cancel: cancel.clone(), ..CallContext::default() };
    let caller = agent();
    let (result, ()) =
        tokio::join!(fixture.call("git__push", json!({})).context(options).caller(caller.clone()), async {
            wait_until("it began", || git.discoveries() == 1).await;
            cancel.cancel();
        });
    assert_eq!(result.unwrap_err().message, "the call was cancelled");

    let began = tokio::time::Instant::now();
    let options = CallContext { deadline: Some(CallDeadline::after(Duration::from_secs(3))), ..CallContext::default() };
    let error = fixture.call("git__push", json!({})).context(options).caller(agent()).await.unwrap_err();
    assert_eq!((error.code, began.elapsed().as_secs()), (Code::ToolUnavailable, 3));
    git.resume();
    assert!(call(&fixture, "git__push", json!({})).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_first_call_discovers_its_own_source_only() {
    let git = ScriptedSource::new(["push"]);
    let hub = ScriptedSource::new(["pull"]);
    let fixture = open(&[("git", &git), ("hub", &hub)]).await;
    assert!(call(&fixture, "git__push", json!({})).await.is_ok());
    assert_eq!((git.discoveries(), hub.discoveries()), (1, 0));
    let error = call(&fixture, "pull", json!({})).await.unwrap_err();
    assert_eq!(error.code, Code::ToolNotImplemented);
    assert!(error.message.contains("not discovered yet: `hub`"), "{}", error.message);
    assert_eq!((git.discoveries(), hub.discoveries()), (1, 0), "a bare name may be of any source: none is waited for");
    assert!(call(&fixture, "push", json!({})).await.is_ok());
    fixture.sources().invalidate(None).await.unwrap();
    assert!(fixture.call("git__push", json!({})).without_discovery().caller(agent()).await.is_ok());
    assert_eq!(git.discoveries(), 1);
}

/// Regression: a call of an unknown name waited for every hanging source.
#[tokio::test(start_paused = true)]
async fn a_call_waits_only_for_its_own_undiscovered_source() {
    let git = ScriptedSource::new(["push"]);
    let hangs = ScriptedSource::new(["x"]);
    hangs.pause();
    let fixture = open(&[("git", &git), ("hangs", &hangs)]).await;
    force_refresh(&fixture, "git").await;
    let began = tokio::time::Instant::now();
    for name in ["nothing", "elsewhere__push", "git__nothing", "git/nothing", "push"] {
        let known = name == "push";
        assert_eq!(call(&fixture, name, json!({})).await.is_ok(), known, "{name}");
    }
    assert_eq!(began.elapsed(), Duration::ZERO);
    let options = CallContext { deadline: Some(CallDeadline::after(Duration::from_secs(3))), ..CallContext::default() };
    let error = fixture.call("hangs__x", json!({})).context(options).caller(agent()).await.unwrap_err();
    assert_eq!((error.code, began.elapsed().as_secs()), (Code::ToolUnavailable, 3), "{}", error.message);
    let error = call(&fixture, "hangs__x", json!({})).await.unwrap_err();
    assert_eq!((error.code, began.elapsed().as_secs()), (Code::ToolUnavailable, 63), "its own call_timeout");
}

#[tokio::test(start_paused = true)]
async fn a_removed_tool_is_not_called() {
    let git = ScriptedSource::new(["push", "pull"]);
    let fixture = open(&[("git", &git)]).await;
    list_tools(&fixture).await;
    git.set_tools(["pull"]);
    force_refresh(&fixture, "git").await;
    assert_eq!(cached_tools(&fixture), ["git__pull"]);
    let outcome = call_outcome(&fixture, "git__push", json!({})).await;
    assert!(outcome.starts_with("TOOL_NOT_IMPLEMENTED `git__push` was removed at 2026-"), "{outcome}");
    assert_eq!(git.calls(), 0);
}

/// Regression: a token repeated by its server reached the agent and the statistics.
#[tokio::test(start_paused = true)]
async fn secrets_in_responses_of_a_source_are_redacted() {
    let git = ScriptedSource::new(["push"]);
    let fixture = open_yaml("sources: { git: { command: x, env: { TOKEN: hunter2hunter2 } } }", &[("git", &git)]).await;
    git.set_reply(|_, _| ScriptedReply::Rejected("bad token hunter2hunter2".to_owned()));
    let error = call(&fixture, "git__push", json!({})).await.unwrap_err();
    assert!(error.message.contains("bad token ***"), "{}", error.message);
    git.set_reply(|_, _| {
        ScriptedReply::Result(json!({"content": [{"type": "text", "text": "hunter2hunter2?"}], "isError": true}))
    });
    assert!(call(&fixture, "git__push", json!({})).await.unwrap().is_error());
    let stats = serde_json::to_string(&fixture.statistics().totals()).unwrap();
    assert!(stats.contains("***?") && !stats.contains("hunter2"), "{stats}");
}
