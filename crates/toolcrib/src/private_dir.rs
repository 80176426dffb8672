//! Directories that other users cannot change: where the store, the tokens and the logs lie.

use std::fs;
use std::path::Path;

use toolcrib_core::{Code, Error, Result};

/// Makes a directory for its owner alone, or checks one that is there: it must belong to the user of this process, root
/// included, and be writable for no other. A link is followed, and its target checked.
pub fn ensure_private_directory(path: &Path) -> Result<()> {
    let unusable = |error: std::io::Error| {
        let message = format!("cannot make the data directory `{}`: {}", path.display(), error.kind());
        Error::new(Code::StoreUnavailable, message).with_retryable(false).with_cause(error)
    };
    if !path.is_dir() {
        let mut builder = fs::DirBuilder::new();
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        builder.recursive(true).create(path).map_err(unusable)?;
    }
    check_ownership(path, &fs::metadata(path).map_err(unusable)?)
}

#[cfg(unix)]
fn check_ownership(path: &Path, found: &fs::Metadata) -> Result<()> {
    use std::os::unix::fs::MetadataExt;

    let refused =
        |reason: String| Error::new(Code::ConfigInvalid, format!("the directory `{}` {reason}", path.display()));
    let user = rustix::process::geteuid().as_raw();
    if found.uid() != user {
        return Err(refused(format!(
            "belongs to user {} and Toolcrib runs as user {user}; run it as the owner, or give another directory with \
             `--data DIR`",
            found.uid()
        )));
    }
    if found.mode() & 0o022 != 0 {
        return Err(refused(format!(
            "can be changed by other users (mode {:04o}), who could replace the store and its tokens; run `chmod go-w {}`, \
             or give another directory with `--data DIR`",
            found.mode() & 0o7777,
            path.display()
        )));
    }
    Ok(())
}

/// Elsewhere the directory of a user is that user's alone.
#[cfg(not(unix))]
#[expect(clippy::unnecessary_wraps, reason = "as on Unix")]
fn check(_path: &Path, _found: &fs::Metadata) -> Result<()> {
    Ok(())
}

#[cfg(all(test, unix))]
mod tests {
    use std::os::unix::fs::{PermissionsExt, chown, symlink};

    use super::*;

    #[expect(clippy::unwrap_used, reason = "what the tests share is a test too")]
    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o7777
    }

    #[test]
    fn a_new_directory_is_for_its_owner_alone_and_one_that_others_can_only_read_is_left_as_it_is() {
        let place = tempfile::tempdir().unwrap();
        let new = place.path().join("a/b");
        ensure_private_directory(&new).unwrap();
        assert_eq!((mode(&new), mode(&place.path().join("a"))), (0o700, 0o700));
        fs::set_permissions(&new, fs::Permissions::from_mode(0o755)).unwrap();
        ensure_private_directory(&new).unwrap();
        assert_eq!(mode(&new), 0o755);
    }

    #[test]
    fn a_directory_that_others_can_change_is_refused_behind_a_link_too() {
        let place = tempfile::tempdir().unwrap();
        let open = place.path().join("open");
        let link = place.path().join("link");
        fs::create_dir(&open).unwrap();
        symlink(&open, &link).unwrap();
        for wide in [0o777, 0o1777, 0o770, 0o720, 0o702] {
            fs::set_permissions(&open, fs::Permissions::from_mode(wide)).unwrap();
            for path in [&open, &link] {
                let error = ensure_private_directory(path).unwrap_err();
                let advice = format!("chmod go-w {}", path.display());
                assert!(error.code == Code::ConfigInvalid && error.message.contains(&advice), "{wide:o}: {error}");
            }
            assert_eq!(mode(&open), wide);
        }
        assert_eq!(ensure_private_directory(Path::new("/tmp")).is_err(), mode(Path::new("/tmp")) & 0o022 != 0);
    }

    #[test]
    fn the_directory_of_another_user_is_refused_for_root_too() {
        if !rustix::process::geteuid().is_root() {
            let error = ensure_private_directory(Path::new("/")).unwrap_err();
            assert!(error.message.contains("belongs to user 0"), "{error}");
            return;
        }
        let place = tempfile::tempdir().unwrap();
        let other = place.path().join("other");
        fs::create_dir(&other).unwrap();
        chown(&other, Some(65_534), None).unwrap();
        let error = ensure_private_directory(&other).unwrap_err();
        assert!(error.message.contains("belongs to user 65534 and Toolcrib runs as user 0"), "{error}");
    }
}
