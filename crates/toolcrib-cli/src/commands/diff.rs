//! `toolcrib diff`: compares the current tools with a lockfile or with a time in the past; with `--ci` as a build
//! check that prints SARIF.
//!
//! Without `--ci` a difference is information; only a source that cannot be read makes the command fail. With `--ci`
//! every difference is a failure, and so is a source that did not respond: a build must not pass because a server was
//! down.

use std::path::{Path, PathBuf};

use clap::Args;
use toolcrib::clock::Clock;
use toolcrib::core::percent;
use toolcrib::core::time::TimeSpec;
use toolcrib::diff::lockfile::{Lockfile, LockfileLines};
use toolcrib::diff::report::CatalogDiff;
use toolcrib::diff::report::sarif::{Artifact, to_sarif};
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

With `--ci` stale tool lists are refreshed first (not with `--cached`), and the exit code is 1 if
anything differs or cannot be read. SARIF 2.1.0 goes to stdout (with `--json` the response of
`GET /api/diff`), and the readable text to stderr.")]
pub(crate) struct Arguments {
    /// Lockfile or time to compare with: a file, `lockfile` (the default: `toolcrib.lock` beside the configuration),
    /// `2h`, `7d`, `2026-11-15`, or `2026-11-15T20:00:00Z`
    #[arg(long, value_name = "FILE-OR-TIME")]
    against: Option<String>,
    /// For a build: fail when anything differs, and print SARIF
    #[arg(long)]
    ci: bool,
    #[command(flatten)]
    discovery: DiscoveryArguments,
}

/// The state to compare with.
enum DiffBase {
    /// `text` is the file's content, for the line numbers in SARIF.
    Lock {
        path: PathBuf,
        lock: Lockfile,
        text: String,
    },
    Time(TimeSpec),
}

/// Compares, prints text, JSON or SARIF, and sets the exit code.
pub(crate) async fn run(common: &CommonArguments, arguments: Arguments) -> Result<CommandOutcome> {
    let session = CliSession::open(common).await?;
    let result = compare(&session, &arguments).await;
    // SARIF needs the path of the configuration; read it before closing the session.
    let configuration = session.loaded_config.file.clone();
    session.close().await;
    let (base, difference) = result?;
    let text = match (difference.differs, &base) {
        (true, _) => difference.to_text(),
        (false, DiffBase::Lock { path, .. }) => format!("nothing differs from `{}`", path.display()),
        (false, DiffBase::Time(_)) => "nothing differs".to_owned(),
    };
    // `--json` takes precedence over SARIF: `--ci --json` is for scripts.
    match (arguments.ci, common.json) {
        (_, true) => output::print_json(&difference)?,
        (false, false) => output::print_line(&text)?,
        (true, false) => {
            let artifact = sarif_artifact(&base, configuration.as_deref());
            output::print_json(&to_sarif(&difference, &artifact, env!("CARGO_PKG_VERSION")))?;
        }
    }
    // In a build the readable text goes to stderr, because stdout is the SARIF file.
    if arguments.ci {
        output::print_stderr_line(&text);
    }
    // Without `--ci` a difference is a result, not a failure; an unreadable source still fails.
    let failed = if arguments.ci { difference.differs } else { difference.has_unreadable() };
    Ok(if failed { CommandOutcome::Failure } else { CommandOutcome::Success })
}

/// Discovers the sources as needed and compares them with the base. With `--ci` fails with `TOOL_UNAVAILABLE` if a
/// source did not respond in time or is refreshed by other nodes, because a comparison with its cached list could pass.
async fn compare(session: &CliSession, arguments: &Arguments) -> Result<(DiffBase, CatalogDiff)> {
    // Report an invalid base before contacting any source.
    let base = resolve_base(session, arguments.against.as_deref())?;
    hint_foreign_lockfile(session, &base);
    // A build must not pass on stale tool lists.
    let default = if arguments.ci { RequiredFreshness::Fresh } else { RequiredFreshness::Discovered };
    let required = arguments.discovery.required_freshness_or(default);
    let policy =
        if arguments.ci { arguments.discovery.wait_policy_for_all() } else { arguments.discovery.wait_policy() };
    let ensured = session.ensure(required, None, policy).await;
    let unread = [
        ("there was no response in time from", &ensured.unanswered),
        ("only other nodes refresh the stale tool list of", &ensured.left_to_other_nodes),
    ];
    if let Some((reason, sources)) = unread.into_iter().find(|(_, sources)| arguments.ci && !sources.is_empty()) {
        let names: Vec<String> = sources.iter().map(|id| format!("`{id}`")).collect();
        let message = format!("nothing was compared, because {reason} {}", names.join(", "));
        return Err(Error::new(Code::ToolUnavailable, message));
    }
    if required == RequiredFreshness::Cached {
        session.hint_stale(None);
    }
    let difference = match &base {
        DiffBase::Lock { lock, .. } => session.registry.lockfile().diff(lock).await?,
        DiffBase::Time(when) => session.registry.lockfile().diff_since(when.resolve(Clock::system().now())).await?,
    };
    Ok((base, difference))
}

/// Interprets the value of `--against`: `lockfile`, an existing file, a time, or a path that looks like a file. An
/// existing file takes precedence over a time, so that a file named `7d` can be used.
fn resolve_base(session: &CliSession, against: Option<&str>) -> Result<DiffBase> {
    let path = match against {
        None | Some("lockfile") => lock::default_lockfile_path(&session.loaded_config),
        Some(text) if Path::new(text).exists() => PathBuf::from(text),
        Some(text) => match text.parse::<TimeSpec>() {
            Ok(when) => return Ok(DiffBase::Time(when)),
            // Text with a separator or a dot is meant as a path; its error then says that the file is missing.
            Err(error) if !text.contains(['/', '\\', '.']) => {
                return Err(Error::new(Code::BadRequest, format!("{}; nor is it a file", error.message)));
            }
            Err(_) => PathBuf::from(text),
        },
    };
    let text = lock::read_lockfile(&path)?;
    let lock = Lockfile::parse(&text).map_err(|error| {
        let message = format!("`{}`: {}; `toolcrib lock` writes a new one", path.display(), error.message);
        Error::new(Code::BadRequest, message).with_cause(error)
    })?;
    Ok(DiffBase::Lock { path, lock, text })
}

/// Prints a hint if no source of the lockfile is declared here, so that it is most likely another project's.
fn hint_foreign_lockfile(session: &CliSession, base: &DiffBase) {
    let DiffBase::Lock { path, lock, .. } = base else { return };
    let is_declared = |id| session.registry.sources().get(id).is_some();
    if !lock.sources.is_empty() && !lock.sources.keys().any(is_declared) {
        let path = path.display();
        session
            .common
            .hint(&format!("hint: no source of `{path}` is declared here; is it another project's lockfile?"));
    }
}

/// Returns the file that SARIF findings point to: the lockfile, or the configuration file without one.
fn sarif_artifact(base: &DiffBase, configuration: Option<&Path>) -> Artifact {
    match base {
        DiffBase::Lock { path, text, .. } => Artifact { uri: relative_uri(path), lines: LockfileLines::parse(text) },
        DiffBase::Time(_) => {
            Artifact { uri: relative_uri(configuration.unwrap_or(Path::new("toolcrib.yaml"))), ..Artifact::default() }
        }
    }
}

/// Returns the path as a URI relative to the working directory, as code scanning expects it; the bare file name for a
/// path outside of it.
fn relative_uri(path: &Path) -> String {
    let relative = std::env::current_dir().ok().and_then(|working_directory| {
        let absolute = std::path::absolute(path).ok()?;
        absolute.strip_prefix(&working_directory).ok().map(Path::to_owned)
    });
    let path = relative.or_else(|| path.file_name().map(PathBuf::from)).unwrap_or_else(|| path.to_owned());
    let parts: Vec<String> = path.iter().map(|part| percent::encode(&part.to_string_lossy())).collect();
    parts.join("/")
}
