//! The guard from outside: what it passes on, what it reports, and that no process survives it.
#![cfg(target_os = "linux")]

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt};
use toolcrib::guard::{GuardExe, Launch, ServerProcess, clean_env};
use toolcrib_core::Code;
use toolcrib_testkit::observe::{TEST_TIMEOUT, wait_until, wait_until_blocking};

use crate::examples::example_path;

/// Starts a child, a grandchild, an orphan and processes in other sessions, all ignoring SIGTERM and SIGHUP. Each
/// prints a line once it runs.
const HOSTILE_SCRIPT: &str = r#"
    trap '' TERM HUP INT
    sh -c 'echo grandchild; while :; do sleep 60; done' &
    (sh -c 'echo orphan; while :; do sleep 60; done' &)
    (setsid sh -c 'echo escapee; (setsid sh -c "echo escapee; sleep 600" &); while :; do sleep 60; done' &)
    echo child
    while :; do sleep 60; done
"#;
const HOSTILE_PROCESSES: usize = 5;

#[test]
fn nothing_survives_a_kill_of_the_gateway() {
    let mark = test_mark("killed");
    let mut gateways: Vec<_> = (0..3)
        .map(|_| {
            let mut command = Command::new(example_path("guarded"));
            command.arg(HOSTILE_SCRIPT).env("GUARD_MARK", &mark).stdout(Stdio::piped()).stdin(Stdio::null());
            command.spawn().unwrap()
        })
        .collect();
    for gateway in &mut gateways {
        let lines = BufReader::new(gateway.stdout.as_mut().unwrap()).lines();
        assert_eq!(lines.take(HOSTILE_PROCESSES).count(), HOSTILE_PROCESSES);
    }
    assert!(marked_processes(&mark).len() >= 3 * (HOSTILE_PROCESSES + 1), "all processes run");

    for gateway in &mut gateways {
        gateway.kill().unwrap();
        gateway.wait().unwrap();
    }
    wait_until_all_ended(&mark);
}

#[tokio::test]
async fn nothing_survives_a_dropped_server() {
    let mark = test_mark("dropped");
    let server = start_hostile(&mark).await;
    drop(server);
    wait_until_all_ended(&mark);
}

#[tokio::test]
async fn a_server_that_does_not_exit_is_stopped() {
    let mark = test_mark("stopped");
    let server = start_hostile(&mark).await;
    assert!(server.stop(Duration::from_millis(50)).await.is_some());
    wait_until_all_ended(&mark);
}

#[tokio::test]
async fn processes_left_by_a_server_end_with_it() {
    let mark = test_mark("left");
    let mut server = start_script(example_guard(), &mark, "(setsid sleep 600 &); sleep 600 & exit 7").await;
    assert_eq!(server.wait().await.unwrap().code(), Some(7));
    assert_eq!(marked_processes(&mark), BTreeMap::new());
}

#[tokio::test]
async fn without_a_guard_the_process_group_is_killed() {
    let mark = test_mark("group");
    let mut server = start_script(GuardExe::None, &mark, "trap '' TERM; sh -c 'sleep 600' & echo up; sleep 600").await;
    server.stdout.as_mut().unwrap().read_u8().await.unwrap();
    server.stop(Duration::from_millis(50)).await;
    wait_until_all_ended(&mark);

    let server = start_script(GuardExe::None, &mark, "sleep 600 & sleep 600").await;
    drop(server);
    wait_until_all_ended(&mark);
}

#[tokio::test]
async fn the_exit_code_is_the_servers() {
    for guard in [example_guard(), GuardExe::None] {
        let mut server = start_script(guard, "code", "exit 3").await;
        assert_eq!(server.wait().await.unwrap().code(), Some(3));
    }
    // Exit code 127 of the server itself is no failed start.
    let mut server = start_script(example_guard(), "code", "exit 127").await;
    assert_eq!(server.wait().await.unwrap().code(), Some(127));
    let mut server = start_script(example_guard(), "code", "kill -9 $$").await;
    assert_eq!(server.wait().await.unwrap().code(), Some(128 + 9));
}

#[tokio::test]
async fn streams_and_their_ends_are_passed_through() {
    let mut server = start_script(example_guard(), "streams", "cat; echo bye >&2; exec >&- 2>&-; sleep 600").await;
    let mut stdin = server.stdin.take().unwrap();
    stdin.write_all(b"hello").await.unwrap();
    drop(stdin);
    let mut out = String::new();
    let mut err = String::new();
    server.stdout.take().unwrap().read_to_string(&mut out).await.unwrap();
    // The server still runs, so EOF shows that the guard does not hold the streams.
    server.stderr.take().unwrap().read_to_string(&mut err).await.unwrap();
    assert_eq!((out.as_str(), err.as_str()), ("hello", "bye\n"));
}

#[tokio::test]
async fn a_server_that_reads_eof_exits_by_itself() {
    let server = start_script(example_guard(), "eof", "cat; exit 5").await;
    assert_eq!(server.stop(TEST_TIMEOUT).await.unwrap().code(), Some(5));
}

#[tokio::test]
async fn a_server_gets_three_streams_and_nothing_else() {
    let mut server = start_script(example_guard(), "fds", "ls /proc/self/fd").await;
    let mut out = String::new();
    server.stdout.take().unwrap().read_to_string(&mut out).await.unwrap();
    // Descriptor 3 is the directory listing of `ls`.
    assert_eq!(out, "0\n1\n2\n3\n");
}

#[tokio::test]
async fn a_failed_start_has_a_reason() {
    let directory = tempfile::tempdir().unwrap();
    let not_executable_path = directory.path().join("plain").display().to_string();
    std::fs::write(&not_executable_path, "").unwrap();
    let not_executable = format!("cannot start `{not_executable_path}`: permission denied; is the file executable?");
    let missing = PathBuf::from("/nonexistent/directory");
    for guard in [example_guard(), GuardExe::None] {
        for (program, cwd, message) in [
            (
                "no-such-program-here",
                None,
                "cannot start `no-such-program-here`: not found on PATH; install it, or give its full path",
            ),
            (
                "/no/such/program",
                None,
                "cannot start `/no/such/program`: there is no such file, or the interpreter it names is missing",
            ),
            (&not_executable_path, None, &not_executable),
            ("sh", Some(missing.clone()), "cannot start `sh`: its `cwd` `/nonexistent/directory` is not a directory"),
        ] {
            let launch = Launch { program: program.into(), cwd, env: test_environment("none"), ..Launch::default() };
            let error = guard.start(launch).await.unwrap_err();
            assert_eq!((error.code, error.message.as_str()), (Code::ToolUnavailable, message));
            assert!(!error.is_retryable());
        }
    }
}

#[tokio::test]
async fn a_binary_that_cannot_be_its_own_guard_says_so() {
    assert_eq!(GuardExe::detect(), GuardExe::None);
    let error = GuardExe::CurrentExe.start(Launch { program: "true".into(), ..Launch::default() }).await.unwrap_err();
    assert!(error.message.contains("run_if_requested"), "{error}");
}

#[tokio::test]
async fn a_guard_ignores_polite_signals_and_its_death_is_noticed() {
    let mark = test_mark("guard");
    let mut server = start_script(example_guard(), &mark, "cat; sleep 600").await;
    let guard = guard_pid(&server);
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        kill_process(guard, signal).unwrap();
    }
    server.stdin.as_mut().unwrap().write_all(b"x").await.unwrap();
    assert_eq!(server.stdout.as_mut().unwrap().read_u8().await.unwrap(), b'x');

    kill_process(guard, Signal::KILL).unwrap();
    server.wait().await.unwrap();
    wait_until_all_ended(&mark);
}

/// A killed guard cannot clean up; all processes of its server end nevertheless.
#[tokio::test]
async fn nothing_survives_a_kill_of_the_guard() {
    for signals in [&[Signal::KILL][..], &[Signal::STOP, Signal::KILL]] {
        let mark = test_mark("guard-killed");
        let mut server = start_hostile(&mark).await;
        let guard = guard_pid(&server);
        signals.iter().for_each(|signal| kill_process(guard, *signal).unwrap());
        // Without waiting for the server first.
        wait_until_all_ended_async(&mark).await;
        assert!(!server.wait().await.unwrap().success());
    }
}

#[tokio::test]
async fn a_process_without_its_environment_is_found_when_the_guard_is_killed() {
    let script = "(setsid env -i /bin/sh -c 'echo $$; exec /bin/sleep 600' &); sleep 600";
    let mut server = start_script(example_guard(), "bare", script).await;
    let mut line = String::new();
    tokio::io::BufReader::new(server.stdout.as_mut().unwrap()).read_line(&mut line).await.unwrap();
    let mut other = KillOnDrop(Command::new("sleep").arg("600").spawn().unwrap());
    kill_process(guard_pid(&server), Signal::KILL).unwrap();
    server.wait().await.unwrap();
    assert!(!is_alive(line.trim()), "it has ended once the server was waited for");
    assert!(other.0.try_wait().unwrap().is_none(), "a process without guard keeps running");
}

#[tokio::test]
async fn a_stopped_guard_does_not_delay_cleanup() {
    let mark = test_mark("guard-stopped");
    let server = start_hostile(&mark).await;
    kill_process(guard_pid(&server), Signal::STOP).unwrap();
    assert!(server.stop(Duration::ZERO).await.is_some());
    wait_until_all_ended(&mark);

    let server = start_hostile(&mark).await;
    kill_process(guard_pid(&server), Signal::STOP).unwrap();
    drop(server);
    wait_until_all_ended_async(&mark).await;
}

/// If both are killed together, no process is left to find the tree; the kernel kills the server itself.
#[test]
fn a_server_ends_when_its_guard_and_the_gateway_are_killed() {
    let mark = test_mark("both");
    let mut command = Command::new(example_path("guarded"));
    command.arg("echo $$; exec sleep 600").env("GUARD_MARK", &mark).stdout(Stdio::piped()).stdin(Stdio::null());
    let mut gateway = command.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(gateway.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    let guard = parent_pid(line.trim());
    // Stopped first, so that the guard does not notice the end of the gateway.
    kill_process(guard, Signal::STOP).unwrap();
    gateway.kill().unwrap();
    gateway.wait().unwrap();
    kill_process(guard, Signal::KILL).unwrap();
    wait_until_all_ended(&mark);
}

/// An unrelated limit on file locks leaves room for a mark below it.
#[test]
fn a_server_is_marked_below_an_existing_limit() {
    for (limit, marked) in [("1000", 500..1_000), ("1", 0..1)] {
        let mut command = Command::new("bash");
        command.args(["-c", "ulimit -x \"$0\" && exec \"$1\" \"$2\"", limit]).arg(example_path("guarded"));
        command
            .arg("awk '/file locks/ { print $5 }' /proc/self/limits; exec sleep 600")
            .stdout(Stdio::piped())
            .stdin(Stdio::null());
        let mut gateway = KillOnDrop(command.spawn().unwrap());
        let mut line = String::new();
        BufReader::new(gateway.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let mark: u64 = line.trim().parse().unwrap();
        assert!(marked.contains(&mark), "{mark}");
    }
}

#[test]
fn the_environment_of_a_server_is_clean() {
    let variables = |names: &[&str]| -> Vec<(OsString, OsString)> {
        names.iter().map(|name| (name.into(), "value".into())).collect()
    };
    let usual = ["PATH", "HOME", "USER", "LANG", "TMPDIR", "XDG_DATA_HOME", "https_proxy", "NO_PROXY"];
    let secret = [
        "AWS_SECRET_ACCESS_KEY",
        "GITHUB_TOKEN",
        "PATHS",
        "home",
        "Http_Proxy",
        "LC_ALL",
        "LD_PRELOAD",
        "TOOLCRIB_X",
        "XDG_SESSION_ID",
    ];
    let all = variables(&[usual.as_slice(), &secret].concat());
    assert_eq!(clean_env(all.clone().into_iter(), &[]), variables(&usual));
    assert_eq!(
        clean_env(all.into_iter(), &["GITHUB_TOKEN".into(), "ABSENT".into()]),
        variables(&[usual.as_slice(), &["GITHUB_TOKEN"]].concat())
    );
}

#[tokio::test]
async fn a_server_sees_only_the_given_environment() {
    let mut server = start_script(example_guard(), "seen", "env").await;
    let mut out = String::new();
    server.stdout.take().unwrap().read_to_string(&mut out).await.unwrap();
    let mut names: Vec<_> = out.lines().filter_map(|line| Some(line.split_once('=')?.0)).collect();
    names.sort_unstable();
    // The shell itself adds PWD.
    assert_eq!(names, ["GUARD_MARK", "PATH", "PWD"]);
}

#[test]
fn the_guard_rejects_manual_arguments() {
    for arguments in [
        &["__guard"][..],
        &["__guard", "x", "1", "--", "true"],
        &["__guard", "1", "1", "--", "true"],
        &["__guard", "3", "--", "true"],
    ] {
        let output = Command::new(example_path("guarded")).args(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert_eq!(output.stdout, b"");
    }
}

fn example_guard() -> GuardExe {
    GuardExe::Path(example_path("guarded"))
}

async fn start_script(guard: GuardExe, mark: &str, script: &str) -> ServerProcess {
    let args = ["-c", script].map(OsString::from).to_vec();
    guard.start(Launch { program: "sh".into(), args, env: test_environment(mark), cwd: None }).await.unwrap()
}

async fn start_hostile(mark: &str) -> ServerProcess {
    let mut server = start_script(example_guard(), mark, HOSTILE_SCRIPT).await;
    let mut lines = 0;
    while lines < HOSTILE_PROCESSES {
        lines += usize::from(server.stdout.as_mut().unwrap().read_u8().await.unwrap() == b'\n');
    }
    server
}

fn test_environment(mark: &str) -> Vec<(OsString, OsString)> {
    vec![("PATH".into(), std::env::var_os("PATH").unwrap()), ("GUARD_MARK".into(), mark.into())]
}

/// Value of an environment variable that all processes of a tree inherit.
fn test_mark(name: &str) -> String {
    format!("{name}-{}", std::process::id())
}

fn marked_processes(mark: &str) -> BTreeMap<String, String> {
    let needle = format!("GUARD_MARK={mark}\0");
    let processes = std::fs::read_dir("/proc").unwrap().filter_map(|entry| {
        let path = entry.ok()?.path();
        let environment = std::fs::read(path.join("environ")).ok()?;
        let command = std::fs::read(path.join("cmdline")).ok()?;
        let found = environment.windows(needle.len()).any(|window| window == needle.as_bytes());
        found.then(|| (path.display().to_string(), String::from_utf8_lossy(&command).replace('\0', " ")))
    });
    processes.collect()
}

fn guard_pid(server: &ServerProcess) -> Pid {
    parent_pid(&server.pid().unwrap().to_string())
}

fn parent_pid(pid: &str) -> Pid {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    Pid::from_raw(stat.rsplit(") ").next().unwrap().split(' ').nth(1).unwrap().parse().unwrap()).unwrap()
}

/// Whether a process exists and is no zombie.
fn is_alive(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(") ").next().is_some_and(|rest| !rest.is_empty() && !rest.starts_with('Z'))
}

/// Kills a child process of the test when dropped.
struct KillOnDrop(std::process::Child);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

/// As [`wait_until_all_ended`], without blocking the runtime.
async fn wait_until_all_ended_async(mark: &str) {
    wait_until("all processes to end", || marked_processes(mark).is_empty()).await;
}

fn wait_until_all_ended(mark: &str) {
    wait_until_blocking("all processes to end", || marked_processes(mark).is_empty());
}
