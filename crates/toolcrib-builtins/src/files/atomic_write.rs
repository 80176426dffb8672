//! Atomic file writes: readers see the old content or the new, never a part of it.
//!
//! All operations are relative to an open directory; see `rooted_path`. A crash while replacing can leave a temporary
//! file `.toolcrib-<random>` behind. A new file is written in place: a crash can leave a part of it.

use std::ffi::OsStr;
use std::io::{self, Write};

use cap_std::fs::{Dir, File, OpenOptions, Permissions};

use super::rooted_path::no_follow_options;

/// Creates a file that must not exist.
pub(crate) fn create_file(directory: &Dir, name: &OsStr, content: &[u8]) -> io::Result<()> {
    create_with_permissions(directory, name, content, None)
}

/// Replaces the content of a file by writing a temporary file and renaming it. Keeps the permissions.
pub(crate) fn replace_file(directory: &Dir, name: &OsStr, content: &[u8]) -> io::Result<()> {
    // Renaming over a file does not need write permission on it, so open it for writing first.
    let old = directory.open_with(name, no_follow_options().write(true))?;
    let permissions = old.metadata()?.permissions();
    let temporary = format!(".toolcrib-{:016x}", rand::random::<u64>());
    create_with_permissions(directory, OsStr::new(&temporary), content, Some(permissions))?;
    let renamed = directory.rename(&temporary, directory, name);
    if renamed.is_err() {
        let _ = directory.remove_file(&temporary);
    }
    renamed
}

/// Creates a file, removing it again if writing fails.
fn create_with_permissions(
    directory: &Dir,
    name: &OsStr,
    content: &[u8],
    permissions: Option<Permissions>,
) -> io::Result<()> {
    let mut file = directory.open_with(name, OpenOptions::new().write(true).create_new(true))?;
    let result = write_and_sync(&mut file, content, permissions);
    if result.is_err() {
        // A partial file is worse than none. If removing fails as well, the first error says more.
        let _ = directory.remove_file(name);
    }
    result
}

/// Writes and flushes to disk.
fn write_and_sync(file: &mut File, content: &[u8], permissions: Option<Permissions>) -> io::Result<()> {
    // Before writing, so that the content of a private file is never readable by others.
    if let Some(permissions) = permissions {
        file.set_permissions(permissions)?;
    }
    file.write_all(content)?;
    file.sync_all()
}
