//! Stores in PostgreSQL when connections, answers or the server fail: nothing is lost, doubled or blocked for long.

use std::time::{Duration, Instant};

use toolcrib::core::Code;
use toolcrib::store::{CallCount, CommitOutcome, CopyRun, NodeReport, PostgresStore, Store};
use toolcrib_testkit::observe::wait_until_async;
use toolcrib_testkit::postgres::{PostgresServer, StopMode, run_sql, shared_database};
use toolcrib_testkit::programs;

use super::concurrency::of_32_concurrent_writers_one_wins_each_time;
use super::postgres_server::{database_or_skip, server_or_skip, try_append};
use super::proxy::{Interference, PostgresProxy};
use super::{AT, TestStore, append, batch, commit_check, id, status_started_at};

/// Statement that is executed with the head locked.
const LOCKED_STATEMENT: &str = "UPDATE head SET seq";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_is_paused_in_a_transaction_stops_no_writer() {
    let url = database_or_skip!("a_node_that_is_paused_in_a_transaction_stops_no_writer");
    let proxy = PostgresProxy::start(&url).await;
    let paused = PostgresStore::open(&proxy.url(&url)).await.unwrap();
    let other = PostgresStore::open(&url).await.unwrap();
    proxy.arm(LOCKED_STATEMENT, Interference::Pause);
    let writing = tokio::spawn(async move { try_append(&paused, 0, "a").await });
    proxy.wait_for_interference().await;
    // Waits for the end of the transaction of the paused node, and needs no retry.
    assert_eq!(append(&other, 0, &["b"]).await, CommitOutcome::Committed);
    proxy.resume();
    let error = writing.await.unwrap().unwrap_err();
    assert_eq!((error.code, error.is_retryable()), (Code::StoreUnavailable, true), "{}", error.message);
    assert_eq!(other.records(0, 10).await.unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_whose_answer_is_lost_is_found_out() {
    let url = database_or_skip!("a_commit_whose_answer_is_lost_is_found_out");
    let proxy = PostgresProxy::start(&url).await;
    let store = PostgresStore::open(&proxy.url(&url)).await.unwrap();
    proxy.arm("COMMIT", Interference::LoseAnswer);
    assert_eq!(append(&store, 0, &["a", "b"]).await, CommitOutcome::Committed);
    proxy.arm("COMMIT", Interference::LoseStatement);
    assert_eq!(append(&store, 2, &["c"]).await, CommitOutcome::Conflict, "nothing was written");
    assert_eq!(store.records(0, 10).await.unwrap().len(), 2);

    // The same for a measurement without records.
    let check = super::check("a", 1);
    proxy.arm("COMMIT", Interference::LoseAnswer);
    let outcome = commit_check(&store, 2, check.clone(), status_started_at(1)).await;
    assert_eq!(outcome, CommitOutcome::Committed);
    proxy.arm("COMMIT", Interference::LoseStatement);
    let outcome = commit_check(&store, 2, super::check("a", 2), status_started_at(2)).await;
    assert_eq!(outcome, CommitOutcome::Conflict);
    assert_eq!(store.checks(&id("a")).await.unwrap(), [check]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn counts_whose_answer_is_lost_are_counted_once() {
    let url = database_or_skip!("counts_whose_answer_is_lost_are_counted_once");
    let proxy = PostgresProxy::start(&url).await;
    let store = PostgresStore::open(&proxy.url(&url)).await.unwrap();
    for (number, interference) in [(1, Interference::LoseAnswer), (2, Interference::LoseStatement)] {
        proxy.arm("COMMIT", interference);
        store.add_counts(&batch("one", number), &[one_call()], &[]).await.unwrap_err();
        store.add_counts(&batch("one", number), &[one_call()], &[]).await.unwrap();
        assert_eq!(store.call_counts().await.unwrap()[0].calls, number);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn counts_are_exact_over_restarts_of_the_server() {
    let mut server = server_or_skip!("counts_are_exact_over_restarts_of_the_server");
    const BATCHES: u64 = 400;
    let url = server.create_database();
    let store = PostgresStore::open(&url).await.unwrap();
    let counter = PostgresStore::open(&url).await.unwrap();
    let write = async {
        for number in 1..=BATCHES {
            // Repeated like by a registry, whatever the error was.
            wait_until_async("a batch is confirmed", async || {
                store.add_counts(&batch("one", number), &[one_call()], &[]).await.is_ok()
            })
            .await;
        }
    };
    let restart = async {
        for (count, mode) in [(50, StopMode::Immediate), (150, StopMode::Kill), (250, StopMode::Fast)] {
            let has_reached = async || {
                let counts = counter.call_counts().await.unwrap_or_default();
                counts.first().is_some_and(|counted| counted.calls >= count)
            };
            wait_until_async("some batches", has_reached).await;
            let restarting = move || {
                server.restart(mode);
                server
            };
            server = tokio::task::spawn_blocking(restarting).await.unwrap();
        }
        server
    };
    let (_server, ()) = tokio::join!(restart, write);
    wait_until_async("the store works again", async || counter.call_counts().await.is_ok()).await;
    assert_eq!(counter.call_counts().await.unwrap()[0].calls, BATCHES);
}

fn one_call() -> CallCount {
    CallCount { source: id("a"), tool: "push".into(), calls: 1, errors: 0, last_called: Some(AT), last_error: None }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_the_server_does_not_answer_only_one_write_waits_for_it() {
    let server = server_or_skip!("while_the_server_does_not_answer_only_one_write_waits_for_it");
    let url = server.create_database();
    let store = PostgresStore::open(&url).await.unwrap();
    append(&store, 0, &["a"]).await;
    server.pause();
    // One after the other, as a registry writes.
    let mut durations = Vec::new();
    for _ in 0..10 {
        let started = Instant::now();
        let error = try_append(&store, 1, "b").await.unwrap_err();
        assert_eq!((error.code, error.is_retryable()), (Code::StoreUnavailable, true), "{}", error.message);
        durations.push(started.elapsed());
    }
    // Together, too.
    let started = Instant::now();
    futures_util::future::join_all((0..10).map(|_| try_append(&store, 1, "b"))).await;
    let together = started.elapsed();
    server.resume();
    let others: Duration = durations[1..].iter().sum();
    assert!(others < durations[0] && together < 2 * durations[0], "{durations:?}, {together:?}");
    let appends = async || try_append(&store, 1, "b").await.is_ok_and(|outcome| outcome == CommitOutcome::Committed);
    wait_until_async("the store works again", appends).await;
}

#[tokio::test]
async fn a_read_only_server_is_reported_as_such() {
    let url = database_or_skip!("a_read_only_server_is_reported_as_such");
    append(&PostgresStore::open(&url).await.unwrap(), 0, &["a"]).await;
    let database = url.rsplit('/').next().unwrap();
    run_sql(&url, &format!("ALTER DATABASE {database} SET default_transaction_read_only = on"));
    let store = PostgresStore::open(&url).await.unwrap();
    let error = try_append(&store, 1, "b").await.unwrap_err();
    assert_eq!((error.code, error.is_retryable()), (Code::StoreUnavailable, true));
    assert!(error.message.starts_with("the store is read-only: the server is a standby"), "{}", error.message);
    assert_eq!(store.records(0, 10).await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_lack_of_connections_is_reported_as_such() {
    let url = database_or_skip!("a_lack_of_connections_is_reported_as_such");
    let (_, database) = url.rsplit_once('/').unwrap();
    let role = format!("limited_{database}");
    run_sql(&url, &format!("CREATE ROLE {role} LOGIN CONNECTION LIMIT 0"));
    let error = PostgresStore::open(&url.replacen("postgres@", &format!("{role}@"), 1)).await.unwrap_err();
    assert_eq!((error.code, error.is_retryable()), (Code::StoreUnavailable, true));
    assert!(error.message.ends_with("has no connection left; raise its `max_connections`"), "{}", error.message);
    run_sql(&url, &format!("DROP ROLE {role}"));
}

/// Regression: after an outage, a lack of connections was reported as one, for seconds.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lack_of_connections_after_an_outage_is_no_outage() {
    let mut server = server_or_skip!("a_lack_of_connections_after_an_outage_is_no_outage");
    let url = server.create_database();
    run_sql(&url, "CREATE ROLE limited LOGIN SUPERUSER");
    let store = PostgresStore::open(&url.replacen("postgres@", "limited@", 1)).await.unwrap();
    run_sql(&url, "ALTER ROLE limited NOSUPERUSER CONNECTION LIMIT 0");
    server.stop(StopMode::Fast);
    assert!(store.records(0, 1).await.unwrap_err().message.contains("cannot be reached"));
    server.start_again();
    let lacks_connections = async || {
        let error = store.records(0, 1).await.unwrap_err();
        error.message.ends_with("has no connection left; raise its `max_connections`")
    };
    wait_until_async("the server is asked again", lacks_connections).await;
    assert!(lacks_connections().await, "the next caller is told the same");
    run_sql(&url, "ALTER ROLE limited SUPERUSER CONNECTION LIMIT -1");
    store.records(0, 1).await.unwrap();
}

/// The code relies on these settings of a session.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn defaults_of_the_database_do_not_apply() {
    let url = database_or_skip!("defaults_of_the_database_do_not_apply");
    let database = url.rsplit('/').next().unwrap();
    run_sql(&url, &format!("ALTER DATABASE {database} SET default_transaction_isolation = 'serializable'"));
    // Fails writers that have waited for each other.
    of_32_concurrent_writers_one_wins_each_time(TestStore::Postgres(url)).await;
}

#[tokio::test]
async fn running_nodes_keep_a_store_from_becoming_a_copy() {
    let url = database_or_skip!("running_nodes_keep_a_store_from_becoming_a_copy");
    let store = PostgresStore::open(&url).await.unwrap();
    let report = NodeReport { id: "1".to_owned(), label: "desk".to_owned(), version: "0.2.0".to_owned(), position: 0 };
    store.report_node(&report).await.unwrap();
    let error = store.administration().begin_copy([7; 32], CopyRun::new()).await.unwrap_err();
    assert_eq!((error.code, error.is_retryable()), (Code::Conflict, false));
    assert!(error.message.ends_with("is used by running nodes: `desk`; stop them first"), "{}", error.message);
    store.remove_node("1").await.unwrap();
    store.administration().begin_copy([7; 32], CopyRun::new()).await.unwrap();
}

#[tokio::test]
async fn a_table_of_another_program_is_refused_whatever_its_name() {
    for table in ["nodes", "logins", "checks", "changes"] {
        let url = database_or_skip!("a_table_of_another_program_is_refused_whatever_its_name");
        run_sql(&url, &format!("CREATE TABLE {table} (id int)"));
        let error = PostgresStore::open(&url).await.unwrap_err();
        assert!(error.message.contains("they belong to another program"), "{}", error.message);
        let tables = run_sql(&url, "SELECT string_agg(tablename, ' ') FROM pg_tables WHERE schemaname = 'public'");
        assert_eq!(tables, table);
    }
}
