//! `file_search`: lines of text files by a regular expression.

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

const MAX_RESULTS: usize = 1000;
const DEFAULT_MAX_RESULTS: usize = 100;
const MAX_FILE_BYTES: u64 = 4 * 1024 * 1024;
const MAX_SHOWN_LINE_CHARS: usize = 300;
/// So much of a line is matched: an engine may take the states of a pattern, thousands, times the length of the text.
const MAX_MATCHED_LINE_BYTES: usize = 16 * 1024;
/// For all lines together.
const SEARCH_TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Arguments {
    pattern: String,
    path: Option<String>,
    glob: Option<String>,
    max_results: Option<usize>,
}

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

fn search_files(roots: &Roots, arguments: &Arguments) -> Result<BuiltinOutput> {
    let regex = RegexBuilder::new(&arguments.pattern).size_limit(1 << 20).build().map_err(|error| {
        invalid_input(format!("`pattern` is not a regular expression: {}", regex_error_reason(&error)))
    })?;
    let glob = arguments.glob.as_deref().map(Glob::new).transpose()?;
    let path = arguments.path.as_deref().unwrap_or(".");
    let start = roots.resolve_existing(path)?;
    let most = arguments.max_results.unwrap_or(DEFAULT_MAX_RESULTS).clamp(1, MAX_RESULTS);
    let mut hits = LineMatches { lines: Vec::new(), max_results: most, started_at: Instant::now(), timed_out: false };
    if !start.is_dir() {
        let text = read_text(start.open_file(path)?).ok_or_else(|| {
            invalid_input(format!("`{}` is binary or too large to search", sanitize_for_message(path)))
        })?;
        hits.add_matches(&regex, &roots.display_path(start.path()), &text);
        let late = hits.timed_out;
        return Ok(hits.into_output(late));
    }

    let mut walk = DirectoryWalk::new(&start, path, usize::MAX)?;
    while !hits.is_full()
        && !hits.timed_out
        && let Some(entry) = walk.next()
    {
        let wanted = entry.file_type.is_file() && glob.as_ref().is_none_or(|glob| glob.matches(&entry.relative));
        if wanted && let Some(text) = walk.open_file(&entry).and_then(read_text) {
            hits.add_matches(&regex, &roots.display_path(&entry.path_from(&start)), &text);
        }
    }
    let late = hits.timed_out || walk.is_truncated();
    Ok(hits.into_output(late))
}

/// What a file says, unless it is binary or too large.
fn read_text(file: File) -> Option<String> {
    if file.metadata().ok()?.len() > MAX_FILE_BYTES {
        return None;
    }
    let mut bytes = Vec::new();
    // It may grow while it is read.
    file.take(MAX_FILE_BYTES).read_to_end(&mut bytes).ok()?;
    (!is_binary(&bytes)).then(|| String::from_utf8_lossy(&bytes).into_owned())
}

struct LineMatches {
    lines: Vec<String>,
    max_results: usize,
    started_at: Instant,
    /// There was no time for all lines.
    timed_out: bool,
}

impl LineMatches {
    /// One more than is shown tells that there are more.
    fn is_full(&self) -> bool {
        self.lines.len() > self.max_results
    }

    fn add_matches(&mut self, regex: &Regex, path: &str, text: &str) {
        for (index, line) in text.lines().enumerate() {
            self.timed_out |= self.started_at.elapsed() > SEARCH_TIMEOUT;
            if self.is_full() || self.timed_out {
                return;
            }
            if regex.is_match(&line[..line.floor_char_boundary(MAX_MATCHED_LINE_BYTES)]) {
                let mut short: String = line.trim_end().chars().take(MAX_SHOWN_LINE_CHARS).collect();
                if short.len() < line.trim_end().len() {
                    short.push('…');
                }
                self.lines.push(format!("{path}:{}: {short}", index + 1));
            }
        }
    }

    fn into_output(mut self, cut_short: bool) -> BuiltinOutput {
        let more = self.is_full();
        self.lines.truncate(self.max_results);
        let answer =
            BuiltinOutput::text(if self.lines.is_empty() { "(nothing found)".into() } else { self.lines.join("\n") });
        match (more, cut_short) {
            (true, _) => {
                answer.with_text(format!("(cut after {} lines; use a narrower pattern or `glob`)", self.max_results))
            }
            (false, true) => answer.with_text("(not everything was looked at; start further down with `path`)"),
            (false, false) => answer,
        }
    }
}

/// The last line of the parser's drawing is its reason.
fn regex_error_reason(error: &regex::Error) -> String {
    let text = error.to_string();
    sanitize_for_message(text.lines().last().unwrap_or_default().trim_start_matches("error: "))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Matching all of this line takes minutes.
    #[test]
    fn a_line_of_megabytes_is_matched_at_its_beginning() {
        let regex = RegexBuilder::new("[ab]*a[ab]{3000}c").size_limit(1 << 20).build().unwrap();
        let mut hits = LineMatches { lines: Vec::new(), max_results: 9, started_at: Instant::now(), timed_out: false };
        let line: String =
            (0..MAX_FILE_BYTES).map(|n| if n.wrapping_mul(2_654_435_761) & 128 == 0 { 'a' } else { 'b' }).collect();
        hits.add_matches(&regex, "f", &line);
        hits.add_matches(&Regex::new("^[ab]").unwrap(), "f", &line);
        assert_eq!(hits.lines.len(), 1);
    }
}
