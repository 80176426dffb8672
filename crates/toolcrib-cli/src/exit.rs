//! The end of the process: exit codes, shutdown signals, and the drain timeout of long-running commands.
//!
//! | code | meaning                                                                            |
//! |------|------------------------------------------------------------------------------------|
//! | 0    | success; also a shutdown that was requested by a signal, for long-running commands |
//! | 1    | the work failed, or a check found something                                        |
//! | 2    | the command line or the configuration must be changed first                        |
//! | 130  | a one-shot command was interrupted by a signal                                     |
//!
//! Only the main thread and the drain timeout end the process; commands return a [`CommandOutcome`] or an error.

use std::process::ExitCode;
use std::time::Duration;

use serde_json::json;
use toolcrib::core::json::to_exact_string;
use toolcrib::{Code, Error};

use crate::discovery_wait::InterruptibleWait;
use crate::output;

/// Result of a command that ran to its end. On `Failure` the command has already printed what went wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CommandOutcome {
    Success,
    /// The command has printed why.
    Failure,
}

/// A command without failures of its own only returns errors.
impl From<()> for CommandOutcome {
    fn from((): ()) -> CommandOutcome {
        CommandOutcome::Success
    }
}

/// Maps the outcome of a command to the exit code.
pub(crate) fn exit_code(outcome: CommandOutcome) -> ExitCode {
    match outcome {
        CommandOutcome::Success => ExitCode::SUCCESS,
        CommandOutcome::Failure => ExitCode::from(1),
    }
}

/// Prints the error (with `--json` also its envelope on stdout) and returns the exit code for its [`Code`].
pub(crate) fn report_error(error: &Error, json: bool) -> ExitCode {
    if json {
        // A failed write changes nothing: the process ends with the code of the original error.
        let _ = output::print_line(&to_exact_string(&error.envelope()).unwrap_or_default());
    }
    output::print_stderr_line(&format!("error: {}", error.message));
    if let Some(cause) = error.cause_chain() {
        tracing::debug!(%cause, "the cause");
    }
    // Code 2 means that the caller must change the command line or the configuration.
    ExitCode::from(match error.code {
        Code::ConfigInvalid | Code::NotFound | Code::BadRequest => 2,
        Code::ToolNotImplemented
        | Code::ToolInvalidInput
        | Code::ToolUnavailable
        | Code::ToolExecutionFailed
        | Code::Conflict
        | Code::Unauthorized
        | Code::Forbidden
        | Code::StoreUnavailable
        | Code::RateLimited
        | Code::AuthRequired
        | Code::Internal => 1,
        _ => 1,
    })
}

/// Prints a usage error, or the text of `--help` and `--version`, which clap reports as errors too.
pub(crate) fn report_usage(error: &clap::Error) -> ExitCode {
    let is_error = error.use_stderr();
    // Parsing failed, so look for `--json` by hand; after `--` come the arguments of a server.
    let mut own_arguments = std::env::args_os().take_while(|argument| argument != "--");
    if is_error && own_arguments.any(|argument| argument == "--json") {
        // clap renders `error: …`, a blank line and the usage; the envelope has the message alone, on one line.
        let text = error.to_string();
        let without_usage = text.split("\n\nUsage:").next().unwrap_or_default().trim_start_matches("error: ");
        let message = without_usage.split_whitespace().collect::<Vec<_>>().join(" ");
        let envelope =
            json!({"error": {"code": "BAD_REQUEST", "message": message, "retryable": false, "details": null}});
        // A failed write does not change the exit code.
        let _ = output::print_line(&envelope.to_string());
    }
    let _ = error.print();
    ExitCode::from(if is_error { 2 } else { 0 })
}

/// Reports that the async runtime could not be built, for example because no more threads may be started.
pub(crate) fn report_startup_error(error: &std::io::Error) -> ExitCode {
    output::print_stderr_line(&format!("error: cannot start: {error}"));
    ExitCode::from(1)
}

/// Waits for SIGINT (Ctrl-C), SIGTERM, or SIGHUP of a terminal that was closed. While a one-shot command waits for
/// sources, Ctrl-C ends only that wait, and the command prints what it has; the other signals always end the command.
/// Not used by long-running commands: for `serve`, SIGHUP reloads the configuration.
pub(crate) async fn wait_for_shutdown(wait: &InterruptibleWait) {
    let mut shutdown_signals = ShutdownSignals::listen();
    let mut hangup_signal = HangupSignal::listen();
    loop {
        tokio::select! {
            signal = shutdown_signals.next_signal() => {
                let ended_wait_only = signal == ShutdownSignal::Interrupt && wait.stop();
                if !ended_wait_only {
                    return;
                }
            }
            () = hangup_signal.wait() => return,
        }
    }
}

/// Which of the shutdown signals arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ShutdownSignal {
    /// Ctrl-C.
    Interrupt,
    #[cfg(unix)]
    Terminate,
}

/// Maximum time between a shutdown signal and the end of a long-running command: six seconds for calls in flight, one
/// for their responses, three for closing the servers that it started.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);

/// Starts a thread that exits the process [`DRAIN_TIMEOUT`] after the first shutdown signal. It has its own thread and
/// runtime because every worker of the main runtime may be busy or blocked. Server processes left over by the hard exit
/// are ended by their guards.
pub(crate) fn enforce_drain_timeout() {
    let enforced = tokio::runtime::Builder::new_current_thread().enable_all().build().and_then(|runtime| {
        // Listen before any other work starts, so that an early signal is not missed.
        let mut shutdown_signals = runtime.block_on(async { ShutdownSignals::listen() });
        let enforce = move || {
            runtime.block_on(shutdown_signals.wait());
            // The process usually exits during this sleep; then the thread ends with it.
            std::thread::sleep(DRAIN_TIMEOUT);
            output::print_stderr_line("error: some work did not end within the drain timeout; exiting now");
            std::process::exit(1);
        };
        std::thread::Builder::new().name("drain-timeout".into()).spawn(enforce)
    });
    if let Err(error) = enforced {
        tracing::warn!(%error, "the drain timeout cannot be enforced");
    }
}

/// SIGINT (Ctrl-C) and SIGTERM, recorded from the moment of [`ShutdownSignals::listen`]. Other systems than Unix have
/// Ctrl-C only.
pub(crate) struct ShutdownSignals {
    #[cfg(unix)]
    terminate: Option<tokio::signal::unix::Signal>,
    #[cfg(unix)]
    interrupt: Option<tokio::signal::unix::Signal>,
}

/// SIGHUP, recorded from the moment of [`HangupSignal::listen`]. On systems without it, waiting never ends. Its own
/// type, because it ends a one-shot command but reloads the configuration of `serve`.
pub(crate) struct HangupSignal {
    #[cfg(unix)]
    signal: Option<tokio::signal::unix::Signal>,
}

#[cfg(unix)]
impl ShutdownSignals {
    /// Registers the signal handlers. A handler that cannot be registered is never triggered.
    pub(crate) fn listen() -> ShutdownSignals {
        use tokio::signal::unix::{SignalKind, signal};
        ShutdownSignals {
            terminate: signal(SignalKind::terminate()).ok(),
            interrupt: signal(SignalKind::interrupt()).ok(),
        }
    }

    /// Waits for a signal and returns which one it was. Signals that arrive while nothing waits are remembered once.
    async fn next_signal(&mut self) -> ShutdownSignal {
        tokio::select! {
            () = wait_for_signal(&mut self.terminate) => ShutdownSignal::Terminate,
            () = wait_for_signal(&mut self.interrupt) => ShutdownSignal::Interrupt,
        }
    }
}

impl ShutdownSignals {
    /// Waits for the next shutdown signal of either kind.
    pub(crate) async fn wait(&mut self) {
        self.next_signal().await;
    }
}

#[cfg(unix)]
impl HangupSignal {
    pub(crate) fn listen() -> HangupSignal {
        HangupSignal { signal: tokio::signal::unix::signal(tokio::signal::unix::SignalKind::hangup()).ok() }
    }

    pub(crate) async fn wait(&mut self) {
        wait_for_signal(&mut self.signal).await;
    }
}

/// Waits for the signal; for ever when its handler could not be registered or the stream has ended.
#[cfg(unix)]
async fn wait_for_signal(signal: &mut Option<tokio::signal::unix::Signal>) {
    let received = match signal {
        Some(signal) => signal.recv().await,
        None => None,
    };
    if received.is_none() {
        std::future::pending().await
    }
}

#[cfg(not(unix))]
impl ShutdownSignals {
    pub(crate) fn listen() -> ShutdownSignals {
        ShutdownSignals {}
    }

    async fn next_signal(&mut self) -> ShutdownSignal {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending().await
        }
        ShutdownSignal::Interrupt
    }
}

#[cfg(not(unix))]
impl HangupSignal {
    pub(crate) fn listen() -> HangupSignal {
        HangupSignal {}
    }

    pub(crate) async fn wait(&mut self) {
        std::future::pending().await
    }
}

/// Reports that a shutdown signal ended the command; 130 is the shell's code for SIGINT.
pub(crate) fn report_interrupt() -> ExitCode {
    output::print_stderr_line("interrupted");
    ExitCode::from(130)
}
