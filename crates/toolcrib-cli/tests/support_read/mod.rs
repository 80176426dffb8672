//! A place of its own for each test: a project directory, a home, and the real binary run in both.

#![expect(clippy::unwrap_used, clippy::panic, reason = "this is how a test fails")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;
use toolcrib_testkit::rig;

pub(crate) struct Bench {
    directory: TempDir,
}

/// How a command ended, and what it said.
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Bench {
    /// `config` is the inside of `sources:`; `SERVER` stands for the scripted server.
    pub(crate) fn new(config: &str) -> Bench {
        let bench = Bench { directory: tempfile::tempdir().unwrap() };
        for directory in ["project", "home", "tmp"] {
            fs::create_dir(bench.path(directory)).unwrap();
        }
        bench.configure(config);
        bench
    }

    pub(crate) fn configure(&self, config: &str) {
        let config = config.replace("SERVER", rig::scripted().to_str().unwrap());
        let indented: String = config.lines().map(|line| format!("  {}\n", line.trim())).collect();
        self.write("toolcrib.yaml", &format!("sources:\n{indented}"));
    }

    /// A file in the project.
    pub(crate) fn write(&self, name: &str, text: &str) {
        fs::write(self.path("project").join(name), text).unwrap();
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// With the project's file named, which counts as trust.
    pub(crate) fn run(&self, arguments: &[&str]) -> Ran {
        self.run_with(&[&["--config", "toolcrib.yaml"], arguments].concat(), &[])
    }

    pub(crate) fn run_with(&self, arguments: &[&str], variables: &[(&str, &str)]) -> Ran {
        let home = self.path("home");
        let mut command = Command::new(env!("CARGO_BIN_EXE_toolcrib"));
        command.args(arguments).current_dir(self.path("project")).stdin(Stdio::null());
        command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command.env("HOME", &home).env("TMPDIR", self.path("tmp"));
        command.env("XDG_CONFIG_HOME", home.join("config")).env("XDG_DATA_HOME", home.join("data"));
        command.envs(variables.iter().copied());
        let output = command.output().unwrap();
        Ran {
            code: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }

    /// What a command prints as JSON, having ended with this code.
    #[track_caller]
    pub(crate) fn json(&self, code: i32, arguments: &[&str]) -> Value {
        let ran = self.run(&[arguments, &["--json"]].concat());
        assert_eq!(ran.code, code, "{arguments:?}\n{}\n{}", ran.stdout, ran.stderr);
        serde_json::from_str(&ran.stdout).unwrap_or_else(|error| panic!("{error}: {}", ran.stdout))
    }

    /// The one database of this bench.
    pub(crate) fn database(&self) -> PathBuf {
        let stores = fs::read_dir(self.path("home/data/toolcrib")).unwrap();
        stores.map(|entry| entry.unwrap().path().join("toolcrib.db")).find(|path| path.is_file()).unwrap()
    }

    /// Runs SQL on the database, behind Toolcrib's back. `None` without Python.
    pub(crate) fn tamper(&self, sql: &str) -> Option<()> {
        let script = "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]); c.executescript(sys.argv[2]); c.commit(); c.close()";
        let status = Command::new("python3").args(["-c", script]).arg(self.database()).arg(sql).status().ok()?;
        assert!(status.success(), "{sql}");
        Some(())
    }

    /// Processes that were started from here and are still about.
    pub(crate) fn left_behind(&self) -> Vec<String> {
        let home = self.path("home").to_string_lossy().into_owned();
        let Ok(processes) = fs::read_dir("/proc") else { return Vec::new() };
        let of_ours = |path: &Path| {
            let environment = fs::read(path.join("environ")).ok()?;
            let ours = String::from_utf8_lossy(&environment).contains(&home);
            ours.then(|| String::from_utf8_lossy(&fs::read(path.join("cmdline")).unwrap_or_default()).into_owned())
        };
        processes.filter_map(|entry| of_ours(&entry.ok()?.path())).collect()
    }
}

impl Ran {
    #[track_caller]
    pub(crate) fn ended(&self, code: i32) -> &Ran {
        assert_eq!(self.code, code, "\n{}\n{}", self.stdout, self.stderr);
        self
    }

    #[track_caller]
    pub(crate) fn says(&self, wanted: &str) -> &Ran {
        assert!(self.stdout.contains(wanted), "`{wanted}` is not in\n{}\n{}", self.stdout, self.stderr);
        self
    }

    #[track_caller]
    pub(crate) fn complains(&self, wanted: &str) -> &Ran {
        assert!(self.stderr.contains(wanted), "`{wanted}` is not in\n{}", self.stderr);
        self
    }
}

/// One field of each object in an array.
pub(crate) fn each<'a>(array: &'a Value, field: &str) -> Vec<&'a str> {
    array.as_array().unwrap().iter().map(|item| item[field].as_str().unwrap_or_default()).collect()
}
