//! The packages from npm: Node.js itself, the reference servers, the TypeScript SDKs, the conformance suite, the
//! Inspector's command line.

use std::fs;
use std::process::Command;

use crate::place::Place;
use crate::process::quiet_success;

const PACKAGE: &str = include_str!("../../deps/package.json");
const LOCK: &str = include_str!("../../deps/package-lock.json");
const NOTHING: &str = include_str!("../../deps/nothing/package.json");

pub(super) const PINS: [&str; 3] = [PACKAGE, LOCK, NOTHING];
pub(super) const PROOF: &str = "node_modules/@modelcontextprotocol/inspector/clients/launcher/build/index.js";

pub(super) fn fetch(place: &Place) -> Result<(), String> {
    let log = place.deps.join("npm.log");
    super::need("npm", "npm", &log)?;
    fs::create_dir_all(place.deps.join("nothing")).map_err(|error| format!("make `nothing`: {error}"))?;
    let files = [("package.json", PACKAGE), ("package-lock.json", LOCK), ("nothing/package.json", NOTHING)];
    for (name, text) in files {
        fs::write(place.deps.join(name), text).map_err(|error| format!("write `{name}`: {error}"))?;
    }
    let mut command = Command::new("npm");
    command.args(["ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]);
    quiet_success(command.current_dir(&place.deps), &log, super::FETCH_DEADLINE)
}
