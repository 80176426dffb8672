//! A scripted MCP server on stdio for faults a real one cannot be made to show, and for counting starts.
//! Plain threads, so that it starts in a millisecond. docs/testing.md lists its flags.

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

/// The flags that only make sense on stdio.
#[derive(Debug, Default)]
struct StdioFlags {
    exit: Option<i32>,
    not_mcp: bool,
    junk: bool,
    die_on_call: bool,
    die_once: Option<PathBuf>,
    grandchildren: bool,
    pids_file: Option<PathBuf>,
    ignore_eof: bool,
    progress: Option<u64>,
    env_tool: bool,
    stderr: Option<String>,
    log_file: Option<PathBuf>,
}

fn main() {
    let mut own = StdioFlags::default();
    let mut flags = ServerFlags::from_args(|flag, words| own.parse_flag(flag, words));
    flags.extra_tools.extend(own.progress.map(|_| "slow".to_owned()));
    flags.extra_tools.extend(own.env_tool.then(|| "env".to_owned()));
    let fake = FakeServer { flags };

    fake.append_count_line(&process::id().to_string()).expect("count this start");
    if let Some(text) = &own.stderr {
        eprintln!("{text}");
    }
    if let Some(code) = own.exit {
        eprintln!("scripted-server: ends with code {code}, as told");
        process::exit(code);
    }
    if own.grandchildren {
        child_processes::start(own.pids_file.as_deref().expect("`--grandchildren` needs `--pids-file`"));
    }
    let ignore_eof = own.ignore_eof;
    if own.not_mcp {
        run_non_mcp_program()
    } else {
        session::run(fake, own)
    }
    if ignore_eof {
        loop {
            thread::park();
        }
    }
}

impl StdioFlags {
    fn parse_flag(&mut self, flag: &str, words: &mut ArgumentReader) -> bool {
        match flag {
            "--exit" => self.exit = Some(words.next_value(flag)),
            "--not-mcp" => self.not_mcp = true,
            "--junk" => self.junk = true,
            "--die-on-call" => self.die_on_call = true,
            "--die-once" => self.die_once = Some(words.next_value(flag)),
            "--grandchildren" => self.grandchildren = true,
            "--pids-file" => self.pids_file = Some(words.next_value(flag)),
            "--ignore-eof" => self.ignore_eof = true,
            "--progress" => self.progress = Some(words.next_value(flag)),
            "--env-tool" => self.env_tool = true,
            "--stderr" => self.stderr = Some(words.next_value(flag)),
            "--log-file" => self.log_file = Some(words.next_value(flag)),
            _ => return false,
        }
        true
    }

    /// Whether this call is the one to die at.
    fn should_crash(&self) -> bool {
        let first = self.die_once.as_deref().filter(|file| !file.exists());
        if let Some(file) = first {
            fs::write(file, "died once\n").expect("remember the death");
        }
        self.die_on_call || first.is_some()
    }
}

/// A program somebody took for an MCP server.
fn run_non_mcp_program() {
    let mut out = io::stdout();
    out.write_all(b"Welcome to the wrong program!\n> ").and_then(|()| out.flush()).expect("greet");
    io::copy(&mut io::stdin(), &mut io::sink()).expect("read for ever");
}
