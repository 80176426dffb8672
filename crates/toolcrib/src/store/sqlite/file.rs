//! The file and its directory, for their owner only: definitions may hold literal values from another client's config.
//! SQLite gives the log beside the file the same mode.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

use toolcrib_core::Result;

use super::fault;
use crate::private::private_directory;

/// Makes what is missing. The path comes back absolute, for a connection may be opened after the process has moved.
pub(super) fn prepare(path: &Path) -> Result<PathBuf> {
    let path = std::path::absolute(path).map_err(|error| fault::unreachable("store", path, error))?;
    if let Some(directory) = path.parent() {
        private_directory(directory)?;
    }
    make_file(&path).map_err(|error| fault::unreachable("store", &path, error))?;
    Ok(path)
}

fn make_file(path: &Path) -> io::Result<()> {
    match fs::metadata(path) {
        Ok(found) => {
            close_to_others(path, &found);
            return Ok(());
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    let mut options = OpenOptions::new();
    options.write(true).create(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path).map(|_: File| ())
}

/// A copy brought back from elsewhere may be open to others. If it is not ours to change, so be it.
#[cfg(unix)]
fn close_to_others(path: &Path, found: &fs::Metadata) {
    use std::os::unix::fs::PermissionsExt;

    let mode = found.permissions().mode();
    if found.is_file() && mode & 0o077 != 0 {
        let _ = fs::set_permissions(path, fs::Permissions::from_mode(mode & 0o700));
    }
}

#[cfg(not(unix))]
fn close_to_others(_: &Path, _: &fs::Metadata) {}
