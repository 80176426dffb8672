//! Minimal host of a child process: starts a shell script through the guard and prints its output.
//!
//! `cargo run -p toolcrib --example guarded -- 'echo hello; sleep 100'`, then kill it in any way: the `sleep` ends too.

use std::io::Write;
use std::process::ExitCode;

use tokio::io::AsyncReadExt;
use toolcrib::guard::{self, GuardExe, Launch};

fn main() -> ExitCode {
    guard::run_if_requested();
    match run() {
        Ok(code) => ExitCode::from(code),
        Err(message) => {
            let _ = writeln!(std::io::stderr(), "{message}");
            ExitCode::FAILURE
        }
    }
}

#[tokio::main(flavor = "current_thread")]
async fn run() -> Result<u8, Box<dyn std::error::Error>> {
    let script = std::env::args_os().nth(1).ok_or("give a shell script as the only argument")?;
    let launch = Launch {
        program: "sh".into(),
        args: vec!["-c".into(), script],
        env: guard::clean_env(std::env::vars_os(), &["GUARD_MARK".to_owned()]),
        cwd: None,
    };
    let mut server = GuardExe::CurrentExe.start(launch).await?;
    if let Some(mut stdout) = server.stdout.take() {
        let mut bytes = [0; 4096];
        while let count @ 1.. = stdout.read(&mut bytes).await? {
            std::io::stdout().write_all(&bytes[..count])?;
            std::io::stdout().flush()?;
        }
    }
    let status = server.wait().await?;
    Ok(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1))
}
