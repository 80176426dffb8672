use super::*;

#[tokio::test]
async fn a_command_runs_in_the_first_root() {
    let place = TestRoot::new();
    for (command, expected, is_error) in [
        ("cat one.txt", "exit code 0\n--- stdout\neins\nuno", false),
        ("echo no >&2; exit 3", "exit code 3\n--- stderr\nno", true),
        ("true", "exit code 0", false),
        ("cat; echo done", "exit code 0\n--- stdout\ndone", false),
        ("kill -9 $$", "exit code none, ended by a signal", true),
    ] {
        let answer = place.call("bash", json!({ "command": command })).await.unwrap();
        assert_eq!((joined_text(&answer).as_str(), answer.is_error), (expected, is_error));
    }
}

#[tokio::test]
async fn output_is_bounded_and_the_command_not_held_up() {
    let place = TestRoot::new();
    let answer = place.call_text("bash", json!({ "command": "yes | head -c 1000000" })).await;
    assert!(answer.ends_with("(934464 bytes left out)"), "{}", &answer[answer.len() - 60..]);
}

#[tokio::test]
async fn a_command_that_takes_too_long_ends_with_its_tree() {
    let place = TestRoot::new();
    let command = "trap '' TERM; sleep 600 & echo $! > pid; echo started; wait; sleep 600";
    let answer = place.call("bash", json!({ "command": command, "timeout_s": 2 })).await.unwrap();
    assert_eq!(joined_text(&answer), "timed out after 2 s\n--- stdout\nstarted");
    assert!(answer.is_error);
    wait_until_ended(place.read("pid").trim());
}

#[tokio::test]
async fn a_call_that_is_given_up_ends_its_tree() {
    let place = TestRoot::new();
    let call = place.call("bash", json!({ "command": "echo $$ > pid; sleep 600" }));
    let pid = place.root.join("pid");
    let written = async {
        while std::fs::read_to_string(&pid).unwrap_or_default().trim().is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::select! {
        _ = call => panic!("it should still run"),
        () = written => {}
    }
    wait_until_ended(place.read("pid").trim());
}

fn wait_until_ended(pid: &str) {
    let deadline = Instant::now() + Duration::from_secs(20);
    // A zombie that nobody reaps has no command line.
    while std::fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|command| !command.is_empty()) {
        assert!(Instant::now() < deadline, "{pid} is still there");
        std::thread::sleep(Duration::from_millis(5));
    }
}
