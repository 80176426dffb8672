//! `file_read`: reads lines of a text file.
//!
//! Lines are read in portions; the output says which `offset` continues. Memory is bounded by [`MAX_OUTPUT_BYTES`] and
//! one line, however large the file is.

use std::io::{BufRead, BufReader, Read};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::Deserialize;
use serde_json::json;
use toolcrib_core::Result;

use super::files::{Roots, blocking_handler, io_error, is_binary};
use super::{BuiltinDefinition, BuiltinHandler, BuiltinOutput, invalid_input, sanitize_for_message};

/// Maximum number of lines in the output, and default of `limit`.
const MAX_LINES: u64 = 2000;
/// Reading stops at the end of the line that exceeds this size.
const MAX_OUTPUT_BYTES: usize = 128 * 1024;
/// Longer lines are cut.
const MAX_LINE_BYTES: u64 = 64 * 1024;
/// Bounds the search for the first line in a huge file.
const READ_TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Arguments {
    path: String,
    /// First line to read, counted from 1.
    offset: Option<u64>,
    /// Number of lines.
    limit: Option<u64>,
}

/// Builds the tool for files below `roots`.
pub(super) fn tool(roots: Arc<Roots>) -> Result<(BuiltinDefinition, BuiltinHandler)> {
    let definition = BuiltinDefinition::new(
        "file_read",
        "Reads a text file, or some of its lines. Gives at most 2000 lines and 128 KiB at once and says where to go \
         on. Binary files are refused. Only files in the configured directories; relative paths start in the first.",
        json!({
            "type": "object",
            "properties": {
                "path": { "type": "string", "minLength": 1, "maxLength": 4096 },
                "offset": { "type": "integer", "minimum": 1, "description": "first line to read, from 1; default 1" },
                "limit": { "type": "integer", "minimum": 1, "maximum": MAX_LINES, "description": "lines; default 2000" },
            },
            "required": ["path"],
            "additionalProperties": false,
        }),
    )?
    .title("Read a file")
    .tags(["files"])
    .read_only();
    Ok((definition, blocking_handler(roots, read_lines)))
}

/// Reads up to `limit` lines from line `offset`, and says where to continue.
fn read_lines(roots: &Roots, arguments: &Arguments) -> Result<BuiltinOutput> {
    let path = &arguments.path;
    let read_error = |error| io_error("read", path, &error);
    let file = roots.resolve_existing(path)?.open_file(path)?;
    let size = file.metadata().map_err(read_error)?.len();
    let mut reader = BufReader::with_capacity(64 * 1024, file);
    if is_binary(reader.fill_buf().map_err(read_error)?) {
        return Err(invalid_input(format!(
            "`{}` is a binary file of {size} bytes; only text can be read",
            sanitize_for_message(path)
        )));
    }

    // Lines are counted from 1. Skipped lines are read, too: a text file has no index.
    let first = arguments.offset.unwrap_or(1).max(1);
    let limit = arguments.limit.unwrap_or(MAX_LINES).min(MAX_LINES);
    let started_at = Instant::now();
    let mut text = Vec::new();
    let mut lines_read = 0;
    let mut is_at_end = false;
    while lines_read < first.saturating_add(limit).saturating_sub(1) && text.len() < MAX_OUTPUT_BYTES {
        let previous_len = text.len();
        let length = reader.by_ref().take(MAX_LINE_BYTES).read_until(b'\n', &mut text).map_err(read_error)?;
        if length == 0 {
            is_at_end = true;
            break;
        }
        // An overlong line is cut, and its rest skipped without buffering it.
        if length as u64 == MAX_LINE_BYTES && text.last() != Some(&b'\n') {
            text.extend_from_slice("…[line cut]\n".as_bytes());
            reader.skip_until(b'\n').map_err(read_error)?;
        }
        lines_read += 1;
        // Lines before the first requested one are only counted.
        if lines_read < first {
            text.truncate(previous_len);
        }
        if started_at.elapsed() > READ_TIMEOUT {
            return Err(invalid_input(format!(
                "`{}` is too large to read from line {first}",
                sanitize_for_message(path)
            )));
        }
    }
    is_at_end |= reader.fill_buf().map_err(read_error)?.is_empty();

    // Beyond the end, mid-file or at the end: each case tells the agent what to do next.
    let output = BuiltinOutput::text(String::from_utf8_lossy(&text));
    let lines = if lines_read == 1 { "line" } else { "lines" };
    Ok(match lines_read {
        _ if lines_read < first && first > 1 => {
            BuiltinOutput::text(format!("(the file has only {lines_read} {lines})"))
        }
        _ if is_at_end => output,
        _ => output
            .with_text(format!("(lines {first} to {lines_read}; the file continues, use offset {})", lines_read + 1)),
    })
}
