//! The browser that the console is looked at with, from Debian's packages, and a typeface for its pictures.

use std::path::Path;

use crate::place::Place;

pub(super) const PINS: [&str; 2] = ["chromium", "fonts-inter"];
/// Leads to the program, and to nothing when somebody removes it.
pub(super) const PROOF: &str = "chromium";
const PROGRAM: &str = "/usr/bin/chromium";

pub(super) fn fetch(place: &Place) -> Result<(), String> {
    let log = place.deps.join("browser.log");
    if !Path::new(PROGRAM).exists() {
        super::install("chromium", &log).map_err(|error| format!("`chromium` is missing: {error}"))?;
    }
    // Pages are fine with any typeface; this is the one that their pictures in the documentation show.
    if let Err(error) = super::install("fonts-inter", &log) {
        println!("    without fonts-inter: {error}");
    }
    let proof = place.deps.join(PROOF);
    // One that leads nowhere any more is in the way.
    let _none_there = std::fs::remove_file(&proof);
    std::os::unix::fs::symlink(PROGRAM, &proof).map_err(|error| format!("link `{PROGRAM}`: {error}"))
}
