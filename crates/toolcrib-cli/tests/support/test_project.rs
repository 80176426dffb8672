//! A project whose configuration file is named with `--config`, which counts as trust; with access to its database and
//! processes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;

use super::CliOutput;

/// Tools with unusual schemas and texts, and some that cannot be offered.
pub(crate) const ODD_TOOLS: &str = r##"[
    {"name": "odd.tool", "title": "An \u001b[31modd\u001b[0m one", "description": "Does odd\u200b things.",
     "inputSchema": {"type": "object", "required": ["to"], "properties": {
        "to": {"$ref": "#/$defs/place"},
        "n": {"type": ["integer", "null"], "default": 3, "minimum": 1, "description": "How\u202e many"},
        "kind": {"enum": ["a", "b"]},
        "again": {"$ref": "#"}
     }, "$defs": {"place": {"type": "object", "required": ["city"], "properties": {"city": {"type": "string"}}}}},
     "annotations": {"readOnlyHint": true, "destructiveHint": "no"}, "vendor": {"big": 123456789012345678901234567890}},
    {"name": "bare"},
    {"name": "bad", "inputSchema": true},
    {"name": "calculate", "inputSchema": {"type": "object"}},
    {"name": "forms", "description": "x", "inputSchema": {"type": "object", "oneOf": [{"required": ["a"]}]}}
]"##;

/// A temporary directory with a project, a home and a directory for temporary files.
pub(crate) struct TestProject {
    directory: TempDir,
}

impl TestProject {
    /// `config` is the content of `sources:`; `SERVER` stands for the scripted server.
    pub(crate) fn new(config: &str) -> TestProject {
        let project = TestProject { directory: tempfile::tempdir().unwrap() };
        for directory in ["project", "home", "tmp"] {
            fs::create_dir(project.path(directory)).unwrap();
        }
        project.configure(config);
        project
    }

    /// Replaces the sources of the configuration.
    pub(crate) fn configure(&self, config: &str) {
        let config = config.replace("SERVER", &super::scripted_server());
        let indented: String = config.lines().map(|line| format!("  {}\n", line.trim())).collect();
        self.write("toolcrib.yaml", &format!("sources:\n{indented}"));
    }

    /// Writes a file in the project.
    pub(crate) fn write(&self, name: &str, content: &(impl AsRef<[u8]> + ?Sized)) {
        let path = self.path("project").join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Runs a command with the project's file named, which counts as trust.
    pub(crate) fn run(&self, arguments: &[&str]) -> CliOutput {
        self.run_with(&[&["--config", "toolcrib.yaml"], arguments].concat(), &[])
    }

    pub(crate) fn run_with(&self, arguments: &[&str], variables: &[(&str, &str)]) -> CliOutput {
        let temporary = self.path("tmp");
        let variables = [&[("TMPDIR", temporary.to_str().unwrap())], variables].concat();
        super::run(&self.path("project"), &self.path("home"), arguments, &variables)
    }

    /// Runs a command with `--json` that must end with this exit code; returns its output.
    #[track_caller]
    pub(crate) fn json(&self, code: i32, arguments: &[&str]) -> Value {
        let output = self.run(&[arguments, &["--json"]].concat());
        assert_eq!(output.code, code, "{arguments:?}\n{}\n{}", output.stdout, output.stderr);
        serde_json::from_str(&output.stdout).unwrap_or_else(|error| panic!("{error}: {}", output.stdout))
    }

    /// The database of this project.
    pub(crate) fn database(&self) -> PathBuf {
        let stores = fs::read_dir(self.path("home/data/toolcrib")).unwrap();
        stores.map(|entry| entry.unwrap().path().join("toolcrib.db")).find(|path| path.is_file()).unwrap()
    }

    /// Runs SQL on the database without Toolcrib. `None` without Python.
    pub(crate) fn execute_sql(&self, sql: &str) -> Option<()> {
        execute_sql(&self.database(), sql)
    }

    /// Command lines of processes that were started for this project and still run.
    pub(crate) fn leftover_processes(&self) -> Vec<String> {
        let home = self.path("home").to_string_lossy().into_owned();
        let Ok(processes) = fs::read_dir("/proc") else { return Vec::new() };
        let own_command_line = |path: &Path| {
            let environment = fs::read(path.join("environ")).ok()?;
            let is_ours = String::from_utf8_lossy(&environment).contains(&home);
            is_ours.then(|| String::from_utf8_lossy(&fs::read(path.join("cmdline")).unwrap_or_default()).into_owned())
        };
        processes.filter_map(|entry| own_command_line(&entry.ok()?.path())).collect()
    }
}

/// Runs SQL on a database without Toolcrib. `None` without Python.
pub(crate) fn execute_sql(database: &Path, sql: &str) -> Option<()> {
    let script =
        "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]); c.executescript(sys.argv[2]); c.commit(); c.close()";
    let status = Command::new("python3").args(["-c", script]).arg(database).arg(sql).status().ok()?;
    assert!(status.success(), "{sql}");
    Some(())
}

/// Returns one field of each object in an array.
pub(crate) fn field_values<'a>(array: &'a Value, field: &str) -> Vec<&'a str> {
    array.as_array().unwrap().iter().map(|item| item[field].as_str().unwrap_or_default()).collect()
}
