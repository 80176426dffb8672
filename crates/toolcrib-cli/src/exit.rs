//! How the command ends: 0 done, 1 the work failed, 2 wrong usage or configuration.

use std::process::ExitCode;
use std::time::Duration;

use serde_json::json;
use toolcrib::{Code, Error};

use crate::output;
use crate::waiting::StoppableWait;

/// Whether what was asked for came about. What went wrong was already shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Done {
    Well,
    Failed,
}

pub(crate) fn done(done: Done) -> ExitCode {
    match done {
        Done::Well => ExitCode::SUCCESS,
        Done::Failed => ExitCode::from(1),
    }
}

pub(crate) fn failed(error: &Error, json: bool) -> ExitCode {
    if json {
        // Nothing is left to tell somebody who does not listen.
        let _closed = output::line(&error.envelope().to_string());
    }
    output::complain(&format!("error: {}", error.message));
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
pub(crate) fn usage(error: &clap::Error) -> ExitCode {
    let wrong = error.use_stderr();
    let mut own_words = std::env::args_os().take_while(|argument| argument != "--");
    if wrong && own_words.any(|argument| argument == "--json") {
        let text = error.to_string();
        let said = text.split("\n\nUsage:").next().unwrap_or_default().trim_start_matches("error: ");
        let message = said.split_whitespace().collect::<Vec<_>>().join(" ");
        let envelope =
            json!({"error": {"code": "BAD_REQUEST", "message": message, "retryable": false, "details": null}});
        let _closed = output::line(&envelope.to_string());
    }
    let _closed = error.print();
    ExitCode::from(if wrong { 2 } else { 0 })
}

pub(crate) fn broken(error: &std::io::Error) -> ExitCode {
    output::complain(&format!("error: cannot start: {error}"));
    ExitCode::from(1)
}

/// Ctrl-C, or a polite signal from whoever started us; a terminal that went away counts too.
/// While a command waits for sources, Ctrl-C ends that wait and not the command.
pub(crate) async fn asked_to_leave(wait: &StoppableWait) {
    let mut leave = Leave::listen();
    let mut hang_up = HangUp::listen();
    loop {
        tokio::select! {
            signal = leave.signal() => {
                let stopped = signal == LeaveSignal::Interrupt && wait.stop();
                if !stopped {
                    return;
                }
            }
            () = hang_up.heard() => return,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LeaveSignal {
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
        let mut leave = runtime.block_on(async { Leave::listen() });
        let enforcing = move || {
            runtime.block_on(leave.asked());
            std::thread::sleep(DRAIN_TIMEOUT);
            output::complain("error: some work did not end within the drain time; it is cut off");
            std::process::exit(1);
        };
        std::thread::Builder::new().name("drain-timeout".into()).spawn(enforcing)
    });
    if let Err(error) = enforced {
        tracing::warn!(%error, "the drain time cannot be enforced");
    }
}

/// Ctrl-C and SIGTERM, heard from the moment this is made.
pub(crate) struct Leave {
    #[cfg(unix)]
    terminate: Option<tokio::signal::unix::Signal>,
    #[cfg(unix)]
    interrupt: Option<tokio::signal::unix::Signal>,
}

/// SIGHUP, heard from the moment this is made; never where there is none.
pub(crate) struct HangUp {
    #[cfg(unix)]
    signal: Option<tokio::signal::unix::Signal>,
}

#[cfg(unix)]
impl Leave {
    pub(crate) fn listen() -> Leave {
        use tokio::signal::unix::{SignalKind, signal};
        Leave { terminate: signal(SignalKind::terminate()).ok(), interrupt: signal(SignalKind::interrupt()).ok() }
    }

    async fn signal(&mut self) -> LeaveSignal {
        tokio::select! {
            () = heard(&mut self.terminate) => LeaveSignal::Terminate,
            () = heard(&mut self.interrupt) => LeaveSignal::Interrupt,
        }
    }
}

impl Leave {
    pub(crate) async fn asked(&mut self) {
        self.signal().await;
    }
}

#[cfg(unix)]
impl HangUp {
    pub(crate) fn listen() -> HangUp {
        HangUp { signal: tokio::signal::unix::signal(tokio::signal::unix::SignalKind::hangup()).ok() }
    }

    pub(crate) async fn heard(&mut self) {
        heard(&mut self.signal).await;
    }
}

/// Without a signal there is nothing to wait for.
#[cfg(unix)]
async fn heard(signal: &mut Option<tokio::signal::unix::Signal>) {
    let heard = match signal {
        Some(signal) => signal.recv().await,
        None => None,
    };
    if heard.is_none() {
        std::future::pending().await
    }
}

#[cfg(not(unix))]
impl Leave {
    pub(crate) fn listen() -> Leave {
        Leave {}
    }

    async fn signal(&mut self) -> LeaveSignal {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending().await
        }
        LeaveSignal::Interrupt
    }
}

#[cfg(not(unix))]
impl HangUp {
    pub(crate) fn listen() -> HangUp {
        HangUp {}
    }

    pub(crate) async fn heard(&mut self) {
        std::future::pending().await
    }
}

pub(crate) fn interrupted() -> ExitCode {
    output::complain("interrupted");
    ExitCode::from(130)
}
