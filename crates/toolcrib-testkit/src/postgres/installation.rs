//! Installed programs of PostgreSQL, and the template from which the data of servers is copied: `initdb` takes seconds,
//! a copy a fraction of one.

use std::env;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::random_name;
use crate::programs;

/// Variable with the directory of the programs of a version that is not installed on the system. `cargo xtask test`
/// sets it to run some tests on a second version.
const PROGRAMS_VARIABLE: &str = "TOOLCRIB_TEST_POSTGRES_BIN";

/// Programs of one version, and the user who runs them.
#[derive(Debug)]
pub(super) struct Installation {
    bin_dir: PathBuf,
    /// Client of PostgreSQL.
    psql: PathBuf,
    /// PostgreSQL refuses to run as root. Root runs it as the user that Debian's package creates.
    runs_as_root: bool,
}

impl Installation {
    /// Finds the programs in `$TOOLCRIB_TEST_POSTGRES_BIN`, else the newest version below `/usr/lib/postgresql`, else
    /// the one in `PATH`.
    pub(super) fn find() -> Option<Installation> {
        let installed = find_installed_programs();
        let selected = env::var_os(PROGRAMS_VARIABLE).filter(|path| !path.is_empty()).map(PathBuf::from);
        let bin_dir = selected.or_else(|| installed.clone())?;
        // Packages of other versions may have the server alone; each `psql` talks to newer servers as well.
        let psql =
            [&bin_dir].into_iter().chain(&installed).map(|folder| folder.join("psql")).find(|path| path.is_file())?;
        let runs_as_root = read_output(Command::new("id").arg("-u")) == "0";
        if runs_as_root && read_output(Command::new("id").args(["-u", "postgres"])).is_empty() {
            return None;
        }
        Some(Installation { bin_dir, psql, runs_as_root })
    }

    pub(super) fn psql(&self) -> Command {
        Command::new(&self.psql)
    }

    fn program(&self, name: &str) -> PathBuf {
        self.bin_dir.join(name)
    }

    /// Command that runs a program as the current user, or as `postgres` instead of root.
    pub(super) fn unprivileged_command(&self, name: &str) -> Command {
        let program = self.program(name);
        if !self.runs_as_root {
            return Command::new(program);
        }
        let mut command = Command::new("setpriv");
        command.args(["--reuid=postgres", "--regid=postgres", "--init-groups", "--"]).arg(program);
        command
    }

    /// Creates a directory for a server, with the data of an empty cluster in `data`.
    ///
    /// # Panics
    ///
    /// If it cannot be created.
    pub(super) fn create_data_dir(&self, directory: &Path) {
        self.create_private_dir(directory);
        run(Command::new("cp").arg("-a").arg(self.ensure_template()).arg(directory.join("data")));
    }

    /// Returns the template, which is created by the first test that needs it and kept for later runs.
    #[expect(clippy::unwrap_used, reason = "fails the calling test")]
    fn ensure_template(&self) -> PathBuf {
        // Its owner is part of the name, because other users cannot read it.
        let user = if self.runs_as_root { "postgres".to_owned() } else { read_output(Command::new("id").arg("-un")) };
        // Such as `postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)`.
        let version = read_output(Command::new(self.program("postgres")).arg("--version"));
        let name = format!("postgres-template-{}-{user}", version.split(' ').nth(2).unwrap_or_default());
        // The fetched packages may belong to another user.
        let folders = programs::deps_dir().into_iter().chain([env::temp_dir()]);
        let mut templates = folders.map(|folder| folder.join(&name));
        let (template, lock) = templates
            .find_map(|template| {
                let lock = File::create(template.with_added_extension("lock")).ok()?;
                Some((template, lock))
            })
            .unwrap();
        // Tests run in several processes at once.
        lock.lock().unwrap();
        if template.is_dir() {
            return template;
        }
        // Below the temporary directory, because another user than root may not reach the folder.
        let work_dir = env::temp_dir().join(format!("toolcrib-initdb-{}", random_name()));
        self.create_private_dir(&work_dir);
        let mut initdb = self.unprivileged_command("initdb");
        initdb.args(["--no-sync", "--auth=trust", "--username=postgres", "--encoding=UTF8", "--locale=C.UTF-8"]);
        // Small files of the transaction log make the copies small.
        initdb.args(["--wal-segsize=1", "--pgdata"]).arg(work_dir.join("data"));
        run(initdb.current_dir(&work_dir));
        let incomplete = template.with_added_extension("new");
        let _ = fs::remove_dir_all(&incomplete);
        run(Command::new("cp").arg("-a").arg(work_dir.join("data")).arg(&incomplete));
        fs::rename(&incomplete, &template).unwrap();
        fs::remove_dir_all(&work_dir).unwrap();
        template
    }

    /// Creates a file that only the user who runs PostgreSQL can access.
    #[expect(clippy::unwrap_used, reason = "fails the calling test")]
    pub(super) fn create_private_file(&self, path: &Path, content: &str) {
        fs::write(path, content).unwrap();
        run(Command::new("chmod").arg("600").arg(path));
        if self.runs_as_root {
            run(Command::new("chown").arg("postgres:postgres").arg(path));
        }
    }

    /// Creates a directory that only the user who runs PostgreSQL can access.
    fn create_private_dir(&self, directory: &Path) {
        run(Command::new("mkdir").args(["-m", "700"]).arg(directory));
        if self.runs_as_root {
            run(Command::new("chown").arg("postgres:postgres").arg(directory));
        }
    }
}

/// Finds the programs of the newest installed version.
fn find_installed_programs() -> Option<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql").ok().into_iter().flatten().flatten();
    let version_number = |path: &Path| path.file_name()?.to_str()?.parse::<u32>().ok();
    let newest = versions
        .map(|entry| entry.path())
        .filter(|path| path.join("bin/initdb").is_file())
        .max_by_key(|path| version_number(path))
        .map(|path| path.join("bin"));
    newest.or_else(|| {
        let path = env::var_os("PATH")?;
        let program = env::split_paths(&path).map(|folder| folder.join("initdb")).find(|path| path.is_file())?;
        // A link leads to the directory with the other programs.
        Some(program.canonicalize().ok()?.parent()?.to_path_buf())
    })
}

/// Output of a program, trimmed; empty if it failed.
fn read_output(command: &mut Command) -> String {
    let output = command.stdin(Stdio::null()).output().ok().filter(|output| output.status.success());
    output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned()).unwrap_or_default()
}

/// Runs a program and panics if it fails.
#[track_caller]
#[expect(clippy::unwrap_used, reason = "fails the calling test")]
fn run(command: &mut Command) {
    let output = command.stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}
