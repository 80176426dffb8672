//! Tools of the embedding host, and the configured ones.

use std::time::Duration;

use serde_json::json;
use toolcrib::builtin::{BuiltinDefinition, BuiltinOutput, handler};
use toolcrib::core::inventory::{Actor, Command};
use toolcrib::core::policy::Verdict;
use toolcrib::testkit::ScriptedSource;
use toolcrib::{CallOptions, Code};

use crate::support::{agent, cached_tools, call, id, list_tools, open, open_yaml, output_text};

fn definition(name: &str) -> BuiltinDefinition {
    BuiltinDefinition::new(name, "A tool of the host", json!({"type": "object"})).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_host_adds_tools_of_its_own() {
    let git = ScriptedSource::new(["push"]);
    let bench = open(&[("git", &git)]).await;
    let mut notices = bench.subscribe();
    let greet = handler(|input| async move { Ok(BuiltinOutput::text(format!("hello {}", input["name"]))) });
    bench.register_builtin(definition("greet"), Some(greet)).unwrap();
    assert!(notices.try_recv().is_ok(), "subscribers hear of it");
    assert_eq!(list_tools(&bench).await, ["git__push", "greet"]);
    assert_eq!(output_text(&call(&bench, "greet", json!({"name": 1})).await.unwrap()), "hello 1");
    assert_eq!(bench.tool("greet").unwrap().source.as_str(), "embedded");
    let error = bench.register_builtin(definition("greet"), None).unwrap_err();
    assert_eq!(
        (error.code, error.message.as_str()),
        (Code::Conflict, "a built-in tool named `greet` exists already, from `embedded`")
    );
    let stats = bench.stats();
    assert_eq!((stats.tools[0].name.as_str(), stats.tools[0].calls), ("greet", 1));
}

#[tokio::test(start_paused = true)]
async fn an_internal_tool_is_in_no_list_and_can_be_called() {
    let bench = open(&[]).await;
    let answer = handler(|_| async { Ok(BuiltinOutput::text("done")) });
    bench.register_builtin(definition("secret_door").internal(), Some(answer)).unwrap();
    assert!(list_tools(&bench).await.is_empty());
    assert!(!bench.view(&agent()).render(toolcrib::core::render::Format::Json).unwrap().contains("secret_door"));
    assert_eq!(output_text(&call(&bench, "secret_door", json!({})).await.unwrap()), "done");
    let error = call(&bench, "secret_dor", json!({})).await.unwrap_err();
    assert_eq!(error.message, "no tool named `secret_dor`", "nor is it proposed");
}

#[tokio::test(start_paused = true)]
async fn a_tool_without_a_handler_is_listed_and_left_to_its_host() {
    let bench = open(&[]).await;
    bench.register_builtin(definition("by_hand"), None).unwrap();
    assert_eq!(list_tools(&bench).await, ["by_hand"]);
    let error = call(&bench, "by_hand", json!({})).await.unwrap_err();
    assert_eq!(
        (error.code, error.message.as_str()),
        (Code::ToolNotImplemented, "`by_hand` has no handler here; its host executes it")
    );
}

#[tokio::test(start_paused = true)]
async fn a_tool_named_like_a_builtin_is_left_out_and_reported() {
    let (git, hub) = (ScriptedSource::new(["push", "greet"]), ScriptedSource::new(["greet"]));
    let yaml = "sources: { git: { command: x }, hub: { command: x, on_conflict: keep } }";
    let bench = open_yaml(yaml, &[("git", &git), ("hub", &hub)]).await;
    assert_eq!(list_tools(&bench).await, ["git__greet", "git__push", "hub__greet"]);
    bench.register_builtin(definition("greet"), None).unwrap();
    assert_eq!(cached_tools(&bench), ["git__push", "greet", "hub__greet"]);
    let view = bench.source_view("git");
    assert_eq!((view.tool_count, view.set_aside.len()), (1, 1));
    assert_eq!(view.set_aside[0].name, "greet");
    assert_eq!(view.set_aside[0].reason, "a built-in tool has this name; `on_conflict: keep` on the source keeps both");
}

#[tokio::test(start_paused = true)]
async fn a_panic_in_a_handler_ends_that_call_and_nothing_else() {
    let bench = open(&[]).await;
    let panics = handler(|input| async move {
        assert!(input["calm"] == true, "a secret: 4711");
        Ok(BuiltinOutput::text("calm"))
    });
    bench.register_builtin(definition("moody"), Some(panics)).unwrap();
    // A handler may panic before it gives its future, too.
    let at_once: toolcrib::builtin::BuiltinHandler = std::sync::Arc::new(|_| panic!("at once"));
    bench.register_builtin(definition("moodier"), Some(at_once)).unwrap();
    for tool in ["moody", "moodier"] {
        let error = call(&bench, tool, json!({})).await.unwrap_err();
        assert_eq!((error.code, error.message), (Code::ToolExecutionFailed, format!("`{tool}` panicked")));
    }
    assert_eq!(output_text(&call(&bench, "moody", json!({"calm": true})).await.unwrap()), "calm");
}

/// A tool of the host knew neither deadline nor cancellation.
#[tokio::test(start_paused = true)]
async fn a_handler_that_hangs_ends_at_its_deadline_or_when_the_caller_leaves() {
    let bench = open(&[]).await;
    let hangs = handler(|_| std::future::pending());
    bench.register_builtin(definition("hangs"), Some(hangs)).unwrap();
    let options = CallOptions { timeout: Some(Duration::from_secs(2)), ..CallOptions::default() };
    let error = bench.call(&agent(), "hangs", json!({}), options).await.unwrap_err();
    assert_eq!((error.code, error.message.as_str()), (Code::ToolExecutionFailed, "`hangs` did not finish within 2s"));
    let options = CallOptions::default();
    options.cancel.cancel();
    let error = bench.call(&agent(), "hangs", json!({}), options).await.unwrap_err();
    assert_eq!((error.code, error.message.as_str()), (Code::ToolExecutionFailed, "the call was cancelled"));
}

/// A tool of the host could answer without bounds.
#[tokio::test(start_paused = true)]
async fn a_handler_that_says_too_much_is_read_page_by_page() {
    let bench = open(&[]).await;
    let talks = handler(|_| async { Ok(BuiltinOutput::text("x".repeat(300 * 1024))) });
    bench.register_builtin(definition("talks"), Some(talks)).unwrap();
    let output = call(&bench, "talks", json!({})).await.unwrap();
    assert_eq!(output.page.unwrap().page_count, 2);
    assert!(output.raw.get().len() <= 256 * 1024);
}

#[tokio::test(start_paused = true)]
async fn what_a_handler_asks_for_is_asked() {
    let bench = open(&[]).await;
    let done = handler(|_| async { Ok(BuiltinOutput::text("done")) });
    bench.register_builtin(definition("risky").verdict(Verdict::Ask), Some(done)).unwrap();
    assert_eq!(call(&bench, "risky", json!({})).await.unwrap_err().code, Code::Forbidden);
    let options = CallOptions { consent: true, ..CallOptions::default() };
    assert!(bench.call(&agent(), "risky", json!({}), options).await.is_ok());
}

#[tokio::test]
async fn configured_builtins_are_there_at_once_and_the_dangerous_ones_ask() {
    let home = tempfile::tempdir().unwrap();
    let yaml = format!("sources: {{ core: {{ builtin: [all, file_write], roots: ['{}'] }} }}", home.path().display());
    let bench = open_yaml(&yaml, &[]).await;
    assert_eq!(cached_tools(&bench).len(), 8);
    assert_eq!(
        output_text(&call(&bench, "calculate", json!({"expression": "6*7"})).await.unwrap()),
        r#"{"result":42}"#
    );
    let input = json!({"path": home.path().join("a").display().to_string(), "content": "b"});
    assert_eq!(call(&bench, "file_write", input.clone()).await.unwrap_err().code, Code::Forbidden);
    let options = CallOptions { consent: true, ..CallOptions::default() };
    bench.call(&agent(), "file_write", input, options).await.unwrap();
    assert_eq!(std::fs::read_to_string(home.path().join("a")).unwrap(), "b");
}

/// Built-ins that were off when the registry opened had neither handlers nor their own verdicts once they were on.
#[tokio::test]
async fn builtins_switched_on_later_work_and_the_dangerous_ones_ask() {
    let yaml = "sources: { core: { builtin: [all, bash], roots: [/tmp] } }";
    let bench = open_yaml(yaml, &[]).await;
    bench.execute(Command::Disable(id("core")), Actor::new("somebody")).await.unwrap();
    let later = bench.open_again(yaml).await;
    assert!(cached_tools(&later).is_empty());
    later.execute(Command::Enable(id("core")), Actor::new("somebody")).await.unwrap();
    assert_eq!(output_text(&call(&later, "calculate", json!({"expression": "1+1"})).await.unwrap()), r#"{"result":2}"#);
    assert_eq!(later.tool("bash").unwrap().policy, Verdict::Ask);
    assert_eq!(call(&later, "bash", json!({"command": "true"})).await.unwrap_err().code, Code::Forbidden);
}

/// References in `roots` were taken as they stand.
#[tokio::test]
async fn roots_may_be_references() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().display();
    std::fs::write(home.path().join("where"), format!("{path}\n")).unwrap();
    let yaml = format!("sources: {{ core: {{ builtin: [file_list], roots: ['${{file:{path}/where}}'] }} }}");
    let bench = open_yaml(&yaml, &[]).await;
    let listed = call(&bench, "file_list", json!({"path": path.to_string()})).await.unwrap();
    assert!(output_text(&listed).contains("where"), "{}", listed.content());
}
