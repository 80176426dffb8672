//! Debian's Chromium, for the tests of the console, and the typeface of its screenshots.

use std::path::Path;

use crate::paths::WorkspacePaths;

/// Names without versions: Debian has one version per release.
pub(super) const PINS: [&str; 2] = ["chromium", "fonts-inter"];
/// A symbolic link to the program. It dangles, and so counts as missing, when the package is removed.
pub(super) const MARKER_FILE: &str = "chromium";
const CHROMIUM_PATH: &str = "/usr/bin/chromium";

/// Installs the browser if the system has none, and links it.
pub(super) fn fetch(paths: &WorkspacePaths) -> Result<(), String> {
    let log = paths.deps_dir.join("browser.log");
    if !Path::new(CHROMIUM_PATH).exists() {
        super::install_package("chromium", &log).map_err(|error| format!("`chromium` is missing: {error}"))?;
    }
    // Optional: only the screenshots in the documentation depend on the typeface.
    if let Err(error) = super::install_package("fonts-inter", &log) {
        println!("    without fonts-inter: {error}");
    }
    let link = paths.deps_dir.join(MARKER_FILE);
    // A dangling link would make `symlink` fail; usually there is none.
    let _ = std::fs::remove_file(&link);
    std::os::unix::fs::symlink(CHROMIUM_PATH, &link).map_err(|error| format!("link `{CHROMIUM_PATH}`: {error}"))
}
