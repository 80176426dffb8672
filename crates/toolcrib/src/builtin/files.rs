//! What the file tools share: the directories they may touch, and bounded work in them.
//!
//! A path is resolved twice. [`Roots`] resolves its words and links to a canonical path and picks the root that holds it,
//! which decides what is refused and what results show. Then [`BeneathRoot`] opens that path beneath the descriptor of
//! the root, so that a directory exchanged for a link in between leads nowhere else.

mod beneath;
mod glob;
mod replace;
mod walk;

use std::io;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use serde::de::DeserializeOwned;
use toolcrib_core::{Code, Error, Result};

use super::{Answer, Handler, arguments, failed, handler, invalid, shown};

pub(super) use beneath::{BeneathRoot, open_file};
pub(super) use glob::Glob;
pub(super) use replace::{create, replace};
pub(super) use walk::{Entry, Walk};

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
        let first = self.0.first().ok_or_else(|| failed("no directory to work in; set `roots` on this source"))?;
        first.canonicalize().map_err(|error| unreachable_root(first, &error))
    }

    /// An existing file or directory.
    pub(super) fn existing(&self, path: &str) -> Result<BeneathRoot> {
        let asked = self.inside(path)?;
        let canonical = asked.canonicalize().map_err(|error| cannot("open", path, &error))?;
        self.beneath(&canonical, path)
    }

    /// A file that may not exist yet, in a directory that does.
    pub(super) fn target(&self, path: &str) -> Result<BeneathRoot> {
        let asked = self.inside(path)?;
        // Also a link that leads nowhere is something; following it must not make a file outside.
        if asked.symlink_metadata().is_ok() {
            return self.existing(path);
        }
        let (Some(parent), Some(name)) = (asked.parent(), asked.file_name()) else {
            return Err(invalid(format!("`{}` does not name a file", shown(path))));
        };
        let parent = parent.canonicalize().map_err(|error| cannot("reach the directory of", path, &error))?;
        self.beneath(&parent.join(name), path)
    }

    /// A path as results show it: relative to the first root where it is below that, so that it can be given back.
    pub(super) fn shown(&self, path: &Path) -> String {
        let below_first = self.first().ok().and_then(|first| path.strip_prefix(first).ok());
        match below_first {
            Some(relative) if relative.as_os_str().is_empty() => ".".into(),
            Some(relative) => relative.display().to_string(),
            None => path.display().to_string(),
        }
    }

    /// The path as it is meant, refused by its words alone when it is outside: what exists there is nobody's business.
    fn inside(&self, path: &str) -> Result<PathBuf> {
        let first = self.first()?;
        if path.contains('\0') {
            return Err(invalid("a path has no NUL characters"));
        }
        let asked = first.join(path);
        let meant = without_dots(&asked);
        let inside = self.0.iter().any(|root| {
            meant.starts_with(root) || root.canonicalize().is_ok_and(|canonical| meant.starts_with(canonical))
        });
        if inside { Ok(asked) } else { Err(self.outside(path)) }
    }

    /// Opens the root that holds a canonical path.
    fn beneath(&self, canonical: &Path, path: &str) -> Result<BeneathRoot> {
        let roots = self.0.iter().filter_map(|root| root.canonicalize().ok());
        for root in roots {
            if let Ok(relative) = canonical.strip_prefix(&root) {
                return BeneathRoot::open(&root, relative).map_err(|error| unreachable_root(&root, &error));
            }
        }
        Err(self.outside(path))
    }

    fn outside(&self, path: &str) -> Error {
        let roots: Vec<_> = self.0.iter().map(|root| format!("`{}`", root.display())).collect();
        invalid(format!("`{}` is outside the directories allowed here: {}", shown(path), roots.join(", ")))
    }
}

/// `..` taken back by its words, as nobody should need to look at the disk to see that `a/../../b` leaves.
fn without_dots(path: &Path) -> PathBuf {
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
pub(super) fn file_handler<A>(roots: Arc<Roots>, work: fn(&Roots, &A) -> Result<Answer>) -> Handler
where
    A: DeserializeOwned + Send + 'static,
{
    handler(move |input| {
        let roots = Arc::clone(&roots);
        async move {
            let arguments = arguments::<A>(input)?;
            match tokio::task::spawn_blocking(move || work(&roots, &arguments)).await {
                Ok(answer) => answer,
                Err(error) => Err(failed("the work was broken off").with_cause(error)),
            }
        }
    })
}

/// An I/O error in words, without the machine's innards.
pub(super) fn cannot(what: &str, path: &str, error: &io::Error) -> Error {
    #[expect(clippy::wildcard_enum_match_arm, reason = "an open enum of the standard library")]
    let reason = match error.kind() {
        _ if beneath::is_escape(error) => "it leads outside the directories allowed here",
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
    let message = format!("cannot {what} `{}`: {reason}", shown(path));
    failed(message).with_cause(io::Error::from(error.kind()))
}

fn unreachable_root(root: &Path, error: &io::Error) -> Error {
    cannot("reach the root", &root.display().to_string(), error)
}
