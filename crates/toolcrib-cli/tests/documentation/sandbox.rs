//! A directory in which the examples of one document run: with a home, a project directory as working directory, and
//! `toolcrib`, `npx` and `uvx` on the search path. Nothing of the user's own configuration is visible, and no package is
//! downloaded: `npx` and `uvx` start the packages that `cargo xtask test` fetched.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use tempfile::TempDir;
use toolcrib_testkit::programs;

use super::examples::{ConsoleCommand, ExampleContent, Language};
use super::output::find_mismatch;

/// Far more than any example takes on a busy machine; a command that hangs must end the test.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(120);

/// Servers that `npx -y PACKAGE` starts, by package name, with their script among the fetched packages.
const NPM_PROGRAMS: [(&str, &str); 3] = [
    ("@modelcontextprotocol/server-filesystem", "@modelcontextprotocol/server-filesystem/dist/index.js"),
    ("@modelcontextprotocol/server-memory", "@modelcontextprotocol/server-memory/dist/index.js"),
    ("@modelcontextprotocol/server-everything", "@modelcontextprotocol/server-everything/dist/index.js"),
];

pub(crate) struct Sandbox {
    directory: TempDir,
    /// Servers that examples started; they run until the end of the document.
    background: Vec<BackgroundProcess>,
}

/// A long-running command, killed with all its children when it is dropped.
struct BackgroundProcess(Child);

impl Sandbox {
    /// Creates the directories and programs. Returns `None`, and reports that the test was skipped, when the packages
    /// that examples start were not fetched.
    pub(crate) fn create(document: &str) -> Option<Sandbox> {
        let (Some(deps), Some(node)) = (programs::deps_dir(), programs::node()) else {
            programs::skip(document, "the packages of its examples were not fetched");
            return None;
        };
        let sandbox = Sandbox { directory: TempDir::new().unwrap(), background: Vec::new() };
        for folder in ["bin", "home", "project"] {
            fs::create_dir(sandbox.directory.path().join(folder)).unwrap();
        }
        fs::write(sandbox.project().join("notes.md"), "# Notes\n").unwrap();
        let toolcrib = programs::toolcrib_binary();
        // Documents use the default port; several run at once here, so each server takes a free one.
        let listen = "case \"$1 $*\" in *--listen*) ;; serve*) set -- \"$@\" --listen 127.0.0.1:0 ;; esac";
        sandbox.add_program("toolcrib", &format!("{listen}\nexec '{}' \"$@\"", toolcrib.display()));
        let mut npx = "[ \"$1\" = -y ] && shift\npackage=$1; shift\ncase \"$package\" in\n".to_owned();
        for (package, script) in NPM_PROGRAMS {
            let script = deps.join("node_modules").join(script);
            npx.push_str(&format!("{package}) exec '{}' '{}' \"$@\" ;;\n", node.display(), script.display()));
        }
        npx.push_str("*) echo \"npx: no such package in the tests: $package\" >&2; exit 1 ;;\nesac");
        sandbox.add_program("npx", &npx);
        sandbox.add_program("uvx", &format!("package=$1; shift\nexec '{}'/venv/bin/$package \"$@\"", deps.display()));
        Some(sandbox)
    }

    pub(crate) fn run(&mut self, example: &ExampleContent) -> Result<(), String> {
        match example {
            ExampleContent::Session(commands) => commands.iter().try_for_each(|command| self.run_command(command)),
            ExampleContent::Script(script) => self.run_script(script),
            ExampleContent::File { name, text } => self.write_file(name, text),
            ExampleContent::Configuration { extension, text } => self.check_configuration(extension, text),
            ExampleContent::Program { language, text } => self.check_syntax(*language, text),
            ExampleContent::Json(text) => {
                serde_json::from_str::<serde_json::Value>(text).map(drop).map_err(|error| error.to_string())
            }
        }
    }

    fn run_command(&mut self, ConsoleCommand { command, output }: &ConsoleCommand) -> Result<(), String> {
        let mut child = self.start(command)?;
        let lines = read_lines(child.0.stdout.take().unwrap());
        let deadline = Instant::now() + COMMAND_TIMEOUT;
        if is_server(command) {
            let printed = receive_lines(&lines, output.len(), deadline);
            self.background.push(child);
            return find_mismatch(output, &printed).map_or(Ok(()), |fault| Err(format!("`{command}`: {fault}")));
        }
        let printed = receive_lines(&lines, usize::MAX, deadline);
        if Instant::now() >= deadline {
            return Err(format!("`{command}` did not end; it printed\n{}", printed.join("\n")));
        }
        find_mismatch(output, &printed).map_or(Ok(()), |fault| Err(format!("`{command}`: {fault}")))
    }

    fn run_script(&mut self, script: &str) -> Result<(), String> {
        let mut child = self.start(&format!("set -e\n{script}"))?;
        let printed =
            receive_lines(&read_lines(child.0.stdout.take().unwrap()), usize::MAX, Instant::now() + COMMAND_TIMEOUT);
        let status = child.0.wait().map_err(|error| error.to_string())?;
        if status.success() { Ok(()) } else { Err(format!("{status}; it printed\n{}", printed.join("\n"))) }
    }

    fn write_file(&self, name: &str, text: &str) -> Result<(), String> {
        let path = match name.strip_prefix("~/") {
            Some(below_home) => self.home().join(below_home),
            None => self.project().join(name),
        };
        let folder = path.parent().ok_or("the file has no directory")?;
        fs::create_dir_all(folder).and_then(|()| fs::write(&path, text)).map_err(|error| error.to_string())
    }

    /// Loads a configuration beside the others of the document. Files that it names need not exist.
    fn check_configuration(&self, extension: &str, text: &str) -> Result<(), String> {
        let path = self.directory.path().join(format!("example.{extension}"));
        fs::write(&path, text).map_err(|error| error.to_string())?;
        let output =
            self.command("bash").arg("-c").arg(format!("toolcrib config --config '{}'", path.display())).output();
        let output = output.map_err(|error| error.to_string())?;
        if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).into_owned()) }
    }

    fn check_syntax(&self, language: Language, text: &str) -> Result<(), String> {
        let (name, check) = match language {
            Language::Python => ("example.py", "python3 -c 'import ast, sys; ast.parse(open(sys.argv[1]).read())'"),
            Language::JavaScript => ("example.mjs", "node --check"),
        };
        let path = self.directory.path().join(name);
        fs::write(&path, text).map_err(|error| error.to_string())?;
        let output = self.command("bash").arg("-c").arg(format!("{check} '{}'", path.display())).output();
        let output = output.map_err(|error| error.to_string())?;
        if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).into_owned()) }
    }

    /// Starts a command line in a shell of its own process group, with its errors among its output.
    fn start(&self, command: &str) -> Result<BackgroundProcess, String> {
        let mut shell = self.command("bash");
        shell.arg("-c").arg(format!("exec 2>&1\n{command}"));
        shell.stdin(Stdio::null()).stdout(Stdio::piped()).process_group(0);
        shell.spawn().map(BackgroundProcess).map_err(|error| format!("start `{command}`: {error}"))
    }

    fn command(&self, program: &str) -> Command {
        let root = self.directory.path();
        let system = std::env::var("PATH").unwrap_or_default();
        let mut command = Command::new(program);
        command.current_dir(self.project()).env_clear().env("LANG", "C.UTF-8").env("HOME", self.home());
        command.env("PATH", format!("{}:{system}", root.join("bin").display()));
        command
    }

    fn add_program(&self, name: &str, script: &str) {
        let path = self.directory.path().join("bin").join(name);
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn project(&self) -> PathBuf {
        self.directory.path().join("project")
    }

    fn home(&self) -> PathBuf {
        self.directory.path().join("home")
    }
}

/// Whether a command runs until it is stopped.
fn is_server(command: &str) -> bool {
    ["toolcrib serve", "toolcrib demo --serve", "toolcrib demo --api"].iter().any(|server| command.starts_with(server))
}

fn read_lines(stdout: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(stdout).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                break;
            }
        }
    });
    receiver
}

/// Receives up to `count` lines, until the end of the output or the deadline.
fn receive_lines(lines: &Receiver<String>, count: usize, deadline: Instant) -> Vec<String> {
    let mut received = Vec::new();
    while received.len() < count {
        match lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(line) => received.push(line),
            Err(_) => break,
        }
    }
    received
}

impl Drop for BackgroundProcess {
    fn drop(&mut self) {
        // The shell is the leader of a process group; its id is that of the group.
        let group = format!("-{}", self.0.id());
        // Both fail when the process has ended already.
        let _ = Command::new("kill").arg("--").arg(group).stderr(Stdio::null()).status();
        let _ = self.0.wait();
    }
}

/// Paths that a document names are those of the sandbox.
#[test]
fn files_are_written_below_the_sandbox() {
    let Some(sandbox) = Sandbox::create("sandbox") else { return };
    sandbox.write_file("a/b.txt", "x").unwrap();
    sandbox.write_file("~/c.txt", "y").unwrap();
    assert_eq!(fs::read_to_string(sandbox.directory.path().join("project/a/b.txt")).unwrap(), "x");
    assert_eq!(fs::read_to_string(Path::new(&sandbox.home()).join("c.txt")).unwrap(), "y");
}
