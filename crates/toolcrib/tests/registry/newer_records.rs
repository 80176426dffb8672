//! Records that a newer Toolcrib wrote to the same store: passed over, or the end of calls and writes.

use std::path::Path;
use std::sync::Arc;

use serde_json::json;
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions, Connection};
use tempfile::TempDir;
use toolcrib::builtin::{BuiltinDefinition, BuiltinOutput, handler};
use toolcrib::core::access::Role;
use toolcrib::core::inventory::{Actor, Command};
use toolcrib::core::{Error, Result};
use toolcrib::refresh::RefreshStatus;
use toolcrib::registry::{EnableTarget, EnabledState, HistoryQuery};
use toolcrib::store::{SqliteStore, Store};
use toolcrib::testkit::ScriptedSource;
use toolcrib::{CallOptions, Code, Registry, RegistryOptions};

use crate::support::{TestRegistry, cached_tools, call, config, force_refresh, id, list_tools, open_with, wait_until};

const YAML: &str = "sources: { git: { command: x } }";
const UNKNOWN_RECORD: &str = r#"{"type":"ToolPainted","source":"git","tool":"push","colour":"red"}"#;

/// A registry on a store in a file, as other processes share it.
async fn open_sqlite(git: &Arc<ScriptedSource>) -> (TempDir, TestRegistry) {
    let home = tempfile::tempdir().unwrap();
    let store: Arc<dyn Store> = Arc::new(SqliteStore::open(home.path()).await.unwrap());
    let bench =
        open_with(YAML, &[("git", git)], |options| RegistryOptions { store: Some(store.clone()), ..options }).await;
    (home, TestRegistry { store, ..bench })
}

/// Appends a record as another version of Toolcrib would.
async fn append_record(home: &Path, body: &str, critical: bool, since: &str) {
    let options = SqliteConnectOptions::new().filename(home.join("toolcrib.db"));
    let mut connection = options.connect().await.unwrap();
    let insert = "INSERT INTO journal (seq, at, actor, body, critical, since)
                  SELECT max(seq) + 1, 1, 'newer', ?, ?, ? FROM journal";
    sqlx::query(insert).bind(body).bind(critical).bind(since).execute(&mut connection).await.unwrap();
    connection.close().await.unwrap();
}

/// The same, and waits until a running process has taken it in.
async fn append_and_wait(home: &TempDir, bench: &TestRegistry, body: &str, critical: bool, since: &str) {
    let version = bench.inventory().version;
    append_record(home.path(), body, critical, since).await;
    wait_until("it is noticed", || bench.inventory().version > version).await;
}

fn upgrade_message(kind: &str, since: &str) -> String {
    format!(
        "the journal holds a record of type `{kind}` that Toolcrib {since} or newer wrote and that must not be \
         ignored; this is {}: upgrade Toolcrib",
        env!("CARGO_PKG_VERSION")
    )
}

#[track_caller]
fn assert_refused<T: std::fmt::Debug>(result: Result<T>, message: &str) {
    let Error { code, message: said, .. } = &result.as_ref().unwrap_err();
    assert_eq!((*code, said.as_str()), (Code::StoreUnavailable, message));
    assert!(!result.unwrap_err().is_retryable());
}

#[tokio::test]
async fn a_newer_record_that_may_be_ignored_is_passed_over() {
    let git = ScriptedSource::new(["push"]);
    let (home, bench) = open_sqlite(&git).await;
    list_tools(&bench).await;
    append_and_wait(&home, &bench, UNKNOWN_RECORD, false, "0.9.0").await;
    assert!(bench.check_ready().is_ok());
    call(&bench, "git__push", json!({})).await.unwrap();
    bench.execute(Command::Disable(id("git")), Actor::new("test")).await.unwrap();
    let verified = bench.verify().await.unwrap();
    assert_eq!((verified.unknown_events, verified.upgrade, verified.faults), (1, None, vec![]));
    let again = bench.open_again(YAML).await;
    assert!(again.check_ready().is_ok());
    again.close().await;
}

#[tokio::test]
async fn a_newer_record_that_must_not_be_ignored_ends_calls_and_writes() {
    let git = ScriptedSource::new(["push"]);
    let (home, bench) = open_sqlite(&git).await;
    list_tools(&bench).await;
    let greet = BuiltinDefinition::new("greet", "Greets", json!({"type": "object"})).unwrap();
    bench.register_builtin(greet, Some(handler(|_| async { Ok(BuiltinOutput::text("hello")) }))).unwrap();
    bench.create_token("ci", Role::Agent, None, Actor::new("test")).await.unwrap();
    let (listed, written) = (cached_tools(&bench), bench.journal_len().await);

    // It arrives while this process runs, which notices by itself.
    append_record(home.path(), UNKNOWN_RECORD, true, "0.9.0").await;
    wait_until("it is noticed", || bench.check_ready().is_err()).await;
    let message = upgrade_message("ToolPainted", "0.9.0");
    let discoveries = git.discoveries();
    assert_refused(bench.check_ready(), &message);
    assert_refused(call(&bench, "git__push", json!({})).await, &message);
    assert_refused(call(&bench, "greet", json!({})).await, &message);
    assert_refused(bench.send_request(&id("git"), "prompts/list", None, CallOptions::default()).await, &message);
    let actor = || Actor::new("test");
    for command in [
        Command::Disable(id("git")),
        Command::Enable(id("git")),
        Command::Remove(id("git")),
        Command::RevokeToken("unknown".into()),
    ] {
        assert_refused(bench.execute(command, actor()).await, &message);
    }
    let target = EnableTarget::Source(id("git"));
    assert_refused(bench.set_enabled(target, EnabledState::Disabled, actor()).await, &message);
    assert_refused(bench.revoke_token("ci", actor()).await, &message);
    assert_refused(bench.create_token("other", Role::Agent, None, actor()).await, &message);
    assert_refused(bench.invalidate(None).await, &message);
    let mail = config("sources: { mail: { command: y } }");
    let declared = mail.sources[0].source.clone().unwrap();
    assert_refused(bench.declare(declared, actor(), None).await, &message);
    assert_refused(bench.reconfigure(&mail).await, &message);
    let outcome = force_refresh(&bench, "git").await;
    assert_eq!((outcome.status, outcome.contacted), (RefreshStatus::Failed, false));
    assert_eq!(outcome.error.unwrap().message, message);
    assert_eq!((git.discoveries(), git.calls()), (discoveries, 0), "no source is contacted");
    assert_eq!(bench.journal_len().await, written + 1, "nothing is written");

    // What is known can be read.
    assert_eq!(cached_tools(&bench), listed);
    assert_eq!(list_tools(&bench).await, listed);
    assert_eq!(bench.sources().len(), 1);
    let history = bench.history(&HistoryQuery::default()).await.unwrap();
    assert_eq!(history.last().unwrap().text, "unknown event `ToolPainted`, written by a newer Toolcrib");
    let verified = bench.verify().await.unwrap();
    assert_eq!((verified.unknown_events, verified.upgrade, verified.faults), (1, Some(message.clone()), vec![]));

    // A later record that needs a later version is the one that is named.
    append_record(home.path(), r#"{"type":"RuleDrawn"}"#, true, "0.10.0").await;
    append_record(home.path(), r#"{"type":"RuleErased"}"#, true, "0.9.5").await;
    let later = upgrade_message("RuleDrawn", "0.10.0");
    wait_until("the later one is noticed", || bench.check_ready().is_err_and(|error| error.message == later)).await;

    // So it is after a restart, and a changed configuration is not written either.
    let written = bench.journal_len().await;
    let again = bench.open_again("sources: { mail: { command: y } }").await;
    assert_refused(again.check_ready(), &later);
    assert_refused(call(&again, "git__push", json!({})).await, &later);
    assert_eq!(list_tools(&again).await, ["git__push"]);
    assert_eq!(bench.journal_len().await, written);
    assert_eq!(bench.verify().await.unwrap().faults, Vec::<String>::new(), "no definition is dropped");
    again.close().await;
}

/// The store is read before each write, so that no write follows such a record.
#[tokio::test]
async fn a_writer_that_does_not_follow_the_store_is_refused_too() {
    let git = ScriptedSource::new(["push"]);
    let (home, bench) = open_sqlite(&git).await;
    let options = RegistryOptions { follow_writes: false, ..bench.options.clone() };
    let registry = Registry::open(config(YAML), options).await.unwrap();
    append_record(home.path(), UNKNOWN_RECORD, true, "0.9.0").await;
    let disabled = registry.execute(Command::Disable(id("git")), Actor::new("test")).await;
    assert_refused(disabled, &upgrade_message("ToolPainted", "0.9.0"));
    assert_refused(registry.check_ready(), &upgrade_message("ToolPainted", "0.9.0"));
    registry.close().await;
}

#[tokio::test]
async fn a_known_type_may_be_newer_too() {
    for (body, critical, since, kind) in [
        // A variant that this build does not know, in a type that is critical by itself or not.
        (r#"{"type":"TokenChanged","token":"a","name":"b","role":"owner"}"#, false, "0.9.0", Some("TokenChanged")),
        (r#"{"type":"TokenCreated","token":"a","role":"owner","name":"b"}"#, false, "0.9.0", None),
        (r#"{"type":"TokenCreated","token":"a","role":"owner","name":"b"}"#, true, "0.9.0", Some("TokenCreated")),
        // More fields than this build knows: ignored, unless the record says that they must not be.
        (r#"{"type":"SourceEnabled","source":"git","hours":"9-17"}"#, false, "0.9.0", None),
        (r#"{"type":"SourceEnabled","source":"git","hours":"9-17"}"#, true, "0.9.0", Some("SourceEnabled")),
        (r#"{"type":"SourceEnabled","source":"git","hours":"9-17"}"#, true, "0.1.0", None),
    ] {
        let (home, bench) = open_sqlite(&ScriptedSource::new(["push"])).await;
        append_and_wait(&home, &bench, body, critical, since).await;
        match kind {
            Some(kind) => assert_refused(bench.check_ready(), &upgrade_message(kind, since)),
            None => assert!(bench.check_ready().is_ok(), "{body}"),
        }
        let shown = bench.history(&HistoryQuery::default()).await.unwrap().pop().unwrap();
        assert!(shown.data.get("token").is_none(), "the id of a token is shown to readers: {shown:?}");
    }
}

#[tokio::test]
async fn damage_is_not_newer_and_ends_calls_and_writes_too() {
    let (home, bench) = open_sqlite(&ScriptedSource::new(["push"])).await;
    list_tools(&bench).await;
    let damaged = ["{", "null", r#"["ToolPainted"]"#, r#"{"kind":"ToolPainted"}"#, r#"{"type":"ToolDisabled"}"#];
    for body in damaged {
        append_and_wait(&home, &bench, body, true, "0.9.0").await;
    }
    assert_eq!(bench.check_ready().unwrap_err().code, Code::StoreUnavailable);
    let called = call(&bench, "git__push", json!({})).await.unwrap_err();
    assert!(called.message.starts_with("the journal is damaged (record "), "{called}");
    bench.execute(Command::Disable(id("git")), Actor::new("test")).await.unwrap_err();
    assert_eq!(cached_tools(&bench), ["git__push"]);
    let verified = bench.verify().await.unwrap();
    assert_eq!((verified.unknown_events, verified.upgrade), (0, None));
    assert_eq!(verified.faults.len(), damaged.len());
    assert!(verified.faults.iter().all(|fault| fault.contains("cannot be read: ")), "{:?}", verified.faults);
}

#[tokio::test]
async fn a_store_of_the_first_version_is_served_as_before() {
    let home = tempfile::tempdir().unwrap();
    let options = SqliteConnectOptions::new().filename(home.path().join("toolcrib.db")).create_if_missing(true);
    let mut connection = options.connect().await.unwrap();
    sqlx::raw_sql(include_str!("../../src/store/sqlite/version_1.sql")).execute(&mut connection).await.unwrap();
    connection.close().await.unwrap();

    let store: Arc<dyn Store> = Arc::new(SqliteStore::open(home.path()).await.unwrap());
    let yaml = "sources: { core: { builtin: [current_time, calculate] } }";
    let bench = open_with(yaml, &[], |options| RegistryOptions { store: Some(store), ..options }).await;
    let text: Vec<String> =
        bench.history(&HistoryQuery::after(0)).await.unwrap().into_iter().take(9).map(|record| record.text).collect();
    assert_eq!(
        text,
        [
            "`core` declared (builtin, from config)",
            "2 tools added to `core`: calculate, current_time",
            "tool `calculate` of `core` disabled",
            "token `ci` created (agent)",
            "token `ci` revoked",
            "`gone` declared (mcp, from runtime)",
            "`gone` disabled",
            "`gone` enabled",
            "`gone` removed",
        ]
    );
    call(&bench, "current_time", json!({})).await.unwrap();
    assert_eq!(call(&bench, "calculate", json!({})).await.unwrap_err().code, Code::ToolNotImplemented);
    assert_eq!(bench.tokens().len(), 0);
    assert_eq!(bench.sources().len(), 1);
    assert_eq!(bench.verify().await.unwrap().faults, Vec::<String>::new());
}
