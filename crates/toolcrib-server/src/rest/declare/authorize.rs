//! Restricts declarations over HTTP: sources that run programs, read files or environment variables of the server, or
//! connect to private addresses need a local administrator or a permission in the configuration.

use std::convert::Infallible;

use serde_json::{Map, Value};
use toolcrib::address_policy::is_public_url;
use toolcrib::builtins::MUTATING_TOOLS;
use toolcrib::config::reference::{ReferencePart, split_references};
use toolcrib::core::source::{Auth, SourceKind};
use toolcrib::{Code, Error, Result, Source};

use crate::auth::{AuthenticatedClient, Role};
use crate::state::AppState;

/// Fails unless the principal may declare the source. An admin token used over the network must not give a shell on the
/// server, access to its secrets, or access to the network around it, unless `allow_commands` or `allow_private_sources`
/// permit it.
pub(super) async fn authorize(app: &AppState, client: &AuthenticatedClient, source: &Source) -> Result<()> {
    if is_local_admin(client) {
        return Ok(());
    }
    // Two separate permissions: what the source may do on the host, and which addresses it may reach.
    let loaded_config = app.loaded_config.load_full();
    if let Some(access) = host_access(&source.kind)
        && !loaded_config.config.allow_commands
    {
        return Err(host_access_error(&format!("`{}`", source.id), access));
    }
    if loaded_config.config.allow_private_sources {
        return Ok(());
    }
    let forbidden = |problem: String| {
        let message = format!(
            "`{}` {problem}, which is not permitted over the network; set `allow_private_sources: true` in the \
             configuration, or declare it there with `toolcrib add`",
            source.id
        );
        Err(Error::new(Code::Forbidden, message))
    };
    if allows_private_addresses(&source.kind) {
        return forbidden("would have `allow_private`".into());
    }
    for (key, url) in source_urls(&source.kind) {
        if !is_public_url(url).await {
            return forbidden(format!("has a `{key}` that resolves to private addresses"));
        }
    }
    Ok(())
}

/// Fails if a key of a declaration contains a reference and the principal may not use variables and files of the server.
/// Checked before any reference is resolved: responses show titles and tags, and errors quote wrong values.
pub(super) fn authorize_references(
    app: &AppState,
    client: &AuthenticatedClient,
    keys: &Map<String, Value>,
) -> Result<()> {
    let is_permitted = is_local_admin(client) || app.loaded_config.load().config.allow_commands;
    if is_permitted || !keys.values().any(contains_reference) {
        return Ok(());
    }
    Err(host_access_error("the source", "use variables or files"))
}

fn is_local_admin(client: &AuthenticatedClient) -> bool {
    client.is_local && client.principal.role() == Role::Admin
}

/// Error for a source that would do something on the host of the server, a verb phrase.
fn host_access_error(subject: &str, access: &str) -> Error {
    let message = format!(
        "{subject} would {access} on the server, which is not permitted over HTTP; set `allow_commands: true` in the \
         configuration, or declare it there with `toolcrib add`"
    );
    Error::new(Code::Forbidden, message)
}

/// True when the source itself would lift the restriction to public addresses.
fn allows_private_addresses(kind: &SourceKind) -> bool {
    match kind {
        SourceKind::OpenApi(openapi) => openapi.allow_private,
        SourceKind::Builtin(builtin) => builtin.allow_private,
        SourceKind::Stdio(_) | SourceKind::Http(_) | SourceKind::Sse(_) | SourceKind::Workflow(_) => false,
    }
}

/// Returns every URL in the declaration of a source, with its key. Addresses inside a fetched document are not known
/// yet; they are checked when they are used.
fn source_urls(kind: &SourceKind) -> Vec<(&'static str, &str)> {
    match kind {
        SourceKind::Http(remote) | SourceKind::Sse(remote) => vec![("url", &remote.url)],
        SourceKind::OpenApi(openapi) => {
            let documents = openapi.allow_refs.iter().map(|location| ("allow_refs", location.as_str()));
            let documents = documents.chain([("openapi", openapi.document.as_str())]);
            let mut urls: Vec<_> = documents.filter(|(_, location)| is_http_url(location)).collect();
            urls.extend(openapi.base_url.as_deref().map(|base| ("base_url", base)));
            urls.extend(openapi.auth.iter().flat_map(token_urls).map(|url| ("token_url", url)));
            urls
        }
        SourceKind::Stdio(_) | SourceKind::Workflow(_) | SourceKind::Builtin(_) => Vec::new(),
    }
}

/// Returns the token endpoints of OAuth 2, also of schemes inside schemes.
fn token_urls(auth: &Auth) -> Vec<&str> {
    match auth {
        // Without one, the document has it.
        Auth::Oauth2 { token_url, .. } if token_url.is_empty() => Vec::new(),
        Auth::Oauth2 { token_url, .. } => vec![token_url],
        Auth::Schemes(schemes) => schemes.values().flat_map(token_urls).collect(),
        Auth::Bearer(_) | Auth::Basic { .. } | Auth::ApiKey { .. } => Vec::new(),
    }
}

/// Returns what a source would do on the host of the server, as a verb phrase for the error message. `None` for a
/// source that only makes requests to the addresses in its declaration.
fn host_access(kind: &SourceKind) -> Option<&'static str> {
    let access = match kind {
        SourceKind::Stdio(_) => Some("start programs"),
        SourceKind::Builtin(builtin) if builtin.tools.iter().any(|tool| MUTATING_TOOLS.contains(&tool.as_str())) => {
            Some("start programs or change files")
        }
        SourceKind::Builtin(builtin) => (!builtin.roots.is_empty()).then_some("read files"),
        SourceKind::OpenApi(openapi) => {
            let mut locations = openapi.allow_refs.iter().chain([&openapi.document]);
            locations.any(|location| !is_http_url(location)).then_some("read files")
        }
        SourceKind::Workflow(_) => Some("read files"),
        SourceKind::Http(_) | SourceKind::Sse(_) => None,
    };
    access.or_else(|| has_references(kind).then_some("use variables or files"))
}

/// Everything else is a path on the host of the server.
fn is_http_url(location: &str) -> bool {
    let scheme = location.split_once("://").map(|(scheme, _)| scheme);
    scheme.is_some_and(|scheme| scheme.eq_ignore_ascii_case("http") || scheme.eq_ignore_ascii_case("https"))
}

/// True when any text of the source has a reference such as `${env:NAME}`, which the server would resolve.
fn has_references(kind: &SourceKind) -> bool {
    let mut has_reference = false;
    // Used as a visitor of all texts; the mapped copy is dropped.
    let copy = kind.try_map_texts(|text| {
        has_reference |= is_reference(text);
        Ok::<_, Infallible>(String::new())
    });
    drop(copy);
    has_reference
}

/// True when a text in a value of a declaration has a reference. The depth of the value is limited by its parser.
fn contains_reference(value: &Value) -> bool {
    match value {
        Value::String(text) => is_reference(text),
        Value::Array(items) => items.iter().any(contains_reference),
        Value::Object(members) => members.values().any(contains_reference),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

fn is_reference(text: &str) -> bool {
    split_references(text).iter().any(|part| matches!(part, ReferencePart::Reference(_)))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use toolcrib::config::parse_source;

    use super::*;

    #[test]
    fn all_urls_of_a_source_are_found() {
        let oauth2 = json!({ "token_url": "http://c/", "client_id": "i", "client_secret": "s" });
        for (keys, expected) in [
            (json!({ "url": "http://a/" }), vec![("url", "http://a/")]),
            (json!({ "url": "http://a/", "transport": "sse" }), vec![("url", "http://a/")]),
            (
                json!({
                    "openapi": "http://a/x.json", "base_url": "http://b/", "allow_refs": ["http://r/", "./refs"],
                    "auth": { "oauth2": oauth2.clone() },
                }),
                vec![
                    ("allow_refs", "http://r/"),
                    ("openapi", "http://a/x.json"),
                    ("base_url", "http://b/"),
                    ("token_url", "http://c/"),
                ],
            ),
            (
                json!({ "openapi": "./x.json", "auth": { "schemes": { "o": { "oauth2": oauth2 } } } }),
                vec![("token_url", "http://c/")],
            ),
            (json!({ "command": "x" }), vec![]),
            (json!({ "builtin": "all" }), vec![]),
        ] {
            let source = parse_source("a", &keys, std::path::Path::new("/p")).unwrap();
            assert_eq!(source_urls(&source.kind), expected, "{keys}");
        }
        for (keys, expected) in [
            (json!({ "builtin": ["url_fetch"], "allow_private": true }), true),
            (json!({ "openapi": "http://a/x.json", "allow_private": true }), true),
            (json!({ "openapi": "http://a/x.json" }), false),
        ] {
            let source = parse_source("a", &keys, std::path::Path::new("/p")).unwrap();
            assert_eq!(allows_private_addresses(&source.kind), expected, "{keys}");
        }
    }

    #[test]
    fn sources_with_access_to_the_host_are_recognised() {
        let has_access =
            |keys: &Value| host_access(&parse_source("a", keys, std::path::Path::new("/p")).unwrap().kind).is_some();
        for name in MUTATING_TOOLS {
            assert!(has_access(&json!({ "builtin": ["calculate", name] })), "{name}");
        }
        for keys in [
            json!({ "command": "x" }),
            json!({ "builtin": "all", "roots": ["."] }),
            json!({ "openapi": "./x.yaml" }),
            json!({ "openapi": "http://x/y.yaml", "allow_refs": ["./refs"] }),
            json!({ "workflow": "./x.yaml" }),
            json!({ "url": "http://x", "headers": { "X-Key": "a ${env:HOME}" } }),
            json!({ "url": "http://x", "headers": { "X-Key": "${HOME}" } }),
            json!({ "url": "http://x/${file:/etc/passwd}" }),
            json!({ "url": "http://x", "auth": { "bearer": "${file:/etc/passwd}" } }),
            json!({ "openapi": "http://x/y.yaml", "variables": { "a": "${env:HOME}" } }),
        ] {
            assert!(has_access(&keys), "{keys}");
        }
        for keys in [
            json!({ "url": "http://x", "headers": { "X-Key": "a" } }),
            json!({ "url": "http://x", "transport": "sse" }),
            json!({ "openapi": "https://x/y.yaml", "allow_refs": ["https://y/"] }),
            json!({ "builtin": "all" }),
            json!({ "builtin": ["calculate"] }),
        ] {
            assert!(!has_access(&keys), "{keys}");
        }
    }
}
