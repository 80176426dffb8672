//! Writing files whole: a reader sees the old content or the new, never half of it.

use std::ffi::OsStr;
use std::io::{self, Write};

use cap_std::fs::{Dir, File, OpenOptions, Permissions};

use super::rooted_path::no_follow_options;

/// Makes a file that must not exist yet.
pub(in crate::builtin) fn create_file(directory: &Dir, name: &OsStr, content: &[u8]) -> io::Result<()> {
    create_with_permissions(directory, name, content, None)
}

/// Puts new content in the place of a file, keeping its permissions.
pub(in crate::builtin) fn replace_file(directory: &Dir, name: &OsStr, content: &[u8]) -> io::Result<()> {
    // Renaming over it needs no right to write it, so ask for that first.
    let old = directory.open_with(name, no_follow_options().write(true))?;
    let permissions = old.metadata()?.permissions();
    let temporary = format!(".toolcrib-{:016x}", rand::random::<u64>());
    create_with_permissions(directory, OsStr::new(&temporary), content, Some(permissions))?;
    let moved = directory.rename(&temporary, directory, name);
    if moved.is_err() {
        let _ = directory.remove_file(&temporary);
    }
    moved
}

fn create_with_permissions(
    directory: &Dir,
    name: &OsStr,
    content: &[u8],
    permissions: Option<Permissions>,
) -> io::Result<()> {
    let mut file = directory.open_with(name, OpenOptions::new().write(true).create_new(true))?;
    let written = write_and_sync(&mut file, content, permissions);
    if written.is_err() {
        // Half a file is worse than none; if it cannot go either, the first error says more.
        let _ = directory.remove_file(name);
    }
    written
}

fn write_and_sync(file: &mut File, content: &[u8], permissions: Option<Permissions>) -> io::Result<()> {
    // First, so that the content of a private file is at no moment readable by others.
    if let Some(permissions) = permissions {
        file.set_permissions(permissions)?;
    }
    file.write_all(content)?;
    file.sync_all()
}
