//! `bash`: runs a shell command in the first root, bounded in time and output. The whole process tree ends with it.
//!
//! The command is not confined to the roots: it runs with the rights of Toolcrib's user, which is why its default
//! verdict is to ask. It runs under a guard like a stdio server, so nothing that it leaves in the background survives
//! it. A command that fails is a result with `isError`, not an error of the call: the model must see its output.

use std::ffi::OsString;
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use serde_json::json;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::time::timeout;
use toolcrib_core::Result;
use toolcrib_guard::{GuardExe, Launch, ServerProcess, clean_env};

use super::files::Roots;
use super::{BuiltinDefinition, BuiltinHandler, BuiltinOutput, builtin_handler, execution_failed, parse_arguments};

/// Upper bound of `timeout_s`.
const MAX_TIMEOUT_SECONDS: u64 = 600;
/// Value of `timeout_s` if it is not given.
const DEFAULT_TIMEOUT_SECONDS: u64 = 60;
/// Bytes kept of stdout and of stderr; the rest is counted and dropped.
const MAX_STREAM_BYTES: usize = 64 * 1024;
/// Time to read the rest of the pipes after the command has exited.
const PIPE_DRAIN_TIMEOUT: Duration = Duration::from_secs(1);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Arguments {
    /// Passed to the shell as it is, with `-c`.
    command: String,
    /// Seconds; the call's own timeout applies as well.
    timeout_s: Option<u64>,
}

/// Builds the tool. Commands run in the first of `roots`, under `guard`.
pub(super) fn tool(roots: Arc<Roots>, guard: GuardExe) -> Result<(BuiltinDefinition, BuiltinHandler)> {
    let definition = BuiltinDefinition::new(
        "bash",
        "Runs a shell command in the first configured directory, without input and with a clean environment. Gives \
         its exit code, stdout and stderr, 64 KiB of each. After `timeout_s` (default 60) the command and everything \
         it started is ended; what it leaves in the background is ended with it.",
        json!({
            "type": "object",
            "properties": {
                "command": { "type": "string", "minLength": 1, "maxLength": 32768 },
                "timeout_s": { "type": "integer", "minimum": 1, "maximum": MAX_TIMEOUT_SECONDS },
            },
            "required": ["command"],
            "additionalProperties": false,
        }),
    )?
    .title("Run a shell command")
    .mutating()
    .annotations(json!({ "readOnlyHint": false, "destructiveHint": true, "openWorldHint": true }));
    let handler = builtin_handler(move |input| {
        let roots = Arc::clone(&roots);
        let guard = guard.clone();
        async move { run_command(&roots, &guard, parse_arguments(input)?).await }
    });
    Ok((definition, handler))
}

/// Runs the command until it exits or times out.
async fn run_command(roots: &Roots, guard: &GuardExe, arguments: Arguments) -> Result<BuiltinOutput> {
    let seconds = arguments.timeout_s.unwrap_or(DEFAULT_TIMEOUT_SECONDS).clamp(1, MAX_TIMEOUT_SECONDS);
    // A clean environment: the command must not see the tokens of Toolcrib's own environment.
    let launch = |shell: &str| Launch {
        program: shell.into(),
        args: vec![OsString::from("-c"), OsString::from(&arguments.command)],
        env: clean_env(std::env::vars_os(), &[]),
        cwd: None,
    };
    let directory = roots.first()?;
    let mut process = match guard.start(Launch { cwd: Some(directory.clone()), ..launch("bash") }).await {
        Ok(process) => process,
        // Minimal systems have no bash. Another reason to fail is reported by the second attempt.
        Err(_) => guard.start(Launch { cwd: Some(directory), ..launch("sh") }).await?,
    };
    // Outside of the timeout, so that output captured before a timeout is returned.
    let mut stdout = CapturedStream::default();
    let mut stderr = CapturedStream::default();
    let outcome = timeout(Duration::from_secs(seconds), wait_and_capture(&mut process, &mut stdout, &mut stderr)).await;
    let status = match outcome {
        Ok(status) => status?,
        Err(_) => {
            // Ends the whole tree at once: the command has had its time.
            process.stop(Duration::ZERO).await;
            return Ok(build_output(format!("timed out after {seconds} s"), &stdout, &stderr, true));
        }
    };
    // The guard reports a signal as exit code 128 + n.
    let code = status.code().map_or_else(|| "none, ended by a signal".into(), |code| code.to_string());
    Ok(build_output(format!("exit code {code}"), &stdout, &stderr, !status.success()))
}

/// Waits until the command has exited and its output is read.
async fn wait_and_capture(
    process: &mut ServerProcess,
    stdout: &mut CapturedStream,
    stderr: &mut CapturedStream,
) -> Result<std::process::ExitStatus> {
    // No input: commands that read stdin get EOF instead of hanging.
    drop(process.stdin.take());
    let out = process.stdout.take();
    let err = process.stderr.take();
    // Read while waiting: a command blocks when a pipe is full.
    let mut reading = std::pin::pin!(async { tokio::join!(stdout.read(out), stderr.read(err)) });
    let wait = process.wait();
    let status = tokio::select! {
        status = wait => {
            // Without a guard, a process that left the group may keep the pipes open for ever.
            let _ = timeout(PIPE_DRAIN_TIMEOUT, &mut reading).await;
            return status.map_err(|error| execution_failed("cannot wait for the command").with_cause(error));
        }
        _ = &mut reading => process.wait().await,
    };
    status.map_err(|error| execution_failed("cannot wait for the command").with_cause(error))
}

/// Beginning of an output stream. The rest is read and dropped, so that the command does not block on a full pipe.
#[derive(Default)]
struct CapturedStream {
    /// At most [`MAX_STREAM_BYTES`].
    bytes: Vec<u8>,
    /// Bytes after those, for the note in the output.
    omitted_bytes: usize,
}

impl CapturedStream {
    /// Reads the stream to its end.
    async fn read(&mut self, stream: Option<impl AsyncRead + Unpin>) {
        let Some(mut stream) = stream else { return };
        let mut buffer = vec![0; 16 * 1024];
        while let Ok(count @ 1..) = stream.read(&mut buffer).await {
            let taken = count.min(MAX_STREAM_BYTES - self.bytes.len());
            self.bytes.extend_from_slice(&buffer[..taken]);
            self.omitted_bytes += count - taken;
        }
    }

    /// Appends the captured text under a heading, if there is any.
    fn append_to(&self, name: &str, output: &mut String) {
        if self.bytes.is_empty() {
            return;
        }
        *output += &format!("\n--- {name}\n{}", String::from_utf8_lossy(&self.bytes).trim_end_matches('\n'));
        if self.omitted_bytes > 0 {
            *output += &format!("\n({} bytes omitted)", self.omitted_bytes);
        }
    }
}

/// Output with exit status and both streams as text.
fn build_output(heading: String, stdout: &CapturedStream, stderr: &CapturedStream, is_error: bool) -> BuiltinOutput {
    let mut text = heading;
    stdout.append_to("stdout", &mut text);
    stderr.append_to("stderr", &mut text);
    BuiltinOutput { is_error, ..BuiltinOutput::text(text) }
}
