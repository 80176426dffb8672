//! Looking references up at the moment of use, and hashing what a source connects to so that no value can be guessed from it.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io::Read;

use base64::Engine;
use hmac::{Hmac, KeyInit, Mac};
use serde_json::Value;
use sha2::Sha256;
use toolcrib_core::config::show::shown_args;
use toolcrib_core::fingerprint::Fingerprint;
use toolcrib_core::reference::{self, Piece, Reference};
use toolcrib_core::source::{Auth, Kind};
use toolcrib_core::{Code, Error, Result};
use url::Url;

use crate::templates::filled;

/// A secret file larger than this is a mistake.
const LONGEST_FILE: u64 = 64 * 1024;
const SHORTEST_HIDDEN: usize = 6;

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
            let home = path.strip_prefix("~/").and_then(|rest| Some(format!("{}/{rest}", std::env::var("HOME").ok()?)));
            let path = home.as_deref().unwrap_or(path);
            // Looked at before opening: to open a pipe would wait for whoever writes to it.
            if !std::fs::metadata(path).map_err(|error| missing(&error.to_string()))?.is_file() {
                return Err(missing("it is not a plain file"));
            }
            let file = std::fs::File::open(path).map_err(|error| missing(&error.to_string()))?;
            let mut text = String::new();
            file.take(LONGEST_FILE + 1).read_to_string(&mut text).map_err(|error| missing(&error.to_string()))?;
            if text.len() as u64 > LONGEST_FILE {
                return Err(missing("the file is larger than 64 KiB"));
            }
            Ok(text.trim_end_matches(['\r', '\n']).to_owned())
        }
    }
}

/// The same kind with every reference filled.
pub fn resolve_kind(kind: &Kind) -> Result<Kind> {
    kind.try_map(resolve)
}

/// Text that a source wrote, without the values that were given to it in confidence.
pub fn hide(text: &str, kind: &Kind) -> String {
    Confided::to(kind).hide(text)
}

/// The values a source was given in confidence, looked up once: servers print what they get.
/// Short values and paths are not among them, for hiding them would hide the message.
pub struct Confided(Vec<String>);

impl Confided {
    pub fn to(kind: &Kind) -> Confided {
        let filled = filled(kind).unwrap_or(Cow::Borrowed(kind));
        // What cannot be looked up here was given to nobody.
        let resolved: Result<Kind, Infallible> = filled.try_map(|text| Ok(resolve(text).unwrap_or_default()));
        let Ok(resolved) = resolved;
        let mut values = confided(&resolved);
        values.extend(looked_up_variables(&filled, &resolved));
        values.extend(within_addresses(&filled));
        Confided::of(&values)
    }

    /// These values, as far as they can be hidden.
    pub(crate) fn of(values: &[String]) -> Confided {
        let path = |value: &str| value.starts_with('/') && std::path::Path::new(value).exists();
        let hidden = values.iter().filter(|value| value.len() >= SHORTEST_HIDDEN && !path(value));
        // An API may repeat it as it stood in an address or a form.
        let mut values: Vec<String> = hidden.flat_map(|value| as_in_addresses(value)).collect();
        // A value that holds another goes first.
        values.sort_by_key(|value| std::cmp::Reverse(value.len()));
        Confided(values)
    }

    pub fn hide(&self, text: &str) -> String {
        self.0.iter().fold(text.to_owned(), |text, value| text.replace(value.as_str(), "***"))
    }

    /// A source may repeat in its error, or in the data beside it, what it was given.
    pub(crate) fn hide_in(&self, mut error: Error) -> Error {
        error.message = self.hide(&error.message);
        if let Some(details) = &mut error.details {
            self.hide_within(details);
        }
        error
    }

    fn hide_within(&self, value: &mut Value) {
        match value {
            Value::String(text) => *text = self.hide(text),
            Value::Array(items) => items.iter_mut().for_each(|item| self.hide_within(item)),
            Value::Object(fields) => fields.values_mut().for_each(|field| self.hide_within(field)),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
}

impl std::fmt::Debug for Confided {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Confided({} values)", self.0.len())
    }
}

fn confided(kind: &Kind) -> Vec<String> {
    match kind {
        Kind::Stdio(stdio) => {
            let shown = shown_args(&stdio.args);
            let secret = stdio.args.iter().zip(&shown).filter(|(arg, shown)| arg != shown).map(|(arg, _)| arg);
            let args = secret.map(|arg| arg.split_once('=').map_or(arg.as_str(), |(_, value)| value).to_owned());
            stdio.env.values().cloned().chain(args).collect()
        }
        Kind::Http(remote) | Kind::Sse(remote) => shown_at_the_door(&remote.headers, remote.auth.as_ref()),
        Kind::OpenApi(openapi) => shown_at_the_door(&openapi.headers, openapi.auth.as_ref()),
        Kind::Workflow(_) | Kind::Builtin(_) => Vec::new(),
    }
}

fn shown_at_the_door(headers: &BTreeMap<String, String>, auth: Option<&Auth>) -> Vec<String> {
    let words = headers.values().flat_map(|value| value.split_whitespace()).map(str::to_owned);
    words
        .filter(|word| !matches!(word.as_str(), "Bearer" | "Basic"))
        .chain(auth.iter().copied().flat_map(presented))
        .collect()
}

/// What references stand for in the addresses of a source, and the values of their queries. Of a reference that is a whole
/// address, all but its origin.
fn within_addresses(given: &Kind) -> Vec<String> {
    let addresses: Vec<&String> = match given {
        Kind::Http(remote) | Kind::Sse(remote) => vec![&remote.url],
        Kind::OpenApi(openapi) => {
            let own = [Some(&openapi.document), openapi.base_url.as_ref()];
            own.into_iter().flatten().chain(&openapi.allow_refs).collect()
        }
        Kind::Stdio(_) | Kind::Workflow(_) | Kind::Builtin(_) => Vec::new(),
    };
    let mut values = Vec::new();
    for text in addresses {
        for piece in reference::pieces(text) {
            let Piece::Reference(reference) = piece else { continue };
            let Ok(value) = look_up(&reference) else { continue };
            match web_address(&value) {
                Some(url) => values.extend(behind_origin(&url)),
                None => values.push(value),
            }
        }
        let url = resolve(text).ok().and_then(|text| web_address(&text));
        values.extend(
            url.iter().flat_map(|url| url.query_pairs().map(|(_, value)| value.into_owned()).collect::<Vec<_>>()),
        );
    }
    values
}

fn web_address(text: &str) -> Option<Url> {
    Url::parse(text).ok().filter(|url| matches!(url.scheme(), "http" | "https"))
}

fn behind_origin(url: &Url) -> Vec<String> {
    let path = url.path().trim_end_matches('/');
    let login = [url.username(), url.password().unwrap_or_default()];
    [path].into_iter().chain(login).map(str::to_owned).collect()
}

/// A value, and what an address makes of it in a path, a query or a name of a host.
fn as_in_addresses(value: &str) -> Vec<String> {
    let mut path = value.to_owned();
    if let Ok(mut url) = Url::parse("http://h/") {
        url.set_path(value);
        path = url.path().strip_prefix('/').unwrap_or_default().to_owned();
    }
    let query = url::form_urlencoded::byte_serialize(value.as_bytes()).collect();
    // Percent-encoded as strictly as our own requests have it, and as forms do.
    let strict = url::form_urlencoded::byte_serialize(value.as_bytes()).collect::<String>().replace('+', "%20");
    let mut forms = vec![value.to_owned(), path, query, strict, value.to_lowercase()];
    forms.sort();
    forms.dedup();
    forms
}

/// Variables of an API that a reference stands for. Those written down, a region say, are no secrets.
fn looked_up_variables(given: &Kind, resolved: &Kind) -> Vec<String> {
    let (Kind::OpenApi(given), Kind::OpenApi(resolved)) = (given, resolved) else { return Vec::new() };
    let pairs = given.variables.values().zip(resolved.variables.values());
    pairs.filter(|(given, resolved)| given != resolved).map(|(_, resolved)| resolved.clone()).collect()
}

/// What is presented to a source to be let in.
fn presented(auth: &Auth) -> Vec<String> {
    match auth {
        Auth::Bearer(value) | Auth::ApiKey { value, .. } => vec![value.clone()],
        Auth::Basic { user, password } => vec![basic(user, password), user.clone(), password.clone()],
        Auth::Oauth2 { client_id, client_secret, .. } => vec![basic(client_id, client_secret), client_secret.clone()],
        Auth::Schemes(schemes) => schemes.values().flat_map(presented).collect(),
    }
}

/// The credentials of basic authentication, as a header has them.
pub(crate) fn basic(user: &str, password: &str) -> String {
    base64::engine::general_purpose::STANDARD.encode(format!("{user}:{password}"))
}

/// What a source connects to, resolved and inherited values included, as a keyed hash.
/// `None` when a reference cannot be resolved in this process: then nothing is known to have changed.
pub fn connects_to(key: &[u8; 32], kind: &Kind) -> Option<Fingerprint> {
    let resolved = resolve_kind(kind).ok()?;
    let inherited: Vec<(&String, Option<String>)> = match kind {
        Kind::Stdio(stdio) => stdio.inherit_env.iter().map(|name| (name, std::env::var(name).ok())).collect(),
        Kind::Http(_) | Kind::Sse(_) | Kind::OpenApi(_) | Kind::Workflow(_) | Kind::Builtin(_) => Vec::new(),
    };
    keyed_hash(key, &serde_json::to_string(&(resolved, inherited)).ok()?)
}

/// Whether anything it connects with is read from a file at the moment of use.
pub(crate) fn refers_to_file(kind: &Kind) -> bool {
    // Stops at the first.
    kind.try_map(|text| if text.contains("${file:") { Err(()) } else { Ok(String::new()) }).is_err()
}

pub fn keyed_hash(key: &[u8; 32], text: &str) -> Option<Fingerprint> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).ok()?;
    mac.update(text.as_bytes());
    Some(Fingerprint::from_bytes(mac.finalize().into_bytes().into()))
}

#[cfg(test)]
mod tests {
    use toolcrib_core::source::{OpenApi, Remote, Stdio};

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
    fn what_was_given_in_confidence_is_hidden() {
        assert_eq!(hide("bad token hunter2!", &stdio("hunter2")), "bad token ***!");
        assert_eq!(hide("cannot read /usr/bin", &stdio("/usr/bin")), "cannot read /usr/bin");
        let args = vec!["--api-key=abc123".to_owned(), "--token".to_owned(), "def456".to_owned()];
        let kind = Kind::Stdio(Stdio { args, ..Stdio::default() });
        assert_eq!(hide("abc123 def456 --token", &kind), "*** *** --token");
        let headers = BTreeMap::from([("Authorization".to_owned(), "Bearer ghp_12345".to_owned())]);
        let kind = Kind::Http(Remote { headers, ..Remote::default() });
        assert_eq!(hide("Bearer ghp_12345 expired", &kind), "Bearer *** expired");
    }

    #[test]
    fn variables_that_a_reference_stands_for_are_hidden() {
        let variables = BTreeMap::from([
            ("region".to_owned(), "europe".to_owned()),
            ("account".to_owned(), "${env:TOOLCRIB_NO_SUCH_VARIABLE:-hunter2}".to_owned()),
        ]);
        let kind = Kind::OpenApi(OpenApi { variables, ..OpenApi::default() });
        assert_eq!(hide("https://europe.example/hunter2", &kind), "https://europe.example/***");
    }

    #[test]
    fn what_stands_in_the_addresses_of_a_source_is_hidden() {
        let given = |value: &str| format!("${{env:TOOLCRIB_NO_SUCH_VARIABLE:-{value}}}");
        let check = |document: &str, base_url: &str, text: &str, expected: &str| {
            let (document, base_url) = (document.to_owned(), Some(base_url.to_owned()));
            let kind = Kind::OpenApi(OpenApi { document, base_url, ..OpenApi::default() });
            assert_eq!(hide(text, &kind), expected);
        };
        let url = format!("http://h/{}/mcp?key=hunter2", given("s3cret-path"));
        let server = Kind::Http(Remote { url, ..Remote::default() });
        assert_eq!(hide("http://h/s3cret-path/mcp?key=hunter2", &server), "http://h/***/mcp?key=***");
        let bot = format!("http://h/bot{}", given("12:t0ken"));
        check("/api.yaml", &bot, "no `/bot12:t0ken/x` at h", "no `/bot***/x` at h");
        check(&bot, "http://h", "/bot12:t0ken/openapi.json", "/bot***/openapi.json");
        check("/api.yaml", &format!("http://h/{}", given("a b c d")), "/a%20b%20c%20d", "/***");
        check("/api.yaml", "http://h/x?key=hunter2&n=1", "hunter2 1", "*** 1");
        check("/api.yaml", &format!("https://{}.h/", given("Tenant")), "https://tenant.h/", "https://***.h/");
        let whole = given("http://127.0.0.1:8080/s3cret/path/");
        check("/api.yaml", &whole, "`http://127.0.0.1:8080/s3cret/path/x`", "`http://127.0.0.1:8080***/x`");
    }

    #[test]
    fn what_was_encoded_on_its_way_is_hidden_and_what_is_unknown_is_named() {
        assert_eq!(hide("?key=SEKRET-KQ%26x+y", &stdio("SEKRET-KQ&x y")), "?key=***");
        assert_eq!(hide("?key=SEKRET-KQ%26x%20y", &stdio("SEKRET-KQ&x y")), "?key=***");
        let unknown = "${env:TOOLCRIB_NO_SUCH_VARIABLE}";
        assert_eq!(
            hide(&format!("`{unknown}` cannot be resolved"), &stdio(unknown)),
            format!("`{unknown}` cannot be resolved")
        );
    }

    #[test]
    fn a_secret_is_read_from_plain_files_only() {
        for path in ["/dev/zero", "/dev/null", "/tmp"] {
            let error = resolve(&format!("${{file:{path}}}")).unwrap_err();
            assert!(error.message.contains("not a plain file"), "{}", error.message);
        }
    }

    #[test]
    fn an_error_names_the_reference_and_no_value() {
        let error = resolve("secret ${file:/no/such/file}").unwrap_err();
        assert!(error.message.starts_with("`${file:/no/such/file}` cannot be resolved"), "{}", error.message);
        assert!(!error.message.contains("secret"));
    }
}
