//! The file and its directory, for their owner only: definitions may hold literal values from another client's config.
//! SQLite gives the log beside the file the same mode.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use toolcrib_core::Result;

use super::errors;
use crate::private_dir::ensure_private_directory;
use crate::store::StoreState;

/// Makes what is missing. The path comes back absolute, for a connection may be opened after the process has moved.
pub(super) fn create_if_missing(path: &Path) -> Result<PathBuf> {
    let path = std::path::absolute(path).map_err(|error| errors::io_error("store", path, error))?;
    if let Some(directory) = path.parent() {
        ensure_private_directory(directory)?;
    }
    create_file(&path).map_err(|error| errors::io_error("store", &path, error))?;
    Ok(path)
}

/// The absolute path of a file that must be there and hold something. Makes nothing.
pub(super) fn find_existing(path: &Path) -> Result<PathBuf> {
    let path = std::path::absolute(path).map_err(|error| errors::io_error("store", path, error))?;
    match fs::metadata(&path) {
        Ok(found) if found.is_file() && found.len() == 0 => {
            Err(errors::lost_store_error(&path, StoreState::Damaged, "is empty"))
        }
        Ok(found) => {
            restrict_permissions(&path, &found);
            Ok(path)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Err(errors::lost_store_error(&path, StoreState::Missing, "is gone").with_cause(error))
        }
        Err(error) => Err(errors::io_error("store", &path, error)),
    }
}

/// Says by how much a file is shorter than its own header tells. SQLite finds that out only when a query comes to a page
/// that is not there. With a log beside it, the file may be behind; the order of the three looks matters, because another
/// process may fold the log into the file meanwhile.
pub(super) fn find_truncation(path: &Path) -> Option<String> {
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    if fs::metadata(log).is_ok_and(|log| log.len() > 0) {
        return None;
    }
    let mut header = [0; 32];
    File::open(path).and_then(|mut file| file.read_exact(&mut header)).ok()?;
    // https://www.sqlite.org/fileformat.html: the size of a page, where 1 means 65536, and the number of pages.
    let page_size = match u16::from_be_bytes([header[16], header[17]]) {
        1 => 65_536,
        size => u64::from(size),
    };
    let pages = u32::from_be_bytes([header[28], header[29], header[30], header[31]]);
    let expected = page_size * u64::from(pages);
    let length = fs::metadata(path).ok()?.len();
    (length < expected).then(|| format!("the store `{}` is cut: {length} of {expected} bytes", path.display()))
}

/// Which file lies at a path. SQLite goes on writing to a file that was deleted or moved away, and acknowledges what is
/// lost with it, so that each use of a connection looks first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FileIdentity {
    #[cfg(unix)]
    device: u64,
    #[cfg(unix)]
    inode: u64,
}

impl FileIdentity {
    pub(super) fn read(path: &Path) -> Result<FileIdentity> {
        let found = fs::metadata(path).map_err(|error| {
            let is_gone = matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory);
            if is_gone {
                errors::missing_file_error(path, "was removed")
            } else {
                errors::io_error("store", path, error)
            }
        })?;
        if found.is_file() && found.len() == 0 {
            return Err(errors::lost_store_error(path, StoreState::Damaged, "was emptied"));
        }
        Ok(FileIdentity::from_metadata(&found))
    }

    #[cfg(unix)]
    fn from_metadata(found: &fs::Metadata) -> FileIdentity {
        use std::os::unix::fs::MetadataExt;

        FileIdentity { device: found.dev(), inode: found.ino() }
    }

    /// Elsewhere an open file can be neither removed nor replaced.
    #[cfg(not(unix))]
    fn of(_: &fs::Metadata) -> FileIdentity {
        FileIdentity {}
    }

    /// Refuses when the path leads to another file by now.
    pub(super) fn ensure_unchanged(self, path: &Path) -> Result<()> {
        if FileIdentity::read(path)? == self { Ok(()) } else { Err(errors::missing_file_error(path, "was replaced")) }
    }
}

fn create_file(path: &Path) -> io::Result<()> {
    match fs::metadata(path) {
        Ok(found) => {
            restrict_permissions(path, &found);
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
fn restrict_permissions(path: &Path, found: &fs::Metadata) {
    use std::os::unix::fs::PermissionsExt;

    let mode = found.permissions().mode();
    if found.is_file() && mode & 0o077 != 0 {
        let _ = fs::set_permissions(path, fs::Permissions::from_mode(mode & 0o700));
    }
}

#[cfg(not(unix))]
fn close_to_others(_: &Path, _: &fs::Metadata) {}
