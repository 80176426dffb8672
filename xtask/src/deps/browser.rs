//! The browser that the console is looked at with, from Debian's packages, and a typeface for its pictures.

use std::path::Path;

use crate::paths::WorkspacePaths;

pub(super) const PINS: [&str; 2] = ["chromium", "fonts-inter"];
/// Leads to the program, and to nothing when somebody removes it.
pub(super) const MARKER_FILE: &str = "chromium";
const CHROMIUM_PATH: &str = "/usr/bin/chromium";

pub(super) fn fetch(place: &WorkspacePaths) -> Result<(), String> {
    let log = place.deps_dir.join("browser.log");
    if !Path::new(CHROMIUM_PATH).exists() {
        super::install_package("chromium", &log).map_err(|error| format!("`chromium` is missing: {error}"))?;
    }
    // Pages are fine with any typeface; this is the one that their pictures in the documentation show.
    if let Err(error) = super::install_package("fonts-inter", &log) {
        println!("    without fonts-inter: {error}");
    }
    let proof = place.deps_dir.join(MARKER_FILE);
    // One that leads nowhere any more is in the way.
    let _none_there = std::fs::remove_file(&proof);
    std::os::unix::fs::symlink(CHROMIUM_PATH, &proof).map_err(|error| format!("link `{CHROMIUM_PATH}`: {error}"))
}
