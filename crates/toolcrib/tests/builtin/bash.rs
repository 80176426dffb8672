use super::*;

#[tokio::test]
async fn a_command_runs_in_the_first_root() {
    let test_root = TestRoot::new();
    for (command, expected, is_error) in [
        ("cat one.txt", "exit code 0\n--- stdout\neins\nuno", false),
        ("echo no >&2; exit 3", "exit code 3\n--- stderr\nno", true),
        ("true", "exit code 0", false),
        ("cat; echo done", "exit code 0\n--- stdout\ndone", false),
        ("kill -9 $$", "exit code none, ended by a signal", true),
    ] {
        let output = test_root.call("bash", json!({ "command": command })).await.unwrap();
        assert_eq!((joined_text(&output).as_str(), output.is_error), (expected, is_error));
    }
}

#[tokio::test]
async fn output_is_bounded_and_does_not_block_the_command() {
    let test_root = TestRoot::new();
    let output = test_root.call_text("bash", json!({ "command": "yes | head -c 1000000" })).await;
    assert!(output.ends_with("(934464 bytes omitted)"), "{}", &output[output.len() - 60..]);
}

#[tokio::test]
async fn a_timeout_ends_the_process_tree_of_a_command() {
    let test_root = TestRoot::new();
    let command = "trap '' TERM; echo started; sleep 600 & echo $! > pid; wait; sleep 600";
    let call = test_root.call("bash", json!({ "command": command, "timeout_s": 40 }));
    let pid = test_root.root.join("pid");
    let timeout = async {
        wait_until("the process has started", || !read_lines(&pid).is_empty()).await;
        skip_time(Duration::from_secs(40)).await;
    };
    let output = tokio::join!(call, timeout).0.unwrap();
    assert_eq!(joined_text(&output), "timed out after 40 s\n--- stdout\nstarted");
    assert!(output.is_error);
    wait_until("the process to end", || !is_running(test_root.read("pid").trim())).await;
}

#[tokio::test]
async fn a_dropped_call_ends_its_process_tree() {
    let test_root = TestRoot::new();
    let call = test_root.call("bash", json!({ "command": "echo $$ > pid; sleep 600" }));
    let pid = test_root.root.join("pid");
    let pid_written = wait_until("the process has started", || !read_lines(&pid).is_empty());
    tokio::select! {
        _ = call => panic!("it should still run"),
        () = pid_written => {}
    }
    wait_until("the process to end", || !is_running(test_root.read("pid").trim())).await;
}
