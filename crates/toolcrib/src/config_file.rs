//! Finding and reading configuration files, and remembering which project files are trusted.

mod documents;
mod trust_store;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use toolcrib_core::config::{Config, ConfigDiagnostic, LocalDocument, TrustedFile};
use toolcrib_core::fingerprint::Fingerprint;
use toolcrib_core::text::sanitize;
use toolcrib_core::{Code, Error, Result, ResultExt, SourceId};

use crate::registry::{Trust, UntrustedFile};

pub use trust_store::trust_file;

/// The names a project's file may have, in the order they are looked for.
const PROJECT_FILE_NAMES: [&str; 5] = ["toolcrib.yaml", "toolcrib.yml", "toolcrib.toml", "toolcrib.json", ".mcp.json"];
const MAX_CONFIG_FILE_BYTES: u64 = 16 * 1024 * 1024;

/// A configuration as it was found.
#[derive(Debug, Clone)]
pub struct LoadedConfig {
    /// What holds: the project's or named file over the user's own, or the user's own alone while the project's file is
    /// not trusted.
    pub config: Config,
    /// The project's or named file.
    pub file: Option<PathBuf>,
    /// Every file that was read, the one that wins first.
    pub files: Vec<PathBuf>,
    /// The project's file, where it was found by walking up: it changes nothing before it is trusted.
    pub project: Option<ProjectFile>,
}

/// A project's file that needs trust.
#[derive(Debug, Clone)]
pub struct ProjectFile {
    pub file: PathBuf,
    /// What the file says by itself.
    pub config: Config,
    /// The user's own configuration, which it would be laid over.
    pub user_config: Config,
    pub trust_state: TrustState,
    /// What the documents of its sources lead to, read once: what is accepted is what was shown.
    documents: OnceLock<BTreeMap<SourceId, LocalDocument>>,
}

/// Whether a project's file is trusted as it is now.
#[derive(Debug, Clone)]
pub enum TrustState {
    NeverTrusted,
    Trusted(TrustedFile),
    /// It was trusted before these keys changed.
    Changed {
        before: TrustedFile,
        keys: Vec<String>,
    },
}

impl LoadedConfig {
    /// A configuration that stands in no file.
    pub fn from_config(config: Config) -> LoadedConfig {
        LoadedConfig { config, file: None, files: Vec::new(), project: None }
    }

    /// Where a source is declared, as `file:line`.
    pub fn declared_at(&self, id: &SourceId) -> Option<String> {
        let declaration = self.config.sources.iter().find(|declaration| declaration.id == *id)?;
        Some(format!("{}:{}", declaration.file, declaration.line))
    }

    /// What relative paths are relative to: where the file lies, or where we are.
    pub fn base_directory(&self) -> Result<PathBuf> {
        let absolute = self.file.as_deref().map(|file| std::path::absolute(file).unwrap_or_else(|_| file.to_owned()));
        match absolute.as_deref().and_then(Path::parent) {
            Some(directory) => Ok(directory.to_owned()),
            None => std::env::current_dir().context(Code::ConfigInvalid, "the working directory cannot be read"),
        }
    }

    /// The project's file, where it is not trusted as it is now.
    pub fn untrusted_project(&self) -> Option<&ProjectFile> {
        self.project.as_ref().filter(|project| !project.is_trusted())
    }

    /// Accepts the project's file as it is now. From then on it holds.
    pub fn accept_project(mut self) -> Result<LoadedConfig> {
        let Some(project) = &mut self.project else {
            return Err(Error::new(Code::NotFound, "there is no project file here to trust"));
        };
        let accepted = TrustedFile::new(&project.config, project.documents().clone());
        trust_store::store_trusted(&project.file, &accepted)?;
        project.trust_state = TrustState::Trusted(accepted);
        self.config = project.effective_config();
        Ok(self)
    }

    /// The same with the project's file as it was when it was last trusted, which `before` has.
    pub fn with_trusted_project(mut self, before: &LoadedConfig) -> LoadedConfig {
        let project = before.project.clone().filter(ProjectFile::is_trusted);
        if let (Some(mut project), Some(now)) = (project, self.project.take()) {
            project.user_config = now.user_config;
            self.config = project.effective_config();
            self.project = Some(project);
        }
        self
    }

    /// What the registry has to know of it.
    pub fn trust(&self) -> Trust {
        let Some(project) = &self.project else { return Trust::default() };
        match &project.trust_state {
            TrustState::Trusted(trusted) => {
                let bound = project.config.valid_sources().filter(|source| documents::has_local_document(source));
                let bound: BTreeSet<&SourceId> = bound.map(|source| &source.id).collect();
                let documents = trusted.documents().filter(|(id, _)| bound.contains(id));
                let document_servers = documents.map(|(id, document)| (id.clone(), document.servers.clone())).collect();
                Trust { untrusted: None, document_servers }
            }
            TrustState::NeverTrusted | TrustState::Changed { .. } => {
                let own = |id: &SourceId| project.user_config.sources.iter().any(|declaration| declaration.id == *id);
                let declared = project.config.sources.iter().map(|declaration| &declaration.id);
                let sources = declared.filter(|id| !own(id)).cloned().collect();
                let reason = format!("{}; look at it, then run `toolcrib trust`", project.untrusted_reason());
                Trust { untrusted: Some(UntrustedFile { reason, sources }), ..Trust::default() }
            }
        }
    }
}

impl ProjectFile {
    fn new(file: &Path, config: Config, below: Config) -> Result<ProjectFile> {
        let trust_state = match trust_store::find_trusted(file)? {
            None => TrustState::NeverTrusted,
            Some(before) => {
                let now = TrustedFile::new(
                    &config,
                    documents::read_local_documents(&config, parent_directory(file), Some(&before)),
                );
                let keys = before.uncovered_keys(&now);
                if keys.is_empty() { TrustState::Trusted(before) } else { TrustState::Changed { before, keys } }
            }
        };
        Ok(ProjectFile { file: file.to_owned(), config, user_config: below, trust_state, documents: OnceLock::new() })
    }

    pub fn is_trusted(&self) -> bool {
        match self.trust_state {
            TrustState::Trusted(_) => true,
            TrustState::NeverTrusted | TrustState::Changed { .. } => false,
        }
    }

    /// Why it is not used, for people.
    pub fn untrusted_reason(&self) -> String {
        let file = sanitize(&self.file.to_string_lossy());
        match &self.trust_state {
            TrustState::Changed { keys, .. } => {
                format!("`{file}` is not trusted yet with what changed in it ({})", keys.join(", "))
            }
            TrustState::NeverTrusted | TrustState::Trusted(_) => format!("`{file}` is not trusted yet"),
        }
    }

    /// Whether it declares a source that the user's own configuration has too.
    pub fn replaces_user_source(&self, id: &SourceId) -> bool {
        self.user_config.sources.iter().any(|declaration| declaration.id == *id)
    }

    /// Where the documents of its sources lead to, of those that are files.
    pub fn document_servers(&self) -> BTreeMap<&SourceId, &BTreeSet<String>> {
        self.documents().iter().map(|(id, document)| (id, &document.servers)).collect()
    }

    fn documents(&self) -> &BTreeMap<SourceId, LocalDocument> {
        self.documents.get_or_init(|| documents::read_local_documents(&self.config, parent_directory(&self.file), None))
    }

    /// What holds with it. What an earlier version of it was trusted to restrict stays restricted while the file waits
    /// for trust again, so that a change of the file alone lifts nothing.
    fn effective_config(&self) -> Config {
        match &self.trust_state {
            TrustState::NeverTrusted => self.user_config.clone(),
            TrustState::Trusted(_) => self.config.clone().merge_over(self.user_config.clone()),
            TrustState::Changed { before, .. } => {
                let narrowings = before.narrowings().collect();
                Config { narrowings, ..Config::default() }.merge_over(self.user_config.clone())
            }
        }
    }
}

fn parent_directory(file: &Path) -> &Path {
    file.parent().unwrap_or(Path::new("."))
}

/// Reads `named`, else the nearest file from `directory` upwards, over the user's own.
pub fn load(named: Option<&Path>, directory: &Path) -> Result<LoadedConfig> {
    let user = user_config_file().filter(|path| path.is_file());
    let (file, walked) = match named {
        Some(path) => (Some(path.to_owned()), false),
        None => (find_project_file(directory), true),
    };
    let below_file = user.as_ref().filter(|path| file.as_ref() != Some(path));
    let below = below_file.map(|path| read_config(path)).transpose()?.unwrap_or_default();
    let files = file.iter().chain(below_file).cloned().collect();
    let Some(file) = file else {
        return Ok(LoadedConfig { files, ..LoadedConfig::from_config(below) });
    };
    let upper = read_config(&file)?;
    let says_nothing =
        || upper == Config::default() && trust_store::find_trusted(&file).is_ok_and(|known| known.is_none());
    if !walked || user.as_ref() == Some(&file) || says_nothing() {
        return Ok(LoadedConfig { config: upper.merge_over(below), file: Some(file), files, project: None });
    }
    let project = ProjectFile::new(&file, upper, below)?;
    Ok(LoadedConfig { config: project.effective_config(), file: Some(file), files, project: Some(project) })
}

/// The user's own file: `~/.config/toolcrib/toolcrib.yaml`.
pub fn user_config_file() -> Option<PathBuf> {
    let base = xdg_directory("XDG_CONFIG_HOME", ".config")?;
    Some(base.join("toolcrib").join("toolcrib.yaml"))
}

/// Where data lies by default: a directory for each configuration file, so that projects never disturb each other.
pub fn default_data_directory(file: Option<&Path>) -> Result<PathBuf> {
    let homeless = || Error::new(Code::ConfigInvalid, "neither XDG_DATA_HOME nor HOME is set; give `--data DIR`");
    let base = xdg_directory("XDG_DATA_HOME", ".local/share").ok_or_else(homeless)?.join("toolcrib");
    let Some(file) = file else { return Ok(base.join("default")) };
    let path = std::fs::canonicalize(file).unwrap_or_else(|_| file.to_owned());
    let project = path.parent().and_then(Path::file_name).map(|name| name.to_string_lossy().into_owned());
    let project = project.and_then(|name| SourceId::from_name(&name).ok());
    let name = project.map_or_else(|| "project".to_owned(), |name| name.to_string());
    Ok(base.join(format!("{name}-{}", Fingerprint::digest(path.as_os_str().as_encoded_bytes()).short_hex(8))))
}

/// The text of a configuration file, ours or another client's.
pub fn read_text(path: &Path) -> Result<String> {
    let cannot = || format!("cannot read `{}`", path.display());
    let metadata = std::fs::metadata(path)
        .map_err(|error| Error::new(Code::ConfigInvalid, format!("{}: {error}", cannot())).with_cause(error))?;
    if metadata.len() > MAX_CONFIG_FILE_BYTES {
        return Err(Error::new(Code::ConfigInvalid, format!("{}: it is larger than 16 MiB", cannot())));
    }
    let bytes = std::fs::read(path)
        .map_err(|error| Error::new(Code::ConfigInvalid, format!("{}: {error}", cannot())).with_cause(error))?;
    String::from_utf8(bytes).context(Code::ConfigInvalid, format!("{}: it is not UTF-8 text", cannot()))
}

fn read_config(path: &Path) -> Result<Config> {
    let text = read_text(path)?;
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let base = absolute.parent().unwrap_or(Path::new("."));
    Config::read(&text, &path.display().to_string(), base).map_err(|faults| ConfigDiagnostic::combined_error(&faults))
}

fn find_project_file(directory: &Path) -> Option<PathBuf> {
    directory.ancestors().flat_map(|place| PROJECT_FILE_NAMES.map(|name| place.join(name))).find(|path| path.is_file())
}

fn xdg_directory(variable: &str, below_home: &str) -> Option<PathBuf> {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    set(variable).filter(|path| path.is_absolute()).or_else(|| {
        let home = set("HOME").or_else(|| set("USERPROFILE"))?;
        Some(home.join(below_home))
    })
}
