//! Finding and reading configuration files, and remembering which project files somebody has trusted.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use toolcrib_core::config::{Config, Fault, command_hash_input};
use toolcrib_core::fingerprint::Fingerprint;
use toolcrib_core::{Code, Error, Result, ResultExt, SourceId};

/// The names a project's file may have, in the order they are looked for.
const NAMES: [&str; 5] = ["toolcrib.yaml", "toolcrib.yml", "toolcrib.toml", "toolcrib.json", ".mcp.json"];
const LARGEST: u64 = 16 * 1024 * 1024;

/// A configuration as it was found: a project's or named file, laid over the user's own.
#[derive(Debug, Clone)]
pub struct Found {
    pub config: Config,
    /// The project's or named file.
    pub file: Option<PathBuf>,
    /// Every file that was read, the one that wins first.
    pub files: Vec<PathBuf>,
    /// The project's file was only found by walking up: it runs nothing before somebody trusts it.
    pub walked: bool,
    /// What `trust` has to remember of that file: it changes when the commands do.
    pub commands: Fingerprint,
    /// The sources that the project's file declares.
    pub declared: Vec<SourceId>,
}

impl Found {
    /// A configuration that stands in no file.
    pub fn of(config: Config) -> Found {
        let (files, declared, commands) = (Vec::new(), Vec::new(), Fingerprint::of(""));
        Found { config, file: None, files, walked: false, commands, declared }
    }

    /// Where a source is declared, as `file:line`.
    pub fn declared_at(&self, id: &SourceId) -> Option<String> {
        let declaration = self.config.sources.iter().find(|declaration| declaration.id == *id)?;
        Some(format!("{}:{}", declaration.file, declaration.line))
    }

    /// What relative paths are relative to: where the file lies, or where we are.
    pub fn directory(&self) -> Result<PathBuf> {
        let absolute = self.file.as_deref().map(|file| std::path::absolute(file).unwrap_or_else(|_| file.to_owned()));
        match absolute.as_deref().and_then(Path::parent) {
            Some(directory) => Ok(directory.to_owned()),
            None => std::env::current_dir().context(Code::ConfigInvalid, "the working directory cannot be read"),
        }
    }

    /// Whether requests over HTTP may declare sources that start programs. A file that nobody has trusted cannot say so.
    pub fn allows_commands(&self) -> bool {
        self.config.allow_commands && is_trusted(self).unwrap_or(false)
    }
}

/// Reads `named`, else the nearest file from `directory` upwards, over the user's own.
pub fn load(named: Option<&Path>, directory: &Path) -> Result<Found> {
    let user = user_file().filter(|path| path.is_file());
    let (file, walked) = match named {
        Some(path) => (Some(path.to_owned()), false),
        None => (nearest(directory), true),
    };
    let below = user.as_ref().filter(|path| file.as_ref() != Some(path));
    let lower = below.map(|path| read(path)).transpose()?.unwrap_or_default();
    let files = file.iter().chain(below).cloned().collect();
    let Some(file) = file else {
        return Ok(Found { files, ..Found::of(lower) });
    };
    let upper = read(&file)?;
    let commands = Fingerprint::of(command_hash_input(&upper));
    let declared = upper.sources.iter().map(|declaration| declaration.id.clone()).collect();
    let walked = walked && user.as_ref() != Some(&file);
    Ok(Found { config: upper.over(lower), file: Some(file), files, walked, commands, declared })
}

/// The user's own file: `~/.config/toolcrib/toolcrib.yaml`.
pub fn user_file() -> Option<PathBuf> {
    let base = directory_from("XDG_CONFIG_HOME", ".config")?;
    Some(base.join("toolcrib").join("toolcrib.yaml"))
}

/// Where data lies when nobody says otherwise: a place for each configuration file, so that projects never meet.
pub fn data_directory(file: Option<&Path>) -> Result<PathBuf> {
    let homeless = || Error::new(Code::ConfigInvalid, "neither XDG_DATA_HOME nor HOME is set; give `--data DIR`");
    let base = directory_from("XDG_DATA_HOME", ".local/share").ok_or_else(homeless)?.join("toolcrib");
    let Some(file) = file else { return Ok(base.join("default")) };
    let path = std::fs::canonicalize(file).unwrap_or_else(|_| file.to_owned());
    let project = path.parent().and_then(Path::file_name).map(|name| name.to_string_lossy().into_owned());
    let project = project.and_then(|name| SourceId::from_name(&name).ok());
    let name = project.map_or_else(|| "project".to_owned(), |name| name.to_string());
    Ok(base.join(format!("{name}-{}", Fingerprint::of(path.as_os_str().as_encoded_bytes()).short(8))))
}

/// Whether somebody accepted a project's file with the commands it has now.
pub fn is_trusted(found: &Found) -> Result<bool> {
    let Some(file) = &found.file else { return Ok(true) };
    Ok(!found.walked || trusted()?.get(&key(file)) == Some(&found.commands.to_string()))
}

/// Accepts a project's file with the commands it has now.
pub fn trust(found: &Found) -> Result<()> {
    let Some(file) = &found.file else {
        return Err(Error::new(Code::NotFound, "there is no project file here to trust"));
    };
    let mut known = trusted()?;
    known.insert(key(file), found.commands.to_string());
    let path = trust_file()?;
    let text = serde_json::to_string_pretty(&known).context(Code::Internal, "write the list of trusted files")?;
    write_private(&path, &text).context(Code::Internal, format!("write `{}`", path.display()))
}

/// The text of a configuration file, ours or another client's.
pub fn text(path: &Path) -> Result<String> {
    let cannot = || format!("cannot read `{}`", path.display());
    let metadata = std::fs::metadata(path)
        .map_err(|error| Error::new(Code::ConfigInvalid, format!("{}: {error}", cannot())).with_cause(error))?;
    if metadata.len() > LARGEST {
        return Err(Error::new(Code::ConfigInvalid, format!("{}: it is larger than 16 MiB", cannot())));
    }
    let bytes = std::fs::read(path)
        .map_err(|error| Error::new(Code::ConfigInvalid, format!("{}: {error}", cannot())).with_cause(error))?;
    String::from_utf8(bytes).context(Code::ConfigInvalid, format!("{}: it is not UTF-8 text", cannot()))
}

fn read(path: &Path) -> Result<Config> {
    let text = text(path)?;
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let base = absolute.parent().unwrap_or(Path::new("."));
    Config::read(&text, &path.display().to_string(), base).map_err(|faults| Fault::into_error(&faults))
}

fn nearest(directory: &Path) -> Option<PathBuf> {
    directory.ancestors().flat_map(|place| NAMES.map(|name| place.join(name))).find(|path| path.is_file())
}

fn directory_from(variable: &str, below_home: &str) -> Option<PathBuf> {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    set(variable).filter(|path| path.is_absolute()).or_else(|| {
        let home = set("HOME").or_else(|| set("USERPROFILE"))?;
        Some(home.join(below_home))
    })
}

/// Where it is remembered which files were trusted.
pub fn trust_file() -> Result<PathBuf> {
    Ok(data_directory(None)?.with_file_name("trusted.json"))
}

fn trusted() -> Result<BTreeMap<String, String>> {
    let path = trust_file()?;
    match std::fs::read_to_string(&path) {
        Ok(text) => serde_json::from_str(&text)
            .context(Code::ConfigInvalid, format!("`{}` is damaged; remove it and trust again", path.display())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(BTreeMap::new()),
        Err(error) => {
            Err(Error::new(Code::ConfigInvalid, format!("cannot read `{}`: {error}", path.display())).with_cause(error))
        }
    }
}

fn key(file: &Path) -> String {
    std::fs::canonicalize(file).unwrap_or_else(|_| file.to_owned()).display().to_string()
}

fn write_private(path: &Path, text: &str) -> std::io::Result<()> {
    if let Some(directory) = path.parent() {
        std::fs::create_dir_all(directory)?;
    }
    let mut options = std::fs::OpenOptions::new();
    options.create(true).write(true).truncate(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    // Whole or not at all: a crash in between leaves the old file.
    let new = path.with_extension(format!("{}.new", std::process::id()));
    std::io::Write::write_all(&mut options.open(&new)?, text.as_bytes())?;
    std::fs::rename(&new, path)
}
