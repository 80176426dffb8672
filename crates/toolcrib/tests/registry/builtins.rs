//! Built-in tools: those registered by an embedding host and those from the configuration.

use std::time::Duration;

use serde_json::json;
use toolcrib::call::CallDeadline;
use toolcrib::core::inventory::{Actor, Command};
use toolcrib::core::policy::Verdict;
use toolcrib::testkit::ScriptedSource;
use toolcrib::{
    BuiltinDefinition, BuiltinOutput, CallContext, Code, RegistryOptions, Trust, UntrustedFile, builtin_handler,
};

use crate::support::{
    TEST_TIMEOUT, agent, cached_tools, call, config, id, list_tools, open, open_yaml, output_text, wait_until,
};

fn definition(name: &str) -> BuiltinDefinition {
    BuiltinDefinition::new(name, "A tool of the host", json!({"type": "object"})).unwrap()
}

#[tokio::test(start_paused = true)]
async fn an_embedding_host_can_register_tools() {
    let git = ScriptedSource::new(["push"]);
    let fixture = open(&[("git", &git)]).await;
    let mut notices = fixture.subscribe();
    let greet = builtin_handler(|input| async move { Ok(BuiltinOutput::text(format!("hello {}", input["name"]))) });
    fixture.register_builtin(definition("greet"), Some(greet)).unwrap();
    assert!(notices.try_recv().is_ok(), "subscribers hear of it");
    assert_eq!(list_tools(&fixture).await, ["git__push", "greet"]);
    assert_eq!(output_text(&call(&fixture, "greet", json!({"name": 1})).await.unwrap()), "hello 1");
    assert_eq!(fixture.tool("greet").unwrap().source.as_str(), "embedded");
    let error = fixture.register_builtin(definition("greet"), None).unwrap_err();
    assert_eq!(
        (error.code, error.message.as_str()),
        (Code::Conflict, "a built-in tool named `greet` exists already, from `embedded`")
    );
    let stats = fixture.statistics().totals();
    assert_eq!((stats.tools[0].name.as_str(), stats.tools[0].calls), ("greet", 1));
}

#[tokio::test(start_paused = true)]
async fn an_internal_tool_is_not_listed_and_can_be_called() {
    let fixture = open(&[]).await;
    let answer = builtin_handler(|_| async { Ok(BuiltinOutput::text("done")) });
    fixture.register_builtin(definition("secret_door").internal(), Some(answer)).unwrap();
    assert!(list_tools(&fixture).await.is_empty());
    assert!(!fixture.view(&agent()).render(toolcrib::catalog::render::Format::Json).unwrap().contains("secret_door"));
    assert_eq!(output_text(&call(&fixture, "secret_door", json!({})).await.unwrap()), "done");
    let error = call(&fixture, "secret_dor", json!({})).await.unwrap_err();
    let expected = "no tool named `secret_dor`; `toolcrib search WORDS` finds tools";
    assert_eq!(error.message, expected, "nor is it proposed");
}

#[tokio::test(start_paused = true)]
async fn a_tool_without_a_handler_is_listed_but_not_callable() {
    let fixture = open(&[]).await;
    fixture.register_builtin(definition("by_hand"), None).unwrap();
    assert_eq!(list_tools(&fixture).await, ["by_hand"]);
    let error = call(&fixture, "by_hand", json!({})).await.unwrap_err();
    assert_eq!(
        (error.code, error.message.as_str()),
        (Code::ToolNotImplemented, "`by_hand` has no handler here; its host executes it")
    );
}

#[tokio::test(start_paused = true)]
async fn a_tool_named_like_a_builtin_is_skipped_and_reported() {
    let git = ScriptedSource::new(["push", "greet"]);
    let hub = ScriptedSource::new(["greet"]);
    let yaml = "sources: { git: { command: x }, hub: { command: x, on_conflict: keep } }";
    let fixture = open_yaml(yaml, &[("git", &git), ("hub", &hub)]).await;
    assert_eq!(list_tools(&fixture).await, ["git__greet", "git__push", "hub__greet"]);
    fixture.register_builtin(definition("greet"), None).unwrap();
    assert_eq!(cached_tools(&fixture), ["git__push", "greet", "hub__greet"]);
    let view = fixture.source_view("git");
    assert_eq!((view.tool_count, view.skipped.len()), (1, 1));
    assert_eq!(view.skipped[0].name, "greet");
    assert_eq!(view.skipped[0].reason, "a built-in tool has this name; `on_conflict: keep` on the source keeps both");
}

#[tokio::test(start_paused = true)]
async fn a_panic_in_a_handler_fails_that_call_only() {
    let fixture = open(&[]).await;
    let panics = builtin_handler(|input| async move {
        assert!(input["calm"] == true, "a secret: 4711");
        Ok(BuiltinOutput::text("calm"))
    });
    fixture.register_builtin(definition("moody"), Some(panics)).unwrap();
    // A handler may also panic before it returns its future.
    let at_once: toolcrib::BuiltinHandler = std::sync::Arc::new(|_| panic!("at once"));
    fixture.register_builtin(definition("moodier"), Some(at_once)).unwrap();
    for tool in ["moody", "moodier"] {
        let error = call(&fixture, tool, json!({})).await.unwrap_err();
        assert_eq!((error.code, error.message), (Code::ToolExecutionFailed, format!("`{tool}` panicked")));
    }
    assert_eq!(output_text(&call(&fixture, "moody", json!({"calm": true})).await.unwrap()), "calm");
}

/// Regression: tools of the host had neither deadline nor cancellation.
#[tokio::test(start_paused = true)]
async fn a_hanging_handler_ends_at_its_deadline_or_when_cancelled() {
    let fixture = open(&[]).await;
    let hangs = builtin_handler(|_| std::future::pending());
    fixture.register_builtin(definition("hangs"), Some(hangs)).unwrap();
    let options = CallContext { deadline: Some(CallDeadline::after(Duration::from_secs(2))), ..CallContext::default() };
    let error = fixture.call("hangs", json!({})).context(options).caller(agent()).await.unwrap_err();
    assert_eq!((error.code, error.message.as_str()), (Code::ToolExecutionFailed, "`hangs` timed out after 2s"));
    let options = CallContext::default();
    options.cancel.cancel();
    let error = fixture.call("hangs", json!({})).context(options).caller(agent()).await.unwrap_err();
    assert_eq!((error.code, error.message.as_str()), (Code::ToolExecutionFailed, "the call was cancelled"));
}

/// Regression: results of the host's tools were unbounded.
#[tokio::test(start_paused = true)]
async fn a_large_result_of_a_handler_is_paged() {
    let fixture = open(&[]).await;
    let talks = builtin_handler(|_| async { Ok(BuiltinOutput::text("x".repeat(300 * 1024))) });
    fixture.register_builtin(definition("talks"), Some(talks)).unwrap();
    let output = call(&fixture, "talks", json!({})).await.unwrap();
    assert_eq!(output.page.unwrap().page_count, 2);
    assert!(output.raw.get().len() <= 256 * 1024);
}

#[tokio::test(start_paused = true)]
async fn a_builtin_with_verdict_ask_needs_consent() {
    let fixture = open(&[]).await;
    let done = builtin_handler(|_| async { Ok(BuiltinOutput::text("done")) });
    fixture.register_builtin(definition("risky").verdict(Verdict::Ask), Some(done)).unwrap();
    assert_eq!(call(&fixture, "risky", json!({})).await.unwrap_err().code, Code::Forbidden);
    let options = CallContext { consent: true, ..CallContext::default() };
    assert!(fixture.call("risky", json!({})).context(options).caller(agent()).await.is_ok());
}

#[tokio::test]
async fn configured_builtins_are_listed_at_once_and_dangerous_ones_need_consent() {
    let home = tempfile::tempdir().unwrap();
    let yaml = format!("sources: {{ core: {{ builtin: [all, file_write], roots: ['{}'] }} }}", home.path().display());
    let fixture = open_yaml(&yaml, &[]).await;
    assert_eq!(cached_tools(&fixture).len(), 8);
    assert_eq!(
        output_text(&call(&fixture, "calculate", json!({"expression": "6*7"})).await.unwrap()),
        r#"{"result":42}"#
    );
    let input = json!({"path": home.path().join("a").display().to_string(), "content": "b"});
    assert_eq!(call(&fixture, "file_write", input.clone()).await.unwrap_err().code, Code::Forbidden);
    let options = CallContext { consent: true, ..CallContext::default() };
    fixture.call("file_write", input).context(options).caller(agent()).await.unwrap();
    assert_eq!(std::fs::read_to_string(home.path().join("a")).unwrap(), "b");
}

/// Regression: built-ins enabled after the registry was opened had neither handlers nor their own verdicts.
#[tokio::test]
async fn builtins_enabled_later_work_and_dangerous_ones_need_consent() {
    let yaml = "sources: { core: { builtin: [all, bash], roots: [/tmp] } }";
    let fixture = open_yaml(yaml, &[]).await;
    fixture.execute(Command::Disable(id("core")), Actor::new("operator")).await.unwrap();
    let later = fixture.open_again(yaml).await;
    assert!(cached_tools(&later).is_empty());
    later.execute(Command::Enable(id("core")), Actor::new("operator")).await.unwrap();
    assert_eq!(output_text(&call(&later, "calculate", json!({"expression": "1+1"})).await.unwrap()), r#"{"result":2}"#);
    assert_eq!(later.tool("bash").unwrap().policy, Some(Verdict::Ask));
    assert_eq!(call(&later, "bash", json!({"command": "true"})).await.unwrap_err().code, Code::Forbidden);
}

/// Regression: references in `roots` were not resolved.
#[tokio::test]
async fn roots_may_be_references() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().display();
    std::fs::write(home.path().join("where"), format!("{path}\n")).unwrap();
    let yaml = format!("sources: {{ core: {{ builtin: [file_list], roots: ['${{file:{path}/where}}'] }} }}");
    let fixture = open_yaml(&yaml, &[]).await;
    let listed = call(&fixture, "file_list", json!({"path": path.to_string()})).await.unwrap();
    assert!(output_text(&listed).contains("where"), "{}", listed.content());
}

#[tokio::test]
async fn roots_in_a_file_are_read_when_another_process_opens_or_enables_the_source() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().display();
    std::fs::write(home.path().join("where"), format!("{path}\n")).unwrap();
    let yaml = format!("sources: {{ core: {{ builtin: [file_list], roots: ['${{file:{path}/where}}'] }} }}");
    let fixture = open_yaml(&yaml, &[]).await;
    for enabled in [true, false] {
        if !enabled {
            fixture.execute(Command::Disable(id("core")), Actor::new("operator")).await.unwrap();
        }
        let later = fixture.open_again(&yaml).await;
        assert_eq!(cached_tools(&later).is_empty(), !enabled);
        later.execute(Command::Enable(id("core")), Actor::new("operator")).await.unwrap();
        assert_eq!(cached_tools(&later), ["file_list"]);
        let listed = call(&later, "file_list", json!({"path": path.to_string()})).await.unwrap();
        assert!(output_text(&listed).contains("where"), "{}", listed.content());
    }
}

/// Regression: a request that waited for the declaration ended the read of the file, and nothing read it again.
#[tokio::test]
async fn roots_in_a_file_are_read_after_a_wait_for_their_declaration() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().display();
    std::fs::write(home.path().join("where"), format!("{path}\n")).unwrap();
    let fixture = open_yaml("sources: {}", &[]).await;
    let options = RegistryOptions { follow_writes: false, ..fixture.options.clone() };
    let other = fixture.open_again_with("sources: {}", options).await;
    let yaml = format!("sources: {{ core: {{ builtin: [file_list], roots: ['${{file:{path}/where}}'] }} }}");
    fixture.configuration().apply(&config(&yaml)).await.unwrap();
    assert_eq!(cached_tools(&fixture), ["file_list"]);
    assert!(other.wait_for_position(fixture.position(), TEST_TIMEOUT).await);
    wait_until("the file was read", || cached_tools(&other) == ["file_list"]).await;
}

/// Regression: the file in `roots` of an untrusted source was read, because built-in tools contact no server.
#[tokio::test]
async fn roots_of_an_untrusted_source_are_not_read() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().display();
    std::fs::write(home.path().join("where"), format!("{path}\n")).unwrap();
    let yaml = format!("sources: {{ core: {{ builtin: [file_list], roots: ['${{file:{path}/where}}'] }} }}");
    let fixture = open_yaml(&yaml, &[]).await;
    assert_eq!(cached_tools(&fixture), ["file_list"]);
    let untrusted = UntrustedFile { reason: "the file is not trusted".to_owned(), sources: vec![id("core")] };
    let trust = Trust { untrusted: Some(untrusted), ..Trust::default() };
    let options = RegistryOptions { trust, ..fixture.options.clone() };
    let later = fixture.open_again_with("sources: {}", options).await;
    assert!(cached_tools(&later).is_empty(), "without the file there are no roots");
    later.configuration().set_trust(Trust::default());
    later.configuration().apply(&config(&yaml)).await.unwrap();
    assert_eq!(cached_tools(&later), ["file_list"]);
}

/// Regression: the statistics named a removed built-in tool with the prefix of its source.
#[tokio::test]
async fn a_removed_tool_keeps_its_name_in_the_statistics() {
    let fixture = open_yaml("sources: { core: { builtin: [calculate] } }", &[]).await;
    call(&fixture, "calculate", json!({"expression": "1+1"})).await.unwrap();
    let changed = config("sources: { core: { builtin: [current_time] } }");
    fixture.configuration().apply(&changed).await.unwrap();
    assert_eq!(cached_tools(&fixture), ["current_time"]);
    assert_eq!(fixture.statistics().totals().tools[0].name, "calculate");
}
