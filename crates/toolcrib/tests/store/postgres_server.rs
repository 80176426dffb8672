//! Properties of stores in PostgreSQL alone: errors of the server, schemas of other versions, notifications, and a
//! server that is restarted or does not answer.

use std::path::Path;
use std::time::Duration;

use toolcrib::core::inventory::{Actor, Command, Event};
use toolcrib::core::{Code, Error, Timestamp};
use toolcrib::store::{self, Commit, CommitOutcome, HeadFile, NodeReport, PostgresStore, Store, StoreState};
use toolcrib::{Registry, RegistryOptions};
use toolcrib_testkit::observe::wait_until_async;
use toolcrib_testkit::postgres::{PostgresServer, StopMode, run_sql, shared_database};
use toolcrib_testkit::programs;

use super::{TestStore, actor, append, id};

/// Returns an empty database, or skips the test.
macro_rules! database_or_skip {
    ($test:literal) => {
        match shared_database() {
            Some(url) => url,
            None => return programs::skip($test, "PostgreSQL is not installed"),
        }
    };
}

/// Starts a server of its own, or skips the test.
macro_rules! server_or_skip {
    ($test:literal) => {
        match PostgresServer::start() {
            Some(server) => server,
            None => return programs::skip($test, "PostgreSQL is not installed"),
        }
    };
}

pub(super) use {database_or_skip, server_or_skip};

async fn open_error(url: &str) -> Error {
    PostgresStore::open(url).await.unwrap_err()
}

/// Names and definitions of all tables, columns and rows of the schema's description.
fn describe_schema(url: &str) -> String {
    run_sql(
        url,
        "SELECT table_name, column_name, data_type FROM information_schema.columns WHERE table_schema = 'public'
         ORDER BY 1, ordinal_position",
    )
}

#[tokio::test]
async fn wrong_urls_and_missing_rights_have_clear_messages_and_change_nothing() {
    let url = database_or_skip!("wrong_urls_and_missing_rights_have_clear_messages_and_change_nothing");
    let (server, database) = url.rsplit_once('/').unwrap();
    let error = open_error(&format!("{server}/absent_database")).await;
    assert!(error.message.ends_with("does not exist; create the database with `createdb`"), "{}", error.message);
    assert!(!error.is_retryable());

    // A role that may connect and nothing else.
    let role = format!("reader_{database}");
    run_sql(&url, &format!("CREATE ROLE {role} LOGIN; REVOKE ALL ON SCHEMA public FROM PUBLIC"));
    let reader = url.replacen("postgres@", &format!("{role}@"), 1);
    let error = open_error(&reader).await;
    assert_eq!((error.code, error.is_retryable()), (Code::StoreUnavailable, false));
    assert!(error.message.contains("lacks rights"), "{}", error.message);
    assert_eq!(describe_schema(&url), "");

    // The same for tables that exist and may only be read.
    PostgresStore::open(&url).await.unwrap();
    run_sql(
        &url,
        &format!("GRANT USAGE ON SCHEMA public TO {role}; GRANT SELECT ON ALL TABLES IN SCHEMA public TO {role}"),
    );
    let store = PostgresStore::open(&reader).await.unwrap();
    let error = try_append(&store, 0, "a").await.unwrap_err();
    assert!(error.message.contains("lacks rights") && !error.is_retryable(), "{}", error.message);
    assert_eq!(store.records(0, 10).await.unwrap(), []);
    run_sql(&url, &format!("DROP OWNED BY {role}; DROP ROLE {role}"));
}

#[tokio::test]
async fn a_schema_of_a_later_version_is_used_as_long_as_it_is_compatible() {
    let url = database_or_skip!("a_schema_of_a_later_version_is_used_as_long_as_it_is_compatible");
    let store = PostgresStore::open(&url).await.unwrap();
    append(&store, 0, &["a"]).await;
    // The next version expands: this one goes on reading and writing, also after a restart.
    run_sql(
        &url,
        "ALTER TABLE journal ADD COLUMN region text NOT NULL DEFAULT ''; CREATE TABLE approvals (id text PRIMARY KEY);
         UPDATE meta SET value = '2' WHERE key = 'schema_version'",
    );
    assert_eq!(append(&store, 1, &["b"]).await, CommitOutcome::Committed);
    let again = PostgresStore::open(&url).await.unwrap();
    assert_eq!(append(&again, 2, &["c"]).await, CommitOutcome::Committed);
    assert_eq!(again.records(0, 10).await.unwrap().len(), 3);
    // It contracts: this one must not be used any more.
    run_sql(&url, "UPDATE meta SET value = '2' WHERE key = 'compatible_since'");
    let error = open_error(&url).await;
    assert_eq!((error.code, error.is_retryable()), (Code::StoreUnavailable, false));
    assert!(error.message.contains("needs a newer Toolcrib (schema version 2"), "{}", error.message);
}

#[tokio::test]
async fn record_types_of_this_version_wait_for_the_end_of_an_upgrade() {
    let url = database_or_skip!("record_types_of_this_version_wait_for_the_end_of_an_upgrade");
    let store = PostgresStore::open(&url).await.unwrap();
    let status = store.administration().schema_status().await.unwrap();
    assert_eq!((status.version, status.is_contract_pending), (1, false), "a new store has nothing to finish");
    assert!(!store.administration().migrate_contract().await.unwrap());
    // As left by nodes of 0.1.0, some of which still run.
    run_sql(&url, "UPDATE meta SET value = '0.1.0' WHERE key = 'contracted'");
    assert!(store.administration().schema_status().await.unwrap().is_contract_pending);
    let rule = Event::GroupRemoved { group: "desk".into() };
    let error = try_commit(&store, 0, std::slice::from_ref(&rule)).await.unwrap_err();
    assert_eq!((error.code, error.is_retryable()), (Code::Conflict, false));
    assert!(error.message.starts_with("`GroupRemoved` is unknown to Toolcrib 0.1.0"), "{}", error.message);
    assert!(error.message.ends_with("`toolcrib store migrate --contract`"), "{}", error.message);
    assert_eq!(append(&store, 0, &["a"]).await, CommitOutcome::Committed, "types that 0.1.0 knows");

    // One of those nodes is running.
    let older = NodeReport { id: "1".into(), label: "desk".into(), version: "0.1.0".into(), position: 0 };
    for report in [&older, &NodeReport { id: "2".into(), version: env!("CARGO_PKG_VERSION").into(), ..older.clone() }] {
        store.report_node(report).await.unwrap();
    }
    let error = store.administration().migrate_contract().await.unwrap_err();
    assert_eq!((error.code, error.is_retryable()), (Code::Conflict, false));
    let expected = "nodes of an earlier version are running: `desk` (0.1.0); upgrade or stop them first";
    assert_eq!(error.message, expected);
    store.remove_node("1").await.unwrap();
    assert!(store.administration().migrate_contract().await.unwrap());
    assert!(!store.administration().schema_status().await.unwrap().is_contract_pending);
    assert_eq!(try_commit(&store, 1, &[rule]).await.unwrap(), CommitOutcome::Committed);
}

/// Regression: a node whose configuration needed such a record did not start.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_configuration_that_waits_for_the_end_of_an_upgrade_is_applied_after_it() {
    let url = database_or_skip!("a_configuration_that_waits_for_the_end_of_an_upgrade_is_applied_after_it");
    let administration = PostgresStore::open(&url).await.unwrap();
    run_sql(&url, "UPDATE meta SET value = '0.1.0' WHERE key = 'contracted'");
    let store = Some(store::open(&url).await.unwrap());
    let options = RegistryOptions { store, environment: Vec::new(), ..RegistryOptions::default() };
    let yaml = "sources: { core: { builtin: all } }\ngroups: { desk: { select: { source: core } } }";
    let registry = Registry::open(crate::support::config(yaml), options).await.unwrap();
    assert!(registry.inventory().source(&id("core")).is_none(), "no tool is visible without the rules");
    assert_eq!(registry.inventory().rules().iter().count(), 0);
    // The next polls and records of other nodes change nothing.
    let position = registry.position();
    append(&administration, position, &["a"]).await;
    crate::support::wait_until("the record is read", || registry.position() > position).await;
    assert_eq!(registry.store().health().state, StoreState::Ok);
    assert_eq!(registry.inventory().rules().iter().count(), 0);
    assert!(administration.administration().migrate_contract().await.unwrap());
    crate::support::wait_until("the group is defined", || registry.inventory().rules().iter().count() == 1).await;
    crate::support::wait_until("the source is declared", || registry.inventory().source(&id("core")).is_some()).await;
    registry.close().await;
}

#[tokio::test]
async fn tables_of_another_program_and_half_a_schema_are_refused_and_not_changed() {
    let url = database_or_skip!("tables_of_another_program_and_half_a_schema_are_refused_and_not_changed");
    run_sql(&url, "CREATE TABLE journal (id int)");
    let before = describe_schema(&url);
    let error = open_error(&url).await;
    assert_eq!((error.code, error.is_retryable()), (Code::StoreUnavailable, false));
    assert!(error.message.contains("not all of them"), "{}", error.message);
    assert_eq!(describe_schema(&url), before);
    // The advice in the message works.
    run_sql(&url, "CREATE SCHEMA toolcrib");
    let store = PostgresStore::open(&format!("{url}?options=-c%20search_path%3Dtoolcrib")).await.unwrap();
    append(&store, 0, &["a"]).await;
    assert_eq!(describe_schema(&url), before);
    assert_eq!(run_sql(&url, "SELECT count(*) FROM toolcrib.journal"), "1");

    // Without its version, a complete set of tables is not trusted either.
    let other = database_or_skip!("tables_of_another_program_and_half_a_schema_are_refused_and_not_changed");
    PostgresStore::open(&other).await.unwrap();
    run_sql(&other, "DELETE FROM meta WHERE key = 'schema_version'");
    assert!(open_error(&other).await.message.contains("not all of them"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_that_start_together_create_one_schema() {
    let url = database_or_skip!("nodes_that_start_together_create_one_schema");
    let mut openings = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let url = url.clone();
        openings.spawn(async move { PostgresStore::open(&url).await.unwrap().key().await.unwrap() });
    }
    let keys = openings.join_all().await;
    assert!(keys.iter().all(|key| *key == keys[0]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_processes_are_notified_of_a_commit_and_a_writer_not_of_its_own() {
    let url = database_or_skip!("other_processes_are_notified_of_a_commit_and_a_writer_not_of_its_own");
    let writer = PostgresStore::open(&url).await.unwrap();
    let reader = PostgresStore::open(&url).await.unwrap();
    let deadline = Duration::from_secs(20);
    // The first notice is that of the new connection.
    for store in [&writer, &reader] {
        tokio::time::timeout(deadline, store.wait_for_changes()).await.unwrap();
    }
    append(&writer, 0, &["a"]).await;
    tokio::time::timeout(deadline, reader.wait_for_changes()).await.unwrap();
    append(&reader, 1, &["b"]).await;
    append(&writer, 2, &["c"]).await;
    // Two of three records are its own, so one notice is left, and then there is none.
    tokio::time::timeout(deadline, writer.wait_for_changes()).await.unwrap();
    tokio::time::timeout(deadline, reader.wait_for_changes()).await.unwrap();
    tokio::time::timeout(Duration::from_millis(200), writer.wait_for_changes()).await.unwrap_err();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_works_again_after_a_restart_of_the_server_and_listens_again() {
    let mut server = server_or_skip!("a_store_works_again_after_a_restart_of_the_server_and_listens_again");
    let url = server.create_database();
    let (store, other) = (PostgresStore::open(&url).await.unwrap(), PostgresStore::open(&url).await.unwrap());
    let deadline = Duration::from_secs(30);
    tokio::time::timeout(deadline, store.wait_for_changes()).await.unwrap();
    append(&store, 0, &["a"]).await;
    server.stop(StopMode::Kill);
    // The processes that serve connections notice a moment later that the main process has ended.
    let mut failed = None;
    wait_until_async("the server has ended", async || {
        failed = store.records(0, 10).await.err();
        failed.is_some()
    })
    .await;
    let error = failed.unwrap();
    assert_eq!((error.code, error.is_retryable()), (Code::StoreUnavailable, true), "{}", error.message);
    assert_eq!(StoreState::from_error(&error), StoreState::Down);
    assert!(!error.message.contains("secret"));
    server.start_again();
    // After a failed attempt, the database is not asked again for a second.
    wait_until_async("the store works again", async || store.records(0, 10).await.is_ok()).await;
    assert_eq!(store.records(0, 10).await.unwrap().len(), 1);
    // A new connection for notifications counts as news.
    tokio::time::timeout(deadline, store.wait_for_changes()).await.unwrap();
    assert_eq!(append(&other, 1, &["b"]).await, CommitOutcome::Committed);
    tokio::time::timeout(deadline, store.wait_for_changes()).await.unwrap();
    assert_eq!(store.records(0, 10).await.unwrap().len(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_does_not_answer_is_given_up() {
    let server = server_or_skip!("a_server_that_does_not_answer_is_given_up");
    let url = server.create_database();
    let store = PostgresStore::open(&url).await.unwrap();
    append(&store, 0, &["a"]).await;
    server.pause();
    let limit = Duration::from_secs(20);
    let polled = tokio::time::timeout(limit, store.change_counters()).await.unwrap();
    let opened = tokio::time::timeout(limit, PostgresStore::open(&url)).await.unwrap();
    server.resume();
    for error in [polled.unwrap_err(), opened.unwrap_err()] {
        assert_eq!((error.code, error.is_retryable()), (Code::StoreUnavailable, true), "{}", error.message);
    }
    assert_eq!(append(&store, 1, &["b"]).await, CommitOutcome::Committed);
}

#[tokio::test]
async fn nodes_are_listed_with_their_lag_until_they_end() {
    let url = database_or_skip!("nodes_are_listed_with_their_lag_until_they_end");
    let store = PostgresStore::open(&url).await.unwrap();
    append(&store, 0, &["a", "b", "c"]).await;
    let report = |id: &str, label: &str, position| NodeReport {
        id: id.to_owned(),
        label: label.to_owned(),
        version: "0.2.0".to_owned(),
        position,
    };
    for report in [report("1", "b", 3), report("2", "a", 0), report("2", "a", 1), report("3", "a", 3)] {
        store.report_node(&report).await.unwrap();
    }
    let listed = async || {
        let nodes = store.nodes().await.unwrap().unwrap();
        nodes.into_iter().map(|node| (node.label, node.id, node.position, node.lag, node.alive)).collect::<Vec<_>>()
    };
    let node = |label: &str, id: &str, position, lag, alive| (label.to_owned(), id.to_owned(), position, lag, alive);
    let [slow, fast, other] = [node("a", "2", 1, 2, true), node("a", "3", 3, 0, true), node("b", "1", 3, 0, true)];
    assert_eq!(listed().await, [slow, fast.clone(), other]);
    run_sql(&url, "UPDATE nodes SET last_seen = last_seen - interval '1 minute' WHERE id = '2'");
    run_sql(&url, "UPDATE nodes SET last_seen = last_seen - interval '1 hour' WHERE id = '1'");
    assert_eq!(listed().await, [node("a", "2", 1, 2, false), fast.clone()]);
    store.remove_node("2").await.unwrap();
    assert_eq!(listed().await, [fast]);
}

#[tokio::test]
async fn a_database_that_lost_its_tables_is_damage_and_not_a_first_start() {
    let url = database_or_skip!("a_database_that_lost_its_tables_is_damage_and_not_a_first_start");
    let data = tempfile::tempdir().unwrap();
    open_registry(&url, data.path()).await.close().await;
    run_sql(&url, "DROP SCHEMA public CASCADE; CREATE SCHEMA public");
    let opened: Option<HeadFile> = store::open_with_head(&url, data.path()).await.unwrap().head;
    assert!(format!("{opened:?}").contains("holds no tables"), "{opened:?}");
    assert_eq!(describe_schema(&url), "", "nothing was created");
}

/// Opens a registry with a source, which remembers the head of its journal.
async fn open_registry(url: &str, data: &Path) -> Registry {
    let opened = store::open_with_head(url, data).await.unwrap();
    let options = RegistryOptions {
        store: Some(opened.store),
        head_file: opened.head,
        environment: Vec::new(),
        ..RegistryOptions::default()
    };
    let config = crate::support::config("sources: { core: { builtin: all } }");
    Registry::open(config, options).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_that_write_nothing_notice_a_lost_journal_and_a_lost_database() {
    let url = database_or_skip!("nodes_that_write_nothing_notice_a_lost_journal_and_a_lost_database");
    let (server, database) = url.rsplit_once('/').unwrap();
    for (statement, expected) in [
        (format!("TRUNCATE {database}.public.journal"), StoreState::Damaged),
        (format!("DROP DATABASE {database} WITH (FORCE)"), StoreState::Missing),
    ] {
        let data = tempfile::tempdir().unwrap();
        let registry = open_registry(&url, data.path()).await;
        assert_eq!(registry.store().health().state, StoreState::Ok);
        let administered = if expected == StoreState::Missing { format!("{server}/postgres") } else { url.clone() };
        run_sql(&administered, &statement);
        crate::support::wait_until("the loss is noticed", || registry.store().health().state == expected).await;
        assert_eq!(registry.store().check_ready().unwrap_err().code, Code::StoreUnavailable);
        registry.close().await;
        if expected == StoreState::Damaged {
            // As it was before, for the other loss.
            run_sql(&url, "DROP SCHEMA public CASCADE; CREATE SCHEMA public");
        }
    }
}

/// Regression: without a head file, a lost end of the journal was noticed by no node, and every write waited 10 s for
/// other writers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_end_of_the_journal_is_noticed_without_a_head_file() {
    let url = database_or_skip!("a_lost_end_of_the_journal_is_noticed_without_a_head_file");
    let open = async || {
        let store = Some(store::open(&url).await.unwrap());
        let options = RegistryOptions { store, environment: Vec::new(), ..RegistryOptions::default() };
        let config = crate::support::config("sources: { core: { builtin: all } }");
        Registry::open(config, options).await.unwrap()
    };
    let disable = async |registry: &Registry, actor: &str| {
        registry.execute(Command::Disable(id("core")), Actor::new(actor)).await
    };
    let running = open().await;
    let last = running.position();
    assert!(last > 0);
    run_sql(&url, &format!("DELETE FROM journal WHERE seq = {last}"));
    let started = open().await;
    for registry in [&running, &started] {
        crate::support::wait_until("the loss is noticed", || registry.store().health().state == StoreState::Damaged)
            .await;
        let error = disable(registry, "operator").await.unwrap_err();
        assert_eq!((error.code, error.is_retryable()), (Code::StoreUnavailable, false), "{}", error.message);
        assert!(error.message.contains("the journal is damaged"), "{}", error.message);
    }
    // The decision to go on can be recorded, after the number of the lost record.
    let accepted = started.store().accept_damage(Actor::new("operator")).await.unwrap().unwrap();
    assert!(accepted.seq > last, "{accepted:?}");
    disable(&started, "operator").await.unwrap();
    for registry in [running, started] {
        registry.close().await;
    }
}

#[tokio::test]
async fn integrity_covers_the_head() {
    let url = database_or_skip!("integrity_covers_the_head");
    let store = TestStore::Postgres(url.clone()).open().await;
    append(&*store, 0, &["a", "b"]).await;
    assert_eq!(store.check_integrity(10).await.unwrap(), Vec::<String>::new());
    run_sql(&url, "DELETE FROM journal WHERE seq = 2");
    assert_eq!(store.check_integrity(10).await.unwrap(), ["the journal ends with record 1, but its head says 2"]);
}

pub(super) async fn try_append(store: &dyn Store, expected: u64, tool: &str) -> toolcrib::Result<CommitOutcome> {
    try_commit(store, expected, &[Event::ToolDisabled { source: id("a"), tool: tool.into() }]).await
}

async fn try_commit(store: &dyn Store, expected: u64, events: &[Event]) -> toolcrib::Result<CommitOutcome> {
    let actor: Actor = actor();
    let at = Timestamp(1);
    let first_seq = expected + 1;
    store.commit(Commit { expected_head: expected, first_seq, at, actor: &actor, events, measurement: None }).await
}
