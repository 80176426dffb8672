//! Where requests go: the servers of an operation, its path or the document, with their variables filled in.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use url::Url;

use super::convert::{OperationRef, SpecVersion};
use super::document_set::NodeRef;
use crate::source::OpenApiSource;
use crate::text::sanitize_truncated;

/// Longer addresses are none. Each operation pays for the length of its server's.
const MAX_URL_LEN: usize = 8 * 1024;
/// How many servers of a list are looked at.
const MAX_SERVERS: usize = 100;

#[derive(Debug)]
pub(super) struct Servers<'a> {
    document: &'a Url,
    default_server: String,
    variables: &'a BTreeMap<String, String>,
    /// A reference is part of the document's address, which is then for nobody to read.
    has_secret_url: bool,
}

impl<'a> Servers<'a> {
    pub(super) fn new(
        document: &'a Url,
        root: NodeRef<'a>,
        version: SpecVersion,
        openapi: &'a OpenApiSource,
    ) -> Servers<'a> {
        let variables = &openapi.variables;
        let confided = openapi.document.contains("${");
        let mut servers = Servers { document, default_server: String::new(), variables, has_secret_url: confided };
        servers.default_server = match version {
            SpecVersion::Swagger2 => servers.swagger_server(root.value),
            SpecVersion::OpenApi3 => servers.first_server(root.value).unwrap_or_else(|| servers.to_absolute("/")),
        };
        servers
    }

    /// The origins of all servers that a part of the document lists, also of those that are not taken.
    pub(super) fn origins(&self, value: &Value) -> BTreeSet<String> {
        let listed = value.get("servers").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        let listed = listed.iter().take(MAX_SERVERS).filter_map(|server| self.server_url(server));
        listed.filter_map(|address| origin(&address)).collect()
    }

    /// The origin of the server of operations that name none of their own.
    pub(super) fn default_origin(&self) -> Option<String> {
        origin(&self.default_server)
    }

    /// Without a slash at its end; empty where a document in a file names none.
    pub(super) fn server_for(&self, found: &OperationRef<'a>) -> String {
        let own = self.first_server(found.operation.value).or_else(|| self.first_server(found.path_item.value));
        own.unwrap_or_else(|| self.default_server.clone())
    }

    /// What whoever declares the source should know: that there is no server, or which of several is taken.
    pub(super) fn warning(&self, root: &Value) -> Option<String> {
        let listed = root.get("servers").and_then(Value::as_array).map_or(0, Vec::len);
        let relative = || Url::parse(&self.default_server).is_err();
        if self.document.scheme() == "file" && (self.default_server.is_empty() || relative()) {
            return Some(
                "the document names no server that can be reached from a file; `base_url` says where requests go"
                    .into(),
            );
        }
        let taken = sanitize_truncated(&self.default_server, 120);
        (listed > 1).then(|| {
            format!("the document names {listed} servers; requests go to `{taken}`, and `base_url` chooses another")
        })
    }

    fn first_server(&self, value: &Value) -> Option<String> {
        let servers = value.get("servers")?.as_array()?;
        let servers = &servers[..servers.len().min(MAX_SERVERS)];
        // From a file, nothing can be reached that is relative to it.
        let in_file = self.document.scheme() == "file";
        let absolute = |server: &&Value| declared_url(server).is_some_and(|url| url.contains("://"));
        let server = servers.iter().find(|server| in_file && absolute(server));
        self.server_url(server.or_else(|| servers.iter().find(|server| declared_url(server).is_some()))?)
    }

    /// The address of a server with its variables filled in.
    fn server_url(&self, server: &Value) -> Option<String> {
        let mut url = declared_url(server)?.to_owned();
        // A reference may be a secret, and a document could ask for any name.
        for (name, value) in self.variables.iter().filter(|(_, value)| !value.contains("${")) {
            url = url.replace(&format!("{{{name}}}"), value);
        }
        Some(self.to_absolute(&fill_variables(&url, server)?))
    }

    fn swagger_server(&self, root: &Value) -> String {
        let text = |key: &str| root.get(key).and_then(Value::as_str).filter(|text| !text.is_empty());
        let base = text("basePath").unwrap_or("/");
        let Some(host) = text("host") else { return self.to_absolute(base) };
        // Some write a whole address.
        let (stated, host) = host.split_once("://").map_or((None, host), |(scheme, host)| (Some(scheme), host));
        let schemes = root.get("schemes").and_then(Value::as_array);
        let schemes: Vec<&str> = schemes.into_iter().flatten().filter_map(Value::as_str).collect();
        let of_document = Some(self.document.scheme()).filter(|scheme| matches!(*scheme, "http" | "https"));
        let known = ["https", "http"].into_iter().find(|scheme| schemes.contains(scheme));
        let scheme = stated.or(known).or(of_document).unwrap_or("https");
        let host = host.trim_end_matches('/');
        self.to_absolute(&format!("{scheme}://{host}/{}", base.trim_start_matches('/')))
    }

    fn to_absolute(&self, url: &str) -> String {
        let url = url.trim();
        let joined = match Url::parse(url) {
            Ok(_) => url.to_owned(),
            Err(_) if self.document.scheme() == "file" => match url {
                "" | "/" => String::new(),
                relative => relative.to_owned(),
            },
            // Whoever calls knows the address that it is relative to.
            Err(_) if self.has_secret_url && matches!(url, "" | "/") => return "/".to_owned(),
            Err(_) if self.has_secret_url => url.to_owned(),
            Err(_) => self.document.join(url).map(String::from).unwrap_or_else(|_| url.to_owned()),
        };
        joined.trim_end_matches('/').to_owned()
    }
}

fn declared_url(server: &Value) -> Option<&str> {
    server.get("url").and_then(Value::as_str).filter(|url| url.len() <= MAX_URL_LEN)
}

/// Scheme, host and port of a server. None for one that is relative, which only `base_url` can complete.
fn origin(server: &str) -> Option<String> {
    if let Ok(url) = Url::parse(server) {
        return Some(url.origin().ascii_serialization());
    }
    // A variable without a value stands in it.
    let (scheme, rest) = server.split_once("://")?;
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    Some(format!("{scheme}://{authority}").to_ascii_lowercase())
}

/// The address with the defaults of its variables, in one pass: a default that named other variables could double at
/// each of them. Nothing where it grows too long to be an address.
fn fill_variables(url: &str, server: &Value) -> Option<String> {
    let default = |name: &str| {
        let variable = server.get("variables")?.get(name)?;
        match variable.get("default") {
            Some(Value::String(text)) => Some(text.clone()),
            Some(Value::Number(number)) => Some(number.to_string()),
            Some(Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_)) | None => {
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
        let at = |value| NodeRef { value, document_url: "" };
        let none = json!({});
        let servers = Servers::new(&document, at(&root), version, &openapi);
        let found = OperationRef {
            method: "GET".into(),
            path: "/",
            pointer: String::new(),
            path_item: NodeRef { value: &none, document_url: "" },
            operation: NodeRef { value: &operation, document_url: "" },
        };
        // The lifetimes of what is made here are all the same.
        servers.server_for(&found)
    }

    #[test]
    fn the_nearest_server_counts_and_its_variables_are_filled() {
        let one = |url: &str| json!({ "servers": [{ "url": url }, { "url": "https://second" }] });
        let web = "https://h/docs/openapi.json";
        for (document, root, operation, expected) in [
            (web, one("https://a/v1/"), json!({}), "https://a/v1"),
            (web, one("https://a/v1/"), one("https://b"), "https://b"),
            (web, one("/api"), json!({}), "https://h/api"),
            (web, one("v2"), json!({}), "https://h/docs/v2"),
            (web, json!({}), json!({}), "https://h"),
            ("https://h/${env:KEY}/api.json", one("v2/"), json!({}), "v2"),
            ("https://h/${env:KEY}/api.json", one("/"), json!({}), "/"),
            ("https://h/${env:KEY}/api.json", json!({}), json!({}), "/"),
            ("https://h/${env:KEY}/api.json", one("https://a/v1"), json!({}), "https://a/v1"),
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
            (web, one("https://{region}.b"), json!({}), "https://eu.b"),
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
