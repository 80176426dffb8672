//! Calls: one code for each step that can fail, policy, validation, bounds, the breaker, counters.

use std::time::Duration;

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use toolcrib::core::inventory::{Actor, Command};
use toolcrib::testkit::{ScriptedReply, ScriptedSource};
use toolcrib::{CallOptions, Code};

use crate::support::{
    TestRegistry, agent, cached_tools, call, force_refresh, id, list_tools, open, open_yaml, output_text,
    run_pending_tasks, wait_until,
};

/// What came of a call: `ok: TEXT`, or a code and its message.
async fn call_outcome(bench: &TestRegistry, name: &str, input: Value) -> String {
    match call(bench, name, input).await {
        Ok(output) if output.is_error() => format!("error: {}", output_text(&output)),
        Ok(output) => format!("ok: {}", output_text(&output)),
        Err(error) => format!("{} {}", error.code.as_str(), error.message),
    }
}

#[tokio::test(start_paused = true)]
async fn every_step_has_its_code() {
    let (git, hub, down) =
        (ScriptedSource::new(["push", "pull"]), ScriptedSource::new(["push"]), ScriptedSource::new(["x"]));
    down.fail("nobody home");
    let sources: [(&str, _); 3] = [("git", &git), ("hub", &hub), ("down", &down)];
    let bench = open(&sources).await;
    list_tools(&bench).await;
    let pull = bench.catalog().find("git__pull").unwrap().id();
    bench.execute(Command::DisableTool(pull), Actor::new("somebody")).await.unwrap();
    for (name, expected) in [
        ("git__push", r#"ok: push {"a":1}"#),
        ("git/push", r#"ok: push {"a":1}"#),
        ("Git:push", r#"ok: push {"a":1}"#),
        ("push", "TOOL_INVALID_INPUT `push` is offered by several sources: git__push, hub__push"),
        ("git__psuh", "TOOL_NOT_IMPLEMENTED no tool named `git__psuh`; did you mean `git__push`?"),
        ("nowhere__push", "TOOL_NOT_IMPLEMENTED no tool named `nowhere__push`; did you mean `hub__push`?"),
        ("git__pull", "TOOL_NOT_IMPLEMENTED `git__pull` is disabled; `toolcrib enable git__pull` turns it on"),
        (
            "down__x",
            "TOOL_UNAVAILABLE the tools of `down` are not known: nobody home; `toolcrib refresh down` tries again",
        ),
    ] {
        let told = call_outcome(&bench, name, json!({"a": 1})).await;
        if name == "nowhere__push" {
            assert!(told.starts_with("TOOL_NOT_IMPLEMENTED no tool named `nowhere__push`"), "{told}");
        } else {
            assert_eq!(told, expected, "{name}");
        }
    }
    for malformed in ["", "__push", "git__"] {
        assert!(call_outcome(&bench, malformed, json!({})).await.starts_with("TOOL_INVALID_INPUT"), "{malformed:?}");
    }
}

/// A `null` counts as left out where none may be, also beside arguments too large to list their faults.
#[tokio::test]
async fn a_null_counts_as_left_out() {
    let schema = json!({
        "type": "object", "additionalProperties": false,
        "properties": { "content": { "anyOf": [{ "type": "string" }, { "type": "array" }] }, "encoding": { "enum": ["utf8"] } },
    });
    let files = ScriptedSource::new([json!({ "name": "write", "inputSchema": schema })]);
    files.set_reply(|_, input| json!(input["encoding"].to_string()));
    let bench = open(&[("files", &files)]).await;
    for content in [json!("a"), json!("a".repeat(2_000_000)), json!(vec![1; 200_000])] {
        let told = call_outcome(&bench, "files__write", json!({ "content": content, "encoding": null })).await;
        assert_eq!(told, "ok: null");
    }
    let told = call_outcome(&bench, "files__write", json!({ "content": 1, "encoding": null })).await;
    assert!(told.starts_with("TOOL_INVALID_INPUT wrong arguments for `files__write`: /content"), "{told}");
}

/// Validations of one source wait for one another, those of others do not wait for all of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_validations_hold_up_no_other_source() {
    let slow = json!({ "items": { "allOf": vec![json!({ "type": "integer" }); 400] } });
    let slow = json!({ "name": "t", "inputSchema": { "type": "object", "properties": { "x": slow } } });
    let (busy, calm) = (ScriptedSource::new([slow]), ScriptedSource::new(["t"]));
    let bench = open(&[("busy", &busy), ("calm", &calm)]).await;
    list_tools(&bench).await;
    let slow_calls: Vec<_> = (0..12)
        .map(|_| {
            let registry = bench.registry.clone();
            tokio::spawn(async move { call(&registry, "busy__t", json!({ "x": vec![1; 2_000] })).await })
        })
        .collect();
    wait_until("the first of them", || busy.calls() > 0).await;
    assert_eq!(call_outcome(&bench, "calm__t", json!({ "a": 1 })).await, r#"ok: t {"a":1}"#);
    assert!(busy.calls() < 12, "it did not wait for all of them");

    let hurried = CallOptions { timeout: Some(Duration::from_millis(1)), ..CallOptions::default() };
    let late = bench.call(&agent(), "busy__t", json!({ "x": vec![1; 2_000] }), hurried).await.unwrap_err();
    assert_eq!(late.code, Code::ToolUnavailable, "{}", late.message);
    for slow_call in slow_calls {
        assert!(slow_call.await.unwrap().is_ok());
    }
}

#[tokio::test(start_paused = true)]
async fn what_ends_is_counted_even_when_its_caller_left() {
    let git = ScriptedSource::new(["push"]);
    let bench = open(&[("git", &git)]).await;
    call(&bench, "git__push", json!({})).await.unwrap();
    git.pause();
    let held = call(&bench, "git__push", json!({}));
    let in_flight = async {
        run_pending_tasks().await;
        bench.metrics().calls_in_flight
    };
    tokio::select! {
        _ = held => panic!("it is held"),
        in_flight = in_flight => assert_eq!(in_flight, 1),
    }
    let measures = bench.metrics();
    let counted = &measures.calls[&Some(id("git"))];
    assert_eq!(measures.calls_in_flight, 0);
    assert_eq!(counted.by_code.clone().into_iter().collect::<Vec<_>>(), [("OK", 1), ("TOOL_EXECUTION_FAILED", 1)]);
    assert_eq!((counted.durations.count, bench.stats().errors), (2, 1));
}

#[tokio::test(start_paused = true)]
async fn failures_of_a_source_are_told_apart() {
    let git = ScriptedSource::new(["push"]);
    let bench = open(&[("git", &git)]).await;
    git.set_reply(|_, input| match input["how"].as_str() {
        Some("refuse") => ScriptedReply::Rejected("it said no".into()),
        Some("lose") => ScriptedReply::Disconnected("it is gone".into()),
        Some("fail") => json!({"content": [{"type": "text", "text": "my fault"}], "isError": true}).into(),
        _ => json!({"content": [], "structuredContent": {"a": 1}, "_meta": {"b": 2}}).into(),
    });
    assert_eq!(call_outcome(&bench, "git__push", json!({"how": "refuse"})).await, "TOOL_EXECUTION_FAILED it said no");
    assert_eq!(call_outcome(&bench, "git__push", json!({"how": "lose"})).await, "TOOL_UNAVAILABLE it is gone");
    assert_eq!(call_outcome(&bench, "git__push", json!({"how": "fail"})).await, "error: my fault");
    let output = call(&bench, "git__push", json!({})).await.unwrap();
    assert_eq!((output.structured().unwrap(), output.meta().unwrap()), (r#"{"a":1}"#, r#"{"b":2}"#));
    assert_eq!((output.is_error(), output.source), (false, id("git")));
}

#[tokio::test(start_paused = true)]
async fn a_call_is_measured_and_counted() {
    let git = ScriptedSource::new(["push"]);
    let bench = open(&[("git", &git)]).await;
    list_tools(&bench).await;
    git.set_delay(Duration::from_millis(250));
    assert_eq!(call(&bench, "git__push", json!({})).await.unwrap().elapsed_ms, 250);
    git.set_reply(|_, _| json!({"content": [{"type": "text", "text": "my fault"}], "isError": true}));
    bench.manual_clock.advance(Duration::from_secs(1));
    call(&bench, "git__push", json!({})).await.unwrap();
    call(&bench, "git__nothing", json!({})).await.unwrap_err();
    let stats = bench.stats();
    assert_eq!((stats.calls, stats.errors, stats.tools.len()), (2, 1, 1));
    let push = &stats.tools[0];
    assert_eq!((push.name.as_str(), push.calls, push.errors), ("git__push", 2, 1));
    assert_eq!(push.last_called, Some(bench.options.clock.now()));
    let error = push.last_error.as_ref().unwrap();
    assert_eq!((error.code, error.message.as_str()), (Code::ToolExecutionFailed, "my fault"));
}

#[tokio::test(start_paused = true)]
async fn rules_hold_in_lists_and_again_in_calls() {
    let git = ScriptedSource::new(["add", "delete", "push", "secret"]);
    let yaml = "sources: { git: { command: x, tools: { 'p*': ask, delete: deny, secret: hide } } }";
    let bench = open_yaml(yaml, &[("git", &git)]).await;
    assert_eq!(list_tools(&bench).await, ["git__add", "git__delete", "git__push"]);
    for (name, expected) in [
        ("git__add", "ok: add {}"),
        ("git__push", "FORBIDDEN `git__push` needs consent before each call; on the command line, `--yes` gives it"),
        ("git__delete", "FORBIDDEN a rule of its source denies `git__delete`"),
        ("git__secret", "TOOL_NOT_IMPLEMENTED no tool named `git__secret`; did you mean `git__delete`?"),
        ("secret", "TOOL_NOT_IMPLEMENTED no tool named `secret`"),
    ] {
        assert_eq!(call_outcome(&bench, name, json!({})).await, expected, "{name}");
    }
    let measures = bench.metrics();
    assert_eq!(measures.calls[&Some(id("git"))].by_code["FORBIDDEN"], 2, "it is known whose tools they are");
    assert_eq!(measures.calls[&None].by_code.keys().collect::<Vec<_>>(), [&"TOOL_NOT_IMPLEMENTED"]);
    assert_eq!(bench.stats().calls, 1, "and only what was called is counted as a call");
    let consent = || CallOptions { consent: true, ..CallOptions::default() };
    assert!(bench.call(&agent(), "git__push", json!({}), consent()).await.is_ok());
    for name in ["git__delete", "git__secret"] {
        assert!(bench.call(&agent(), name, json!({}), consent()).await.is_err(), "{name}");
    }
    assert_eq!(git.calls(), 2, "the others never reached it");
    assert!(bench.tool("git__secret").is_err());
}

#[tokio::test(start_paused = true)]
async fn a_null_for_an_optional_argument_is_one_left_out() {
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
    let bench = open(&[("mail", &mail)]).await;
    let given = json!({"to": "ann", "cc": null, "at": null, "more": {"x": null}});
    assert_eq!(call_outcome(&bench, "mail__send", given).await, r#"ok: send {"to":"ann","at":null,"more":{}}"#);
    assert!(call_outcome(&bench, "mail__send", json!({"to": null})).await.starts_with("TOOL_INVALID_INPUT"));
    assert!(call_outcome(&bench, "mail__send", json!({"to": "ann", "cc": 7})).await.starts_with("TOOL_INVALID_INPUT"));
}

#[tokio::test(start_paused = true)]
async fn every_wrong_argument_is_told_with_its_path() {
    let schema = json!({"type": "object", "required": ["name", "size"], "additionalProperties": false, "properties": {
        "name": {"type": "string"}, "size": {"type": "integer", "minimum": 1},
        "tags": {"type": "array", "items": {"type": "string"}}}});
    let git = ScriptedSource::new([json!({"name": "make", "inputSchema": schema})]);
    let bench = open(&[("git", &git)]).await;
    let input = json!({"size": 0, "tags": ["a", 2], "colour": "red"});
    let error = call(&bench, "git__make", input).await.unwrap_err();
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
        assert_eq!(call(&bench, "git__make", wrong).await.unwrap_err().code, Code::ToolInvalidInput);
    }
    assert!(call(&bench, "git__make", json!({"name": "a", "size": 1})).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_call_ends_at_its_deadline() {
    let git = ScriptedSource::new(["push"]);
    let bench = open_yaml("sources: { git: { command: x, call_timeout: 7s } }", &[("git", &git)]).await;
    list_tools(&bench).await;
    git.pause();
    for (timeout, expected) in [(None, 7), (Some(Duration::from_secs(2)), 2)] {
        let began = tokio::time::Instant::now();
        let options = CallOptions { timeout, ..CallOptions::default() };
        let error = bench.call(&agent(), "git__push", json!({}), options).await.unwrap_err();
        assert_eq!((error.code, began.elapsed().as_secs()), (Code::ToolExecutionFailed, expected));
    }
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_call_ends_and_says_nothing_about_the_source() {
    let git = ScriptedSource::new(["push"]);
    let bench = open(&[("git", &git)]).await;
    list_tools(&bench).await;
    git.pause();
    for _ in 0..6 {
        let cancel = CancellationToken::new();
        let options = CallOptions { cancel: cancel.clone(), ..CallOptions::default() };
        let caller = agent();
        let running = bench.call(&caller, "git__push", json!({}), options);
        let (result, ()) = tokio::join!(running, async {
            run_pending_tasks().await;
            cancel.cancel();
        });
        assert_eq!(result.unwrap_err().message, "the call was cancelled");
    }
    git.resume();
    assert!(call(&bench, "git__push", json!({})).await.is_ok(), "the breaker is shut");
}

/// A call that waited for its source to be discovered could not be cancelled, and outlived its own deadline.
#[tokio::test(start_paused = true)]
async fn a_call_that_waits_for_discovery_has_a_deadline_and_can_be_cancelled() {
    let git = ScriptedSource::new(["push"]);
    let bench = open(&[("git", &git)]).await;
    git.pause();
    let cancel = CancellationToken::new();
    let options = CallOptions { cancel: cancel.clone(), ..CallOptions::default() };
    let caller = agent();
    let (result, ()) = tokio::join!(bench.call(&caller, "git__push", json!({}), options), async {
        wait_until("it began", || git.discoveries() == 1).await;
        cancel.cancel();
    });
    assert_eq!(result.unwrap_err().message, "the call was cancelled");

    let began = tokio::time::Instant::now();
    let options = CallOptions { timeout: Some(Duration::from_secs(3)), ..CallOptions::default() };
    let error = bench.call(&agent(), "git__push", json!({}), options).await.unwrap_err();
    assert_eq!((error.code, began.elapsed().as_secs()), (Code::ToolUnavailable, 3));
    git.resume();
    assert!(call(&bench, "git__push", json!({})).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_first_call_discovers_its_own_source_and_no_other() {
    let (git, hub) = (ScriptedSource::new(["push"]), ScriptedSource::new(["pull"]));
    let bench = open(&[("git", &git), ("hub", &hub)]).await;
    assert!(call(&bench, "git__push", json!({})).await.is_ok());
    assert_eq!((git.discoveries(), hub.discoveries()), (1, 0));
    let error = call(&bench, "pull", json!({})).await.unwrap_err();
    assert_eq!(error.code, Code::ToolNotImplemented);
    assert!(error.message.contains("not discovered yet: `hub`"), "{}", error.message);
    assert_eq!((git.discoveries(), hub.discoveries()), (1, 0), "a bare name may be of any source: none is waited for");
    assert!(call(&bench, "push", json!({})).await.is_ok());
    let cached_only = || CallOptions { skip_discovery: true, ..CallOptions::default() };
    bench.invalidate(None).await.unwrap();
    assert!(bench.call(&agent(), "git__push", json!({}), cached_only()).await.is_ok());
    assert_eq!(git.discoveries(), 1);
}

/// A call to an unknown name waited for every source that hangs.
#[tokio::test(start_paused = true)]
async fn only_a_source_that_was_never_discovered_is_waited_for() {
    let (git, hangs) = (ScriptedSource::new(["push"]), ScriptedSource::new(["x"]));
    hangs.pause();
    let bench = open(&[("git", &git), ("hangs", &hangs)]).await;
    force_refresh(&bench, "git").await;
    let began = tokio::time::Instant::now();
    for name in ["nothing", "elsewhere__push", "git__nothing", "git/nothing", "push"] {
        let known = name == "push";
        assert_eq!(call(&bench, name, json!({})).await.is_ok(), known, "{name}");
    }
    assert_eq!(began.elapsed(), Duration::ZERO);
    let options = CallOptions { timeout: Some(Duration::from_secs(3)), ..CallOptions::default() };
    let error = bench.call(&agent(), "hangs__x", json!({}), options).await.unwrap_err();
    assert_eq!((error.code, began.elapsed().as_secs()), (Code::ToolUnavailable, 3), "{}", error.message);
    let error = call(&bench, "hangs__x", json!({})).await.unwrap_err();
    assert_eq!((error.code, began.elapsed().as_secs()), (Code::ToolUnavailable, 63), "its own call_timeout");
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_is_gone_since_is_not_called() {
    let git = ScriptedSource::new(["push", "pull"]);
    let bench = open(&[("git", &git)]).await;
    list_tools(&bench).await;
    git.set_tools(["pull"]);
    force_refresh(&bench, "git").await;
    assert_eq!(cached_tools(&bench), ["git__pull"]);
    assert!(
        call_outcome(&bench, "git__push", json!({}))
            .await
            .starts_with("TOOL_NOT_IMPLEMENTED no tool named `git__push`")
    );
    assert_eq!(git.calls(), 0);
}

/// A server that repeated the token it was given had it passed on to the agent and written to the counters.
#[tokio::test(start_paused = true)]
async fn what_a_source_was_given_in_confidence_comes_back_masked() {
    let git = ScriptedSource::new(["push"]);
    let bench = open_yaml("sources: { git: { command: x, env: { TOKEN: hunter2hunter2 } } }", &[("git", &git)]).await;
    git.set_reply(|_, _| ScriptedReply::Rejected("bad token hunter2hunter2".to_owned()));
    let error = call(&bench, "git__push", json!({})).await.unwrap_err();
    assert!(error.message.contains("bad token ***"), "{}", error.message);
    git.set_reply(|_, _| {
        ScriptedReply::Result(json!({"content": [{"type": "text", "text": "hunter2hunter2?"}], "isError": true}))
    });
    assert!(call(&bench, "git__push", json!({})).await.unwrap().is_error());
    let stats = serde_json::to_string(&bench.stats()).unwrap();
    assert!(stats.contains("***?") && !stats.contains("hunter2"), "{stats}");
}
