//! Stores which project files a user has trusted, and with what content: one JSON file for all projects.
//!
//! `trusted.json` lies beside the data directories, not in a project: a project must not be able to trust itself. For
//! the same reason the file and its directory must belong to the user alone. An entry holds the canonical path and what
//! the trust covers, with hashes in place of secrets.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::Value;
use toolcrib_config::TrustedFile;
use toolcrib_core::{Code, Error, Result, ResultExt};

use super::default_data_directory;
use crate::private_dir::{ensure_private_directory, replace_private_file};

/// Returns the path of the file. Fails if there is no home directory.
pub fn trust_file() -> Result<PathBuf> {
    Ok(default_data_directory(None)?.with_file_name("trusted.json"))
}

/// Returns what was trusted of a project's file. An entry of an older version covers less than is checked today, so it
/// does not count.
pub(super) fn find_trusted(file: &Path) -> Result<Option<TrustedFile>> {
    let entry = read_all()?.remove(&file_key(file));
    Ok(entry.and_then(|entry| serde_json::from_value(entry).ok()))
}

/// Stores what was trusted of a project's file. Two commands at the same moment may overwrite each other's entry; the
/// file stays valid, and the lost entry is asked for again.
pub(super) fn store_trusted(file: &Path, trusted: &TrustedFile) -> Result<()> {
    let mut entries = read_all()?;
    let entry = serde_json::to_value(trusted).context(Code::Internal, "write what is trusted")?;
    entries.insert(file_key(file), entry);
    let path = trust_file()?;
    if let Some(directory) = path.parent() {
        ensure_private_directory(directory)?;
    }
    let text = serde_json::to_string_pretty(&entries).context(Code::Internal, "write the list of trusted files")?;
    replace_private_file(&path, &text).context(Code::Internal, format!("write `{}`", path.display()))
}

/// Reads all entries; none if the file does not exist.
fn read_all() -> Result<BTreeMap<String, Value>> {
    let path = trust_file()?;
    // Others who can write to the directory could trust files on behalf of this user.
    if let Some(directory) = path.parent().filter(|directory| directory.is_dir()) {
        ensure_private_directory(directory)?;
    }
    ensure_own_file(&path)?;
    match std::fs::read_to_string(&path) {
        Ok(text) => serde_json::from_str(&text).context(
            Code::ConfigInvalid,
            format!("`{}` is damaged; remove it and run `toolcrib trust` again", path.display()),
        ),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(BTreeMap::new()),
        Err(error) => {
            Err(Error::new(Code::ConfigInvalid, format!("cannot read `{}`: {error}", path.display())).with_cause(error))
        }
    }
}

/// Returns the key of a project's file: its path with links resolved. A link to a trusted file is therefore trusted
/// too.
fn file_key(file: &Path) -> String {
    std::fs::canonicalize(file).unwrap_or_else(|_| file.to_owned()).display().to_string()
}

/// Rejects a file that belongs to another user or that others can write.
#[cfg(unix)]
fn ensure_own_file(path: &Path) -> Result<()> {
    use std::os::unix::fs::MetadataExt;

    let Ok(metadata) = std::fs::symlink_metadata(path) else { return Ok(()) };
    let user = rustix::process::geteuid().as_raw();
    if metadata.is_file() && metadata.uid() == user && metadata.mode() & 0o022 == 0 {
        return Ok(());
    }
    let message = format!(
        "the list of trusted files `{}` is not a regular file that only this user can write; review it, then remove it \
         and run `toolcrib trust` again",
        path.display()
    );
    Err(Error::new(Code::ConfigInvalid, message))
}

#[cfg(not(unix))]
#[expect(clippy::unnecessary_wraps, reason = "as on Unix")]
fn ensure_own_file(_: &Path) -> Result<()> {
    Ok(())
}
