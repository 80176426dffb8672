//! A bounded walk through a directory tree, in the order of names. Links are entries and are never followed.

use std::fs::FileType;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use toolcrib_core::Result;

use super::cannot;

/// Directories that are big and hold nothing anybody asked for.
const SKIPPED: [&str; 2] = [".git", "node_modules"];

const MOST_ENTRIES: usize = 200_000;
const LONGEST: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(in crate::builtin) struct Entry {
    pub(in crate::builtin) path: PathBuf,
    /// Relative to the start, with `/` between its parts.
    pub(in crate::builtin) relative: String,
    /// How far below the start; 1 for what is directly in it.
    pub(in crate::builtin) depth: usize,
    pub(in crate::builtin) kind: FileType,
}

/// Iterates until all is seen or a bound is met; [`Walk::cut_short`] tells which.
#[derive(Debug)]
pub(in crate::builtin) struct Walk {
    /// What is still to be visited, the next one last.
    pending: Vec<Entry>,
    deepest: usize,
    seen: usize,
    started: Instant,
    cut_short: bool,
}

impl Walk {
    pub(in crate::builtin) fn new(start: &Path, shown: &str, deepest: usize) -> Result<Walk> {
        let mut walk = Walk { pending: Vec::new(), deepest, seen: 0, started: Instant::now(), cut_short: false };
        let entries = std::fs::read_dir(start).map_err(|error| cannot("list", shown, &error))?;
        walk.push(entries, "", 1);
        Ok(walk)
    }

    pub(in crate::builtin) fn cut_short(&self) -> bool {
        self.cut_short
    }

    /// Whether there is no time left; who does long work on an entry asks in between.
    pub(in crate::builtin) fn out_of_time(&mut self) -> bool {
        self.cut_short |= self.started.elapsed() > LONGEST;
        self.cut_short
    }

    fn push(&mut self, entries: std::fs::ReadDir, parent: &str, depth: usize) {
        let mut found = Vec::new();
        for entry in entries.flatten() {
            self.seen += 1;
            if self.seen > MOST_ENTRIES {
                self.cut_short = true;
                break;
            }
            let Ok(kind) = entry.file_type() else { continue };
            let name = entry.file_name().to_string_lossy().into_owned();
            let relative = if parent.is_empty() { name } else { format!("{parent}/{name}") };
            found.push(Entry { path: entry.path(), relative, depth, kind });
        }
        found.sort_unstable_by(|one, other| other.relative.cmp(&one.relative));
        self.pending.append(&mut found);
    }
}

impl Iterator for Walk {
    type Item = Entry;

    fn next(&mut self) -> Option<Entry> {
        let entry = self.pending.pop()?;
        if self.out_of_time() {
            return None;
        }
        let skipped = entry.path.file_name().is_some_and(|name| SKIPPED.iter().any(|skipped| name == *skipped));
        if entry.kind.is_dir() && !skipped && entry.depth < self.deepest {
            // A directory that cannot be read must not hide its siblings.
            if let Ok(entries) = std::fs::read_dir(&entry.path) {
                self.push(entries, &entry.relative, entry.depth + 1);
            }
        }
        Some(entry)
    }
}
