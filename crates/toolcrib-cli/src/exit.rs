//! How the command ends: 0 done, 1 the work failed, 2 wrong usage or configuration.

use std::process::ExitCode;
use std::time::Duration;

use serde_json::json;
use toolcrib::{Code, Error};

use crate::discovery_wait::InterruptibleWait;
use crate::output;

/// Whether what was asked for came about. What went wrong was already shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CommandOutcome {
    Success,
    Failure,
}

pub(crate) fn exit_code(done: CommandOutcome) -> ExitCode {
    match done {
        CommandOutcome::Success => ExitCode::SUCCESS,
        CommandOutcome::Failure => ExitCode::from(1),
    }
}

pub(crate) fn report_error(error: &Error, json: bool) -> ExitCode {
    if json {
        // Nothing is left to tell somebody who does not listen.
        let _closed = output::print_line(&error.envelope().to_string());
    }
    output::print_stderr_line(&format!("error: {}", error.message));
    if let Some(cause) = error.cause_chain() {
        tracing::debug!(%cause, "the cause");
    }
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
    })
}

/// `--help` and `--version` end here too.
pub(crate) fn report_usage(error: &clap::Error) -> ExitCode {
    let wrong = error.use_stderr();
    let mut own_words = std::env::args_os().take_while(|argument| argument != "--");
    if wrong && own_words.any(|argument| argument == "--json") {
        let text = error.to_string();
        let said = text.split("\n\nUsage:").next().unwrap_or_default().trim_start_matches("error: ");
        let message = said.split_whitespace().collect::<Vec<_>>().join(" ");
        let envelope =
            json!({"error": {"code": "BAD_REQUEST", "message": message, "retryable": false, "details": null}});
        let _closed = output::print_line(&envelope.to_string());
    }
    let _closed = error.print();
    ExitCode::from(if wrong { 2 } else { 0 })
}

pub(crate) fn report_startup_error(error: &std::io::Error) -> ExitCode {
    output::print_stderr_line(&format!("error: cannot start: {error}"));
    ExitCode::from(1)
}

/// Ctrl-C, or a polite signal from whoever started us; a terminal that went away counts too.
/// While a command waits for sources, Ctrl-C ends that wait and not the command.
pub(crate) async fn wait_for_shutdown(wait: &InterruptibleWait) {
    let mut leave = ShutdownSignals::listen();
    let mut hang_up = HangupSignal::listen();
    loop {
        tokio::select! {
            signal = leave.next_signal() => {
                let stopped = signal == ShutdownSignal::Interrupt && wait.stop();
                if !stopped {
                    return;
                }
            }
            () = hang_up.wait() => return,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ShutdownSignal {
    /// Ctrl-C.
    Interrupt,
    #[cfg(unix)]
    Terminate,
}

/// How long a command that serves has between the signal that asks it to leave and its end: six seconds for calls in
/// flight, one for their responses, three for the servers that it started.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);

/// Ends the process when it has not ended by itself within its drain time. On a thread and a runtime of its own, for every
/// worker of the other one may be busy. What a process leaves behind is ended by the guards.
pub(crate) fn enforce_drain_timeout() {
    let enforced = tokio::runtime::Builder::new_current_thread().enable_all().build().and_then(|runtime| {
        // Heard before anything else begins.
        let mut leave = runtime.block_on(async { ShutdownSignals::listen() });
        let enforcing = move || {
            runtime.block_on(leave.wait());
            std::thread::sleep(DRAIN_TIMEOUT);
            output::print_stderr_line("error: some work did not end within the drain time; it is cut off");
            std::process::exit(1);
        };
        std::thread::Builder::new().name("drain-timeout".into()).spawn(enforcing)
    });
    if let Err(error) = enforced {
        tracing::warn!(%error, "the drain time cannot be enforced");
    }
}

/// Ctrl-C and SIGTERM, heard from the moment this is made.
pub(crate) struct ShutdownSignals {
    #[cfg(unix)]
    terminate: Option<tokio::signal::unix::Signal>,
    #[cfg(unix)]
    interrupt: Option<tokio::signal::unix::Signal>,
}

/// SIGHUP, heard from the moment this is made; never where there is none.
pub(crate) struct HangupSignal {
    #[cfg(unix)]
    signal: Option<tokio::signal::unix::Signal>,
}

#[cfg(unix)]
impl ShutdownSignals {
    pub(crate) fn listen() -> ShutdownSignals {
        use tokio::signal::unix::{SignalKind, signal};
        ShutdownSignals {
            terminate: signal(SignalKind::terminate()).ok(),
            interrupt: signal(SignalKind::interrupt()).ok(),
        }
    }

    async fn next_signal(&mut self) -> ShutdownSignal {
        tokio::select! {
            () = wait_for_signal(&mut self.terminate) => ShutdownSignal::Terminate,
            () = wait_for_signal(&mut self.interrupt) => ShutdownSignal::Interrupt,
        }
    }
}

impl ShutdownSignals {
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

/// Without a signal there is nothing to wait for.
#[cfg(unix)]
async fn wait_for_signal(signal: &mut Option<tokio::signal::unix::Signal>) {
    let heard = match signal {
        Some(signal) => signal.recv().await,
        None => None,
    };
    if heard.is_none() {
        std::future::pending().await
    }
}

#[cfg(not(unix))]
impl ShutdownSignals {
    pub(crate) fn listen() -> ShutdownSignals {
        ShutdownSignals {}
    }

    async fn signal(&mut self) -> ShutdownSignal {
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

    pub(crate) async fn heard(&mut self) {
        std::future::pending().await
    }
}

pub(crate) fn report_interrupt() -> ExitCode {
    output::print_stderr_line("interrupted");
    ExitCode::from(130)
}
