//! Upgrades to a version with another schema, which does not exist yet.

use sqlx::postgres::PgConnectOptions;
use sqlx::{ConnectOptions, Executor};
use toolcrib_testkit::postgres::{run_sql, shared_database};
use toolcrib_testkit::programs;

use super::*;
use crate::store::{NodeReport, PostgresStore, Store, StoreAdministration};

/// A later version: adds a column, and can later no longer be read by the version before.
const NEXT: KnownSchema =
    KnownSchema { migrations: &[CREATE_TABLES, ADD_REGION], compatible_since: 2, build_version: "99.0.0" };
const ADD_REGION: &str = "ALTER TABLE journal ADD COLUMN region text NOT NULL DEFAULT ''";

/// Creates a store of this version, or skips the test.
macro_rules! store_or_skip {
    ($test:literal) => {
        match shared_database() {
            Some(url) => (PostgresStore::open(&url).await.unwrap(), url),
            None => return programs::skip($test, "PostgreSQL is not installed"),
        }
    };
}

async fn connect(url: &str) -> PgConnection {
    url.parse::<PgConnectOptions>().unwrap().connect().await.unwrap()
}

async fn expand(url: &str) -> DatabaseSchema {
    migrate(&mut connect(url).await, NEXT).await.unwrap()
}

#[tokio::test]
async fn a_version_is_used_after_the_expansion_and_refused_after_the_contraction() {
    let (store, url) = store_or_skip!("a_version_is_used_after_the_expansion_and_refused_after_the_contraction");
    let mut next = connect(&url).await;
    assert_eq!(read_state(&mut next, NEXT).await.unwrap(), DatabaseSchema::Older(1));
    assert_eq!(expand(&url).await, DatabaseSchema::Usable);
    assert_eq!(run_sql(&url, "SELECT count(region) FROM journal"), "0");

    // This version goes on, also after a restart.
    store.put_login(&login()).await.unwrap();
    let again = PostgresStore::open(&url).await.unwrap();
    assert_eq!(again.logins(toolcrib_core::Timestamp(0)).await.unwrap(), [login()]);
    assert_eq!(again.schema_status().await.unwrap(), SchemaStatus { version: 2, is_contract_pending: false });
    assert!(read_status(&mut next, NEXT).await.unwrap().is_contract_pending);

    // While one of its nodes is running, the migration is not finished.
    let version = SCHEMA.build_version.to_owned();
    let report = NodeReport { id: "1".into(), label: "desk".into(), version, position: 0 };
    store.report_node(&report).await.unwrap();
    let ContractOutcome::InUse(nodes) = contract(&mut next, NEXT).await.unwrap() else { panic!("not refused") };
    assert_eq!(nodes[0].label, "desk");
    store.remove_node("1").await.unwrap();
    assert!(matches!(contract(&mut next, NEXT).await.unwrap(), ContractOutcome::Finished));
    assert!(matches!(contract(&mut next, NEXT).await.unwrap(), ContractOutcome::Unneeded));
    assert_eq!(read_state(&mut next, NEXT).await.unwrap(), DatabaseSchema::Usable);

    let error = PostgresStore::open(&url).await.unwrap_err();
    let expected = "needs a newer Toolcrib (schema version 2, this one supports 1); upgrade this Toolcrib, or use another \
                    database";
    assert!(error.message.ends_with(expected) && !error.is_retryable(), "{}", error.message);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_that_migrate_together_do_it_once() {
    let (_, url) = store_or_skip!("nodes_that_migrate_together_do_it_once");
    // A second `ALTER TABLE` would fail.
    let states = futures_util::future::join_all((0..8).map(|_| expand(&url))).await;
    assert!(states.iter().all(|state| *state == DatabaseSchema::Usable), "{states:?}");
    assert_eq!(run_sql(&url, "SELECT value FROM meta WHERE key = 'schema_version'"), r"\x32");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_interrupted_migration_leaves_the_old_version() {
    let (store, url) = store_or_skip!("an_interrupted_migration_leaves_the_old_version");
    // Waits for the lock of this transaction with its own begun, and the connection is ended then.
    let mut blocker = connect(&url).await;
    blocker.execute("BEGIN; LOCK TABLE journal").await.unwrap();
    let mut migrating = connect(&url).await;
    let pid: i32 = sqlx::query_scalar("SELECT pg_backend_pid()").fetch_one(&mut migrating).await.unwrap();
    let migration = tokio::spawn(async move { migrate(&mut migrating, NEXT).await });
    let is_waiting = format!("SELECT count(*) FROM pg_stat_activity WHERE pid = {pid} AND wait_event_type = 'Lock'");
    toolcrib_testkit::observe::wait_until_async("the migration waits", async || run_sql(&url, &is_waiting) == "1")
        .await;
    run_sql(&url, &format!("SELECT pg_terminate_backend({pid})"));
    migration.await.unwrap().unwrap_err();
    blocker.execute("ROLLBACK").await.unwrap();

    assert_eq!(read_state(&mut blocker, NEXT).await.unwrap(), DatabaseSchema::Older(1));
    store.put_login(&login()).await.unwrap();
    assert_eq!(expand(&url).await, DatabaseSchema::Usable, "the next attempt succeeds");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_waits_for_the_migration_of_another_one() {
    let (_, url) = store_or_skip!("a_node_waits_for_the_migration_of_another_one");
    let mut other = connect(&url).await;
    let mut held = begin_migration(&mut other).await.unwrap();
    // Would end the wait at once if it applied to it.
    let options = url.parse::<PgConnectOptions>().unwrap().options([("lock_timeout", "1ms")]);
    let mut waiting = options.connect().await.unwrap();
    let pid: i32 = sqlx::query_scalar("SELECT pg_backend_pid()").fetch_one(&mut waiting).await.unwrap();
    let migration = tokio::spawn(async move { migrate(&mut waiting, NEXT).await });
    let is_waiting = format!("SELECT count(*) FROM pg_stat_activity WHERE pid = {pid} AND wait_event = 'advisory'");
    toolcrib_testkit::observe::wait_until_async("the node waits", async || run_sql(&url, &is_waiting) == "1").await;
    held.execute(ADD_REGION).await.unwrap();
    write_meta(&mut held, SCHEMA_VERSION_KEY, b"2").await.unwrap();
    held.commit().await.unwrap();
    assert_eq!(migration.await.unwrap().unwrap(), DatabaseSchema::Usable);
}

fn login() -> crate::store::Login {
    crate::store::Login {
        digest: toolcrib_core::fingerprint::Fingerprint::digest("1"),
        kind: crate::store::LoginKind::Session,
        credential: "admin".to_owned(),
        created_at: toolcrib_core::Timestamp(1),
        expires_at: toolcrib_core::Timestamp(9),
    }
}
