//! Where a command does its work: the configuration it found, the store it opened, the registry over both.

use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::time::Duration;

use toolcrib::config_file::{self, Found, Project};
use toolcrib::core::catalog::Caller;
use toolcrib::core::freshness::Freshness;
use toolcrib::core::inventory::Actor;
use toolcrib::store::{self, OpenedStore};
use toolcrib::{Code, Error, Options, Registry, Result, SourceId};

use crate::arguments::Common;
use crate::commands::trust;
use crate::output;

/// How long sources may take to close after the calls of a command that serves. A server that ignores the end of its
/// input is killed after 2.5 s.
const SOURCES_CLOSE_TIMEOUT: Duration = Duration::from_secs(3);

pub(crate) struct Desk {
    pub(crate) common: Common,
    pub(crate) found: Found,
    pub(crate) data: PathBuf,
    pub(crate) registry: Registry,
}

/// Whether a command is done in a moment or goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pace {
    Brief,
    Steady,
}

impl Desk {
    /// Reads the configuration and opens the registry, for work that may contact its sources. Contacts none itself.
    pub(crate) async fn open(common: &Common) -> Result<Desk> {
        Desk::open_for(common, Pace::Brief).await
    }

    /// For work that goes on: it follows what other processes write, and fetches anew what was served stale.
    pub(crate) async fn stay(common: &Common) -> Result<Desk> {
        Desk::open_for(common, Pace::Steady).await
    }

    async fn open_for(common: &Common, pace: Pace) -> Result<Desk> {
        let found = with_consent(common, find(common)?)?;
        for fault in found.config.sources.iter().filter_map(|declared| declared.source.as_ref().err()).flatten() {
            common.hint(&format!("warning: {fault}"));
        }
        let data = data_directory(common, &found)?;
        let store = open_store(common, &data).await?;
        Desk::over(common, found, data, store, pace).await
    }

    /// For work that contacts none of the configuration's sources: nobody is asked to trust a project's file.
    pub(crate) async fn manage(common: &Common) -> Result<Desk> {
        let found = find(common)?;
        let data = data_directory(common, &found)?;
        let store = open_store(common, &data).await?;
        Desk::over(common, found, data, store, Pace::Brief).await
    }

    /// For work that only reads: where there is no store yet, it leaves none behind.
    pub(crate) async fn look(common: &Common) -> Result<Desk> {
        let found = find(common)?;
        let data = data_directory(common, &found)?;
        if common.store.is_some() || data.exists() {
            return Desk::manage(common).await;
        }
        let store = store::open_remembered("memory:", &data).await?;
        Desk::over(common, found, data, store, Pace::Brief).await
    }

    async fn over(common: &Common, found: Found, data: PathBuf, opened: OpenedStore, pace: Pace) -> Result<Desk> {
        for warning in &found.config.warnings {
            common.hint(&format!("warning: {warning}"));
        }
        let options = Options {
            store: Some(opened.store),
            head: opened.head,
            logs: Some(data.join("logs")),
            trust: found.trust(),
            follow: pace == Pace::Steady,
            revalidate: pace == Pace::Steady,
            trace: common.telemetry.trace.clone(),
            spans: common.telemetry.spans.clone(),
            ..Options::default()
        };
        let registry = Registry::open(found.config.clone(), options).await?;
        Ok(Desk { common: common.clone(), found, data, registry })
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
    pub(crate) fn source(&self, name: &str) -> Result<SourceId> {
        let id = SourceId::from_name(name)?;
        match self.registry.source(&id) {
            Some(_) => Ok(id),
            None => Err(self.registry.unknown_source(name)),
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
    pub(crate) async fn close_in_drain(self) {
        self.registry.close_within(SOURCES_CLOSE_TIMEOUT).await;
    }
}

pub(crate) fn find(common: &Common) -> Result<Found> {
    let directory = std::env::current_dir()
        .map_err(|error| Error::new(Code::ConfigInvalid, format!("the working directory cannot be read: {error}")))?;
    config_file::load(common.config.as_deref(), &directory)
}

pub(crate) fn data_directory(common: &Common, found: &Found) -> Result<PathBuf> {
    match &common.data {
        Some(data) => Ok(data.clone()),
        None => config_file::data_directory(found.file.as_deref()),
    }
}

async fn open_store(common: &Common, data: &std::path::Path) -> Result<OpenedStore> {
    store::open_remembered(&store_place(common, data), data).await
}

/// Where the store is: as `--store` says, else in the data directory.
pub(crate) fn store_place(common: &Common, data: &std::path::Path) -> String {
    common.store.clone().unwrap_or_else(|| data.to_string_lossy().into_owned())
}

/// A project's file that was only found by walking up is asked about once, and again when it would do more.
fn with_consent(common: &Common, found: Found) -> Result<Found> {
    let Some(project) = found.untrusted() else { return Ok(found) };
    // Standard input may be a program that talks to us.
    let person = std::io::stdin().is_terminal() && output::stderr_is_terminal();
    if !common.json && person && consents(project) {
        return found.accept();
    }
    common.hint(&format!(
        "hint: {}, so none of its sources is contacted and nothing else of it holds; look at it, then run `toolcrib trust`",
        project.not_trusted()
    ));
    Ok(found)
}

fn consents(project: &Project) -> bool {
    output::complain(&format!("{}. With it, this holds:", project.not_trusted()));
    trust::lines(project).iter().for_each(|line| output::complain(line));
    // A terminal that cannot be written to or read from has not said yes.
    let _closed = write!(std::io::stderr().lock(), "Trust it? [y/N] ");
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer).is_ok() && matches!(answer.trim(), "y" | "Y" | "yes")
}
