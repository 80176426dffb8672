//! `DATA/admin.token`: the token of who runs this. Whoever can read the file may manage, so nobody else may read it.

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use toolcrib::private_dir::ensure_private_directory;
use toolcrib::registry::random_token;
use toolcrib::{Code, Error, Result};

const TOKEN_FILE_NAME: &str = "admin.token";
/// One that somebody wrote by hand must be as hard to guess.
const MIN_TOKEN_LEN: usize = 32;

pub(super) fn read_or_create(data: &Path) -> Result<String> {
    ensure_private_directory(data)?;
    let path = data.join(TOKEN_FILE_NAME);
    let wrong = |why: String| {
        let message = format!("`{}` {why}; remove it, and the next start makes a new one", path.display());
        Error::new(Code::ConfigInvalid, message)
    };
    let text = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            create(data, &path).map_err(|error| wrong(format!("cannot be made: {error}")).with_cause(error))?
        }
        Err(error) => return Err(wrong(format!("cannot be read: {error}")).with_cause(error)),
    };
    if let Some(reason) = exposure_reason(&path).map_err(|error| wrong(format!("cannot be looked at: {error}")))? {
        return Err(wrong(reason.into()));
    }
    let token = text.trim();
    if token.len() < MIN_TOKEN_LEN || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(wrong(format!("holds no token of {MIN_TOKEN_LEN} or more plain characters")));
    }
    Ok(token.to_owned())
}

/// Written beside its place and put there whole. Of two who make one at the same time, the first wins for both.
fn create(data: &Path, path: &Path) -> io::Result<String> {
    let temporary = data.join(format!(".{TOKEN_FILE_NAME}-{:016x}", rand::random::<u64>()));
    let written = private_file_options().open(&temporary).and_then(|mut file| {
        writeln!(file, "{}", random_token())?;
        file.sync_all()
    });
    let placed = written.and_then(|()| match fs::hard_link(&temporary, path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        // Not every file system has links.
        Err(_) => fs::rename(&temporary, path),
        Ok(()) => Ok(()),
    });
    let _renamed_already = fs::remove_file(&temporary);
    placed?;
    fs::read_to_string(path)
}

#[cfg(unix)]
fn private_file_options() -> fs::OpenOptions {
    use std::os::unix::fs::OpenOptionsExt;
    let mut options = fs::OpenOptions::new();
    options.write(true).create_new(true).mode(0o600);
    options
}

/// Why other users may know the token. What they could read, they may have read: narrowing it now would not make it secret
/// again.
#[cfg(unix)]
fn exposure_reason(path: &Path) -> io::Result<Option<&'static str>> {
    use std::os::unix::fs::MetadataExt;

    let found = fs::symlink_metadata(path)?;
    // The data directory belongs to the user of this process.
    let owner = fs::metadata(path.parent().unwrap_or(Path::new(".")))?.uid();
    Ok(match found.mode() & 0o077 {
        _ if found.is_symlink() => Some("is a link, and where it leads may be open to others"),
        _ if !found.is_file() => Some("is not a file"),
        _ if found.uid() != owner => Some("belongs to another user, so it is no secret"),
        0 => None,
        _ => Some("can be read by others, so it is no secret any more"),
    })
}

#[cfg(not(unix))]
fn private() -> fs::OpenOptions {
    let mut options = fs::OpenOptions::new();
    options.write(true).create_new(true);
    options
}

/// Elsewhere the directory of a user is that user's alone.
#[cfg(not(unix))]
fn exposed(_path: &Path) -> io::Result<Option<&'static str>> {
    Ok(None)
}

#[cfg(all(test, unix))]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn it_is_made_once_for_its_owner_alone() {
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
    fn one_that_others_can_read_or_that_is_no_token_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let token = read_or_create(directory.path()).unwrap();
        let path = directory.path().join(TOKEN_FILE_NAME);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        let error = read_or_create(directory.path()).unwrap_err();
        assert!(error.message.contains("can be read by others") && !error.message.contains(&token), "{error}");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        let elsewhere = directory.path().join("elsewhere");
        fs::rename(&path, &elsewhere).unwrap();
        std::os::unix::fs::symlink(&elsewhere, &path).unwrap();
        let error = read_or_create(directory.path()).unwrap_err();
        assert!(error.message.contains("is a link") && !error.message.contains(&token), "{error}");
        fs::rename(&elsewhere, &path).unwrap();
        // Only root can give a file away.
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
