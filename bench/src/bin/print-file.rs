//! Prints a file: the minimum that any program with the same output has to do.

use std::io::{self, Write};

fn main() -> io::Result<()> {
    let file = std::env::args_os().nth(1).ok_or_else(|| io::Error::other("usage: print-file FILE"))?;
    let bytes = std::fs::read(file)?;
    io::stdout().lock().write_all(&bytes)
}
