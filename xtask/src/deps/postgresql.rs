//! PostgreSQL of Debian. Tests start servers of their own from its programs.

use std::fs;
use std::path::Path;

use super::install_package;
use crate::process::is_available;

/// Settings of Debian for the cluster that the package creates.
const CLUSTER_SETTINGS_DIR: &str = "/etc/postgresql-common/createcluster.d";

/// Installs the server unless `initdb` is there. Clusters of the system are neither used nor changed.
pub(super) fn ensure_installed(log: &Path) -> Result<(), String> {
    if has_initdb() {
        return Ok(());
    }
    let describe = |error: String| format!("`initdb` is missing: {error}");
    // First the package that reads the settings, so that the server's package creates and starts no cluster.
    install_package("postgresql-common", log).map_err(describe)?;
    let settings = Path::new(CLUSTER_SETTINGS_DIR).join("toolcrib-tests.conf");
    fs::create_dir_all(CLUSTER_SETTINGS_DIR)
        .and_then(|()| fs::write(&settings, "create_main_cluster = false\n"))
        .map_err(|error| format!("write `{}`: {error}", settings.display()))?;
    let installed = install_package("postgresql", log).map_err(describe);
    // For this installation only: an administrator expects the default later.
    let _ = fs::remove_file(&settings);
    installed
}

/// Whether Debian's programs, or others in `PATH`, are there.
fn has_initdb() -> bool {
    let versions = fs::read_dir("/usr/lib/postgresql").ok().into_iter().flatten().flatten();
    versions.into_iter().any(|entry| entry.path().join("bin/initdb").is_file()) || is_available("initdb", "--version")
}
