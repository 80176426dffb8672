//! A bounded walk through a directory tree, in the order of names. Links are entries and are never followed.

use std::fs::File;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use cap_std::fs::{Dir, FileType};
use toolcrib_core::Result;

use super::beneath::open_file;
use super::{BeneathRoot, cannot};

/// Directories that are big and hold nothing anybody asked for.
const SKIPPED: [&str; 2] = [".git", "node_modules"];

const MOST_ENTRIES: usize = 200_000;
const LONGEST: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(in crate::builtin) struct Entry {
    /// As it is opened beneath the start.
    path: PathBuf,
    /// As results show it: relative to the start, with `/` between its parts.
    pub(in crate::builtin) relative: String,
    /// How far below the start; 1 for what is directly in it.
    pub(in crate::builtin) depth: usize,
    pub(in crate::builtin) kind: FileType,
}

/// Iterates until all is seen or a bound is met; [`Walk::cut_short`] tells which.
#[derive(Debug)]
pub(in crate::builtin) struct Walk {
    /// Everything is opened beneath this one, by the path from here: a descriptor for each level would let a deep tree
    /// use up all that a process may have.
    start: Dir,
    /// What is still to be visited, the next one last.
    pending: Vec<Entry>,
    deepest: usize,
    seen: usize,
    started: Instant,
    cut_short: bool,
}

impl Walk {
    pub(in crate::builtin) fn new(start: &BeneathRoot, shown: &str, deepest: usize) -> Result<Walk> {
        let refuse = |error| cannot("list", shown, &error);
        let start = start.open_dir().map_err(refuse)?;
        let entries = start.entries().map_err(refuse)?;
        let mut walk = Walk { start, pending: Vec::new(), deepest, seen: 0, started: Instant::now(), cut_short: false };
        walk.push(entries, None);
        Ok(walk)
    }

    /// Opens a regular file that the walk came by; `None` if it is something else by now, or cannot be read.
    pub(in crate::builtin) fn open_file(&self, entry: &Entry) -> Option<File> {
        open_file(&self.start, &entry.path, &entry.relative).ok()
    }

    /// In bytes.
    pub(in crate::builtin) fn size(&self, entry: &Entry) -> u64 {
        self.start.symlink_metadata(&entry.path).map_or(0, |metadata| metadata.len())
    }

    pub(in crate::builtin) fn cut_short(&self) -> bool {
        self.cut_short
    }

    /// Whether there is no time left; who does long work on an entry asks in between.
    pub(in crate::builtin) fn out_of_time(&mut self) -> bool {
        self.cut_short |= self.started.elapsed() > LONGEST;
        self.cut_short
    }

    fn push(&mut self, entries: cap_std::fs::ReadDir, parent: Option<&Entry>) {
        let mut found = Vec::new();
        for entry in entries.flatten() {
            self.seen += 1;
            if self.seen > MOST_ENTRIES {
                self.cut_short = true;
                break;
            }
            let Ok(kind) = entry.file_type() else { continue };
            let name = entry.file_name();
            let entry = match parent {
                Some(parent) => Entry {
                    relative: format!("{}/{}", parent.relative, name.to_string_lossy()),
                    path: parent.path.join(name),
                    depth: parent.depth + 1,
                    kind,
                },
                None => Entry { relative: name.to_string_lossy().into_owned(), path: name.into(), depth: 1, kind },
            };
            found.push(entry);
        }
        found.sort_unstable_by(|one, other| other.relative.cmp(&one.relative));
        self.pending.append(&mut found);
    }
}

impl Entry {
    /// The whole path, for results, where the walk began at `start`.
    pub(in crate::builtin) fn path_from(&self, start: &BeneathRoot) -> PathBuf {
        start.path().join(&self.path)
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
            if let Ok(entries) = self.start.read_dir(&entry.path) {
                self.push(entries, Some(&entry));
            }
        }
        Some(entry)
    }
}
