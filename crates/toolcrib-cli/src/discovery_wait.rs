//! Discovery before a command reads: which sources must be discovered first, how long the command waits for them, and
//! what it reports about those that are missing. The discovery itself is done by `toolcrib::refresh`.
//!
//! [`CliSession::ensure`] selects the sources that the required freshness demands, waits for them under a
//! [`WaitPolicy`], and prints warnings about those that failed or are missing:
//!
//! | stdout, options        | how long a command waits                                                        |
//! |------------------------|---------------------------------------------------------------------------------|
//! | pipe                   | each source until its own timeouts; 2 s if its last discovery failed            |
//! | terminal               | the same, but after 2 s without any response the rest is left to the background |
//! | `--wait DURATION`      | for all sources together; sources in backoff are tried, too                     |
//! | `--cached`, `--wait 0` | not at all                                                                      |
//!
//! A source that the command gave up on is either recorded as failed, so that its backoff spares the next command the
//! same wait, or discovered by a detached `toolcrib refresh`.

use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use parking_lot::Mutex;
use serde::Serialize;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use toolcrib::core::freshness::Freshness;
use toolcrib::core::time::parse_duration;
use toolcrib::refresh::{BackoffPolicy, ConnectionAfterDiscovery, PendingDiscovery, PendingSource};
use toolcrib::registry::{DiscoveryStatus, SourceView};
use toolcrib::{RefreshOutcome, Registry, RequiredFreshness, SourceId};

use crate::arguments::CommonArguments;
use crate::session::CliSession;
use crate::{output, progress};

/// Timeout for a source whose previous discovery failed. On a terminal also the time without any response after which
/// the remaining sources are left to the background; there each response starts it again.
const SHORT_WAIT_TIMEOUT: Duration = Duration::from_secs(2);

/// Upper bound for `--wait`: adding a larger duration to an `Instant` could overflow.
const MAX_WAIT_TIMEOUT: Duration = Duration::from_secs(365 * 24 * 3600);

/// Which sources may be contacted before reading, and how long that may take
#[derive(Debug, Args)]
pub(crate) struct DiscoveryArguments {
    /// Use cached tool lists only: make no network requests and start no process
    #[arg(long, conflicts_with_all = ["fresh", "wait"])]
    cached: bool,
    /// Refresh stale tool lists first, too
    #[arg(long)]
    fresh: bool,
    /// Wait at most this long for sources to be discovered, `10s` or `2m`; `0` does not wait
    #[arg(long, value_name = "DURATION", value_parser = parse_wait_limit)]
    pub(crate) wait: Option<Duration>,
}

/// Parses `--wait`, which also accepts a bare `0`.
fn parse_wait_limit(text: &str) -> Result<Duration, String> {
    if text == "0" { Ok(Duration::ZERO) } else { parse_wait_duration(text) }
}

/// Parses a duration option such as `--timeout`.
pub(crate) fn parse_wait_duration(text: &str) -> Result<Duration, String> {
    parse_duration(text).ok_or_else(|| "write a duration such as `30s` or `2m`".to_owned())
}

impl DiscoveryArguments {
    /// Returns the freshness a command needs: by default, stale lists are used as they are, and sources without a
    /// usable list (never discovered, invalidated, other connection data) are discovered.
    pub(crate) fn required_freshness(&self) -> RequiredFreshness {
        self.required_freshness_or(RequiredFreshness::Discovered)
    }

    /// Like [`DiscoveryArguments::required_freshness`], with another default.
    pub(crate) fn required_freshness_or(&self, default: RequiredFreshness) -> RequiredFreshness {
        if self.cached || self.wait.is_some_and(|wait| wait.is_zero()) {
            RequiredFreshness::Cached
        } else if self.fresh {
            RequiredFreshness::Fresh
        } else {
            default
        }
    }

    /// Returns the policy for a command that prints whatever tools it has.
    pub(crate) fn wait_policy(&self) -> WaitPolicy {
        match self.wait {
            Some(limit) => WaitPolicy::Limit(limit),
            None if output::stdout_is_terminal() => WaitPolicy::Interactive,
            None => WaitPolicy::SourceTimeouts,
        }
    }

    /// Returns the policy for a command that needs every tool list, such as `lock`.
    pub(crate) fn wait_policy_for_all(&self) -> WaitPolicy {
        self.wait.map_or(WaitPolicy::SourceTimeouts, WaitPolicy::Limit)
    }
}

/// How long a command waits for discoveries.
#[derive(Debug, Clone, Copy)]
pub(crate) enum WaitPolicy {
    /// For each source until its own timeouts (`discovery_timeout`) end the discovery.
    SourceTimeouts,
    /// The same, but slow sources do not block a person: after [`SHORT_WAIT_TIMEOUT`] without a response they are left
    /// to a background process.
    Interactive,
    /// `--wait`: one limit for all sources together.
    Limit(Duration),
}

/// A source whose tools are missing from a response.
#[derive(Debug, Serialize)]
pub(crate) struct MissingSource {
    pub(crate) source: SourceId,
    /// Error message, or why there was no attempt.
    pub(crate) reason: String,
    /// Whether another attempt may succeed.
    pub(crate) retryable: bool,
}

/// A JSON response with the list of sources missing from it. `missing` is absent from a complete response.
#[derive(Debug, Serialize)]
pub(crate) struct PartialResponse<T> {
    #[serde(flatten)]
    pub(crate) response: T,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) missing: Vec<MissingSource>,
}

/// Result of [`CliSession::ensure`].
#[derive(Debug)]
pub(crate) struct EnsureOutcome {
    /// Enabled sources without any tool list.
    pub(crate) missing: Vec<MissingSource>,
    /// Sources that did not respond in time; an older tool list may still be cached.
    pub(crate) unanswered: Vec<SourceId>,
    /// Sources whose list is stale though a fresh one is required, because other nodes refresh it.
    pub(crate) left_to_other_nodes: Vec<SourceId>,
}

impl CliSession {
    /// Discovers sources until the required freshness is met or the policy ends the wait, with progress on a terminal.
    /// Prints which sources failed, are stale or are missing.
    pub(crate) async fn ensure(
        &self,
        required: RequiredFreshness,
        among: Option<&[SourceId]>,
        policy: WaitPolicy,
    ) -> EnsureOutcome {
        // An explicit `--wait` also retries sources that are backing off after a recent failure.
        let backoff = match policy {
            WaitPolicy::Limit(_) => BackoffPolicy::Ignore,
            WaitPolicy::SourceTimeouts | WaitPolicy::Interactive => BackoffPolicy::Respect,
        };
        // Recorded before the wait: no second background process is started for a source that another one discovers.
        let in_discovery_elsewhere = sources_in_discovery(&self.registry);
        let pending =
            self.registry.refresher().pending_discoveries(required, among, backoff, ConnectionAfterDiscovery::Close);
        let wait_outcome = wait_for_sources(self, pending, policy).await;
        // Report after the wait has ended: the status of a source is then that of the discovery that just finished.
        let missing = self.missing_sources(among, &wait_outcome);
        progress::report_failures(&wait_outcome.outcomes, self.common.quiet);
        self.hint_missing(among, &wait_outcome, &missing);
        self.discover_in_background(&wait_outcome.left_to_background, &in_discovery_elsewhere);
        let left_to_other_nodes = match required {
            RequiredFreshness::Fresh => self.stale_elsewhere(among),
            RequiredFreshness::Discovered | RequiredFreshness::Cached => Vec::new(),
        };
        // With `--fresh` other stale lists were refreshed, and failures are reported above; `--cached` is reported by the
        // commands that use it for comparison.
        match required {
            RequiredFreshness::Discovered => self.hint_stale(among),
            RequiredFreshness::Fresh => self.hint_stale(Some(&left_to_other_nodes)),
            RequiredFreshness::Cached => {}
        }
        let unanswered = [wait_outcome.timed_out, wait_outcome.left_to_background].concat();
        EnsureOutcome { missing, unanswered, left_to_other_nodes }
    }

    /// Discovers the source of a tool that is about to be called, within the time limit of the call. The connection of
    /// the discovery stays open for the call. A failure is printed only; the call itself then fails with its code.
    pub(crate) async fn ensure_for_call(&self, required: RequiredFreshness, source: SourceId, limit: Duration) {
        let pending = self.registry.refresher().pending_discoveries(
            required,
            Some(&[source]),
            BackoffPolicy::Respect,
            ConnectionAfterDiscovery::Keep,
        );
        let wait_outcome = wait_for_sources(self, pending, WaitPolicy::Limit(limit)).await;
        progress::report_failures(&wait_outcome.outcomes, self.common.quiet);
    }

    /// Returns the enabled sources; `among` limits them to some.
    pub(crate) fn enabled_sources(&self, among: Option<&[SourceId]>) -> impl Iterator<Item = SourceView> {
        let is_selected = move |id: &SourceId| among.is_none_or(|among| among.contains(id));
        self.registry.sources().list().into_iter().filter(move |source| source.enabled && is_selected(&source.id))
    }

    /// Returns the enabled sources with a stale tool list that only other nodes may refresh.
    fn stale_elsewhere(&self, among: Option<&[SourceId]>) -> Vec<SourceId> {
        let stale = self.enabled_sources(among).filter(|source| source.freshness == Freshness::Stale);
        let elsewhere = stale.filter(|source| self.registry.sources().ensure_may_start(&source.id).is_err());
        elsewhere.map(|source| source.id).collect()
    }

    /// Returns the enabled sources without any tool list, each with the reason.
    fn missing_sources(&self, among: Option<&[SourceId]>, wait_outcome: &WaitOutcome) -> Vec<MissingSource> {
        let missing = self.enabled_sources(among).filter(|source| source.freshness == Freshness::Missing);
        let reason = |source: &SourceView| {
            let failure = source.last_error.as_ref().map(|failure| (failure.message.clone(), failure.retryable));
            if wait_outcome.left_to_background.contains(&source.id) {
                return ("it is still being discovered".to_owned(), true);
            }
            // A source that may not be contacted, such as one of an untrusted file, has no recorded failure.
            let other_error = || {
                let error = self.registry.sources().failure(&source.id)?;
                let retryable = error.is_retryable();
                Some((error.message, retryable))
            };
            failure.or_else(other_error).unwrap_or_else(|| ("it was never discovered".to_owned(), true))
        };
        let missing = missing.map(|source| {
            let (reason, retryable) = reason(&source);
            MissingSource { source: source.id, reason, retryable }
        });
        missing.collect()
    }

    /// Warns about sources whose tools are missing or whose refresh failed, except for those that the command has
    /// reported already.
    fn hint_missing(&self, among: Option<&[SourceId]>, wait_outcome: &WaitOutcome, missing: &[MissingSource]) {
        /// Above this number one line names all sources.
        const MAX_WARNINGS: usize = 3;
        // Opening the session has warned about sources of an untrusted file.
        let blocked = self.registry.sources().blocked();
        // Reported already: a slow source by the hint about the background, a failed discovery by `report_failures`.
        let is_reported = |id: &SourceId| {
            wait_outcome.left_to_background.contains(id)
                || blocked.contains_key(id)
                || wait_outcome.outcomes.iter().any(|outcome| outcome.source == *id)
        };
        // A source without transport has an invalid declaration, which the session has warned about.
        let has_failed = |source: &SourceView| {
            wait_outcome.timed_out.contains(&source.id)
                || (source.status == DiscoveryStatus::Failed && source.transport.is_some())
        };
        let mut warnings = Vec::new();
        for source in self.enabled_sources(among) {
            let id = &source.id;
            let failure = source.last_error.as_ref().filter(|_| has_failed(&source));
            let failure = failure
                .map(|failure| format!("`{id}` failed: {}; `toolcrib refresh {id}` tries again", failure.message));
            let is_missing = missing.iter().any(|missing| missing.source == *id);
            // This message names the source, the reason and the next step.
            let unknown = || self.registry.sources().failure(id).filter(|_| is_missing).map(|error| error.message);
            if let Some(warning) = failure.or_else(unknown).filter(|_| !is_reported(id)) {
                warnings.push((id.clone(), warning));
            }
        }
        if warnings.len() > MAX_WARNINGS {
            let names: Vec<&str> = warnings.iter().map(|(id, _)| id.as_str()).collect();
            let count = names.len();
            let names = names.join(", ");
            self.common.hint(&format!(
                "warning: {count} sources failed or were never discovered: {names}; `toolcrib sources` shows why"
            ));
            return;
        }
        for (_, warning) in warnings {
            self.common.hint(&format!("warning: {warning}"));
        }
    }

    /// Starts a background process for the slow sources, except for those that another process discovers already.
    fn discover_in_background(&self, slow: &[SourceId], in_discovery_elsewhere: &[SourceId]) {
        if slow.is_empty() {
            return;
        }
        let names: Vec<&str> = slow.iter().map(SourceId::as_str).collect();
        let names = names.join(", ");
        // The hint names all slow sources, the new process gets only those that no other process is working on.
        let to_discover: Vec<&SourceId> = slow.iter().filter(|id| !in_discovery_elsewhere.contains(id)).collect();
        self.common.hint(&match spawn_refresh(&self.common, &to_discover) {
            Ok(()) => format!("hint: still being discovered in the background: {names}; `--wait 60s` waits longer"),
            Err(error) => format!("warning: not discovered yet: {names}; `toolcrib refresh` cannot start: {error}"),
        });
    }
}

/// Returns the sources that this or another process is discovering now.
fn sources_in_discovery(registry: &Registry) -> Vec<SourceId> {
    let sources = registry.sources().list().into_iter();
    sources.filter(|source| source.status == DiscoveryStatus::Discovering).map(|source| source.id).collect()
}

/// Result of [`wait_for_sources`].
#[derive(Default)]
struct WaitOutcome {
    /// Finished discoveries, sorted by source.
    outcomes: Vec<RefreshOutcome>,
    /// Sources that took too long; each is recorded as failed.
    timed_out: Vec<SourceId>,
    /// Sources that a background process is to discover.
    left_to_background: Vec<SourceId>,
}

/// Why a wait ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WaitEnd {
    /// Every source responded, failed or timed out.
    Finished,
    /// On a terminal, no source has responded for [`SHORT_WAIT_TIMEOUT`].
    Idle,
    /// The limit of `--wait` has passed, or Ctrl-C was pressed.
    Stopped,
}

/// Waits for discoveries as long as the policy allows, and records a failure for each source that timed out.
async fn wait_for_sources(session: &CliSession, pending: Vec<PendingDiscovery>, policy: WaitPolicy) -> WaitOutcome {
    let mut wait_outcome = WaitOutcome::default();
    if pending.is_empty() {
        return wait_outcome;
    }
    let interrupted = session.common.wait.begin();
    let started_at = Instant::now();
    // Discoveries start when they are first polled, all at once; the registry bounds how many run in parallel.
    let mut unanswered: Vec<PendingSource> = pending.iter().map(|pending| pending.source.clone()).collect();
    let mut running: FuturesUnordered<_> = pending.into_iter().map(|pending| await_outcome(pending, policy)).collect();
    let collect = async {
        let mut last_response_at = started_at;
        loop {
            // Computed from the start, not from the last response: `--wait` bounds the whole wait.
            let limit_at = match policy {
                WaitPolicy::Limit(limit) => Some(started_at + limit.min(MAX_WAIT_TIMEOUT)),
                WaitPolicy::SourceTimeouts | WaitPolicy::Interactive => None,
            };
            let idle_at = matches!(policy, WaitPolicy::Interactive).then_some(last_response_at + SHORT_WAIT_TIMEOUT);
            tokio::select! {
                ended = running.next() => match ended {
                    Some(Some(outcome)) => {
                        unanswered.retain(|pending| pending.source != outcome.source);
                        wait_outcome.outcomes.push(outcome);
                        last_response_at = Instant::now();
                    }
                    // A source that failed before has timed out; it stays in `unanswered`.
                    Some(None) => {}
                    None => return WaitEnd::Finished,
                },
                () = sleep_until_some(idle_at) => return WaitEnd::Idle,
                () = sleep_until_some(limit_at) => return WaitEnd::Stopped,
                () = interrupted.cancelled() => return WaitEnd::Stopped,
            }
        }
    };
    let end = progress::show_progress(&session.registry, session.common.quiet, collect).await;
    session.common.wait.end();
    // Sources that did not respond. Ctrl-C on a terminal means that the user does not want to wait for them, so they
    // are recorded as failed and no background process is started.
    for pending in unanswered {
        if matches!(policy, WaitPolicy::Interactive) && end != WaitEnd::Stopped {
            wait_outcome.left_to_background.push(pending.source);
            continue;
        }
        // Recording the failure starts the backoff, so that the next command does not wait for this source again.
        // The time that the message of the failure names; never more than the limit that applied.
        let waited_for = match policy {
            WaitPolicy::Limit(limit) => limit.min(elapsed_whole_seconds(started_at)),
            WaitPolicy::SourceTimeouts if pending.failed_before => {
                SHORT_WAIT_TIMEOUT.min(elapsed_whole_seconds(started_at))
            }
            WaitPolicy::SourceTimeouts | WaitPolicy::Interactive => elapsed_whole_seconds(started_at),
        };
        if let Err(error) = session.registry.refresher().record_wait_timeout(&pending, waited_for).await {
            tracing::warn!(%error, server_name = %pending.source, "cannot record that the source did not respond");
        }
        wait_outcome.timed_out.push(pending.source);
    }
    wait_outcome.outcomes.sort_by(|a, b| a.source.cmp(&b.source));
    wait_outcome
}

/// Returns the time since `started_at`, rounded up to seconds for messages.
fn elapsed_whole_seconds(started_at: Instant) -> Duration {
    let elapsed = started_at.elapsed();
    Duration::from_secs(elapsed.as_secs() + u64::from(elapsed.subsec_nanos() > 0))
}

/// Waits for one discovery. Returns `None` when a source that failed before exceeds [`SHORT_WAIT_TIMEOUT`].
async fn await_outcome(pending: PendingDiscovery, policy: WaitPolicy) -> Option<RefreshOutcome> {
    match policy {
        WaitPolicy::SourceTimeouts | WaitPolicy::Interactive if pending.source.failed_before => {
            tokio::time::timeout(SHORT_WAIT_TIMEOUT, pending.outcome).await.ok()
        }
        WaitPolicy::SourceTimeouts | WaitPolicy::Interactive | WaitPolicy::Limit(_) => Some(pending.outcome.await),
    }
}

/// Sleeps until the instant, or for ever without one.
async fn sleep_until_some(instant: Option<Instant>) {
    match instant {
        Some(instant) => sleep_until(instant).await,
        None => std::future::pending().await,
    }
}

/// The current wait for sources, shared with the signal handler. While there is one, Ctrl-C ends the wait and the command
/// prints what it has; without one, Ctrl-C ends the command.
#[derive(Debug, Clone, Default)]
pub(crate) struct InterruptibleWait(Arc<Mutex<Option<CancellationToken>>>);

impl InterruptibleWait {
    /// Registers a wait; the token is cancelled by [`InterruptibleWait::stop`].
    fn begin(&self) -> CancellationToken {
        let token = CancellationToken::new();
        *self.0.lock() = Some(token.clone());
        token
    }

    /// Ends the current wait. Returns `false` when there is none.
    pub(crate) fn stop(&self) -> bool {
        let token = self.0.lock().take();
        token.is_some_and(|token| {
            token.cancel();
            true
        })
    }

    /// Removes the wait, so that Ctrl-C ends the command again.
    fn end(&self) {
        self.0.lock().take();
    }
}

/// Starts a detached `toolcrib refresh` for the sources. It begins when this command has ended, because this one holds
/// the discovery leases of the sources.
fn spawn_refresh(common: &CommonArguments, sources: &[&SourceId]) -> std::io::Result<()> {
    if sources.is_empty() {
        return Ok(());
    }
    let mut command = Command::new(std::env::current_exe()?);
    // The same store and configuration as this command; environment and working directory are inherited.
    command.arg("refresh").args(sources.iter().map(|id| id.as_str()));
    for (option, path) in [("--config", &common.config), ("--data", &common.data)] {
        if let Some(path) = path {
            command.arg(option).arg(path);
        }
    }
    for (option, value) in [("--store", &common.store), ("--node", &common.node)] {
        if let Some(value) = value {
            command.arg(option).arg(value);
        }
    }
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    // Its own process group, so that Ctrl-C at this terminal does not end it.
    #[cfg(unix)]
    std::os::unix::process::CommandExt::process_group(&mut command, 0);
    // Dropping the handle does not end the process, and this command does not wait for it.
    command.spawn().map(drop)
}
