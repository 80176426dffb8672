//! Shared by the file tools: the permitted directories, and bounded operations in them.
//!
//! A path is resolved twice. [`Roots`] resolves it lexically and through symbolic links to a canonical path and finds
//! the root that contains it; this decides what is rejected and what results show. Then [`RootedPath`] opens the path
//! relative to the descriptor of that root, so that a directory replaced by a link in between cannot lead elsewhere.

mod rooted_path;

mod atomic_write;
mod glob;
mod walk;

use std::io;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use serde::de::DeserializeOwned;
use toolcrib_core::{Code, Error, Result};

use super::{
    BuiltinHandler, BuiltinOutput, builtin_handler, execution_failed, invalid_input, parse_arguments,
    sanitize_for_message,
};
pub(super) use atomic_write::{create_file, replace_file};
pub(super) use glob::Glob;
pub(super) use rooted_path::{RootedPath, open_file};
pub(super) use walk::{DirectoryWalk, WalkEntry};

/// Directories that file tools may access. Every path argument is resolved here.
#[derive(Debug)]
pub(super) struct Roots(Vec<PathBuf>);

impl Roots {
    /// Fails for relative paths.
    pub(super) fn new(roots: Vec<PathBuf>) -> Result<Roots> {
        if let Some(relative) = roots.iter().find(|root| !root.is_absolute()) {
            let message = format!("`roots` must be absolute paths, but `{}` is not", relative.display());
            return Err(Error::new(Code::ConfigInvalid, message));
        }
        Ok(Roots(roots))
    }

    /// Canonical first root, where relative paths start.
    pub(super) fn first(&self) -> Result<PathBuf> {
        let first =
            self.0.first().ok_or_else(|| execution_failed("no directory to work in; set `roots` on this source"))?;
        first.canonicalize().map_err(|error| root_error(first, &error))
    }

    /// Resolves an existing file or directory.
    pub(super) fn resolve_existing(&self, path: &str) -> Result<RootedPath> {
        let requested = self.resolve_lexically(path)?;
        let canonical = requested.canonicalize().map_err(|error| io_error("open", path, &error))?;
        self.open_beneath(&canonical, path)
    }

    /// Resolves a file that need not exist, in an existing directory.
    pub(super) fn resolve_target(&self, path: &str) -> Result<RootedPath> {
        let requested = self.resolve_lexically(path)?;
        // An existing target is resolved through its links.
        // A dangling link exists, too; following it must not create a file outside.
        if requested.symlink_metadata().is_ok() {
            return self.resolve_existing(path);
        }
        let (Some(parent), Some(name)) = (requested.parent(), requested.file_name()) else {
            return Err(invalid_input(format!("`{}` does not name a file", sanitize_for_message(path))));
        };
        let parent = parent.canonicalize().map_err(|error| io_error("reach the directory of", path, &error))?;
        self.open_beneath(&parent.join(name), path)
    }

    /// Path for results: relative to the first root if it is below it, so that agents can pass it back.
    pub(super) fn display_path(&self, path: &Path) -> String {
        let below_first = self.first().ok().and_then(|first| path.strip_prefix(first).ok());
        match below_first {
            Some(relative) if relative.as_os_str().is_empty() => ".".into(),
            Some(relative) => relative.display().to_string(),
            None => path.display().to_string(),
        }
    }

    /// Joins the path with the first root and checks it without looking at the disk, so that errors reveal nothing
    /// about files outside the roots.
    fn resolve_lexically(&self, path: &str) -> Result<PathBuf> {
        let first = self.first()?;
        if path.contains('\0') {
            return Err(invalid_input("a path must not contain NUL characters"));
        }
        // An absolute path replaces the root in `join`.
        let requested = first.join(path);
        let normalized = normalize_lexically(&requested);
        // Compare with the configured and the canonical root: the configured one may be a link.
        let is_inside = self.0.iter().any(|root| {
            normalized.starts_with(root) || root.canonicalize().is_ok_and(|canonical| normalized.starts_with(canonical))
        });
        if is_inside { Ok(requested) } else { Err(self.outside_error(path)) }
    }

    /// Opens the root that contains a canonical path.
    fn open_beneath(&self, canonical: &Path, path: &str) -> Result<RootedPath> {
        // Roots that do not exist now are skipped.
        let roots = self.0.iter().filter_map(|root| root.canonicalize().ok());
        for root in roots {
            if let Ok(relative) = canonical.strip_prefix(&root) {
                return RootedPath::open(&root, relative).map_err(|error| root_error(&root, &error));
            }
        }
        Err(self.outside_error(path))
    }

    /// Error for a path outside the roots.
    fn outside_error(&self, path: &str) -> Error {
        let roots: Vec<_> = self.0.iter().map(|root| format!("`{}`", root.display())).collect();
        invalid_input(format!(
            "`{}` is outside the directories allowed here: {}",
            sanitize_for_message(path),
            roots.join(", ")
        ))
    }
}

/// Removes `.` and `..` components without looking at the disk, to see that `a/../../b` leaves the root.
fn normalize_lexically(path: &Path) -> PathBuf {
    let mut normalized = PathBuf::new();
    for component in path.components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir => drop(normalized.pop()),
            Component::Prefix(_) | Component::RootDir | Component::Normal(_) => normalized.push(component),
        }
    }
    normalized
}

/// Whether a file looks binary: a NUL byte near its beginning, much like Git decides.
pub(super) fn is_binary(prefix: &[u8]) -> bool {
    prefix.iter().take(8192).any(|&byte| byte == 0)
}

/// Handler that runs blocking file operations on the blocking thread pool. The operation itself must be bounded, since
/// it cannot be cancelled.
pub(super) fn blocking_handler<A>(roots: Arc<Roots>, work: fn(&Roots, &A) -> Result<BuiltinOutput>) -> BuiltinHandler
where
    A: DeserializeOwned + Send + 'static,
{
    builtin_handler(move |input| {
        let roots = Arc::clone(&roots);
        async move {
            let arguments = parse_arguments::<A>(input)?;
            match tokio::task::spawn_blocking(move || work(&roots, &arguments)).await {
                Ok(output) => output,
                Err(error) => Err(execution_failed("the file operation was interrupted").with_cause(error)),
            }
        }
    })
}

/// Describes an I/O error without details of the machine.
pub(super) fn io_error(action: &str, path: &str, error: &io::Error) -> Error {
    #[expect(clippy::wildcard_enum_match_arm, reason = "an open enum of the standard library")]
    let reason = match error.kind() {
        _ if rooted_path::is_escape(error) => "it leads outside the directories allowed here",
        io::ErrorKind::NotFound => "there is no such file or directory",
        io::ErrorKind::PermissionDenied => "permission denied",
        io::ErrorKind::NotADirectory => "a part of it is not a directory",
        io::ErrorKind::IsADirectory => "it is a directory",
        io::ErrorKind::AlreadyExists => "it exists already",
        io::ErrorKind::StorageFull => "the disk is full",
        io::ErrorKind::ReadOnlyFilesystem => "the file system is read-only",
        io::ErrorKind::InvalidFilename => "the file name is not valid here",
        _ => "the operating system rejected it",
    };
    let message = format!("cannot {action} `{}`: {reason}", sanitize_for_message(path));
    execution_failed(message).with_cause(io::Error::from(error.kind()))
}

/// Error for a root that cannot be opened.
fn root_error(root: &Path, error: &io::Error) -> Error {
    io_error("reach the root", &root.display().to_string(), error)
}
