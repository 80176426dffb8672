//! A directory with its own configuration and data, and `toolcrib serve` processes in it.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::thread;

use parking_lot::Mutex;
use serde_json::{Value, json};
use tempfile::TempDir;

pub(crate) use toolcrib_testkit::observe::{
    TEST_TIMEOUT, read_or_empty, send_signal, wait_until_blocking as wait_until,
};
use toolcrib_testkit::programs::Program;
pub(crate) use toolcrib_testkit::programs::program_source;

/// A temporary directory with `toolcrib.json` and a data directory.
pub(crate) struct TestWorkspace(TempDir);

impl TestWorkspace {
    /// `sources` and `expose` as in a configuration file.
    pub(crate) fn new(sources: &Value, expose: &Value) -> TestWorkspace {
        let workspace = TestWorkspace(tempfile::tempdir().unwrap());
        workspace.configure(sources, expose);
        workspace
    }

    /// Writes the configuration; a running server reloads it.
    pub(crate) fn configure(&self, sources: &Value, expose: &Value) {
        let config = json!({"sources": sources, "expose": expose});
        fs::write(self.path("toolcrib.json"), config.to_string()).unwrap();
    }

    /// Number of processes that have this directory as `HOME`.
    pub(crate) fn process_count(&self) -> usize {
        let home = format!("HOME={}", self.0.path().display());
        let is_ours = |entry: &fs::DirEntry| {
            let environment = fs::read(entry.path().join("environ")).unwrap_or_default();
            environment.split(|byte| *byte == 0).any(|variable| variable == home.as_bytes())
        };
        fs::read_dir("/proc").unwrap().filter_map(Result::ok).filter(|entry| is_ours(entry)).count()
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// The arguments that select this configuration and data directory.
    pub(crate) fn location_arguments(&self) -> Vec<String> {
        let text = |path: PathBuf| path.to_str().unwrap().to_owned();
        vec!["--config".into(), text(self.path("toolcrib.json")), "--data".into(), text(self.path("data"))]
    }

    /// A command with nothing of our environment but `PATH`.
    pub(crate) fn toolcrib(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_toolcrib"));
        command.args(arguments).args(self.location_arguments());
        self.isolate(&mut command);
        command
    }

    /// Clears the environment of a command except `PATH`, and runs it in this directory.
    pub(crate) fn isolate(&self, command: &mut Command) {
        command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default()).env("HOME", self.0.path());
        command.current_dir(self.0.path());
    }

    /// The command that serves this directory on stdio.
    pub(crate) fn stdio_command(&self) -> Vec<String> {
        [vec![env!("CARGO_BIN_EXE_toolcrib").to_owned(), "mcp".to_owned()], self.location_arguments()].concat()
    }

    /// Runs an MCP client in this directory and returns the JSON that it prints.
    #[track_caller]
    pub(crate) fn run_client(&self, (program, arguments): &Program, more_arguments: &[String]) -> Value {
        let mut command = Command::new(program);
        command.args(arguments).args(more_arguments);
        self.isolate(&mut command);
        let output = command.stdin(Stdio::null()).output().unwrap();
        let stdout = String::from_utf8_lossy(&output.stdout);
        let log = String::from_utf8_lossy(&output.stderr);
        let server_log = read_or_empty(&self.path("serve.log"));
        assert!(output.status.success(), "{more_arguments:?}\n{stdout}\n{log}\n{server_log}");
        serde_json::from_str(&stdout).unwrap_or_else(|error| panic!("{more_arguments:?}: {error}\n{stdout}\n{log}"))
    }

    /// Discovers every source, so that the test does not depend on how fast servers start.
    #[track_caller]
    pub(crate) fn discover(&self) {
        let output = self.toolcrib(&["refresh"]).stdin(Stdio::null()).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    /// Starts `toolcrib serve` on a free port and waits until it is ready.
    #[track_caller]
    pub(crate) fn serve(&self) -> ServeProcess {
        self.serve_at("127.0.0.1:0")
    }

    #[track_caller]
    pub(crate) fn serve_at(&self, address: &str) -> ServeProcess {
        self.start_listening(&["serve", "--listen", address])
    }

    /// Starts a command that serves, and waits until it has printed its address.
    #[track_caller]
    pub(crate) fn start_listening(&self, arguments: &[&str]) -> ServeProcess {
        self.start_listening_with(arguments, &[])
    }

    /// Like [`TestWorkspace::start_listening`], with environment variables.
    #[track_caller]
    pub(crate) fn start_listening_with(&self, arguments: &[&str], variables: &[(&str, &str)]) -> ServeProcess {
        // The link to the console is printed on a terminal, or as JSON.
        let mut command = self.toolcrib(&[arguments, &["--json"]].concat());
        command.envs(variables.iter().copied());
        self.start(command)
    }

    /// Starts a prepared command, and waits until it has printed its address.
    #[track_caller]
    pub(crate) fn start(&self, mut command: Command) -> ServeProcess {
        let log = fs::File::create(self.path("serve.log")).unwrap();
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log).spawn().unwrap();
        let addresses = read_addresses(child.stdout.take().unwrap());
        let url = addresses.recv_timeout(TEST_TIMEOUT).unwrap_or_default();
        let server = ServeProcess { child, url, addresses: Mutex::new(addresses) };
        assert!(!server.url.is_empty(), "it did not start: {}", read_or_empty(&self.path("serve.log")));
        server
    }
}

/// A running `toolcrib serve`; killed on drop, with everything that it started.
pub(crate) struct ServeProcess {
    child: Child,
    /// `http://127.0.0.1:PORT`.
    pub(crate) url: String,
    /// Addresses that it prints, in order.
    addresses: Mutex<mpsc::Receiver<String>>,
}

impl ServeProcess {
    /// The console link that it prints next.
    #[track_caller]
    pub(crate) fn console_url(&self) -> String {
        self.addresses.lock().recv_timeout(TEST_TIMEOUT).unwrap()
    }

    pub(crate) fn mcp_url(&self) -> String {
        format!("{}/mcp", self.url)
    }

    /// Sends a signal by name (`TERM`, `HUP`).
    pub(crate) fn signal(&self, name: &str) {
        send_signal(name, self.child.id());
    }

    /// Resident memory in kB.
    pub(crate) fn resident_kb(&self) -> u64 {
        let status = read_or_empty(Path::new(&format!("/proc/{}/status", self.child.id())));
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    }

    /// Waits for the end of the process.
    #[track_caller]
    pub(crate) fn wait_for_exit(&mut self) -> ExitStatus {
        let mut status = None;
        wait_until("the process to end", || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        status.unwrap()
    }
}

impl Drop for ServeProcess {
    fn drop(&mut self) {
        // Fails if the process has already ended.
        let _ = self.child.kill().and_then(|()| self.child.wait());
    }
}

/// Receives the printed listening address, then the console link. Reads all further output as well, so that the process
/// never blocks on a full pipe.
fn read_addresses(stdout: impl Read + Send + 'static) -> mpsc::Receiver<String> {
    let (sender, addresses) = mpsc::channel();
    thread::spawn(move || {
        for line in BufReader::new(stdout).lines().map_while(Result::ok) {
            let Ok(message) = serde_json::from_str::<Value>(&line) else { continue };
            for url in ["listening", "console"].iter().filter_map(|key| message[key].as_str()) {
                // The receiver may have been dropped.
                let _ = sender.send(url.to_owned());
            }
        }
    });
    addresses
}
