//! Results on stdout, everything else on stderr. A reader that has gone away is no error.

use std::io::{self, IsTerminal, Write};

use serde::Serialize;
use toolcrib::core::ResultExt;
use toolcrib::{Code, Result};

pub(crate) fn print_line(text: &str) -> Result<()> {
    let mut stdout = io::stdout().lock();
    ignore_broken_pipe(stdout.write_all(text.as_bytes()).and_then(|()| match text.ends_with('\n') {
        true => stdout.flush(),
        false => stdout.write_all(b"\n").and_then(|()| stdout.flush()),
    }))
}

/// Part of a line; [`line`] ends it.
pub(crate) fn print_part(text: &str) -> Result<()> {
    ignore_broken_pipe(io::stdout().lock().write_all(text.as_bytes()))
}

fn ignore_broken_pipe(written: io::Result<()>) -> Result<()> {
    match written {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written.context(Code::Internal, "write to standard output"),
    }
}

pub(crate) fn print_json(value: &impl Serialize) -> Result<()> {
    print_line(&serde_json::to_string(value).context(Code::Internal, "write JSON")?)
}

/// A message for the person at the terminal.
pub(crate) fn print_stderr_line(text: &str) {
    // There is nowhere left to say that stderr is closed.
    let _closed = writeln!(io::stderr().lock(), "{text}");
}

pub(crate) fn stdout_is_terminal() -> bool {
    io::stdout().is_terminal()
}

pub(crate) fn stderr_is_terminal() -> bool {
    io::stderr().is_terminal()
}

/// Whether results may be coloured.
pub(crate) fn is_stdout_colored() -> bool {
    stdout_is_terminal() && is_color_allowed()
}

/// Whether messages may be coloured.
pub(crate) fn is_stderr_colored() -> bool {
    stderr_is_terminal() && is_color_allowed()
}

fn is_color_allowed() -> bool {
    std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}
