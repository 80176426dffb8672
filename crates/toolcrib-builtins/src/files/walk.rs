//! Bounded walk through a directory tree in name order. Symbolic links are entries and are never followed.
//!
//! Depth first, with a list of entries still to visit instead of recursion, so that no tree is too deep. A limit ends
//! the walk early and marks it as truncated; it is never an error, because the entries found so far are useful.

use std::fs::File;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use cap_std::fs::{Dir, FileType};
use toolcrib_core::Result;

use super::rooted_path::open_file;
use super::{RootedPath, io_error};

/// Large directories that are rarely of interest. Listed, but not entered.
const SKIPPED_DIRECTORIES: [&str; 2] = [".git", "node_modules"];
/// Maximum number of entries that a walk visits.
const MAX_WALK_ENTRIES: usize = 200_000;
/// Time limit of a walk, against slow file systems.
const WALK_TIMEOUT: Duration = Duration::from_secs(10);

/// File, directory or other entry found by a walk.
#[derive(Debug)]
pub(crate) struct WalkEntry {
    /// Path from the start, for opening.
    path: PathBuf,
    /// Path from the start for matching and display, with `/` as separator.
    pub(crate) relative: String,
    /// Depth below the start; 1 for direct children.
    pub(crate) depth: usize,
    /// Type of the entry itself, not of a link's target.
    pub(crate) file_type: FileType,
}

/// Iterator over a directory tree. Ends at a limit, too; see [`DirectoryWalk::is_truncated`].
#[derive(Debug)]
pub(crate) struct DirectoryWalk {
    /// Start of the walk. All entries are opened relative to it: one descriptor per level would let a deep tree exhaust
    /// the limit of the process.
    start: Dir,
    /// Entries still to visit, the next one last.
    pending: Vec<WalkEntry>,
    max_depth: usize,
    visited: usize,
    started_at: Instant,
    /// A limit was reached.
    truncated: bool,
}

impl DirectoryWalk {
    /// Opens the start directory. `shown_path` is its path in error messages.
    pub(crate) fn new(start: &RootedPath, shown_path: &str, max_depth: usize) -> Result<DirectoryWalk> {
        let list_error = |error| io_error("list", shown_path, &error);
        let start = start.open_dir().map_err(list_error)?;
        let entries = start.entries().map_err(list_error)?;
        let mut walk = DirectoryWalk {
            start,
            pending: Vec::new(),
            max_depth,
            visited: 0,
            started_at: Instant::now(),
            truncated: false,
        };
        walk.push_entries(entries, None);
        Ok(walk)
    }

    /// Opens a regular file of the walk. `None` if it has been replaced meanwhile or cannot be read.
    pub(crate) fn open_file(&self, entry: &WalkEntry) -> Option<File> {
        open_file(&self.start, &entry.path, &entry.relative).ok()
    }

    /// Size in bytes; 0 if the entry is gone.
    pub(crate) fn size(&self, entry: &WalkEntry) -> u64 {
        self.start.symlink_metadata(&entry.path).map_or(0, |metadata| metadata.len())
    }

    /// Whether a limit was reached, so that entries may be missing.
    pub(crate) fn is_truncated(&self) -> bool {
        self.truncated
    }

    /// Whether the time limit is reached. Marks the walk as truncated.
    pub(crate) fn check_deadline(&mut self) -> bool {
        self.truncated |= self.started_at.elapsed() > WALK_TIMEOUT;
        self.truncated
    }

    /// Adds the entries of a directory in reverse name order, so that they are visited in name order.
    fn push_entries(&mut self, entries: cap_std::fs::ReadDir, parent: Option<&WalkEntry>) {
        let mut new_entries = Vec::new();
        for entry in entries.flatten() {
            self.visited += 1;
            if self.visited > MAX_WALK_ENTRIES {
                self.truncated = true;
                break;
            }
            let Ok(file_type) = entry.file_type() else { continue };
            let name = entry.file_name();
            let entry = match parent {
                Some(parent) => WalkEntry {
                    relative: format!("{}/{}", parent.relative, name.to_string_lossy()),
                    path: parent.path.join(name),
                    depth: parent.depth + 1,
                    file_type,
                },
                None => {
                    WalkEntry { relative: name.to_string_lossy().into_owned(), path: name.into(), depth: 1, file_type }
                }
            };
            new_entries.push(entry);
        }
        new_entries.sort_unstable_by(|a, b| b.relative.cmp(&a.relative));
        self.pending.append(&mut new_entries);
    }
}

impl WalkEntry {
    /// Path for results of a walk that began at `start`.
    pub(crate) fn path_from(&self, start: &RootedPath) -> PathBuf {
        start.path().join(&self.path)
    }
}

impl Iterator for DirectoryWalk {
    type Item = WalkEntry;

    fn next(&mut self) -> Option<WalkEntry> {
        let entry = self.pending.pop()?;
        if self.check_deadline() {
            return None;
        }
        let is_skipped =
            entry.path.file_name().is_some_and(|name| SKIPPED_DIRECTORIES.iter().any(|skipped| name == *skipped));
        if entry.file_type.is_dir() && !is_skipped && entry.depth < self.max_depth {
            // A directory that cannot be read is skipped; its siblings are not.
            if let Ok(entries) = self.start.read_dir(&entry.path) {
                self.push_entries(entries, Some(&entry));
            }
        }
        Some(entry)
    }
}
