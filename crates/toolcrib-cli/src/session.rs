//! Where a command does its work: the configuration it found, the store it opened, the registry over both.

use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::time::Duration;

use toolcrib::config_file::{self, LoadedConfig, ProjectFile};
use toolcrib::core::catalog::Caller;
use toolcrib::core::freshness::Freshness;
use toolcrib::core::inventory::Actor;
use toolcrib::store::{self, OpenedStore};
use toolcrib::{Code, Error, Registry, RegistryOptions, Result, SourceId};

use crate::arguments::CommonArguments;
use crate::commands::trust;
use crate::output;

/// How long sources may take to close after the calls of a command that serves. A server that ignores the end of its
/// input is killed after 2.5 s.
const SOURCES_CLOSE_TIMEOUT: Duration = Duration::from_secs(3);

pub(crate) struct CliSession {
    pub(crate) common: CommonArguments,
    pub(crate) loaded_config: LoadedConfig,
    pub(crate) data_directory: PathBuf,
    pub(crate) registry: Registry,
}

/// Whether a command is done in a moment or goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SessionKind {
    OneShot,
    LongRunning,
}

impl CliSession {
    /// Reads the configuration and opens the registry, for work that may contact its sources. Contacts none itself.
    pub(crate) async fn open(common: &CommonArguments) -> Result<CliSession> {
        CliSession::open_with_consent(common, SessionKind::OneShot).await
    }

    /// For work that goes on: it follows what other processes write, and fetches anew what was served stale.
    pub(crate) async fn open_long_running(common: &CommonArguments) -> Result<CliSession> {
        CliSession::open_with_consent(common, SessionKind::LongRunning).await
    }

    async fn open_with_consent(common: &CommonArguments, pace: SessionKind) -> Result<CliSession> {
        let found = ask_for_trust(common, load_config(common)?)?;
        for fault in found.config.sources.iter().filter_map(|declared| declared.source.as_ref().err()).flatten() {
            common.hint(&format!("warning: {fault}"));
        }
        let data = data_directory(common, &found)?;
        let store = open_store(common, &data).await?;
        CliSession::build(common, found, data, store, pace).await
    }

    /// For work that contacts none of the configuration's sources: nobody is asked to trust a project's file.
    pub(crate) async fn open_offline(common: &CommonArguments) -> Result<CliSession> {
        let found = load_config(common)?;
        let data = data_directory(common, &found)?;
        let store = open_store(common, &data).await?;
        CliSession::build(common, found, data, store, SessionKind::OneShot).await
    }

    /// For work that only reads: where there is no store yet, it leaves none behind.
    pub(crate) async fn open_read_only(common: &CommonArguments) -> Result<CliSession> {
        let found = load_config(common)?;
        let data = data_directory(common, &found)?;
        if common.store.is_some() || data.exists() {
            return CliSession::open_offline(common).await;
        }
        let store = store::open_with_head("memory:", &data).await?;
        CliSession::build(common, found, data, store, SessionKind::OneShot).await
    }

    async fn build(
        common: &CommonArguments,
        found: LoadedConfig,
        data: PathBuf,
        opened: OpenedStore,
        pace: SessionKind,
    ) -> Result<CliSession> {
        for warning in &found.config.warnings {
            common.hint(&format!("warning: {warning}"));
        }
        let options = RegistryOptions {
            store: Some(opened.store),
            head_file: opened.head,
            logs_directory: Some(data.join("logs")),
            trust: found.trust(),
            follow_writes: pace == SessionKind::LongRunning,
            revalidate: pace == SessionKind::LongRunning,
            trace: common.telemetry.trace.clone(),
            span_queue: common.telemetry.spans.clone(),
            ..RegistryOptions::default()
        };
        let registry = Registry::open(found.config.clone(), options).await?;
        Ok(CliSession { common: common.clone(), loaded_config: found, data_directory: data, registry })
    }

    /// Says when the list that a tool is known from may be old.
    pub(crate) fn hint_stale_tool(&self, name: &str) {
        if let Ok(tool) = self.registry.tool(name) {
            self.hint_stale(Some(std::slice::from_ref(&tool.source)));
        }
    }

    /// Says which lists may be old.
    pub(crate) fn hint_stale(&self, among: Option<&[SourceId]>) {
        let stale = self.registry.sources().into_iter().filter(|source| {
            source.enabled
                && source.freshness == Freshness::Stale
                && among.is_none_or(|among| among.contains(&source.id))
        });
        let names: Vec<String> = stale.map(|source| source.id.to_string()).collect();
        if !names.is_empty() {
            let what = if names.len() == 1 { "list of" } else { "lists of" };
            self.common.hint(&format!("hint: the {what} {} may be old; `--fresh` asks again", names.join(", ")));
        }
    }

    /// An id that exists, from any spelling of it.
    pub(crate) fn find_source(&self, name: &str) -> Result<SourceId> {
        let id = SourceId::from_name(name)?;
        match self.registry.source(&id) {
            Some(_) => Ok(id),
            None => Err(self.registry.unknown_source_error(name)),
        }
    }

    pub(crate) fn caller() -> Caller {
        Caller { name: "cli".into() }
    }

    pub(crate) fn actor() -> Actor {
        Actor::new("cli")
    }

    pub(crate) async fn close(self) {
        self.registry.close().await;
    }

    /// At the end of a command that serves: what does not end in this time ends with the process, by its guard.
    pub(crate) async fn close_within_timeout(self) {
        self.registry.close_within(SOURCES_CLOSE_TIMEOUT).await;
    }
}

pub(crate) fn load_config(common: &CommonArguments) -> Result<LoadedConfig> {
    let directory = std::env::current_dir()
        .map_err(|error| Error::new(Code::ConfigInvalid, format!("the working directory cannot be read: {error}")))?;
    config_file::load(common.config.as_deref(), &directory)
}

pub(crate) fn data_directory(common: &CommonArguments, found: &LoadedConfig) -> Result<PathBuf> {
    match &common.data {
        Some(data) => Ok(data.clone()),
        None => config_file::default_data_directory(found.file.as_deref()),
    }
}

async fn open_store(common: &CommonArguments, data: &std::path::Path) -> Result<OpenedStore> {
    store::open_with_head(&store_url(common, data), data).await
}

/// Where the store is: as `--store` says, else in the data directory.
pub(crate) fn store_url(common: &CommonArguments, data: &std::path::Path) -> String {
    common.store.clone().unwrap_or_else(|| data.to_string_lossy().into_owned())
}

/// A project's file that was only found by walking up is asked about once, and again when it would do more.
fn ask_for_trust(common: &CommonArguments, found: LoadedConfig) -> Result<LoadedConfig> {
    let Some(project) = found.untrusted_project() else { return Ok(found) };
    // Standard input may be a program that talks to us.
    let person = std::io::stdin().is_terminal() && output::stderr_is_terminal();
    if !common.json && person && confirm_trust(project) {
        return found.accept_project();
    }
    common.hint(&format!(
        "hint: {}, so none of its sources is contacted and nothing else of it holds; look at it, then run `toolcrib trust`",
        project.untrusted_reason()
    ));
    Ok(found)
}

fn confirm_trust(project: &ProjectFile) -> bool {
    output::print_stderr_line(&format!("{}. With it, this holds:", project.untrusted_reason()));
    trust::trust_lines(project).iter().for_each(|line| output::print_stderr_line(line));
    // A terminal that cannot be written to or read from has not said yes.
    let _closed = write!(std::io::stderr().lock(), "Trust it? [y/N] ");
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer).is_ok() && matches!(answer.trim(), "y" | "Y" | "yes")
}
