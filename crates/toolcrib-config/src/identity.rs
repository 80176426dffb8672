//! Key `identity`: which clients are admitted without a token, and whose access tokens (JWT) are accepted. Also the key
//! `public_url`, by which identity providers and MCP clients know this server.
//!
//! ```text
//! identity:
//!   loopback: owner
//!   issuers:
//!     - { issuer: "https://id.example.com/realms/acme", roles: { claim: realm_access.roles, agent: toolcrib-agent } }
//! public_url: "https://tools.example.com"
//! ```
//!
//! Tokens themselves are verified by the server crate. An algorithm that this module accepts is one that the server can
//! verify with a public key: `none` and the algorithms with a shared secret are errors, not options.

use std::time::Duration;

use serde_json::{Map, Value, json};
use toolcrib_core::access::Role;
use toolcrib_core::name_variants;
use toolcrib_core::time::format_duration;
use url::{Host, Url};

use super::path;
use super::reader::{ConfigReader, Section, ZeroDuration, format_alternatives};
use super::source_keys::{Secrets, url_text};
use super::syntax::{ConfigNode, NodeValue, join_key};
use super::url_check::has_scheme;

/// How clients are identified (key `identity`).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Identity {
    pub loopback: LoopbackAccess,
    /// Identity providers whose access tokens are accepted, each with another `issuer`.
    pub issuers: Vec<IssuerConfig>,
}

/// Local processes that may connect without a token, ordered from permissive to strict.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum LoopbackAccess {
    /// Every local process.
    Open,
    /// Processes of the same user and of root, except those that Toolcrib itself started.
    #[default]
    Owner,
    /// None: every client needs a token.
    Token,
}

// The default first, as messages list them.
name_variants!(LoopbackAccess { Owner => "owner", Open => "open", Token => "token" });

/// An identity provider (item of `identity.issuers`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IssuerConfig {
    /// Exact value of the claim `iss`: an address without query and fragment, or any text unless `jwks` is
    /// [`JwksLocation::Auto`].
    pub issuer: String,
    /// Exact value in the claim `aud`; `None` for the address of the MCP endpoint ([`Config::public_url`](crate::Config)).
    pub audience: Option<String>,
    /// Where the public keys of the provider are.
    pub jwks: JwksLocation,
    /// Algorithms that a token may be signed with; never empty.
    pub algorithms: Vec<JwtAlgorithm>,
    /// How claims become a role.
    pub roles: RoleMapping,
    /// Tolerated difference between the clocks of the provider and of this machine.
    pub leeway: Duration,
}

/// Where the public keys of an identity provider are (key `jwks`).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum JwksLocation {
    /// At the address in the metadata of the provider.
    #[default]
    Auto,
    /// At this address: https, or http on loopback.
    Url(Url),
    /// In a file with this absolute path.
    File(String),
}

/// Signature algorithms of access tokens: those with a public key that the server can verify.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JwtAlgorithm {
    Rs256,
    Rs384,
    Rs512,
    Ps256,
    Ps384,
    Ps512,
    Es256,
    Es384,
    EdDsa,
}

name_variants!(JwtAlgorithm {
    Rs256 => "RS256",
    Rs384 => "RS384",
    Rs512 => "RS512",
    Ps256 => "PS256",
    Ps384 => "PS384",
    Ps512 => "PS512",
    Es256 => "ES256",
    Es384 => "ES384",
    EdDsa => "EdDSA",
});

/// How the claims of a token become a role (key `roles`). Each role has the values of the claim that grant it; the highest
/// role that matches is granted.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RoleMapping {
    /// Keys that lead to the claim, such as `realm_access` and `roles`; empty if there is none.
    pub claim: Vec<String>,
    pub admin: Vec<String>,
    pub agent: Vec<String>,
    pub viewer: Vec<String>,
    /// Role of a token that matches none of them; `None` refuses it.
    pub default: Option<Role>,
}

/// Returns the highest role that the claims give, or the default.
pub fn find_role(mapping: &RoleMapping, claims: &Map<String, Value>) -> Option<Role> {
    let roles = [(Role::Admin, &mapping.admin), (Role::Agent, &mapping.agent), (Role::Viewer, &mapping.viewer)];
    let values = find_claim(&mapping.claim, claims);
    let matches = |expected: &[String]| {
        values.is_some_and(|values| expected.iter().any(|expected| has_value(&mapping.claim, values, expected)))
    };
    roles.into_iter().find(|(_, expected)| matches(expected)).map(|(role, _)| role).or(mapping.default)
}

/// Returns the claim at a path.
fn find_claim<'c>(path: &[String], claims: &'c Map<String, Value>) -> Option<&'c Value> {
    let (first, rest) = path.split_first()?;
    rest.iter().try_fold(claims.get(first)?, |value, key| value.get(key))
}

/// Whether a claim is or contains a text. Only `scope` is a list of words in one text (RFC 8693); anywhere else a text
/// with spaces is one value.
fn has_value(path: &[String], values: &Value, expected: &str) -> bool {
    let is_scope = path.last().is_some_and(|name| name == "scope");
    match values {
        Value::String(words) if is_scope => words.split_ascii_whitespace().any(|word| word == expected),
        Value::String(text) => text == expected,
        Value::Array(items) => items.iter().any(|item| item.as_str() == Some(expected)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => false,
    }
}

/// Keys of the section `identity`.
pub(super) const IDENTITY_KEYS: [&str; 2] = ["loopback", "issuers"];
/// Keys of an item of `identity.issuers`.
pub(super) const ISSUER_KEYS: [&str; 6] = ["issuer", "audience", "jwks", "algorithms", "roles", "leeway"];
/// Keys of `roles` of an issuer.
pub(super) const ROLES_KEYS: [&str; 5] = ["claim", "admin", "agent", "viewer", "default"];

/// Algorithms of an issuer that does not name any.
const DEFAULT_ALGORITHMS: [JwtAlgorithm; 3] = [JwtAlgorithm::Rs256, JwtAlgorithm::Es256, JwtAlgorithm::EdDsa];
/// Leeway of an issuer that does not set it.
pub(super) const DEFAULT_LEEWAY: Duration = Duration::from_secs(30);
/// Maximum leeway. A longer one would keep expired tokens in use instead of covering for clocks.
const MAX_LEEWAY: Duration = Duration::from_secs(600);

/// Reads `identity`.
pub(super) fn read_identity(reader: &mut ConfigReader<'_>, section: &Section<'_>) -> Identity {
    reader.report_unknown_keys(section, &IDENTITY_KEYS);
    let choices = LoopbackAccess::ALL.map(|loopback| (loopback.as_str(), loopback));
    Identity {
        loopback: reader.read_choice_at(section, "loopback", &choices).unwrap_or_default(),
        issuers: read_issuers(reader, section),
    }
}

/// Reads `public_url` as text without a slash at its end.
pub(super) fn read_public_url(reader: &mut ConfigReader<'_>, section: &Section<'_>) -> Option<String> {
    let line = section.get("public_url")?.line;
    let text = reader.read_resolved_text(section, "public_url")?;
    let url = match parse_url(&text, UrlQuery::Rejected) {
        Ok(url) => url,
        Err(reason) => {
            reader.error(line, "public_url", reason);
            return None;
        }
    };
    if !is_https_or_loopback(&url) {
        reader.warn(
            line,
            "public_url",
            "begins with `http://`, so tokens of clients elsewhere can be read on their way",
        );
    }
    Some(url.as_str().trim_end_matches('/').to_owned())
}

fn read_issuers(reader: &mut ConfigReader<'_>, section: &Section<'_>) -> Vec<IssuerConfig> {
    let Some(node) = section.get("issuers") else { return Vec::new() };
    let path = join_key(&section.path, "issuers");
    let NodeValue::List(items) = &node.value else {
        reader.type_error("a list", node, &path);
        return Vec::new();
    };
    let mut issuers: Vec<IssuerConfig> = Vec::new();
    for (index, item) in items.iter().enumerate() {
        let path = format!("{path}[{index}]");
        let Some(section) = reader.as_section(item, &path) else { continue };
        let Some(issuer) = read_issuer(reader, &section) else { continue };
        if issuers.iter().any(|known| known.issuer == issuer.issuer) {
            reader.error(item.line, &join_key(&path, "issuer"), format!("`{}` is listed twice", issuer.issuer));
            continue;
        }
        issuers.push(issuer);
    }
    issuers
}

/// Reads one issuer; `None` without a valid address, which is reported.
fn read_issuer(reader: &mut ConfigReader<'_>, section: &Section<'_>) -> Option<IssuerConfig> {
    reader.report_unknown_keys(section, &ISSUER_KEYS);
    let audience = reader.read_resolved_text(section, "audience");
    let jwks = read_jwks(reader, section);
    let algorithms = read_algorithms(reader, section);
    let roles = read_roles(reader, section);
    let leeway = read_leeway(reader, section);
    let path = join_key(&section.path, "issuer");
    let Some(node) = section.get("issuer") else {
        reader.error(section.line, &path, "is missing; it is the claim `iss` of the provider's tokens");
        return None;
    };
    let issuer = reader.read_resolved_text(section, "issuer")?;
    if let Err(reason) = check_issuer(&issuer, &jwks) {
        reader.error(node.line, &path, reason);
        return None;
    }
    Some(IssuerConfig { issuer, audience, jwks, algorithms, roles, leeway })
}

/// Checks an issuer. It has to be an address only if its metadata is read from there; otherwise it is compared as text.
fn check_issuer(issuer: &str, jwks: &JwksLocation) -> Result<(), &'static str> {
    match jwks {
        JwksLocation::Auto => parse_secure_url(issuer, UrlQuery::Rejected).map(drop),
        JwksLocation::Url(_) | JwksLocation::File(_) if issuer.is_empty() => Err("is empty"),
        JwksLocation::Url(_) | JwksLocation::File(_) => Ok(()),
    }
}

/// Reads `jwks`: the word `auto`, an address, or a path relative to the file.
fn read_jwks(reader: &mut ConfigReader<'_>, section: &Section<'_>) -> JwksLocation {
    let Some(node) = section.get("jwks") else { return JwksLocation::Auto };
    let Some(text) = reader.read_resolved_text(section, "jwks") else { return JwksLocation::Auto };
    let key = join_key(&section.path, "jwks");
    if text == "auto" {
        return JwksLocation::Auto;
    }
    if !has_scheme(&text) {
        let path = path::to_absolute(reader.base_dir, &text);
        // `~` has become a reference.
        return reader.resolve_text(path, node.line, &key).map(JwksLocation::File).unwrap_or_default();
    }
    match parse_secure_url(&text, UrlQuery::Allowed) {
        Ok(url) => JwksLocation::Url(url),
        Err(reason) => {
            reader.error(node.line, &key, reason);
            JwksLocation::Auto
        }
    }
}

fn read_algorithms(reader: &mut ConfigReader<'_>, section: &Section<'_>) -> Vec<JwtAlgorithm> {
    let Some(node) = section.get("algorithms") else { return DEFAULT_ALGORITHMS.to_vec() };
    let path = join_key(&section.path, "algorithms");
    let mut algorithms = Vec::new();
    for name in reader.read_resolved_list(section, "algorithms") {
        match JwtAlgorithm::parse(&name) {
            Some(algorithm) if !algorithms.contains(&algorithm) => algorithms.push(algorithm),
            Some(_) => {}
            None => reader.error(node.line, &path, describe_unknown_algorithm(&name)),
        }
    }
    if matches!(&node.value, NodeValue::List(items) if items.is_empty()) {
        reader.error(node.line, &path, "is empty, so that no token could be verified");
    }
    algorithms
}

/// Says why an algorithm is not accepted. Those that are left out on purpose have a reason of their own.
fn describe_unknown_algorithm(name: &str) -> String {
    let known = format_alternatives(&JwtAlgorithm::ALL.map(JwtAlgorithm::as_str));
    if name.eq_ignore_ascii_case("none") {
        return format!("`{name}` would accept tokens without a signature; expected {known}");
    }
    if name.get(..2).is_some_and(|prefix| prefix.eq_ignore_ascii_case("HS")) {
        return format!("`{name}` needs a secret that the provider shares with this server; expected {known}");
    }
    format!("expected {known}, found `{name}`")
}

fn read_leeway(reader: &mut ConfigReader<'_>, section: &Section<'_>) -> Duration {
    let leeway = reader.read_duration(section, "leeway", ZeroDuration::Allowed).unwrap_or(DEFAULT_LEEWAY);
    if leeway > MAX_LEEWAY {
        let line = section.get("leeway").map_or(section.line, |node| node.line);
        reader.error(line, &join_key(&section.path, "leeway"), "must be at most ten minutes; write `10m` or less");
    }
    leeway
}

/// Reads `roles` of an issuer. Warns if no token of the issuer could get a role.
fn read_roles(reader: &mut ConfigReader<'_>, section: &Section<'_>) -> RoleMapping {
    let path = join_key(&section.path, "roles");
    let null = ConfigNode::null(section.line);
    let node = section.get("roles").unwrap_or(&null);
    let Some(roles) = reader.as_section(node, &path) else { return RoleMapping::default() };
    reader.report_unknown_keys(&roles, &ROLES_KEYS);
    let defaults =
        [("none", None), ("viewer", Some(Role::Viewer)), ("agent", Some(Role::Agent)), ("admin", Some(Role::Admin))];
    let mapping = RoleMapping {
        claim: read_claim_path(reader, &roles),
        admin: read_role_values(reader, &roles, "admin"),
        agent: read_role_values(reader, &roles, "agent"),
        viewer: read_role_values(reader, &roles, "viewer"),
        default: reader.read_choice_at(&roles, "default", &defaults).flatten(),
    };
    let has_values = !(mapping.admin.is_empty() && mapping.agent.is_empty() && mapping.viewer.is_empty());
    if has_values && !roles.has("claim") {
        reader.error(node.line, &join_key(&path, "claim"), "is missing; it names the claim that has these values");
    } else if !has_values && mapping.default.is_none() {
        reader.warn(node.line, &path, "no token of this issuer gets a role; set `claim` with `agent`, or `default`");
    }
    mapping
}

/// Reads the values of a claim that grant a role: a text, or a list of texts.
fn read_role_values(reader: &mut ConfigReader<'_>, section: &Section<'_>, key: &str) -> Vec<String> {
    match section.get(key).map(|node| &node.value) {
        Some(NodeValue::List(_)) => reader.read_resolved_list(section, key),
        Some(_) => reader.read_resolved_text(section, key).into_iter().collect(),
        None => Vec::new(),
    }
}

/// Reads `claim`: keys separated by dots; `\.` is a dot inside a key.
fn read_claim_path(reader: &mut ConfigReader<'_>, section: &Section<'_>) -> Vec<String> {
    let Some(text) = reader.read_resolved_text(section, "claim") else { return Vec::new() };
    let keys = split_claim_path(&text);
    if keys.iter().any(String::is_empty) {
        let line = section.get("claim").map_or(section.line, |node| node.line);
        let message = "has an empty part; write a dot inside a key as `\\.`";
        reader.error(line, &join_key(&section.path, "claim"), message);
    }
    keys
}

fn split_claim_path(text: &str) -> Vec<String> {
    let mut keys = Vec::new();
    let mut key = String::new();
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '\\' if letters.next_if_eq(&'.').is_some() => key.push('.'),
            '.' => keys.push(std::mem::take(&mut key)),
            letter => key.push(letter),
        }
    }
    keys.push(key);
    keys
}

/// Whether an address may have a query.
#[derive(Clone, Copy, PartialEq, Eq)]
enum UrlQuery {
    Allowed,
    Rejected,
}

/// Parses an address from which keys are read.
fn parse_secure_url(text: &str, query: UrlQuery) -> Result<Url, &'static str> {
    let url = parse_url(text, query)?;
    if !is_https_or_loopback(&url) {
        return Err("must begin with `https://`; `http://` is accepted for loopback addresses only");
    }
    Ok(url)
}

/// Parses an address of a provider or of this server. The error does not quote it, since it may contain a password.
fn parse_url(text: &str, query: UrlQuery) -> Result<Url, &'static str> {
    // The parser would strip or escape them, and `iss` is compared as text.
    if text.chars().any(|letter| letter.is_control() || letter.is_whitespace()) {
        return Err("a URL cannot contain spaces, line breaks or other control characters");
    }
    let url = Url::parse(text).map_err(|_| "expected a URL that begins with `https://`")?;
    if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
        return Err("expected a URL that begins with `https://`");
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("must not contain a user name or password");
    }
    if url.fragment().is_some() || (url.query().is_some() && query == UrlQuery::Rejected) {
        return Err("must not contain a query or a fragment");
    }
    Ok(url)
}

/// Whether what is read from an address can be trusted to come from there: over TLS, or from this machine.
pub fn is_https_or_loopback(url: &Url) -> bool {
    let is_loopback = match url.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    };
    url.scheme() == "https" || (url.scheme() == "http" && is_loopback)
}

impl IssuerConfig {
    /// Renders the issuer with the keys of a file, defaults included. The address of keys may contain one itself.
    pub(super) fn to_keys(&self, secrets: Secrets) -> Value {
        let mut keys = Map::from_iter([("issuer".to_owned(), json!(self.issuer))]);
        if let Some(audience) = &self.audience {
            keys.insert("audience".to_owned(), json!(audience));
        }
        let jwks = match &self.jwks {
            JwksLocation::Auto => "auto".to_owned(),
            JwksLocation::Url(url) => url_text(url.as_str(), secrets),
            JwksLocation::File(path) => path.clone(),
        };
        keys.insert("jwks".to_owned(), json!(jwks));
        keys.insert("algorithms".to_owned(), self.algorithms.iter().map(|algorithm| algorithm.as_str()).collect());
        keys.insert("roles".to_owned(), self.roles.to_keys());
        keys.insert("leeway".to_owned(), json!(format_duration(self.leeway)));
        keys.into()
    }
}

impl RoleMapping {
    fn to_keys(&self) -> Value {
        let mut keys = Map::new();
        if !self.claim.is_empty() {
            let claim: Vec<String> = self.claim.iter().map(|key| key.replace('.', "\\.")).collect();
            keys.insert("claim".to_owned(), json!(claim.join(".")));
        }
        for (key, values) in [("admin", &self.admin), ("agent", &self.agent), ("viewer", &self.viewer)] {
            if !values.is_empty() {
                keys.insert(key.to_owned(), json!(values));
            }
        }
        keys.insert("default".to_owned(), json!(self.default.map_or("none", Role::as_str)));
        keys.into()
    }
}
