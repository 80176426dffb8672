//! The demo's environment: a temporary directory with a configuration and a store of its own, and the printing of the
//! tour's steps.
//!
//! The directory has the configuration of the demo, the store below `data`, and the file in which the bundled server
//! counts its starts. It is removed when the sandbox is dropped, also after an error; after SIGKILL it stays behind.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::Value;
use toolcrib::config::{Config, ConfigDiagnostic};
use toolcrib::config_file::LoadedConfig;
use toolcrib::core::ResultExt;
use toolcrib::store::{self, Store};
use toolcrib::{Code, Registry, RegistryOptions, Result};

use super::mcp_server;
use crate::arguments::CommonArguments;
use crate::{color, output};

/// The environment of one demo. Its directory is removed on drop.
pub(super) struct DemoSandbox {
    /// Temporary directory with a random name, readable by its owner only.
    directory: PathBuf,
    config: Config,
    /// The configuration as YAML, for display.
    pub(super) config_text: String,
    /// `--json`: print no steps.
    silent: bool,
    /// Show no progress.
    pub(super) quiet: bool,
}

impl DemoSandbox {
    /// Creates the directory and the configuration; `document` is the URL of the shop's OpenAPI document.
    pub(super) fn create(common: &CommonArguments, document: &str) -> Result<DemoSandbox> {
        let directory = std::env::temp_dir().join(format!("toolcrib-demo-{:016x}", rand::random::<u64>()));
        let action = || format!("create `{}`", directory.display());
        let mut builder = std::fs::DirBuilder::new();
        // The store in it decides which commands run, so only the owner may write to it.
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        builder.create(&directory).context(Code::Internal, action())?;
        // Built as soon as the directory exists, so that `drop` removes it if anything below fails.
        let mut sandbox = DemoSandbox {
            directory,
            config: Config::default(),
            config_text: String::new(),
            silent: common.json,
            quiet: common.quiet || common.json,
        };
        let program = std::env::current_exe().context(Code::Internal, "find this program's own file")?;
        sandbox.config_text = render_config(&program, document);
        let read = Config::read(&sandbox.config_text, "toolcrib.yaml", &sandbox.directory);
        sandbox.config = read.map_err(|faults| ConfigDiagnostic::combined_error(&faults))?;
        Ok(sandbox)
    }

    /// Directory of the store.
    pub(super) fn data_directory(&self) -> PathBuf {
        self.directory.join("data")
    }

    /// The configuration in the form in which it is loaded from files.
    pub(super) fn loaded_config(&self) -> LoadedConfig {
        LoadedConfig::from_config(self.config.clone())
    }

    /// Opens a registry that ignores the user's configuration files and environment variables.
    pub(super) async fn open_registry(&self) -> Result<Registry> {
        let store: Arc<dyn Store> = store::open(&self.data_directory().to_string_lossy()).await?;
        let options = RegistryOptions {
            store: Some(store),
            follow_writes: false,
            revalidate: false,
            environment: Vec::new(),
            ..RegistryOptions::default()
        };
        Registry::open(self.config.clone(), options).await
    }

    /// Returns how often the bundled MCP server was started; the server itself records each start.
    pub(super) fn server_starts(&self) -> usize {
        std::fs::read_to_string(self.directory.join(STARTS_FILE)).map_or(0, |text| text.lines().count())
    }

    /// Prints the heading of a step and the command that would do the same.
    pub(super) fn print_step(&self, number: usize, title: &str, command: &str) -> Result<()> {
        self.print(&format!(
            "\n{}\n   {}",
            color::bold(&format!("{number}. {title}")),
            color::dim(&format!("$ {command}"))
        ))
    }

    /// Prints what the command of the step would print, indented.
    pub(super) fn print_output(&self, text: &str) -> Result<()> {
        let lines: Vec<String> =
            text.trim_end().lines().map(|line| format!("   {line}").trim_end().to_owned()).collect();
        self.print(&lines.join("\n"))
    }

    /// Prints a remark on the result of a step.
    pub(super) fn print_note(&self, text: &str) -> Result<()> {
        self.print(&format!("   {}", color::success(&format!("=> {text}"))))
    }

    /// Prints the text, unless `--json` is given.
    pub(super) fn print(&self, text: &str) -> Result<()> {
        if self.silent { Ok(()) } else { output::print_line(text) }
    }
}

impl Drop for DemoSandbox {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.directory) {
            output::print_stderr_line(&format!("warning: cannot remove `{}`: {error}", self.directory.display()));
        }
    }
}

/// File in the working directory of the bundled MCP server, with a line per start.
const STARTS_FILE: &str = "starts.log";

/// Renders the configuration of the demo: the bundled MCP server, the shop's API and the built-in tools.
fn render_config(program: &Path, document: &str) -> String {
    // A JSON string is a valid YAML string.
    let program = Value::from(program.to_string_lossy());
    format!(
        "sources:
  library:
    command: {program}
    args: [{}, --starts, {STARTS_FILE}]
    cwd: .
  shop:
    openapi: {document}
  core:
    builtin: all
",
        mcp_server::DEMO_SERVER_ARGUMENT
    )
}
