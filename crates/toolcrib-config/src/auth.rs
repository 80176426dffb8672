//! Reads the key `auth` of a source. Messages never quote a value, which may be a secret.
//!
//! ```text
//! auth: { bearer: "${env:TOKEN}" }
//! auth: { basic: { user: ada, password: "${env:PASSWORD}" } }
//! auth: { api_key: { name: X-Api-Key, in: header, value: "${env:KEY}" } }
//! auth: { api_key: "${env:KEY}" }                                        name and place of the document
//! auth: { api_key: { name: X-Api-Key, value: "${env:KEY}" } }            place of the document, else a header
//! auth: { oauth2: { client_id: a, client_secret: "${env:SECRET}" } }     token_url of the document
//! auth: { oauth2: { token_url: https://h/token, client_id: a, client_secret: "${env:SECRET}", scopes: [read] } }
//! auth: { schemes: { petstore_key: { bearer: "${env:TOKEN}" } } }
//! ```
//!
//! Values may contain references and are only checked for what no value can repair, such as a line break in a header.
//! Credentials are resolved and sent by the connectors.

use std::collections::BTreeMap;

use toolcrib_core::source::{Auth, KeyLocation};

use super::header::{check_header_name, check_header_value};
use super::reader::{ConfigReader, Section, format_alternatives};
use super::syntax::{ConfigNode, NodeValue, join_key};
use super::url_check;

/// Authentication methods that a kind of source supports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AuthMethods {
    /// Methods with a fixed credential: `bearer`, `basic`, `api_key`. For MCP servers.
    Static,
    /// Also `oauth2`. Inside `schemes`, which cannot be nested.
    WithOauth2,
    /// Also `schemes`, by the names of an OpenAPI document. For OpenAPI sources.
    All,
}

/// In the order of [`AuthMethods`]: each variant allows a prefix of this list.
pub(super) const AUTH_METHOD_KEYS: [&str; 5] = ["bearer", "basic", "api_key", "oauth2", "schemes"];

/// Reads `auth`, if the source has it.
pub(super) fn read(reader: &mut ConfigReader<'_>, source: &Section<'_>, allowed: AuthMethods) -> Option<Auth> {
    read_auth(reader, source.get("auth")?, &join_key(&source.path, "auth"), allowed)
}

/// Reports a header that is set both in `headers` and by `auth`.
/// One of the two would be sent and the other silently lost. Names of headers are compared without regard to case.
pub(super) fn reject_duplicate_header(
    reader: &mut ConfigReader<'_>,
    section: &Section<'_>,
    headers: &BTreeMap<String, String>,
    auth: Option<&Auth>,
) {
    let auth_headers = auth.map(header_names).unwrap_or_default();
    let is_duplicate = |auth_header: &&&str| headers.keys().any(|name| name.eq_ignore_ascii_case(auth_header));
    if let Some(name) = auth_headers.iter().find(is_duplicate) {
        let line = section.entry("auth").map_or(section.line, |entry| entry.line);
        let message = format!("`auth` and `headers` both set `{name}`; keep one");
        reader.error(line, &section.path, message);
    }
}

/// Names of the headers that an authentication method sets.
/// Empty for an API key in the query or in a cookie.
fn header_names(auth: &Auth) -> Vec<&str> {
    match auth {
        Auth::Bearer(_) | Auth::Basic { .. } | Auth::Oauth2 { .. } => vec!["Authorization"],
        // The document has the name.
        Auth::ApiKey { name, .. } if name.is_empty() => Vec::new(),
        Auth::ApiKey { name, location: Some(KeyLocation::Header) | None, .. } => vec![name],
        Auth::ApiKey { location: Some(KeyLocation::Query | KeyLocation::Cookie), .. } => Vec::new(),
        Auth::Schemes(schemes) => schemes.values().flat_map(header_names).collect(),
    }
}

/// Reads one authentication method: a map with exactly one of the allowed keys.
/// Methods of another kind of source are recognised too, so that the message can say where they belong.
fn read_auth(reader: &mut ConfigReader<'_>, node: &ConfigNode, path: &str, allowed: AuthMethods) -> Option<Auth> {
    let section = reader.as_section(node, path)?;
    reader.report_unknown_keys(&section, &AUTH_METHOD_KEYS);
    let present: Vec<&str> = AUTH_METHOD_KEYS.into_iter().filter(|method| section.has(method)).collect();
    let method = match present.as_slice() {
        [method] => *method,
        [] => {
            reader.error(section.line, path, format!("needs one of {}", format_alternatives(allowed.keys())));
            return None;
        }
        [first, second, ..] => {
            reader.error(section.line, path, format!("`{first}` and `{second}` are mutually exclusive; keep one"));
            return None;
        }
    };
    let node = section.get(method)?;
    let path = join_key(path, method);
    if !allowed.keys().contains(&method) {
        reader.error(node.line, &path, allowed.rejection_message());
        return None;
    }
    match method {
        "bearer" => {
            let token = reader.read_scalar(node, &path)?;
            check_header_value(reader, node.line, &path, &token);
            Some(Auth::Bearer(token))
        }
        "basic" => read_basic(reader, node, &path),
        "api_key" => read_api_key(reader, node, &path, allowed),
        "oauth2" => read_oauth2(reader, node, &path),
        _ => read_schemes(reader, node, &path),
    }
}

impl AuthMethods {
    /// Returns the allowed keys.
    fn keys(self) -> &'static [&'static str] {
        match self {
            AuthMethods::Static => &AUTH_METHOD_KEYS[..3],
            AuthMethods::WithOauth2 => &AUTH_METHOD_KEYS[..4],
            AuthMethods::All => &AUTH_METHOD_KEYS,
        }
    }

    /// Explains why a method of another kind of source is not allowed here.
    fn rejection_message(self) -> &'static str {
        match self {
            AuthMethods::Static => "belongs to a source with `openapi`; beside `url` use `bearer` with a token",
            AuthMethods::WithOauth2 | AuthMethods::All => {
                "cannot be nested in `schemes`; list the schemes side by side"
            }
        }
    }
}

/// Reads a map of scheme names to authentication methods.
/// Whether the document has these schemes is known only when it is read. A scheme with an error is left out.
fn read_schemes(reader: &mut ConfigReader<'_>, node: &ConfigNode, path: &str) -> Option<Auth> {
    let section = reader.as_section(node, path)?;
    if section.entries.is_empty() {
        reader.error(section.line, path, "lists no scheme; use the names under `securitySchemes` in the document");
        return None;
    }
    let mut schemes = BTreeMap::new();
    for entry in section.entries {
        if let Some(auth) = read_auth(reader, &entry.node, &join_key(path, &entry.key), AuthMethods::WithOauth2) {
            schemes.insert(entry.key.clone(), auth);
        }
    }
    Some(Auth::Schemes(schemes))
}

/// Reads the OAuth 2.0 client credentials grant. Without `token_url`, the document has it.
fn read_oauth2(reader: &mut ConfigReader<'_>, node: &ConfigNode, path: &str) -> Option<Auth> {
    let section = reader.as_section(node, path)?;
    reader.report_unknown_keys(&section, &["token_url", "client_id", "client_secret", "scopes"]);
    // All keys are read before the first `?`, so that one pass reports all missing ones.
    let token_url =
        if section.has("token_url") { read_required(reader, &section, "token_url") } else { Some(String::new()) };
    let client_id = read_required(reader, &section, "client_id");
    let client_secret = read_required(reader, &section, "client_secret");
    let scopes = read_scopes(reader, &section);
    if let (Some(url), Some(node)) = (&token_url, section.get("token_url"))
        && let Some(message) = url_check::find_url_error(url)
    {
        reader.error(node.line, &join_key(path, "token_url"), message);
    }
    Some(Auth::Oauth2 { token_url: token_url?, client_id: client_id?, client_secret: client_secret?, scopes })
}

/// Reads `scopes`: a list, or one text with spaces in between as in OAuth 2.0.
fn read_scopes(reader: &mut ConfigReader<'_>, section: &Section<'_>) -> Vec<String> {
    match section.get("scopes").and_then(ConfigNode::as_text) {
        Some(_) => {
            let text = reader.read_resolved_text(section, "scopes").unwrap_or_default();
            text.split_whitespace().map(str::to_owned).collect()
        }
        None => reader.read_resolved_list(section, "scopes"),
    }
}

/// Reads HTTP basic authentication.
fn read_basic(reader: &mut ConfigReader<'_>, node: &ConfigNode, path: &str) -> Option<Auth> {
    let section = reader.as_section(node, path)?;
    reader.report_unknown_keys(&section, &["user", "password"]);
    let user = read_required(reader, &section, "user");
    let password = read_required(reader, &section, "password");
    Some(Auth::Basic { user: user?, password: password? })
}

/// Reads an API key. Beside `openapi`, name and place may be left to the document; elsewhere the place is a header unless
/// `in` says otherwise. Name and value are checked for the place where they are sent, as far as it is known.
fn read_api_key(reader: &mut ConfigReader<'_>, node: &ConfigNode, path: &str, allowed: AuthMethods) -> Option<Auth> {
    let has_document = allowed != AuthMethods::Static;
    if has_document && !matches!(node.value, NodeValue::Map(_) | NodeValue::Null) {
        let value = reader.read_scalar(node, path)?;
        return Some(Auth::ApiKey { name: String::new(), location: None, value });
    }
    let section = reader.as_section(node, path)?;
    reader.report_unknown_keys(&section, &["name", "in", "value"]);
    let is_named = !has_document || section.has("name");
    let name = if is_named { read_required(reader, &section, "name") } else { Some(String::new()) };
    let value = read_required(reader, &section, "value");
    let location = match section.get("in") {
        Some(node) => {
            let places = KeyLocation::ALL.map(|location| (location.as_str(), location));
            Some(reader.read_choice(node, &join_key(path, "in"), &places)?)
        }
        None => Some(KeyLocation::Header).filter(|_| !has_document),
    };
    let name = name?;
    let value = value?;
    let name_path = join_key(path, "name");
    match location {
        Some(KeyLocation::Header) if is_named => check_header_name(reader, section.line, &name_path, &name),
        Some(KeyLocation::Cookie) => check_header_value(reader, section.line, &name_path, &name),
        // A query parameter may contain any characters.
        Some(KeyLocation::Header | KeyLocation::Query) | None => {}
    }
    if location != Some(KeyLocation::Query) {
        check_header_value(reader, section.line, &join_key(path, "value"), &value);
    }
    Some(Auth::ApiKey { name, location, value })
}

/// Reads a required scalar and reports it if it is missing.
fn read_required(reader: &mut ConfigReader<'_>, section: &Section<'_>, key: &str) -> Option<String> {
    match section.get(key) {
        Some(node) => reader.read_scalar(node, &join_key(&section.path, key)),
        None => {
            reader.error(section.line, &section.path, format!("needs `{key}`"));
            None
        }
    }
}
