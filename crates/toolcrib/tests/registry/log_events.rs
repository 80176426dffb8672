//! The log events of the contract, each with its fields; and that nothing secret is among them.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex};

use serde_json::json;
use toolcrib::builtin::{BuiltinDefinition, BuiltinOutput, handler};
use toolcrib::core::inventory::{Actor, Command};
use toolcrib::registry::RegistryNotice;
use toolcrib::testkit::ScriptedSource;
use tracing::field::{Field, Visit};
use tracing::subscriber::DefaultGuard;
use tracing::{Event, Metadata, Subscriber, span};

use crate::support::{call, force_refresh, id, list_tools, open_yaml};

/// Every event of this thread: its fields by name, `message` among them.
#[derive(Clone, Default)]
struct LogCapture(Arc<Mutex<Vec<BTreeMap<String, String>>>>);

impl LogCapture {
    /// Listens until the guard is dropped.
    fn install() -> (LogCapture, DefaultGuard) {
        let heard = LogCapture::default();
        let guard = tracing::subscriber::set_default(heard.clone());
        (heard, guard)
    }

    /// The events of this name since the last look, without their name and the id of their trace.
    fn take(&self, name: &str) -> Vec<BTreeMap<String, String>> {
        let mut all = self.0.lock().unwrap();
        let (found, rest) = all.drain(..).partition(|event| event["message"] == name);
        *all = rest;
        let mut found: Vec<BTreeMap<String, String>> = found;
        let always = ["tools.discovery.server.success", "tools.discovery.server.failed", "tools.call.finished"];
        for event in &mut found {
            event.remove("message");
            let traced = event.remove("trace_id").is_some_and(|id| id.len() == 32);
            assert!(traced || !always.contains(&name), "{name}: {event:?}");
        }
        found
    }

    fn debug_text(&self) -> String {
        format!("{:?}", self.0.lock().unwrap())
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
        self.0.lock().unwrap().push(fields.0);
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
async fn each_event_of_the_contract_is_told_with_its_fields() {
    let (heard, _guard) = LogCapture::install();
    let (git, hub) = (ScriptedSource::new(["push", "pull"]), ScriptedSource::new(["x"]));
    git.set_delay(std::time::Duration::from_millis(40));
    hub.fail("closed");
    let yaml = "sources: { git: { command: x }, hub: { command: x } }";
    let bench = open_yaml(yaml, &[("git", &git), ("hub", &hub)]).await;
    assert_eq!(heard.take("tools.discovery.started"), [], "opening discovers nothing");

    list_tools(&bench).await;
    assert_eq!(heard.take("tools.discovery.started"), [expected_fields(&[("server_count", "2")])]);
    let success = expected_fields(&[("server_name", "git"), ("tool_count", "2"), ("duration_ms", "40")]);
    assert_eq!(heard.take("tools.discovery.server.success"), [success]);
    let failed = expected_fields(&[("server_name", "hub"), ("error_message", "closed")]);
    assert_eq!(heard.take("tools.discovery.server.failed"), [failed]);
    let counts = |builtin: &str, mcp: &str| {
        let counts = [("static_count", builtin), ("mcp_count", mcp), ("openapi_count", "0"), ("workflow_count", "0")];
        expected_fields(&counts)
    };
    assert_eq!(heard.take("tools.registry.updated"), [counts("0", "2")]);
    let misses = heard.take("tools.cache.miss");
    assert_eq!(misses, [expected_fields(&[("server_name", "git")]), expected_fields(&[("server_name", "hub")])]);
    list_tools(&bench).await;
    assert_eq!(heard.take("tools.cache.hit"), [expected_fields(&[("server_name", "git")])]);

    let definition = BuiltinDefinition::new("greet", "Greets", json!({"type": "object"})).unwrap();
    let greet = handler(|_| async { Ok(BuiltinOutput::text("hello")) });
    bench.register_builtin(definition, Some(greet)).unwrap();
    assert_eq!(heard.take("tools.registry.updated"), [counts("1", "2")]);

    call(&bench, "git__push", json!({})).await.unwrap();
    call(&bench, "git__nothing", json!({})).await.unwrap_err();
    let finished = heard.take("tools.call.finished");
    let told: Vec<_> = finished.iter().map(|call| (&*call["tool"], &*call["code"], &*call["duration_ms"])).collect();
    assert_eq!(told, [("git__push", "OK", "40"), ("git__nothing", "TOOL_NOT_IMPLEMENTED", "0")]);
    // However a tool is asked for, it is told by the one name that lists have; what is no tool's, as it was asked for.
    let mut notices = bench.subscribe();
    let odd = format!("no-{}", "x".repeat(300));
    for spelling in ["git:push", "git/push", "push", "Git__push", "GIT/push", &odd] {
        let _unknown = call(&bench, spelling, json!({})).await;
    }
    let finished = heard.take("tools.call.finished");
    let logged: Vec<&str> = finished.iter().map(|call| &*call["tool"]).collect();
    assert_eq!(logged[..5], ["git__push"; 5]);
    assert!(logged[5].starts_with("no-xxx") && logged[5].len() < 210, "{logged:?}");
    let mut told = Vec::new();
    while let Ok(notice) = notices.try_recv() {
        if let RegistryNotice::CallFinished(called) = notice {
            told.push(called.tool.clone());
        }
    }
    assert_eq!(told, logged);
    let counted: Vec<(String, u64)> = bench.stats().tools.into_iter().map(|tool| (tool.name, tool.calls)).collect();
    assert_eq!(counted, [("git__push".to_owned(), 6)]);

    force_refresh(&bench, "git").await;
    assert_eq!(heard.take("tools.registry.updated"), [], "nothing changed");
    bench.execute(Command::Disable(id("git")), Actor::new("somebody")).await.unwrap();
    let removed = expected_fields(&[("server_name", "git"), ("removed_count", "2")]);
    assert_eq!(heard.take("tools.registry.server.removed"), [removed]);
    assert_eq!(heard.take("tools.registry.updated"), [counts("1", "0")]);
}

/// Told are the sources that are asked, not those that are fresh or switched off.
#[tokio::test(start_paused = true)]
async fn a_discovery_counts_who_is_asked() {
    let (heard, _guard) = LogCapture::install();
    let (git, hub, off) = (ScriptedSource::new(["push"]), ScriptedSource::new(["pull"]), ScriptedSource::new(["x"]));
    let yaml = "sources: { git: { command: x }, hub: { command: x, ttl: 1h }, off: { command: x, enabled: false } }";
    let bench = open_yaml(yaml, &[("git", &git), ("hub", &hub), ("off", &off)]).await;
    list_tools(&bench).await;
    bench.manual_clock.advance(std::time::Duration::from_secs(600));
    heard.take("tools.discovery.started");
    bench.refresh(toolcrib::Refresh::default()).await;
    assert_eq!(heard.take("tools.discovery.started"), [expected_fields(&[("server_count", "1")])]);
    bench.refresh(toolcrib::Refresh::default()).await;
    assert_eq!(heard.take("tools.discovery.started"), []);
}

#[tokio::test(start_paused = true)]
async fn neither_arguments_nor_results_nor_secrets_are_told() {
    let (heard, _guard) = LogCapture::install();
    let git = ScriptedSource::new([json!({"name": "push", "inputSchema": {"type": "object", "properties": {
        "to": {"type": "string"}, "size": {"type": "integer"}}}})]);
    git.set_reply(|_, _| json!("RESULT-4711"));
    let yaml =
        "sources: { git: { url: 'http://h/mcp?key=KEY-4711', headers: { Authorization: 'Bearer TOKEN-4711' } } }";
    let bench = open_yaml(yaml, &[("git", &git)]).await;
    list_tools(&bench).await;
    call(&bench, "git__push", json!({"to": "ARGUMENT-4711"})).await.unwrap();
    call(&bench, "git__push", json!({"to": "ARGUMENT-4711", "size": "WRONG-4711"})).await.unwrap_err();
    git.fail("closed");
    force_refresh(&bench, "git").await;
    call(&bench, "git__push", json!({"to": "ARGUMENT-4711"})).await.unwrap_err();
    let all = heard.debug_text();
    assert!(all.contains("tools.call.finished") && all.contains("tools.discovery.server.failed"));
    assert!(!all.contains("4711"), "{all}");
}
