//! Rules that may exist and cannot be read: damaged, lost, of a newer version, or not written yet. Only administrators see
//! tools then, also where no rule is left to read.

use std::path::Path;
use std::sync::Arc;

use serde_json::json;
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions, Connection};
use toolcrib::core::access::Role;
use toolcrib::core::access_rules::NamedRule;
use toolcrib::core::inventory::Actor;
use toolcrib::store;
use toolcrib::testkit::{ScriptedSource, open_with_connectors};
use toolcrib::{Principal, Refresh, Registry, RegistryOptions};

use crate::support::{config, wait_until};

const SOURCES: &str = "sources: { git: { command: x } }\n";
const RULES: &str = "groups: { pull: { tools: [git__pull] } }\naccess: [{ name: all, groups: [pull] }]\n";

async fn open(data: &Path, yaml: &str) -> Registry {
    let opened = store::open_with_head(&data.to_string_lossy(), data).await.unwrap();
    let options = RegistryOptions {
        store: Some(opened.store),
        head_file: opened.head,
        environment: Vec::new(),
        ..RegistryOptions::default()
    };
    let git: Arc<ScriptedSource> = ScriptedSource::new(["push", "pull"]);
    open_with_connectors(config(yaml), options, ScriptedSource::connector_factory([("git", &git)])).await.unwrap()
}

/// A closed data directory in which the tools are known.
async fn discovered(yaml: &str) -> tempfile::TempDir {
    let home = tempfile::tempdir().unwrap();
    let registry = open(home.path(), yaml).await;
    registry.refresh(Refresh::default()).await;
    registry.close().await;
    home
}

async fn execute_sql(data: &Path, statement: &str) {
    let mut connection = SqliteConnectOptions::new().filename(data.join("toolcrib.db")).connect().await.unwrap();
    let changed = sqlx::query(AssertSqlSafe(statement.to_owned())).execute(&mut connection).await.unwrap();
    assert!(changed.rows_affected() > 0, "{statement} changes nothing");
    connection.close().await.unwrap();
}

/// Number of tools that agents, viewers and administrators see.
fn seen(registry: &Registry) -> [usize; 3] {
    [Role::Agent, Role::Viewer, Role::Admin]
        .map(|role| registry.view(&Principal::local("reader").with_role(role)).offered_tools().count())
}

#[tokio::test]
async fn a_single_rule_of_a_newer_version_withholds_all_tools() {
    let home = discovered(SOURCES).await;
    let registry = open(home.path(), SOURCES).await;
    let policy = json!({"match": {"name": "push"}, "verdict": "hide"});
    let policy = NamedRule::Policy("p".into(), serde_json::from_value(policy).unwrap());
    registry.rules().define(policy, Actor::new("test")).await.unwrap();
    assert_eq!(seen(&registry), [1, 1, 1]);
    registry.close().await;
    let newer = "UPDATE journal SET body = replace(body, '\"hide\"', '\"quarantine\"'), since = '9.0.0', \
                 checksum = NULL WHERE body LIKE '%PolicyDefined%'";
    execute_sql(home.path(), newer).await;
    let registry = open(home.path(), SOURCES).await;
    assert!(registry.rules().in_force().is_empty() && registry.rules().may_restrict_access());
    assert_eq!(seen(&registry), [0, 0, 2]);
    registry.close().await;
}

/// The configuration has the same rules, but cannot be written either.
#[tokio::test]
async fn damaged_and_lost_rules_withhold_all_tools_until_the_damage_is_accepted() {
    for damage in [
        "UPDATE journal SET body = 'x' WHERE body LIKE '%GroupDefined%' OR body LIKE '%AccessRuleDefined%'",
        "DELETE FROM journal WHERE body LIKE '%GroupDefined%' OR body LIKE '%AccessRuleDefined%'",
        "DELETE FROM journal WHERE seq >= (SELECT min(seq) FROM journal WHERE body LIKE '%GroupDefined%')",
    ] {
        let home = discovered(SOURCES).await;
        let yaml = format!("{SOURCES}{RULES}");
        let registry = open(home.path(), &yaml).await;
        assert_eq!(seen(&registry), [1, 1, 2]);
        registry.close().await;
        execute_sql(home.path(), damage).await;
        for yaml in [SOURCES, &yaml] {
            let registry = open(home.path(), yaml).await;
            assert_eq!(seen(&registry), [0, 0, 2], "{damage}");
            registry.close().await;
        }
        // A running process writes its rules once another one has accepted the damage.
        let running = open(home.path(), &yaml).await;
        let other = open(home.path(), SOURCES).await;
        other.store().accept_damage(Actor::new("test")).await.unwrap().unwrap();
        other.close().await;
        wait_until("the rules are written", || running.rules().in_force().restrict_access()).await;
        wait_until("they apply", || seen(&running) == [1, 1, 2]).await;
        running.close().await;
    }
}

/// A newer record of another type keeps the rules of the configuration from being written.
#[tokio::test]
async fn rules_that_cannot_be_written_withhold_all_tools() {
    let home = discovered(SOURCES).await;
    let newer = "INSERT INTO journal (seq, at, actor, body, critical, since)
                 SELECT max(seq) + 1, 1, 'newer', '{\"type\":\"ToolPainted\"}', 1, '9.0.0' FROM journal";
    execute_sql(home.path(), newer).await;
    for (yaml, expected) in [(SOURCES.to_owned(), [2, 2, 2]), (format!("{SOURCES}{RULES}"), [0, 0, 2])] {
        let registry = open(home.path(), &yaml).await;
        assert_eq!(seen(&registry), expected, "{yaml}");
        registry.close().await;
    }
}
