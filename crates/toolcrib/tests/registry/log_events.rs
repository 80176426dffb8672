//! The log events of CONTRACT.md with their fields, and that none contains secrets.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::json;
use toolcrib::core::inventory::{Actor, Command};
use toolcrib::registry::RegistryNotice;
use toolcrib::testkit::ScriptedSource;
use toolcrib::{BuiltinDefinition, BuiltinOutput, builtin_handler};
use tracing::field::{Field, Visit};
use tracing::subscriber::DefaultGuard;
use tracing::{Event, Metadata, Subscriber, span};

use crate::support::{call, force_refresh, id, list_tools, open_yaml};

/// Captures the log events of this thread: the fields of each by name, including `message`.
#[derive(Clone, Default)]
struct LogCapture(Arc<Mutex<Vec<BTreeMap<String, String>>>>);

impl LogCapture {
    /// Captures events until the guard is dropped.
    fn install() -> (LogCapture, DefaultGuard) {
        let log = LogCapture::default();
        let guard = tracing::subscriber::set_default(log.clone());
        (log, guard)
    }

    /// Removes and returns the captured events of this name, without `message` and `trace_id`.
    fn take(&self, name: &str) -> Vec<BTreeMap<String, String>> {
        let mut all = self.0.lock();
        let (events, rest) = all.drain(..).partition(|event| event["message"] == name);
        *all = rest;
        let mut events: Vec<BTreeMap<String, String>> = events;
        let always = ["tools.discovery.server.success", "tools.discovery.server.failed", "tools.call.finished"];
        for event in &mut events {
            event.remove("message");
            let traced = event.remove("trace_id").is_some_and(|id| id.len() == 32);
            assert!(traced || !always.contains(&name), "{name}: {event:?}");
        }
        events
    }

    fn debug_text(&self) -> String {
        format!("{:?}", self.0.lock())
    }
}

impl Subscriber for LogCapture {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn event(&self, event: &Event<'_>) {
        let mut fields = EventFields::default();
        event.record(&mut fields);
        fields.0.entry("message".into()).or_default();
        self.0.lock().push(fields.0);
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

#[derive(Default)]
struct EventFields(BTreeMap<String, String>);

impl Visit for EventFields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0.insert(field.name().to_owned(), format!("{value:?}").trim_matches('"').to_owned());
    }
}

fn expected_fields(fields: &[(&str, &str)]) -> BTreeMap<String, String> {
    fields.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

#[tokio::test(start_paused = true)]
async fn each_event_of_the_contract_is_logged_with_its_fields() {
    let (log, _guard) = LogCapture::install();
    let git = ScriptedSource::new(["push", "pull"]);
    let hub = ScriptedSource::new(["x"]);
    git.set_delay(std::time::Duration::from_millis(40));
    hub.fail("closed");
    let yaml = "sources: { git: { command: x }, hub: { command: x } }";
    let fixture = open_yaml(yaml, &[("git", &git), ("hub", &hub)]).await;
    assert_eq!(log.take("tools.discovery.started"), [], "opening discovers nothing");

    list_tools(&fixture).await;
    assert_eq!(log.take("tools.discovery.started"), [expected_fields(&[("server_count", "2")])]);
    let success = expected_fields(&[("server_name", "git"), ("tool_count", "2"), ("duration_ms", "40")]);
    assert_eq!(log.take("tools.discovery.server.success"), [success]);
    let failed = expected_fields(&[("server_name", "hub"), ("error_message", "closed")]);
    assert_eq!(log.take("tools.discovery.server.failed"), [failed]);
    let counts = |builtin: &str, mcp: &str| {
        let counts = [("static_count", builtin), ("mcp_count", mcp), ("openapi_count", "0"), ("workflow_count", "0")];
        expected_fields(&counts)
    };
    assert_eq!(log.take("tools.registry.updated"), [counts("0", "2")]);
    let misses = log.take("tools.cache.miss");
    assert_eq!(misses, [expected_fields(&[("server_name", "git")]), expected_fields(&[("server_name", "hub")])]);
    list_tools(&fixture).await;
    assert_eq!(log.take("tools.cache.hit"), [expected_fields(&[("server_name", "git")])]);

    let definition = BuiltinDefinition::new("greet", "Greets", json!({"type": "object"})).unwrap();
    let greet = builtin_handler(|_| async { Ok(BuiltinOutput::text("hello")) });
    fixture.register_builtin(definition, Some(greet)).unwrap();
    assert_eq!(log.take("tools.registry.updated"), [counts("1", "2")]);

    call(&fixture, "git__push", json!({})).await.unwrap();
    call(&fixture, "git__nothing", json!({})).await.unwrap_err();
    let finished = log.take("tools.call.finished");
    let calls: Vec<_> = finished.iter().map(|call| (&*call["tool"], &*call["code"], &*call["duration_ms"])).collect();
    assert_eq!(calls, [("git__push", "OK", "40"), ("git__nothing", "TOOL_NOT_IMPLEMENTED", "0")]);
    // A tool is logged under its listed name, however it was spelled; an unknown name as it was spelled.
    let mut notices = fixture.subscribe();
    let unknown_name = format!("no-{}", "x".repeat(300));
    for spelling in ["git:push", "git/push", "push", "Git__push", "GIT/push", &unknown_name] {
        // Succeeds or fails, depending on the name.
        let _ = call(&fixture, spelling, json!({})).await;
    }
    let finished = log.take("tools.call.finished");
    let logged: Vec<&str> = finished.iter().map(|call| &*call["tool"]).collect();
    assert_eq!(logged[..5], ["git__push"; 5]);
    assert!(logged[5].starts_with("no-xxx") && logged[5].len() < 210, "{logged:?}");
    let mut published = Vec::new();
    while let Ok(notice) = notices.try_recv() {
        if let RegistryNotice::CallFinished(called) = notice {
            published.push(called.tool.clone());
        }
    }
    assert_eq!(published, logged);
    let counted: Vec<(String, u64)> =
        fixture.statistics().totals().tools.into_iter().map(|tool| (tool.name, tool.calls)).collect();
    assert_eq!(counted, [("git__push".to_owned(), 6)]);

    force_refresh(&fixture, "git").await;
    assert_eq!(log.take("tools.registry.updated"), [], "nothing changed");
    fixture.execute(Command::Disable(id("git")), Actor::new("operator")).await.unwrap();
    let removed = expected_fields(&[("server_name", "git"), ("removed_count", "2")]);
    assert_eq!(log.take("tools.registry.server.removed"), [removed]);
    assert_eq!(log.take("tools.registry.updated"), [counts("1", "0")]);
}

/// `server_count` excludes fresh and disabled sources.
#[tokio::test(start_paused = true)]
async fn discovery_started_counts_the_contacted_sources() {
    let (log, _guard) = LogCapture::install();
    let git = ScriptedSource::new(["push"]);
    let hub = ScriptedSource::new(["pull"]);
    let off = ScriptedSource::new(["x"]);
    let yaml = "sources: { git: { command: x }, hub: { command: x, ttl: 1h }, off: { command: x, enabled: false } }";
    let fixture = open_yaml(yaml, &[("git", &git), ("hub", &hub), ("off", &off)]).await;
    list_tools(&fixture).await;
    fixture.manual_clock.advance(std::time::Duration::from_secs(600));
    log.take("tools.discovery.started");
    fixture.refresh(toolcrib::Refresh::default()).await;
    assert_eq!(log.take("tools.discovery.started"), [expected_fields(&[("server_count", "1")])]);
    fixture.refresh(toolcrib::Refresh::default()).await;
    assert_eq!(log.take("tools.discovery.started"), []);
}

#[tokio::test(start_paused = true)]
async fn neither_arguments_nor_results_nor_secrets_are_logged() {
    let (log, _guard) = LogCapture::install();
    let git = ScriptedSource::new([json!({"name": "push", "inputSchema": {"type": "object", "properties": {
        "to": {"type": "string"}, "size": {"type": "integer"}}}})]);
    git.set_reply(|_, _| json!("RESULT-4711"));
    let yaml =
        "sources: { git: { url: 'http://h/mcp?key=KEY-4711', headers: { Authorization: 'Bearer TOKEN-4711' } } }";
    let fixture = open_yaml(yaml, &[("git", &git)]).await;
    list_tools(&fixture).await;
    call(&fixture, "git__push", json!({"to": "ARGUMENT-4711"})).await.unwrap();
    call(&fixture, "git__push", json!({"to": "ARGUMENT-4711", "size": "WRONG-4711"})).await.unwrap_err();
    git.fail("closed");
    force_refresh(&fixture, "git").await;
    call(&fixture, "git__push", json!({"to": "ARGUMENT-4711"})).await.unwrap_err();
    let all = log.debug_text();
    assert!(all.contains("tools.call.finished") && all.contains("tools.discovery.server.failed"));
    assert!(!all.contains("4711"), "{all}");
}
