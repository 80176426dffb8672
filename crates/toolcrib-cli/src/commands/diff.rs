//! `toolcrib diff`: what differs between the tools that were locked, or known at some time, and those of now.

use std::path::{Path, PathBuf};

use clap::Args;
use toolcrib::clock::Clock;
use toolcrib::core::diff::CatalogDiff;
use toolcrib::core::diff::sarif::{Artifact, to_sarif};
use toolcrib::core::lockfile::{Lockfile, LockfileLines};
use toolcrib::core::time::TimeSpec;
use toolcrib::refresh::RequiredFreshness;
use toolcrib::{Code, Error, Result};

use crate::arguments::CommonArguments;
use crate::commands::lock;
use crate::discovery_wait::DiscoveryArguments;
use crate::exit::CommandOutcome;
use crate::output;
use crate::session::CliSession;

/// Show what differs from the lockfile, or from some time in the past
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  toolcrib diff
  toolcrib diff --against 7d
  toolcrib diff --against 2026-11-15T20:00:00Z
  toolcrib diff --against ci/toolcrib.lock --fresh
  toolcrib diff --ci > toolcrib.sarif

With `--ci` lists that may be old are asked for first (not with `--cached`), the exit code is 1 when anything differs or
could not be read, SARIF 2.1.0 goes to stdout (with `--json` what `GET /api/diff` answers) and the readable text to
stderr.")]
pub(crate) struct Arguments {
    /// `lockfile`, another lockfile, or a time: `2h`, `7d`, `2026-11-15`, `2026-11-15T20:00:00Z`; else `toolcrib.lock` beside the configuration
    #[arg(long, value_name = "FILE-OR-TIME")]
    against: Option<String>,
    /// For a build: fail when anything differs, and print SARIF
    #[arg(long)]
    ci: bool,
    #[command(flatten)]
    discovery: DiscoveryArguments,
}

/// What to compare with.
enum DiffBase {
    Lock { path: PathBuf, lock: Lockfile, text: String },
    Time(TimeSpec),
}

pub(crate) async fn run(common: &CommonArguments, arguments: Arguments) -> Result<CommandOutcome> {
    let session = CliSession::open(common).await?;
    let result = compare(&session, &arguments).await;
    let configuration = session.loaded_config.file.clone();
    session.close().await;
    let (against, difference) = result?;
    let text = match (difference.differs, &against) {
        (true, _) => difference.to_text(),
        (false, DiffBase::Lock { path, .. }) => format!("nothing differs from `{}`", path.display()),
        (false, DiffBase::Time(_)) => "nothing differs".to_owned(),
    };
    match (arguments.ci, common.json) {
        (_, true) => output::print_json(&difference)?,
        (false, false) => output::print_line(&text)?,
        (true, false) => {
            let artifact = sarif_artifact(&against, configuration.as_deref());
            output::print_json(&to_sarif(&difference, &artifact, env!("CARGO_PKG_VERSION")))?;
        }
    }
    if arguments.ci {
        output::print_stderr_line(&text);
    }
    let failed = if arguments.ci { difference.differs } else { difference.has_unreadable() };
    Ok(if failed { CommandOutcome::Failure } else { CommandOutcome::Success })
}

async fn compare(session: &CliSession, arguments: &Arguments) -> Result<(DiffBase, CatalogDiff)> {
    // What cannot be compared with is said before anybody is contacted.
    let against = resolve_base(session, arguments.against.as_deref())?;
    hint_foreign_lockfile(session, &against);
    // A build must not pass because of what was true yesterday.
    let unsaid = if arguments.ci { RequiredFreshness::Fresh } else { RequiredFreshness::Discovered };
    let need = arguments.discovery.required_freshness_or(unsaid);
    let patience =
        if arguments.ci { arguments.discovery.wait_policy_for_all() } else { arguments.discovery.wait_policy() };
    let ensured = session.ensure(need, None, patience).await;
    if arguments.ci && !ensured.unanswered.is_empty() {
        let names: Vec<String> = ensured.unanswered.iter().map(|id| format!("`{id}`")).collect();
        let message = format!("nothing was compared, for these did not answer in time: {}", names.join(", "));
        return Err(Error::new(Code::ToolUnavailable, message));
    }
    if need == RequiredFreshness::Cached {
        session.hint_stale(None);
    }
    let difference = match &against {
        DiffBase::Lock { lock, .. } => session.registry.diff_from_lockfile(lock).await?,
        DiffBase::Time(when) => session.registry.diff_since(when.resolve(Clock::system().now())).await?,
    };
    Ok((against, difference))
}

fn resolve_base(session: &CliSession, named: Option<&str>) -> Result<DiffBase> {
    let path = match named {
        None | Some("lockfile") => lock::default_lockfile_path(&session.loaded_config),
        Some(named) if Path::new(named).exists() => PathBuf::from(named),
        Some(named) => match named.parse::<TimeSpec>() {
            Ok(when) => return Ok(DiffBase::Time(when)),
            Err(error) if !named.contains(['/', '\\', '.']) => {
                return Err(Error::new(Code::BadRequest, format!("{}; nor is it a file", error.message)));
            }
            Err(_) => PathBuf::from(named),
        },
    };
    let text = lock::read_lockfile(&path)?;
    let lock = Lockfile::parse(&text).map_err(|error| {
        let message = format!("`{}`: {}; `toolcrib lock` writes it anew", path.display(), error.message);
        Error::new(Code::BadRequest, message).with_cause(error)
    })?;
    Ok(DiffBase::Lock { path, lock, text })
}

/// A lockfile of which nothing is known here is most likely another project's.
fn hint_foreign_lockfile(session: &CliSession, against: &DiffBase) {
    let DiffBase::Lock { path, lock, .. } = against else { return };
    let known = |id| session.registry.source(id).is_some();
    if !lock.sources.is_empty() && !lock.sources.keys().any(known) {
        let path = path.display();
        session
            .common
            .hint(&format!("hint: no source of `{path}` is declared here; is it another project's lockfile?"));
    }
}

/// Findings stand in the lockfile, or in the configuration where there is none.
fn sarif_artifact(against: &DiffBase, configuration: Option<&Path>) -> Artifact {
    match against {
        DiffBase::Lock { path, text, .. } => Artifact { uri: relative_uri(path), lines: LockfileLines::parse(text) },
        DiffBase::Time(_) => {
            Artifact { uri: relative_uri(configuration.unwrap_or(Path::new("toolcrib.yaml"))), ..Artifact::default() }
        }
    }
}

/// As a repository names it: relative to where the command runs, where that can be said, and with slashes.
fn relative_uri(path: &Path) -> String {
    let below = std::env::current_dir().ok().and_then(|here| {
        let whole = std::path::absolute(path).ok()?;
        whole.strip_prefix(&here).ok().map(Path::to_owned)
    });
    let path = below.or_else(|| path.file_name().map(PathBuf::from)).unwrap_or_else(|| path.to_owned());
    let parts: Vec<String> = path.iter().map(|part| percent_encode(&part.to_string_lossy())).collect();
    parts.join("/")
}

/// What may not stand in a URI as it is.
fn percent_encode(part: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    part.bytes().map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }).collect()
}
