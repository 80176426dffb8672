//! `toolcrib diff`: what differs between the tools that were locked, or known at some time, and those of now.

use std::path::{Path, PathBuf};

use clap::Args;
use toolcrib::clock::Clock;
use toolcrib::core::difference::Difference;
use toolcrib::core::difference::sarif::{Artifact, sarif};
use toolcrib::core::lock::{Lines, Lock};
use toolcrib::core::time::When;
use toolcrib::refresh::Need;
use toolcrib::{Code, Error, Result};

use crate::arguments::Common;
use crate::commands::lock;
use crate::desk::Desk;
use crate::exit::Done;
use crate::output;
use crate::waiting::NeedArguments;

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
    need: NeedArguments,
}

/// What to compare with.
enum Against {
    Lock { path: PathBuf, lock: Lock, text: String },
    Time(When),
}

pub(crate) async fn run(common: &Common, arguments: Arguments) -> Result<Done> {
    let desk = Desk::open(common).await?;
    let result = compared(&desk, &arguments).await;
    let configuration = desk.found.file.clone();
    desk.close().await;
    let (against, difference) = result?;
    let text = match (difference.differs, &against) {
        (true, _) => difference.text(),
        (false, Against::Lock { path, .. }) => format!("nothing differs from `{}`", path.display()),
        (false, Against::Time(_)) => "nothing differs".to_owned(),
    };
    match (arguments.ci, common.json) {
        (_, true) => output::json(&difference)?,
        (false, false) => output::line(&text)?,
        (true, false) => {
            let artifact = artifact(&against, configuration.as_deref());
            output::json(&sarif(&difference, &artifact, env!("CARGO_PKG_VERSION")))?;
        }
    }
    if arguments.ci {
        output::complain(&text);
    }
    let failed = if arguments.ci { difference.differs } else { difference.unreadable() };
    Ok(if failed { Done::Failed } else { Done::Well })
}

async fn compared(desk: &Desk, arguments: &Arguments) -> Result<(Against, Difference)> {
    // What cannot be compared with is said before anybody is contacted.
    let against = against(desk, arguments.against.as_deref())?;
    hint_elsewhere(desk, &against);
    // A build must not pass because of what was true yesterday.
    let unsaid = if arguments.ci { Need::Fresh } else { Need::Known };
    let need = arguments.need.need_or(unsaid);
    let patience = if arguments.ci { arguments.need.patience_for_all() } else { arguments.need.patience() };
    let ensured = desk.ensure(need, None, patience).await;
    if arguments.ci && !ensured.unanswered.is_empty() {
        let names: Vec<String> = ensured.unanswered.iter().map(|id| format!("`{id}`")).collect();
        let message = format!("nothing was compared, for these did not answer in time: {}", names.join(", "));
        return Err(Error::new(Code::ToolUnavailable, message));
    }
    if need == Need::Cached {
        desk.hint_stale(None);
    }
    let difference = match &against {
        Against::Lock { lock, .. } => desk.registry.diff_from_lock(lock).await?,
        Against::Time(when) => desk.registry.diff_since(when.as_of(Clock::system().now())).await?,
    };
    Ok((against, difference))
}

fn against(desk: &Desk, named: Option<&str>) -> Result<Against> {
    let path = match named {
        None | Some("lockfile") => lock::beside(&desk.found),
        Some(named) if Path::new(named).exists() => PathBuf::from(named),
        Some(named) => match named.parse::<When>() {
            Ok(when) => return Ok(Against::Time(when)),
            Err(error) if !named.contains(['/', '\\', '.']) => {
                return Err(Error::new(Code::BadRequest, format!("{}; nor is it a file", error.message)));
            }
            Err(_) => PathBuf::from(named),
        },
    };
    let text = lock::text(&path)?;
    let lock = Lock::read(&text).map_err(|error| {
        let message = format!("`{}`: {}; `toolcrib lock` writes it anew", path.display(), error.message);
        Error::new(Code::BadRequest, message).with_cause(error)
    })?;
    Ok(Against::Lock { path, lock, text })
}

/// A lockfile of which nothing is known here is most likely another project's.
fn hint_elsewhere(desk: &Desk, against: &Against) {
    let Against::Lock { path, lock, .. } = against else { return };
    let known = |id| desk.registry.source(id).is_some();
    if !lock.sources.is_empty() && !lock.sources.keys().any(known) {
        let path = path.display();
        desk.common.hint(&format!("hint: no source of `{path}` is declared here; is it another project's lockfile?"));
    }
}

/// Findings stand in the lockfile, or in the configuration where there is none.
fn artifact(against: &Against, configuration: Option<&Path>) -> Artifact {
    match against {
        Against::Lock { path, text, .. } => Artifact { uri: relative(path), lines: Lines::of(text) },
        Against::Time(_) => {
            Artifact { uri: relative(configuration.unwrap_or(Path::new("toolcrib.yaml"))), ..Artifact::default() }
        }
    }
}

/// As a repository names it: relative to where the command runs, where that can be said, and with slashes.
fn relative(path: &Path) -> String {
    let below = std::env::current_dir().ok().and_then(|here| {
        let whole = std::path::absolute(path).ok()?;
        whole.strip_prefix(&here).ok().map(Path::to_owned)
    });
    let path = below.or_else(|| path.file_name().map(PathBuf::from)).unwrap_or_else(|| path.to_owned());
    let parts: Vec<String> = path.iter().map(|part| encoded(&part.to_string_lossy())).collect();
    parts.join("/")
}

/// What may not stand in a URI as it is.
fn encoded(part: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    part.bytes().map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }).collect()
}
