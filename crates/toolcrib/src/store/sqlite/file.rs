//! The store's file and directory. Only their owner may access them, because definitions may hold literal secrets from
//! another client's configuration. SQLite gives the log next to the file the same mode.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

use sqlx::sqlite::{SqliteConnectOptions, SqliteLockingMode};
use sqlx::{ConnectOptions, Connection};
use toolcrib_core::{Code, Error, Result};

use super::errors;
use crate::private_dir::{ensure_private_directory, private_file_options};
use crate::store::StoreState;

/// Fails with `CONFLICT` if another process has the store open. Nothing can be told about a file that is no database.
pub(super) async fn ensure_unused(path: &Path) -> Result<()> {
    let options = SqliteConnectOptions::new()
        .filename(path)
        .locking_mode(SqliteLockingMode::Exclusive)
        .busy_timeout(IN_USE_TIMEOUT)
        .disable_statement_logging();
    let Ok(mut connection) = options.connect().await else { return Ok(()) };
    // In exclusive mode, the first read needs a lock that excludes every other connection.
    let read = sqlx::query("SELECT count(*) FROM sqlite_schema").execute(&mut connection).await;
    let is_used = read.as_ref().is_err_and(errors::is_busy);
    // Closing can fail only for a damaged file, which is replaced anyway.
    let _ = connection.close().await;
    if is_used {
        let message = format!("the store `{}` is in use by another process; stop it first", path.display());
        return Err(Error::new(Code::Conflict, message).with_retryable(false));
    }
    Ok(())
}

/// Time for a command to end that uses the store at the moment.
const IN_USE_TIMEOUT: Duration = Duration::from_secs(2);

/// Creates the directory and the file if they are missing. Returns the absolute path, because a connection may be
/// opened after the working directory has changed. The empty file gets its mode before SQLite writes to it, because
/// SQLite would create it with the default mode.
pub(super) fn create_if_missing(path: &Path) -> Result<PathBuf> {
    let absolute = std::path::absolute(path).map_err(|error| errors::io_error("store", path, error))?;
    if let Some(directory) = absolute.parent() {
        ensure_private_directory(directory)?;
    }
    create_in_directory(path)
}

/// Like `create_if_missing`, in a directory that exists and may belong to others: for a file that is only written once.
pub(super) fn create_in_directory(path: &Path) -> Result<PathBuf> {
    let path = std::path::absolute(path).map_err(|error| errors::io_error("store", path, error))?;
    create_file(&path).map_err(|error| errors::io_error("store", &path, error))?;
    Ok(path)
}

/// Returns the absolute path of a file that must exist and must not be empty. Creates nothing.
pub(super) fn find_existing(path: &Path) -> Result<PathBuf> {
    let path = std::path::absolute(path).map_err(|error| errors::io_error("store", path, error))?;
    match fs::metadata(&path) {
        Ok(metadata) if metadata.is_file() && metadata.len() == 0 => {
            Err(errors::lost_store_error(&path, StoreState::Damaged, "is empty"))
        }
        Ok(metadata) => {
            restrict_permissions(&path, &metadata);
            Ok(path)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Err(errors::lost_store_error(&path, StoreState::Missing, "is missing").with_cause(error))
        }
        Err(error) => Err(errors::io_error("store", &path, error)),
    }
}

/// Returns a description if a file is shorter than its header says. SQLite itself notices only when a query reaches a
/// missing page. With a non-empty log the file may legitimately be behind. The order of the three checks matters,
/// because another process may move the log into the file meanwhile.
pub(super) fn find_truncation(path: &Path) -> Option<String> {
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    // First the log, then the header, then the length: a log that is moved into the file meanwhile only makes the file
    // longer.
    if fs::metadata(log).is_ok_and(|log| log.len() > 0) {
        return None;
    }
    let mut header = [0; 32];
    File::open(path).and_then(|mut file| file.read_exact(&mut header)).ok()?;
    // https://www.sqlite.org/fileformat.html: page size, where 1 means 65536, and number of pages.
    let page_size = match u16::from_be_bytes([header[16], header[17]]) {
        1 => 65_536,
        size => u64::from(size),
    };
    let pages = u32::from_be_bytes([header[28], header[29], header[30], header[31]]);
    let expected = page_size * u64::from(pages);
    let length = fs::metadata(path).ok()?.len();
    (length < expected).then(|| format!("the store `{}` is truncated: {length} of {expected} bytes", path.display()))
}

/// Identity of the file at a path. SQLite keeps writing to a file that was deleted or moved, and acknowledges writes
/// that are lost with it, so every use of a connection compares the identity first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FileIdentity {
    #[cfg(unix)]
    device: u64,
    #[cfg(unix)]
    inode: u64,
}

impl FileIdentity {
    /// Reads the identity of a store's file; a missing or empty file is an error.
    pub(super) fn read(path: &Path) -> Result<FileIdentity> {
        let metadata = fs::metadata(path).map_err(|error| {
            let is_gone = matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory);
            if is_gone {
                errors::missing_file_error(path, "was removed")
            } else {
                errors::io_error("store", path, error)
            }
        })?;
        if metadata.is_file() && metadata.len() == 0 {
            return Err(errors::lost_store_error(path, StoreState::Damaged, "was emptied"));
        }
        Ok(FileIdentity::from_metadata(&metadata))
    }

    /// Device and inode identify a file.
    #[cfg(unix)]
    fn from_metadata(metadata: &fs::Metadata) -> FileIdentity {
        use std::os::unix::fs::MetadataExt;

        FileIdentity { device: metadata.dev(), inode: metadata.ino() }
    }

    /// On other systems an open file can be neither removed nor replaced.
    #[cfg(not(unix))]
    fn from_metadata(_: &fs::Metadata) -> FileIdentity {
        FileIdentity {}
    }

    /// Fails if the path leads to another file by now. One `stat` per use of a connection.
    pub(super) fn ensure_unchanged(self, path: &Path) -> Result<()> {
        if FileIdentity::read(path)? == self { Ok(()) } else { Err(errors::missing_file_error(path, "was replaced")) }
    }
}

/// Creates an empty file for its owner only; restricts the mode of an existing one.
fn create_file(path: &Path) -> io::Result<()> {
    match fs::metadata(path) {
        Ok(metadata) => {
            restrict_permissions(path, &metadata);
            return Ok(());
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    private_file_options().create(true).truncate(false).open(path).map(drop)
}

/// Removes access of group and others, which e.g. a restored copy may have. Failure is ignored: the file may belong to
/// another user.
#[cfg(unix)]
fn restrict_permissions(path: &Path, metadata: &fs::Metadata) {
    use std::os::unix::fs::PermissionsExt;

    let mode = metadata.permissions().mode();
    if metadata.is_file() && mode & 0o077 != 0 {
        let _ = fs::set_permissions(path, fs::Permissions::from_mode(mode & 0o700));
    }
}

#[cfg(not(unix))]
fn restrict_permissions(_: &Path, _: &fs::Metadata) {}
