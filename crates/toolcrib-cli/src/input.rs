//! Input of commands besides their arguments: files and standard input.

use std::io::Read;
use std::path::Path;

use toolcrib::core::ResultExt;
use toolcrib::{Code, Error, Result};

/// Reads the value of an option: the text itself, the content of a file (`@FILE`), or stdin (`-`).
pub(crate) fn read_option_text(value: &str) -> Result<String> {
    match value.strip_prefix('@') {
        Some(path) => read_file(Path::new(path)),
        None if value == "-" => read_stdin(),
        None => Ok(value.to_owned()),
    }
}

/// Reads a text file. Fails with `BAD_REQUEST`, because the command line names it.
pub(crate) fn read_file(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).map_err(|error| {
        Error::new(Code::BadRequest, format!("cannot read `{}`: {error}", path.display())).with_cause(error)
    })
}

/// Reads stdin to its end.
pub(crate) fn read_stdin() -> Result<String> {
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text).context(Code::BadRequest, "cannot read standard input")?;
    Ok(text)
}
