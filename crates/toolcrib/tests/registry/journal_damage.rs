//! A damaged journal: each record deleted or corrupted, the end cut off, the file truncated, emptied, removed or replaced.
//! After each, nothing that was revoked, disabled or denied works again, and `verify` names the damage.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::json;
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions, Connection};
use tempfile::TempDir;
use toolcrib::core::access::Role;
use toolcrib::core::fingerprint::Fingerprint;
use toolcrib::core::inventory::{Actor, Command};
use toolcrib::core::tool::ToolId;
use toolcrib::registry::HistoryQuery;
use toolcrib::store::{self, StoreState};
use toolcrib::testkit::{ScriptedSource, open_with_connectors};
use toolcrib::{Code, Refresh, Registry, RegistryOptions};

use crate::support::{cached_tools, call, config, id, wait_until};

const YAML: &str = "sources: { git: { command: x, tools: { drop: deny } }, mail: { command: y } }";

/// A closed data directory with some history, copied for each case.
struct JournalFixture {
    home: TempDir,
    /// A token that was revoked.
    revoked: String,
    valid: String,
    records: u64,
}

fn actor() -> Actor {
    Actor::new("test")
}

async fn open(data: &Path) -> Registry {
    let opened = store::open_with_head(&data.to_string_lossy(), data).await.unwrap();
    let git = ScriptedSource::new(["push", "pull", "drop"]);
    let mail = ScriptedSource::new(["send"]);
    let extra = ScriptedSource::new(["look"]);
    let options = RegistryOptions {
        store: Some(opened.store),
        head_file: opened.head,
        environment: Vec::new(),
        ..RegistryOptions::default()
    };
    let factory = ScriptedSource::connector_factory([("git", &git), ("mail", &mail), ("extra", &extra)]);
    open_with_connectors(config(YAML), options, factory).await.unwrap()
}

impl JournalFixture {
    async fn new() -> JournalFixture {
        let home = tempfile::tempdir().unwrap();
        let registry = open(home.path()).await;
        registry.refresh(Refresh::default()).await;
        let extra = config("sources: { extra: { command: z } }").sources[0].source.clone().unwrap();
        registry.sources().declare(extra, actor(), None).await.unwrap();
        let valid = registry.tokens().create("valid", Role::Agent, None, actor()).await.unwrap().token;
        let revoked = registry.tokens().create("revoked", Role::Admin, None, actor()).await.unwrap().token;
        registry.tokens().revoke("revoked", actor()).await.unwrap();
        let pull = ToolId { source: id("git"), name: "pull".into() };
        for command in [Command::DisableTool(pull), Command::Disable(id("mail"))] {
            registry.execute(command, actor()).await.unwrap();
        }
        assert_eq!(registry.store().verify().await.unwrap().faults, [""; 0]);
        let records = registry.inventory().version;
        registry.close().await;
        assert!(records >= 10, "{records}");
        JournalFixture { home, revoked, valid, records }
    }

    /// Copies the data directory.
    fn copy(&self) -> JournalCopy<'_> {
        let home = tempfile::tempdir().unwrap();
        for name in ["toolcrib.db", "head"] {
            fs::copy(self.home.path().join(name), home.path().join(name)).unwrap();
        }
        JournalCopy { original: self, home }
    }
}

struct JournalCopy<'a> {
    original: &'a JournalFixture,
    home: TempDir,
}

impl JournalCopy<'_> {
    fn database_path(&self) -> PathBuf {
        self.home.path().join("toolcrib.db")
    }

    async fn execute_sql(&self, statement: &str) {
        let mut connection = SqliteConnectOptions::new().filename(self.database_path()).connect().await.unwrap();
        let changed = sqlx::query(AssertSqlSafe(statement.to_owned())).execute(&mut connection).await.unwrap();
        assert!(changed.rows_affected() > 0, "{statement} changes nothing");
        connection.close().await.unwrap();
    }

    /// Checks twice that the registry fails closed (no authentication, calls or writes), then accepts the damage.
    async fn check_fails_closed(self, state: StoreState, named: &str, what: &str) {
        self.assert_open_fails_closed(state, named, what).await;
        self.assert_open_fails_closed(state, named, what).await;
        self.check_accept_damage(what).await;
    }

    async fn assert_open_fails_closed(&self, state: StoreState, named: &str, what: &str) {
        let before = self.file_names();
        let registry = open(self.home.path()).await;
        self.assert_all_refused(&registry, state, named, what).await;
        registry.close().await;
        assert_eq!(self.file_names(), before, "{what}: nothing is created");
    }

    fn file_names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.home.path()).unwrap().map(|entry| entry.unwrap());
        let mut names: Vec<String> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        // SQLite cannot check-point its log into a truncated file.
        names.retain(|name| !name.ends_with("-wal") && !name.ends_with("-shm"));
        names.sort();
        names
    }

    async fn assert_all_refused(&self, registry: &Registry, state: StoreState, named: &str, what: &str) {
        let assert_unavailable = |code: Code| assert_eq!(code, Code::StoreUnavailable, "{what}");
        assert!(registry.store().damage_error().is_some(), "{what}");
        assert_unavailable(registry.tokens().ensure_reliable().unwrap_err().code);
        assert_unavailable(registry.store().check_ready().unwrap_err().code);
        assert_eq!(registry.store().health().state, state, "{what}");
        for tool in ["git__push", "git__pull", "git__drop", "mail__send", "extra__look", "no__such"] {
            assert_unavailable(call(registry, tool, json!({})).await.unwrap_err().code);
        }
        for command in [Command::Enable(id("mail")), Command::Disable(id("git")), Command::RevokeToken("x".into())] {
            assert_unavailable(registry.execute(command, actor()).await.unwrap_err().code);
        }
        assert_unavailable(registry.tokens().create("new", Role::Agent, None, actor()).await.unwrap_err().code);
        assert_unavailable(registry.sources().invalidate(None).await.unwrap_err().code);
        let refreshed = registry.refresh(Refresh { force: true, ..Refresh::default() }).await;
        assert!(refreshed.iter().all(|outcome| !outcome.contacted), "{what}");
        let verified = registry.store().verify().await.unwrap();
        assert!(verified.damage.iter().any(|fault| fault.contains(named)), "{what}: {named}: {:?}", verified.damage);
        assert_eq!(verified.store, state, "{what}");
        // Reading works, and terminates.
        registry.history().records(&HistoryQuery::after(0)).await.unwrap();
        registry.history().records(&HistoryQuery::default()).await.unwrap();
        registry.statistics().totals();
        cached_tools(registry);
    }

    /// Accepts the damage like `verify --accept-damage`, and checks the store afterwards.
    async fn check_accept_damage(self, what: &str) {
        let data = self.home.path();
        let mut registry = open(data).await;
        let damage = registry.store().describe_damage().await;
        let highest = registry.inventory().version.max(self.original.records);
        let mut rebuilt = false;
        if registry.store().needs_new_store() || !registry.store().integrity_faults().await.is_empty() {
            let salvage = registry.store().salvage().await.unwrap();
            let now = registry.now();
            registry.close().await;
            let existed = self.database_path().exists();
            let old_file = store::rebuild_store(&data.to_string_lossy(), &salvage, now).await.unwrap();
            assert_eq!(old_file.is_some(), existed, "{what}");
            assert!(old_file.is_none_or(|file| file.exists()), "{what}: the old file is kept");
            registry = open(data).await;
            rebuilt = true;
        }
        let accepted = registry.store().accept_described_damage(damage, actor()).await.unwrap();
        assert!(accepted.seq > highest, "{what}: {} {highest}", accepted.seq);
        assert_eq!(registry.tokens().list(), [], "{what}");
        registry.close().await;

        let registry = open(data).await;
        registry.store().check_ready().unwrap();
        let verified = registry.store().verify().await.unwrap();
        assert_eq!((verified.store, verified.damage), (StoreState::Ok, vec![]), "{what}");
        if !rebuilt {
            assert_eq!(verified.faults, [""; 0], "{what}");
        }
        for token in [&self.original.revoked, &self.original.valid] {
            assert_eq!(registry.tokens().find_by_hash(&Fingerprint::digest(token)), None, "{what}");
        }
        registry.refresh(Refresh { force: true, ..Refresh::default() }).await;
        assert_eq!(call(&registry, "git__drop", json!({})).await.unwrap_err().code, Code::Forbidden, "{what}");
        registry.tokens().create("valid", Role::Agent, None, actor()).await.unwrap();
        registry.close().await;
    }
}

#[tokio::test]
async fn an_intact_journal_is_served() {
    let original = JournalFixture::new().await;
    let copy = original.copy();
    let registry = open(copy.home.path()).await;
    registry.store().check_ready().unwrap();
    assert_eq!(registry.store().health().state, StoreState::Ok);
    assert!(registry.tokens().find_by_hash(&Fingerprint::digest(&original.valid)).is_some());
    assert!(registry.tokens().find_by_hash(&Fingerprint::digest(&original.revoked)).is_none());
    call(&registry, "git__push", json!({})).await.unwrap();
    assert_eq!(registry.store().accept_damage(actor()).await.unwrap(), None, "there is nothing to accept");
    let verified = registry.store().verify().await.unwrap();
    assert_eq!((verified.damage, verified.accepted), (vec![], vec![]));
    registry.close().await;
}

#[tokio::test]
async fn every_deleted_record_is_detected() {
    let original = JournalFixture::new().await;
    for seq in 1..=original.records {
        let copy = original.copy();
        copy.execute_sql(&format!("DELETE FROM journal WHERE seq = {seq}")).await;
        let named = match seq {
            seq if seq == original.records => "the end is missing".to_owned(),
            seq => format!("record {seq} is missing"),
        };
        copy.check_fails_closed(StoreState::Damaged, &named, &format!("without {seq}")).await;
    }
}

#[tokio::test]
async fn every_truncation_is_detected() {
    let original = JournalFixture::new().await;
    for seq in 1..=original.records {
        let copy = original.copy();
        copy.execute_sql(&format!("DELETE FROM journal WHERE seq >= {seq}")).await;
        let head = seq - 1;
        let last = original.records;
        let named = format!("the journal ends with record {head}, and record {last} was written");
        copy.check_fails_closed(StoreState::Damaged, &named, &format!("from {seq} on")).await;
    }
}

#[tokio::test]
async fn every_corrupted_body_is_detected() {
    let original = JournalFixture::new().await;
    for seq in 1..=original.records {
        for garbled in [
            "CAST(x'ff00c328a0a1' AS TEXT)",
            "''",
            "substr(body, 1, length(body) / 2)",
            "body || ' '",
            r#"'{"type":"SourceEnabled","source":"mail"}'"#,
            r#"'{"type":"ToolPainted"}'"#,
            r#"'{"type":"DamageAccepted","damage":[]}'"#,
            r#"replace(body, '"type":"', '"type":"X')"#,
        ] {
            let copy = original.copy();
            copy.execute_sql(&format!("UPDATE journal SET body = {garbled} WHERE seq = {seq}")).await;
            let named = format!("record {seq} cannot be read: its checksum does not match");
            copy.assert_open_fails_closed(StoreState::Damaged, &named, &format!("{seq}: {garbled}")).await;
            if seq == original.records {
                copy.check_accept_damage(garbled).await;
            }
        }
    }
}

#[tokio::test]
async fn every_corrupted_column_is_detected() {
    let original = JournalFixture::new().await;
    for seq in 1..=original.records {
        for garbled in [
            "actor = 'nobody'",
            "actor = CAST(x'ff00c3' AS TEXT)",
            "since = '0.0.9'",
            "since = CAST(x'fe' AS TEXT)",
            "critical = 1 - critical",
            "at = at + 1",
            "checksum = 'x'",
            "checksum = CAST(x'ff' AS TEXT)",
        ] {
            let copy = original.copy();
            copy.execute_sql(&format!("UPDATE journal SET {garbled} WHERE seq = {seq}")).await;
            let named = format!("record {seq} cannot be read: its checksum does not match");
            copy.assert_open_fails_closed(StoreState::Damaged, &named, &format!("{seq}: {garbled}")).await;
            if seq == 1 {
                copy.check_accept_damage(garbled).await;
            }
        }
        // Two records swapped: both have another number than they were written with.
        if seq < original.records {
            let copy = original.copy();
            for swap in [
                format!("UPDATE journal SET seq = 1000000 WHERE seq = {seq}"),
                format!("UPDATE journal SET seq = {seq} WHERE seq = {}", seq + 1),
                format!("UPDATE journal SET seq = {} WHERE seq = 1000000", seq + 1),
            ] {
                copy.execute_sql(&swap).await;
            }
            copy.check_fails_closed(StoreState::Damaged, &format!("record {seq} cannot be read"), "changed places")
                .await;
        }
    }
}

#[tokio::test]
async fn a_truncated_emptied_removed_or_replaced_file_is_detected() {
    let original = JournalFixture::new().await;
    let length = fs::metadata(original.home.path().join("toolcrib.db")).unwrap().len();
    for cut in [1, 15, 99, 100, 511, 512, 4_096, 16_383, 16_384, length / 4, length / 2, length - 16_384, length - 1] {
        let copy = original.copy();
        fs::OpenOptions::new().write(true).open(copy.database_path()).unwrap().set_len(cut).unwrap();
        copy.check_fails_closed(StoreState::Damaged, "", &format!("cut at {cut} of {length}")).await;
    }
    let copy = original.copy();
    fs::write(copy.database_path(), "").unwrap();
    copy.check_fails_closed(StoreState::Damaged, "is empty", "emptied").await;
    let copy = original.copy();
    fs::write(copy.database_path(), "no database ".repeat(2_000)).unwrap();
    copy.check_fails_closed(StoreState::Damaged, "is damaged", "no database").await;
    let copy = original.copy();
    fs::remove_file(copy.database_path()).unwrap();
    copy.check_fails_closed(StoreState::Missing, "is missing", "removed").await;
    for statement in ["DROP TABLE journal", "DROP TABLE meta", "DROP TABLE definitions", "PRAGMA user_version = 0"] {
        let copy = original.copy();
        let mut connection = SqliteConnectOptions::new().filename(copy.database_path()).connect().await.unwrap();
        sqlx::query(statement).execute(&mut connection).await.unwrap();
        connection.close().await.unwrap();
        copy.check_fails_closed(StoreState::Damaged, "", statement).await;
    }
}

#[tokio::test]
async fn an_older_copy_or_another_store_is_detected() {
    let original = JournalFixture::new().await;
    let older = original.copy();
    let registry = open(original.home.path()).await;
    registry.execute(Command::DisableTool(ToolId { source: id("git"), name: "push".into() }), actor()).await.unwrap();
    registry.close().await;
    fs::copy(original.home.path().join("head"), older.home.path().join("head")).unwrap();
    let head = original.records;
    let named = format!("the journal ends with record {head}, and record {} was written", head + 1);
    older.check_fails_closed(StoreState::Damaged, &named, "an older copy").await;

    let other = JournalFixture::new().await;
    let copy = original.copy();
    fs::copy(other.home.path().join("toolcrib.db"), copy.database_path()).unwrap();
    copy.check_fails_closed(StoreState::Damaged, "the end is missing", "a shorter store").await;
    let registry = open(other.home.path()).await;
    for number in 0..4 {
        registry.tokens().create(&format!("t{number}"), Role::Agent, None, actor()).await.unwrap();
    }
    registry.close().await;
    let copy = original.copy();
    fs::copy(other.home.path().join("toolcrib.db"), copy.database_path()).unwrap();
    let named = format!("record {} is not the one that was written", original.records + 1);
    copy.check_fails_closed(StoreState::Damaged, &named, "a longer store").await;
}

#[tokio::test]
async fn an_unreadable_head_is_damage_and_an_absent_one_is_written() {
    let original = JournalFixture::new().await;
    for content in ["", "{", r#"{"default":{"seq":-1}}"#] {
        let copy = original.copy();
        fs::write(copy.home.path().join("head"), content).unwrap();
        copy.check_fails_closed(
            StoreState::Damaged,
            "which records the length of the journal, cannot be read",
            content,
        )
        .await;
    }
    let copy = original.copy();
    let head = copy.home.path().join("head");
    let remembered = fs::read(&head).unwrap();
    fs::remove_file(&head).unwrap();
    let registry = open(copy.home.path()).await;
    registry.store().check_ready().unwrap();
    registry.close().await;
    assert_eq!(fs::read(&head).unwrap(), remembered);
}

/// A crash between the commit and the update of the head file, or a record of an older version, is no damage.
#[tokio::test]
async fn an_outdated_head_is_no_damage() {
    let original = JournalFixture::new().await;
    let copy = original.copy();
    let registry = open(copy.home.path()).await;
    registry.tokens().create("more", Role::Agent, None, actor()).await.unwrap();
    registry.close().await;
    fs::copy(original.home.path().join("head"), copy.home.path().join("head")).unwrap();
    copy.execute_sql(
        r#"INSERT INTO journal (seq, at, actor, body)
           SELECT max(seq) + 1, 1, 'old', '{"type":"SourceEnabled","source":"mail"}' FROM journal"#,
    )
    .await;
    let registry = open(copy.home.path()).await;
    registry.store().check_ready().unwrap();
    assert_eq!(registry.inventory().version, original.records + 2);
    registry.close().await;
    assert!(fs::read_to_string(copy.home.path().join("head")).unwrap().contains(&(original.records + 2).to_string()));
}

/// Another process accepts the damage, and a running one notices.
#[tokio::test]
async fn a_running_process_stops_at_damage_and_continues_after_acceptance() {
    let original = JournalFixture::new().await;
    let copy = original.copy();
    let running = open(copy.home.path()).await;
    running.store().check_ready().unwrap();
    copy.execute_sql(&format!("DELETE FROM journal WHERE seq = {}", original.records)).await;
    wait_until("the missing end is noticed", || running.store().check_ready().is_err()).await;
    call(&running, "git__push", json!({})).await.unwrap_err();
    let other = open(copy.home.path()).await;
    let accepted = other.store().accept_damage(actor()).await.unwrap().unwrap();
    assert_eq!(accepted.revoked_tokens, ["valid"]);
    assert_eq!((accepted.disabled_tools, accepted.runtime_sources), (vec!["git/pull".into()], vec!["extra".into()]));
    assert_eq!(accepted.disabled_sources, [""; 0], "that record is lost");
    other.close().await;
    wait_until("it is noticed", || running.store().check_ready().is_ok()).await;
    assert_eq!(running.tokens().list(), []);
    call(&running, "git__push", json!({})).await.unwrap();
    call(&running, "mail__send", json!({})).await.unwrap_err();
    running.close().await;
}

#[tokio::test]
async fn a_removed_or_replaced_file_prevents_writes() {
    let original = JournalFixture::new().await;
    for swapped in [false, true] {
        let copy = original.copy();
        let running: Arc<Registry> = Arc::new(open(copy.home.path()).await);
        running.tokens().create("before", Role::Agent, None, actor()).await.unwrap();
        let moved_file = copy.home.path().join("moved.db");
        fs::rename(copy.database_path(), &moved_file).unwrap();
        if swapped {
            fs::copy(original.home.path().join("toolcrib.db"), copy.database_path()).unwrap();
        }
        // Immediately, before the periodic check: an acknowledged write must be durable.
        let refused = running.tokens().create("after", Role::Agent, None, actor()).await.unwrap_err();
        assert_eq!((refused.code, StoreState::from_error(&refused)), (Code::StoreUnavailable, StoreState::Missing));
        wait_until("it is noticed", || running.store().health().state == StoreState::Missing).await;
        assert_eq!(running.store().check_ready().unwrap_err().code, Code::StoreUnavailable);
        assert!(cached_tools(&running).contains(&"git__push".to_owned()), "the catalogue is in memory");
        running.tokens().create("after", Role::Agent, None, actor()).await.unwrap_err();
        // The file comes back.
        fs::rename(&moved_file, copy.database_path()).unwrap();
        wait_until("it is noticed", || running.store().health().state == StoreState::Ok).await;
        running.tokens().create("again", Role::Agent, None, actor()).await.unwrap();
        Arc::into_inner(running).unwrap().close().await;
    }
}
