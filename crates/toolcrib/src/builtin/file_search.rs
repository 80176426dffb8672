//! `file_search`: lines of text files by a regular expression.

use std::fs::File;
use std::io::Read;
use std::sync::Arc;
use std::time::{Duration, Instant};

use regex::{Regex, RegexBuilder};
use serde::Deserialize;
use serde_json::json;
use toolcrib_core::Result;

use super::files::{Glob, Roots, Walk, file_handler, is_binary};
use super::{Answer, Definition, Handler, invalid, shown};

const MOST: usize = 1000;
const USUAL: usize = 100;
const LARGEST_FILE: u64 = 4 * 1024 * 1024;
const LONGEST_LINE: usize = 300;
/// So much of a line is matched: an engine may take the states of a pattern, thousands, times the length of the text.
const MAX_MATCHED_LEN: usize = 16 * 1024;
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

pub(super) fn tool(roots: Arc<Roots>) -> Result<(Definition, Handler)> {
    let definition = Definition::new(
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
                "max_results": { "type": "integer", "minimum": 1, "maximum": MOST, "description": "default 100" },
            },
            "required": ["pattern"],
            "additionalProperties": false,
        }),
    )?
    .title("Search in files")
    .tags(["files"])
    .reads_only();
    Ok((definition, file_handler(roots, search)))
}

fn search(roots: &Roots, arguments: &Arguments) -> Result<Answer> {
    let regex = RegexBuilder::new(&arguments.pattern)
        .size_limit(1 << 20)
        .build()
        .map_err(|error| invalid(format!("`pattern` is not a regular expression: {}", reason(&error))))?;
    let glob = arguments.glob.as_deref().map(Glob::new).transpose()?;
    let path = arguments.path.as_deref().unwrap_or(".");
    let start = roots.existing(path)?;
    let most = arguments.max_results.unwrap_or(USUAL).clamp(1, MOST);
    let mut hits = Hits { lines: Vec::new(), most, started: Instant::now(), late: false };
    if !start.is_dir() {
        let text = text(start.open_file(path)?)
            .ok_or_else(|| invalid(format!("`{}` is binary or too large to search", shown(path))))?;
        hits.add(&regex, &roots.shown(start.path()), &text);
        let late = hits.late;
        return Ok(hits.answer(late));
    }

    let mut walk = Walk::new(&start, path, usize::MAX)?;
    while !hits.full()
        && !hits.late
        && let Some(entry) = walk.next()
    {
        let wanted = entry.kind.is_file() && glob.as_ref().is_none_or(|glob| glob.matches(&entry.relative));
        if wanted && let Some(text) = walk.open_file(&entry).and_then(text) {
            hits.add(&regex, &roots.shown(&entry.path_from(&start)), &text);
        }
    }
    let late = hits.late || walk.cut_short();
    Ok(hits.answer(late))
}

/// What a file says, unless it is binary or too large.
fn text(file: File) -> Option<String> {
    if file.metadata().ok()?.len() > LARGEST_FILE {
        return None;
    }
    let mut bytes = Vec::new();
    // It may grow while it is read.
    file.take(LARGEST_FILE).read_to_end(&mut bytes).ok()?;
    (!is_binary(&bytes)).then(|| String::from_utf8_lossy(&bytes).into_owned())
}

struct Hits {
    lines: Vec<String>,
    most: usize,
    started: Instant,
    /// There was no time for all lines.
    late: bool,
}

impl Hits {
    /// One more than is shown tells that there are more.
    fn full(&self) -> bool {
        self.lines.len() > self.most
    }

    fn add(&mut self, regex: &Regex, path: &str, text: &str) {
        for (index, line) in text.lines().enumerate() {
            self.late |= self.started.elapsed() > SEARCH_TIMEOUT;
            if self.full() || self.late {
                return;
            }
            if regex.is_match(&line[..line.floor_char_boundary(MAX_MATCHED_LEN)]) {
                let mut short: String = line.trim_end().chars().take(LONGEST_LINE).collect();
                if short.len() < line.trim_end().len() {
                    short.push('…');
                }
                self.lines.push(format!("{path}:{}: {short}", index + 1));
            }
        }
    }

    fn answer(mut self, cut_short: bool) -> Answer {
        let more = self.full();
        self.lines.truncate(self.most);
        let answer = Answer::text(if self.lines.is_empty() { "(nothing found)".into() } else { self.lines.join("\n") });
        match (more, cut_short) {
            (true, _) => answer.and(format!("(cut after {} lines; use a narrower pattern or `glob`)", self.most)),
            (false, true) => answer.and("(not everything was looked at; start further down with `path`)"),
            (false, false) => answer,
        }
    }
}

/// The last line of the parser's drawing is its reason.
fn reason(error: &regex::Error) -> String {
    let text = error.to_string();
    shown(text.lines().last().unwrap_or_default().trim_start_matches("error: "))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Matching all of this line takes minutes.
    #[test]
    fn a_line_of_megabytes_is_matched_at_its_beginning() {
        let regex = RegexBuilder::new("[ab]*a[ab]{3000}c").size_limit(1 << 20).build().unwrap();
        let mut hits = Hits { lines: Vec::new(), most: 9, started: Instant::now(), late: false };
        let line: String =
            (0..LARGEST_FILE).map(|n| if n.wrapping_mul(2_654_435_761) & 128 == 0 { 'a' } else { 'b' }).collect();
        hits.add(&regex, "f", &line);
        hits.add(&Regex::new("^[ab]").unwrap(), "f", &line);
        assert_eq!(hits.lines.len(), 1);
    }
}
