//! Determines where requests go: the server of an operation, its path item or the document, with variables filled in.
//!
//! `base_url` of the declaration overrides all of this at a call. Where a document comes from a URL, relative servers
//! resolve against it, as the specification says; a document in a file has no such base.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use toolcrib_core::json::plain_text;
use toolcrib_core::source::OpenApiSource;
use toolcrib_core::text::sanitize_truncated;
use url::Url;

use super::convert::{OperationRef, SpecVersion};
use super::document_set::NodeRef;

/// Maximum length of a server URL; longer ones are ignored. Every operation keeps a copy.
const MAX_URL_LEN: usize = 8 * 1024;
/// Maximum number of servers of a list to read. Only the first usable one is called; the others are listed as origins.
const MAX_SERVERS: usize = 100;

/// Servers of a document.
#[derive(Debug)]
pub(super) struct Servers<'a> {
    /// URL of the document, which relative server URLs resolve against.
    document: &'a Url,
    /// Server of operations without their own.
    default_server: String,
    /// Values from the declaration of the source, which override the defaults of the document.
    variables: &'a BTreeMap<String, String>,
    /// The URL of the document contains a `${…}` reference, whose value must not appear in a tool.
    has_secret_url: bool,
}

impl<'a> Servers<'a> {
    /// Determines the default server of a document.
    pub(super) fn new(
        document: &'a Url,
        root: NodeRef<'a>,
        version: SpecVersion,
        openapi: &'a OpenApiSource,
    ) -> Servers<'a> {
        let variables = &openapi.variables;
        let has_secret_url = openapi.document.contains("${");
        let mut servers = Servers { document, default_server: String::new(), variables, has_secret_url };
        // Filled last, because resolving it needs the other fields.
        servers.default_server = match version {
            SpecVersion::Swagger2 => servers.swagger_server(root.value),
            SpecVersion::OpenApi3 => servers.first_server(root.value).unwrap_or_else(|| servers.to_absolute("/")),
        };
        servers
    }

    /// Returns the origins of all servers that a part of the document lists, including unused ones.
    pub(super) fn origins(&self, value: &Value) -> BTreeSet<String> {
        let declared = value.get("servers").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        let declared = declared.iter().take(MAX_SERVERS).filter_map(|server| self.server_url(server));
        declared.filter_map(|url| origin(&url)).collect()
    }

    /// Returns the origin of the default server.
    pub(super) fn default_origin(&self) -> Option<String> {
        origin(&self.default_server)
    }

    /// Returns the server of an operation without a trailing slash. Empty if a document in a file names none.
    pub(super) fn server_for(&self, operation_ref: &OperationRef<'a>) -> String {
        let server = self
            .first_server(operation_ref.operation.value)
            .or_else(|| self.first_server(operation_ref.path_item.value));
        server.unwrap_or_else(|| self.default_server.clone())
    }

    /// Returns a warning if there is no server, or if one of several was selected.
    pub(super) fn warning(&self, root: &Value) -> Option<String> {
        let declared = root.get("servers").and_then(Value::as_array).map_or(0, Vec::len);
        let is_relative = || Url::parse(&self.default_server).is_err();
        if self.document.scheme() == "file" && (self.default_server.is_empty() || is_relative()) {
            return Some("the document is a file without an absolute server URL; set `base_url`".into());
        }
        let mut urls = root.get("servers").and_then(Value::as_array).into_iter().flatten().filter_map(declared_url);
        if urls.any(has_login) {
            return Some("a server URL contains credentials, which are not sent; configure them with `auth`".into());
        }
        let selected = sanitize_truncated(&self.default_server, 120);
        (declared > 1).then(|| {
            format!("the document names {declared} servers; requests go to `{selected}`; set `base_url` to use another")
        })
    }

    /// Returns the URL of the first usable server of a list.
    fn first_server(&self, value: &Value) -> Option<String> {
        let servers = value.get("servers")?.as_array()?;
        let servers = &servers[..servers.len().min(MAX_SERVERS)];
        // A URL relative to a file cannot be reached, so an absolute one is preferred.
        let is_file = self.document.scheme() == "file";
        let is_absolute = |server: &&Value| declared_url(server).is_some_and(|url| url.contains("://"));
        let server = servers.iter().find(|server| is_file && is_absolute(server));
        self.server_url(server.or_else(|| servers.iter().find(|server| declared_url(server).is_some()))?)
    }

    /// Returns the absolute URL of a server with its variables filled in.
    fn server_url(&self, server: &Value) -> Option<String> {
        let mut url = declared_url(server)?.to_owned();
        // `${…}` references are left out: they may be secrets, and the document decides which variables it uses.
        for (name, value) in self.variables.iter().filter(|(_, value)| !value.contains("${")) {
            url = url.replace(&format!("{{{name}}}"), value);
        }
        Some(self.to_absolute(&fill_variables(&url, server)?))
    }

    /// Returns the server of Swagger 2.0, from `schemes`, `host` and `basePath`.
    fn swagger_server(&self, root: &Value) -> String {
        let text = |key: &str| root.get(key).and_then(Value::as_str).filter(|text| !text.is_empty());
        let base = text("basePath").unwrap_or("/");
        let Some(host) = text("host") else { return self.to_absolute(base) };
        // Some documents have a whole URL in `host`.
        let (host_scheme, host) = host.split_once("://").map_or((None, host), |(scheme, host)| (Some(scheme), host));
        let schemes = root.get("schemes").and_then(Value::as_array);
        let schemes: Vec<&str> = schemes.into_iter().flatten().filter_map(Value::as_str).collect();
        // HTTPS is preferred; `ws` and `wss` cannot be used for requests.
        let document_scheme = Some(self.document.scheme()).filter(|scheme| matches!(*scheme, "http" | "https"));
        let declared_scheme = ["https", "http"].into_iter().find(|scheme| schemes.contains(scheme));
        let scheme = host_scheme.or(declared_scheme).or(document_scheme).unwrap_or("https");
        let host = host.trim_end_matches('/');
        self.to_absolute(&format!("{scheme}://{host}/{}", base.trim_start_matches('/')))
    }

    /// Resolves a URL against the one of the document and trims trailing slashes.
    fn to_absolute(&self, url: &str) -> String {
        let url = url.trim();
        let joined = match Url::parse(url) {
            Ok(_) => url.to_owned(),
            // Nothing to resolve against. `/` alone says no more than an empty URL.
            Err(_) if self.document.scheme() == "file" => match url {
                "" | "/" => String::new(),
                relative => relative.to_owned(),
            },
            // Stays relative: the connector resolves it against the document's URL when sending.
            Err(_) if self.has_secret_url && matches!(url, "" | "/") => return "/".to_owned(),
            Err(_) if self.has_secret_url => url.to_owned(),
            Err(_) => self.document.join(url).map(String::from).unwrap_or_else(|_| url.to_owned()),
        };
        strip_login(joined.trim_end_matches('/'))
    }
}

/// Removes the login from a URL (`https://user:password@host`). Credentials are configured, not taken from a document.
fn strip_login(url: &str) -> String {
    // By hand, because a URL with a variable cannot be parsed.
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_owned() };
    let end = rest.find(['/', '?', '#', '\\']).unwrap_or(rest.len());
    match rest[..end].rfind('@') {
        Some(login) => format!("{scheme}://{}", &rest[login + 1..]),
        None => url.to_owned(),
    }
}

/// Returns whether a server URL of the document has a login.
fn has_login(url: &str) -> bool {
    strip_login(url) != url
}

/// Returns the `url` of a server, unless it is too long.
fn declared_url(server: &Value) -> Option<&str> {
    server.get("url").and_then(Value::as_str).filter(|url| url.len() <= MAX_URL_LEN)
}

/// Returns scheme, host and port of a server. `None` for a relative URL, which only `base_url` can complete.
fn origin(server: &str) -> Option<String> {
    if let Ok(url) = Url::parse(server) {
        return Some(url.origin().ascii_serialization());
    }
    // The URL contains a variable without a value.
    let (scheme, rest) = server.split_once("://")?;
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    Some(format!("{scheme}://{authority}").to_ascii_lowercase())
}

/// Fills in the defaults of variables in one pass: a default that names other variables could double the URL at each of
/// them. `None` if the result is too long.
fn fill_variables(url: &str, server: &Value) -> Option<String> {
    let default = |name: &str| {
        let variable = server.get("variables")?.get(name)?;
        match variable.get("default") {
            Some(text @ (Value::String(_) | Value::Number(_))) => Some(plain_text(text).into_owned()),
            Some(Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_)) | None => {
                // Some documents have an `enum` without the required default.
                variable.get("enum").and_then(|choices| choices.get(0)?.as_str().map(str::to_owned))
            }
        }
    };
    let mut filled = String::new();
    let mut rest = url;
    while filled.len() <= MAX_URL_LEN
        && let Some((before, after)) = rest.split_once('{')
    {
        filled.push_str(before);
        // A brace that is not closed before the next one is literal.
        let end = after.find(['{', '}']).filter(|end| after[*end..].starts_with('}'));
        match end.and_then(|end| Some((default(&after[..end])?, end))) {
            Some((value, end)) => {
                filled.push_str(&value);
                rest = &after[end + 1..];
            }
            None => {
                filled.push('{');
                rest = after;
            }
        }
    }
    filled.push_str(rest);
    (filled.len() <= MAX_URL_LEN).then_some(filled)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn server(document: &str, root: Value, operation: Value) -> String {
        let variables = BTreeMap::from([("region".into(), "eu".into()), ("key".into(), "${env:KEY}".into())]);
        let openapi = OpenApiSource { document: document.into(), variables, ..OpenApiSource::default() };
        let document = Url::parse(&document.replace("${env:KEY}", "k3y")).unwrap();
        let version = if root.get("swagger").is_some() { SpecVersion::Swagger2 } else { SpecVersion::OpenApi3 };
        let node = |value| NodeRef { value, document_url: "" };
        let empty = json!({});
        let servers = Servers::new(&document, node(&root), version, &openapi);
        let operation_ref = OperationRef {
            method: "GET".into(),
            path: "/",
            pointer: String::new(),
            path_item: NodeRef { value: &empty, document_url: "" },
            operation: NodeRef { value: &operation, document_url: "" },
        };
        // All borrowed values have the same lifetime here.
        servers.server_for(&operation_ref)
    }

    #[test]
    fn the_nearest_server_applies_and_its_variables_are_filled() {
        let servers = |url: &str| json!({ "servers": [{ "url": url }, { "url": "https://second" }] });
        let web = "https://h/docs/openapi.json";
        for (document, root, operation, expected) in [
            (web, servers("https://a/v1/"), json!({}), "https://a/v1"),
            (web, servers("https://a/v1/"), servers("https://b"), "https://b"),
            (web, servers("/api"), json!({}), "https://h/api"),
            (web, servers("v2"), json!({}), "https://h/docs/v2"),
            (web, json!({}), json!({}), "https://h"),
            ("https://h/${env:KEY}/api.json", servers("v2/"), json!({}), "v2"),
            ("https://h/${env:KEY}/api.json", servers("/"), json!({}), "/"),
            ("https://h/${env:KEY}/api.json", json!({}), json!({}), "/"),
            ("https://h/${env:KEY}/api.json", servers("https://a/v1"), json!({}), "https://a/v1"),
            ("file:///x/a.yaml", json!({}), json!({}), ""),
            ("file:///x/a.yaml", json!({ "servers": [{ "url": "/api/" }] }), json!({}), "/api"),
            (web, json!({ "swagger": "2.0" }), json!({}), "https://h"),
            (
                web,
                json!({ "swagger": "2.0", "host": "a:1", "basePath": "/b", "schemes": ["ws", "http"] }),
                json!({}),
                "http://a:1/b",
            ),
            ("http://h/x", json!({ "swagger": "2.0", "host": "a" }), json!({}), "http://a"),
            (web, json!({ "swagger": "2.0", "host": "https://a/", "basePath": "v1" }), json!({}), "https://a/v1"),
            (web, servers("https://{region}.b"), json!({}), "https://eu.b"),
            (web, servers("https://user:pw@{region}.b/@x"), json!({}), "https://eu.b/@x"),
            (web, servers("https://u:p@{other}.b"), json!({}), "https://{other}.b"),
            ("https://user:pw@h/docs/api.json", servers("/v1"), json!({}), "https://h/v1"),
            (web, json!({ "swagger": "2.0", "host": "user:pw@a" }), json!({}), "https://a"),
            ("file:///x", json!({ "servers": [{ "url": "/" }, { "url": "https://c" }] }), json!({}), "https://c"),
        ] {
            assert_eq!(server(document, root.clone(), operation), expected, "{root}");
        }
        let variables = json!({ "region": { "default": "us" }, "v": { "default": 2 }, "key": { "default": "none" } });
        let root = json!({ "servers": [{ "url": "https://{region}.a/{v}/{key}", "variables": variables }] });
        assert_eq!(server(web, root, json!({})), "https://eu.a/2/none");
    }

    #[test]
    fn the_origin_of_a_server_is_without_its_path() {
        for (server, expected) in [
            ("https://Api.example/v1", Some("https://api.example")),
            ("http://u:p@h:8080/v1?x", Some("http://h:8080")),
            ("https://{region}.h/v1", Some("https://{region}.h")),
            ("/v1", None),
            ("", None),
        ] {
            assert_eq!(origin(server).as_deref(), expected, "{server}");
        }
    }

    #[test]
    fn defaults_that_name_other_variables_do_not_grow() {
        let default = |n: usize| json!({ "default": format!("{{v{}}}{{v{}}}", n + 1, n + 1) });
        let variables: serde_json::Map<String, Value> = (0..60).map(|n| (format!("v{n}"), default(n))).collect();
        let root = |url: &str| json!({ "servers": [{ "url": url, "variables": variables }] });
        assert_eq!(server("https://h/x", root("https://a/{v0}"), json!({})), "https://a/{v1}{v1}");
        let long = json!({ "long": { "default": "x".repeat(8_000) } });
        let root = json!({ "servers": [{ "url": "https://a/{long}{long}", "variables": long }] });
        assert_eq!(server("https://h/x", root, json!({})), "https://h");
    }
}
