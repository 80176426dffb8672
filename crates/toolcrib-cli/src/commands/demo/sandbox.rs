//! Where the demo takes place: a directory and a registry of its own, and the words that are said on the way.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::Value;
use toolcrib::config_file::LoadedConfig;
use toolcrib::core::ResultExt;
use toolcrib::core::config::{Config, ConfigDiagnostic};
use toolcrib::store::{self, Store};
use toolcrib::{Code, Registry, RegistryOptions, Result};

use super::mcp_server;
use crate::arguments::CommonArguments;
use crate::{color, output};

/// A directory of its own, which goes when the demo does.
pub(super) struct DemoSandbox {
    directory: PathBuf,
    config: Config,
    /// The configuration, as its file would have it.
    pub(super) config_text: String,
    silent: bool,
    pub(super) quiet: bool,
}

impl DemoSandbox {
    pub(super) fn create(common: &CommonArguments, document: &str) -> Result<DemoSandbox> {
        let directory = std::env::temp_dir().join(format!("toolcrib-demo-{:016x}", rand::random::<u64>()));
        let cannot = || format!("make `{}`", directory.display());
        let mut builder = std::fs::DirBuilder::new();
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        builder.create(&directory).context(Code::Internal, cannot())?;
        let mut stage = DemoSandbox {
            directory,
            config: Config::default(),
            config_text: String::new(),
            silent: common.json,
            quiet: common.quiet || common.json,
        };
        let program = std::env::current_exe().context(Code::Internal, "find this program's own file")?;
        stage.config_text = render_config(&program, document);
        let read = Config::read(&stage.config_text, "toolcrib.yaml", &stage.directory);
        stage.config = read.map_err(|faults| ConfigDiagnostic::combined_error(&faults))?;
        Ok(stage)
    }

    /// Where the store is.
    pub(super) fn data_directory(&self) -> PathBuf {
        self.directory.join("data")
    }

    /// The configuration, as if it had been found.
    pub(super) fn loaded_config(&self) -> LoadedConfig {
        LoadedConfig::from_config(self.config.clone())
    }

    /// As every command does it, but without the user's own files and variables.
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

    /// How often the server was started so far, by its own account.
    pub(super) fn server_starts(&self) -> usize {
        std::fs::read_to_string(self.directory.join(STARTS_FILE)).map_or(0, |text| text.lines().count())
    }

    pub(super) fn print_step(&self, number: usize, title: &str, command: &str) -> Result<()> {
        self.print(&format!(
            "\n{}\n   {}",
            color::bold(&format!("{number}. {title}")),
            color::dim(&format!("$ {command}"))
        ))
    }

    pub(super) fn print_output(&self, text: &str) -> Result<()> {
        let lines: Vec<String> =
            text.trim_end().lines().map(|line| format!("   {line}").trim_end().to_owned()).collect();
        self.print(&lines.join("\n"))
    }

    pub(super) fn print_note(&self, text: &str) -> Result<()> {
        self.print(&format!("   {}", color::success(&format!("=> {text}"))))
    }

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

const STARTS_FILE: &str = "starts.log";

fn render_config(program: &Path, document: &str) -> String {
    // JSON's strings are YAML's, too.
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
