//! `toolcrib store`, `backup` and `restore` through the real binary.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use toolcrib_testkit::programs;

use crate::support::test_project::execute_sql;
use crate::support::test_server::{TestWorkspace, wait_until};

/// A workspace with one source and a disabled tool.
fn workspace() -> TestWorkspace {
    let workspace = TestWorkspace::new(&json!({ "one": { "command": programs::scripted_server() } }), &json!({}));
    workspace.discover();
    run(&workspace, 0, &["disable", "one__echo"]);
    workspace
}

/// A command with the data directory of the workspace, unless the arguments name another one: given twice, the last one
/// would win.
fn command(workspace: &TestWorkspace, arguments: &[&str]) -> Command {
    if !arguments.contains(&"--data") {
        return workspace.toolcrib(arguments);
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_toolcrib"));
    command.args(arguments).arg("--config").arg(workspace.path("toolcrib.json"));
    workspace.isolate(&mut command);
    command
}

/// Runs a command that must end with this exit code; returns its stdout, or for a failure its stderr.
#[track_caller]
fn run(workspace: &TestWorkspace, code: i32, arguments: &[&str]) -> String {
    let output = command(workspace, arguments).stdin(Stdio::null()).output().unwrap();
    let [stdout, stderr] = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {stdout}\n{stderr}");
    if code == 0 { stdout } else { stderr }
}

#[track_caller]
fn run_json(workspace: &TestWorkspace, arguments: &[&str]) -> Value {
    serde_json::from_str(&run(workspace, 0, &[arguments, &["--json"]].concat())).unwrap()
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn a_backup_is_restored_beside_the_store_that_it_replaces() {
    let workspace = workspace();
    let backup = workspace.path("backup.db");
    let report = run_json(&workspace, &["backup", text(&backup)]);
    let records = report["records"].as_u64().unwrap();
    assert_eq!(
        report,
        json!({"records": records, "position": records, "manifests": 1, "features": 0, "definitions": 1, "verified": true})
    );
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        assert_eq!(fs::metadata(&backup).unwrap().permissions().mode() & 0o777, 0o600);
    }
    let refused = run(&workspace, 1, &["backup", text(&backup)]);
    assert!(refused.contains("exists already"), "{refused}");

    run(&workspace, 0, &["enable", "one__echo"]);
    let refused = run(&workspace, 1, &["restore", text(&backup)]);
    assert!(refused.contains("`--replace`"), "{refused}");
    let restored = run_json(&workspace, &["restore", text(&backup), "--replace"]);
    let kept = restored["set_aside"].as_str().unwrap();
    assert!(kept.contains("toolcrib.db.replaced-") && Path::new(kept).is_file(), "{kept}");
    assert_eq!(restored["records"], records);
    let verified = run_json(&workspace, &["verify"]);
    assert_eq!((&verified["records"], &verified["faults"]), (&json!(records), &json!([])));
    let history = run(&workspace, 0, &["history"]);
    assert!(history.contains("echo") && !history.contains("enabled one__echo"), "{history}");

    // A new data directory is filled without a question.
    let other = workspace.path("other");
    run(&workspace, 0, &["--data", text(&other), "restore", text(&backup)]);
    assert_eq!(run_json(&workspace, &["--data", text(&other), "verify"])["faults"], json!([]));
    let missing = run(&workspace, 1, &["restore", text(&workspace.path("none.db"))]);
    assert!(missing.contains("is missing"), "{missing}");
}

#[test]
fn a_running_server_can_be_backed_up_but_not_restored() {
    let workspace = workspace();
    let server = workspace.serve();
    let backup = workspace.path("backup.db");
    let printed = run(&workspace, 0, &["backup", text(&backup)]);
    assert!(printed.contains("copied and verified") && printed.contains("1 tool list, 1 definition"), "{printed}");
    let refused = run(&workspace, 1, &["restore", text(&backup), "--replace"]);
    assert!(refused.contains("is in use by another process; stop it first"), "{refused}");
    drop(server);
    run(&workspace, 0, &["restore", text(&backup), "--replace"]);
    assert_eq!(run_json(&workspace, &["verify"])["faults"], json!([]));
}

#[test]
fn a_store_is_copied_only_into_an_empty_one() {
    let workspace = workspace();
    let (data, other) = (workspace.path("data"), workspace.path("other"));
    let copy = ["store", "copy", "--from", text(&data), "--to", text(&other)];
    let report = run_json(&workspace, &copy);
    assert_eq!(report["verified"], true);
    assert_eq!(run_json(&workspace, &copy), report, "such as after the command was killed before its output");
    let refused = run(&workspace, 2, &["store", "copy", "--from", text(&data), "--to", text(&data)]);
    assert!(refused.contains("name the same store"), "{refused}");
    assert_eq!(run_json(&workspace, &["--data", text(&other), "verify"])["records"], report["records"]);
    run(&workspace, 0, &["--data", text(&other), "token", "create", "ci", "--role", "agent"]);
    let refused = run(&workspace, 1, &copy);
    assert!(refused.contains("has records already"), "{refused}");
    let refused = run(&workspace, 2, &["store", "copy", "--from", text(&data), "--to", "memory:"]);
    assert!(refused.contains("`memory:`"), "{refused}");

    let cut = "DELETE FROM journal WHERE seq = (SELECT max(seq) FROM journal)";
    if execute_sql(&data.join("toolcrib.db"), cut).is_none() {
        return programs::skip("a_store_is_copied_only_into_an_empty_one", "there is no python3");
    }
    for arguments in [
        vec!["store", "copy", "--from", text(&data), "--to", text(&workspace.path("third"))],
        vec!["backup", text(&workspace.path("damaged.db"))],
    ] {
        let refused = run(&workspace, 1, &arguments);
        assert!(refused.contains("the end is missing") && refused.contains("toolcrib verify"), "{refused}");
    }
    assert!(!workspace.path("damaged.db").exists());
}

#[test]
fn a_store_is_pruned_and_reports_its_schema() {
    let workspace = workspace();
    let nothing = run(&workspace, 0, &["store", "prune", "--dry-run"]);
    assert_eq!(nothing.trim(), "there is nothing to remove");
    let leftovers = "INSERT INTO definitions (name, body) VALUES ('x', '{}');
        INSERT INTO manifests (fingerprint, idx, body) VALUES ('x', '', '');
        INSERT INTO checks (source, at, body) VALUES ('gone', 1, '{}');";
    if execute_sql(&workspace.path("data/toolcrib.db"), leftovers).is_none() {
        return programs::skip("a_store_is_pruned_and_reports_its_schema", "there is no python3");
    }
    let counted = run(&workspace, 0, &["store", "prune", "--dry-run"]);
    assert_eq!(counted.trim(), "would remove 1 check, 1 definition, 1 tool list");
    let expected = json!({"checks": 1, "counts": 0, "token_uses": 0, "logins": 0, "definitions": 1, "manifests": 1});
    assert_eq!(run_json(&workspace, &["store", "prune"]), expected);
    assert_eq!(run(&workspace, 0, &["store", "prune"]).trim(), "there is nothing to remove");
    assert_eq!(run_json(&workspace, &["verify"])["faults"], json!([]));

    let migrated = run(&workspace, 0, &["store", "migrate", "--contract"]);
    assert!(migrated.starts_with("the store has schema version ") && migrated.contains("nothing to finish"));
    assert_eq!(run_json(&workspace, &["store", "migrate"])["contract_pending"], false);
}

/// SIGKILL at various times: an unfinished copy is never used, and the same command finishes it.
#[cfg(target_os = "linux")]
#[test]
fn a_killed_copy_is_continued() {
    const RECORDS: usize = 20_000;
    let workspace = workspace();
    let data = workspace.path("data");
    // Without checksums, as versions before wrote them: SQL cannot compute one.
    let grow = format!(
        "WITH RECURSIVE n(seq) AS (SELECT (SELECT max(seq) FROM journal) + 1 UNION ALL SELECT seq + 1 FROM n WHERE seq < {RECORDS})
         INSERT INTO journal (seq, at, actor, body, critical, since)
         SELECT seq, seq, 'cli', '{{\"type\":\"SourceEnabled\",\"source\":\"one\"}}', 0, '0.1.0' FROM n;"
    );
    if execute_sql(&data.join("toolcrib.db"), &grow).is_none() {
        return programs::skip("a_killed_copy_is_continued", "there is no python3");
    }
    let full = workspace.path("full");
    let expected = run_json(&workspace, &["store", "copy", "--from", text(&data), "--to", text(&full)]);
    assert_eq!(expected["records"], RECORDS);
    // Written bytes tell how far a copy is: pages reach the file by way of the log.
    let written_bytes = |directory: &Path| -> u64 {
        let sizes = ["toolcrib.db", "toolcrib.db-wal"].map(|name| fs::metadata(directory.join(name)));
        sizes.into_iter().flatten().map(|metadata| metadata.len()).sum()
    };
    let full_bytes = written_bytes(&full);

    let no_sources = workspace.path("no-sources.json");
    fs::write(&no_sources, "{}").unwrap();
    let target = workspace.path("target");
    let copy = ["store", "copy", "--from", text(&data), "--to", text(&target)];
    let mut killed = 0;
    for percent in [0, 1, 20, 50, 80, 100] {
        let mut process =
            workspace.toolcrib(&copy).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        wait_until("the copy has written enough", || {
            written_bytes(&target) * 100 >= full_bytes * percent || process.try_wait().unwrap().is_some()
        });
        process.kill().unwrap();
        if process.wait().unwrap().success() {
            fs::remove_dir_all(&target).unwrap();
            continue;
        }
        killed += 1;
        if target.join("toolcrib.db").is_file() {
            // Without the sources of the workspace, which the command would declare.
            let mut verify = Command::new(env!("CARGO_BIN_EXE_toolcrib"));
            verify.args(["verify", "--json", "--data", text(&target), "--config", text(&no_sources)]);
            workspace.isolate(&mut verify);
            let output = verify.stdin(Stdio::null()).output().unwrap();
            let stdout = String::from_utf8(output.stdout).unwrap();
            if output.status.success() {
                // Before the mark is set, the target is an empty store.
                assert_eq!(serde_json::from_str::<Value>(&stdout).unwrap()["records"], 0, "{stdout}");
                fs::remove_dir_all(&target).unwrap();
            } else {
                assert!(stdout.contains("is not finished"), "{stdout}");
            }
        }
    }
    assert!(killed > 0);
    assert_eq!(run_json(&workspace, &copy), expected);
    assert_eq!(run_json(&workspace, &["--data", text(&target), "verify"])["records"], RECORDS);
}
