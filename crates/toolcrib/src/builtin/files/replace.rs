//! Writing files whole: a reader sees the old content or the new, never half of it.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

/// Makes a file that must not exist yet.
pub(in crate::builtin) fn create(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).open(path)?;
    let written = file.write_all(content).and_then(|()| file.sync_all());
    if written.is_err() {
        // Half a file is worse than none; if it cannot go either, the first error says more.
        let _ = fs::remove_file(path);
    }
    written
}

/// Puts new content in the place of a file, keeping its permissions.
pub(in crate::builtin) fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    let permissions = fs::metadata(path)?.permissions();
    // Renaming over it needs no right to write it, so ask for that first.
    OpenOptions::new().write(true).open(path)?;
    let directory = path.parent().ok_or(io::ErrorKind::InvalidFilename)?;
    let temporary = directory.join(format!(".toolcrib-{:016x}", rand::random::<u64>()));
    create(&temporary, content)?;
    let moved = fs::set_permissions(&temporary, permissions).and_then(|()| fs::rename(&temporary, path));
    if moved.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    moved
}
