//! The demo's environment: a temporary directory with a configuration and a store of its own, independent of the files
//! and variables of the user.
//!
//! The directory has the store below `data`, and the file in which the bundled MCP server counts its starts. After
//! SIGKILL it stays behind.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::Value;
use toolcrib::config::{Config, ConfigDiagnostic};
use toolcrib::config_file::LoadedConfig;
use toolcrib::core::ResultExt;
use toolcrib::store::{self, Store};
use toolcrib::{Code, Registry, RegistryOptions, Result};

use crate::mcp_server;

/// The environment of one demo. [`DemoSandbox::remove`] ends it.
#[derive(Debug)]
pub struct DemoSandbox {
    /// Temporary directory with a random name, readable by its owner only.
    pub directory: PathBuf,
    config: Config,
    /// The configuration as YAML, for display.
    pub config_text: String,
}

impl DemoSandbox {
    /// Creates the directory and the configuration; `document` is the URL of the shop's OpenAPI document.
    pub fn create(document: &str) -> Result<DemoSandbox> {
        let directory = std::env::temp_dir().join(format!("toolcrib-demo-{:016x}", rand::random::<u64>()));
        let program = std::env::current_exe().context(Code::Internal, "find this program's own file")?;
        let config_text = render_config(&program, document);
        let config = Config::read(&config_text, "toolcrib.yaml", &directory)
            .map_err(|faults| ConfigDiagnostic::combined_error(&faults))?;
        let mut builder = std::fs::DirBuilder::new();
        // The store in it decides which commands run, so only the owner may write to it.
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        // Created last, so that a failure above leaves no directory behind.
        builder.create(&directory).context(Code::Internal, format!("create `{}`", directory.display()))?;
        Ok(DemoSandbox { directory, config, config_text })
    }

    /// Directory of the store.
    pub fn data_directory(&self) -> PathBuf {
        self.directory.join("data")
    }

    /// The configuration in the form in which it is loaded from files.
    pub fn loaded_config(&self) -> LoadedConfig {
        LoadedConfig::from_config(self.config.clone())
    }

    /// Opens a registry that ignores the user's configuration files and environment variables.
    pub async fn open_registry(&self) -> Result<Registry> {
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
    pub fn server_starts(&self) -> usize {
        std::fs::read_to_string(self.directory.join(STARTS_FILE)).map_or(0, |text| text.lines().count())
    }

    /// Removes the directory. Not done on drop, because only the caller can report a failure.
    pub fn remove(&self) -> std::io::Result<()> {
        std::fs::remove_dir_all(&self.directory)
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
