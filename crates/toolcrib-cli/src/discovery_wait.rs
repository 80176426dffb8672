//! How long a command waits for sources that have to be discovered before it can print their tools.

use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use clap::Args;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use serde::Serialize;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use toolcrib::core::freshness::Freshness;
use toolcrib::core::time::parse_duration;
use toolcrib::refresh::{BackoffPolicy, PendingDiscovery, PendingSource};
use toolcrib::registry::{DiscoveryStatus, SourceView};
use toolcrib::{RefreshOutcome, Registry, RequiredFreshness, SourceId};

use crate::arguments::CommonArguments;
use crate::session::CliSession;
use crate::{output, progress};

/// How long a source that failed the last time is waited for, and on a terminal any source after the last one that
/// answered.
const SHORT_WAIT_TIMEOUT: Duration = Duration::from_secs(2);

/// No wait is longer; a moment that is too far away cannot be computed.
const MAX_WAIT_TIMEOUT: Duration = Duration::from_secs(365 * 24 * 3600);

/// Which sources may be contacted before reading, and how long that may take.
#[derive(Debug, Args)]
pub(crate) struct DiscoveryArguments {
    /// Make no requests and start nothing
    #[arg(long, conflicts_with_all = ["fresh", "wait"])]
    cached: bool,
    /// Wait for lists that may be old, too
    #[arg(long)]
    fresh: bool,
    /// Wait at most this long for sources to be discovered, `10s` or `2m`; `0` does not wait
    #[arg(long, value_name = "DURATION", value_parser = parse_wait_limit)]
    wait: Option<Duration>,
}

fn parse_wait_limit(text: &str) -> Result<Duration, String> {
    if text == "0" { Ok(Duration::ZERO) } else { parse_wait_duration(text) }
}

pub(crate) fn parse_wait_duration(text: &str) -> Result<Duration, String> {
    parse_duration(text).ok_or_else(|| "write a duration such as `30s` or `2m`".to_owned())
}

impl DiscoveryArguments {
    pub(crate) fn need(&self) -> RequiredFreshness {
        self.need_or(RequiredFreshness::Discovered)
    }

    /// The need of a command that wants more than what is known, unless the command line says otherwise.
    pub(crate) fn need_or(&self, unsaid: RequiredFreshness) -> RequiredFreshness {
        if self.cached || self.wait.is_some_and(|wait| wait.is_zero()) {
            RequiredFreshness::Cached
        } else if self.fresh {
            RequiredFreshness::Fresh
        } else {
            unsaid
        }
    }

    /// `--wait`.
    pub(crate) fn wait_limit(&self) -> Option<Duration> {
        self.wait
    }

    /// For a command that prints what it has.
    pub(crate) fn wait_policy(&self) -> WaitPolicy {
        match self.wait {
            Some(limit) => WaitPolicy::Limit(limit),
            None if output::stdout_is_terminal() => WaitPolicy::Interactive,
            None => WaitPolicy::SourceTimeouts,
        }
    }

    /// For a command that needs every list.
    pub(crate) fn wait_policy_for_all(&self) -> WaitPolicy {
        self.wait.map_or(WaitPolicy::SourceTimeouts, WaitPolicy::Limit)
    }
}

/// How long a command waits.
#[derive(Debug, Clone, Copy)]
pub(crate) enum WaitPolicy {
    /// For each source as long as its own deadlines allow.
    SourceTimeouts,
    /// The same, but the slowest do not keep a person waiting: they are left to another process.
    Interactive,
    /// `--wait`: for all together.
    Limit(Duration),
}

/// A source whose tools an answer lacks.
#[derive(Debug, Serialize)]
pub(crate) struct MissingSource {
    pub(crate) source: SourceId,
    pub(crate) reason: String,
}

/// An answer as JSON, and what it lacks where it does.
#[derive(Debug, Serialize)]
pub(crate) struct PartialResponse<T> {
    #[serde(flatten)]
    pub(crate) response: T,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) missing: Vec<MissingSource>,
}

/// What came of the wait for a need.
#[derive(Debug)]
pub(crate) struct EnsureOutcome {
    pub(crate) missing: Vec<MissingSource>,
    /// Sources whose list was needed and did not come in time; an older one may be known.
    pub(crate) unanswered: Vec<SourceId>,
}

impl CliSession {
    /// Discovers what a need takes, with progress, as long as patience lasts. Says what failed, is stale or is left out.
    pub(crate) async fn ensure(
        &self,
        need: RequiredFreshness,
        among: Option<&[SourceId]>,
        patience: WaitPolicy,
    ) -> EnsureOutcome {
        // `--wait` says that a person wants to wait, also for what failed a moment ago.
        let pauses = match patience {
            WaitPolicy::Limit(_) => BackoffPolicy::Ignore,
            WaitPolicy::SourceTimeouts | WaitPolicy::Interactive => BackoffPolicy::Respect,
        };
        // Another process may be at it already; then no further one is started.
        let elsewhere = sources_in_discovery(&self.registry);
        let pending = self.registry.pending_discoveries(need, among, pauses, false);
        let waited = wait_for_sources(self, pending, patience).await;
        let missing = self.missing_sources(among, &waited);
        progress::report_failures(&waited.outcomes, self.common.quiet);
        self.hint_missing(among, &waited, &missing);
        self.discover_in_background(&waited.left_to_background, &elsewhere);
        if need == RequiredFreshness::Discovered {
            self.hint_stale(among);
        }
        EnsureOutcome { missing, unanswered: [waited.timed_out, waited.left_to_background].concat() }
    }

    /// Discovers the source of a tool that is about to be called, within the time of the call.
    pub(crate) async fn ensure_for_call(&self, need: RequiredFreshness, source: SourceId, limit: Duration) {
        let pending = self.registry.pending_discoveries(need, Some(&[source]), BackoffPolicy::Respect, true);
        let waited = wait_for_sources(self, pending, WaitPolicy::Limit(limit)).await;
        progress::report_failures(&waited.outcomes, self.common.quiet);
    }

    /// The enabled sources without any list, and why there is none.
    fn missing_sources(&self, among: Option<&[SourceId]>, waited: &WaitOutcome) -> Vec<MissingSource> {
        let meant = |id: &SourceId| among.is_none_or(|among| among.contains(id));
        let sources = self.registry.sources().into_iter().filter(|source| source.enabled && meant(&source.id));
        let missing = sources.filter(|source| source.freshness == Freshness::Missing);
        let reason = |source: &SourceView| {
            let failure = source.last_error.as_ref().map(|failure| failure.message.clone());
            if waited.left_to_background.contains(&source.id) {
                return "it is still being discovered".to_owned();
            }
            let other = || self.registry.source_failure(&source.id).map(|error| error.message);
            failure.or_else(other).unwrap_or_else(|| "it was never discovered".to_owned())
        };
        missing.map(|source| MissingSource { reason: reason(&source), source: source.id }).collect()
    }

    /// Says which sources are left out. Those that failed while this command waited were told already.
    fn hint_missing(&self, among: Option<&[SourceId]>, waited: &WaitOutcome, missing: &[MissingSource]) {
        /// More are not told one by one.
        const MAX_WARNINGS: usize = 3;
        // Of a file that is not trusted the command has told when it began.
        let forbidden = self.registry.blocked_sources();
        let told = |id: &SourceId| {
            waited.left_to_background.contains(id)
                || forbidden.contains_key(id)
                || waited.outcomes.iter().any(|outcome| outcome.source == *id)
        };
        let meant = |id: &SourceId| among.is_none_or(|among| among.contains(id));
        let failed = |source: &SourceView| {
            waited.timed_out.contains(&source.id)
                || (source.status == DiscoveryStatus::Failed && source.transport.is_some())
        };
        let mut lines = Vec::new();
        for source in self.registry.sources().into_iter().filter(|source| source.enabled && meant(&source.id)) {
            let id = &source.id;
            let failure = source.last_error.as_ref().filter(|_| failed(&source));
            let failure = failure.map(|failure| format!("{id} failed: {}", failure.message));
            let unknown = missing.iter().find(|missing| missing.source == *id);
            let unknown = || unknown.map(|missing| format!("the tools of {id} are not known: {}", missing.reason));
            if let Some(line) = failure.or_else(unknown).filter(|_| !told(id)) {
                lines.push((id.clone(), line));
            }
        }
        if lines.len() > MAX_WARNINGS {
            let names: Vec<&str> = lines.iter().map(|(id, _)| id.as_str()).collect();
            let (count, names) = (names.len(), names.join(", "));
            self.common.hint(&format!(
                "warning: {count} sources failed or are not known: {names}; `toolcrib sources` shows why"
            ));
            return;
        }
        for (id, line) in lines {
            self.common.hint(&format!("warning: {line}; `toolcrib refresh {id}` tries again"));
        }
    }

    fn discover_in_background(&self, left: &[SourceId], elsewhere: &[SourceId]) {
        if left.is_empty() {
            return;
        }
        let names: Vec<&str> = left.iter().map(SourceId::as_str).collect();
        let names = names.join(", ");
        let new: Vec<&SourceId> = left.iter().filter(|id| !elsewhere.contains(id)).collect();
        self.common.hint(&match spawn_refresh(&self.common, &new) {
            Ok(()) => format!("hint: still being discovered in the background: {names}; `--wait 60s` waits longer"),
            Err(error) => format!("warning: not discovered yet: {names}; `toolcrib refresh` cannot start: {error}"),
        });
    }
}

fn sources_in_discovery(registry: &Registry) -> Vec<SourceId> {
    let sources = registry.sources().into_iter();
    sources.filter(|source| source.status == DiscoveryStatus::Discovering).map(|source| source.id).collect()
}

/// What came of a wait.
#[derive(Default)]
struct WaitOutcome {
    outcomes: Vec<RefreshOutcome>,
    /// Recorded as failures, because they took too long.
    timed_out: Vec<SourceId>,
    /// No longer waited for; another process discovers them.
    left_to_background: Vec<SourceId>,
}

/// Why a wait ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WaitEnd {
    /// Every source answered, failed or took longer than it may.
    Finished,
    /// On a terminal, no source has answered for a while.
    Idle,
    /// `--wait` is over, or Ctrl-C was pressed.
    Stopped,
}

async fn wait_for_sources(desk: &CliSession, pending: Vec<PendingDiscovery>, patience: WaitPolicy) -> WaitOutcome {
    let mut waited = WaitOutcome::default();
    if pending.is_empty() {
        return waited;
    }
    let interrupted = desk.common.wait.begin();
    let began = Instant::now();
    let mut unanswered: Vec<PendingSource> = pending.iter().map(|pending| pending.source.clone()).collect();
    let mut running: FuturesUnordered<_> =
        pending.into_iter().map(|pending| await_outcome(pending, patience)).collect();
    let collecting = async {
        let mut answered_at = began;
        loop {
            let stopped_at = match patience {
                WaitPolicy::Limit(limit) => Some(began + limit.min(MAX_WAIT_TIMEOUT)),
                WaitPolicy::SourceTimeouts | WaitPolicy::Interactive => None,
            };
            let quiet_at = matches!(patience, WaitPolicy::Interactive).then_some(answered_at + SHORT_WAIT_TIMEOUT);
            tokio::select! {
                ended = running.next() => match ended {
                    Some(Some(outcome)) => {
                        unanswered.retain(|pending| pending.source != outcome.source);
                        waited.outcomes.push(outcome);
                        answered_at = Instant::now();
                    }
                    Some(None) => {}
                    None => return WaitEnd::Finished,
                },
                () = sleep_until_some(quiet_at) => return WaitEnd::Idle,
                () = sleep_until_some(stopped_at) => return WaitEnd::Stopped,
                () = interrupted.cancelled() => return WaitEnd::Stopped,
            }
        }
    };
    let end = progress::show_progress(&desk.registry, desk.common.quiet, collecting).await;
    desk.common.wait.end();
    for pending in unanswered {
        if matches!(patience, WaitPolicy::Interactive) && end != WaitEnd::Stopped {
            waited.left_to_background.push(pending.source);
            continue;
        }
        let waited_for = match patience {
            WaitPolicy::Limit(limit) => limit.min(elapsed_whole_seconds(began)),
            WaitPolicy::SourceTimeouts if pending.failed_before => SHORT_WAIT_TIMEOUT.min(elapsed_whole_seconds(began)),
            WaitPolicy::SourceTimeouts | WaitPolicy::Interactive => elapsed_whole_seconds(began),
        };
        if let Err(error) = desk.registry.record_wait_timeout(&pending, waited_for).await {
            tracing::warn!(%error, server_name = %pending.source, "that it did not answer cannot be recorded");
        }
        waited.timed_out.push(pending.source);
    }
    waited.outcomes.sort_by(|one, other| one.source.cmp(&other.source));
    waited
}

/// The time since, rounded up.
fn elapsed_whole_seconds(began: Instant) -> Duration {
    let elapsed = began.elapsed();
    Duration::from_secs(elapsed.as_secs() + u64::from(elapsed.subsec_nanos() > 0))
}

/// The outcome of a discovery, unless it takes longer than it may.
async fn await_outcome(pending: PendingDiscovery, patience: WaitPolicy) -> Option<RefreshOutcome> {
    match patience {
        WaitPolicy::SourceTimeouts | WaitPolicy::Interactive if pending.source.failed_before => {
            tokio::time::timeout(SHORT_WAIT_TIMEOUT, pending.outcome).await.ok()
        }
        WaitPolicy::SourceTimeouts | WaitPolicy::Interactive | WaitPolicy::Limit(_) => Some(pending.outcome.await),
    }
}

async fn sleep_until_some(moment: Option<Instant>) {
    match moment {
        Some(moment) => sleep_until(moment).await,
        None => std::future::pending().await,
    }
}

/// The wait for sources that Ctrl-C stops, so that what is known is printed. Without one, Ctrl-C ends the command.
#[derive(Debug, Clone, Default)]
pub(crate) struct InterruptibleWait(Arc<Mutex<Option<CancellationToken>>>);

impl InterruptibleWait {
    fn begin(&self) -> CancellationToken {
        let token = CancellationToken::new();
        *self.current() = Some(token.clone());
        token
    }

    /// Stops the wait, or says that there is none.
    pub(crate) fn stop(&self) -> bool {
        let token = self.current().take();
        token.is_some_and(|token| {
            token.cancel();
            true
        })
    }

    fn end(&self) {
        self.current().take();
    }

    fn current(&self) -> MutexGuard<'_, Option<CancellationToken>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Starts one `toolcrib refresh` for these sources that outlives this command. It waits until this one has ended, for
/// that holds their leases.
fn spawn_refresh(common: &CommonArguments, sources: &[&SourceId]) -> std::io::Result<()> {
    if sources.is_empty() {
        return Ok(());
    }
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("refresh").args(sources.iter().map(|id| id.as_str()));
    for (option, path) in [("--config", &common.config), ("--data", &common.data)] {
        if let Some(path) = path {
            command.arg(option).arg(path);
        }
    }
    if let Some(store) = &common.store {
        command.arg("--store").arg(store);
    }
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    // Ctrl-C at this terminal is not meant for it.
    #[cfg(unix)]
    std::os::unix::process::CommandExt::process_group(&mut command, 0);
    command.spawn().map(drop)
}
