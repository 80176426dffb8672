//! Directories that other users cannot write, and files that they cannot read: those of the store, the tokens and the
//! logs.
//!
//! A user who can write there can replace the journal, plant a token or redirect a log by a link. An existing
//! directory is only checked, its mode is not changed; whether others can read it is not checked.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

use toolcrib_core::{Code, Error, Result};

/// Creates a directory for its owner only, or checks an existing one: it must belong to the user of this process (also
/// if that is root), and no other user may write to it. A link is followed, and its target checked.
pub fn ensure_private_directory(path: &Path) -> Result<()> {
    let unusable = |error: std::io::Error| {
        let message = format!("cannot create the data directory `{}`: {}", path.display(), error.kind());
        Error::new(Code::StoreUnavailable, message).with_retryable(false).with_cause(error)
    };
    if !path.is_dir() {
        let mut builder = fs::DirBuilder::new();
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        // Missing parents are created with the same mode.
        builder.recursive(true).create(path).map_err(unusable)?;
    }
    check_ownership(path, &fs::metadata(path).map_err(unusable)?)
}

/// Returns options to write files that only their owner may access.
pub(crate) fn private_file_options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}

/// Replaces a file, for its owner only. A reader sees the old file or the new one, never a part.
pub(crate) fn replace_private_file(path: &Path, text: &str) -> io::Result<()> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let temporary = path.with_file_name(format!(".{name}-{:016x}", rand::random::<u64>()));
    let written = private_file_options().create_new(true).open(&temporary).and_then(|mut file| {
        file.write_all(text.as_bytes())?;
        // Without this, a power failure may leave an empty file.
        file.sync_data()
    });
    let renamed = written.and_then(|()| fs::rename(&temporary, path));
    if renamed.is_err() {
        // It may not have been created.
        let _ = fs::remove_file(&temporary);
    }
    renamed
}

/// Rejects a directory of another user, or one that others can write.
#[cfg(unix)]
fn check_ownership(path: &Path, metadata: &fs::Metadata) -> Result<()> {
    use std::os::unix::fs::MetadataExt;

    let rejected =
        |reason: String| Error::new(Code::ConfigInvalid, format!("the directory `{}` {reason}", path.display()));
    let user = rustix::process::geteuid().as_raw();
    // Also for root: a directory of an ordinary user would let that user replace what root reads.
    if metadata.uid() != user {
        return Err(rejected(format!(
            "belongs to user {} and Toolcrib runs as user {user}; run it as the owner, or give another directory with \
             `--data DIR`",
            metadata.uid()
        )));
    }
    // Write permission for the group or for others; the sticky bit of `/tmp` does not help, since files could be added.
    if metadata.mode() & 0o022 != 0 {
        return Err(rejected(format!(
            "can be changed by other users (mode {:04o}), who could replace the store and its tokens; run `chmod go-w {}`, \
             or give another directory with `--data DIR`",
            metadata.mode() & 0o7777,
            path.display()
        )));
    }
    Ok(())
}

/// On other systems, directories of a user are private by default.
#[cfg(not(unix))]
#[expect(clippy::unnecessary_wraps, reason = "as on Unix")]
fn check_ownership(_path: &Path, _metadata: &fs::Metadata) -> Result<()> {
    Ok(())
}

#[cfg(all(test, unix))]
mod tests {
    use std::os::unix::fs::{PermissionsExt, chown, symlink};

    use super::*;

    #[expect(clippy::unwrap_used, reason = "test helper")]
    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o7777
    }

    #[test]
    fn a_new_directory_is_private_and_one_that_others_can_only_read_is_accepted_unchanged() {
        let tempdir = tempfile::tempdir().unwrap();
        let new = tempdir.path().join("a/b");
        ensure_private_directory(&new).unwrap();
        assert_eq!((mode(&new), mode(&tempdir.path().join("a"))), (0o700, 0o700));
        fs::set_permissions(&new, fs::Permissions::from_mode(0o755)).unwrap();
        ensure_private_directory(&new).unwrap();
        assert_eq!(mode(&new), 0o755);
    }

    #[test]
    fn a_directory_that_others_can_write_is_rejected_also_behind_a_link() {
        let tempdir = tempfile::tempdir().unwrap();
        let open = tempdir.path().join("open");
        let link = tempdir.path().join("link");
        fs::create_dir(&open).unwrap();
        symlink(&open, &link).unwrap();
        for writable in [0o777, 0o1777, 0o770, 0o720, 0o702] {
            fs::set_permissions(&open, fs::Permissions::from_mode(writable)).unwrap();
            for path in [&open, &link] {
                let error = ensure_private_directory(path).unwrap_err();
                let advice = format!("chmod go-w {}", path.display());
                assert!(error.code == Code::ConfigInvalid && error.message.contains(&advice), "{writable:o}: {error}");
            }
            assert_eq!(mode(&open), writable);
        }
        assert_eq!(ensure_private_directory(Path::new("/tmp")).is_err(), mode(Path::new("/tmp")) & 0o022 != 0);
    }

    #[test]
    fn the_directory_of_another_user_is_rejected_also_for_root() {
        if !rustix::process::geteuid().is_root() {
            let error = ensure_private_directory(Path::new("/")).unwrap_err();
            assert!(error.message.contains("belongs to user 0"), "{error}");
            return;
        }
        let tempdir = tempfile::tempdir().unwrap();
        let other = tempdir.path().join("other");
        fs::create_dir(&other).unwrap();
        chown(&other, Some(65_534), None).unwrap();
        let error = ensure_private_directory(&other).unwrap_err();
        assert!(error.message.contains("belongs to user 65534 and Toolcrib runs as user 0"), "{error}");
    }
}
