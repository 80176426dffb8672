//! Results on stdout, everything else on stderr. A reader that has gone away is no error.

use std::io::{self, IsTerminal, Write};

use serde::Serialize;
use toolcrib::core::ResultExt;
use toolcrib::{Code, Result};

pub(crate) fn line(text: &str) -> Result<()> {
    let mut stdout = io::stdout().lock();
    said(stdout.write_all(text.as_bytes()).and_then(|()| match text.ends_with('\n') {
        true => stdout.flush(),
        false => stdout.write_all(b"\n").and_then(|()| stdout.flush()),
    }))
}

/// Part of a line; [`line`] ends it.
pub(crate) fn piece(text: &str) -> Result<()> {
    said(io::stdout().lock().write_all(text.as_bytes()))
}

fn said(written: io::Result<()>) -> Result<()> {
    match written {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written.context(Code::Internal, "write to standard output"),
    }
}

pub(crate) fn json(value: &impl Serialize) -> Result<()> {
    line(&serde_json::to_string(value).context(Code::Internal, "write JSON")?)
}

/// A message for the person at the terminal.
pub(crate) fn complain(text: &str) {
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
pub(crate) fn coloured() -> bool {
    stdout_is_terminal() && colour_is_welcome()
}

/// Whether messages may be coloured.
pub(crate) fn stderr_coloured() -> bool {
    stderr_is_terminal() && colour_is_welcome()
}

fn colour_is_welcome() -> bool {
    std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}
