//! Real PostgreSQL for tests: servers of their own that a test may stop, kill and pause, and databases on a shared
//! server.
//!
//! Each server has its own directory below the temporary directory, a free port on loopback and no password. It ends
//! with the test process, also when that is killed. A system cluster is never used. Programs come from Debian's package
//! `postgresql`; without them the functions return `None`, and a test calls [`programs::skip`](crate::programs::skip).

use std::collections::hash_map::RandomState;
use std::env;
use std::fs;
use std::hash::{BuildHasher, Hasher};
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::Instant;

use crate::observe::{TEST_TIMEOUT, is_running, read_or_empty, send_signal, wait_until_blocking};

mod installation;

use installation::Installation;

/// Variable with the URL of a shared server and a user who may create databases. `cargo xtask test` sets it.
const SHARED_SERVER_VARIABLE: &str = "TOOLCRIB_TEST_POSTGRES";

/// Starts PostgreSQL, prints its process id, and ends it with the signal that stdin names. If stdin is closed instead,
/// the test process has ended: then PostgreSQL ends at once and its directory is removed. `SIGCONT` ends a pause, in
/// which no other signal arrives.
const WRAPPER: &str = r#"
directory=$1
shift
"$@" </dev/null >"$directory/log" 2>&1 &
echo $!
read -r signal
kill -s "${signal:-QUIT}" $! && kill -s CONT $!
wait $!
[ -n "$signal" ] || rm -rf "$directory"
"#;

/// Returns the URL of a new, empty database on a shared server: the one named by `$TOOLCRIB_TEST_POSTGRES`, or one that
/// this process starts once. `None` without PostgreSQL.
pub fn shared_database() -> Option<String> {
    static SHARED_SERVER: OnceLock<Option<PostgresServer>> = OnceLock::new();
    if let Some(admin_url) = env::var(SHARED_SERVER_VARIABLE).ok().filter(|url| !url.is_empty()) {
        return Some(create_database(&Installation::find()?, &admin_url));
    }
    Some(SHARED_SERVER.get_or_init(PostgresServer::start).as_ref()?.create_database())
}

/// Whether tests can start PostgreSQL.
pub fn is_installed() -> bool {
    Installation::find().is_some()
}

/// Running PostgreSQL server with its own data. Dropping it stops the server and removes the data.
#[derive(Debug)]
pub struct PostgresServer {
    installation: Installation,
    /// Contains the data and the log.
    directory: PathBuf,
    port: u16,
    /// Whether clients may use TLS.
    has_tls: bool,
    /// Whether commits are written to the disk before they are confirmed.
    is_durable: bool,
    /// `None` while the server is stopped.
    process: Option<PostgresProcess>,
}

/// How a server stops.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopMode {
    /// Disconnects all clients, rolls back their transactions and writes a checkpoint.
    Fast,
    /// Ends without a checkpoint. The next start recovers from the log of transactions.
    Immediate,
    /// Kills the main process with `SIGKILL`; the others notice that and end.
    Kill,
}

/// PostgreSQL and the shell that ends it with the test process.
#[derive(Debug)]
struct PostgresProcess {
    wrapper: Child,
    /// Process id of PostgreSQL.
    pid: String,
}

impl PostgresServer {
    /// Starts a server with an empty cluster, in well under a second. Its data survives the end of the server, but not
    /// that of the machine. `None` without PostgreSQL.
    ///
    /// # Panics
    ///
    /// If PostgreSQL is installed but does not start.
    pub fn start() -> Option<PostgresServer> {
        PostgresServer::start_with(None, false)
    }

    /// Starts a server that writes commits to the disk before it confirms them, as one in production does: for
    /// measurements. `None` without PostgreSQL.
    ///
    /// # Panics
    ///
    /// If PostgreSQL is installed but does not start.
    pub fn start_durable() -> Option<PostgresServer> {
        PostgresServer::start_with(None, true)
    }

    /// Starts a server with a TLS certificate and its private key, both as PEM. `None` without PostgreSQL.
    ///
    /// # Panics
    ///
    /// If PostgreSQL is installed but does not start.
    pub fn start_with_tls(certificate: &str, private_key: &str) -> Option<PostgresServer> {
        PostgresServer::start_with(Some((certificate, private_key)), false)
    }

    #[expect(clippy::panic, reason = "fails the calling test")]
    fn start_with(tls: Option<(&str, &str)>, is_durable: bool) -> Option<PostgresServer> {
        let installation = Installation::find()?;
        let directory = env::temp_dir().join(format!("toolcrib-postgres-{}", random_name()));
        installation.create_data_dir(&directory);
        if let Some((certificate, private_key)) = tls {
            // The default names in the data directory.
            installation.create_private_file(&directory.join("data/server.crt"), certificate);
            installation.create_private_file(&directory.join("data/server.key"), private_key);
        }
        let has_tls = tls.is_some();
        let mut server = PostgresServer { installation, directory, port: 0, has_tls, is_durable, process: None };
        // Another process may take the port between the choice and the start.
        for _ in 0..10 {
            server.port = free_port();
            server.process = server.try_start();
            if server.process.is_some() {
                return Some(server);
            }
        }
        panic!("PostgreSQL does not start:\n{}", server.log())
    }

    /// Starts the stopped server with the same port and data.
    ///
    /// # Panics
    ///
    /// If it runs, or does not start within [`TEST_TIMEOUT`].
    pub fn start_again(&mut self) {
        assert!(self.process.is_none(), "the server was not stopped");
        // Repeated, because processes of a killed server still hold the data for a moment.
        let deadline = Instant::now() + TEST_TIMEOUT;
        while self.process.is_none() {
            self.process = self.try_start();
            assert!(self.process.is_some() || Instant::now() < deadline, "PostgreSQL does not start:\n{}", self.log());
        }
    }

    /// Stops the server and keeps its data. Connections are refused until [`start_again`](Self::start_again).
    ///
    /// # Panics
    ///
    /// If the server cannot be stopped.
    pub fn stop(&mut self, mode: StopMode) {
        if let Some(process) = self.process.take() {
            process.end(Some(mode));
        }
    }

    /// Stops and starts the server on the same port and data.
    ///
    /// # Panics
    ///
    /// If the server cannot be stopped or started.
    pub fn restart(&mut self, mode: StopMode) {
        self.stop(mode);
        self.start_again();
    }

    /// Suspends all processes of the server: connections stay open and get no answer.
    ///
    /// # Panics
    ///
    /// If the server is stopped.
    pub fn pause(&self) {
        // The main process first, because it starts the others.
        send_signal("STOP", self.main_pid());
        signal_children("STOP", self.main_pid());
    }

    /// Ends a pause.
    ///
    /// # Panics
    ///
    /// If the server is stopped.
    pub fn resume(&self) {
        signal_children("CONT", self.main_pid());
        send_signal("CONT", self.main_pid());
    }

    /// URL of a database; `postgres` always exists.
    pub fn url(&self, database: &str) -> String {
        format!("postgres://postgres@127.0.0.1:{}/{database}", self.port)
    }

    /// Creates an empty database and returns its URL.
    ///
    /// # Panics
    ///
    /// If the server does not run.
    #[must_use]
    pub fn create_database(&self) -> String {
        create_database(&self.installation, &self.url("postgres"))
    }

    /// Output of the server since its last start.
    pub fn log(&self) -> String {
        read_or_empty(&self.directory.join("log"))
    }

    /// Starts PostgreSQL and waits until it accepts connections; `None` if it ended instead.
    #[expect(clippy::unwrap_used, reason = "fails the calling test")]
    fn try_start(&self) -> Option<PostgresProcess> {
        let data_dir = self.directory.join("data");
        let postgres = self.installation.unprivileged_command("postgres");
        let mut command = Command::new("sh");
        command.args(["-c", WRAPPER, "sh"]).arg(&self.directory).arg(postgres.get_program()).args(postgres.get_args());
        command.arg("-D").arg(&data_dir);
        let port = format!("port={}", self.port);
        let settings = [
            "listen_addresses=127.0.0.1",
            &port,
            // TCP is enough, and the path of a socket has a limit that a temporary directory may exceed.
            "unix_socket_directories=",
            "max_connections=200",
            if self.is_durable { "fsync=on" } else { "fsync=off" },
            if self.has_tls { "ssl=on" } else { "ssl=off" },
        ];
        command.args(settings.iter().flat_map(|setting| ["-c", setting]));
        command.current_dir(&self.directory).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        // A signal to the process group of the test, such as Ctrl-C, must not end the wrapper before PostgreSQL.
        #[cfg(unix)]
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let mut wrapper = command.spawn().unwrap();
        let mut pid = String::new();
        BufReader::new(wrapper.stdout.take().unwrap()).read_line(&mut pid).unwrap();
        let process = PostgresProcess { wrapper, pid: pid.trim().to_owned() };

        let mut is_ready = false;
        wait_until_blocking("PostgreSQL to start or to end", || {
            is_ready = has_ready_status(&data_dir, &process.pid);
            is_ready || !is_running(&process.pid)
        });
        if is_ready {
            return Some(process);
        }
        process.end(Some(StopMode::Fast));
        None
    }

    #[expect(clippy::expect_used, reason = "fails the calling test")]
    fn main_pid(&self) -> &str {
        &self.process.as_ref().expect("the server runs").pid
    }
}

impl Drop for PostgresServer {
    fn drop(&mut self) {
        match self.process.take() {
            Some(process) => process.end(None),
            // The wrapper removes it otherwise.
            None => drop(fs::remove_dir_all(&self.directory)),
        }
    }
}

impl PostgresProcess {
    /// Stops PostgreSQL and waits for its end; without a mode, its directory is removed, too.
    fn end(mut self, mode: Option<StopMode>) {
        let signal = match mode {
            Some(StopMode::Fast) => "INT\n",
            Some(StopMode::Immediate) => "QUIT\n",
            Some(StopMode::Kill) => "KILL\n",
            None => "",
        };
        // Paused processes would not end before a timeout of the main process.
        signal_children("CONT", &self.pid);
        if let Some(mut stdin) = self.wrapper.stdin.take() {
            // Dropping it closes the pipe.
            let _ = stdin.write_all(signal.as_bytes());
        }
        wait_until_blocking("PostgreSQL to end", || self.wrapper.try_wait().is_ok_and(|status| status.is_some()));
    }
}

/// Creates an empty database and returns its URL.
#[expect(clippy::unwrap_used, reason = "fails the calling test")]
fn create_database(installation: &Installation, admin_url: &str) -> String {
    let name = format!("test_{}", random_name());
    run_psql(installation, admin_url, &format!("CREATE DATABASE {name}"));
    let (server, _) = admin_url.rsplit_once('/').unwrap();
    format!("{server}/{name}")
}

/// Executes SQL in a database, and returns the rows: a line each, columns separated by `|`.
///
/// # Panics
///
/// If PostgreSQL is not installed, or refuses the statement.
#[expect(clippy::unwrap_used, reason = "fails the calling test")]
pub fn run_sql(url: &str, sql: &str) -> String {
    run_psql(&Installation::find().unwrap(), url, sql)
}

#[expect(clippy::unwrap_used, reason = "fails the calling test")]
fn run_psql(installation: &Installation, url: &str, sql: &str) -> String {
    let mut psql = installation.psql();
    psql.args(["--no-psqlrc", "--quiet", "--tuples-only", "--no-align", "--command", sql, url]);
    let output = psql.stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "`{sql}` at {url}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
}

/// Whether PostgreSQL reports in its data directory that it accepts connections: the last line of `postmaster.pid`,
/// from which `pg_ctl` knows it, too. The first line is the process id.
fn has_ready_status(data_dir: &Path, pid: &str) -> bool {
    let status = read_or_empty(&data_dir.join("postmaster.pid"));
    let mut lines = status.lines();
    lines.next() == Some(pid) && lines.last().is_some_and(|line| line.trim() == "ready")
}

/// Sends a signal to the children of a process.
fn signal_children(signal: &str, parent: &str) {
    let parent_line = format!("PPid:\t{parent}");
    let is_child = |path: &Path| read_or_empty(&path.join("status")).lines().any(|line| line == parent_line);
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let children = processes.filter(|entry| is_child(&entry.path())).map(|entry| entry.file_name());
    // Fails if one of them has ended since.
    let _ = Command::new("kill").args(["-s", signal]).args(children).stderr(Stdio::null()).status();
}

#[expect(clippy::unwrap_used, reason = "fails the calling test")]
fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Random lowercase text; unique across the processes of a test run.
fn random_name() -> String {
    format!("{:016x}", RandomState::new().build_hasher().finish())
}

#[cfg(test)]
mod tests;
