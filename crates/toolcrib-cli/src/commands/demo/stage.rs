//! Where the demo takes place: a directory and a registry of its own, and the words that are said on the way.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::Value;
use toolcrib::config_file::Found;
use toolcrib::core::ResultExt;
use toolcrib::core::config::{Config, Fault};
use toolcrib::store::{self, Store};
use toolcrib::{Code, Options, Registry, Result};

use super::server;
use crate::arguments::Common;
use crate::{output, paint};

/// A directory of its own, which goes when the demo does.
pub(super) struct Stage {
    directory: PathBuf,
    config: Config,
    /// The configuration, as its file would have it.
    pub(super) text: String,
    silent: bool,
    pub(super) quiet: bool,
}

impl Stage {
    pub(super) fn set(common: &Common, document: &str) -> Result<Stage> {
        let directory = std::env::temp_dir().join(format!("toolcrib-demo-{:016x}", rand::random::<u64>()));
        let cannot = || format!("make `{}`", directory.display());
        let mut builder = std::fs::DirBuilder::new();
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        builder.create(&directory).context(Code::Internal, cannot())?;
        let mut stage = Stage {
            directory,
            config: Config::default(),
            text: String::new(),
            silent: common.json,
            quiet: common.quiet || common.json,
        };
        let program = std::env::current_exe().context(Code::Internal, "find this program's own file")?;
        stage.text = config_text(&program, document);
        let read = Config::read(&stage.text, "toolcrib.yaml", &stage.directory);
        stage.config = read.map_err(|faults| Fault::into_error(&faults))?;
        Ok(stage)
    }

    /// Where the store is.
    pub(super) fn data(&self) -> PathBuf {
        self.directory.join("data")
    }

    /// The configuration, as if it had been found.
    pub(super) fn found(&self) -> Found {
        Found::of(self.config.clone())
    }

    /// As every command does it, but without the user's own files and variables.
    pub(super) async fn open(&self) -> Result<Registry> {
        let store: Arc<dyn Store> = store::open(&self.data().to_string_lossy()).await?;
        let options = Options {
            store: Some(store),
            follow: false,
            revalidate: false,
            environment: Vec::new(),
            ..Options::default()
        };
        Registry::open(self.config.clone(), options).await
    }

    /// How often the server was started so far, by its own account.
    pub(super) fn starts(&self) -> usize {
        std::fs::read_to_string(self.directory.join(STARTS)).map_or(0, |text| text.lines().count())
    }

    pub(super) fn step(&self, number: usize, title: &str, command: &str) -> Result<()> {
        self.say(&format!(
            "\n{}\n   {}",
            paint::bold(&format!("{number}. {title}")),
            paint::dim(&format!("$ {command}"))
        ))
    }

    pub(super) fn show(&self, text: &str) -> Result<()> {
        let lines: Vec<String> =
            text.trim_end().lines().map(|line| format!("   {line}").trim_end().to_owned()).collect();
        self.say(&lines.join("\n"))
    }

    pub(super) fn note(&self, text: &str) -> Result<()> {
        self.say(&format!("   {}", paint::good(&format!("=> {text}"))))
    }

    pub(super) fn say(&self, text: &str) -> Result<()> {
        if self.silent { Ok(()) } else { output::line(text) }
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.directory) {
            output::complain(&format!("warning: cannot remove `{}`: {error}", self.directory.display()));
        }
    }
}

const STARTS: &str = "starts.log";

fn config_text(program: &Path, document: &str) -> String {
    // JSON's strings are YAML's, too.
    let program = Value::from(program.to_string_lossy());
    format!(
        "sources:
  library:
    command: {program}
    args: [{}, --starts, {STARTS}]
    cwd: .
  shop:
    openapi: {document}
  core:
    builtin: all
",
        server::ASKED
    )
}
