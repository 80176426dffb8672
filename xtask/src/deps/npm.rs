//! The packages from npm: Node.js itself, the reference servers, the TypeScript SDK, the conformance suite.

use std::fs;
use std::process::Command;

use crate::place::Place;
use crate::process::quiet_success;

const PACKAGE: &str = include_str!("../../deps/package.json");
const LOCK: &str = include_str!("../../deps/package-lock.json");

pub(super) const PINS: [&str; 2] = [PACKAGE, LOCK];
pub(super) const PROOF: &str = "node_modules/@modelcontextprotocol/conformance/dist/index.js";

pub(super) fn fetch(place: &Place) -> Result<(), String> {
    let log = place.deps.join("npm.log");
    super::need("npm", "npm", &log)?;
    for (name, text) in [("package.json", PACKAGE), ("package-lock.json", LOCK)] {
        fs::write(place.deps.join(name), text).map_err(|error| format!("write `{name}`: {error}"))?;
    }
    let mut command = Command::new("npm");
    command.args(["ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]);
    quiet_success(command.current_dir(&place.deps), &log, super::FETCH_DEADLINE)
}
