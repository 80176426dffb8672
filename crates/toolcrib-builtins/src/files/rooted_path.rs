//! Path relative to the open descriptor of a root.
//!
//! `cap-std` resolves every path relative to that descriptor: on Linux with `openat2` and RESOLVE_BENEATH (and
//! RESOLVE_NO_MAGICLINKS); elsewhere, and where a kernel or sandbox lacks that call, by opening one component after the
//! other and following links itself. No path is resolved from `/` after the root has been opened.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use cap_std::ambient_authority;
use cap_std::fs::{Dir, OpenOptions};
use toolcrib_core::Result;

use super::super::{invalid_input, sanitize_for_message};
use super::io_error;

/// File or directory, existing or not, that is accessed only through its root.
#[derive(Debug)]
pub(crate) struct RootedPath {
    root: Dir,
    /// Never empty: `.` for the root itself.
    relative: PathBuf,
    /// Canonical path, for display only.
    path: PathBuf,
}

impl RootedPath {
    /// Opens the root.
    pub(super) fn open(root: &Path, relative: &Path) -> io::Result<RootedPath> {
        let path = root.join(relative);
        let relative = if relative.as_os_str().is_empty() { Path::new(".") } else { relative };
        let root = Dir::open_ambient_dir(root, ambient_authority())?;
        Ok(RootedPath { root, relative: relative.to_owned(), path })
    }

    /// Canonical path for results. Must not be used to open anything.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether it is a directory now; links are not followed.
    pub(crate) fn is_dir(&self) -> bool {
        self.root.symlink_metadata(&self.relative).is_ok_and(|metadata| metadata.is_dir())
    }

    /// Opens the directory.
    pub(crate) fn open_dir(&self) -> io::Result<Dir> {
        self.root.open_dir(&self.relative)
    }

    /// Opens the parent directory and returns it with the file name.
    pub(crate) fn open_parent(&self) -> io::Result<(Dir, &OsStr)> {
        let name = self.relative.file_name().ok_or(io::ErrorKind::IsADirectory)?;
        let parent = self.relative.parent().filter(|parent| !parent.as_os_str().is_empty());
        Ok((self.root.open_dir(parent.unwrap_or(Path::new(".")))?, name))
    }

    /// Opens a regular file for reading. `shown_as` is the path in error messages.
    pub(crate) fn open_file(&self, shown_as: &str) -> Result<File> {
        open_file(&self.root, &self.relative, shown_as)
    }
}

/// Opens a regular file beneath `directory` for reading.
pub(crate) fn open_file(directory: &Dir, path: impl AsRef<Path>, shown_as: &str) -> Result<File> {
    let path = path.as_ref();
    let open_error = |error: io::Error| io_error("open", shown_as, &error);
    // Windows cannot open a directory at all, so check first to give the better error.
    if directory.symlink_metadata(path).is_ok_and(|metadata| metadata.is_dir()) {
        return Err(invalid_input(format!("`{}` is a directory; use `file_list`", sanitize_for_message(shown_as))));
    }
    let file = directory.open_with(path, no_follow_options().read(true)).map_err(open_error)?;
    if !file.metadata().map_err(open_error)?.is_file() {
        return Err(invalid_input(format!("`{}` is not a regular file", sanitize_for_message(shown_as))));
    }
    Ok(file.into_std())
}

/// Options for an entry that was no link when it was looked up: a link that replaced it meanwhile is not followed, and
/// opening a named pipe does not block.
pub(super) fn no_follow_options() -> OpenOptions {
    let mut options = OpenOptions::new();
    #[cfg(unix)]
    cap_std::fs::OpenOptionsExt::custom_flags(&mut options, libc::O_NOFOLLOW | libc::O_NONBLOCK);
    options
}

/// Whether `cap-std` rejected a path that leaves its directory. Such an error has no OS error code.
pub(super) fn is_escape(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::PermissionDenied && error.raw_os_error().is_none()
}
