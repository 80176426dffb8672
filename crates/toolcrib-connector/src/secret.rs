//! Resolves references (`${env:…}`, `${file:…}`) at the moment of use, and computes keyed hashes of what a source
//! connects to, from which no value can be guessed.
//!
//! The configuration, the store and the history contain references only. Values exist in the memory of this
//! process, from the first connection of a source until it is declared anew or removed. `redact` keeps them out of
//! messages.
//!
//! ```text
//! "Bearer ${env:TOKEN}"           the variable; an error if it is not set
//! "${env:REGION:-eu}"             the variable, or `eu` if it is not set or empty
//! "${file:~/.config/token}"       the content of the file, without line breaks at its end
//! ```
//!
//! Files are read first, on blocking threads and each once (`SecretFiles`); everything else is derived from the
//! `ReferenceValues` in memory: the resolved configuration, the connection fingerprint and the redacted values.

mod files;
mod source_references;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::fmt;
use std::io::Read;

use base64::Engine;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use toolcrib_config::reference::{self, Reference, ReferencePart};
use toolcrib_core::fingerprint::Fingerprint;
use toolcrib_core::source::{SourceKind, TextRole};
use toolcrib_core::{Code, Error, Result};

use crate::templates::fill_kind;
pub use files::SecretFiles;
pub use source_references::SourceReferences;

/// Limit for a secret file; a larger one is surely a mistake. Private keys and service account files have a few KiB.
const MAX_SECRET_FILE_BYTES: u64 = 64 * 1024;

/// Resolves all references in a text. An error names the reference, never a value. Reads files, so it blocks.
pub fn resolve(text: &str) -> Result<String> {
    reference::resolve_references(text, |reference| resolve_reference(reference, read_secret_file))
}

/// Resolves all references in a path. A relative value is relative to the configuration file. Reads files, so it blocks.
pub fn resolve_path(text: &str) -> Result<String> {
    reference::resolve_text(TextRole::Path, text, |reference| resolve_reference(reference, read_secret_file))
}

/// Resolves the references to environment variables in a setting; one to a file is an error. The error names the
/// reference and the reason.
pub fn resolve_variables(text: &str) -> Result<String, String> {
    let refuse = |_: &str| Err("a file cannot be referred to here; use `${env:NAME}`".to_owned());
    reference::resolve_references(text, |reference| resolve_reference(reference, refuse)).map_err(|error| error.message)
}

/// Resolves all references of a source's configuration. Reads files, so it blocks.
pub fn resolve_kind(kind: &SourceKind) -> Result<SourceKind> {
    kind.try_map_texts_by_role(|role, text| {
        reference::resolve_text(role, text, |reference| resolve_reference(reference, read_secret_file))
    })
}

/// Values of references, read at one moment. Never stored.
///
/// Holds the content of files only: the environment does not change while a process runs and is looked up in place.
#[derive(Clone, PartialEq, Default)]
pub struct ReferenceValues {
    /// Content of each file, or the reason why it cannot be read, by the path in its reference.
    files: BTreeMap<String, Result<String, String>>,
}

impl ReferenceValues {
    /// Reads the given files in turn. Blocks.
    #[cfg(test)]
    pub(crate) fn read_blocking(paths: BTreeSet<String>) -> ReferenceValues {
        let read = |path: String| {
            let content = read_secret_file(&path);
            (path, content)
        };
        ReferenceValues { files: paths.into_iter().map(read).collect() }
    }

    /// Resolves one reference. Fails for a file that was not read.
    pub fn get(&self, reference: &Reference<'_>) -> Result<String> {
        resolve_reference(reference, |path| self.files.get(path).cloned().unwrap_or(Err("it was not read".to_owned())))
    }

    /// Resolves all references in a text. An error names the reference, never a value.
    pub fn resolve(&self, text: &str) -> Result<String> {
        reference::resolve_references(text, |reference| self.get(reference))
    }

    /// Resolves all references in a text of a source. A value that is a relative path is relative to the configuration
    /// file.
    pub fn resolve_text(&self, role: TextRole, text: &str) -> Result<String> {
        reference::resolve_text(role, text, |reference| self.get(reference))
    }

    /// Resolves all references of a source's configuration.
    pub fn resolve_kind(&self, kind: &SourceKind) -> Result<SourceKind> {
        kind.try_map_texts_by_role(|role, text| self.resolve_text(role, text))
    }

    /// Keyed hash of what a source connects to, with resolved references and inherited variables, to detect changes.
    /// `None` if a reference cannot be resolved in this process: then nothing is known to have changed.
    pub fn connection_fingerprint(&self, key: &[u8; 32], kind: &SourceKind) -> Option<Fingerprint> {
        let resolved = self.resolve_kind(kind).ok()?;
        // Inherited variables are part of what a server gets, though no text of the configuration contains them.
        let inherited: Vec<(&String, Option<String>)> = match kind {
            SourceKind::Stdio(stdio) => stdio.inherit_env.iter().map(|name| (name, std::env::var(name).ok())).collect(),
            SourceKind::Http(_)
            | SourceKind::Sse(_)
            | SourceKind::OpenApi(_)
            | SourceKind::Workflow(_)
            | SourceKind::Builtin(_) => Vec::new(),
        };
        Some(keyed_hash(key, &serde_json::to_string(&(resolved, inherited)).ok()?))
    }
}

/// Shows no value.
impl fmt::Debug for ReferenceValues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ReferenceValues({} files)", self.files.len())
    }
}

/// Paths of the `${file:…}` references in a configuration and in its filled templates, each once.
pub fn file_paths(kind: &SourceKind) -> BTreeSet<String> {
    let mut paths = BTreeSet::new();
    // A template that cannot be filled fails when the source is used.
    let filled = fill_kind(kind).ok().filter(|filled| matches!(filled, Cow::Owned(_)));
    for kind in [Some(kind), filled.as_deref()].into_iter().flatten() {
        // The traversal visits every configurable text; its result is not used.
        let visited: Result<SourceKind, Infallible> = kind.try_map_texts(|text| {
            // Most texts have none.
            if text.contains("${file:") {
                paths.extend(file_paths_in(text));
            }
            Ok(String::new())
        });
        let Ok(_) = visited;
    }
    paths
}

/// Paths of the `${file:…}` references in a text.
pub fn file_paths_in(text: &str) -> impl Iterator<Item = String> {
    reference::split_references(text).into_iter().filter_map(|part| match part {
        ReferencePart::Reference(Reference::File { path }) => Some(path.to_owned()),
        ReferencePart::Reference(Reference::Env { .. }) | ReferencePart::Literal(_) => None,
    })
}

/// Resolves one reference; `read_file` returns the content of a file or the reason why there is none. As in shells, the
/// default also replaces an empty variable.
fn resolve_reference(
    reference: &Reference<'_>,
    read_file: impl FnOnce(&str) -> Result<String, String>,
) -> Result<String> {
    let missing = |reason: &str| Error::new(Code::ConfigInvalid, format!("`{reference}` cannot be resolved: {reason}"));
    match reference {
        Reference::Env { name, default } => match (std::env::var(name), default) {
            // An empty variable without a default stays empty: it is set, if only to nothing.
            (Ok(value), _) if !value.is_empty() || default.is_none() => Ok(value),
            (_, Some(default)) => Ok((*default).to_owned()),
            (_, None) => Err(missing("the variable is not set")),
        },
        Reference::File { path } => read_file(path).map_err(|reason| missing(&reason)),
    }
}

/// Reads a file that a reference names. Fails with the reason, for a message.
fn read_secret_file(path: &str) -> Result<String, String> {
    // Only the home directory of this user; `~other/` is a relative path.
    let home = path.strip_prefix("~/").and_then(|rest| Some(format!("{}/{rest}", std::env::var("HOME").ok()?)));
    let path = home.as_deref().unwrap_or(path);
    // Check before opening: opening a named pipe would block until a process writes to it.
    if !std::fs::metadata(path).map_err(|error| error.to_string())?.is_file() {
        return Err("it is not a regular file".to_owned());
    }
    let file = std::fs::File::open(path).map_err(|error| error.to_string())?;
    let mut text = String::new();
    file.take(MAX_SECRET_FILE_BYTES + 1).read_to_string(&mut text).map_err(|error| error.to_string())?;
    if text.len() as u64 > MAX_SECRET_FILE_BYTES {
        return Err("the file is larger than 64 KiB".to_owned());
    }
    // Editors and `echo` end a file with a line break that is no part of the secret.
    Ok(text.trim_end_matches(['\r', '\n']).to_owned())
}

/// Base64 credentials of HTTP Basic authentication.
pub fn basic_credentials(user: &str, password: &str) -> String {
    base64::engine::general_purpose::STANDARD.encode(format!("{user}:{password}"))
}

/// HMAC-SHA-256 of a text. The key lives in the store; with a plain hash, short values could be found by trying.
pub fn keyed_hash(key: &[u8; 32], text: &str) -> Fingerprint {
    // A key shorter than a block of the hash is padded with zeros, by definition of HMAC.
    let mut block = [0; 64];
    block[..key.len()].copy_from_slice(key);
    let mut mac = Hmac::<Sha256>::new(&block.into());
    mac.update(text.as_bytes());
    Fingerprint::from_bytes(mac.finalize().into_bytes().into())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use toolcrib_core::source::StdioSource;

    use super::*;

    fn stdio_with_token(value: &str) -> SourceKind {
        SourceKind::Stdio(StdioSource {
            command: "npx".into(),
            env: BTreeMap::from([("TOKEN".to_owned(), value.to_owned())]),
            ..StdioSource::default()
        })
    }

    #[test]
    fn a_changed_value_changes_the_fingerprint_and_an_unresolved_one_has_none() {
        let key = [7; 32];
        let connection_fingerprint =
            |key: &[u8; 32], kind: &SourceKind| ReferenceValues::default().connection_fingerprint(key, kind);
        assert_eq!(
            connection_fingerprint(&key, &stdio_with_token("a")),
            connection_fingerprint(&key, &stdio_with_token("a"))
        );
        assert_ne!(
            connection_fingerprint(&key, &stdio_with_token("a")),
            connection_fingerprint(&key, &stdio_with_token("b"))
        );
        assert_ne!(
            connection_fingerprint(&key, &stdio_with_token("a")),
            connection_fingerprint(&[8; 32], &stdio_with_token("a"))
        );
        assert_eq!(connection_fingerprint(&key, &stdio_with_token("${env:TOOLCRIB_NO_SUCH_VARIABLE}")), None);
        assert_eq!(
            connection_fingerprint(&key, &stdio_with_token("${env:TOOLCRIB_NO_SUCH_VARIABLE:-a}")),
            connection_fingerprint(&key, &stdio_with_token("a"))
        );
    }

    #[test]
    fn secrets_are_read_from_regular_files_only() {
        for path in ["/dev/zero", "/dev/null", "/tmp"] {
            let error = resolve(&format!("${{file:{path}}}")).unwrap_err();
            assert!(error.message.contains("not a regular file"), "{}", error.message);
        }
    }

    #[test]
    fn an_error_names_the_reference_and_no_value() {
        let error = resolve("secret ${file:/no/such/file}").unwrap_err();
        assert!(error.message.starts_with("`${file:/no/such/file}` cannot be resolved"), "{}", error.message);
        assert!(!error.message.contains("secret"));
    }
}
