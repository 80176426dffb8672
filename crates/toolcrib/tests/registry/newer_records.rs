//! Records written by a newer Toolcrib to the same store: skipped, or, if critical, a reason to reject calls and writes.

use std::path::Path;
use std::sync::Arc;

use serde_json::json;
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions, Connection};
use tempfile::TempDir;
use toolcrib::core::access::Role;
use toolcrib::core::access_rules::RuleKind;
use toolcrib::core::fingerprint::Fingerprint;
use toolcrib::core::inventory::{Actor, Command};
use toolcrib::core::{Error, Result};
use toolcrib::refresh::RefreshStatus;
use toolcrib::registry::{EnableTarget, EnabledState, HistoryQuery};
use toolcrib::store::{SqliteStore, Store};
use toolcrib::testkit::ScriptedSource;
use toolcrib::{BuiltinDefinition, BuiltinOutput, CallContext, Code, Principal, RegistryOptions, builtin_handler};

use crate::support::{TestRegistry, cached_tools, call, config, force_refresh, id, list_tools, open_with, wait_until};

const YAML: &str = "sources: { git: { command: x } }";
const UNKNOWN_RECORD: &str = r#"{"type":"ToolPainted","source":"git","tool":"push","colour":"red"}"#;

/// Opens a registry on a SQLite store, which other processes can share.
async fn open_sqlite(git: &Arc<ScriptedSource>) -> (TempDir, TestRegistry) {
    let home = tempfile::tempdir().unwrap();
    let store: Arc<dyn Store> = Arc::new(SqliteStore::open(home.path()).await.unwrap());
    let fixture =
        open_with(YAML, &[("git", git)], |options| RegistryOptions { store: Some(store.clone()), ..options }).await;
    (home, TestRegistry { store, ..fixture })
}

/// Appends a record as another version of Toolcrib would.
async fn append_record(home: &Path, body: &str, critical: bool, min_version: &str) {
    let options = SqliteConnectOptions::new().filename(home.join("toolcrib.db"));
    let mut connection = options.connect().await.unwrap();
    let insert = "INSERT INTO journal (seq, at, actor, body, critical, since)
                  SELECT max(seq) + 1, 1, 'newer', ?, ?, ? FROM journal";
    sqlx::query(insert).bind(body).bind(critical).bind(min_version).execute(&mut connection).await.unwrap();
    connection.close().await.unwrap();
}

/// Appends a record and waits until the registry has read it.
async fn append_and_wait(home: &TempDir, fixture: &TestRegistry, body: &str, critical: bool, min_version: &str) {
    let version = fixture.inventory().version;
    append_record(home.path(), body, critical, min_version).await;
    wait_until("it is noticed", || fixture.inventory().version > version).await;
}

fn upgrade_message(kind: &str, min_version: &str) -> String {
    format!(
        "the journal holds a record of type `{kind}` that Toolcrib {min_version} or newer wrote and that must not be \
         ignored; this is {}: upgrade Toolcrib",
        env!("CARGO_PKG_VERSION")
    )
}

#[track_caller]
fn assert_refused<T: std::fmt::Debug>(result: Result<T>, message: &str) {
    let Error { code, message: actual, .. } = &result.as_ref().unwrap_err();
    assert_eq!((*code, actual.as_str()), (Code::StoreUnavailable, message));
    assert!(!result.unwrap_err().is_retryable());
}

#[tokio::test]
async fn a_newer_record_that_is_not_critical_is_skipped() {
    let git = ScriptedSource::new(["push"]);
    let (home, fixture) = open_sqlite(&git).await;
    list_tools(&fixture).await;
    append_and_wait(&home, &fixture, UNKNOWN_RECORD, false, "0.9.0").await;
    assert!(fixture.store().check_ready().is_ok());
    call(&fixture, "git__push", json!({})).await.unwrap();
    fixture.execute(Command::Disable(id("git")), Actor::new("test")).await.unwrap();
    let verified = fixture.store().verify().await.unwrap();
    assert_eq!((verified.unknown_events, verified.upgrade, verified.faults), (1, None, vec![]));
    let reopened = fixture.open_again(YAML).await;
    assert!(reopened.store().check_ready().is_ok());
    reopened.close().await;
}

#[tokio::test]
async fn a_newer_critical_record_prevents_calls_and_writes() {
    let git = ScriptedSource::new(["push"]);
    let (home, fixture) = open_sqlite(&git).await;
    list_tools(&fixture).await;
    let greet = BuiltinDefinition::new("greet", "Greets", json!({"type": "object"})).unwrap();
    fixture.register_builtin(greet, Some(builtin_handler(|_| async { Ok(BuiltinOutput::text("hello")) }))).unwrap();
    fixture.tokens().create("ci", Role::Agent, None, Actor::new("test")).await.unwrap();
    let listed = cached_tools(&fixture);
    let written = fixture.journal_len().await;

    // The record arrives while the registry is open, which notices by itself.
    append_record(home.path(), UNKNOWN_RECORD, true, "0.9.0").await;
    wait_until("it is noticed", || fixture.store().check_ready().is_err()).await;
    let message = upgrade_message("ToolPainted", "0.9.0");
    let discoveries = git.discoveries();
    assert_refused(fixture.store().check_ready(), &message);
    assert_refused(call(&fixture, "git__push", json!({})).await, &message);
    assert_refused(call(&fixture, "greet", json!({})).await, &message);
    assert_refused(fixture.send_request(&id("git"), "prompts/list", None, &CallContext::default()).await, &message);
    let actor = || Actor::new("test");
    for command in [
        Command::Disable(id("git")),
        Command::Enable(id("git")),
        Command::Remove(id("git")),
        Command::RevokeToken("unknown".into()),
    ] {
        assert_refused(fixture.execute(command, actor()).await, &message);
    }
    let target = EnableTarget::Source(id("git"));
    assert_refused(fixture.sources().set_enabled(target, EnabledState::Disabled, actor()).await, &message);
    assert_refused(fixture.tokens().revoke("ci", actor()).await, &message);
    assert_refused(fixture.tokens().create("other", Role::Agent, None, actor()).await, &message);
    assert_refused(fixture.sources().invalidate(None).await, &message);
    let mail = config("sources: { mail: { command: y } }");
    let declared = mail.sources[0].source.clone().unwrap();
    assert_refused(fixture.sources().declare(declared, actor(), None).await, &message);
    assert_refused(fixture.configuration().apply(&mail).await, &message);
    let outcome = force_refresh(&fixture, "git").await;
    assert_eq!((outcome.status, outcome.contacted), (RefreshStatus::Failed, false));
    assert_eq!(outcome.error.unwrap().message, message);
    assert_eq!((git.discoveries(), git.calls()), (discoveries, 0), "no source is contacted");
    assert_eq!(fixture.journal_len().await, written + 1, "nothing is written");

    // Reading still works.
    assert_eq!(cached_tools(&fixture), listed);
    assert_eq!(list_tools(&fixture).await, listed);
    assert_eq!(fixture.sources().list().len(), 1);
    let history = fixture.history().records(&HistoryQuery::default()).await.unwrap();
    assert_eq!(history.last().unwrap().text, "unknown event `ToolPainted`, written by a newer Toolcrib");
    let verified = fixture.store().verify().await.unwrap();
    assert_eq!((verified.unknown_events, verified.upgrade, verified.faults), (1, Some(message.clone()), vec![]));

    // Of several such records, the message names the one with the highest version.
    append_record(home.path(), r#"{"type":"RuleDrawn"}"#, true, "0.10.0").await;
    append_record(home.path(), r#"{"type":"RuleErased"}"#, true, "0.9.5").await;
    let later = upgrade_message("RuleDrawn", "0.10.0");
    wait_until("the later one is noticed", || fixture.store().check_ready().is_err_and(|error| error.message == later))
        .await;

    // The same after a restart; a changed configuration is not written either.
    let written = fixture.journal_len().await;
    let reopened = fixture.open_again("sources: { mail: { command: y } }").await;
    assert_refused(reopened.store().check_ready(), &later);
    assert_refused(call(&reopened, "git__push", json!({})).await, &later);
    assert_eq!(list_tools(&reopened).await, ["git__push"]);
    assert_eq!(fixture.journal_len().await, written);
    assert_eq!(fixture.store().verify().await.unwrap().faults, Vec::<String>::new(), "no definition is dropped");
    reopened.close().await;
}

/// The store is read before each write, so that no write can follow such a record.
#[tokio::test]
async fn a_writer_that_does_not_follow_the_store_is_rejected_too() {
    let git = ScriptedSource::new(["push"]);
    let (home, fixture) = open_sqlite(&git).await;
    let options = RegistryOptions { follow_writes: false, ..fixture.options.clone() };
    let registry = fixture.open_again_with(YAML, options).await;
    append_record(home.path(), UNKNOWN_RECORD, true, "0.9.0").await;
    let disabled = registry.execute(Command::Disable(id("git")), Actor::new("test")).await;
    assert_refused(disabled, &upgrade_message("ToolPainted", "0.9.0"));
    assert_refused(registry.store().check_ready(), &upgrade_message("ToolPainted", "0.9.0"));
    registry.close().await;
}

#[tokio::test]
async fn a_record_of_a_known_type_may_be_newer() {
    for (body, critical, min_version, kind) in [
        // An unknown enum value, in a type that is always critical and in one that is not.
        (r#"{"type":"TokenChanged","token":"a","name":"b","role":"owner"}"#, false, "0.9.0", Some("TokenChanged")),
        (r#"{"type":"TokenCreated","token":"a","role":"owner","name":"b"}"#, false, "0.9.0", None),
        (r#"{"type":"TokenCreated","token":"a","role":"owner","name":"b"}"#, true, "0.9.0", Some("TokenCreated")),
        // Unknown fields are ignored, unless the record is marked as critical.
        (r#"{"type":"SourceEnabled","source":"git","hours":"9-17"}"#, false, "0.9.0", None),
        (r#"{"type":"SourceEnabled","source":"git","hours":"9-17"}"#, true, "0.9.0", Some("SourceEnabled")),
        (r#"{"type":"SourceEnabled","source":"git","hours":"9-17"}"#, true, "0.1.0", None),
    ] {
        let (home, fixture) = open_sqlite(&ScriptedSource::new(["push"])).await;
        append_and_wait(&home, &fixture, body, critical, min_version).await;
        match kind {
            Some(kind) => assert_refused(fixture.store().check_ready(), &upgrade_message(kind, min_version)),
            None => assert!(fixture.store().check_ready().is_ok(), "{body}"),
        }
        let entry = fixture.history().records(&HistoryQuery::default()).await.unwrap().pop().unwrap();
        assert!(entry.data.get("token").is_none(), "the id of a token is shown to readers: {entry:?}");
    }
}

/// A later version may restrict a token by more than groups and claims.
#[tokio::test]
async fn a_token_with_restrictions_of_a_newer_version_is_not_admitted() {
    let (home, fixture) = open_sqlite(&ScriptedSource::new(["push"])).await;
    let body = |id: &str, more: &str| {
        let hash = Fingerprint::digest(id);
        format!(
            r#"{{"type":"TokenCreated","token":"{id}","name":"{id}","role":"agent","hash":"{hash}","expires_at":null{more}}}"#
        )
    };
    let groups = r#","groups":["support"],"claims":{"team":"secret"}"#;
    append_and_wait(&home, &fixture, &body("current", groups), true, "0.2.0").await;
    append_and_wait(&home, &fixture, &body("ignored", r#","colour":"red""#), false, "0.9.0").await;
    assert!(fixture.store().check_ready().is_ok());
    append_and_wait(&home, &fixture, &body("newer", groups), true, "0.9.0").await;
    assert_refused(fixture.store().check_ready(), &upgrade_message("TokenCreated", "0.9.0"));
    let admitted = |id: &str| fixture.tokens().find_by_hash(&Fingerprint::digest(id)).is_some();
    assert_eq!((admitted("current"), admitted("ignored"), admitted("newer")), (true, true, false));
    let history = fixture.history().records(&HistoryQuery::default()).await.unwrap();
    let shown = |name: &str| history.iter().find(|record| record.data["name"] == name).unwrap();
    assert_eq!(shown("current").text, "token `current` created (agent, groups: support)");
    let expected = json!({"name": "current", "role": "agent", "groups": ["support"]});
    assert_eq!(shown("current").data, expected, "neither claims nor the id are shown");
    assert_eq!(shown("newer").text, "unknown event `TokenCreated`, written by a newer Toolcrib");
    assert_eq!(shown("newer").data["claims"], json!(null));
}

#[tokio::test]
async fn damage_prevents_calls_and_writes_and_is_not_reported_as_newer() {
    let (home, fixture) = open_sqlite(&ScriptedSource::new(["push"])).await;
    list_tools(&fixture).await;
    let damaged = ["{", "null", r#"["ToolPainted"]"#, r#"{"kind":"ToolPainted"}"#, r#"{"type":"ToolDisabled"}"#];
    for body in damaged {
        append_and_wait(&home, &fixture, body, true, "0.9.0").await;
    }
    assert_eq!(fixture.store().check_ready().unwrap_err().code, Code::StoreUnavailable);
    let called = call(&fixture, "git__push", json!({})).await.unwrap_err();
    assert!(called.message.starts_with("the journal is damaged (record "), "{called}");
    fixture.execute(Command::Disable(id("git")), Actor::new("test")).await.unwrap_err();
    let listed = |role| fixture.view(&Principal::local("reader").with_role(role)).offered_tools().count();
    assert_eq!((listed(Role::Agent), listed(Role::Admin)), (0, 1), "a damaged record may have been a rule");
    let verified = fixture.store().verify().await.unwrap();
    assert_eq!((verified.unknown_events, verified.upgrade), (0, None));
    assert_eq!(verified.faults.len(), damaged.len());
    assert!(verified.faults.iter().all(|fault| fault.contains("cannot be read: ")), "{:?}", verified.faults);
}

#[tokio::test]
async fn a_store_of_the_first_version_is_served() {
    let home = tempfile::tempdir().unwrap();
    let options = SqliteConnectOptions::new().filename(home.path().join("toolcrib.db")).create_if_missing(true);
    let mut connection = options.connect().await.unwrap();
    sqlx::raw_sql(include_str!("../../src/store/sqlite/version_1.sql")).execute(&mut connection).await.unwrap();
    connection.close().await.unwrap();

    let store: Arc<dyn Store> = Arc::new(SqliteStore::open(home.path()).await.unwrap());
    let yaml = "sources: { core: { builtin: [current_time, calculate] } }";
    let fixture = open_with(yaml, &[], |options| RegistryOptions { store: Some(store), ..options }).await;
    let text: Vec<String> = fixture
        .history()
        .records(&HistoryQuery::after(0))
        .await
        .unwrap()
        .into_iter()
        .take(9)
        .map(|record| record.text)
        .collect();
    assert_eq!(
        text,
        [
            "`core` declared (builtin, in the configuration)",
            "2 tools added to `core`: calculate, current_time",
            "tool `calculate` of `core` disabled",
            "token `ci` created (agent)",
            "token `ci` revoked",
            "`gone` declared (mcp, at run time)",
            "`gone` disabled",
            "`gone` enabled",
            "`gone` removed",
        ]
    );
    call(&fixture, "current_time", json!({})).await.unwrap();
    assert_eq!(call(&fixture, "calculate", json!({})).await.unwrap_err().code, Code::ToolNotImplemented);
    assert_eq!(fixture.tokens().list().len(), 0);
    assert_eq!(fixture.sources().list().len(), 1);
    assert_eq!(fixture.store().verify().await.unwrap().faults, Vec::<String>::new());
}

/// A later version may have rules that this one cannot apply. Where there are rules at all, tools are then withheld.
#[tokio::test]
async fn a_newer_kind_of_rule_withholds_tools_from_everyone_but_administrators() {
    const UNKNOWN_RULE: &str = r#"{"type":"QuotaDefined","quota":"night","definition":{"calls":0}}"#;
    let message = upgrade_message("QuotaDefined", "0.9.0");
    let rules = "groups: { all: { select: {} } }\naccess: [{ name: everyone, groups: [all] }]";
    for (rules, agents_see) in [(rules, 0), ("", 1)] {
        let git = ScriptedSource::new(["push"]);
        let (home, fixture) = open_sqlite(&git).await;
        list_tools(&fixture).await;
        fixture.configuration().apply(&config(&format!("{YAML}\n{rules}"))).await.unwrap();
        let reader = |role| Principal::local("reader").with_role(role);
        let count = |role| fixture.view(&reader(role)).offered_tools().count();
        assert_eq!((count(Role::Agent), count(Role::Viewer), count(Role::Admin)), (1, 1, 1));

        append_record(home.path(), UNKNOWN_RULE, true, "0.9.0").await;
        wait_until("it is noticed", || fixture.store().check_ready().is_err()).await;
        assert_eq!((count(Role::Agent), count(Role::Viewer), count(Role::Admin)), (agents_see, agents_see, 1));
        for role in [Role::Agent, Role::Admin] {
            let context = CallContext { caller: reader(role), ..CallContext::default() };
            let called = fixture.call("git__push", json!({})).context(context).await;
            assert!(called.is_err(), "{role}");
        }
        let context = CallContext { caller: reader(Role::Admin), ..CallContext::default() };
        assert_refused(fixture.call("git__push", json!({})).context(context).await, &message);
        let removed = fixture.rules().remove(RuleKind::Access, "everyone", Actor::new("test")).await;
        assert!(removed.is_err(), "rules are not changed either");
        assert_eq!(git.calls(), 0);
    }
}
