//! `toolcrib lock`: writes a lockfile with the name and fingerprint of every tool, which `toolcrib diff` compares with.
//!
//! The lockfile is JSON, sorted, and the same byte for byte while no tool changes, so that it can be kept in a
//! repository. Its format is in `toolcrib_diff::lockfile`. A lockfile is complete or not written: a source that was
//! down for a moment would otherwise look as if its tools had been removed. `--cached` is the explicit exception.

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::Args;
use toolcrib::config_file::LoadedConfig;
use toolcrib::refresh::RequiredFreshness;
use toolcrib::registry::{DiscoveryStatus, SourceView};
use toolcrib::{Code, Error, Result};

use crate::arguments::CommonArguments;
use crate::discovery_wait::{DiscoveryArguments, EnsureOutcome};
use crate::output;
use crate::plural::pluralize;
use crate::session::CliSession;

/// Default name of a lockfile.
const LOCKFILE_NAME: &str = "toolcrib.lock";

/// Write a lockfile: every tool by its name and fingerprint, for `diff` to compare with
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  toolcrib lock
  toolcrib lock --output ci/toolcrib.lock
  toolcrib lock --cached
  toolcrib lock --json

The file stays the same byte for byte while no tool changes: keep it in your repository, and let
`toolcrib diff --ci` fail a build when a tool differs from it. With `--json` it is printed, not
written. Stale tool lists are refreshed first, and if a source cannot be read nothing is written;
`--cached` locks the cached tool lists and contacts no source.")]
pub(crate) struct Arguments {
    /// File to write; by default `toolcrib.lock` beside the configuration file
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    #[command(flatten)]
    discovery: DiscoveryArguments,
}

/// Refreshes the sources, then writes or prints the lockfile. All or nothing, unless `--cached` is given.
pub(crate) async fn run(common: &CommonArguments, arguments: Arguments) -> Result<()> {
    let session = CliSession::open(common).await?;
    let required = arguments.discovery.required_freshness_or(RequiredFreshness::Fresh);
    let ensured = session.ensure(required, None, arguments.discovery.wait_policy_for_all()).await;
    // Computed after the wait, from the status that the discoveries left.
    let (unread, unknown) = unread_sources(session.registry.sources().list(), &ensured);
    if required == RequiredFreshness::Cached {
        session.hint_stale(None);
        if !unknown.is_empty() {
            common.hint(&format!(
                "warning: the lockfile is incomplete, because no tool list is cached for {}",
                unknown.join(", ")
            ));
        }
    }
    // Compute path and lockfile while the session is open; write after closing it.
    let lock = session.registry.lockfile().build().await;
    let path = arguments.output.unwrap_or_else(|| default_lockfile_path(&session.loaded_config));
    session.close().await;
    let lock = lock?;
    // A list that is missing or out of date would silently drop tools from the lockfile.
    if required != RequiredFreshness::Cached && !unread.is_empty() {
        let message = format!(
            "nothing was locked, because the current tool list could not be read from {}; `--cached` locks the cached one",
            unread.join(", ")
        );
        return Err(Error::new(Code::ToolUnavailable, message));
    }
    if common.json {
        output::print_json(&lock)?;
    } else {
        write_atomically(&path, &lock.to_text()?)?;
        let tools = lock.sources.values().map(|source| source.tools.len()).sum();
        let tools = pluralize(tools, "tool");
        let sources = pluralize(lock.sources.len(), "source");
        output::print_line(&format!("{}: {tools} of {sources}", path.display()))?;
    }
    Ok(())
}

/// Returns the enabled sources whose current tool list could not be read, and those without any cached list. The
/// second list is a part of the first; both have names in backticks, for messages.
fn unread_sources(sources: Vec<SourceView>, ensured: &EnsureOutcome) -> (Vec<String>, Vec<String>) {
    let mut unread = Vec::new();
    let mut unknown = Vec::new();
    for source in sources.into_iter().filter(|source| source.enabled) {
        let name = format!("`{}`", source.id);
        if source.inventory_hash.is_none() {
            unknown.push(name.clone());
        }
        let failed = source.status == DiscoveryStatus::Failed || ensured.unanswered.contains(&source.id);
        if source.inventory_hash.is_none() || failed || ensured.left_to_other_nodes.contains(&source.id) {
            unread.push(name);
        }
    }
    (unread, unknown)
}

/// Returns `toolcrib.lock` beside the configuration file, or in the working directory without one.
pub(crate) fn default_lockfile_path(loaded_config: &LoadedConfig) -> PathBuf {
    let directory = loaded_config.file.as_deref().and_then(Path::parent);
    directory.map_or_else(|| PathBuf::from(LOCKFILE_NAME), |directory| directory.join(LOCKFILE_NAME))
}

/// Writes to a temporary file and renames it, so that readers see either the old or the new content.
fn write_atomically(path: &Path, text: &str) -> Result<()> {
    let write_error = |error: std::io::Error| {
        Error::new(Code::ConfigInvalid, format!("cannot write `{}`: {error}", path.display())).with_cause(error)
    };
    // The process id makes the name unique among concurrent runs.
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.new", std::process::id()));
    let temporary = path.with_file_name(name);
    // In the same directory, because a rename across file systems is not atomic; synced, so that the name never refers
    // to an empty file after a crash.
    let mut file = std::fs::File::create(&temporary).map_err(write_error)?;
    let written = file.write_all(text.as_bytes()).and_then(|()| file.sync_all());
    if let Err(error) = written.and_then(|()| std::fs::rename(&temporary, path)) {
        // The first error is reported; a leftover temporary file is harmless.
        let _ = std::fs::remove_file(&temporary);
        return Err(write_error(error));
    }
    Ok(())
}

/// Reads the text of a lockfile; the error for a missing one names the command that writes it. Fails with `NOT_FOUND`
/// or `BAD_REQUEST`, both exit code 2.
pub(crate) fn read_lockfile(path: &Path) -> Result<String> {
    /// Far above the size of a real lockfile; protects against naming some other file.
    const MAX_LOCKFILE_BYTES: u64 = 64 * 1024 * 1024;
    let metadata = std::fs::metadata(path).map_err(|error| {
        let path = path.display();
        let message = if error.kind() == std::io::ErrorKind::NotFound {
            format!("there is no lockfile at `{path}`; `toolcrib lock` writes one")
        } else {
            format!("cannot read `{path}`: {error}")
        };
        Error::new(Code::NotFound, message).with_cause(error)
    })?;
    if metadata.len() > MAX_LOCKFILE_BYTES {
        return Err(Error::new(Code::BadRequest, format!("`{}` is too large for a lockfile", path.display())));
    }
    std::fs::read_to_string(path).map_err(|error| {
        Error::new(Code::BadRequest, format!("cannot read `{}`: {error}", path.display())).with_cause(error)
    })
}
