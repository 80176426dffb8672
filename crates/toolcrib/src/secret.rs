//! Looking references up at the moment of use, and hashing what a source connects to so that no value can be guessed from it.

use std::collections::BTreeMap;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use toolcrib_core::fingerprint::Fingerprint;
use toolcrib_core::reference::{self, Reference};
use toolcrib_core::source::{Auth, Builtin, Kind, Remote, Stdio};
use toolcrib_core::{Code, Error, Result};

/// A secret file larger than this is a mistake.
const LONGEST_FILE: u64 = 64 * 1024;

/// Text with its references filled. An error names the reference, never a value.
pub fn resolve(text: &str) -> Result<String> {
    reference::resolve(text, look_up)
}

fn look_up(reference: &Reference<'_>) -> Result<String> {
    let missing = |reason: &str| Error::new(Code::ConfigInvalid, format!("`{reference}` cannot be resolved: {reason}"));
    match reference {
        Reference::Env { name, default } => match (std::env::var(name), default) {
            (Ok(value), _) if !value.is_empty() || default.is_none() => Ok(value),
            (_, Some(default)) => Ok((*default).to_owned()),
            (_, None) => Err(missing("the variable is not set")),
        },
        Reference::File { path } => {
            let metadata = std::fs::metadata(path).map_err(|error| missing(&error.to_string()))?;
            if metadata.len() > LONGEST_FILE {
                return Err(missing("the file is larger than 64 KiB"));
            }
            let text = std::fs::read_to_string(path).map_err(|error| missing(&error.to_string()))?;
            Ok(text.trim_end_matches(['\r', '\n']).to_owned())
        }
    }
}

/// The same kind with every reference filled.
pub fn resolve_kind(kind: &Kind) -> Result<Kind> {
    Ok(match kind {
        Kind::Stdio(stdio) => Kind::Stdio(Stdio {
            command: resolve(&stdio.command)?,
            args: stdio.args.iter().map(|text| resolve(text)).collect::<Result<_>>()?,
            env: resolve_values(&stdio.env)?,
            cwd: stdio.cwd.as_deref().map(resolve).transpose()?,
            inherit_env: stdio.inherit_env.clone(),
        }),
        Kind::Http(remote) => Kind::Http(resolve_remote(remote)?),
        Kind::Sse(remote) => Kind::Sse(resolve_remote(remote)?),
        Kind::Builtin(builtin) => Kind::Builtin(Builtin {
            roots: builtin.roots.iter().map(|text| resolve(text)).collect::<Result<_>>()?,
            ..builtin.clone()
        }),
    })
}

fn resolve_remote(remote: &Remote) -> Result<Remote> {
    let auth = match &remote.auth {
        None => None,
        Some(Auth::Bearer(token)) => Some(Auth::Bearer(resolve(token)?)),
        Some(Auth::Basic { user, password }) => {
            Some(Auth::Basic { user: resolve(user)?, password: resolve(password)? })
        }
        Some(Auth::ApiKey { name, place, value }) => {
            Some(Auth::ApiKey { name: name.clone(), place: *place, value: resolve(value)? })
        }
    };
    Ok(Remote { url: resolve(&remote.url)?, headers: resolve_values(&remote.headers)?, auth })
}

fn resolve_values(values: &BTreeMap<String, String>) -> Result<BTreeMap<String, String>> {
    values.iter().map(|(name, value)| Ok((name.clone(), resolve(value)?))).collect()
}

/// What a source connects to, resolved and inherited values included, as a keyed hash.
/// `None` when a reference cannot be resolved in this process: then nothing is known to have changed.
pub fn connects_to(key: &[u8; 32], kind: &Kind) -> Option<Fingerprint> {
    let resolved = resolve_kind(kind).ok()?;
    let inherited: Vec<(&String, Option<String>)> = match kind {
        Kind::Stdio(stdio) => stdio.inherit_env.iter().map(|name| (name, std::env::var(name).ok())).collect(),
        Kind::Http(_) | Kind::Sse(_) | Kind::Builtin(_) => Vec::new(),
    };
    keyed_hash(key, &serde_json::to_string(&(resolved, inherited)).ok()?)
}

pub fn keyed_hash(key: &[u8; 32], text: &str) -> Option<Fingerprint> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).ok()?;
    mac.update(text.as_bytes());
    Some(Fingerprint::from_bytes(mac.finalize().into_bytes().into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stdio(value: &str) -> Kind {
        Kind::Stdio(Stdio {
            command: "npx".into(),
            env: BTreeMap::from([("TOKEN".to_owned(), value.to_owned())]),
            ..Stdio::default()
        })
    }

    #[test]
    fn a_changed_value_is_noticed_and_an_unknown_one_is_not() {
        let key = [7; 32];
        assert_eq!(connects_to(&key, &stdio("a")), connects_to(&key, &stdio("a")));
        assert_ne!(connects_to(&key, &stdio("a")), connects_to(&key, &stdio("b")));
        assert_ne!(connects_to(&key, &stdio("a")), connects_to(&[8; 32], &stdio("a")));
        assert_eq!(connects_to(&key, &stdio("${env:TOOLCRIB_NO_SUCH_VARIABLE}")), None);
        assert_eq!(connects_to(&key, &stdio("${env:TOOLCRIB_NO_SUCH_VARIABLE:-a}")), connects_to(&key, &stdio("a")));
    }

    #[test]
    fn an_error_names_the_reference_and_no_value() {
        let error = resolve("secret ${file:/no/such/file}").unwrap_err();
        assert!(error.message.starts_with("`${file:/no/such/file}` cannot be resolved"), "{}", error.message);
        assert!(!error.message.contains("secret"));
    }
}
