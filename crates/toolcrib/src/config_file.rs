//! Finds and reads configuration files, and decides whether a project's file is trusted. Parsing is left to
//! `toolcrib_config`; the trust decisions are stored by `trust_store`.
//!
//! Up to two files are read: the user's own, and one more that is either named (`--config`) or found by walking up from
//! the working directory. A named file counts as trusted. A found file comes from the authors of the project, so it has
//! no effect before it is trusted; once trusted, a change that would run, contact or allow more needs trust again.

mod documents;
mod trust_store;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use toolcrib_config::{Config, ConfigDiagnostic, ConfiguredStore, LocalDocument, ReferenceLookup, TrustedFile};
use toolcrib_core::fingerprint::Fingerprint;
use toolcrib_core::text::sanitize;
use toolcrib_core::{Code, Error, Result, ResultExt, SourceId};

use crate::options::{Trust, UntrustedFile};
use crate::secret::resolve_variables;

pub use trust_store::trust_file;

/// Names of a project's configuration file, in the order they are tried. `.mcp.json` last: other clients write it, and
/// a file for Toolcrib next to it takes precedence.
const PROJECT_FILE_NAMES: [&str; 5] = ["toolcrib.yaml", "toolcrib.yml", "toolcrib.toml", "toolcrib.json", ".mcp.json"];
/// Maximum size of a configuration file. Far beyond any real file; it bounds the memory that a wrong path such as a
/// database can take.
const MAX_CONFIG_FILE_BYTES: u64 = 16 * 1024 * 1024;

/// A configuration with the files it was read from.
#[derive(Debug, Clone)]
pub struct LoadedConfig {
    /// Effective configuration: the project's or named file merged over the user's own, or the user's own, with the
    /// restrictions of the last trusted version, while the project's file is not trusted.
    pub config: Config,
    /// The project's or named file.
    pub file: Option<PathBuf>,
    /// All files that were read, in order of precedence.
    pub files: Vec<PathBuf>,
    /// The project's file, if it was found by walking up the directories: it has no effect before it is trusted.
    pub project: Option<ProjectFile>,
}

/// A project's configuration file, which needs trust.
#[derive(Debug, Clone)]
pub struct ProjectFile {
    /// Path of the file.
    pub file: PathBuf,
    /// Content of the file.
    pub config: Config,
    /// The user's own configuration, over which the file is merged.
    pub user_config: Config,
    /// Whether the file is trusted as it is now.
    pub trust_state: TrustState,
    /// Servers to which the documents of its sources send requests. Read once, so that what is accepted is what was
    /// shown.
    documents: OnceLock<BTreeMap<SourceId, LocalDocument>>,
}

/// Whether a project's file is trusted as it is now.
#[derive(Debug, Clone)]
pub enum TrustState {
    /// The user has not decided about the file yet.
    NeverTrusted,
    /// Trusted, with what the trust covers.
    Trusted(TrustedFile),
    /// Trusted before, but these keys have changed since.
    Changed {
        /// Extent of the earlier trust.
        before: TrustedFile,
        /// Changed keys, such as `sources.time.command`.
        keys: Vec<String>,
    },
}

impl LoadedConfig {
    /// Wraps a configuration that was not read from a file.
    pub fn from_config(config: Config) -> LoadedConfig {
        LoadedConfig { config, file: None, files: Vec::new(), project: None }
    }

    /// Returns where a source is declared, as `file:line`.
    pub fn declared_at(&self, id: &SourceId) -> Option<String> {
        let declaration = self.config.sources.iter().find(|declaration| declaration.id == *id)?;
        Some(format!("{}:{}", declaration.file, declaration.line))
    }

    /// Returns the location of the store that the configuration names, with its references resolved. Reads files. Fails
    /// with `CONFIG_INVALID`, with file and line, if a reference cannot be resolved.
    pub fn store_location(&self) -> Result<Option<String>> {
        self.config.store.as_ref().map(|store| resolve_store(store, &self.config)).transpose()
    }

    /// Returns the directory that relative paths refer to: that of the file, or the working directory. Fails only if
    /// the working directory cannot be read.
    pub fn base_directory(&self) -> Result<PathBuf> {
        let absolute = self.file.as_deref().map(|file| std::path::absolute(file).unwrap_or_else(|_| file.to_owned()));
        match absolute.as_deref().and_then(Path::parent) {
            Some(directory) => Ok(directory.to_owned()),
            None => working_directory(),
        }
    }

    /// Returns the project's file if it is not trusted as it is now.
    pub fn untrusted_project(&self) -> Option<&ProjectFile> {
        self.project.as_ref().filter(|project| !project.is_trusted())
    }

    /// Trusts the project's file as it is now, stores that, and applies the file. Fails with `NOT_FOUND` if there is no
    /// such file. What is stored is the content that was read, not that of the file at this moment.
    pub fn accept_project(mut self) -> Result<LoadedConfig> {
        let Some(project) = &mut self.project else {
            let message = "there is no project file to trust in this directory or its parents";
            return Err(Error::new(Code::NotFound, message));
        };
        let accepted = trusted_file(&project.config, project.documents().clone(), &project.file);
        // Nothing is stored for a file whose rules do not fit those of the user.
        project.trust_state = TrustState::Trusted(accepted.clone());
        self.config = project.effective_config()?;
        trust_store::store_trusted(&project.file, &accepted)?;
        Ok(self)
    }

    /// Returns this configuration with the project's file as it was last trusted in `before`. Used when a reload finds
    /// a changed, untrusted file. A running server then keeps working with the trusted version, and takes over changes
    /// of the user's own file. Fails with `CONFIG_INVALID` if the rules of both files do not fit together.
    pub fn with_trusted_project(mut self, before: &LoadedConfig) -> Result<LoadedConfig> {
        let project = before.project.clone().filter(ProjectFile::is_trusted);
        if let (Some(mut project), Some(current)) = (project, self.project.take()) {
            project.user_config = current.user_config;
            self.config = project.effective_config()?;
            self.project = Some(project);
        }
        Ok(self)
    }

    /// Returns the trust for [`Registry`](crate::Registry). Without a project file, or with a named one, nothing is
    /// restricted.
    pub fn trust(&self) -> Trust {
        let Some(project) = &self.project else { return Trust::default() };
        match &project.trust_state {
            TrustState::Trusted(trusted) => {
                // Only sources whose document decides where requests go are restricted to the trusted servers.
                let restricted = project.config.valid_sources().filter(|source| documents::has_local_document(source));
                let restricted: BTreeSet<&SourceId> = restricted.map(|source| &source.id).collect();
                let documents = trusted.documents().filter(|(id, _)| restricted.contains(id));
                let document_servers = documents.map(|(id, document)| (id.clone(), document.servers.clone())).collect();
                Trust { untrusted: None, document_servers }
            }
            TrustState::NeverTrusted | TrustState::Changed { .. } => {
                // A source of the user's own configuration keeps working, even if the project's file declares it too.
                let declared = project.config.sources.iter().map(|declaration| &declaration.id);
                let sources = declared.filter(|id| !project.replaces_user_source(id)).cloned().collect();
                let reason = format!("{}; review it, then run `toolcrib trust`", project.untrusted_reason());
                Trust { untrusted: Some(UntrustedFile { reason, sources }), ..Trust::default() }
            }
        }
    }
}

impl ProjectFile {
    /// Compares a project's file with what was trusted of it. Reads its documents too, because a document that names
    /// another server needs trust like a changed address.
    fn new(file: &Path, config: Config, user_config: Config) -> Result<ProjectFile> {
        let trust_state = match trust_store::find_trusted(file)? {
            None => TrustState::NeverTrusted,
            Some(before) => {
                let documents = documents::read_local_documents(&config, parent_directory(file), Some(&before));
                let current = trusted_file(&config, documents, file);
                let keys = before.uncovered_keys(&current);
                if keys.is_empty() { TrustState::Trusted(before) } else { TrustState::Changed { before, keys } }
            }
        };
        Ok(ProjectFile { file: file.to_owned(), config, user_config, trust_state, documents: OnceLock::new() })
    }

    /// Whether the file is trusted as it is now.
    pub fn is_trusted(&self) -> bool {
        matches!(self.trust_state, TrustState::Trusted(_))
    }

    /// Returns why the file is not applied, for people. Callers append what follows from it and the next step.
    pub fn untrusted_reason(&self) -> String {
        let file = sanitize(&self.file.to_string_lossy());
        match &self.trust_state {
            TrustState::Changed { keys, .. } => {
                format!("`{file}` has changed since it was trusted ({})", keys.join(", "))
            }
            TrustState::NeverTrusted | TrustState::Trusted(_) => format!("`{file}` is not trusted yet"),
        }
    }

    /// Whether the user's own configuration declares this source too.
    pub fn replaces_user_source(&self, id: &SourceId) -> bool {
        self.user_config.sources.iter().any(|declaration| declaration.id == *id)
    }

    /// Returns where the documents of its sources send requests, for documents in files.
    pub fn document_servers(&self) -> BTreeMap<&SourceId, &BTreeSet<String>> {
        self.documents().iter().map(|(id, document)| (id, &document.servers)).collect()
    }

    /// Reads the local documents, once.
    fn documents(&self) -> &BTreeMap<SourceId, LocalDocument> {
        self.documents.get_or_init(|| documents::read_local_documents(&self.config, parent_directory(&self.file), None))
    }

    /// Returns the configuration with this file applied as far as it is trusted. Restrictions of an earlier, trusted
    /// version stay in force while a change waits for trust, so that changing the file cannot lift them. Groups, access
    /// rules and policies of a file that is not trusted are not used. Fails with `CONFIG_INVALID` if the rules of both
    /// files do not fit together.
    fn effective_config(&self) -> Result<Config> {
        check_rules(match &self.trust_state {
            TrustState::NeverTrusted => Config { replaces_rules: false, ..self.user_config.clone() },
            TrustState::Trusted(_) => self.config.clone().merge_over(self.user_config.clone()),
            TrustState::Changed { before, .. } => {
                let narrowings = before.narrowings().collect();
                let config = Config { narrowings, ..Config::default() }.merge_over(self.user_config.clone());
                // Without the rules of the trusted version, tools would become visible.
                Config { replaces_rules: false, ..config }
            }
        })
    }
}

/// Returns what trusting a file as it is now covers.
fn trusted_file(config: &Config, documents: BTreeMap<SourceId, LocalDocument>, file: &Path) -> TrustedFile {
    let store = config.store.as_ref().map(|store| store.unresolved());
    let files = store.map(|store| documents::hash_files_in(store, parent_directory(file))).unwrap_or_default();
    TrustedFile::new(config, documents).with_store_files(&files)
}

/// Resolves the references in the location of the store. The error does not quote the location.
pub(crate) fn resolve_store(store: &ConfiguredStore, config: &Config) -> Result<String> {
    store.resolve(&resolve_setting).map_err(|reason| {
        let origin = config.origins.get("store").map(|origin| format!("{origin}: ")).unwrap_or_default();
        Error::new(Code::ConfigInvalid, format!("{origin}store: {reason}"))
    })
}

/// Checks the groups, access rules and policies of a merged configuration.
pub(crate) fn check_rules(config: Config) -> Result<Config> {
    config.check_rules().map_err(|faults| ConfigDiagnostic::combined_error(&faults))?;
    Ok(config)
}

/// Returns the directory of a file.
fn parent_directory(file: &Path) -> &Path {
    file.parent().unwrap_or(Path::new("."))
}

/// Reads the file `named`, or else the nearest project file from `directory` upwards, and merges it over the user's
/// own. Fails with `CONFIG_INVALID`, with file and line, if a file cannot be read or parsed; an error in one source
/// only makes that source invalid.
pub fn load(named: Option<&Path>, directory: &Path) -> Result<LoadedConfig> {
    let user = user_config_file().filter(|path| path.is_file());
    let (file, is_discovered) = match named {
        Some(path) => (Some(path.to_owned()), false),
        None => (find_project_file(directory), true),
    };
    let user_file = user.as_ref().filter(|path| file.as_ref() != Some(path));
    let user_config = user_file.map(|path| read_config(path, &resolve_setting)).transpose()?.unwrap_or_default();
    let files = file.iter().chain(user_file).cloned().collect();
    let Some(file) = file else {
        return Ok(LoadedConfig { files, ..LoadedConfig::from_config(check_rules(user_config)?) });
    };
    // No file that a project names is read before the project is trusted; of its settings none at all.
    let is_own = !is_discovered || user.as_ref() == Some(&file);
    let config = if is_own { read_config(&file, &resolve_setting)? } else { read_config(&file, &resolve_variables)? };
    // A file without content needs no trust, unless an earlier version of it was trusted.
    let empty = Config { replaces_rules: true, ..Config::default() };
    let is_empty = || config == empty && trust_store::find_trusted(&file).is_ok_and(|known| known.is_none());
    if is_own || is_empty() {
        let config = Config { replaces_rules: is_own, ..config };
        let config = check_rules(config.merge_over(user_config))?;
        return Ok(LoadedConfig { config, file: Some(file), files, project: None });
    }
    let project = ProjectFile::new(&file, config, user_config)?;
    Ok(LoadedConfig { config: project.effective_config()?, file: Some(file), files, project: Some(project) })
}

/// Returns the working directory, against which relative paths are resolved.
pub fn working_directory() -> Result<PathBuf> {
    std::env::current_dir()
        .map_err(|error| Error::new(Code::ConfigInvalid, format!("the working directory cannot be read: {error}")))
}

/// Returns the path of the user's own configuration: `~/.config/toolcrib/toolcrib.yaml`.
pub fn user_config_file() -> Option<PathBuf> {
    let base = xdg_directory("XDG_CONFIG_HOME", ".config")?;
    Some(base.join("toolcrib").join("toolcrib.yaml"))
}

/// Returns the default data directory: one per configuration file, so that projects do not affect each other. The name
/// ends in a hash of the path, e.g. `shop-1a2b3c4d`, so that two projects in directories of the same name have
/// different stores.
pub fn default_data_directory(file: Option<&Path>) -> Result<PathBuf> {
    let no_home = || Error::new(Code::ConfigInvalid, "neither XDG_DATA_HOME nor HOME is set; give `--data DIR`");
    let base = xdg_directory("XDG_DATA_HOME", ".local/share").ok_or_else(no_home)?.join("toolcrib");
    let Some(file) = file else { return Ok(base.join("default")) };
    let path = std::fs::canonicalize(file).unwrap_or_else(|_| file.to_owned());
    let project = path.parent().and_then(Path::file_name).map(|name| name.to_string_lossy().into_owned());
    let project = project.and_then(|name| SourceId::from_name(&name).ok());
    let name = project.map_or_else(|| "project".to_owned(), |name| name.to_string());
    Ok(base.join(format!("{name}-{}", Fingerprint::digest(path.as_os_str().as_encoded_bytes()).short_hex(8))))
}

/// Reads a configuration file, of Toolcrib or of another client.
pub fn read_text(path: &Path) -> Result<String> {
    let prefix = || format!("cannot read `{}`", path.display());
    let unreadable =
        |error: std::io::Error| Error::new(Code::ConfigInvalid, format!("{}: {error}", prefix())).with_cause(error);
    if std::fs::metadata(path).map_err(unreadable)?.len() > MAX_CONFIG_FILE_BYTES {
        return Err(Error::new(Code::ConfigInvalid, format!("{}: it is larger than 16 MiB", prefix())));
    }
    let bytes = std::fs::read(path).map_err(unreadable)?;
    String::from_utf8(bytes).context(Code::ConfigInvalid, format!("{}: it is not UTF-8 text", prefix()))
}

/// Resolves the references of a setting, those to files included.
fn resolve_setting(text: &str) -> Result<String, String> {
    crate::secret::resolve(text).map_err(|error| error.message)
}

/// Reads and parses a configuration file. `lookup` resolves references in settings.
pub(crate) fn read_config(path: &Path, lookup: ReferenceLookup<'_>) -> Result<Config> {
    let text = read_text(path)?;
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let base = absolute.parent().unwrap_or(Path::new("."));
    Config::read_resolved(&text, &path.display().to_string(), base, lookup)
        .map_err(|faults| ConfigDiagnostic::combined_error(&faults))
}

/// Returns the nearest project file in a directory or its ancestors. All names are tried in one directory before its
/// parent.
fn find_project_file(directory: &Path) -> Option<PathBuf> {
    directory
        .ancestors()
        .flat_map(|directory| PROJECT_FILE_NAMES.map(|name| directory.join(name)))
        .find(|path| path.is_file())
}

/// Returns an XDG base directory; its variable must be an absolute path, as the specification says.
fn xdg_directory(variable: &str, below_home: &str) -> Option<PathBuf> {
    let variable_path = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    variable_path(variable).filter(|path| path.is_absolute()).or_else(|| {
        let home = variable_path("HOME").or_else(|| variable_path("USERPROFILE"))?;
        Some(home.join(below_home))
    })
}
