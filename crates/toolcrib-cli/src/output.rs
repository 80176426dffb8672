//! Printing: results to stdout, everything else (errors, hints, warnings, progress) to stderr, so that stdout can be
//! piped. A closed pipe on stdout (`toolcrib tools | head`) is not an error.
//!
//! The macros `println!` and `eprintln!` are not used: they panic when the stream is closed, and the lints
//! `print_stdout` and `print_stderr` warn about them.

use std::io::{self, IsTerminal, Write};

use serde::Serialize;
use toolcrib::core::ResultExt;
use toolcrib::{Code, Result};

/// Prints the text to stdout, ends it with exactly one line break unless it has one, and flushes. Fails if stdout
/// cannot be written, for example on a full disk.
pub(crate) fn print_line(text: &str) -> Result<()> {
    let mut stdout = io::stdout().lock();
    ignore_broken_pipe(stdout.write_all(text.as_bytes()).and_then(|()| {
        if text.ends_with('\n') { stdout.flush() } else { stdout.write_all(b"\n").and_then(|()| stdout.flush()) }
    }))
}

/// Writes bytes to stdout as they are, and flushes.
pub(crate) fn print_bytes(bytes: &[u8]) -> Result<()> {
    let mut stdout = io::stdout().lock();
    ignore_broken_pipe(stdout.write_all(bytes).and_then(|()| stdout.flush()))
}

/// Prints part of a line to stdout without flushing; [`print_line`] ends the line. For output that is rendered in
/// chunks.
pub(crate) fn print_part(text: &str) -> Result<()> {
    ignore_broken_pipe(io::stdout().lock().write_all(text.as_bytes()))
}

/// Treats a closed pipe as success: the reader (`head`, a pager) closed the pipe because it needs no more.
fn ignore_broken_pipe(written: io::Result<()>) -> Result<()> {
    match written {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written.context(Code::Internal, "write to standard output"),
    }
}

/// Prints the value to stdout as one line of JSON, which `jq` and log processors can read line by line.
pub(crate) fn print_json(value: &impl Serialize) -> Result<()> {
    print_line(&serde_json::to_string(value).context(Code::Internal, "write JSON")?)
}

/// Prints a message for people to stderr.
pub(crate) fn print_stderr_line(text: &str) {
    // A failed write to stderr cannot be reported anywhere.
    let _ = writeln!(io::stderr().lock(), "{text}");
}

/// Returns whether results go to a person rather than to a pipe or file.
pub(crate) fn stdout_is_terminal() -> bool {
    io::stdout().is_terminal()
}

/// Returns whether messages go to a person, so that progress bars and questions make sense.
pub(crate) fn stderr_is_terminal() -> bool {
    io::stderr().is_terminal()
}

/// Returns whether results may be coloured.
pub(crate) fn is_stdout_colored() -> bool {
    stdout_is_terminal() && is_color_allowed()
}

/// Returns whether messages may be coloured.
pub(crate) fn is_stderr_colored() -> bool {
    stderr_is_terminal() && is_color_allowed()
}

/// Follows <https://no-color.org>: a non-empty `NO_COLOR` turns colour off.
fn is_color_allowed() -> bool {
    std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}
