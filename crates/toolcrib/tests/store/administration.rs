//! The contract of what `toolcrib store` needs: copies into an empty store, removal of what is not needed, and the
//! snapshot of the inventory.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use toolcrib::core::fingerprint::Fingerprint;
use toolcrib::core::{Code, Timestamp, ToolId};
use toolcrib::store::{
    CacheCount, CallCount, CommitOutcome, CopyRun, JournalPosition, Login, LoginKind, Measurements, PruneMode,
    PruneReport, PruneSelection, SourceStatus, StoredRecord, StoredSnapshot, TokenUse,
};

use super::{
    PUSH, TestStore, append, batch, check, commit_check, definition, failure, id, manifest, record, status_started_at,
};

const KEY: [u8; 32] = [7; 32];

pub(super) async fn the_last_snapshot_is_read_back(test_store: TestStore) {
    let (one, other) = (test_store.open().await, test_store.open().await);
    assert_eq!(one.snapshot().await.unwrap(), None);
    for (seq, body) in [(4, "{}"), (9, r#"{"größe":"\u0000 🦀 '"}"#)] {
        let position = JournalPosition { seq, checksum: format!("{seq:032x}") };
        let snapshot = StoredSnapshot::new(position, "1.2.3", body.to_owned());
        one.put_snapshot(&snapshot).await.unwrap();
        assert_eq!(other.snapshot().await.unwrap(), Some(snapshot));
    }
}

pub(super) async fn a_snapshot_of_a_lost_journal_is_replaced(test_store: TestStore) {
    let (one, other) = (test_store.open().await, test_store.open().await);
    append(&*one, 0, &["a", "b", "c"]).await;
    let snapshot = |seq, checksum: Option<String>| {
        let position = JournalPosition { seq, checksum: checksum.unwrap_or_default() };
        StoredSnapshot::new(position, "1.2.3", "{}".to_owned())
    };
    let [first, third] = [snapshot(1, record(1, "a").checksum), snapshot(3, record(3, "c").checksum)];
    one.put_snapshot(&third).await.unwrap();
    other.put_snapshot(&first).await.unwrap();
    assert_eq!(one.snapshot().await.unwrap(), Some(third.clone()), "the later one stays");
    for lost in [snapshot(3, record(3, "lost").checksum), snapshot(9, None)] {
        // Written by a node before a backup with fewer records was restored.
        one.put_snapshot(&lost).await.unwrap();
        other.put_snapshot(&first).await.unwrap();
        assert_eq!(one.snapshot().await.unwrap(), Some(first.clone()));
    }
}

pub(super) async fn an_empty_store_takes_over_records_and_key(test_store: TestStore) {
    let target = test_store.open_copy_target().await;
    let administration = target.administration();
    let run = CopyRun::new();
    administration.begin_copy(KEY, run).await.unwrap();
    assert_eq!(target.key().await.unwrap(), KEY);

    // Gaps, unknown types, wrong and missing checksums: everything is kept as it is.
    let unknown = StoredRecord { body: r#"{"type":"ToolPainted","\u0000":"🦀"}"#.into(), ..record(2, "a") };
    let damaged = StoredRecord { seq: 7, body: "{".into(), checksum: Some("wrong".into()), ..record(7, "b") };
    let unverified = StoredRecord { checksum: None, at: Timestamp(-5), critical: false, ..record(8, "c") };
    let records = [record(1, "a"), unknown, damaged, unverified];
    administration.restore_records(run, 0, &records[..1]).await.unwrap();
    administration.restore_records(run, 1, &records[1..]).await.unwrap();
    administration.restore_records(run, 8, &[]).await.unwrap();
    for after in [0, 1, 7, 9] {
        let error = administration.restore_records(run, after, &[record(after + 1, "d")]).await.unwrap_err();
        assert_eq!(error.code, Code::Conflict, "after {after}");
    }
    let measured = measurements();
    administration.restore_measurements(run, &measured).await.unwrap();
    administration.finish_copy(run).await.unwrap();
    target.close().await;

    let store = test_store.open().await;
    assert_eq!(store.records(0, 10).await.unwrap(), records);
    assert_eq!(store.key().await.unwrap(), KEY);
    assert_eq!(store.administration().checked_sources().await.unwrap(), [id("a"), id("gone")]);
    assert_eq!(store.checks(&id("a")).await.unwrap(), [check("a", 9), check("a", 2)]);
    assert_eq!(store.checks(&id("gone")).await.unwrap(), [check("gone", 4)]);
    assert_eq!(store.source_statuses().await.unwrap(), measured.statuses);
    assert_eq!(store.call_counts().await.unwrap(), measured.call_counts);
    assert_eq!(store.cache_counts().await.unwrap(), measured.cache_counts);
    assert_eq!(store.token_uses().await.unwrap(), measured.token_uses);
    let mut logins = store.logins(Timestamp(i64::MIN)).await.unwrap();
    logins.sort_by_key(|login| login.expires_at);
    assert_eq!(logins, measured.logins);
    assert_eq!(append(&*store, 8, &["d"]).await, CommitOutcome::Committed);

    let error = store.administration().restore_records(run, 9, &[record(10, "e")]).await.unwrap_err();
    assert_eq!(error.code, Code::Conflict, "{error}");
    let error = store.administration().restore_measurements(run, &measured).await.unwrap_err();
    assert_eq!(error.code, Code::Conflict, "{error}");
}

pub(super) async fn a_copy_goes_on_where_it_was_interrupted(test_store: TestStore) {
    let first = test_store.open_copy_target().await;
    let run = CopyRun::new();
    first.administration().begin_copy(KEY, run).await.unwrap();
    first.administration().restore_records(run, 0, &[record(1, "a"), record(2, "b")]).await.unwrap();
    let name = Fingerprint::digest("1");
    first.put_definition(name, &definition("npx")).await.unwrap();
    first.administration().restore_measurements(run, &measurements()).await.unwrap();
    first.close().await;

    let second = test_store.open_copy_target().await;
    let error = second.administration().begin_copy([8; 32], CopyRun::new()).await.unwrap_err();
    assert_eq!((error.code, error.is_retryable()), (Code::Conflict, false));
    let run = CopyRun::new();
    second.administration().begin_copy(KEY, run).await.unwrap();
    assert_eq!(second.records(0, 10).await.unwrap(), [record(1, "a"), record(2, "b")]);
    assert_eq!(second.definitions(&[name]).await.unwrap(), [(name, definition("npx"))]);
    assert_eq!(second.source_statuses().await.unwrap(), BTreeMap::new());
    assert_eq!(second.call_counts().await.unwrap(), []);
    second.administration().restore_records(run, 2, &[record(3, "c")]).await.unwrap();
    second.administration().restore_measurements(run, &measurements()).await.unwrap();
    second.administration().finish_copy(run).await.unwrap();

    let store = test_store.open().await;
    assert_eq!(store.records(0, 10).await.unwrap().len(), 3);
    assert_eq!(store.call_counts().await.unwrap(), measurements().call_counts);
}

pub(super) async fn of_two_runs_of_a_copy_the_later_one_goes_on(test_store: TestStore) {
    let target = test_store.open_copy_target().await;
    let administration = target.administration();
    let [first, second] = [CopyRun::new(), CopyRun::new()];
    administration.begin_copy(KEY, first).await.unwrap();
    administration.restore_measurements(first, &measurements()).await.unwrap();
    administration.begin_copy(KEY, second).await.unwrap();
    for refusal in [
        administration.restore_records(first, 0, &[record(1, "a")]).await,
        administration.restore_measurements(first, &measurements()).await,
        administration.finish_copy(first).await,
    ] {
        let error = refusal.unwrap_err();
        assert_eq!((error.code, error.is_retryable()), (Code::Conflict, false));
        assert!(error.message.starts_with("another run of this copy has begun to fill the store"), "{}", error.message);
    }
    assert_eq!(target.call_counts().await.unwrap(), []);
    administration.restore_measurements(second, &measurements()).await.unwrap();
    assert_eq!(administration.finished_copy().await.unwrap(), None);
    administration.finish_copy(second).await.unwrap();
    assert_eq!(administration.finished_copy().await.unwrap(), Some(second));
    assert_eq!(target.call_counts().await.unwrap(), measurements().call_counts);
}

pub(super) async fn a_store_with_content_is_no_target(test_store: TestStore) {
    let store = test_store.open().await;
    let key = store.key().await.unwrap();
    let name = Fingerprint::digest("1");
    store.put_definition(name, &definition("npx")).await.unwrap();
    assert_eq!(store.administration().begin_copy(KEY, CopyRun::new()).await.unwrap_err().code, Code::Conflict);
    assert!(store.remove_definitions(&id("files"), None, 0).await.unwrap());
    let error = store.administration().begin_copy(key, CopyRun::new()).await.unwrap_err();
    assert!(error.code == Code::Conflict && error.message.contains("is the source itself"), "{}", error.message);
    append(&*store, 0, &["a"]).await;
    commit_check(&*store, 1, check("a", 1), status_started_at(1)).await;
    let error = store.administration().begin_copy(KEY, CopyRun::new()).await.unwrap_err();
    assert_eq!((error.code, error.is_retryable()), (Code::Conflict, false));
    assert_eq!(store.administration().begin_copy(key, CopyRun::new()).await.unwrap_err().code, Code::Conflict);
    assert_eq!(store.key().await.unwrap(), key);
    assert_eq!(store.checks(&id("a")).await.unwrap(), [check("a", 1)]);
}

pub(super) async fn an_unfinished_copy_is_not_used(test_store: TestStore) {
    let target = test_store.open_copy_target().await;
    let run = CopyRun::new();
    target.administration().begin_copy(KEY, run).await.unwrap();
    target.administration().restore_records(run, 0, &[record(1, "a")]).await.unwrap();
    target.close().await;
    if let Some(error) = test_store.open_error().await {
        assert_eq!((error.code, error.is_retryable()), (Code::StoreUnavailable, false), "{error}");
        assert!(error.message.contains("is not finished"), "{error}");
    }
    let target = test_store.open_copy_target().await;
    target.administration().finish_copy(run).await.unwrap();
    target.close().await;
    assert_eq!(test_store.open().await.records(0, 10).await.unwrap(), [record(1, "a")]);
}

pub(super) async fn pruning_removes_what_is_not_selected(test_store: TestStore) {
    let store = test_store.open().await;
    for (source, time) in [("a", 2), ("a", 9), ("gone", 4)] {
        commit_check(&*store, 0, check(source, time), status_started_at(time)).await;
    }
    let Measurements { call_counts, cache_counts, token_uses, .. } = measurements();
    store.add_counts(&batch("one", 1), &call_counts, &cache_counts).await.unwrap();
    store.record_token_uses(&token_uses).await.unwrap();
    for login in measurements().logins {
        store.put_login(&login).await.unwrap();
    }
    let names = [Fingerprint::digest("used"), Fingerprint::digest("unused")];
    for name in names {
        store.put_definition(name, &definition("npx")).await.unwrap();
    }
    let [used, unused] = [manifest("a", &[PUSH]), manifest("gone", &[PUSH])];
    for manifest in [&used, &unused] {
        store.put_manifest(manifest).await.unwrap();
    }

    let snapshot = StoredSnapshot::new(JournalPosition::default(), "1.2.3", "{}".into());
    store.put_snapshot(&snapshot).await.unwrap();

    let selection = PruneSelection {
        now: Timestamp(100),
        checks_since: Timestamp(5),
        sources: BTreeSet::from([id("a")]),
        counted_sources: BTreeSet::from([id("a")]),
        counted_tools: BTreeSet::from([ToolId { source: id("a"), name: "push".into() }]),
        tokens: BTreeSet::from(["b".to_owned()]),
        definitions: BTreeSet::from([names[0]]),
        lists: BTreeSet::from([used.fingerprint]),
        min_age: Duration::ZERO,
    };
    let recent = PruneSelection { min_age: Duration::from_secs(3_600), ..selection.clone() };
    // Of what is recent, only counts of lookups have no time, and old checks are removed even so.
    let expected = PruneReport { checks: 2, counts: 1, token_uses: 0, logins: 1, definitions: 0, manifests: 0 };
    let administration = store.administration();
    assert_eq!(administration.prune(&recent, PruneMode::Count).await.unwrap(), expected, "recent content is kept");
    let all_checks = PruneSelection { checks_since: Timestamp(0), ..recent };
    assert_eq!(administration.prune(&all_checks, PruneMode::Count).await.unwrap().checks, 0, "of a source that is new");
    let expected = PruneReport { counts: 2, token_uses: 1, definitions: 1, manifests: 1, ..expected };
    assert_eq!(administration.prune(&selection, PruneMode::Count).await.unwrap(), expected);
    assert_eq!(store.snapshot().await.unwrap(), Some(snapshot));
    assert_eq!(administration.prune(&selection, PruneMode::Remove).await.unwrap(), expected);
    assert_eq!(store.snapshot().await.unwrap(), None);
    assert_eq!(administration.prune(&selection, PruneMode::Remove).await.unwrap(), PruneReport::default());

    assert_eq!(store.checks(&id("a")).await.unwrap(), [check("a", 9)]);
    assert_eq!(administration.checked_sources().await.unwrap(), [id("a")]);
    assert_eq!(store.call_counts().await.unwrap(), call_counts[..1]);
    assert_eq!(store.cache_counts().await.unwrap(), cache_counts[..1]);
    assert_eq!(store.token_uses().await.unwrap(), token_uses[1..]);
    assert_eq!(store.logins(Timestamp(0)).await.unwrap(), measurements().logins[1..]);
    assert_eq!(store.definitions(&names).await.unwrap(), [(names[0], definition("npx"))]);
    let found = store.manifests(&[used.fingerprint, unused.fingerprint]).await.unwrap();
    assert!(found.iter().map(|manifest| manifest.fingerprint).eq([used.fingerprint]));
}

/// Measurements of the existing source `a` and the source `gone`.
pub(super) fn measurements() -> Measurements {
    let call = |source: &str, tool: &str| CallCount {
        source: id(source),
        tool: tool.into(),
        calls: 5,
        errors: 2,
        last_called: Some(Timestamp(7)),
        last_error: Some(failure("no")),
    };
    let lookups = |source: &str| CacheCount { source: id(source), hits: 3, misses: 1 };
    let token_use = |token: &str| TokenUse { token: token.to_owned(), last_used: Timestamp(5) };
    let login = |name: &str, kind, created_at, expires_at| Login {
        digest: Fingerprint::digest(name),
        kind,
        credential: "4aa62c8d4458".to_owned(),
        created_at: Timestamp(created_at),
        expires_at: Timestamp(expires_at),
    };
    let failed = SourceStatus { failures: 2, last_error: Some(failure("down")), ..status_started_at(4) };
    Measurements {
        statuses: BTreeMap::from([(id("a"), status_started_at(9)), (id("gone"), failed)]),
        checks: vec![check("a", 2), check("gone", 4), check("a", 9)],
        call_counts: vec![call("a", "push"), call("gone", "🦀 \u{0}")],
        cache_counts: vec![lookups("a"), lookups("gone")],
        token_uses: vec![token_use("a"), token_use("b")],
        logins: vec![login("1", LoginKind::Link, 1, 90), login("2", LoginKind::Session, 2, 200)],
    }
}
