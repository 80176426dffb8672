//! `toolcrib verify`: tampering is found.

use serde_json::json;
use toolcrib_testkit::programs;

use crate::support::test_project::TestProject;

#[test]
fn verify_finds_tampering() {
    for (sql, fault) in [
        ("DELETE FROM manifests", "the manifest of `one` is missing"),
        ("UPDATE manifests SET idx = substr(idx, 1, 40)", "the manifest of `one` is missing"),
        (
            "UPDATE manifests SET body = replace(body, 'Adds', 'Subs')",
            "`one`: the stored tool `add` does not match its fingerprint",
        ),
        (
            "UPDATE journal SET body = replace(body, '\"add\",', '') WHERE seq = 2",
            "record 2 cannot be read: its checksum does not match",
        ),
        ("UPDATE journal SET body = '{' WHERE seq = 2", "record 2 cannot be read"),
        ("UPDATE journal SET seq = 5 WHERE seq = 2", "records 2 to 4 are missing"),
        ("DELETE FROM definitions", "the definition of `one` is missing"),
    ] {
        let project = TestProject::new("one: { command: SERVER }");
        project.run(&["tools"]).assert_code(0);
        project.run(&["verify"]).assert_code(0).assert_stdout("the catalogue matches a replay of it");
        let whole = project.json(0, &["verify"]);
        assert_eq!(whole, json!({"records": 2, "manifests": 1, "feature_lists": 0, "unknown_events": 0, "faults": []}));
        if project.execute_sql(sql).is_none() {
            return programs::skip("verify_finds_tampering", "there is no python3");
        }
        let faults = project.json(1, &["verify"])["faults"].to_string();
        assert!(faults.contains(fault), "{sql}: {faults}");
        project.run(&["verify"]).assert_code(1).assert_stdout(fault);
        let checks = project.json(1, &["doctor"])["checks"].clone();
        let store = checks.as_array().unwrap().iter().find(|check| check["name"] == "store").unwrap();
        assert_eq!(store["status"], "fail", "{sql}: {checks}");
    }
}
