//! Collects the secrets of a source: resolved references, literals in places that usually hold secrets, and the parts
//! of both that are secret by themselves.
//!
//! Secret values are:
//!
//! - every value of a `${env:…}` or `${file:…}` reference and of `inherit_env`, unless the variable is listed as
//!   harmless;
//! - literals of `auth`, headers, secret query parameters and logins of URLs, and variables and arguments with secret
//!   names;
//! - parts of these by which a secret would still leak: the lines of a key file, the strings of a JSON file, the
//!   password of a URL, the token of `Bearer …`.
//!
//! Too short or too common values are left out, because masking them would make every message unreadable.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::path::Path;

use serde_json::Value;
use toolcrib_config::reference::{self, Reference, ReferencePart};
use toolcrib_config::show::{is_secret_name, secrets_in_args, secrets_in_url};
use toolcrib_core::percent::decode_lossy;
use toolcrib_core::source::{Auth, OpenApiSource, SourceKind, TextRole};
use toolcrib_guard::XDG_DIRECTORIES;
use url::{Host, Url, form_urlencoded};

use crate::secret::{ReferenceValues, basic_credentials};
use crate::templates::fill_kind;

/// Minimum length of resolved references and credentials. Shorter ones would mask parts of every message.
const MIN_SECRET_LEN: usize = 4;
/// Minimum length of parts of secrets, and of literals that are not evidently secret.
const MIN_PART_LEN: usize = 6;
/// Maximum number of strings taken from a JSON document.
const MAX_JSON_STRINGS: usize = 1_000;

/// References to these variables are not secret: they hold paths and names that occur in ordinary messages.
const NON_SECRET_VARIABLES: [&str; 21] = [
    "HOME",
    "USER",
    "LOGNAME",
    "USERNAME",
    "USERPROFILE",
    "PWD",
    "TMPDIR",
    "TMP",
    "TEMP",
    "PATH",
    "LANG",
    "SHELL",
    "TERM",
    "TZ",
    "LC_ALL",
    "LC_COLLATE",
    "LC_CTYPE",
    "LC_MESSAGES",
    "LC_MONETARY",
    "LC_NUMERIC",
    "LC_TIME",
];

/// Headers whose literal values are not secret. All others may carry a token under a name that is not known here.
const NON_SECRET_HEADERS: [&str; 4] = ["accept", "accept-language", "content-type", "user-agent"];

/// All secrets of a source, from its declared and its template-filled configuration. References to files that
/// `references` does not hold have no value.
pub fn secret_values(kind: &SourceKind, references: &ReferenceValues) -> BTreeSet<String> {
    let mut collector = SecretCollector::default();
    // A template that cannot be filled is not sent anywhere, but its error may quote the declared text.
    let filled = fill_kind(kind);
    for kind in [Some(kind), filled.as_deref().ok()].into_iter().flatten() {
        collector.add_references(kind, references);
        collector.add_literals(kind, references);
    }
    collector.add_proxy_logins();
    collector.values
}

/// A credential obtained at run time, with its parts.
pub fn credential_values(value: &str) -> BTreeSet<String> {
    let mut collector = SecretCollector::default();
    collector.add_secret(value);
    collector.values
}

/// Set of secrets under construction.
#[derive(Default)]
struct SecretCollector {
    values: BTreeSet<String>,
}

impl SecretCollector {
    /// Adds the values of all references and inherited variables. Roots of built-in tools are not secret: the tools
    /// show them. Neither are variables in the paths of documents: no server gets them, and an error must be able to
    /// name the file that is missing.
    fn add_references(&mut self, kind: &SourceKind, references: &ReferenceValues) {
        if kind.is_builtin() {
            return;
        }
        // The traversal visits every configurable text; its result is not used.
        let visited: Result<SourceKind, Infallible> = kind.try_map_texts_by_role(|role, text| {
            // A document may also be a URL, which can have a login or a token.
            let is_document_path = role == TextRole::Path
                && matches!(kind, SourceKind::OpenApi(_) | SourceKind::Workflow(_))
                && references.resolve_text(role, text).is_ok_and(|resolved| !resolved.contains("://"));
            for piece in reference::split_references(text) {
                let ReferencePart::Reference(reference) = piece else { continue };
                let is_harmless =
                    matches!(reference, Reference::Env { name, .. } if is_document_path || is_non_secret_variable(name));
                if let Ok(value) = references.get(&reference)
                    && !is_harmless
                {
                    self.add_secret(&value);
                }
            }
            Ok(String::new())
        });
        let Ok(_) = visited;
        // Inherited variables are values of the source, too, although no reference names them.
        if let SourceKind::Stdio(stdio) = kind {
            for name in stdio.inherit_env.iter().filter(|name| !is_non_secret_variable(name)) {
                if let Ok(value) = std::env::var(name) {
                    self.add_secret(&value);
                }
            }
        }
    }

    /// Adds literal values in places that usually hold secrets.
    fn add_literals(&mut self, kind: &SourceKind, references: &ReferenceValues) {
        // Resolve as far as possible: literals may be combined with references, as in `Bearer ${env:TOKEN}`.
        let resolved: Result<SourceKind, Infallible> =
            kind.try_map_texts_by_role(|role, text| Ok(references.resolve_text(role, text).unwrap_or_default()));
        let Ok(resolved) = resolved;
        match (kind, &resolved) {
            (SourceKind::Stdio(declared), SourceKind::Stdio(stdio)) => {
                for ((name, declared), value) in declared.env.iter().zip(stdio.env.values()) {
                    self.add_env_literal(name, declared, value);
                }
                // Arguments such as `--token VALUE` are recognised by the name before them.
                secrets_in_args(&stdio.args).iter().for_each(|secret| self.add_secret(secret));
            }
            (
                SourceKind::Http(declared) | SourceKind::Sse(declared),
                SourceKind::Http(remote) | SourceKind::Sse(remote),
            ) => {
                self.add_declared_url(&declared.url, &remote.url);
                self.add_headers(&declared.headers, &remote.headers);
                remote.auth.iter().for_each(|auth| self.add_auth(auth));
            }
            (SourceKind::OpenApi(declared), SourceKind::OpenApi(openapi)) => {
                for (declared, resolved) in source_urls(declared).into_iter().zip(source_urls(openapi)) {
                    self.add_declared_url(declared, resolved);
                }
                self.add_headers(&declared.headers, &openapi.headers);
                openapi.auth.iter().for_each(|auth| self.add_auth(auth));
            }
            (
                SourceKind::Stdio(_)
                | SourceKind::Http(_)
                | SourceKind::Sse(_)
                | SourceKind::OpenApi(_)
                | SourceKind::Workflow(_)
                | SourceKind::Builtin(_),
                _,
            ) => {}
        }
    }

    /// Adds an environment variable. Under a harmless name, words, numbers and existing paths count as settings.
    fn add_env_literal(&mut self, name: &str, declared: &str, value: &str) {
        // `GITHUB_TOKEN` and the like, whatever the value looks like.
        if is_secret_name(name) {
            return self.add_secret(value);
        }
        let is_word = value.len() <= 12 && value.chars().all(|character| character.is_ascii_alphabetic());
        let is_number = value.chars().all(|character| character.is_ascii_digit() || character == '.');
        // Only paths that exist: a secret may begin with a slash as well.
        let is_path = value.starts_with('/') && Path::new(value).exists();
        let is_harmless = is_word || is_number || is_path || value.len() < MIN_PART_LEN;
        let is_reference = declared.contains("${");
        if !is_harmless && !is_reference {
            self.add_secret(value);
        }
    }

    /// Adds header values, and their words without the authentication scheme.
    fn add_headers(&mut self, declared: &BTreeMap<String, String>, resolved: &BTreeMap<String, String>) {
        for ((name, declared), value) in declared.iter().zip(resolved.values()) {
            let is_harmless = NON_SECRET_HEADERS.contains(&name.to_ascii_lowercase().as_str());
            if is_harmless && !declared.contains("${") {
                continue;
            }
            for word in value.split_whitespace().filter(|word| !is_auth_scheme(word)) {
                self.add_part(word, MIN_PART_LEN);
            }
            self.add_secret(value);
        }
    }

    /// Adds the secret parts of a URL. `declared` is the configured text, `resolved` the same with references resolved.
    fn add_declared_url(&mut self, declared: &str, resolved: &str) {
        secrets_in_url(declared).iter().for_each(|secret| self.add_part(secret, MIN_PART_LEN));
        let Some(url) = Url::parse(resolved).ok().filter(|url| url.has_host()) else { return };
        self.add_login(&url);
        for (name, value) in url.query_pairs() {
            self.add_part(&value, if is_secret_name(&name) { MIN_SECRET_LEN } else { MIN_PART_LEN });
        }
    }

    /// Adds credentials in all forms in which they are sent.
    fn add_auth(&mut self, auth: &Auth) {
        match auth {
            Auth::Bearer(value) | Auth::ApiKey { value, .. } => self.add_secret(value),
            Auth::Basic { user, password } => {
                self.add_secret(&basic_credentials(user, password));
                self.add_secret(user);
                self.add_secret(password);
            }
            Auth::Oauth2 { token_url, client_id, client_secret, .. } => {
                // RFC 6749, section 2.3.1: both parts are form-encoded before Base64.
                let encoded = |text: &str| form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>();
                self.add_secret(&basic_credentials(&encoded(client_id), &encoded(client_secret)));
                self.add_secret(&basic_credentials(client_id, client_secret));
                self.add_secret(client_id);
                self.add_secret(client_secret);
                self.add_declared_url(token_url, token_url);
            }
            Auth::Schemes(schemes) => schemes.values().for_each(|auth| self.add_auth(auth)),
        }
    }

    /// Adds credentials of a proxy that requests may go through.
    fn add_proxy_logins(&mut self) {
        for name in ["http_proxy", "https_proxy", "all_proxy"] {
            let variables = [std::env::var(name), std::env::var(name.to_ascii_uppercase())];
            for value in variables.into_iter().flatten() {
                let with_scheme = if value.contains("://") { value } else { format!("http://{value}") };
                if let Ok(url) = Url::parse(&with_scheme) {
                    self.add_login(&url);
                }
            }
        }
    }

    /// Adds a whole secret and its parts.
    fn add_secret(&mut self, value: &str) {
        let value = value.trim();
        if value.len() < MIN_SECRET_LEN {
            return;
        }
        // The whole value, then what it consists of, for each format that it may have.
        self.values.insert(value.to_owned());
        self.add_lines(value);
        self.add_json_strings(value);
        self.add_url_parts(value);
        self.add_credential_words(value);
    }

    /// Adds a part of a secret, unless it is too short or a common word.
    fn add_part(&mut self, part: &str, min_len: usize) {
        let part = part.trim().trim_matches(['"', '\'']);
        let is_common = ["bearer", "basic", "localhost", "https", "http", "true", "false", "null", "none"]
            .contains(&part.to_ascii_lowercase().as_str());
        if part.len() >= min_len && !is_common {
            self.values.insert(part.to_owned());
        }
    }

    /// Adds the lines of a file such as a private key, also with line breaks written as `\n`, and the values of
    /// `KEY=value` pairs.
    fn add_lines(&mut self, value: &str) {
        for line in value.split("\\n").flat_map(str::lines).map(str::trim) {
            // `-----BEGIN PRIVATE KEY-----` is the same in every key file.
            if line.starts_with("-----") {
                continue;
            }
            self.add_part(line, MIN_PART_LEN);
            for pair in line.split([';', '&']) {
                let Some((name, value)) = pair.split_once('=') else { continue };
                self.add_part(value, if is_secret_name(name) { MIN_SECRET_LEN } else { MIN_PART_LEN });
            }
        }
    }

    /// Adds the strings in a secret that is a JSON document, such as a service account file.
    fn add_json_strings(&mut self, value: &str) {
        if !value.starts_with(['{', '[', '"']) {
            return;
        }
        let Ok(document) = serde_json::from_str::<Value>(value) else { return };
        let mut unvisited = vec![&document];
        let mut strings = 0;
        while let Some(value) = unvisited.pop().filter(|_| strings < MAX_JSON_STRINGS) {
            match value {
                Value::String(text) => {
                    strings += 1;
                    self.add_part(text, MIN_PART_LEN);
                    self.add_lines(text);
                }
                Value::Array(items) => unvisited.extend(items),
                Value::Object(fields) => unvisited.extend(fields.values()),
                Value::Null | Value::Bool(_) | Value::Number(_) => {}
            }
        }
    }

    /// Adds the parts of a secret URL: login, path, query and host name, unless the host is this machine or an address.
    fn add_url_parts(&mut self, value: &str) {
        let Some(url) = Url::parse(value).ok().filter(|url| url.has_host()) else { return };
        self.add_login(&url);
        self.add_part(url.path().trim_matches('/'), MIN_PART_LEN);
        // Segments with digits or capitals look like identifiers; plain words such as `api` are too common to mask.
        for segment in url.path().split('/') {
            let looks_random = segment.chars().any(|c| c.is_ascii_digit() || c.is_ascii_uppercase());
            self.add_part(segment, if looks_random { MIN_PART_LEN } else { usize::MAX });
        }
        for (_, value) in url.query_pairs() {
            self.add_part(&value, MIN_SECRET_LEN);
        }
        self.add_part(url.query().unwrap_or_default(), MIN_PART_LEN);
        self.add_part(url.fragment().unwrap_or_default(), MIN_PART_LEN);
        if let Some(Host::Domain(host)) = url.host() {
            self.add_part(host, MIN_PART_LEN);
        }
    }

    /// Adds user and password of a URL.
    fn add_login(&mut self, url: &Url) {
        let user = url.username();
        let password = url.password().unwrap_or_default();
        for text in [user, password] {
            let decoded = decode_lossy(text);
            self.add_part(&decoded, MIN_SECRET_LEN);
        }
        if !password.is_empty() {
            self.add_part(&basic_credentials(&decode_lossy(user), &decode_lossy(password)), MIN_PART_LEN);
        }
    }

    /// Adds the credentials in `Bearer x` and `user:password`.
    fn add_credential_words(&mut self, value: &str) {
        if let Some((_, rest)) = value.split_once(' ').filter(|(scheme, _)| is_auth_scheme(scheme)) {
            self.add_part(rest, MIN_SECRET_LEN);
        }
        if value.contains(char::is_whitespace) || value.contains("://") {
            return;
        }
        // `host:port` looks the same.
        if let Some((user, password)) = value.split_once(':') {
            let is_port = password.len() <= 5 && password.chars().all(|character| character.is_ascii_digit());
            if !is_port {
                self.add_part(user, MIN_PART_LEN);
                self.add_part(password, MIN_SECRET_LEN);
            }
        }
    }
}

/// URLs in the configuration of an OpenAPI source.
fn source_urls(openapi: &OpenApiSource) -> Vec<&str> {
    let urls = [Some(&openapi.document), openapi.base_url.as_ref()];
    urls.into_iter().flatten().chain(&openapi.allow_refs).map(String::as_str).collect()
}

/// Whether the value of a variable is known not to be secret.
fn is_non_secret_variable(name: &str) -> bool {
    NON_SECRET_VARIABLES.contains(&name) || XDG_DIRECTORIES.contains(&name)
}

/// Whether a word is the scheme of an `Authorization` header.
fn is_auth_scheme(word: &str) -> bool {
    ["bearer", "basic", "token", "digest", "apikey"].contains(&word.to_ascii_lowercase().as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_listed_variables_are_plain() {
        for name in ["HOME", "LC_ALL", "XDG_CACHE_HOME"] {
            assert!(is_non_secret_variable(name), "{name}");
        }
        for name in ["XDG_ACTIVATION_TOKEN", "XDG_SESSION_COOKIE", "LC_SECRET", "TOKEN"] {
            assert!(!is_non_secret_variable(name), "{name}");
        }
    }
}
