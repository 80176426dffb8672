//! SIGKILL while rules change: afterwards exactly the old or the new set is in the journal, and the store is sound.
#![cfg(target_os = "linux")]

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use serde_json::{Value, json};
use toolcrib_testkit::programs;

use crate::support::sleep_before_kill;

const ROUNDS: usize = 30;
/// Enough rules to notice a part of a set.
const GROUP_COUNT: usize = 30;

/// Names and definitions of rules of the configuration, by their kind, and the policy that is defined at run time.
#[derive(Debug, PartialEq)]
struct RecordedRules {
    configured: BTreeMap<String, Value>,
    policy: Option<Value>,
}

#[test]
fn a_killed_change_of_rules_leaves_the_old_or_the_new_set() {
    let home = tempfile::tempdir().unwrap();
    let home = home.path();
    for version in ["a", "b"] {
        write_version(home, version);
    }
    assert!(set_policy(home, "a").status().unwrap().success());
    let mut current = read_rules(home);
    let started_at = Instant::now();
    assert!(set_policy(home, "b").status().unwrap().success());
    // The change is killed at a random time within this window, which adapts so that all results occur on any machine.
    let mut window = started_at.elapsed();
    let mut next = read_rules(home);
    assert_eq!((current.configured.len(), next.configured.len()), (GROUP_COUNT + 1, GROUP_COUNT + 1));
    assert_ne!(current.configured, next.configured);
    assert!(set_policy(home, "a").status().unwrap().success());

    let (mut old, mut new) = (0, 0);
    for round in 0..ROUNDS {
        let version = if next.policy == Some(policy("b")) { "b" } else { "a" };
        let mut change = set_policy(home, version).spawn().unwrap();
        sleep_before_kill(window.mul_f64(rand::random::<f64>()));
        change.kill().unwrap();
        let succeeded = change.wait().unwrap().success();
        let found = read_rules(home);
        // The rules of the file are one transaction, the policy is the next one.
        let is_known = [&current.configured, &next.configured].contains(&&found.configured);
        assert!(is_known, "round {round}: a part of a set: {found:?}");
        if found.policy == next.policy {
            assert_eq!(found.configured, next.configured, "round {round}: the policy was written first");
            new += 1;
            window = window.mul_f64(0.8);
            std::mem::swap(&mut current, &mut next);
        } else {
            assert_eq!(found.policy, current.policy, "round {round}");
            assert!(!succeeded, "round {round}: it reported success");
            old += 1;
            window = window.mul_f64(1.2);
        }
        // With the rules of the last change that was written, so that it changes nothing itself.
        let version = if found.configured == next.configured { &next } else { &current };
        let version = if version.policy == Some(policy("b")) { "b" } else { "a" };
        assert!(toolcrib(home, version, &["verify"]).status().unwrap().success(), "round {round}");
    }
    assert!(old > 0 && new > 0, "{old} old, {new} new");
}

/// Writes a configuration whose rules all differ from those of the other version, and a policy.
fn write_version(home: &Path, version: &str) {
    let name = |number| format!("group-{version}-{number}");
    let groups: serde_json::Map<String, Value> =
        (0..GROUP_COUNT).map(|number| (name(number), json!({"title": version}))).collect();
    let access = json!([{"name": "all", "groups": [name(0)]}]);
    let config = json!({"sources": {"core": {"builtin": "all"}}, "groups": groups, "access": access});
    std::fs::write(home.join(format!("toolcrib.{version}.json")), config.to_string()).unwrap();
    std::fs::write(home.join(format!("policy.{version}.json")), policy(version).to_string()).unwrap();
}

fn policy(version: &str) -> Value {
    json!({"match": {"name": version}, "verdict": "deny"})
}

/// Returns the command that replaces the rules of the file, and then the policy.
fn set_policy(home: &Path, version: &str) -> Command {
    let file = home.join(format!("policy.{version}.json"));
    toolcrib(home, version, &["policy", "set", "changing", "--file", file.to_str().unwrap()])
}

fn toolcrib(home: &Path, version: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(programs::toolcrib_binary());
    command.args(arguments).arg("--data").arg(home.join("data"));
    command.arg("--config").arg(home.join(format!("toolcrib.{version}.json")));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

/// Replays the journal, without a configuration that would change it.
fn read_rules(home: &Path) -> RecordedRules {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let records = runtime.block_on(async {
        let store = toolcrib::store::open(home.join("data").to_str().unwrap()).await.unwrap();
        let records = store.records(0, usize::MAX >> 1).await.unwrap();
        store.close().await;
        records
    });
    let mut rules = RecordedRules { configured: BTreeMap::new(), policy: None };
    for record in records {
        let event: Value = serde_json::from_str(&record.body).unwrap();
        let text = |key: &str| event[key].as_str().unwrap_or_default().to_owned();
        match text("type").as_str() {
            "GroupDefined" => drop(rules.configured.insert(text("group"), event["definition"].clone())),
            "GroupRemoved" => drop(rules.configured.remove(&text("group"))),
            "AccessRuleDefined" => drop(rules.configured.insert("access".to_owned(), event["definition"].clone())),
            "AccessRuleRemoved" => drop(rules.configured.remove("access")),
            "PolicyDefined" => rules.policy = Some(event["definition"].clone()),
            _ => {}
        }
    }
    rules
}
