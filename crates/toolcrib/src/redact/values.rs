//! Which values a source is given in confidence: whatever a reference stands for, literals in places that hold secrets,
//! and the parts of both that are secret by themselves.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::path::Path;

use serde_json::Value;
use toolcrib_core::config::show::{secrets_in_args, secrets_in_url, sounds_secret};
use toolcrib_core::reference::{self, Piece, Reference};
use toolcrib_core::source::{Auth, Kind, OpenApi};
use url::{Host, Url, form_urlencoded};

use crate::guard::environment::XDG_DIRECTORIES;
use crate::secret::{basic, look_up};
use crate::templates::filled;

/// A value that a reference stands for, or one that is shown to be let in. Shorter ones would hide every message.
const MIN_SECRET_LEN: usize = 4;
/// Parts of values, and literals of which nothing says that they are secret.
const MIN_PART_LEN: usize = 6;
/// Strings taken out of a JSON document.
const MAX_JSON_STRINGS: usize = 1_000;

/// References to these are for paths and names that every message has.
const PLAIN_VARIABLES: [&str; 21] = [
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

/// Headers whose literal values are no secrets.
const PLAIN_HEADERS: [&str; 4] = ["accept", "accept-language", "content-type", "user-agent"];

pub(super) fn values(kind: &Kind) -> BTreeSet<String> {
    let mut values = Values::default();
    // Templates that cannot be filled are not sent anywhere, but the error may repeat their parts.
    let filled = filled(kind);
    for kind in [Some(kind), filled.as_deref().ok()].into_iter().flatten() {
        values.references(kind);
        values.literals(kind);
    }
    values.proxies();
    values.found
}

/// A credential that was obtained at run time, with its parts.
pub(super) fn credential(value: &str) -> BTreeSet<String> {
    let mut values = Values::default();
    values.secret(value);
    values.found
}

#[derive(Default)]
struct Values {
    found: BTreeSet<String>,
}

impl Values {
    /// Whatever a reference in the definition stands for. Roots of built-in tools are left out: their tools show them.
    fn references(&mut self, kind: &Kind) {
        if kind.is_builtin() {
            return;
        }
        let looked_at: Result<Kind, Infallible> = kind.try_map(|text| {
            for piece in reference::pieces(text) {
                let Piece::Reference(reference) = piece else { continue };
                let is_plain = matches!(reference, Reference::Env { name, .. } if is_plain_variable(name));
                if let Ok(value) = look_up(&reference)
                    && !is_plain
                {
                    self.secret(&value);
                }
            }
            Ok(String::new())
        });
        let Ok(_) = looked_at;
        if let Kind::Stdio(stdio) = kind {
            for name in stdio.inherit_env.iter().filter(|name| !is_plain_variable(name)) {
                if let Ok(value) = std::env::var(name) {
                    self.secret(&value);
                }
            }
        }
    }

    fn literals(&mut self, kind: &Kind) {
        let resolved: Result<Kind, Infallible> =
            kind.try_map(|text| Ok(crate::secret::resolve(text).unwrap_or_default()));
        let Ok(resolved) = resolved;
        match (kind, &resolved) {
            (Kind::Stdio(given), Kind::Stdio(stdio)) => {
                for ((name, given), value) in given.env.iter().zip(stdio.env.values()) {
                    self.literal(name, given, value);
                }
                secrets_in_args(&stdio.args).iter().for_each(|secret| self.secret(secret));
            }
            (Kind::Http(given) | Kind::Sse(given), Kind::Http(remote) | Kind::Sse(remote)) => {
                self.address(&given.url, &remote.url);
                self.headers(&given.headers, &remote.headers);
                remote.auth.iter().for_each(|auth| self.auth(auth));
            }
            (Kind::OpenApi(given), Kind::OpenApi(openapi)) => {
                for (given, resolved) in addresses(given).into_iter().zip(addresses(openapi)) {
                    self.address(given, resolved);
                }
                self.headers(&given.headers, &openapi.headers);
                openapi.auth.iter().for_each(|auth| self.auth(auth));
            }
            (
                Kind::Stdio(_) | Kind::Http(_) | Kind::Sse(_) | Kind::OpenApi(_) | Kind::Workflow(_) | Kind::Builtin(_),
                _,
            ) => {}
        }
    }

    /// A variable of the environment. Words and numbers under a harmless name are settings, and so are paths that exist.
    fn literal(&mut self, name: &str, given: &str, value: &str) {
        if sounds_secret(name) {
            return self.secret(value);
        }
        let is_word = value.len() <= 12 && value.chars().all(|character| character.is_ascii_alphabetic());
        let is_number = value.chars().all(|character| character.is_ascii_digit() || character == '.');
        let is_path = value.starts_with('/') && Path::new(value).exists();
        let is_plain = is_word || is_number || is_path || value.len() < MIN_PART_LEN;
        let is_reference = given.contains("${");
        if !is_plain && !is_reference {
            self.secret(value);
        }
    }

    fn headers(&mut self, given: &BTreeMap<String, String>, resolved: &BTreeMap<String, String>) {
        for ((name, given), value) in given.iter().zip(resolved.values()) {
            let is_plain = PLAIN_HEADERS.contains(&name.to_ascii_lowercase().as_str());
            if is_plain && !given.contains("${") {
                continue;
            }
            for word in value.split_whitespace().filter(|word| !is_auth_scheme(word)) {
                self.part(word, MIN_PART_LEN);
            }
            self.secret(value);
        }
    }

    /// An address as it is declared, and with its references filled.
    fn address(&mut self, given: &str, resolved: &str) {
        secrets_in_url(given).iter().for_each(|secret| self.part(secret, MIN_PART_LEN));
        let Some(url) = Url::parse(resolved).ok().filter(|url| url.has_host()) else { return };
        self.login(&url);
        for (name, value) in url.query_pairs() {
            self.part(&value, if sounds_secret(&name) { MIN_SECRET_LEN } else { MIN_PART_LEN });
        }
    }

    /// What is presented to a source to be let in.
    fn auth(&mut self, auth: &Auth) {
        match auth {
            Auth::Bearer(value) | Auth::ApiKey { value, .. } => self.secret(value),
            Auth::Basic { user, password } => {
                self.secret(&basic(user, password));
                self.secret(user);
                self.secret(password);
            }
            Auth::Oauth2 { token_url, client_id, client_secret, .. } => {
                // RFC 6749, section 2.3.1: each is written as in a form first.
                let encoded = |text: &str| form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>();
                self.secret(&basic(&encoded(client_id), &encoded(client_secret)));
                self.secret(&basic(client_id, client_secret));
                self.secret(client_id);
                self.secret(client_secret);
                self.address(token_url, token_url);
            }
            Auth::Schemes(schemes) => schemes.values().for_each(|auth| self.auth(auth)),
        }
    }

    /// Credentials for a proxy that our own requests may pass.
    fn proxies(&mut self) {
        for name in ["http_proxy", "https_proxy", "all_proxy"] {
            let values = [std::env::var(name), std::env::var(name.to_ascii_uppercase())];
            for value in values.into_iter().flatten() {
                let with_scheme = if value.contains("://") { value } else { format!("http://{value}") };
                if let Ok(url) = Url::parse(&with_scheme) {
                    self.login(&url);
                }
            }
        }
    }

    /// A whole value that is secret, and its parts.
    fn secret(&mut self, value: &str) {
        let value = value.trim();
        if value.len() < MIN_SECRET_LEN {
            return;
        }
        self.found.insert(value.to_owned());
        self.lines(value);
        self.json(value);
        self.url(value);
        self.words(value);
    }

    fn part(&mut self, part: &str, min_len: usize) {
        let part = part.trim().trim_matches(['"', '\'']);
        let is_common = ["bearer", "basic", "localhost", "https", "http", "true", "false", "null", "none"]
            .contains(&part.to_ascii_lowercase().as_str());
        if part.len() >= min_len && !is_common {
            self.found.insert(part.to_owned());
        }
    }

    /// The lines of a file such as a private key, also where their ends are written as `\n`, and the values of `KEY=value`.
    fn lines(&mut self, value: &str) {
        for line in value.split("\\n").flat_map(str::lines).map(str::trim) {
            // `-----BEGIN PRIVATE KEY-----`
            if line.starts_with("-----") {
                continue;
            }
            self.part(line, MIN_PART_LEN);
            for pair in line.split([';', '&']) {
                let Some((name, value)) = pair.split_once('=') else { continue };
                self.part(value, if sounds_secret(name) { MIN_SECRET_LEN } else { MIN_PART_LEN });
            }
        }
    }

    fn json(&mut self, value: &str) {
        if !value.starts_with(['{', '[', '"']) {
            return;
        }
        let Ok(document) = serde_json::from_str::<Value>(value) else { return };
        let mut open = vec![&document];
        let mut strings = 0;
        while let Some(value) = open.pop().filter(|_| strings < MAX_JSON_STRINGS) {
            match value {
                Value::String(text) => {
                    strings += 1;
                    self.part(text, MIN_PART_LEN);
                    self.lines(text);
                }
                Value::Array(items) => open.extend(items),
                Value::Object(fields) => open.extend(fields.values()),
                Value::Null | Value::Bool(_) | Value::Number(_) => {}
            }
        }
    }

    /// The parts of an address: what lets in, its path and query, and its host unless that is this machine or a number.
    fn url(&mut self, value: &str) {
        let Some(url) = Url::parse(value).ok().filter(|url| url.has_host()) else { return };
        self.login(&url);
        self.part(url.path().trim_matches('/'), MIN_PART_LEN);
        for segment in url.path().split('/') {
            let is_telling = segment.chars().any(|c| c.is_ascii_digit() || c.is_ascii_uppercase());
            self.part(segment, if is_telling { MIN_PART_LEN } else { usize::MAX });
        }
        for (_, value) in url.query_pairs() {
            self.part(&value, MIN_SECRET_LEN);
        }
        self.part(url.query().unwrap_or_default(), MIN_PART_LEN);
        self.part(url.fragment().unwrap_or_default(), MIN_PART_LEN);
        if let Some(Host::Domain(host)) = url.host() {
            self.part(host, MIN_PART_LEN);
        }
    }

    fn login(&mut self, url: &Url) {
        let user = url.username();
        let password = url.password().unwrap_or_default();
        for text in [user, password] {
            let decoded = percent_decoded(text);
            self.part(&decoded, MIN_SECRET_LEN);
        }
        if !password.is_empty() {
            self.part(&basic(&percent_decoded(user), &percent_decoded(password)), MIN_PART_LEN);
        }
    }

    /// `Bearer x`, `user:password`.
    fn words(&mut self, value: &str) {
        if let Some((_, rest)) = value.split_once(' ').filter(|(scheme, _)| is_auth_scheme(scheme)) {
            self.part(rest, MIN_SECRET_LEN);
        }
        if value.contains(char::is_whitespace) || value.contains("://") {
            return;
        }
        if let Some((user, password)) = value.split_once(':') {
            let is_port = password.len() <= 5 && password.chars().all(|character| character.is_ascii_digit());
            if !is_port {
                self.part(user, MIN_PART_LEN);
                self.part(password, MIN_SECRET_LEN);
            }
        }
    }
}

fn addresses(openapi: &OpenApi) -> Vec<&str> {
    let own = [Some(&openapi.document), openapi.base_url.as_ref()];
    own.into_iter().flatten().chain(&openapi.allow_refs).map(String::as_str).collect()
}

fn is_plain_variable(name: &str) -> bool {
    PLAIN_VARIABLES.contains(&name) || XDG_DIRECTORIES.contains(&name)
}

fn is_auth_scheme(word: &str) -> bool {
    ["bearer", "basic", "token", "digest", "apikey"].contains(&word.to_ascii_lowercase().as_str())
}

fn percent_decoded(text: &str) -> String {
    percent_encoding::percent_decode_str(text).decode_utf8_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_listed_variables_are_plain() {
        for name in ["HOME", "LC_ALL", "XDG_CACHE_HOME"] {
            assert!(is_plain_variable(name), "{name}");
        }
        for name in ["XDG_ACTIVATION_TOKEN", "XDG_SESSION_COOKIE", "LC_SECRET", "TOKEN"] {
            assert!(!is_plain_variable(name), "{name}");
        }
    }
}
