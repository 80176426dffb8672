//! Sources that hang: how long commands wait for them, what they print meanwhile, and what they say about it.
#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "what the tests share is a test too")]

mod support;

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use support::bench::Bench;

/// Longer than any wait that these tests expect, and shorter than the deadline of a source that hangs.
const TEST_DEADLINE: Duration = Duration::from_secs(40);
const LONG_TIMEOUT_SETTING: &str = "discovery_timeout: 90s";

/// One source that answers and one that hangs when it is listed.
fn hanging_project() -> Bench {
    Bench::new(&format!(
        "well: {{ command: SERVER }}
         hangs: {{ command: SERVER, args: [--hang, list, --count-file, starts], cwd: ., {LONG_TIMEOUT_SETTING} }}"
    ))
}

fn count_starts(bench: &Bench) -> usize {
    support::starts(&bench.path("project/starts"))
}

fn spawn_toolcrib(bench: &Bench, arguments: &[&str]) -> Child {
    let home = bench.path("home");
    let mut command = Command::new(env!("CARGO_BIN_EXE_toolcrib"));
    command.args(["--config", "toolcrib.yaml"]).args(arguments).current_dir(bench.path("project"));
    command.env("HOME", &home).env("XDG_CONFIG_HOME", home.join(".config")).env("XDG_DATA_HOME", home.join("data"));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

#[track_caller]
fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + TEST_DEADLINE;
    while !is_so() {
        assert!(Instant::now() < deadline, "it never came to this: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[track_caller]
fn assert_incomplete(answer: &Value, reason: &str) {
    let missing = &answer["missing"];
    assert_eq!((missing.as_array().map(Vec::len), &missing[0]["source"]), (Some(1), &json!("hangs")), "{answer}");
    assert!(missing[0]["reason"].as_str().unwrap().contains(reason), "{answer}");
}

/// One hanging source held every list up for 120 s the first time and for 30 s whenever its pause ended.
#[test]
fn a_source_that_hung_is_not_waited_for_again() {
    let bench = hanging_project();
    let began = Instant::now();
    let first = bench.json(0, &["tools", "--wait", "1s"]);
    assert_eq!(first["tools"].as_array().unwrap().len(), 3, "{first}");
    assert_incomplete(&first, "it was not discovered within 1s");
    assert_eq!(count_starts(&bench), 1);
    let listed = bench.json(0, &["sources"]);
    let hangs = listed["sources"].as_array().unwrap().iter().find(|source| source["id"] == "hangs").unwrap().clone();
    assert_eq!((&hangs["status"], &hangs["failures"]), (&json!("failed"), &json!(1)), "{hangs}");

    for round in 0..6 {
        let command: &[&str] = [&["tools"][..], &["search", "add"], &["context"]][round % 3];
        assert_incomplete(&bench.json(0, command), "it was not discovered within");
    }
    assert!(began.elapsed() < TEST_DEADLINE, "{:?}", began.elapsed());
    bench.run(&["tools"]).ended(0).says("well__add").complains("hangs failed");
}

#[test]
fn zero_waits_for_nothing_and_starts_nothing() {
    let bench = hanging_project();
    let answer = bench.json(0, &["tools", "--wait", "0s"]);
    assert_eq!(answer["missing"].as_array().unwrap().len(), 2, "{answer}");
    assert_eq!(count_starts(&bench), 0);
    bench.run(&["tools", "--wait", "soon"]).ended(2).complains("write a duration such as `30s`");
    bench.run(&["tools", "--wait", "1s", "--cached"]).ended(2);
    bench.run(&["tools", "--wait", "0", "--source", "hangs"]).complains("the tools of hangs are not known");
    bench.run(&["tools", "--wait", "99999999999h", "--source", "well"]).ended(0).says("well__add");
}

#[test]
fn a_complete_answer_says_nothing_of_what_is_missing() {
    let bench = Bench::new("well: { command: SERVER }");
    for command in [&["tools"][..], &["search", "add"], &["context"]] {
        assert_eq!(bench.json(0, command).get("missing"), None);
    }
}

#[test]
fn an_incomplete_list_is_not_locked() {
    let bench = hanging_project();
    bench.run(&["lock", "--wait", "1s"]).ended(1).complains("`hangs`");
    bench.run(&["tools", "--wait", "1s"]).ended(0).complains("hangs failed: it was not discovered within 1s");
    assert!(!bench.path("project/toolcrib.lock").exists());
    bench.write("toolcrib.lock", &bench.run(&["lock", "--cached", "--json"]).ended(0).stdout);
    bench.run(&["diff", "--ci", "--wait", "1s"]).ended(1).complains("did not answer in time: `hangs`");
}

#[test]
fn an_interrupt_prints_what_is_known() {
    let bench = hanging_project();
    bench.run(&["refresh", "well"]).ended(0);
    let child = spawn_toolcrib(&bench, &["tools", "--json"]);
    wait_until("it is asked", || count_starts(&bench) == 1);
    // The wait begins before the server is started.
    let killed = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(killed.success());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(answer["tools"].as_array().unwrap().len(), 3, "{answer}");
    assert_incomplete(&answer, "it was not discovered within");
    assert_eq!(bench.left_behind(), Vec::<String>::new());
}

/// A call to a name that no list has waited for every source that hangs.
#[test]
fn a_call_waits_for_no_other_source_and_within_its_own_deadline() {
    let bench = hanging_project();
    let began = Instant::now();
    bench.run(&["call", "well__echo", "text=hello"]).ended(0).says("hello");
    bench.run(&["call", "nothing"]).ended(1).complains("no tool named `nothing`; not discovered yet: `hangs`");
    bench.run(&["call", "elsewhere__nothing"]).ended(1).complains("no tool named");
    bench.run(&["call", "well__nothing"]).ended(1).complains("no tool named");
    assert_eq!(count_starts(&bench), 0, "the one that hangs was not asked");
    bench.run(&["call", "hangs__x", "--timeout", "1s"]).ended(1).complains("it was not discovered within 1s");
    assert_incomplete(&bench.json(0, &["tools"]), "it was not discovered within");
    assert!(began.elapsed() < TEST_DEADLINE, "{:?}", began.elapsed());
}

/// On a terminal a slow source is left to another process, which goes on after the command has ended.
#[test]
fn on_a_terminal_a_slow_source_is_discovered_in_the_background() {
    let bench = Bench::new(&format!(
        "well: {{ command: SERVER }}
         slow: {{ command: SERVER, args: [--delay-ms, \"3000\", --count-file, starts], cwd: ., {LONG_TIMEOUT_SETTING} }}"
    ));
    let home = bench.path("home");
    let line = format!("{} --config toolcrib.yaml tools", env!("CARGO_BIN_EXE_toolcrib"));
    let mut command = Command::new("script");
    command.args(["-qec", &line, "/dev/null"]).current_dir(bench.path("project"));
    command.env("HOME", &home).env("XDG_CONFIG_HOME", home.join(".config")).env("XDG_DATA_HOME", home.join("data"));
    let output = command.stdin(Stdio::null()).output().unwrap();
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{told}");
    assert!(told.contains("well__add") && !told.contains("slow__add"), "{told}");
    assert!(told.contains("still being discovered in the background: slow"), "{told}");
    wait_until("the other process has discovered it", || {
        bench.json(0, &["tools", "--cached"])["tools"].as_array().unwrap().len() == 6
    });
    assert_eq!(count_starts(&bench), 2, "once for the command, once for the process it left it to");
    wait_until("nothing is left", || bench.left_behind().is_empty());
}

/// A list that was known before was locked as if the source had answered.
#[test]
fn an_old_list_of_a_source_that_hangs_now_is_not_locked() {
    let config = |more: &str| format!("turns: {{ command: SERVER, args: [{more}], ttl: 1ms, {LONG_TIMEOUT_SETTING} }}");
    let bench = Bench::new(&config(""));
    bench.run(&["lock"]).ended(0);
    bench.configure(&config("--hang, list"));
    bench.run(&["lock", "--wait", "1s"]).ended(1).complains("`turns`");
    bench.run(&["diff", "--ci", "--wait", "1s"]).ended(1).complains("`turns`");
}

#[test]
fn a_first_call_discovers_its_source_and_keeps_its_server() {
    let bench = Bench::new("well: { command: SERVER, args: [--count-file, starts], cwd: . }");
    bench.run(&["call", "well__echo", "text=hello"]).ended(0).says("hello");
    assert_eq!(count_starts(&bench), 1);
}
