//! Runs the real binary in isolation: a temporary home and project directory, and no environment variable but `PATH`.

pub(crate) mod http;
pub(crate) mod test_project;
pub(crate) mod test_server;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;
use toolcrib_testkit::observe::read_lines;
use toolcrib_testkit::programs;

/// A temporary home with a project in it, and further environment variables.
pub(crate) struct Toolcrib {
    root: TempDir,
    variables: Vec<(String, String)>,
}

/// Exit code and output of a run.
#[derive(Debug)]
pub(crate) struct CliOutput {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Toolcrib {
    pub(crate) fn new() -> Toolcrib {
        let root = TempDir::new().unwrap();
        std::fs::create_dir_all(root.path().join("home/project")).unwrap();
        Toolcrib { root, variables: Vec::new() }
    }

    pub(crate) fn home(&self) -> PathBuf {
        self.root.path().canonicalize().unwrap().join("home")
    }

    /// The working directory of every run.
    pub(crate) fn project(&self) -> PathBuf {
        self.home().join("project")
    }

    /// Writes a file below the project, or below the home when the name begins with `~/`.
    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = match name.strip_prefix("~/") {
            Some(name) => self.home().join(name),
            None => self.project().join(name),
        };
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        path
    }

    pub(crate) fn set_variable(&mut self, name: &str, value: &str) {
        self.variables.push((name.to_owned(), value.to_owned()));
    }

    pub(crate) fn run<S: AsRef<OsStr>>(&self, arguments: &[S]) -> CliOutput {
        let variables: Vec<(&str, &str)> = self.variables.iter().map(|(name, value)| (&**name, &**value)).collect();
        run(&self.project(), &self.home(), arguments, &variables)
    }

    /// Like [`Toolcrib::run`]; asserts exit code 0.
    #[track_caller]
    pub(crate) fn run_ok<S: AsRef<OsStr>>(&self, arguments: &[S]) -> CliOutput {
        let outcome = self.run(arguments);
        assert_eq!(outcome.code, 0, "{outcome:?}");
        outcome
    }

    /// Runs a command with `--json` and parses its stdout, whatever the exit code.
    #[track_caller]
    pub(crate) fn json(&self, arguments: &[&str]) -> serde_json::Value {
        let outcome = self.run(&[&["--json"], arguments].concat());
        serde_json::from_str(&outcome.stdout).unwrap_or_else(|error| panic!("{error}: {outcome:?}"))
    }
}

/// Runs the real binary with nothing of our environment but `PATH`.
pub(crate) fn run<S: AsRef<OsStr>>(
    project: &Path,
    home: &Path,
    arguments: &[S],
    variables: &[(&str, &str)],
) -> CliOutput {
    let mut command = Command::new(env!("CARGO_BIN_EXE_toolcrib"));
    command.args(arguments).current_dir(project).stdin(Stdio::null());
    command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default()).env("HOME", home);
    command.env("XDG_CONFIG_HOME", home.join(".config")).env("XDG_DATA_HOME", home.join("data"));
    command.envs(variables.iter().copied());
    let output = command.output().unwrap();
    CliOutput {
        code: output.status.code().unwrap_or(-1),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

impl CliOutput {
    #[track_caller]
    pub(crate) fn assert_code(&self, code: i32) -> &CliOutput {
        assert_eq!(self.code, code, "\n{}\n{}", self.stdout, self.stderr);
        self
    }

    #[track_caller]
    pub(crate) fn assert_stdout(&self, expected: &str) -> &CliOutput {
        assert!(self.stdout.contains(expected), "`{expected}` is not in\n{}\n{}", self.stdout, self.stderr);
        self
    }

    #[track_caller]
    pub(crate) fn assert_stderr(&self, expected: &str) -> &CliOutput {
        assert!(self.stderr.contains(expected), "`{expected}` is not in\n{}", self.stderr);
        self
    }
}

/// Path of the scripted MCP server, as text for a configuration.
pub(crate) fn scripted_server() -> String {
    programs::scripted_server().to_string_lossy().into_owned()
}

/// How often a scripted server with `--count-file` was started.
pub(crate) fn count_starts(count_file: &Path) -> usize {
    read_lines(count_file).len()
}

/// Waits before a process is killed. The time of the kill is the subject of such a test, so this uses the real clock.
#[cfg(target_os = "linux")]
pub(crate) fn sleep_before_kill(time: std::time::Duration) {
    std::thread::sleep(time);
}
