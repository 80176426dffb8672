//! What the file tools share: the directories they may touch, and bounded work in them.
//!
//! A path is resolved twice. [`Roots`] resolves its words and links to a canonical path and picks the root that holds
//! it, which decides what is refused and what results show. Then [`BeneathRoot`] opens that path beneath the descriptor
//! of the root, so that a directory exchanged for a link in between leads nowhere else.

mod atomic_write;
mod glob;
mod rooted_path;
mod walk;

use std::io;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use serde::de::DeserializeOwned;
use toolcrib_core::{Code, Error, Result};

use super::{
    BuiltinHandler, BuiltinOutput, execution_failed, handler, invalid_input, parse_arguments, sanitize_for_message,
};

pub(super) use atomic_write::{create_file, replace_file};
pub(super) use glob::Glob;
pub(super) use rooted_path::{RootedPath, open_file};
pub(super) use walk::{DirectoryWalk, WalkEntry};

/// The directories that file tools may touch. Every path goes through here, and comes out beneath one of them.
#[derive(Debug)]
pub(super) struct Roots(Vec<PathBuf>);

impl Roots {
    pub(super) fn new(roots: Vec<PathBuf>) -> Result<Roots> {
        if let Some(relative) = roots.iter().find(|root| !root.is_absolute()) {
            let message = format!("`roots` must be absolute paths, but `{}` is not", relative.display());
            return Err(Error::new(Code::ConfigInvalid, message));
        }
        Ok(Roots(roots))
    }

    /// Where relative paths start.
    pub(super) fn first(&self) -> Result<PathBuf> {
        let first =
            self.0.first().ok_or_else(|| execution_failed("no directory to work in; set `roots` on this source"))?;
        first.canonicalize().map_err(|error| root_error(first, &error))
    }

    /// An existing file or directory.
    pub(super) fn resolve_existing(&self, path: &str) -> Result<RootedPath> {
        let asked = self.resolve_lexically(path)?;
        let canonical = asked.canonicalize().map_err(|error| io_error("open", path, &error))?;
        self.open_beneath(&canonical, path)
    }

    /// A file that may not exist yet, in a directory that does.
    pub(super) fn resolve_target(&self, path: &str) -> Result<RootedPath> {
        let asked = self.resolve_lexically(path)?;
        // Also a link that leads nowhere is something; following it must not make a file outside.
        if asked.symlink_metadata().is_ok() {
            return self.resolve_existing(path);
        }
        let (Some(parent), Some(name)) = (asked.parent(), asked.file_name()) else {
            return Err(invalid_input(format!("`{}` does not name a file", sanitize_for_message(path))));
        };
        let parent = parent.canonicalize().map_err(|error| io_error("reach the directory of", path, &error))?;
        self.open_beneath(&parent.join(name), path)
    }

    /// A path as results show it: relative to the first root where it is below that, so that it can be given back.
    pub(super) fn display_path(&self, path: &Path) -> String {
        let below_first = self.first().ok().and_then(|first| path.strip_prefix(first).ok());
        match below_first {
            Some(relative) if relative.as_os_str().is_empty() => ".".into(),
            Some(relative) => relative.display().to_string(),
            None => path.display().to_string(),
        }
    }

    /// The path as it is meant, refused by its words alone when it is outside: what exists there is nobody's business.
    fn resolve_lexically(&self, path: &str) -> Result<PathBuf> {
        let first = self.first()?;
        if path.contains('\0') {
            return Err(invalid_input("a path has no NUL characters"));
        }
        let asked = first.join(path);
        let meant = normalize_lexically(&asked);
        let inside = self.0.iter().any(|root| {
            meant.starts_with(root) || root.canonicalize().is_ok_and(|canonical| meant.starts_with(canonical))
        });
        if inside { Ok(asked) } else { Err(self.outside_error(path)) }
    }

    /// Opens the root that holds a canonical path.
    fn open_beneath(&self, canonical: &Path, path: &str) -> Result<RootedPath> {
        let roots = self.0.iter().filter_map(|root| root.canonicalize().ok());
        for root in roots {
            if let Ok(relative) = canonical.strip_prefix(&root) {
                return RootedPath::open(&root, relative).map_err(|error| root_error(&root, &error));
            }
        }
        Err(self.outside_error(path))
    }

    fn outside_error(&self, path: &str) -> Error {
        let roots: Vec<_> = self.0.iter().map(|root| format!("`{}`", root.display())).collect();
        invalid_input(format!(
            "`{}` is outside the directories allowed here: {}",
            sanitize_for_message(path),
            roots.join(", ")
        ))
    }
}

/// `..` taken back by its words, as nobody should need to look at the disk to see that `a/../../b` leaves.
fn normalize_lexically(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for component in path.components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir => drop(plain.pop()),
            Component::Prefix(_) | Component::RootDir | Component::Normal(_) => plain.push(component),
        }
    }
    plain
}

/// Whether the beginning of a file looks like anything but text.
pub(super) fn is_binary(beginning: &[u8]) -> bool {
    beginning.iter().take(8192).any(|&byte| byte == 0)
}

/// A handler that does its work on a thread of its own. The work itself must be bounded.
pub(super) fn blocking_handler<A>(roots: Arc<Roots>, work: fn(&Roots, &A) -> Result<BuiltinOutput>) -> BuiltinHandler
where
    A: DeserializeOwned + Send + 'static,
{
    handler(move |input| {
        let roots = Arc::clone(&roots);
        async move {
            let arguments = parse_arguments::<A>(input)?;
            match tokio::task::spawn_blocking(move || work(&roots, &arguments)).await {
                Ok(answer) => answer,
                Err(error) => Err(execution_failed("the work was broken off").with_cause(error)),
            }
        }
    })
}

/// An I/O error in words, without the machine's innards.
pub(super) fn io_error(what: &str, path: &str, error: &io::Error) -> Error {
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
        io::ErrorKind::InvalidFilename => "the name is not possible here",
        _ => "the system refused",
    };
    let message = format!("cannot {what} `{}`: {reason}", sanitize_for_message(path));
    execution_failed(message).with_cause(io::Error::from(error.kind()))
}

fn root_error(root: &Path, error: &io::Error) -> Error {
    io_error("reach the root", &root.display().to_string(), error)
}
