//! The project files that were trusted, with what was trusted of each: one JSON file for all projects of a user.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::Value;
use toolcrib_core::config::TrustedFile;
use toolcrib_core::{Code, Error, Result, ResultExt};

use super::default_data_directory;
use crate::private_dir::ensure_private_directory;

/// Where it is remembered which files were trusted.
pub fn trust_file() -> Result<PathBuf> {
    Ok(default_data_directory(None)?.with_file_name("trusted.json"))
}

/// What was trusted of a file. An entry that an older version wrote covers less than is trusted today, so it counts as
/// none.
pub(super) fn find_trusted(file: &Path) -> Result<Option<TrustedFile>> {
    let entry = read_all()?.remove(&file_key(file));
    Ok(entry.and_then(|entry| serde_json::from_value(entry).ok()))
}

pub(super) fn store_trusted(file: &Path, trusted: &TrustedFile) -> Result<()> {
    let mut known = read_all()?;
    let entry = serde_json::to_value(trusted).context(Code::Internal, "write what is trusted")?;
    known.insert(file_key(file), entry);
    let path = trust_file()?;
    if let Some(directory) = path.parent() {
        ensure_private_directory(directory)?;
    }
    let text = serde_json::to_string_pretty(&known).context(Code::Internal, "write the list of trusted files")?;
    write_private(&path, &text).context(Code::Internal, format!("write `{}`", path.display()))
}

fn read_all() -> Result<BTreeMap<String, Value>> {
    let path = trust_file()?;
    // In a directory that others can change they could trust files for this user.
    if let Some(directory) = path.parent().filter(|directory| directory.is_dir()) {
        ensure_private_directory(directory)?;
    }
    ensure_own_file(&path)?;
    match std::fs::read_to_string(&path) {
        Ok(text) => serde_json::from_str(&text)
            .context(Code::ConfigInvalid, format!("`{}` is damaged; remove it and trust again", path.display())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(BTreeMap::new()),
        Err(error) => {
            Err(Error::new(Code::ConfigInvalid, format!("cannot read `{}`: {error}", path.display())).with_cause(error))
        }
    }
}

fn file_key(file: &Path) -> String {
    std::fs::canonicalize(file).unwrap_or_else(|_| file.to_owned()).display().to_string()
}

fn write_private(path: &Path, text: &str) -> std::io::Result<()> {
    let mut options = std::fs::OpenOptions::new();
    options.create(true).write(true).truncate(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    // Whole or not at all: a crash in between leaves the old file.
    let new = path.with_extension(format!("{}.new", std::process::id()));
    std::io::Write::write_all(&mut options.open(&new)?, text.as_bytes())?;
    std::fs::rename(&new, path)
}

/// Refuses a file that belongs to another user or that others may change.
#[cfg(unix)]
fn ensure_own_file(path: &Path) -> Result<()> {
    use std::os::unix::fs::MetadataExt;

    let Ok(found) = std::fs::symlink_metadata(path) else { return Ok(()) };
    let user = rustix::process::geteuid().as_raw();
    if found.is_file() && found.uid() == user && found.mode() & 0o022 == 0 {
        return Ok(());
    }
    let message = format!(
        "`{}`, which says what is trusted, is no plain file of this user that only they can change; look at it, then \
         remove it and trust again",
        path.display()
    );
    Err(Error::new(Code::ConfigInvalid, message))
}

#[cfg(not(unix))]
#[expect(clippy::unnecessary_wraps, reason = "as on Unix")]
fn ensure_own_file(_: &Path) -> Result<()> {
    Ok(())
}
