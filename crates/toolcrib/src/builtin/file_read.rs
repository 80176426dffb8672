//! `file_read`: lines of a text file.

use std::io::{BufRead, BufReader, Read};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::Deserialize;
use serde_json::json;
use toolcrib_core::Result;

use super::files::{Roots, cannot, file_handler, is_binary};
use super::{Answer, Definition, Handler, invalid, shown};

const MOST_LINES: u64 = 2000;
const MOST_BYTES: usize = 128 * 1024;
const LONGEST_LINE: u64 = 64 * 1024;
const LONGEST: Duration = Duration::from_secs(10);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Arguments {
    path: String,
    offset: Option<u64>,
    limit: Option<u64>,
}

pub(super) fn tool(roots: Arc<Roots>) -> Result<(Definition, Handler)> {
    let definition = Definition::new(
        "file_read",
        "Reads a text file, or some of its lines. Gives at most 2000 lines and 128 KiB at once and says where to go \
         on. Binary files are refused. Only files in the configured directories; relative paths start in the first.",
        json!({
            "type": "object",
            "properties": {
                "path": { "type": "string", "minLength": 1, "maxLength": 4096 },
                "offset": { "type": "integer", "minimum": 1, "description": "first line to read, from 1; default 1" },
                "limit": { "type": "integer", "minimum": 1, "maximum": MOST_LINES, "description": "lines; default 2000" },
            },
            "required": ["path"],
            "additionalProperties": false,
        }),
    )?
    .title("Read a file")
    .tags(["files"])
    .reads_only();
    Ok((definition, file_handler(roots, read)))
}

fn read(roots: &Roots, arguments: &Arguments) -> Result<Answer> {
    let path = &arguments.path;
    let refuse = |error| cannot("read", path, &error);
    let file = roots.existing(path)?.open_file(path)?;
    let size = file.metadata().map_err(refuse)?.len();
    let mut reader = BufReader::with_capacity(64 * 1024, file);
    if is_binary(reader.fill_buf().map_err(refuse)?) {
        return Err(invalid(format!("`{}` is a binary file of {size} bytes; only text can be read", shown(path))));
    }

    let first = arguments.offset.unwrap_or(1).max(1);
    let limit = arguments.limit.unwrap_or(MOST_LINES).min(MOST_LINES);
    let started = Instant::now();
    let mut text = Vec::new();
    let (mut number, mut at_end) = (0, false);
    while number < first.saturating_add(limit).saturating_sub(1) && text.len() < MOST_BYTES {
        let kept = text.len();
        let length = reader.by_ref().take(LONGEST_LINE).read_until(b'\n', &mut text).map_err(refuse)?;
        if length == 0 {
            at_end = true;
            break;
        }
        if length as u64 == LONGEST_LINE && text.last() != Some(&b'\n') {
            text.extend_from_slice("…[line cut]\n".as_bytes());
            reader.skip_until(b'\n').map_err(refuse)?;
        }
        number += 1;
        if number < first {
            text.truncate(kept);
        }
        if started.elapsed() > LONGEST {
            return Err(invalid(format!("`{}` is too large to read from line {first}", shown(path))));
        }
    }
    at_end |= reader.fill_buf().map_err(refuse)?.is_empty();

    let answer = Answer::text(String::from_utf8_lossy(&text));
    Ok(match number {
        _ if number < first && first > 1 => Answer::text(format!("(the file has only {number} lines)")),
        _ if at_end => answer,
        _ => answer.and(format!("(lines {first} to {number}; the file goes on, use offset {})", number + 1)),
    })
}
