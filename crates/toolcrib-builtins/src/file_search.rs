//! `file_search`: searches lines of text files with a regular expression.
//!
//! The `regex` crate matches in linear time, but a large pattern makes the constant large, so pattern size, line
//! length, file size and total time are all bounded. A search that reaches a limit says so in its output.

use std::fs::File;
use std::io::Read;
use std::sync::Arc;
use std::time::{Duration, Instant};

use regex::{Regex, RegexBuilder};
use serde::Deserialize;
use serde_json::json;
use toolcrib_core::Result;

use super::files::{DirectoryWalk, Glob, Roots, blocking_handler, is_binary};
use super::{BuiltinDefinition, BuiltinHandler, BuiltinOutput, invalid_input, sanitize_for_message};

/// Upper bound of `max_results`.
const MAX_RESULTS: usize = 1000;
/// Value of `max_results` if it is not given.
const DEFAULT_MAX_RESULTS: usize = 100;
/// Larger files are skipped: a file is held in memory while it is searched.
const MAX_FILE_BYTES: u64 = 4 * 1024 * 1024;
/// Characters of a matching line in the output.
const MAX_SHOWN_LINE_CHARS: usize = 300;
/// Bytes of a line that are matched. The regex engine may need time proportional to the number of states (thousands)
/// times the length of the text.
const MAX_MATCHED_LINE_BYTES: usize = 16 * 1024;
/// Limit for all lines together.
const SEARCH_TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Arguments {
    /// Regular expression, matched line by line.
    pattern: String,
    /// File or directory; the first root if it is not given.
    path: Option<String>,
    /// Selects files by their path below `path`.
    glob: Option<String>,
    /// Matching lines in the output.
    max_results: Option<usize>,
}

/// Builds the tool for files below `roots`.
pub(super) fn tool(roots: Arc<Roots>) -> Result<(BuiltinDefinition, BuiltinHandler)> {
    let definition = BuiltinDefinition::new(
        "file_search",
        "Searches the lines of text files with a regular expression (RE2-like: no look-around, no back-references; \
         `(?i)` ignores case). Gives `path:line: text`. Skips .git, node_modules, binary files, files above 4 MiB and \
         links. To look for names use `file_find`. Only in the configured directories.",
        json!({
            "type": "object",
            "properties": {
                "pattern": { "type": "string", "minLength": 1, "maxLength": 1000 },
                "path": { "type": "string", "minLength": 1, "maxLength": 4096, "description": "directory or file; default: the first root" },
                "glob": { "type": "string", "minLength": 1, "maxLength": 500, "description": "only files that match, such as `*.py`" },
                "max_results": { "type": "integer", "minimum": 1, "maximum": MAX_RESULTS, "description": "default 100" },
            },
            "required": ["pattern"],
            "additionalProperties": false,
        }),
    )?
    .title("Search in files")
    .tags(["files"])
    .read_only();
    Ok((definition, blocking_handler(roots, search_files)))
}

/// Searches a file or a directory tree.
fn search_files(roots: &Roots, arguments: &Arguments) -> Result<BuiltinOutput> {
    // The size limit bounds the memory of hostile patterns.
    let regex = RegexBuilder::new(&arguments.pattern).size_limit(1 << 20).build().map_err(|error| {
        invalid_input(format!("`pattern` is not a regular expression: {}", regex_error_reason(&error)))
    })?;
    let glob = arguments.glob.as_deref().map(Glob::new).transpose()?;
    let path = arguments.path.as_deref().unwrap_or(".");
    let start = roots.resolve_existing(path)?;
    let max_results = arguments.max_results.unwrap_or(DEFAULT_MAX_RESULTS).clamp(1, MAX_RESULTS);
    let mut matches = LineMatches { lines: Vec::new(), max_results, started_at: Instant::now(), timed_out: false };
    if !start.is_dir() {
        let text = read_text(start.open_file(path)?).ok_or_else(|| {
            invalid_input(format!("`{}` is binary or too large to search", sanitize_for_message(path)))
        })?;
        matches.add_matches(&regex, &roots.display_path(start.path()), &text);
        let is_incomplete = matches.timed_out;
        return Ok(matches.into_output(is_incomplete));
    }

    // Files that cannot be opened or read as text are skipped.
    let mut walk = DirectoryWalk::new(&start, path, usize::MAX)?;
    while !matches.is_full()
        && !matches.timed_out
        && let Some(entry) = walk.next()
    {
        let is_searched = entry.file_type.is_file() && glob.as_ref().is_none_or(|glob| glob.matches(&entry.relative));
        if is_searched && let Some(text) = walk.open_file(&entry).and_then(read_text) {
            matches.add_matches(&regex, &roots.display_path(&entry.path_from(&start)), &text);
        }
    }
    let is_incomplete = matches.timed_out || walk.is_truncated();
    Ok(matches.into_output(is_incomplete))
}

/// Reads a file, unless it is binary or too large.
fn read_text(file: File) -> Option<String> {
    if file.metadata().ok()?.len() > MAX_FILE_BYTES {
        return None;
    }
    let mut bytes = Vec::new();
    // The file may grow while it is read.
    file.take(MAX_FILE_BYTES).read_to_end(&mut bytes).ok()?;
    (!is_binary(&bytes)).then(|| String::from_utf8_lossy(&bytes).into_owned())
}

/// Matching lines collected so far.
struct LineMatches {
    lines: Vec<String>,
    /// Number of lines in the output.
    max_results: usize,
    started_at: Instant,
    /// The time limit was reached before all lines were matched.
    timed_out: bool,
}

impl LineMatches {
    /// Whether more lines matched than the output may have. One extra line shows that there are more.
    fn is_full(&self) -> bool {
        self.lines.len() > self.max_results
    }

    /// Matches the lines of one file.
    fn add_matches(&mut self, regex: &Regex, path: &str, text: &str) {
        for (index, line) in text.lines().enumerate() {
            // Checked for each line: a line takes a bounded time, a file does not.
            self.timed_out |= self.started_at.elapsed() > SEARCH_TIMEOUT;
            if self.is_full() || self.timed_out {
                return;
            }
            if regex.is_match(&line[..line.floor_char_boundary(MAX_MATCHED_LINE_BYTES)]) {
                let mut shown_line: String = line.trim_end().chars().take(MAX_SHOWN_LINE_CHARS).collect();
                if shown_line.len() < line.trim_end().len() {
                    shown_line.push('…');
                }
                self.lines.push(format!("{path}:{}: {shown_line}", index + 1));
            }
        }
    }

    /// Formats the matches, with a note if some are missing.
    fn into_output(mut self, is_incomplete: bool) -> BuiltinOutput {
        let has_more = self.is_full();
        self.lines.truncate(self.max_results);
        let output =
            BuiltinOutput::text(if self.lines.is_empty() { "(nothing found)".into() } else { self.lines.join("\n") });
        match (has_more, is_incomplete) {
            (true, _) => {
                output.with_text(format!("(cut after {} lines; use a narrower pattern or `glob`)", self.max_results))
            }
            (false, true) => output.with_text("(not everything was searched; narrow the search with `path`)"),
            (false, false) => output,
        }
    }
}

/// Reason of a regex error: the last line of the multi-line message.
fn regex_error_reason(error: &regex::Error) -> String {
    let text = error.to_string();
    sanitize_for_message(text.lines().last().unwrap_or_default().trim_start_matches("error: "))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Matching this whole line would take minutes.
    #[test]
    fn only_the_beginning_of_a_very_long_line_is_matched() {
        let regex = RegexBuilder::new("[ab]*a[ab]{3000}c").size_limit(1 << 20).build().unwrap();
        let mut matches =
            LineMatches { lines: Vec::new(), max_results: 9, started_at: Instant::now(), timed_out: false };
        let line: String =
            (0..MAX_FILE_BYTES).map(|n| if n.wrapping_mul(2_654_435_761) & 128 == 0 { 'a' } else { 'b' }).collect();
        matches.add_matches(&regex, "f", &line);
        matches.add_matches(&Regex::new("^[ab]").unwrap(), "f", &line);
        assert_eq!(matches.lines.len(), 1);
    }
}
