//! `toolcrib lock`: writes down what every source offers, by names and fingerprints, for `diff` to compare with.

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::Args;
use toolcrib::config_file::LoadedConfig;
use toolcrib::refresh::RequiredFreshness;
use toolcrib::registry::{DiscoveryStatus, SourceView};
use toolcrib::{Code, Error, Result, SourceId};

use crate::arguments::CommonArguments;
use crate::discovery_wait::DiscoveryArguments;
use crate::exit::CommandOutcome;
use crate::output;
use crate::plural::pluralize;
use crate::session::CliSession;

const LOCKFILE_NAME: &str = "toolcrib.lock";

/// Write a lockfile: every tool by its name and fingerprint, for `diff` to compare with
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  toolcrib lock
  toolcrib lock --output ci/toolcrib.lock
  toolcrib lock --cached
  toolcrib lock --json

The file is the same byte for byte while no tool changes: keep it in your repository, and let `toolcrib diff --ci`
fail a build when a tool is not what was locked. With `--json` it is printed instead. Lists that may be old are asked
for first, and when a source cannot be read nothing is written; `--cached` locks what is known and contacts nobody.")]
pub(crate) struct Arguments {
    /// Where to write it, instead of `toolcrib.lock` beside the configuration file
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    #[command(flatten)]
    discovery: DiscoveryArguments,
}

pub(crate) async fn run(common: &CommonArguments, arguments: Arguments) -> Result<CommandOutcome> {
    let session = CliSession::open(common).await?;
    let need = arguments.discovery.required_freshness_or(RequiredFreshness::Fresh);
    let ensured = session.ensure(need, None, arguments.discovery.wait_policy_for_all()).await;
    let (unread, unknown) = unread_sources(session.registry.sources(), &ensured.unanswered);
    if need == RequiredFreshness::Cached {
        session.hint_stale(None);
        if !unknown.is_empty() {
            common.hint(&format!("warning: nothing is known of {}, so nothing of it is locked", unknown.join(", ")));
        }
    }
    let lock = session.registry.lockfile().await;
    let path = arguments.output.unwrap_or_else(|| default_lockfile_path(&session.loaded_config));
    session.close().await;
    let lock = lock?;
    if need != RequiredFreshness::Cached && !unread.is_empty() {
        let message = format!(
            "nothing was locked, for these could not be read: {}; `--cached` locks what is known of them",
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
    Ok(CommandOutcome::Success)
}

/// The enabled sources whose list of now could not be had, and those of which there is none at all.
fn unread_sources(sources: Vec<SourceView>, unanswered: &[SourceId]) -> (Vec<String>, Vec<String>) {
    let mut unread = Vec::new();
    let mut unknown = Vec::new();
    for source in sources.into_iter().filter(|source| source.enabled) {
        let name = format!("`{}`", source.id);
        if source.inventory_hash.is_none() {
            unknown.push(name.clone());
        }
        let failed = source.status == DiscoveryStatus::Failed || unanswered.contains(&source.id);
        if source.inventory_hash.is_none() || failed {
            unread.push(name);
        }
    }
    (unread, unknown)
}

/// Where a lockfile is when nobody says otherwise.
pub(crate) fn default_lockfile_path(found: &LoadedConfig) -> PathBuf {
    let directory = found.file.as_deref().and_then(Path::parent);
    directory.map_or_else(|| PathBuf::from(LOCKFILE_NAME), |directory| directory.join(LOCKFILE_NAME))
}

/// Whole or not at all: whoever reads it meanwhile sees the old one.
fn write_atomically(path: &Path, text: &str) -> Result<()> {
    let cannot = |error: std::io::Error| {
        Error::new(Code::ConfigInvalid, format!("cannot write `{}`: {error}", path.display())).with_cause(error)
    };
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.new", std::process::id()));
    let new = path.with_file_name(name);
    let mut file = std::fs::File::create(&new).map_err(cannot)?;
    let written = file.write_all(text.as_bytes()).and_then(|()| file.sync_all());
    if let Err(error) = written.and_then(|()| std::fs::rename(&new, path)) {
        let _nothing_left_behind = std::fs::remove_file(&new);
        return Err(cannot(error));
    }
    Ok(())
}

/// The text of a lockfile, or how to make one.
pub(crate) fn read_lockfile(path: &Path) -> Result<String> {
    const MAX_LOCKFILE_BYTES: u64 = 64 * 1024 * 1024;
    let metadata = std::fs::metadata(path).map_err(|error| {
        let path = path.display();
        let message = match error.kind() == std::io::ErrorKind::NotFound {
            true => format!("there is no lockfile at `{path}`; `toolcrib lock` makes one"),
            false => format!("cannot read `{path}`: {error}"),
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
