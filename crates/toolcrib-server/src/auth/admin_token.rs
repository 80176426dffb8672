//! The administrator's token: in the variable `TOOLCRIB_ADMIN_TOKEN`, or else in the file `DATA/admin.token`. The
//! variable gives several nodes the same token.
//!
//! Reading the file gives full access, so only its owner may have read permission; a file that others can read is refused
//! and not repaired, for its token may be known already.

use std::ffi::OsString;
use std::fs;
use std::io::{self, Write};
use std::path::Path;

use toolcrib::core::fingerprint::Fingerprint;
use toolcrib::private_dir::ensure_private_directory;
use toolcrib::registry::random_token;
use toolcrib::{Code, Error, Result};

/// Name of the file in the data directory.
const TOKEN_FILE_NAME: &str = "admin.token";
/// Minimum length of a token, so that one written by hand is as hard to guess as a generated one. A generated token has
/// 47 characters.
const MIN_TOKEN_LEN: usize = 32;
/// Variable with the token; an empty one counts as unset.
const TOKEN_VARIABLE: &str = "TOOLCRIB_ADMIN_TOKEN";

/// The administrator's token, of which only the digest is kept.
#[derive(Debug)]
pub(super) struct AdminToken {
    pub(super) hash: Fingerprint,
    pub(super) origin: AdminTokenOrigin,
    /// The file, or the variable; for messages to local users.
    pub(super) location: String,
}

/// Where the administrator's token comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AdminTokenOrigin {
    /// The file in the data directory, of this node alone.
    File,
    /// The variable, which gives several nodes the same token.
    Variable,
}

impl AdminToken {
    /// Reads the variable; `None` without it.
    pub(super) fn from_variable() -> Result<Option<AdminToken>> {
        let Some(value) = std::env::var_os(TOKEN_VARIABLE).filter(|value| !value.is_empty()) else { return Ok(None) };
        let hash = Fingerprint::digest(parse_variable(value)?);
        Ok(Some(AdminToken { hash, origin: AdminTokenOrigin::Variable, location: TOKEN_VARIABLE.to_owned() }))
    }

    /// Reads the file, or creates it with a random token. Fails when other users may know the token.
    pub(super) fn from_file(data_dir: &Path) -> Result<AdminToken> {
        ensure_private_directory(data_dir)?;
        let path = data_dir.join(TOKEN_FILE_NAME);
        let hash = Fingerprint::digest(read_or_create(data_dir, &path)?);
        Ok(AdminToken { hash, origin: AdminTokenOrigin::File, location: path.display().to_string() })
    }
}

/// Returns the token in the variable. The error does not contain it.
fn parse_variable(value: OsString) -> Result<String> {
    let token = value.into_string().unwrap_or_default().trim().to_owned();
    if !is_token(&token) {
        let message = format!(
            "`{TOKEN_VARIABLE}` holds no token of {MIN_TOKEN_LEN} or more printable ASCII characters without spaces; set it to \
             a random one, such as the output of `openssl rand -hex 32`"
        );
        return Err(Error::new(Code::ConfigInvalid, message));
    }
    Ok(token)
}

/// Whether a text is long enough and can be sent in a header.
fn is_token(text: &str) -> bool {
    text.len() >= MIN_TOKEN_LEN && text.bytes().all(|byte| byte.is_ascii_graphic())
}

/// Reads the token in the file, or creates it.
fn read_or_create(data_dir: &Path, path: &Path) -> Result<String> {
    let invalid = |reason: String| {
        let message = format!("`{}` {reason}; remove it, and the next start creates a new one", path.display());
        Error::new(Code::ConfigInvalid, message)
    };
    // Read first and created only if missing: an existing file must never be replaced, because clients know its token.
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            create(data_dir, path).map_err(|error| invalid(format!("cannot be created: {error}")).with_cause(error))?
        }
        Err(error) => return Err(invalid(format!("cannot be read: {error}")).with_cause(error)),
    };
    // Checked for a new file too: on a file system without permissions the file is readable by others whatever was
    // asked for.
    if let Some(reason) = exposure_reason(path).map_err(|error| invalid(format!("cannot be inspected: {error}")))? {
        return Err(invalid(reason.into()));
    }
    let token = text.trim();
    if !is_token(token) {
        let reason = format!("holds no token of {MIN_TOKEN_LEN} or more printable ASCII characters without spaces");
        return Err(invalid(reason));
    }
    Ok(token.to_owned())
}

/// Writes a new token to a temporary file and links it to `path`, so that no reader sees half of it. When two processes
/// do this at once, the first link wins and both return its token.
fn create(data_dir: &Path, path: &Path) -> io::Result<String> {
    let temporary = data_dir.join(format!(".{TOKEN_FILE_NAME}-{:016x}", rand::random::<u64>()));
    let written = private_file_options().open(&temporary).and_then(|mut file| {
        writeln!(file, "{}", random_token())?;
        // Otherwise a crash could leave an empty file behind the link.
        file.sync_all()
    });
    let linked = written.and_then(|()| match fs::hard_link(&temporary, path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        // Not every file system has hard links.
        Err(_) => fs::rename(&temporary, path),
        Ok(()) => Ok(()),
    });
    // Fails when the file was renamed instead of linked, or was never written.
    let _ = fs::remove_file(&temporary);
    linked?;
    fs::read_to_string(path)
}

/// Replaces a file in a directory, or creates it, so that only its owner may read it and no reader sees half of it.
pub(super) fn replace_private_file(directory: &Path, name: &str, content: &str) -> io::Result<()> {
    let temporary = directory.join(format!(".{name}-{:016x}", rand::random::<u64>()));
    let written = private_file_options().open(&temporary).and_then(|mut file| {
        writeln!(file, "{content}")?;
        file.sync_all()
    });
    let replaced = written.and_then(|()| fs::rename(&temporary, directory.join(name)));
    if replaced.is_err() {
        // It may not have been created.
        let _ = fs::remove_file(&temporary);
    }
    replaced
}

/// Options that create a new file which only its owner may read and write. On systems other than Unix, a new file
/// inherits the permissions of its directory.
fn private_file_options() -> fs::OpenOptions {
    let mut options = fs::OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}

/// Returns why other users may know the token, or `None` if they cannot. Correcting the permissions now would not help:
/// another user may have read the file before.
#[cfg(unix)]
fn exposure_reason(path: &Path) -> io::Result<Option<&'static str>> {
    use std::os::unix::fs::MetadataExt;

    let metadata = fs::symlink_metadata(path)?;
    // The data directory belongs to the user of this process.
    let owner = fs::metadata(path.parent().unwrap_or(Path::new(".")))?.uid();
    Ok(match metadata.mode() & 0o077 {
        _ if metadata.is_symlink() => Some("is a symbolic link, whose target other users may be able to read"),
        _ if !metadata.is_file() => Some("is not a file"),
        _ if metadata.uid() != owner => Some("belongs to another user, who may know the token"),
        0 => None,
        _ => Some("can be read by other users, who may know the token"),
    })
}

/// Elsewhere the profile directory of a user is private by default.
#[cfg(not(unix))]
fn exposure_reason(_path: &Path) -> io::Result<Option<&'static str>> {
    Ok(None)
}

#[cfg(all(test, unix))]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn read_or_create(data_dir: &Path) -> Result<String> {
        ensure_private_directory(data_dir)?;
        super::read_or_create(data_dir, &data_dir.join(TOKEN_FILE_NAME))
    }

    #[test]
    fn a_variable_needs_a_token_that_a_header_can_have() {
        let token = "0123456789abcdef".repeat(2);
        assert_eq!(parse_variable(format!("{token}\n").into()).unwrap(), token);
        for text in ["letmein", &token[1..], &format!("{token} {token}"), &format!("{token}é")] {
            let error = parse_variable(text.into()).unwrap_err();
            assert!(error.message.contains("holds no token of 32") && !error.message.contains(text), "{error}");
        }
    }

    #[test]
    fn the_token_is_created_once_and_readable_by_its_owner_alone() {
        let directory = tempfile::tempdir().unwrap();
        let data = directory.path().join("data");
        let token = read_or_create(&data).unwrap();
        assert!(token.starts_with("tcb_") && token.len() == 47, "{token}");
        assert_eq!(read_or_create(&data).unwrap(), token);
        let mode = fs::metadata(data.join(TOKEN_FILE_NAME)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(fs::read_dir(&data).unwrap().count(), 1);
    }

    #[test]
    fn a_file_that_others_can_read_or_that_holds_no_token_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let token = read_or_create(directory.path()).unwrap();
        let path = directory.path().join(TOKEN_FILE_NAME);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        let error = read_or_create(directory.path()).unwrap_err();
        assert!(error.message.contains("can be read by other users") && !error.message.contains(&token), "{error}");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        let elsewhere = directory.path().join("elsewhere");
        fs::rename(&path, &elsewhere).unwrap();
        std::os::unix::fs::symlink(&elsewhere, &path).unwrap();
        let error = read_or_create(directory.path()).unwrap_err();
        assert!(error.message.contains("is a symbolic link") && !error.message.contains(&token), "{error}");
        fs::rename(&elsewhere, &path).unwrap();
        // Only root can change the owner of a file.
        if std::os::unix::fs::chown(&path, Some(65_534), None).is_ok() {
            let error = read_or_create(directory.path()).unwrap_err();
            assert!(error.message.contains("belongs to another user"), "{error}");
            std::os::unix::fs::chown(&path, Some(0), None).unwrap();
        }
        fs::write(&path, "letmein\n").unwrap();
        let error = read_or_create(directory.path()).unwrap_err();
        assert!(error.message.contains("holds no token") && !error.message.contains("letmein"), "{error}");
    }
}
