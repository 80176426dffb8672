//! A bounded walk through a directory tree, in the order of names. Links are entries and are never followed.

use std::fs::File;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use cap_std::fs::{Dir, FileType};
use toolcrib_core::Result;

use super::rooted_path::open_file;
use super::{RootedPath, io_error};

/// Directories that are big and hold nothing anybody asked for.
const SKIPPED_DIRECTORIES: [&str; 2] = [".git", "node_modules"];

const MAX_WALK_ENTRIES: usize = 200_000;
const WALK_TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(in crate::builtin) struct WalkEntry {
    /// As it is opened beneath the start.
    path: PathBuf,
    /// As results show it: relative to the start, with `/` between its parts.
    pub(in crate::builtin) relative: String,
    /// How far below the start; 1 for what is directly in it.
    pub(in crate::builtin) depth: usize,
    pub(in crate::builtin) file_type: FileType,
}

/// Iterates until all is seen or a bound is met; [`Walk::cut_short`] tells which.
#[derive(Debug)]
pub(in crate::builtin) struct DirectoryWalk {
    /// Everything is opened beneath this one, by the path from here: a descriptor for each level would let a deep tree
    /// use up all that a process may have.
    start: Dir,
    /// What is still to be visited, the next one last.
    pending: Vec<WalkEntry>,
    max_depth: usize,
    visited: usize,
    started_at: Instant,
    truncated: bool,
}

impl DirectoryWalk {
    pub(in crate::builtin) fn new(start: &RootedPath, shown: &str, deepest: usize) -> Result<DirectoryWalk> {
        let refuse = |error| io_error("list", shown, &error);
        let start = start.open_dir().map_err(refuse)?;
        let entries = start.entries().map_err(refuse)?;
        let mut walk = DirectoryWalk {
            start,
            pending: Vec::new(),
            max_depth: deepest,
            visited: 0,
            started_at: Instant::now(),
            truncated: false,
        };
        walk.push_entries(entries, None);
        Ok(walk)
    }

    /// Opens a regular file that the walk came by; `None` if it is something else by now, or cannot be read.
    pub(in crate::builtin) fn open_file(&self, entry: &WalkEntry) -> Option<File> {
        open_file(&self.start, &entry.path, &entry.relative).ok()
    }

    /// In bytes.
    pub(in crate::builtin) fn size(&self, entry: &WalkEntry) -> u64 {
        self.start.symlink_metadata(&entry.path).map_or(0, |metadata| metadata.len())
    }

    pub(in crate::builtin) fn is_truncated(&self) -> bool {
        self.truncated
    }

    /// Whether there is no time left; who does long work on an entry asks in between.
    pub(in crate::builtin) fn is_out_of_time(&mut self) -> bool {
        self.truncated |= self.started_at.elapsed() > WALK_TIMEOUT;
        self.truncated
    }

    fn push_entries(&mut self, entries: cap_std::fs::ReadDir, parent: Option<&WalkEntry>) {
        let mut found = Vec::new();
        for entry in entries.flatten() {
            self.visited += 1;
            if self.visited > MAX_WALK_ENTRIES {
                self.truncated = true;
                break;
            }
            let Ok(kind) = entry.file_type() else { continue };
            let name = entry.file_name();
            let entry = match parent {
                Some(parent) => WalkEntry {
                    relative: format!("{}/{}", parent.relative, name.to_string_lossy()),
                    path: parent.path.join(name),
                    depth: parent.depth + 1,
                    file_type: kind,
                },
                None => WalkEntry {
                    relative: name.to_string_lossy().into_owned(),
                    path: name.into(),
                    depth: 1,
                    file_type: kind,
                },
            };
            found.push(entry);
        }
        found.sort_unstable_by(|one, other| other.relative.cmp(&one.relative));
        self.pending.append(&mut found);
    }
}

impl WalkEntry {
    /// The whole path, for results, where the walk began at `start`.
    pub(in crate::builtin) fn path_from(&self, start: &RootedPath) -> PathBuf {
        start.path().join(&self.path)
    }
}

impl Iterator for DirectoryWalk {
    type Item = WalkEntry;

    fn next(&mut self) -> Option<WalkEntry> {
        let entry = self.pending.pop()?;
        if self.is_out_of_time() {
            return None;
        }
        let skipped =
            entry.path.file_name().is_some_and(|name| SKIPPED_DIRECTORIES.iter().any(|skipped| name == *skipped));
        if entry.file_type.is_dir() && !skipped && entry.depth < self.max_depth {
            // A directory that cannot be read must not hide its siblings.
            if let Ok(entries) = self.start.read_dir(&entry.path) {
                self.push_entries(entries, Some(&entry));
            }
        }
        Some(entry)
    }
}
