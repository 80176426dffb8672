//! Scripted MCP server on stdio that shows faults on demand and counts its starts. docs/testing.md lists its flags. It
//! uses threads instead of an async runtime, so that it starts within a millisecond.
//!
//! Order of a start: parse the flags, count the start, print to stderr, exit if requested, start the child processes,
//! serve. So a test can observe a start even if the server exits at once.

#![expect(clippy::expect_used, clippy::print_stderr, reason = "a test fixture may fail loudly")]

use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process;
use std::thread;

use toolcrib_testkit::fake::{ArgumentReader, FakeServer, ServerFlags};

mod session;

mod child_processes;
mod output;

/// Flags that only the stdio server has.
#[derive(Debug, Default)]
struct StdioFlags {
    /// Exit at once with this code.
    exit: Option<i32>,
    /// Behave like a program that is not an MCP server.
    not_mcp: bool,
    /// Write lines that are not messages to stdout.
    junk: bool,
    /// Crash at every `tools/call`.
    die_on_call: bool,
    /// Crash at the first `tools/call`, and leave this marker file.
    die_once: Option<PathBuf>,
    /// Start child processes that are hard to end.
    grandchildren: bool,
    /// File for the names and process ids of these.
    pids_file: Option<PathBuf>,
    /// Keep running after stdin was closed.
    ignore_eof: bool,
    /// List the tool `slow`, with this many progress notifications.
    progress: Option<u64>,
    /// List the tool `env`, which returns the environment.
    env_tool: bool,
    /// Text to print to stderr at the start.
    stderr: Option<String>,
    /// File that gets a line for every method received, and one for the reason of a cancellation.
    log_file: Option<PathBuf>,
}

fn main() {
    let mut stdio_flags = StdioFlags::default();
    let mut flags = ServerFlags::from_args(|flag, arguments| stdio_flags.parse_flag(flag, arguments));
    flags.extra_tools.extend(stdio_flags.progress.map(|_| "slow".to_owned()));
    flags.extra_tools.extend(stdio_flags.env_tool.then(|| "env".to_owned()));
    let fake = FakeServer { flags };

    fake.append_count_line(&process::id().to_string()).expect("count this start");
    if let Some(text) = &stdio_flags.stderr {
        eprintln!("{text}");
    }
    if let Some(code) = stdio_flags.exit {
        eprintln!("scripted-server: exits with code {code}, as requested");
        process::exit(code);
    }
    if stdio_flags.grandchildren {
        child_processes::start(stdio_flags.pids_file.as_deref().expect("`--grandchildren` needs `--pids-file`"));
    }
    let ignore_eof = stdio_flags.ignore_eof;
    if stdio_flags.not_mcp {
        run_non_mcp_program()
    } else {
        session::run(fake, stdio_flags)
    }
    if ignore_eof {
        // Like real servers that keep running without a client: only a signal ends this one.
        loop {
            thread::park();
        }
    }
}

impl StdioFlags {
    /// Parses one flag; false if it is unknown.
    fn parse_flag(&mut self, flag: &str, arguments: &mut ArgumentReader) -> bool {
        match flag {
            "--exit" => self.exit = Some(arguments.next_value(flag)),
            "--not-mcp" => self.not_mcp = true,
            "--junk" => self.junk = true,
            "--die-on-call" => self.die_on_call = true,
            "--die-once" => self.die_once = Some(arguments.next_value(flag)),
            "--grandchildren" => self.grandchildren = true,
            "--pids-file" => self.pids_file = Some(arguments.next_value(flag)),
            "--ignore-eof" => self.ignore_eof = true,
            "--progress" => self.progress = Some(arguments.next_value(flag)),
            "--env-tool" => self.env_tool = true,
            "--stderr" => self.stderr = Some(arguments.next_value(flag)),
            "--log-file" => self.log_file = Some(arguments.next_value(flag)),
            _ => return false,
        }
        true
    }

    /// Whether to crash at this call. With `--die-once`, only while the marker file does not exist.
    fn should_crash(&self) -> bool {
        let first = self.die_once.as_deref().filter(|file| !file.exists());
        if let Some(file) = first {
            fs::write(file, "died once\n").expect("write the marker file");
        }
        self.die_on_call || first.is_some()
    }
}

/// Behaves like a program that is not an MCP server: prints a prompt and reads until stdin closes.
fn run_non_mcp_program() {
    let mut out = io::stdout();
    out.write_all(b"Welcome to the wrong program!\n> ").and_then(|()| out.flush()).expect("write the prompt");
    io::copy(&mut io::stdin(), &mut io::sink()).expect("read until the end of stdin");
}
