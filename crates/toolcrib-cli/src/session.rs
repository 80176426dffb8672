//! The session of one command: loaded configuration, data directory and open registry. Opening a session reads files and
//! the store; it makes no network requests and starts no process.
//!
//! The constructors differ in what they may do:
//!
//! | constructor            | may contact sources | asks for trust | creates a store | for                                |
//! |------------------------|---------------------|----------------|-----------------|------------------------------------|
//! | `open`                 | yes                 | yes            | yes             | `tools`, `call`, `refresh`, `lock` |
//! | `open_long_running`    | yes                 | yes            | yes             | `serve`, `mcp`                     |
//! | `open_offline`         | no                  | no             | yes             | `enable`, `history`, `token`       |
//! | `open_for_maintenance` | no                  | refuses        | yes             | `verify`, `store prune`            |
//! | `open_read_only`       | no                  | no             | no              | `export`, `explain`, `group`        |
//! | `open_without_records` | no                  | no             | no              | `config`, `logs`                   |
//!
//! The last two use a store in memory while there is none, `open_without_records` also while the store that was named
//! cannot be reached. The session itself contacts no source; the column says what its command may do. `add` is an
//! exception: it contacts the one source that it declares, which the user has just named and need not trust. Commands
//! close the session explicitly: closing ends the servers, writes the counts and closes the store.

use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use toolcrib::config_file::{self, LoadedConfig, ProjectFile};
use toolcrib::core::access::Role;
use toolcrib::core::freshness::Freshness;
use toolcrib::core::inventory::Actor;
use toolcrib::private_dir::ensure_private_directory;
use toolcrib::registry::{NamedStore, SourceView};
use toolcrib::store::{self, OpenedStore, StoreState};
use toolcrib::{Code, Error, Principal, Registry, RegistryOptions, Result, SourceId};

use crate::arguments::CommonArguments;
use crate::commands::trust;
use crate::output;

/// Time for sources to close after a long-running command has drained its calls. A stdio server that ignores the end of
/// its input is killed after 2.5 s, so three seconds suffice for an orderly end of all of them.
const SOURCES_CLOSE_TIMEOUT: Duration = Duration::from_secs(3);

/// Time since the tools of a source are known for its prompts and resources, when a command has done its work.
const PENDING_LISTS_TIMEOUT: Duration = Duration::from_secs(1);

/// A registry opened for one command, with the configuration and options it was opened with.
///
/// More than twenty methods, most of a few lines, which every command needs.
pub(crate) struct CliSession {
    /// Options of the command line.
    pub(crate) common: CommonArguments,
    /// The merged configuration files, with the trust state of the project file.
    pub(crate) loaded_config: LoadedConfig,
    /// Directory of the store (unless `--store` names another), server logs and `admin.token`.
    pub(crate) data_directory: PathBuf,
    /// The open registry.
    pub(crate) registry: Registry,
}

/// How long the session lives, which decides whether the registry does background work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SessionKind {
    /// Reads the store when it is opened, and does no background work.
    OneShot,
    /// Follows what other processes write to the store, and refreshes stale tool lists after serving them.
    LongRunning,
}

/// Behaviour of a command that only reads, while the store that was named cannot be reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum UnreachableStore {
    Fail,
    UseMemory,
}

impl CliSession {
    /// Opens a session for a command that may contact sources. Asks at the terminal to trust an untrusted project file.
    pub(crate) async fn open(common: &CommonArguments) -> Result<CliSession> {
        CliSession::open_with_consent(common, SessionKind::OneShot).await
    }

    /// Like [`CliSession::open`], for a command that serves clients until shutdown.
    pub(crate) async fn open_long_running(common: &CommonArguments) -> Result<CliSession> {
        CliSession::open_with_consent(common, SessionKind::LongRunning).await
    }

    /// Loads the configuration, asks for trust, warns about invalid declarations, and opens the store.
    async fn open_with_consent(common: &CommonArguments, kind: SessionKind) -> Result<CliSession> {
        let loaded_config = ask_for_trust(common, load_config(common)?)?;
        let declarations = loaded_config.config.sources.iter();
        // An invalid declaration disables one source, not the command.
        for fault in declarations.filter_map(|declaration| declaration.source.as_ref().err()).flatten() {
            common.hint(&format!("warning: {fault}"));
        }
        let data_directory = data_directory(common, &loaded_config)?;
        let store = open_store(common, &loaded_config, &data_directory).await?;
        CliSession::build(common, loaded_config, data_directory, store, kind).await
    }

    /// Opens a session for a command that contacts none of the configured sources, so that it need not ask for trust.
    pub(crate) async fn open_offline(common: &CommonArguments) -> Result<CliSession> {
        let loaded_config = load_config(common)?;
        hint_ignored_store(common, &loaded_config);
        let data_directory = data_directory(common, &loaded_config)?;
        let store = open_store(common, &loaded_config, &data_directory).await?;
        CliSession::build(common, loaded_config, data_directory, store, SessionKind::OneShot).await
    }

    /// Opens a session for a command that works on the store itself: see [`load_store_config`].
    pub(crate) async fn open_for_maintenance(common: &CommonArguments) -> Result<CliSession> {
        let loaded_config = load_store_config(common)?;
        let data_directory = data_directory(common, &loaded_config)?;
        let store = open_store(common, &loaded_config, &data_directory).await?;
        CliSession::build(common, loaded_config, data_directory, store, SessionKind::OneShot).await
    }

    /// Opens a session for a command that only reads. When there is no store yet, uses one in memory so that the command
    /// leaves neither a data directory nor tables behind.
    pub(crate) async fn open_read_only(common: &CommonArguments) -> Result<CliSession> {
        CliSession::open_existing(common, UnreachableStore::Fail).await
    }

    /// Like [`CliSession::open_read_only`], for a command that is useful without what is stored, such as while the
    /// database is down.
    pub(crate) async fn open_without_records(common: &CommonArguments) -> Result<CliSession> {
        CliSession::open_existing(common, UnreachableStore::UseMemory).await
    }

    async fn open_existing(common: &CommonArguments, unreachable: UnreachableStore) -> Result<CliSession> {
        let loaded_config = load_config(common)?;
        let data_directory = data_directory(common, &loaded_config)?;
        let has_store = if names_store(common, &loaded_config) {
            let location = store_url(common, &loaded_config, &data_directory)?;
            has_named_store(common, &location, unreachable).await?
        } else {
            // An existing data directory may have one.
            data_directory.exists()
        };
        if has_store {
            return CliSession::open_offline(common).await;
        }
        let store = store::open_with_head("memory:", &data_directory).await?;
        CliSession::build(common, loaded_config, data_directory, store, SessionKind::OneShot).await
    }

    /// Opens the registry over an open store.
    async fn build(
        common: &CommonArguments,
        loaded_config: LoadedConfig,
        data_directory: PathBuf,
        opened: OpenedStore,
        kind: SessionKind,
    ) -> Result<CliSession> {
        // Unknown keys and the like. Every session prints them; `doctor` silences them and reports them as checks.
        for warning in &loaded_config.config.warnings {
            common.hint(&format!("warning: {warning}"));
        }
        let node_label = common.node.clone().unwrap_or_else(toolcrib::default_node_label);
        let options = RegistryOptions {
            node_label,
            store: Some(opened.store),
            named_store: NamedStore::select(common.store.as_deref(), &loaded_config.config),
            head_file: opened.head,
            logs_directory: Some(data_directory.join("logs")),
            trust: loaded_config.trust(),
            follow_writes: kind == SessionKind::LongRunning,
            revalidate: kind == SessionKind::LongRunning,
            // A server acts for its clients, a command for the person who runs it.
            actor: (kind == SessionKind::OneShot).then(CliSession::actor),
            trace: common.telemetry.trace.clone(),
            span_queue: common.telemetry.spans.clone(),
            ..RegistryOptions::default()
        };
        let registry = Registry::open(loaded_config.config.clone(), options).await?;
        Ok(CliSession { common: common.clone(), loaded_config, data_directory, registry })
    }

    /// Prints a hint when the cached tool list that contains the tool is stale.
    pub(crate) fn hint_stale_tool(&self, name: &str) {
        if let Ok(tool) = self.registry.tool_for(&CliSession::caller(), name) {
            self.hint_stale(Some(std::slice::from_ref(&tool.source)));
        }
    }

    /// Prints a hint that names the sources whose cached tool list is stale; `among` limits it to some sources.
    /// Disabled sources are not named: none of their tools is listed.
    pub(crate) fn hint_stale(&self, among: Option<&[SourceId]>) {
        let stale = self.enabled_sources(among).filter(|source| source.freshness == Freshness::Stale);
        let may_refresh = |source: &SourceView| self.registry.sources().ensure_may_start(&source.id).is_ok();
        let (refreshable, elsewhere): (Vec<_>, Vec<_>) = stale.partition(may_refresh);
        if !refreshable.is_empty() {
            let (lists, are, them) =
                if refreshable.len() == 1 { ("list", "is", "it") } else { ("lists", "are", "them") };
            let names: Vec<&str> = refreshable.iter().map(|source| source.id.as_str()).collect();
            let names = names.join(", ");
            self.common
                .hint(&format!("hint: the tool {lists} of {names} {are} stale; `--fresh` refreshes {them} first"));
        }
        for source in &elsewhere {
            let nodes: Vec<String> = source.nodes.iter().map(|label| format!("`{label}`")).collect();
            let nodes =
                if nodes.len() == 1 { format!("node {}", nodes[0]) } else { format!("nodes {}", nodes.join(", ")) };
            self.common.hint(&format!("hint: the tool list of {} is stale; it is refreshed on the {nodes}", source.id));
        }
    }

    /// Prints a warning if the rules leave local processes without tools: `toolcrib mcp` and agents on this machine.
    pub(crate) fn warn_without_local_tools(&self) {
        if let Some(warning) = self.registry.rules().local_warning() {
            self.common.hint(&format!("warning: {warning}"));
        }
    }

    /// Whether the journal is damaged. Its sources and tools may be lost then, so an empty list does not mean that none
    /// were declared.
    pub(crate) fn is_damaged(&self) -> bool {
        self.registry.store().damage_error().is_some()
    }

    /// Resolves a source name in any spelling (`My-Server`) to the id of an existing source.
    pub(crate) fn find_source(&self, name: &str) -> Result<SourceId> {
        let id = SourceId::from_name(name)?;
        match self.registry.sources().get(&id) {
            Some(_) => Ok(id),
            None => Err(self.registry.sources().unknown_error(name)),
        }
    }

    /// The principal under which commands see and call tools.
    pub(crate) fn caller() -> Principal {
        Principal::local("cli").with_role(Role::Admin)
    }

    /// The actor recorded in the journal for changes made by commands.
    pub(crate) fn actor() -> Actor {
        Actor::new("cli")
    }

    /// Runs the work of a command and closes the session, also after an error.
    pub(crate) async fn run_and_close<T>(self, work: impl AsyncFnOnce(&CliSession) -> Result<T>) -> Result<T> {
        let result = work(&self).await;
        self.close().await;
        result
    }

    /// Closes the registry and waits until its sources have ended. Prompts and resources that follow the tools of a
    /// discovery get a moment; those of a slower server are read by the next `refresh`, `serve` or `mcp`.
    pub(crate) async fn close(self) {
        self.registry.refresher().wait_for_pending_lists(PENDING_LISTS_TIMEOUT).await;
        self.registry.close().await;
    }

    /// Closes the registry of a long-running command, waiting at most [`SOURCES_CLOSE_TIMEOUT`]. A server that is still
    /// running then is ended by its guard when this process exits.
    pub(crate) async fn close_within_timeout(self) {
        self.registry.close_within(SOURCES_CLOSE_TIMEOUT).await;
    }
}

/// Whether a store that was named can be read, after a warning if not. Creates nothing.
async fn has_named_store(common: &CommonArguments, location: &str, unreachable: UnreachableStore) -> Result<bool> {
    let error = match store::open_existing(location).await {
        Ok(existing) => {
            existing.store.close().await;
            return Ok(true);
        }
        Err(error) => error,
    };
    let reason = match (StoreState::from_error(&error), unreachable) {
        _ if error.code == Code::ConfigInvalid => return Err(error),
        (StoreState::Missing | StoreState::Damaged, _) => {
            "there are no tables in the store that can be read; `toolcrib verify` tells whether it is damaged"
                .to_owned()
        }
        (StoreState::Ok | StoreState::Down, UnreachableStore::UseMemory) => error.message,
        (StoreState::Ok | StoreState::Down, UnreachableStore::Fail) => return Err(error),
    };
    common.hint(&format!("warning: nothing stored is shown: {reason}"));
    Ok(false)
}

/// Loads the file named by `--config`, or the nearest one from the working directory upwards, merged with the user's own.
pub(crate) fn load_config(common: &CommonArguments) -> Result<LoadedConfig> {
    let mut loaded_config = config_file::load(common.config.as_deref(), &config_file::working_directory()?)?;
    // A store that is named without a file may belong to a server with a file of its own, whose rules and sources the
    // user's file does not replace.
    if loaded_config.file.is_none() && (common.data.is_some() || names_store(common, &loaded_config)) {
        loaded_config.config.replaces_rules = false;
        loaded_config.config.retains_sources = true;
    }
    Ok(loaded_config)
}

/// Loads the configuration for a command that works on the store itself. Fails if the file names a store that is not used
/// because the file is not trusted, and the command line names none: the command would save, fill or check another store.
pub(crate) fn load_store_config(common: &CommonArguments) -> Result<LoadedConfig> {
    let loaded_config = load_config(common)?;
    if let Some(project) = project_with_ignored_store(common, &loaded_config).filter(|_| common.data.is_none()) {
        let message = format!(
            "{}, so the store that it names is not used; review it, then run `toolcrib trust`, or name a store by \
             `--store` or `--data`",
            project.untrusted_reason()
        );
        return Err(Error::new(Code::ConfigInvalid, message));
    }
    Ok(loaded_config)
}

/// Returns the location and the data directory of the store for a command that works on the store itself.
pub(crate) fn locate_store(common: &CommonArguments) -> Result<(String, PathBuf)> {
    let loaded_config = load_store_config(common)?;
    let data = data_directory(common, &loaded_config)?;
    Ok((store_url(common, &loaded_config, &data)?, data))
}

/// Returns the directory given by `--data`, or the default one for the configuration file.
pub(crate) fn data_directory(common: &CommonArguments, loaded_config: &LoadedConfig) -> Result<PathBuf> {
    match &common.data {
        Some(directory) => Ok(directory.clone()),
        None => config_file::default_data_directory(loaded_config.file.as_deref()),
    }
}

/// Whether the command line or the configuration names a store.
pub(crate) fn names_store(common: &CommonArguments, loaded_config: &LoadedConfig) -> bool {
    common.store.is_some() || loaded_config.config.store.is_some()
}

/// Opens the store, creating the data directory if needed.
async fn open_store(
    common: &CommonArguments,
    loaded_config: &LoadedConfig,
    data_directory: &Path,
) -> Result<OpenedStore> {
    let opened = store::open_with_head(&store_url(common, loaded_config, data_directory)?, data_directory).await?;
    // A file elsewhere does not create the directory in which the end of its journal is remembered.
    if opened.head.is_some() {
        ensure_private_directory(data_directory)?;
    }
    Ok(opened)
}

/// Returns the store URL given by `--store` or the configuration, or the data directory, which stands for the SQLite
/// file in it. May contain a password. Fails if a reference in the configuration cannot be resolved.
pub(crate) fn store_url(
    common: &CommonArguments,
    loaded_config: &LoadedConfig,
    data_directory: &Path,
) -> Result<String> {
    if let Some(store) = &common.store {
        return Ok(store.clone());
    }
    let configured = loaded_config.store_location()?;
    Ok(configured.unwrap_or_else(|| data_directory.to_string_lossy().into_owned()))
}

/// Prints a hint if a project file that is not trusted names a store, for a command that does not ask for trust: it
/// works on another store than the user may expect.
fn hint_ignored_store(common: &CommonArguments, loaded_config: &LoadedConfig) {
    if let Some(project) = project_with_ignored_store(common, loaded_config) {
        common.hint(&format!(
            "hint: {}, so the store that it names is not used; review it, then run `toolcrib trust`",
            project.untrusted_reason()
        ));
    }
}

/// Returns the project file if it names a store that is not used, because it is not trusted.
fn project_with_ignored_store<'a>(
    common: &CommonArguments,
    loaded_config: &'a LoadedConfig,
) -> Option<&'a ProjectFile> {
    loaded_config.untrusted_project().filter(|project| project.config.store.is_some() && common.store.is_none())
}

/// Asks for trust in a project file that was found by walking up from the working directory. Asks once, and again when
/// the file would run, contact or allow more than was trusted. Without a terminal only prints a hint.
fn ask_for_trust(common: &CommonArguments, loaded_config: LoadedConfig) -> Result<LoadedConfig> {
    let Some(project) = loaded_config.untrusted_project() else { return Ok(loaded_config) };
    // Stdin may be an MCP client: `toolcrib mcp` must not read an answer from the protocol stream.
    let is_interactive = std::io::stdin().is_terminal() && output::stderr_is_terminal();
    // With `--json` a program reads the output, so there is no question, even at a terminal.
    if !common.json && is_interactive && confirm_trust(project) {
        return loaded_config.accept_project();
    }
    common.hint(&format!(
        "hint: {}, so none of its sources is contacted and none of its settings apply; review it, then run `toolcrib trust`",
        project.untrusted_reason()
    ));
    Ok(loaded_config)
}

/// Shows everything that trusting the file would permit, and reads the decision from the terminal.
fn confirm_trust(project: &ProjectFile) -> bool {
    output::print_stderr_line(&format!("{}. Trusting it permits:", project.untrusted_reason()));
    trust::trust_lines(project).iter().for_each(|line| output::print_stderr_line(line));
    // A failed write to the terminal counts as "no": then reading the answer fails or ends as well.
    let _ = write!(std::io::stderr().lock(), "Trust it? [y/N] ");
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer).is_ok() && matches!(answer.trim(), "y" | "Y" | "yes")
}
