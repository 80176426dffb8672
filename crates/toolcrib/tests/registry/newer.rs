//! Records that a newer Toolcrib wrote to the same store: passed over, or the end of calls and writes.

use std::path::Path;
use std::sync::Arc;

use serde_json::json;
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions, Connection};
use tempfile::TempDir;
use toolcrib::builtin::{Answer, Definition, handler};
use toolcrib::core::access::Role;
use toolcrib::core::inventory::{Actor, Command};
use toolcrib::core::{Error, Result};
use toolcrib::refresh::Refreshed;
use toolcrib::registry::{Switch, Target, Wanted};
use toolcrib::store::{SqliteStore, Store};
use toolcrib::testkit::Scripted;
use toolcrib::{CallOptions, Code, Options, Registry};

use crate::support::{Bench, cached, call, config, force, id, open_with, tools, until};

const YAML: &str = "sources: { git: { command: x } }";
const PAINTED: &str = r#"{"type":"ToolPainted","source":"git","tool":"push","colour":"red"}"#;

/// A registry on a store in a file, as other processes share it.
async fn open(git: &Arc<Scripted>) -> (TempDir, Bench) {
    let home = tempfile::tempdir().unwrap();
    let store: Arc<dyn Store> = Arc::new(SqliteStore::open(home.path()).await.unwrap());
    let bench = open_with(YAML, &[("git", git)], |options| Options { store: Some(store.clone()), ..options }).await;
    (home, Bench { store, ..bench })
}

/// Appends a record as another version of Toolcrib would.
async fn append(home: &Path, body: &str, critical: bool, since: &str) {
    let options = SqliteConnectOptions::new().filename(home.join("toolcrib.db"));
    let mut connection = options.connect().await.unwrap();
    let insert = "INSERT INTO journal (seq, at, actor, body, critical, since)
                  SELECT max(seq) + 1, 1, 'newer', ?, ?, ? FROM journal";
    sqlx::query(insert).bind(body).bind(critical).bind(since).execute(&mut connection).await.unwrap();
    connection.close().await.unwrap();
}

/// The same, and waits until a running process has taken it in.
async fn append_noticed(home: &TempDir, bench: &Bench, body: &str, critical: bool, since: &str) {
    let version = bench.inventory().version;
    append(home.path(), body, critical, since).await;
    until("it is noticed", || bench.inventory().version > version).await;
}

fn refusal(kind: &str, since: &str) -> String {
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
    assert!(!result.unwrap_err().retryable());
}

#[tokio::test]
async fn a_newer_record_that_may_be_ignored_is_passed_over() {
    let git = Scripted::new(["push"]);
    let (home, bench) = open(&git).await;
    tools(&bench).await;
    append_noticed(&home, &bench, PAINTED, false, "0.9.0").await;
    assert!(bench.ready().is_ok());
    call(&bench, "git__push", json!({})).await.unwrap();
    bench.execute(Command::Disable(id("git")), Actor::new("test")).await.unwrap();
    let verified = bench.verify().await.unwrap();
    assert_eq!((verified.unknown_events, verified.upgrade, verified.faults), (1, None, vec![]));
    let again = bench.again(YAML).await;
    assert!(again.ready().is_ok());
    again.close().await;
}

#[tokio::test]
async fn a_newer_record_that_must_not_be_ignored_ends_calls_and_writes() {
    let git = Scripted::new(["push"]);
    let (home, bench) = open(&git).await;
    tools(&bench).await;
    let greet = Definition::new("greet", "Greets", json!({"type": "object"})).unwrap();
    bench.register_builtin(greet, Some(handler(|_| async { Ok(Answer::text("hello")) }))).unwrap();
    bench.create_token("ci", Role::Agent, None, Actor::new("test")).await.unwrap();
    let (listed, written) = (cached(&bench), bench.journal().await);

    // It arrives while this process runs, which notices by itself.
    append(home.path(), PAINTED, true, "0.9.0").await;
    until("it is noticed", || bench.ready().is_err()).await;
    let message = refusal("ToolPainted", "0.9.0");
    let discoveries = git.discoveries();
    assert_refused(bench.ready(), &message);
    assert_refused(call(&bench, "git__push", json!({})).await, &message);
    assert_refused(call(&bench, "greet", json!({})).await, &message);
    assert_refused(bench.ask(&id("git"), "prompts/list", None, CallOptions::default()).await, &message);
    let actor = || Actor::new("test");
    for command in [
        Command::Disable(id("git")),
        Command::Enable(id("git")),
        Command::Remove(id("git")),
        Command::RevokeToken("unknown".into()),
    ] {
        assert_refused(bench.execute(command, actor()).await, &message);
    }
    let target = Target::Source(id("git"));
    assert_refused(bench.switch(target, Switch::Disabled, actor()).await, &message);
    assert_refused(bench.revoke_token("ci", actor()).await, &message);
    assert_refused(bench.create_token("other", Role::Agent, None, actor()).await, &message);
    assert_refused(bench.invalidate(None).await, &message);
    let mail = config("sources: { mail: { command: y } }");
    let declared = mail.sources[0].source.clone().unwrap();
    assert_refused(bench.declare(declared, actor(), None).await, &message);
    assert_refused(bench.reconfigure(&mail).await, &message);
    let outcome = force(&bench, "git").await;
    assert_eq!((outcome.status, outcome.contacted), (Refreshed::Failed, false));
    assert_eq!(outcome.error.unwrap().message, message);
    assert_eq!((git.discoveries(), git.calls()), (discoveries, 0), "no source is contacted");
    assert_eq!(bench.journal().await, written + 1, "nothing is written");

    // What is known can be read.
    assert_eq!(cached(&bench), listed);
    assert_eq!(tools(&bench).await, listed);
    assert_eq!(bench.sources().len(), 1);
    let history = bench.history(&Wanted::default()).await.unwrap();
    assert_eq!(history.last().unwrap().text, "`ToolPainted`, which this Toolcrib does not know");
    let verified = bench.verify().await.unwrap();
    assert_eq!((verified.unknown_events, verified.upgrade, verified.faults), (1, Some(message.clone()), vec![]));

    // A later record that needs a later version is the one that is named.
    append(home.path(), r#"{"type":"RuleDrawn"}"#, true, "0.10.0").await;
    append(home.path(), r#"{"type":"RuleErased"}"#, true, "0.9.5").await;
    let later = refusal("RuleDrawn", "0.10.0");
    until("the later one is noticed", || bench.ready().is_err_and(|error| error.message == later)).await;

    // So it is after a restart, and a changed configuration is not written either.
    let written = bench.journal().await;
    let again = bench.again("sources: { mail: { command: y } }").await;
    assert_refused(again.ready(), &later);
    assert_refused(call(&again, "git__push", json!({})).await, &later);
    assert_eq!(tools(&again).await, ["git__push"]);
    assert_eq!(bench.journal().await, written);
    assert_eq!(bench.verify().await.unwrap().faults, Vec::<String>::new(), "no definition is dropped");
    again.close().await;
}

/// The store is read before each write, so that no write follows such a record.
#[tokio::test]
async fn a_writer_that_does_not_follow_the_store_is_refused_too() {
    let git = Scripted::new(["push"]);
    let (home, bench) = open(&git).await;
    let options = Options { follow: false, ..bench.options.clone() };
    let registry = Registry::open(config(YAML), options).await.unwrap();
    append(home.path(), PAINTED, true, "0.9.0").await;
    let disabled = registry.execute(Command::Disable(id("git")), Actor::new("test")).await;
    assert_refused(disabled, &refusal("ToolPainted", "0.9.0"));
    assert_refused(registry.ready(), &refusal("ToolPainted", "0.9.0"));
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
        let (home, bench) = open(&Scripted::new(["push"])).await;
        append_noticed(&home, &bench, body, critical, since).await;
        match kind {
            Some(kind) => assert_refused(bench.ready(), &refusal(kind, since)),
            None => assert!(bench.ready().is_ok(), "{body}"),
        }
        let shown = bench.history(&Wanted::default()).await.unwrap().pop().unwrap();
        assert!(shown.data.get("token").is_none(), "the id of a token is shown to readers: {shown:?}");
    }
}

#[tokio::test]
async fn damage_is_not_newer_and_ends_calls_and_writes_too() {
    let (home, bench) = open(&Scripted::new(["push"])).await;
    tools(&bench).await;
    let damaged = ["{", "null", r#"["ToolPainted"]"#, r#"{"kind":"ToolPainted"}"#, r#"{"type":"ToolDisabled"}"#];
    for body in damaged {
        append_noticed(&home, &bench, body, true, "0.9.0").await;
    }
    assert_eq!(bench.ready().unwrap_err().code, Code::StoreUnavailable);
    let called = call(&bench, "git__push", json!({})).await.unwrap_err();
    assert!(called.message.starts_with("the journal is damaged (record "), "{called}");
    bench.execute(Command::Disable(id("git")), Actor::new("test")).await.unwrap_err();
    assert_eq!(cached(&bench), ["git__push"]);
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
    let bench = open_with(yaml, &[], |options| Options { store: Some(store), ..options }).await;
    let text: Vec<String> =
        bench.history(&Wanted::after(0)).await.unwrap().into_iter().take(9).map(|record| record.text).collect();
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
